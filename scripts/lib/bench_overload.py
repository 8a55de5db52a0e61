"""`scripts/bench overload`: what a node still does when more is asked of it than it can do. Standard library only.

Requests are queries that the node has to work for (`_find` without an index); the client only sends bytes. First the
capacity is measured with 32 connections that wait for each answer. Then requests come at fixed rates, whatever the answers
are, from a quarter of the capacity to ten times it; a client that has no answer after its patience hangs up. Goodput is
answers with 200 within that time. The peak is the best goodput of all rates; the aim is 80 % of it at ten times the capacity
(`AIM`). The last line is a modest user at a tenth of the capacity beside one who asks for ten times the capacity.

The node is that of $SETTEE, or of --binary. Client and node share the machine: --client-cores and --node-cores
(as `taskset` takes them, `0-3`) keep them apart, and the picture is of the node alone then."""

import asyncio
import base64
import json
import os
import pathlib
import resource
import time

import node

DOCS = 2_000
PATIENCE_S = 2.0
# Before each measurement: until the queues are as they stay (`admission/wait_ms`).
WARM_S = 12.0
SHARES = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10)
AIM = 0.8
# Time whose requests are sent at once at most.
BURST_S = 0.02
USERS = ("greedy", "modest")


def request_of(user, database):
    token = base64.b64encode(f"{user}:{node.PASSWORD}".encode()).decode()
    body = b'{"selector":{"n":{"$gt":-1},"text":{"$regex":"nothing"}},"limit":1}'
    lines = [f"POST /{database}/_find HTTP/1.1", "Host: bench", f"Authorization: Basic {token}", "Content-Type: application/json",
             "Accept: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Pool:
    """Keep-alive connections, as many as are in use."""

    def __init__(self, at):
        self.at, self.free = at, []

    async def ask(self, request):
        """The status of an answer."""
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection(*self.at, limit=1 << 20)
        whole = False
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            low = head.lower()
            if b"content-length:" in low:
                await reader.readexactly(int(low.split(b"content-length:")[1].split(b"\r\n")[0]))
            else:
                while True:
                    size = int(await reader.readline(), 16)
                    await reader.readexactly(size + 2)
                    if not size:
                        break
            whole = b"connection: close" not in low
            return int(head[9:12])
        finally:
            if whole:
                self.free.append((reader, writer))
            else:
                writer.close()

    def close(self):
        [writer.close() for _, writer in self.free]


class Load:
    """Requests at a fixed rate. What is counted begins after `WARM_S` and ends with the last request: before, queues fill, and behind it
    the node works off what it was asked for."""

    def __init__(self, pool, request, rate):
        self.pool, self.request, self.rate = pool, request, rate
        self.asked, self.counts = 0, False
        self.sent, self.good, self.refused, self.late, self.times = 0, 0, 0, 0, []

    def count(self, what):
        if self.counts:
            setattr(self, what, getattr(self, what) + 1)

    async def one(self):
        begun = time.monotonic()
        try:
            status = await asyncio.wait_for(self.pool.ask(self.request), PATIENCE_S)
            took = time.monotonic() - begun
            self.count("good" if status == 200 else "refused")
            if status == 200 and self.counts:
                self.times.append(took)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError):
            self.count("late")

    async def run(self, seconds):
        begun, tasks = time.monotonic(), set()
        while (now := time.monotonic() - begun) < WARM_S + seconds:
            self.counts = now >= WARM_S
            # A client that falls behind does not catch up: its burst would measure the client. The table shows what it did offer.
            due = int(now * self.rate) + 1 - self.asked
            self.asked += due
            for _ in range(min(due, int(self.rate * BURST_S) + 1)):
                self.count("sent")
                task = asyncio.create_task(self.one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.002)
        self.counts = False
        await asyncio.gather(*tasks)

    def row(self, seconds):
        self.times.sort()
        at = lambda share: round(self.times[int((len(self.times) - 1) * share)] * 1000, 1) if self.times else None
        a_second = {name: round(getattr(self, name) / seconds, 1) for name in ("sent", "good", "refused", "late")}
        return {"offered": a_second["sent"], "goodput": a_second["good"], "refused": a_second["refused"], "late": a_second["late"],
                "p50_ms": at(0.5), "p99_ms": at(0.99)}


async def peak(pool, request, seconds, connections=32):
    count, until = 0, time.monotonic() + seconds

    async def again():
        nonlocal count
        while time.monotonic() < until:
            # Not `count += await ..`: that reads the count before it waits.
            is_good = await pool.ask(request) == 200
            count += is_good

    await asyncio.gather(*(again() for _ in range(connections)))
    return count / seconds


HEAD = """| offered, of the capacity | offered/s | goodput/s | of the peak | refused/s | late/s | p50 ms | p99 ms |
|---|---|---|---|---|---|---|---|"""


