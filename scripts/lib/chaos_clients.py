"""The writers and readers of `scripts/chaos`. Standard library only.

A writer has documents of its own, and edits those that all writers share; so a document of its own tells exactly what
must be there. Each works by one node until that does not answer, then by another one.
"""

import base64
import hashlib
import http.client
import json
import random
import re
import socket
import threading
import time

import node
from chaos_ledger import ANY, Edit, digest, generation

PLAIN, LARGE = "chaos", "chaos-large"
KINDS_OF_DOCUMENT = "abcde"
SHARED = 40
# Bytes of JSON that a document may have, with the node's default of `max_document_size`, and a little less than that.
LARGEST = 7_900_000
TIMEOUT_S = 10
REFUSED = (400, 403, 404, 409, 412, 413, 415)


class Gone(Exception):
    """No answer, or one that leaves open what was done."""


class Client(node.Client):
    """JSON, and bytes for attachments; any failure on the way is `Gone`."""

    def send(self, method, target, body=None, content_type=None):
        """Status and JSON; 5xx is `Gone`, too. `body`: JSON, or bytes of that type."""
        try:
            status, answer = self.raw(method, target, body, content_type)
            if status < 500:
                return status, json.loads(answer) if answer.strip() else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Gone(f"{method}: {type(error).__name__}") from error
        told = re.search(rb'"reason":"([^"]*)', answer)
        raise Gone(f"{method}: {status} {told[1].decode(errors='replace') if told else answer[:80]}")

    def raw(self, method, target, body=None, content_type=None):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.at, timeout=self.timeout)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = dict(self.headers)
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
            if content_type is None:
                body = json.dumps(body, separators=(",", ":")).encode()
        self.connection.request(method, target, body, headers)
        answer = self.connection.getresponse()
        data, self.told = answer.read(), answer.headers
        return answer.status, data


class Worker(threading.Thread):
    """A thread that asks one node until that does not answer."""

    def __init__(self, name, urls, rng, ledger, stop):
        super().__init__(daemon=True, name=name)
        self.urls, self.rng, self.ledger, self.stop = urls, rng, ledger, stop
        self.client, self.failure = Client(rng.choice(urls), TIMEOUT_S), None

    def move(self):
        self.client.close()
        self.client = Client(self.rng.choice(self.urls), TIMEOUT_S)

    def run(self):
        try:
            while not self.stop.is_set():
                try:
                    self.step()
                except Gone as gone:
                    self.ledger.count(f"no answer to {gone}"[:100])
                    self.move()
                    time.sleep(0.05)
        except Exception as error:  # a fault of this script is a failed run, not a thread that is missing
            self.failure = f"{self.name}: {type(error).__name__}: {error}"
        self.client.close()

    def missing_database(self, target, status, answer):
        if status == 404 and (answer or {}).get("reason") == "Database does not exist.":
            self.ledger.complain(f"{self.client.at[1]} {target}: the database does not exist")


