"""`scripts/bench search`: what full-text indexes of both forms cost to build, and how long searches take."""

import json
import random
import time
import urllib.parse

import node
from bench_views import Reads

BATCH = 1000
# Words of a text, and how many there are: the n-th is 1/n as frequent as the first.
WORDS = 30
VOCABULARY = 20_000
SEARCHES = 200
KINDS = ["fruit", "tool", "book", "toy"]
# Read beside the builds.
READ = "/bench/d00000005"

PLAIN = """function (doc) { index('default', doc.text); index('kind', doc.kind, {facet: true}); index('n', doc.n); }"""
TYPED = """function (doc) { index('text', 'default', doc.text); index('string', 'kind', doc.kind);
  index('double', 'n', doc.n); }"""


def words(dice):
    """Words as frequent as those of a language are, about."""
    return [f"w{min(VOCABULARY - 1, int(1 / (1 - dice.random() * (1 - 1 / VOCABULARY))) - 1)}" for _ in range(WORDS)]


def document(n, dice):
    return {"_id": f"d{n:08d}", "text": " ".join(words(dice)), "kind": KINDS[n % len(KINDS)], "n": n}


def batches(docs, share, shares):
    dice = random.Random(share)
    for at in range(share * BATCH, docs, shares * BATCH):
        yield [document(n, dice) for n in range(at, min(docs, at + BATCH))]


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))] * 1000


def build(own, client, path, docs):
    """Waits until an index is built, while a document is read; the node's CPU includes these reads."""
    client.timeout = 3600
    with Reads(own, READ) as beside:
        cpu, begun = node.usage(own.process.pid)[0], time.monotonic()
        client.must("GET", path)
        cpu, seconds = node.usage(own.process.pid)[0] - cpu, time.monotonic() - begun
    print(f"| reads beside the build | {beside} | | |", flush=True)
    print(f"| build | {docs / cpu:.0f} documents a second and core | {docs / seconds:.0f} a second | {seconds:.1f} s |", flush=True)


def searches(form, dice):
    """Names of searches and what makes their parameters."""
    word = lambda: f"w{dice.randrange(2, 500)}"
    yield "a frequent word", lambda: {"q": f"w{dice.randrange(1, 20)}"}
    yield "a rare word", lambda: {"q": f"w{dice.randrange(1000, VOCABULARY)}"}
    yield "two words, both", lambda: {"q": f"{word()} AND {word()}"}
    yield "a phrase", lambda: {"q": f'"w{dice.randrange(1, 10)} w{dice.randrange(1, 10)}"'}
    yield "a prefix", lambda: {"q": f"w{dice.randrange(10, 100)}*"}
    yield "a wildcard", lambda: {"q": f"w{dice.randrange(1, 10)}?5*"}
    yield "a fuzzy word", lambda: {"q": f"w{dice.randrange(100, 1000)}~1"}
    yield "a range of numbers", lambda: {"q": f"n:[{(at := dice.randrange(1000))} TO {at + 500}]"}
    yield "a word, sorted by number", lambda: {"q": word(), "sort": json.dumps("-n" if form == "_nouveau" else "-n<number>")}
    yield "a word, counted by kind", lambda: {"q": f"w{dice.randrange(1, 20)}", "counts": json.dumps(["kind"])}
    yield "all, counted by kind", lambda: {"q": "*:*", "counts": json.dumps(["kind"])}


def measure(client, form, base):
    for name, parameters in searches(form, random.Random(7)):
        times = []
        total = 0
        for _ in range(SEARCHES):
            target = f"{base}?{urllib.parse.urlencode(parameters())}"
            begun = time.monotonic()
            answer = client.must("GET", target)
            times.append(time.monotonic() - begun)
            total += answer.get("total_rows", answer.get("total_hits", 0))
        print(
            f"| {name} | p50 {percentile(times, 0.5):.1f} ms | p99 {percentile(times, 0.99):.1f} ms "
            f"| {total / SEARCHES:.0f} matches each |",
            flush=True,
        )


def run(own, args):
    client = node.Client(own.url)
    client.must("PUT", f"/bench?q={args.q}")
    client.must("PUT", "/_node/_local/_config/nouveau/enable", "true")
    node.bulk_load(own.url, "bench", batches=[batches(args.docs, share, 2) for share in range(2)], workers=2)
    design = {
        "autoupdate": False,
        "indexes": {"i": {"index": PLAIN}},
        "nouveau": {"i": {"index": TYPED}},
    }
    client.must("PUT", "/bench/_design/s", design)
    text = sum(len(document(n, random.Random(n))["text"]) for n in range(1000)) * args.docs // 1000
    print(f"{args.docs} documents of {WORDS} words, {text / 1e6:.0f} MB of text")
    # The node closes connections that were idle for as long as loading many documents takes.
    client.close()
    with Reads(own, READ) as idle:
        time.sleep(4)
    print(f"Reads of a document: {idle} idle.\n")
    for form, info, size in [("_search", "_search_info", "disk_size"), ("_nouveau", "_nouveau_info", "disk_size")]:
        print(f"| `{form}` | | | |\n|---|---|---|---|")
        base = f"/bench/_design/s/{form}/i"
        build(own, client, f"{base}?q=w5", args.docs)
        measure(client, form, base)
        bytes_ = client.must("GET", f"/bench/_design/s/{info}/i")["search_index"][size]
        print(f"| index | {bytes_ / 1e6:.1f} MB | {bytes_ / args.docs:.0f} bytes a document | memory of the node at most {node.peak_mb(own.process.pid):.0f} MB |\n")
