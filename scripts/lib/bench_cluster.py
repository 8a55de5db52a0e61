"""`scripts/bench cluster`: what replicas cost and how soon they are the same again. Four parts:

- `rates`: three nodes with three replicas beside one node, the same load one after the other;
- `return`: a node is away while documents are written, and comes back: time until it has them all;
- `rest`: what nodes say to each other, and what that costs, while nothing differs;
- `rebalance`: three nodes become four under load, what requests feel of it.

All nodes are processes on this machine and share its cores with each other and with the load.
"""

import statistics
import subprocess
import time

import node
from bench_find import document
from bench_reshard import HEADINGS, beside, load, moved
from cluster import Own

COPIES = 3
# One after the other that the returned node must have before it counts as level, and as many of all afterwards.
PROBES, LAST_PROBES = 24, 500
SMALL_DATABASES = 100
# A node looks at databases that changed every 30 s, and notes how far it has taken in the others.
SETTLE_S = 35
ROUNDS = 20
CLIENTS = 4


def rate_rows(urls, pids, args):
    """Operations with what each costs, as the generator of the load tells them."""
    command = [str(node.load_generator()), "--seconds", str(args.seconds), "--connections", str(args.connections)]
    command += [part for url in urls for part in ("--url", url)] + [part for pid in pids for part in ("--pid", str(pid))]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode:
        raise node.Failure(f"{len(urls)} nodes: {told.stderr.strip()}")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.stdout.splitlines() if line.startswith("|")]
    return rows[0], rows[2:]


def rates(args):
    with node.Node() as one:
        heading, alone = rate_rows([one.url], [one.process.pid], args)
    with Own(3, args.port) as three:
        _, together = rate_rows([three.url(one) for one in three.nodes], [one["pid"] for one in three.nodes], args)
    print(f"| {' | '.join([heading[0], 'nodes', *heading[1:]])} |\n|{'---|' * (len(heading) + 1)}")
    for pair in zip(alone, together):
        for nodes, row in zip((1, 3), pair):
            print(f"| {' | '.join([row[0], str(nodes), *row[1:]])} |", flush=True)


def copies_of(client, n):
    """How many replicas agreed on a document."""
    client.must("GET", f"/bench/{document(n)['_id']}?r={COPIES}")
    return int(client.told["X-Settee-Copies"])


def until_level(client, numbers, limit_s=3600):
    """Waits until all replicas of documents agree. A look at one that they do not agree on mends it: each is looked at
    once, those that were written last first."""
    begun, fresh, in_a_row = time.monotonic(), iter(numbers), 0
    while in_a_row < PROBES:
        if time.monotonic() - begun > limit_s:
            raise node.Failure("the replicas do not become the same")
        n = next(fresh, None)
        if n is None:
            raise node.Failure("all documents were looked at before the replicas were the same")
        if copies_of(client, n) == COPIES:
            in_a_row += 1
        else:
            in_a_row = 0
            time.sleep(0.1)


