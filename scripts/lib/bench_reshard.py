"""`scripts/bench reshard`: splits and moves under load, what they take and what the requests beside them feel.

A node splits the one range of a database; then three nodes, one of which is emptied into the others.
"""

import os
import pathlib
import subprocess
import tempfile
import threading
import time

import node
from bench_find import BATCH, document


class Load:
    """Reads and writes beside the work, with their latencies in ms."""

    def __init__(self, url, database, docs):
        self.url, self.database, self.docs = url, database, docs
        self.waits_ms, self.failed, self.over = {"GET": [], "PUT": []}, 0, threading.Event()

    def one(self, client, method, target, body=None):
        begun = time.monotonic()
        status, _ = client.ask(method, target, body)
        self.waits_ms[method].append((time.monotonic() - begun) * 1000)
        self.failed += status >= 300

    def work(self):
        client, n, prefix = node.Client(self.url), 0, f"beside-{time.monotonic_ns()}"
        while not self.over.wait(0.002):
            n += 1
            self.one(client, "GET", f"/{self.database}/{document(n * 7919 % self.docs)['_id']}")
            self.one(client, "PUT", f"/{self.database}/{prefix}-{n}", {"n": n})
        client.close()

    def __enter__(self):
        self.thread, self.begun = threading.Thread(target=self.work), time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
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


def load(url, database, docs):
    def batches(part):
        for at in range(part * BATCH, docs, 4 * BATCH):
            yield [document(n) for n in range(at, min(at + BATCH, docs))]

    node.bulk_load(url, database, batches=[batches(part) for part in range(4)], workers=4)


def beside(url, database, docs, what, begin=None, done=None, seconds=10):
    """Runs the load while `done` is not, or for some seconds."""
    with Load(url, database, docs) as beside_it:
        if begin:
            begin()
            until(done)
        else:
            time.sleep(seconds)
    beside_it.row(what)
    if beside_it.failed:
        raise node.Failure(f"{beside_it.failed} requests failed")


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
    command = [str(pathlib.Path(node.ROOT) / "scripts/cluster")]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SETTEE": str(node.binary().resolve())}
        started = subprocess.run([*command, "3", "--data", folder, "--admin", "adm:pass"], env=env, check=True, capture_output=True, text=True)
        try:
            urls = started.stdout.split()
            client = node.Client(urls[1], timeout=3600)
            client.must("PUT", f"/bench?q={args.q}&n=2")
            load(urls[1], "bench", args.docs)
            beside(urls[1], "bench", args.docs, "three nodes n=2, nothing beside")
            wanted = {"drain": ["n1@127.0.0.1"], "databases": ["bench"]}
            plan = lambda: client.must("POST", "/_cluster/rebalance", {**wanted, "dry_run": True})["moves"]
            copies = len(plan())
            begin = lambda: client.must("POST", "/_cluster/rebalance", wanted, status=(202,))
            done = lambda: not plan() and not client.must("GET", "/_cluster/rebalance")["moves"]
            beside(urls[1], "bench", args.docs, f"three nodes, one with {copies} copies is emptied", begin, done)
            if client.must("GET", "/bench")["doc_count"] < args.docs:
                raise node.Failure("documents are missing after the moves")
        finally:
            subprocess.run([*command, "stop", "--data", folder], env=env, check=True, capture_output=True)


def run(own, args):
    print("| what | seconds | requests beside | failed | GET p50 ms | p99 | most | PUT p50 ms | p99 | most |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    split(own, args)
    move(args)