def table(found):
    """The curve as a Markdown table."""
    lines = [HEAD]
    for row in found["rows"]:
        lines.append(f"| {row['share']}x | {row['offered']} | {row['goodput']} | {row['goodput'] / found['peak']:.0%} | {row['refused']} "
                     f"| {row['late']} | {row['p50_ms']} | {row['p99_ms']} |")
    if any(row["offered"] < 0.9 * row["share"] * found["capacity"] for row in found["rows"]):
        lines += ["", "The client could not offer as much as it was to: give it processors of its own, or the node fewer."]
    last, (modest, greedy) = found["rows"][-1], (found["fairness"][user] for user in ("modest", "greedy"))
    part = last["goodput"] / found["peak"]
    lines += ["", f"At {last['share']}x the goodput is {part:.0%} of the peak of {found['peak']} answers a second: the aim of {AIM:.0%} is "
              f"{'reached' if part >= AIM else 'not reached'}.",
              f"A modest user at a tenth of the capacity beside a greedy one at ten times the capacity: {modest['goodput']} good of "
              f"{modest['offered']} a second, p99 {modest['p99_ms']} ms; the greedy one {greedy['goodput']}."]
    return "\n".join(lines)


async def measure(own, args):
    pool = Pool(("127.0.0.1", own.port))
    greedy, modest = (request_of(user, f"overload-{user}") for user in USERS)
    capacity = await peak(pool, greedy, args.seconds)
    print(f"capacity: {capacity:.1f} answers a second with 32 connections", flush=True)
    if not capacity:
        raise node.Failure("no query was answered with 200")
    rows = []
    for share in SHARES:
        load = Load(pool, greedy, capacity * share)
        await load.run(args.seconds)
        rows.append({"share": share, **load.row(args.seconds)})
        print(f"{share}x: {rows[-1]}", flush=True)
        await asyncio.sleep(2)
    many, few = Load(pool, greedy, capacity * 10), Load(Pool(pool.at), modest, capacity / 10)
    await asyncio.gather(many.run(args.seconds), few.run(args.seconds))
    fair = {user: load.row(args.seconds) for user, load in zip(USERS, (many, few))}
    pool.close()
    best = max([row["goodput"] for row in rows] + [0.1])
    return {"capacity": round(capacity, 1), "peak": best, "patience_s": PATIENCE_S, "seconds": args.seconds, "cores": os.cpu_count(),
            "rows": rows, "fairness": fair}


def curve(points, color, dash=""):
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
    return [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"{dash}/>', *dots]


def picture(found):
    """Goodput and the 99th percentile of its answers against the offered load, as SVG."""
    width, height, left, right, bottom, top = 680, 340, 60, 60, 50, 40
    x = lambda share: left + (width - left - right) * share / max(SHARES)
    y = lambda part: height - bottom - (height - bottom - top) * min(part, 1.0)
    slowest_ms = PATIENCE_S * 1000
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20">Goodput under overload: answers within {PATIENCE_S:g} s, of the peak of {found["peak"]:g}/s</text>']
    for part in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        aim = part == AIM
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(part):.1f}" y2="{y(part):.1f}" '
                   f'stroke="{"#c33" if aim else "#ddd"}"{" stroke-dasharray=" + chr(34) + "4" + chr(34) if aim else ""}/>')
        out.append(f'<text x="{left - 8}" y="{y(part) + 4:.1f}" text-anchor="end" fill="#06c">{part:.0%}</text>')
        out.append(f'<text x="{width - right + 8}" y="{y(part) + 4:.1f}" fill="#a60">{part * slowest_ms:.0f} ms</text>')
    for share in (0, *range(1, 11)):
        out.append(f'<text x="{x(share):.1f}" y="{height - bottom + 18}" text-anchor="middle">{share}x</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">offered load, of the capacity: '
               '<tspan fill="#06c">goodput</tspan>, <tspan fill="#a60">99th percentile</tspan>, <tspan fill="#c33">aim</tspan></text>')
    slow = [(x(row["share"]), y(row["p99_ms"] / slowest_ms)) for row in found["rows"] if row["p99_ms"] is not None]
    out += curve(slow, "#a60", ' stroke-dasharray="5 3"')
    out += curve([(x(0), y(0))] + [(x(row["share"]), y(row["goodput"] / found["peak"])) for row in found["rows"]], "#06c")
    return "\n".join(out + ["</svg>", ""])


def pin(cores):
    """This process, and what it starts from now on, on some of the processors: `0-3,6`."""
    if cores:
        parts = [part.split("-") for part in cores.split(",")]
        os.sched_setaffinity(0, {n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)})


def run(own, args):
    # Each request that has no answer yet is a connection.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pin(args.client_cores)
    admin = node.Client(own.url)
    for user in USERS:
        admin.must("PUT", f"/_node/_local/_config/admins/{user}", node.PASSWORD)
        admin.must("PUT", f"/overload-{user}?q=1")
        for start in range(0, DOCS, 500):
            docs = [{"_id": f"{n:05}", "n": n, "text": f"some words {n}"} for n in range(start, start + 500)]
            admin.must("POST", f"/overload-{user}/_bulk_docs", {"docs": docs})
        # What is measured is not the first check of a password.
        node.Client(own.url.replace("//adm:", f"//{user}:"), timeout=120).must("GET", f"/overload-{user}")
    found = asyncio.run(measure(own, args))
    print("\n" + table(found))
    if args.picture:
        pathlib.Path(args.picture).write_text(picture(found))
        pathlib.Path(args.picture).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