class Writer(Worker):
    """Edits documents and tells the ledger."""

    def __init__(self, name, urls, rng, ledger, stop, large_bytes):
        """`large_bytes`: how much it may write of documents and attachments of megabytes."""
        super().__init__(name, urls, rng, ledger, stop)
        self.own, self.made, self.large_bytes = [], 0, large_bytes

    def step(self):
        kinds = {
            self.create: 30,
            self.update: 20,
            self.delete: 6,
            self.bulk: 12,
            self.attach: 6,
            self.share: 12,
            self.refused: 4,
            self.push: 4,
            self.database: 1,
            self.large: 2,
        }
        self.rng.choices(list(kinds), list(kinds.values()))[0]()

    # ---- what is written ----

    def text(self, length):
        return base64.b64encode(self.rng.randbytes(length * 3 // 4)).decode()

    def size(self):
        return int(self.rng.choices(
            [self.rng.uniform(20, 400), self.rng.uniform(1e3, 5e3), self.rng.uniform(2e4, 1e5), self.rng.uniform(4e5, 1.2e6)],
            [65, 29, 5.5, 0.5],
        )[0])

    def body(self, pick, length=None):
        self.made += 1
        body = {"token": f"{self.name}-{self.made}", "kind": self.rng.choice(KINDS_OF_DOCUMENT)}
        return {**body, "n": self.rng.randrange(100_000), "pick": pick, "text": self.text(length or self.size())}

    def new(self, db=PLAIN):
        self.made += 1
        return self.ledger.new(db, f"{self.name}-{self.made:05}", self.rng.random() < 0.4)

    def known(self, deleted=False):
        """A document of its own whose last edit is known, that is live, or deleted; `None` where it finds none."""
        for _ in range(5):
            if self.own:
                doc = self.rng.choice(self.own)
                if doc.last and not doc.unknown and doc.acknowledged[doc.last].deleted == deleted:
                    return doc
        return None

    def write(self, doc, method, target, body, edit, content_type=None):
        """Sends one edit and writes down what came of it; whether it was acknowledged."""
        try:
            status, answer = self.client.send(method, target, body, content_type)
        except Gone:
            doc.doubt()
            raise
        return self.outcome(doc, target, status, answer, edit)

    def outcome(self, doc, target, status, answer, edit):
        if status in (201, 202, 200) and answer and answer.get("rev"):
            edit.status = status
            doc.acknowledge(answer["rev"], edit)
            self.ledger.count(f"edits {status}")
            return True
        if status not in REFUSED:
            self.ledger.complain(f"{target}: {status} {str(answer)[:200]}")
        self.missing_database(target, status, answer)
        self.ledger.count(f"edits refused {status}")
        return False

    # ---- kinds of edits ----

    def create(self):
        doc = self.new()
        self.own.append(doc)
        body = self.body(doc.pick)
        self.write(doc, "PUT", f"/{PLAIN}/{doc.id}", body, Edit(None, False, digest(body), {}, 0))

    def update(self):
        doc = self.known(deleted=self.rng.random() < 0.1)
        if doc is None:
            return
        before, body = doc.acknowledged[doc.last], self.body(doc.pick)
        parent, kept = doc.last, {}
        if before.deleted and self.rng.random() < 0.5:
            parent, sent = ANY, body
        else:
            sent = {**body, "_rev": doc.last}
        if not before.deleted and before.attachments and self.rng.random() < 0.7:
            kept = before.attachments
            sent["_attachments"] = {name: {"stub": True} for name in kept}
        self.write(doc, "PUT", f"/{PLAIN}/{doc.id}", sent, Edit(parent, False, digest(body), kept, 0))

    def delete(self):
        doc = self.known()
        if doc is not None:
            edit = Edit(doc.last, True, digest({}), {}, 0)
            self.write(doc, "DELETE", f"/{PLAIN}/{doc.id}?rev={doc.last}", None, edit)

    def bulk(self):
        docs, edits, sent = [], [], []
        for _ in range(self.rng.choice([2, 10, 50, 200])):
            doc = self.known() if self.rng.random() < 0.3 else None
            if doc is None or doc in docs:
                doc = self.new()
                self.own.append(doc)
            deleted = bool(doc.last) and self.rng.random() < 0.2
            body = {} if deleted else self.body(doc.pick, None if len(docs) < 10 else self.rng.randrange(20, 2000))
            revision = {"_rev": doc.last} if doc.last else {}
            sent.append({"_id": doc.id, **body, **revision, **({"_deleted": True} if deleted else {})})
            docs.append(doc)
            edits.append(Edit(doc.last, deleted, digest(body), {}, 0))
        self.bulk_of(PLAIN, docs, edits, sent)

    def bulk_of(self, db, docs, edits, sent):
        try:
            status, items = self.client.send("POST", f"/{db}/_bulk_docs", {"docs": sent})
        except Gone:
            for doc in docs:
                doc.doubt()
            raise
        if status not in (201, 202):
            self.outcome(docs[0], f"/{db}/_bulk_docs", status, items, edits[0])
            return
        for doc, edit, item in zip(docs, edits, items):
            if item.get("ok"):
                edit.status = 202 if item.get("accepted") else status
                doc.acknowledge(item["rev"], edit)
                self.ledger.count("edits in bulk")
            elif item.get("error") not in ("conflict", "forbidden"):
                doc.doubt()
                self.ledger.count(f"in bulk {item.get('error')}"[:60])
            else:
                self.ledger.count("edits in bulk refused")

    def attach(self):
        """An attachment for a document of its own, by a request of its own."""
        doc = self.known()
        if doc is not None:
            self.attach_to(doc, int(self.rng.choice([100, 5_000, 70_000, 300_000])))

    def attach_to(self, doc, length):
        before, data = doc.acknowledged[doc.last], self.rng.randbytes(length)
        name = f"a{self.rng.randrange(3)}"
        attachments = {**before.attachments, name: hashlib.md5(data).hexdigest()}
        edit = Edit(doc.last, False, before.digest, attachments, 0)
        self.write(doc, "PUT", f"/{doc.db}/{doc.id}/{name}?rev={doc.last}", data, edit, "application/octet-stream")

    def share(self):
        """A document that other writers edit at the same time."""
        name = f"shared-{self.rng.randrange(SHARED):02}"
        doc = self.ledger.databases[PLAIN][name]
        status, found = self.client.send("GET", f"/{PLAIN}/{name}")
        self.missing_database(name, status, found)
        body = self.body(doc.pick, 200)
        if status == 200:
            sent, parent = {**body, "_rev": found["_rev"]}, found["_rev"]
        else:
            sent, parent = body, ANY
        self.write(doc, "PUT", f"/{PLAIN}/{name}", sent, Edit(parent, False, digest(body), {}, 0))

    def refused(self):
        """An edit of a revision that never was: nothing of it may be written."""
        doc = self.known()
        if doc is None:
            return
        body = {**self.body(doc.pick, 50), "_rev": f"{generation(doc.last)}-{self.rng.getrandbits(128):032x}"}
        status, answer = self.client.send("PUT", f"/{PLAIN}/{doc.id}", body)
        self.ledger.count("edits refused as they must be")
        if status != 409:
            self.ledger.complain(f"{doc.id}: an edit of a revision that never was: {status} {answer}")

    def push(self):
        """A replicated edit: it is acknowledged by an answer that does not name it."""
        doc = self.new()
        self.own.append(doc)
        body, revs = self.body(doc.pick), [f"{self.rng.getrandbits(128):032x}" for _ in range(2)]
        sent = {"_id": doc.id, **body, "_rev": f"2-{revs[0]}", "_revisions": {"start": 2, "ids": revs}}
        try:
            status, items = self.client.send("POST", f"/{PLAIN}/_bulk_docs", {"docs": [sent], "new_edits": False})
        except Gone:
            doc.unknown += 2
            raise
        if status in (201, 202) and items == []:
            doc.acknowledge(f"1-{revs[1]}", Edit(None, False, None, {}, status))
            doc.acknowledge(f"2-{revs[0]}", Edit(f"1-{revs[1]}", False, digest(body), {}, status))
            self.ledger.count("edits pushed")
        else:
            doc.unknown += 2
            self.ledger.count(f"edits pushed: {status} {str(items)[:40]}")

    def database(self):
        """A database of its own is made, or one of these deleted."""
        made = [name for name, there in self.ledger.made.items() if there and name.startswith(self.name)]
        if made and self.rng.random() < 0.4:
            name, method, after = self.rng.choice(made), "DELETE", False
        else:
            self.made += 1
            name, method, after = f"{self.name}-db{self.made}", "PUT", True
        self.ledger.made[name] = None
        status, answer = self.client.send(method, f"/{name}" + ("?q=1" if after else ""))
        if status in (200, 201, 202):
            self.ledger.made[name] = after
            self.ledger.count(f"databases {'made' if after else 'deleted'}")
        else:
            self.ledger.count(f"databases: {method} {status}")

    # ---- large ones ----

    def large(self):
        """A document of megabytes, or an attachment of tens of them."""
        length = int(self.rng.choice([self.rng.uniform(2e6, LARGEST), self.rng.uniform(5e6, 4e7)]))
        if length > self.large_bytes:
            return
        self.large_bytes -= length
        if length <= LARGEST:
            self.large_document(length)
        else:
            doc = self.large_document(1000)
            if doc is not None:
                self.attach_to(doc, length)

    def large_document(self, length):
        doc = self.new(LARGE)
        doc.bytes, body = length, self.body(doc.pick, length - 200)
        edit = Edit(None, False, digest(body), {}, 0)
        return doc if self.write(doc, "PUT", f"/{LARGE}/{doc.id}", body, edit) else None


class Burst:
    """Writes documents of nearly the largest size while a node is away."""

    def __init__(self, urls, rng, ledger, count):
        self.urls, self.rng, self.ledger, self.count = urls, rng, ledger, count

    def write(self, away):
        """By the nodes that are not away; says what was acknowledged."""
        urls = [url for n, url in enumerate(self.urls) if n != away]
        writer = Writer(f"burst{self.rng.randrange(10**6)}", urls, self.rng, self.ledger, threading.Event(), 0)
        writer.client.timeout, acknowledged, until = 30, 0, time.monotonic() + 120
        while acknowledged < self.count and time.monotonic() < until:
            try:
                acknowledged += writer.large_document(int(self.rng.uniform(7.3e6, LARGEST))) is not None
            except Gone:
                writer.move()
                time.sleep(0.2)
        writer.client.close()
        return f"{acknowledged} documents of some 7.5 MB"


class Reader(Worker):
    """Reads documents, which must be as new as what was acknowledged before, lists, views and queries."""

    def step(self):
        kinds = {self.document: 12, self.list: 1, self.view: 2, self.find: 2, self.attachment: 2}
        self.rng.choices(list(kinds), list(kinds.values()))[0]()
        time.sleep(0.02)

    def some(self):
        docs = list(self.ledger.databases[PLAIN].values())
        doc = self.rng.choice(docs)
        return doc if doc.last else None

    def document(self):
        doc = self.some()
        if doc is None:
            return
        with doc.lock:
            newest = max((r for r, e in doc.acknowledged.items() if e.status == 201), key=generation, default=None)
            is_shared = doc.id.startswith("shared-")
        status, found = self.client.send("GET", f"/{PLAIN}/{doc.id}")
        self.missing_database(doc.id, status, found)
        self.ledger.count("reads")
        if newest is None or is_shared or int(self.client.told.get("X-Settee-Copies", "0")) < 2:
            return
        self.ledger.count("reads by a majority")
        edit = doc.acknowledged[newest]
        gone = status == 404 and found.get("reason") == "deleted"
        if status == 200 and generation(found["_rev"]) >= generation(newest) or gone and (edit.deleted or doc.last != newest):
            return
        if status == 404 and doc.last == newest or status == 200:
            self.ledger.complain(f"{doc.id}: acknowledged with {newest} and read by a majority as {status} {str(found)[:120]}")

    def list(self):
        rows = self.rows(f"/{PLAIN}/_all_docs")
        names = [row["id"] for row in rows or []]
        if names != sorted(set(names)):
            self.ledger.complain(f"_all_docs: {len(names)} rows, {len(set(names))} of them different, or out of order")

    def rows(self, target):
        status, answer = self.client.send("GET", target)
        self.missing_database(target, status, answer)
        self.ledger.count("lists and views")
        return answer["rows"] if status == 200 else None

    def view(self):
        self.rows(f"/{PLAIN}/_design/chaos/_view/{self.rng.choice(['sizes', 'counted'])}?group=true")

    def find(self):
        start = self.rng.randrange(100_000)
        wanted = {"selector": {"n": {"$gte": start, "$lt": start + 2000}}, "fields": ["_id", "n"], "limit": 100}
        status, answer = self.client.send("POST", f"/{PLAIN}/_find", wanted)
        self.missing_database("_find", status, answer)
        self.ledger.count("queries")
        if status == 200 and not all(start <= doc["n"] < start + 2000 for doc in answer["docs"]):
            self.ledger.complain(f"_find of {start}: {str(answer)[:200]}")

    def attachment(self):
        doc = self.some()
        edit = doc and doc.acknowledged[doc.last]
        if not edit or not edit.attachments:
            return
        name, rev = self.rng.choice(list(edit.attachments)), doc.last
        try:
            status, data = self.client.raw("GET", f"/{PLAIN}/{doc.id}/{name}?rev={rev}")
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"GET: {type(error).__name__}") from error
        self.ledger.count("attachments read")
        if status == 200 and hashlib.md5(data).hexdigest() != edit.attachments[name]:
            self.ledger.complain(f"{doc.id}/{name} of {rev}: {len(data)} bytes that are not those written")


def rng_of(seed, *what):
    return random.Random("/".join([str(seed), *map(str, what)]))
