"""What `scripts/chaos` looks at when the faults are over: each node by itself against what clients were promised. Standard
library only.

A node is looked at while the two others are suspended, so that it answers from its own replicas alone; it is suspended before the
next one goes on, so that nothing passes from one to the other between the looks.
"""

import hashlib
import signal
import time

import node
from chaos_clients import LARGE, PLAIN, Client, Gone
from chaos_ledger import generation
from cluster import wait_until

TOLD = 3
PAGE = 300
LOOK_TIMEOUT_S = 120


class Checks:
    """Passed and failed checks, told one by one."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def expect(self, what, problems, good=""):
        """One check; `problems`: texts of what is wrong."""
        problems = list(problems)
        if problems:
            self.failed.append(what)
            print(f"FAILED {what}: {len(problems)}: " + "; ".join(map(str, problems[:TOLD])), flush=True)
        else:
            self.passed += 1
            print(f"ok     {what}{': ' if good else ''}{good}", flush=True)

    def skip(self, what, why):
        self.skipped.append(what)
        print(f"left out: {what}: {why}", flush=True)


def ask(client, method, target, body=None):
    """An answer of a node that nobody disturbs: 2xx."""
    status, answer = client.send(method, target, body)
    if status >= 300:
        raise Gone(f"{method} {target}: {status} {str(answer)[:200]}")
    return answer


def tips(client, db):
    """The leaves of each document."""
    rows = ask(client, "GET", f"/{db}/_changes?style=all_docs")["results"]
    return {row["id"]: frozenset(change["rev"] for change in row["changes"]) for row in rows}


def winners(client, db, docs):
    """For each document its winning revision, whether that is deleted, and whether filters let it through."""
    rows = ask(client, "GET", f"/{db}/_changes")["results"]
    return {
        row["id"]: (row["changes"][0]["rev"], bool(row.get("deleted")), docs[row["id"]].pick)
        for row in rows
        if row["id"] in docs
    }


def pages(names, size=PAGE):
    names = list(names)
    return (names[at : at + size] for at in range(0, len(names), size))


def lacking(client, db, docs):
    """Acknowledged revisions that the node does not have."""
    out = []
    for page in pages(docs, 1000):
        lacks = ask(client, "POST", f"/{db}/_revs_diff", {name: list(docs[name].acknowledged) for name in page})
        out += [f"{db}/{name}: {rev}" for name, diff in lacks.items() for rev in diff["missing"]]
    return out


class Looks:
    """Looks at one node after the other, each alone."""

    def __init__(self, ring, ledger, checks):
        self.ring, self.ledger, self.checks = ring, ledger, checks

    def alone(self, look):
        """Calls `look(n, client)` for each node while only that one runs."""
        ring = self.ring
        for n in range(3):
            ring.signal(n, signal.SIGSTOP)
        try:
            for n in range(3):
                ring.signal(n, signal.SIGCONT)
                client = Client(ring.url(ring.nodes[n]), LOOK_TIMEOUT_S)
                try:
                    self.wait_alone(n, client)
                    look(n, client)
                finally:
                    client.close()
                    ring.signal(n, signal.SIGSTOP)
        finally:
            for n in range(3):
                ring.signal(n, signal.SIGCONT)

    def wait_alone(self, n, client):
        def alone():
            try:
                return ask(client, "GET", "/_membership")["all_nodes"] == [self.ring.nodes[n]["name"]]
            except Gone:
                return False

        wait_until(f"n{n + 1} counts the others as dead", alone, 120)

    def settle(self, limit_s):
        """Waits until all nodes have the same leaves and lack nothing, each by itself; what is wrong at the end."""
        begun, pause, number = time.monotonic(), 1.0, 0
        while True:
            number += 1
            looked = {}

            def look(n, client):
                lacks = []
                for db, docs in self.all_docs():
                    lacks += lacking(client, db, docs)
                looked[n] = ({db: tips(client, db) for db, _ in self.all_docs()}, lacks)

            try:
                self.alone(look)
                problems = [f"n{n + 1} lacks {len(lacks)}: {lacks[:TOLD]}" for n, (_, lacks) in looked.items() if lacks]
                problems += self.differences({n: leaves for n, (leaves, _) in looked.items()})
            except (Gone, node.Failure) as error:
                problems = [str(error)]
            took = time.monotonic() - begun
            if not problems or took > limit_s:
                return took, number, problems
            time.sleep(pause)
            pause = min(2 * pause, 8.0)

    def all_docs(self):
        return [(db, self.ledger.docs(db)) for db in (PLAIN, LARGE)]

    def differences(self, looked):
        out = []
        for n in (1, 2):
            for db in (PLAIN, LARGE):
                first, other = looked[0][db], looked[n][db]
                unlike = [name for name in {*first, *other} if first.get(name) != other.get(name)]
                if unlike:
                    name = unlike[0]
                    told = f"{name}: {sorted(first.get(name, []))} and {sorted(other.get(name, []))}"
                    out.append(f"n1 and n{n + 1} differ in {len(unlike)} documents of {db}, such as {told}")
        return out

    # ---- one node in full ----

    def full(self, n, client):
        name = f"n{n + 1} alone"
        for what, check in [
            ("databases", self.databases),
            ("trees and bodies", self.trees),
            ("attachments byte for byte", self.attachments),
            ("_all_docs, views, queries against a recount", self.lists),
        ]:
            try:
                problems, good = check(client)
            except (Gone, node.Failure, KeyError) as error:
                problems, good = [f"{type(error).__name__}: {error}"], ""
            self.checks.expect(f"{name}: {what}", problems, good)

    def databases(self, client):
        there, made = set(ask(client, "GET", "/_all_dbs")), self.ledger.made
        problems = [f"{db} was acknowledged and is lost" for db, is_made in made.items() if is_made and db not in there]
        problems += [f"{db} was deleted and is back" for db, is_made in made.items() if is_made is False and db in there]
        strange = there - set(made) - {PLAIN, LARGE, "_users", "_replicator"}
        return problems + [f"{db} was never made" for db in strange], f"{len(there)}"

    def leaves(self, client, db, names):
        wanted = {"docs": [{"id": name} for name in names]}
        for result in ask(client, "POST", f"/{db}/_bulk_get?revs=true", wanted)["results"]:
            yield result["id"], [one["ok"] for one in result["docs"] if "ok" in one]

    def trees(self, client):
        problems, revisions, self.live = [], 0, {}
        for db, docs in self.all_docs():
            large = [name for name, doc in docs.items() if doc.bytes > 100_000]
            for page in [*pages(set(docs) - set(large)), *pages(large, 1)]:
                for name, leaves in self.leaves(client, db, page):
                    problems += [f"{db}/{name}: {what}" for what in docs[name].judge(leaves)]
                    revisions += len(docs[name].acknowledged)
                    live = [leaf for leaf in leaves if not leaf.get("_deleted")]
                    if db == PLAIN and live:
                        best = max(live, key=lambda leaf: (generation(leaf["_rev"]), leaf["_rev"].partition("-")[2]))
                        self.live[name] = (best["_rev"], best["kind"], best["n"])
        # A document with nothing but edits of unknown outcome may be there, but only whole.
        return problems, f"{revisions} acknowledged revisions"

    def attachments(self, client):
        problems, count, size = [], 0, 0
        for db, docs in self.all_docs():
            leaves = tips(client, db)
            for name, doc in docs.items():
                for rev in leaves.get(name, frozenset()) & set(doc.acknowledged):
                    for attachment, sum_ in doc.acknowledged[rev].attachments.items():
                        target = f"/{db}/{name}/{attachment}?rev={rev}"
                        status, data = client.raw("GET", target)
                        count, size = count + 1, size + len(data)
                        if status != 200 or hashlib.md5(data).hexdigest() != sum_:
                            problems.append(f"{target}: {status}, {len(data)} bytes")
        return problems, f"{count} of together {size / 1e6:.0f} MB"

    def lists(self, client):
        """Documents that nobody acknowledged may be there, too: what counts is what `_all_docs` has, and it has `live`."""
        all_rows = ask(client, "GET", f"/{PLAIN}/_all_docs")["rows"]
        listed = {row["id"]: row["value"]["rev"] for row in all_rows if not row["id"].startswith("_design/")}
        wrong = [name for name, (rev, *_) in self.live.items() if listed.get(name) != rev]
        problems = [f"_all_docs: {name} is {listed.get(name)}, not {self.live[name][0]}" for name in wrong]
        unknown = [name for name in listed if name not in self.live]
        for page in pages(unknown):
            for name, leaves in self.leaves(client, PLAIN, page):
                if name in self.ledger.docs(PLAIN):
                    problems.append(f"_all_docs: {name} is deleted and listed")
                best = next(leaf for leaf in leaves if leaf["_rev"] == listed[name])
                self.live[name] = (best["_rev"], best["kind"], best["n"])
        sums, counts = {}, {}
        for _, kind, n in self.live.values():
            sums[kind], counts[kind] = sums.get(kind, 0) + n, counts.get(kind, 0) + 1
        for view, expected in (("sizes", sums), ("counted", counts)):
            rows = ask(client, "GET", f"/{PLAIN}/_design/chaos/_view/{view}?group=true")["rows"]
            found = {row["key"]: row["value"] for row in rows}
            if found != expected:
                problems.append(f"the view {view}: {found}, a recount: {expected}")
        ids = {row["id"] for row in ask(client, "GET", f"/{PLAIN}/_design/chaos/_view/sizes?reduce=false")["rows"]}
        if ids != set(self.live):
            problems.append(f"the view's rows: {len(ids)} documents of {len(self.live)}")
        wanted = {"selector": {"n": {"$gte": 20_000, "$lt": 60_000}}, "fields": ["_id"], "limit": 1_000_000}
        found = {doc["_id"] for doc in ask(client, "POST", f"/{PLAIN}/_find", wanted)["docs"]}
        expected = {name for name, (_, _, n) in self.live.items() if 20_000 <= n < 60_000}
        if found != expected:
            odd = sorted(found ^ expected)
            problems.append(f"_find: {len(found)} documents of {len(expected)}, such as {odd[:TOLD]}")
        info = ask(client, "GET", f"/{PLAIN}")
        if info["doc_count"] != len(all_rows):
            problems.append(f"doc_count is {info['doc_count']}, {len(all_rows)} are listed")
        return problems, f"{len(self.live)} documents"


def panics_counted(client):
    """What the node's metric says of panics since its start; `None` where it has none."""
    status, text = client.raw("GET", "/_node/_local/_prometheus")
    for line in text.decode(errors="replace").splitlines():
        if status == 200 and line.startswith("settee_panics_total"):
            return int(float(line.rsplit(" ", 1)[1]))
    return None
