"""`scripts/bench overload`: what a node still does when more is asked of it than it can do. Standard library only.

Requests are queries that the node has to work for (`_find` without an index); the client only sends bytes. First the peak is
found with 32 connections that wait for each answer. Then requests come at fixed rates, whatever the answers are, from a
quarter of the peak to ten times it; a client that has no answer after its patience hangs up. Goodput is answers with 200
within that time. The last row is a modest user at a tenth of the peak beside one who asks for ten times the peak."""

import asyncio
import base64
import json
import pathlib
import time

import node

DOCS = 2_000
PATIENCE_S = 2.0
SHARES = (0.25, 0.5, 0.75, 1, 1.5, 2, 4, 7, 10)
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
    """Requests at a fixed rate."""

    def __init__(self, pool, request, rate):
        self.pool, self.request, self.rate = pool, request, rate
        self.sent, self.good, self.refused, self.late, self.times = 0, 0, 0, 0, []

    async def one(self):
        begun = time.monotonic()
        try:
            status = await asyncio.wait_for(self.pool.ask(self.request), PATIENCE_S)
            took = time.monotonic() - begun
            if status == 200:
                self.good += 1
                self.times.append(took)
            else:
                self.refused += 1
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError):
            self.late += 1

    async def run(self, seconds):
        begun, tasks = time.monotonic(), set()
        while (now := time.monotonic() - begun) < seconds:
            while self.sent < now * self.rate:
                self.sent += 1
                task = asyncio.create_task(self.one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.002)
        self.good_in_time = self.good
        await asyncio.gather(*tasks)

    def row(self, seconds):
        self.times.sort()
        at = lambda share: round(self.times[int((len(self.times) - 1) * share)] * 1000, 1) if self.times else None
        return {"offered": round(self.sent / seconds, 1), "goodput": round(self.good / seconds, 1), "refused": round(self.refused / seconds, 1),
                "late": round(self.late / seconds, 1), "p50_ms": at(0.5), "p99_ms": at(0.99)}


async def peak(pool, request, seconds, connections=32):
    count, until = 0, time.monotonic() + seconds

    async def again():
        nonlocal count
        while time.monotonic() < until:
            count += await pool.ask(request) == 200

    await asyncio.gather(*(again() for _ in range(connections)))
    return count / seconds


async def measure(own, args):
    pool = Pool(("127.0.0.1", own.port))
    greedy, modest = (request_of(user, f"overload-{user}") for user in USERS)
    top = await peak(pool, greedy, args.seconds)
    print(f"peak with 32 connections: {top:.0f} answers a second\n")
    print("| asked for, of the peak | asked/s | good/s | of the peak | refused/s | late/s | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for share in SHARES:
        load = Load(pool, greedy, top * share)
        await load.run(args.seconds)
        row = {"share": share, **load.row(args.seconds)}
        rows.append(row)
        print(f"| {share} | {row['offered']} | {row['goodput']} | {row['goodput'] / top:.0%} | {row['refused']} | {row['late']} "
              f"| {row['p50_ms']} | {row['p99_ms']} |", flush=True)
        await asyncio.sleep(2)
    many, few = Load(pool, greedy, top * 10), Load(Pool(pool.at), modest, top / 10)
    await asyncio.gather(many.run(args.seconds), few.run(args.seconds))
    fair = {user: load.row(args.seconds) for user, load in zip(USERS, (many, few))}
    print(f"\nA modest user at a tenth of the peak beside a greedy one at ten times the peak: {fair['modest']['goodput']} good of "
          f"{fair['modest']['offered']} a second, p99 {fair['modest']['p99_ms']} ms; the greedy one {fair['greedy']['goodput']}.")
    pool.close()
    return {"peak": round(top, 1), "rows": rows, "fairness": fair}


def picture(found):
    """The goodput curve as SVG."""
    width, height, left, bottom = 640, 320, 60, 40
    most = max(SHARES)
    x = lambda share: left + (width - left - 20) * share / most
    y = lambda part: height - bottom - (height - bottom - 30) * min(part, 1.2) / 1.2
    points = [(x(0), y(0))] + [(x(row["share"]), y(row["goodput"] / found["peak"])) for row in found["rows"]]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="18">Goodput under overload (answers within {PATIENCE_S:g} s, part of the peak)</text>']
    for part in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        dash = ' stroke-dasharray="4"' if part == 0.8 else ""
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(part):.1f}" y2="{y(part):.1f}" stroke="{"#c33" if dash else "#ddd"}"{dash}/>')
        out.append(f'<text x="{left - 8}" y="{y(part) + 4:.1f}" text-anchor="end">{part:.0%}</text>')
    for share in (1, 2, 4, 7, 10):
        out.append(f'<text x="{x(share):.1f}" y="{height - bottom + 18}" text-anchor="middle">{share}x</text>')
    out.append(f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>')
    out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="#06c"/>' for a, b in points[1:]]
    return "\n".join(out + ["</svg>", ""])


def run(own, args):
    admin = node.Client(own.url)
    for user in USERS:
        admin.must("PUT", f"/_node/_local/_config/admins/{user}", node.PASSWORD)
        admin.must("PUT", f"/overload-{user}?q=1")
        for start in range(0, DOCS, 500):
            docs = [{"_id": f"{n:05}", "n": n, "text": f"some words {n}"} for n in range(start, start + 500)]
            admin.must("POST", f"/overload-{user}/_bulk_docs", {"docs": docs})
    found = asyncio.run(measure(own, args))
    if args.picture:
        pathlib.Path(args.picture).write_text(picture(found))
        pathlib.Path(args.picture).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
