"""`scripts/bench find`: what declarative queries cost the node, in CPU and time."""

import json
import time

import node

DOCS = 100_000
BATCH = 1000
QUERIES = 1000
SCANS = 5
CITIES = ["Berlin", "Oslo", "Lima", "Accra", "Hanoi", "Quito", "Turin", "Perth"]


def document(n):
    """About 250 bytes, as records of applications are."""
    return {
        "_id": f"order-{n:08d}",
        "type": "order",
        "n": n,
        "city": CITIES[n % len(CITIES)],
        "price": (n * 7919) % 10_000 / 100,
        "customer": {"name": f"Customer {n % 977}", "mail": f"customer{n % 977}@example.org"},
        "lines": [{"sku": f"sku-{n % 389}", "count": n % 5 + 1}, {"sku": f"sku-{n % 57}", "count": 1}],
        "open": n % 3 == 0,
    }


class Meter:
    """CPU seconds of the node and seconds of the clock for a block."""

    def __init__(self, own):
        self.pid = own.process.pid

    def __enter__(self):
        self.cpu, self.begun = node.usage(self.pid)[0], time.monotonic()
        return self

    def __exit__(self, *_):
        self.cpu, self.seconds = node.usage(self.pid)[0] - self.cpu, time.monotonic() - self.begun


def row(name, meter, count, unit):
    cpu_us, us = meter.cpu / count * 1e6, meter.seconds / count * 1e6
    print(f"| {name} | {cpu_us:.1f} us CPU | {us:.1f} us | {1e6 / cpu_us if cpu_us else 0:.0f} a second per core | {unit} |", flush=True)


def find(client, body, results):
    answer = client.must("POST", "/bench/_find", body)
    if len(answer["docs"]) != results:
        raise node.Failure(f"{json.dumps(body)}: {len(answer['docs'])} documents, not {results}")
    return answer


def run(own, args):
    client = node.Client(own.url)
    client.must("PUT", f"/bench?q={args.q}")
    batches = [[document(n) for n in range(at, at + BATCH)] for at in range(0, DOCS, BATCH)]
    node.bulk_load(own.url, "bench", batches=[batches[at::4] for at in range(4)], workers=4)
    print("| what | CPU each | time each | rate | of |\n|---|---|---|---|---|")
    with Meter(own) as meter:
        client.must("POST", "/bench/_index", {"index": {"fields": ["n"]}, "ddoc": "n", "name": "n"})
        find(client, {"selector": {"n": DOCS - 1}}, 1)
    row("build of an index", meter, DOCS, f"{DOCS} documents")
    by_index = {"selector": {"n": {"$gte": 0}}, "limit": 25, "use_index": "n"}
    for name, more in [("25 documents by index", {}), ("the same, covered", {"fields": ["_id", "n"]})]:
        with Meter(own) as meter:
            for at in range(QUERIES):
                find(client, {**by_index, **more, "selector": {"n": {"$gte": at * 90}}}, 25)
        row(name, meter, QUERIES, f"{QUERIES} queries")
    values = [n * 3989 % DOCS for n in range(25)]
    with Meter(own) as meter:
        for _ in range(QUERIES):
            find(client, {"selector": {"n": {"$in": values}}, "limit": 25}, 25)
    row("25 documents by `$in`", meter, QUERIES, f"{QUERIES} queries")
    for name, selector in [
        ("full scan, one number", {"price": {"$lt": -1}}),
        ("full scan, text and nested", {"city": "Nowhere", "customer.name": "Customer 5"}),
        ("full scan, pattern", {"customer.mail": {"$regex": "^nobody"}}),
    ]:
        with Meter(own) as meter:
            for _ in range(SCANS):
                find(client, {"selector": selector}, 0)
        row(name, meter, DOCS * SCANS, f"{DOCS * SCANS} documents")
    with Meter(own) as meter:
        answer = client.must("POST", "/bench/_find", {"selector": {"n": {"$gte": 0}}, "use_index": "n", "limit": 0, "count": True})
    if answer["count"] != DOCS:
        raise node.Failure(f"count {answer['count']}")
    row("count by index, covered", meter, DOCS, f"{DOCS} rows")
