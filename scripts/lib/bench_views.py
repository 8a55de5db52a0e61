"""`scripts/bench views`: what building and reading views costs the node, in CPU, time, memory and bytes."""

import json
import time
import urllib.parse

import node
from bench_find import BATCH, Meter, document, row

QUERIES = 1000
DESIGN = {
    "views": {
        "by_city": {"map": "function (doc) { emit([doc.city, doc.n], doc.price); }", "reduce": "_stats"},
        "by_n": {"map": "function (doc) { emit(doc.n, null); }"},
    },
}


class Reads(node.Watch):
    """How long reads of a document take during a block, one each 2 ms; of a rarer one the p99 would be the worst."""

    every_s = 0.002

    def __init__(self, own, path="/bench/order-00000005"):
        super().__init__()
        self.client, self.path, self.waits_ms = node.Client(own.url), path, []

    def look(self):
        begun = time.monotonic()
        self.client.must("GET", self.path)
        self.waits_ms.append((time.monotonic() - begun) * 1000)

    def __exit__(self, *over):
        super().__exit__(*over)
        self.client.close()

    def __str__(self):
        waits = sorted(self.waits_ms) or [0]
        return f"p50 {waits[len(waits) // 2]:.1f}, p99 {waits[len(waits) * 99 // 100]:.1f} ms"


def view(client, name, **parameters):
    text = "&".join(f"{key}={urllib.parse.quote(json.dumps(value))}" for key, value in parameters.items())
    return client.must("GET", f"/bench/_design/d/_view/{name}?{text}")


def expect(found, wanted, what):
    if found != wanted:
        raise node.Failure(f"{what}: {found}, not {wanted}")


def run(own, args):
    docs, client = args.docs, node.Client(own.url, timeout=3600)
    client.must("PUT", f"/bench?q={args.q}")
    # Built when it is asked for, so that the build can be measured.
    client.must("PUT", "/bench/_design/d", {**DESIGN, "autoupdate": False})

    def batches(part):
        for at in range(part * BATCH, docs, 4 * BATCH):
            yield [document(n) for n in range(at, min(at + BATCH, docs))]

    node.bulk_load(own.url, "bench", batches=[batches(part) for part in range(4)], workers=4)
    # The node closes connections that were idle for as long as loading many documents takes.
    client.close()
    with Reads(own) as idle:
        time.sleep(4)
    print("| what | CPU each | time each | rate | of |\n|---|---|---|---|---|")
    with node.Peak(own) as peak, Reads(own) as beside:
        with Meter(own) as meter:
            # The first one builds the other, too, where both are of one design document.
            for name in ["by_city", "by_n"]:
                expect(len(view(client, name, reduce=False, limit=1)["rows"]), 1, name)
        row("build of both views", meter, docs, f"{docs} documents")
    with Meter(own) as meter:
        for at in range(QUERIES):
            start = at * (docs - 50) // QUERIES
            expect(len(view(client, "by_n", startkey=start, endkey=start + 49)["rows"]), 50, "a range")
    row("range of 50 rows", meter, QUERIES, f"{QUERIES} queries")
    for name, parameters, groups in [
        ("reduce of everything, cold", {}, 1),
        ("reduce of everything", {}, 1),
        ("group_level=1, cold", {"group_level": 1}, 8),
        ("group_level=1", {"group_level": 1}, 8),
        ("reduce of a range", {"startkey": ["Lima"], "endkey": ["Oslo", docs // 2]}, 1),
    ]:
        count = 1 if name.endswith("cold") else 50
        with Meter(own) as meter:
            for _ in range(count):
                expect(len(view(client, "by_city", **parameters)["rows"]), groups, name)
        row(name, meter, count, f"{count} queries")
    info = client.must("GET", "/bench/_design/d/_info")["view_index"]
    print(f"\nIndexes of {docs} documents: {info['sizes']['file'] / 1e6:.1f} MB. Most memory during the builds: "
          f"{peak.most_mb:.0f} MB. Reads of a document: {idle} idle, {beside} beside the builds.")