def returns(args):
    missed = range(args.docs, 2 * args.docs)
    with Own(3, args.port) as three:
        first, last = three.nodes[0], three.nodes[-1]
        client = node.Client(three.url(first), timeout=600)
        client.must("PUT", f"/bench?q={args.q}&n={COPIES}")
        load(three.url(first), "bench", args.docs)
        time.sleep(SETTLE_S)
        three.stop([last])
        load(three.url(first), "bench", 2 * args.docs, args.docs)
        cpu, sent, begun = three.usage()[0], links(three)["bytes_out"], time.monotonic()
        three.start_node(last)
        three.serves(last)
        serves_s = time.monotonic() - begun
        until_level(client, reversed(missed))
        level_s = time.monotonic() - begun
        cpu, sent = three.usage()[0] - cpu, links(three, three.nodes[:-1])["bytes_out"] - sent
        wrong = [n for n in missed[:: max(1, len(missed) // LAST_PROBES)] if copies_of(client, n) != COPIES]
        if wrong:
            raise node.Failure(f"{len(wrong)} documents were not everywhere, one of them {document(wrong[0])['_id']}")
    print("| documents that it had | missed | serves again after s | has all after s | documents a second | "
          "CPU s, all nodes | bytes to it for each |\n|---|---|---|---|---|---|---|")
    print(f"| {args.docs} | {len(missed)} | {serves_s:.1f} | {level_s:.1f} | {len(missed) / (level_s - serves_s):.0f} | "
          f"{cpu:.1f} | {sent / len(missed):.0f} |", flush=True)


def links(own, nodes=None):
    """What the nodes that run count of the connections between them, summed."""
    sums = {}
    for one in nodes or [one for one in own.nodes if own.alive(one)]:
        client = node.Client(own.url(one))
        for name, counted in client.must("GET", "/_node/_local/_stats/settee/cluster").items():
            sums[name] = sums.get(name, 0) + counted["value"]
        client.close()
    return sums


class Between:
    """CPU seconds of all nodes and what went between them during a block."""

    def __init__(self, own):
        self.own = own

    def __enter__(self):
        self.cpu, self.links, self.begun = self.own.usage()[0], links(self.own), time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begun
        self.cpu, after = self.own.usage()[0] - self.cpu, links(self.own)
        self.bytes, self.calls = (after[name] - self.links[name] for name in ("bytes_out", "calls"))


def heartbeat_bytes(own):
    """Bytes a second between nodes that only show signs of life: the median, which a round of looks does not move."""
    each = []
    for _ in range(20):
        with Between(own) as second:
            time.sleep(1)
        each.append(second.bytes / second.seconds)
    return statistics.median(each)


def rest(args):
    with Own(3, args.port) as three:
        client = node.Client(three.url(three.nodes[0]), timeout=600)
        for name in ["bench", *(f"small-{n}" for n in range(SMALL_DATABASES))]:
            client.must("PUT", f"/{name}?q={args.q if name == 'bench' else 2}&n={COPIES}")
        load(three.url(three.nodes[0]), "bench", args.docs)
        for n in range(SMALL_DATABASES):
            client.must("POST", f"/small-{n}/_bulk_docs", {"docs": [document(n) for n in range(10)]})
        time.sleep(SETTLE_S)
        until_level(client, range(args.docs))
        alive = heartbeat_bytes(three)
        print(f"Between three nodes with {SMALL_DATABASES} small databases and one of {args.docs} documents, nothing "
              f"differs; {alive:.0f} bytes a second are signs of life and not counted here.\n")
        print("| what | seconds | calls | bytes | CPU ms, all nodes |\n|---|---|---|---|---|", flush=True)

        def row(what, between):
            counted = max(0, between.bytes - alive * between.seconds)
            print(f"| {what} | {between.seconds:.0f} | {between.calls} | {counted:.0f} | {between.cpu * 1000:.0f} |", flush=True)

        with Between(three) as quiet:
            time.sleep(args.rest)
        row("rest", quiet)
        # The node has closed a connection that was idle for so long.
        client.close()
        with Between(three) as asked:
            for _ in range(ROUNDS):
                client.must("POST", "/bench/_sync_shards", status=(202,))
                time.sleep(1)
        row(f"{ROUNDS} times `_sync_shards` of the large one", asked)


def rebalance(args):
    with Own(3, args.port) as own:
        url = own.url(own.nodes[0])
        client = node.Client(url, timeout=600)
        client.must("PUT", f"/bench?q={args.q}&n={COPIES}")
        load(url, "bench", args.docs)
        print(HEADINGS, flush=True)
        written = beside(url, "bench", args.docs, "three nodes n=3, nothing beside", clients=CLIENTS)
        fourth = own.add()["name"]
        written += beside(url, "bench", args.docs, "a fourth node, without replicas", clients=CLIENTS)
        wanted = {"databases": ["bench"]}
        plan = client.must("POST", "/_cluster/rebalance", {**wanted, "dry_run": True})["moves"]
        cpu = own.usage()[0]
        begin = lambda: client.must("POST", "/_cluster/rebalance", wanted, status=(202,))
        what = f"{len(plan)} replicas go to it, {args.docs // args.q} documents each"
        written += beside(url, "bench", args.docs, what, begin, lambda: moved(client, wanted), clients=CLIENTS)
        cpu, mb = own.usage()[0] - cpu, own.usage()[1]
        shards = client.must("GET", "/bench/_shards")["shards"].values()
        held = sum(fourth in nodes for nodes in shards)
        if {len(nodes) for nodes in shards} != {COPIES} or held != len(plan):
            raise node.Failure(f"after the moves: {sorted(shards)}")
        count = client.must("GET", "/bench")["doc_count"]
        if count != args.docs + written:
            raise node.Failure(f"{count} documents after the moves, {args.docs + written} were written")
        until_level(client, range(args.docs))
        print(f"\nThe moves took {cpu:.1f} s of CPU of all nodes, the load's included; afterwards {mb:.0f} MB together.", flush=True)


PARTS = {"rates": rates, "return": returns, "rest": rest, "rebalance": rebalance}


def run(args):
    for at, part in enumerate(args.part or PARTS):
        print(f"{'' if at == 0 else chr(10)}{part}\n", flush=True)
        PARTS[part](args)
