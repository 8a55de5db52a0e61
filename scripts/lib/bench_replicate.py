"""`scripts/bench replicate`: what replication costs the node, near and far, and what idle replications cost it."""

import asyncio
import base64
import os
import threading
import time

import node
from bench_find import BATCH, Meter, document

ATTACHED = 100
ATTACHED_BYTES = 1 << 20
JOBS_MOST_MB = 500
CHOSEN = 100


class Far:
    """A proxy that passes bytes on after half a round trip in each direction. A thread of its own."""

    def __init__(self, port, round_trip_s):
        self.to, self.half = port, round_trip_s / 2
        self.loop, ready = asyncio.new_event_loop(), threading.Event()

        async def serve():
            server = await asyncio.start_server(self.pass_on, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        def run():
            self.loop.create_task(serve())
            self.loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        ready.wait()

    async def pass_on(self, reader, writer):
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(self.late(reader, there_writer), self.late(there_reader, writer))

    async def late(self, reader, writer):
        due = asyncio.Queue(64)

        async def read():
            while data := await reader.read(1 << 18):
                await due.put((self.loop.time() + self.half, data))
            await due.put((0, b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0, at - self.loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            reading.cancel()
            writer.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)


def copy(own, client, name, source, target, docs):
    """One replication, judged and printed as a row."""
    client.must("PUT", f"/{name}?q={own.q}")
    with Meter(own) as meter, node.Peak(own) as peak:
        answer = client.must("POST", "/_replicate", {"source": source, "target": target})
    done = answer["history"][0]
    if (done["docs_written"], done["doc_write_failures"]) != (docs, 0) or client.must("GET", f"/{name}")["doc_count"] != docs:
        raise node.Failure(f"{name}: {done}")
    return meter, peak.most_mb


def run(own, args):
    own.q, docs = args.q, args.docs
    client = node.Client(own.url, timeout=3600)
    client.must("PUT", f"/bench?q={args.q}")
    batches = [[document(n) for n in range(at, min(at + BATCH, docs))] for at in range(0, docs, BATCH)]
    node.bulk_load(own.url, "bench", batches=[batches[at::4] for at in range(4)], workers=4)
    print("| what | documents a second | CPU each | the same per core | memory at most |\n|---|---|---|---|---|")

    def row(what, name, source, target):
        meter, mb = copy(own, client, name, source, target, docs)
        cpu_us = meter.cpu / docs * 1e6
        print(f"| {what} | {docs / meter.seconds:.0f} | {cpu_us:.0f} us | {1e6 / cpu_us:.0f} | {mb:.0f} MB |", flush=True)

    row("here to here, by name", "near", "bench", "near")
    row("here to here, by URL", "by_url", f"{own.url}/bench", f"{own.url}/by_url")
    for ms in [10, 100]:
        far = Far(own.port, ms / 1000)
        url = own.url.replace(str(own.port), str(far.port))
        row(f"to a target {ms} ms away", f"to{ms}", "bench", f"{url}/to{ms}")
        row(f"from a source {ms} ms away", f"from{ms}", f"{url}/bench", f"from{ms}")
        far.stop()
    chosen(own, client, docs)
    attachments(own, client)
    if args.jobs:
        with node.Node() as fresh:
            idle(fresh, node.Client(fresh.url, timeout=3600), args.jobs)


def chosen(own, client, docs):
    """Goes on from checkpoints behind which a few documents match, before and after the selector is declared."""
    groups = max(docs // CHOSEN, 1)
    matching = len(range(0, docs, groups))
    selector = {"group": 0}
    client.must("PUT", f"/wide?q={own.q}")
    targets = ["judged", "declared"]
    for target in targets:
        client.must("PUT", f"/{target}?q={own.q}")
        go_on(own, client, target, selector, 0)
    batches = [[{**document(n), "group": n % groups} for n in range(at, min(at + BATCH, docs))] for at in range(0, docs, BATCH)]
    node.bulk_load(own.url, "wide", batches=[batches[at::4] for at in range(4)], workers=4)
    print(f"\n| {matching} of {docs} documents chosen, a replication goes on | time | CPU |\n|---|---|---|")
    for target in targets:
        if target == "declared":
            client.must("PUT", "/wide/_design/chosen", {"language": "query", "filters": {"zero": selector}})
            while client.must("GET", "/wide/_design/chosen/_info")["view_index"]["updates_pending"]["total"]:
                time.sleep(0.1)
        meter = go_on(own, client, target, selector, matching)
        print(f"| selector {target} | {meter.seconds * 1000:.0f} ms | {meter.cpu * 1000:.0f} ms |", flush=True)


def go_on(own, client, target, selector, docs):
    with Meter(own) as meter:
        answer = client.must("POST", "/_replicate", {"source": "wide", "target": target, "selector": selector})
    if client.must("GET", f"/{target}")["doc_count"] != docs:
        raise node.Failure(f"{target}: {answer}")
    return meter


def attachments(own, client):
    client.must("PUT", f"/pictures?q={own.q}")
    for n in range(ATTACHED):
        data = base64.b64encode(os.urandom(ATTACHED_BYTES)).decode()
        client.must("PUT", f"/pictures/p{n}", {"_attachments": {"a": {"content_type": "image/x-none", "data": data}}})
    print("\n| attachments | MB a second | memory at most |\n|---|---|---|")
    for what, name, source, base in [
        ("here to here, by name", "pictures1", "pictures", ""),
        ("to a URL", "pictures2", "pictures", own.url + "/"),
        ("from a URL", "pictures3", f"{own.url}/pictures", ""),
    ]:
        meter, mb = copy(own, client, name, source, base + name, ATTACHED)
        rate = ATTACHED * ATTACHED_BYTES / 1e6 / meter.seconds
        print(f"| {ATTACHED} of {ATTACHED_BYTES >> 20} MB, {what} | {rate:.0f} | {mb:.0f} MB |", flush=True)


def idle(own, client, jobs):
    """Continuous replications between few databases, which have nothing to do."""
    side = int(jobs**0.5 + 0.999)
    for n in range(side):
        client.must("PUT", f"/s{n}?q=1")
        client.must("PUT", f"/t{n}?q=1")
    before = node.usage(own.process.pid)[1]
    for n in range(jobs):
        order = {"source": f"s{n % side}", "target": f"t{n // side}", "continuous": True}
        client.must("POST", "/_replicate", order, status=(202,))
    time.sleep(5)
    seconds = 20
    with Meter(own) as meter:
        time.sleep(seconds)
    mb = node.usage(own.process.pid)[1]
    begun = time.monotonic()
    client.must("PUT", "/s0/news", {})
    while client.ask("GET", "/t0/news")[0] != 200:
        time.sleep(0.001)
    news_ms = (time.monotonic() - begun) * 1000
    print(f"\n{jobs} idle continuous jobs: {mb:.0f} MB ({mb - before:.0f} MB of them the jobs'), {meter.cpu / seconds * 100:.2f} % of a core, "
          f"a document over after {news_ms:.0f} ms")
    if mb > JOBS_MOST_MB:
        raise node.Failure(f"{mb:.0f} MB, more than {JOBS_MOST_MB}")
