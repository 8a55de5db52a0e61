"""The feeds of `scripts/chaos`: readers of `_changes` on every node that go on where they were whenever they are cut off.
Standard library only.

A reader notes the revisions that it was told of each document. Once the writes are over and the nodes have settled it must have
been told the winning revision of every document that its filter lets through.
"""

import http.client
import json
import threading
import time
import urllib.parse

import node
from chaos_clients import LARGE, PLAIN

DESIGN = {
    "_id": "_design/chaos",
    "filters": {"picked": "function (doc, req) { return doc.pick === true; }"},
    "views": {
        "picked": {"map": "function (doc) { if (doc.pick === true) { emit(doc._id, null); } }"},
        "sizes": {"map": "function (doc) { if (doc.kind) { emit(doc.kind, doc.n); } }", "reduce": "_sum"},
        "counted": {
            "map": "function (doc) { if (doc.kind) { emit(doc.kind, 1); } }",
            "reduce": "function (keys, values) { return sum(values); }",
        },
    },
}
# Name of a feed: its parameters, the body of its request, and whether it lets only some documents through.
FEEDS = {
    "all": ("", None, False),
    "selector": ("&filter=_selector", {"selector": {"pick": True}}, True),
    "function": ("&filter=chaos/picked", None, True),
    "view": ("&filter=_view&view=chaos/picked", None, True),
    "include_docs": ("&include_docs=true", None, False),
}
# A node that says nothing for so long is left, heartbeats come each second.
SILENCE_S = 6


class Follower(threading.Thread):
    """One reader."""

    def __init__(self, db, kind, form, urls, at, stop):
        """`form`: `continuous` or `longpoll`. `at`: the node it stays with; `None`: another one after each cut."""
        place = "roaming" if at is None else f"n{at + 1}"
        super().__init__(daemon=True, name=f"{place} {form} {kind} of {db}")
        self.db, self.form, self.stop, self.failure = db, form, stop, None
        self.urls, self.at, self.turn = urls, at, 0
        self.query, self.body, self.is_picky = FEEDS[kind]
        self.since, self.seen, self.rows, self.cuts = "0", {}, 0, 0
        # Rows without their document, and with another revision's, by id.
        self.bare, self.crossed, self.refused = {}, {}, {}

    def run(self):
        try:
            while not self.stop.is_set():
                try:
                    self.read()
                except (OSError, http.client.HTTPException, json.JSONDecodeError):
                    self.cuts += 1
                    time.sleep(0.1)
        except Exception as error:  # a fault of this script is a failed run, not a reader that is missing
            self.failure = f"{self.name}: {type(error).__name__}: {error}"

    def read(self):
        """One request, to its end."""
        self.turn += 1
        client = node.Client(self.urls[self.turn % 3 if self.at is None else self.at])
        connection = http.client.HTTPConnection(*client.at, timeout=SILENCE_S)
        try:
            # A waiting answer that is kept alive by heartbeats would not end with this run.
            life = "timeout=3000" if self.form == "longpoll" else "heartbeat=1000"
            target = f"/{self.db}/_changes?feed={self.form}&{life}{self.query}"
            target += f"&since={urllib.parse.quote(str(self.since), safe='')}"
            body = json.dumps(self.body) if self.body else None
            headers = {**client.headers, **({"Content-Type": "application/json"} if body else {})}
            connection.request("POST" if body else "GET", target, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                text = f"{answer.status} {answer.read()[:120]}"
                self.refused[text] = self.refused.get(text, 0) + 1
                time.sleep(0.3)
            elif self.form == "longpoll":
                told = json.loads(answer.read())
                for row in told["results"]:
                    self.row(row)
                self.since = told["last_seq"]
            else:
                self.lines(answer)
        finally:
            connection.close()

    def lines(self, answer):
        while not self.stop.is_set():
            line = answer.readline()
            if not line:
                return
            if line.strip():
                row = json.loads(line)
                if "id" in row:
                    self.row(row)
                self.since = row.get("seq", row.get("last_seq", self.since))

    def row(self, row):
        self.rows += 1
        rev, doc = row["changes"][0]["rev"], row.get("doc")
        self.seen.setdefault(row["id"], set()).add(rev)
        if "include_docs" in self.query:
            if not isinstance(doc, dict):
                self.bare.setdefault(row["id"], rev)
            elif doc.get("_rev") != rev or doc.get("_id") != row["id"]:
                self.crossed.setdefault(row["id"], (rev, doc.get("_rev")))

    def missed(self, winners):
        """Documents of which it was never told, and those of which it was not told the last state. `winners`: for each
        document its winning revision, whether that is deleted, and whether filters let it through."""
        wanted = {name: rev for name, (rev, deleted, pick) in winners.items() if not self.is_picky or pick and not deleted}
        never = [name for name in wanted if name not in self.seen]
        stale = [name for name, rev in wanted.items() if name in self.seen and rev not in self.seen[name]]
        return never, stale, len(wanted)


def followers(urls, stop):
    """All readers: of each kind one on every node and one that goes from node to node."""
    out = []
    for kind in FEEDS:
        out += [Follower(PLAIN, kind, "continuous", urls, at, stop) for at in (0, 1, 2, None)]
    out += [Follower(PLAIN, kind, "longpoll", urls, at, stop) for at, kind in enumerate(["all", "selector", "include_docs"])]
    out += [Follower(LARGE, "all", "continuous", urls, at, stop) for at in (0, 1, 2)]
    out += [Follower(LARGE, "include_docs", "continuous", urls, None, stop)]
    return out
