"""`scripts/bench reshard`: splits and moves under load, what they take and what the requests beside them feel.

A node splits the one range of a database; then three nodes, one of which is emptied into the others.
"""

import http.client
import threading
import time

import node
from bench_find import BATCH, document
from cluster import Own

HEADINGS = "| what | seconds | requests beside | failed | GET p50 ms | p99 | most | PUT p50 ms | p99 | most |\n" + "|---" * 10 + "|"


class Load:
    """Reads and writes of some clients beside the work, with their latencies in ms."""

    def __init__(self, url, database, docs, clients):
        self.url, self.database, self.docs, self.clients = url, database, docs, clients
        self.waits_ms, self.failed, self.over = {"GET": [], "PUT": []}, 0, threading.Event()

    def one(self, client, method, target, body=None):
        begun = time.monotonic()
        try:
            status, _ = client.ask(method, target, body)
        except (OSError, http.client.HTTPException):
            status = 599  # no answer at all
        self.waits_ms[method].append((time.monotonic() - begun) * 1000)
        self.failed += status >= 300

    def work(self, number):
        client, n, prefix = node.Client(self.url), 0, f"beside-{time.monotonic_ns()}-{number}"
        while not self.over.wait(0.002):
            n += 1
            self.one(client, "GET", f"/{self.database}/{document((n * self.clients + number) * 7919 % self.docs)['_id']}")
            self.one(client, "PUT", f"/{self.database}/{prefix}-{n}", {"n": n})
        client.close()

    def __enter__(self):
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(self.clients)]
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.seconds = time.monotonic() - self.begun

    def row(self, what):
        cells = []
        for method in ("GET", "PUT"):
            waits = sorted(self.waits_ms[method]) or [0]
            cells += [f"{waits[len(waits) // 2]:.1f}", f"{waits[len(waits) * 99 // 100]:.1f}", f"{waits[-1]:.0f}"]
        count = sum(len(waits) for waits in self.waits_ms.values())
        print(f"| {what} | {self.seconds:.1f} | {count} | {self.failed} | {' | '.join(cells)} |", flush=True)


def until(done, limit_s=3600):
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > limit_s:
            raise node.Failure("it does not end")
        time.sleep(0.05)


def load(url, database, docs, first=0):
    """Writes documents up to a number."""

    def batches(part):
        for at in range(first + part * BATCH, docs, 4 * BATCH):
            yield [document(n) for n in range(at, min(at + BATCH, docs))]

    node.bulk_load(url, database, batches=[batches(part) for part in range(4)], workers=4)


def beside(url, database, docs, what, begin=None, done=None, seconds=10, clients=1):
    """Runs the load while `done` is not, or for some seconds; answers how many documents it wrote."""
    with Load(url, database, docs, clients) as beside_it:
        if begin:
            begin()
            until(done)
        else:
            time.sleep(seconds)
    beside_it.row(what)
    if beside_it.failed:
        raise node.Failure(f"{beside_it.failed} requests failed")
    return len(beside_it.waits_ms["PUT"])


def moved(client, wanted):
    """Whether nothing is left to be moved, nor on its way."""
    left = client.must("POST", "/_cluster/rebalance", {**wanted, "dry_run": True})["moves"]
    return not left and not client.must("GET", "/_cluster/rebalance")["moves"]


def split(own, args):
    client = node.Client(own.url, timeout=3600)
    client.must("PUT", "/bench?q=1")
    load(own.url, "bench", args.docs)
    beside(own.url, "bench", args.docs, "one node, nothing beside")
    begin = lambda: client.must("POST", "/_reshard/jobs", {"type": "split", "db": "bench"})
    done = lambda: client.must("GET", "/_reshard")["completed"] == 1
    beside(own.url, "bench", args.docs, f"one node, a range of {args.docs} documents is split", begin, done)
    info = client.must("GET", "/bench")
    if info["cluster"]["q"] != 2 or info["doc_count"] < args.docs:
        raise node.Failure(f"after the split: {info}")


def move(args):
    with Own(3) as three:
        url = three.url(three.nodes[1])
        client = node.Client(url, timeout=3600)
        client.must("PUT", f"/bench?q={args.q}&n=2")
        load(url, "bench", args.docs)
        beside(url, "bench", args.docs, "three nodes n=2, nothing beside")
        wanted = {"drain": [three.nodes[0]["name"]], "databases": ["bench"]}
        replicas = len(client.must("POST", "/_cluster/rebalance", {**wanted, "dry_run": True})["moves"])
        begin = lambda: client.must("POST", "/_cluster/rebalance", wanted, status=(202,))
        what = f"three nodes, one with {replicas} replicas is emptied"
        beside(url, "bench", args.docs, what, begin, lambda: moved(client, wanted))
        if client.must("GET", "/bench")["doc_count"] < args.docs:
            raise node.Failure("documents are missing after the moves")


def run(own, args):
    print(HEADINGS, flush=True)
    split(own, args)
    move(args)
