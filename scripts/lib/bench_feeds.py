"""`scripts/bench feeds`: what idle continuous feeds cost the node, and how long after a commit they tell of it."""

import base64
import resource
import select
import socket
import time

import node

WAKES = 500
WAKES_OF_ALL = 5


class Feeds:
    """Open continuous feeds, one connection each."""

    def __init__(self, own, database, count):
        token = base64.b64encode(f"adm:{node.PASSWORD}".encode()).decode()
        request = (f"GET /{database}/_changes?feed=continuous&since=now&heartbeat=60000 HTTP/1.1\r\n"
                   f"Host: localhost\r\nAuthorization: Basic {token}\r\n\r\n").encode()
        self.ready = select.epoll()
        self.open = {}
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", own.port))
            one.sendall(request)
            one.setblocking(False)
            self.open[one.fileno()] = one
            self.ready.register(one.fileno(), select.EPOLLIN)
        # A feed's headers come with its first row: the node has read all requests when it counts that many feeds.
        client = node.Client(own.url)
        while client.must("GET", "/_node/_local/_stats")["couchdb"]["httpd"]["clients_requesting_changes"]["value"] < count:
            time.sleep(0.05)
        client.close()

    def wakes(self, client, target):
        """Writes a document; answers for each feed the milliseconds from the answer to the write until its row."""
        client.must("PUT", target, {"n": 1})
        answered = time.monotonic()
        told = {}
        name = target.rsplit("/", 1)[1].encode()
        while len(told) < len(self.open):
            events = self.ready.poll(10)
            if not events:
                raise node.Failure(f"{len(self.open) - len(told)} feeds do not tell of {target}")
            for number, _ in events:
                if name in self.open[number].recv(65536):
                    told[number] = max(0.0, (time.monotonic() - answered) * 1000)
        return list(told.values())

    def close(self):
        for one in self.open.values():
            one.close()
        self.ready.close()


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def run(own, args):
    count = args.feeds
    # Each feed is a file of the node and one of this program.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * count + 1000), hard))
    client = node.Client(own.url)
    for database in ["idle", "one"]:
        client.must("PUT", f"/{database}?q={args.q}")
    before = node.usage(own.process.pid)[1]
    begun = time.monotonic()
    idle = Feeds(own, "idle", count)
    opened_s = time.monotonic() - begun
    time.sleep(2)
    cpu_before, after = node.usage(own.process.pid)
    time.sleep(5)
    cpu = (node.usage(own.process.pid)[0] - cpu_before) / 5
    print(f"{count} idle feeds: {after:.0f} MB in all, {(after - before) * 1000 / count:.1f} kB each, opened within "
          f"{opened_s:.1f} s; {cpu * 1000:.1f} ms of CPU a second while nothing happens")
    print("| wake-up, from the answer to the write | p50 | p99 | last |\n|---|---|---|---|")
    # The idle ones are counted, too.
    one = Feeds(own, "one", 1)
    waits = [wait for at in range(WAKES) for wait in one.wakes(client, f"/one/doc-{at:05}-end")]
    print(f"| one feed of a database, beside {count} idle ones | {percentile(waits, 50):.2f} ms | "
          f"{percentile(waits, 99):.2f} ms | {max(waits):.2f} ms |", flush=True)
    waits = [wait for at in range(WAKES_OF_ALL) for wait in idle.wakes(client, f"/idle/doc-{at:05}-end")]
    print(f"| all {count} feeds of one database | {percentile(waits, 50):.2f} ms | {percentile(waits, 99):.2f} ms | "
          f"{max(waits):.2f} ms |")
    one.close()
    idle.close()
