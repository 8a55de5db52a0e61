"""`scripts/bench auth`: what logging in costs, and what a flood of wrong passwords costs others. Standard library only."""

import base64
import multiprocessing
import socket
import statistics
import threading
import time
import urllib.parse

import node

DOCUMENT = "/bench-auth/document"


class Raw:
    """One keep-alive connection that costs little: requests are bytes made beforehand."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request):
        """The status and the bytes of an answer that has a length."""
        self.socket.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, body = data.split(b"\r\n\r\n", 1)
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < int(lengths[0]):
            body += self._more()
        return int(head.split(b" ")[1]), head

    def _more(self):
        part = self.socket.recv(65536)
        if not part:
            raise node.Failure("the node closed the connection")
        return part


def request(method, target, headers, body=b""):
    lines = [f"{method} {target} HTTP/1.1", "Host: bench", "Accept: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines + headers) + "\r\n\r\n").encode() + body


def basic(name, password):
    return "Authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def log_in(address):
    """A session cookie of the administrator."""
    body = b'{"name":"adm","password":"' + node.PASSWORD.encode() + b'"}'
    status, head = Raw(address).ask(request("POST", "/_session", ["Content-Type: application/json"], body))
    cookies = [line for line in head.decode().split("\r\n") if line.lower().startswith("set-cookie:")]
    if status != 200 or not cookies:
        raise node.Failure(f"login: {status}")
    return "Cookie: " + cookies[0].split(":", 1)[1].split(";")[0].strip()


def timed(connection, what, count):
    """Microseconds of each of `count` requests."""
    times = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        status, _ = connection.ask(what)
        times.append((time.perf_counter_ns() - begun) / 1000)
        if status != 200:
            raise node.Failure(f"GET {DOCUMENT}: {status}")
    return times


def at(times, share):
    return sorted(times)[int((len(times) - 1) * share)]


def compare_logins(address, cookie, rounds=20, count=1000):
    """One document read by Basic, by cookie and by nobody, in turns, so that a change of the machine meets all."""
    kinds = {"Basic": [basic("adm", node.PASSWORD)], "cookie": [cookie]}
    requests = {name: request("GET", DOCUMENT, headers) for name, headers in kinds.items()}
    connection, times = Raw(address), {name: [] for name in kinds}
    for what in requests.values():
        timed(connection, what, count)
    for _ in range(rounds):
        for name, what in requests.items():
            times[name] += timed(connection, what, count)
    print("| authenticated GET, one connection | p50 µs | mean of the middle half µs |\n|---|---|---|")
    middle = {}
    for name, own in times.items():
        own = sorted(own)
        middle[name] = statistics.fmean(own[len(own) // 4 : len(own) * 3 // 4])
        print(f"| {name} | {at(own, 0.5):.1f} | {middle[name]:.1f} |")
    print(f"\nBasic costs {middle['Basic'] - middle['cookie']:+.1f} µs beside a cookie (aim: below 20)\n", flush=True)


def flood(address, clients, name, stop, sent):
    """Wrong passwords in a loop, in a process of its own; counts the answers."""
    what = request("GET", "/", [basic(name, "wrong")])

    def loop():
        connection = Raw(address)
        while not stop.is_set():
            connection.ask(what)
            with sent.get_lock():
                sent.value += 1

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def others(address, cookie, seconds, connections=2):
    """The times of honest clients, each of which reads a document every few milliseconds."""
    what, times, lock = request("GET", DOCUMENT, [cookie]), [], threading.Lock()

    def read():
        connection, own, until = Raw(address), [], time.monotonic() + seconds
        while time.monotonic() < until:
            own += timed(connection, what, 1)
            time.sleep(0.002)
        with lock:
            times.extend(own)

    threads = [threading.Thread(target=read) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def under_attack(address, cookie, client, seconds, attackers=10):
    print("| honest GETs | p50 µs | p99 µs | p99 to that of peace | wrong passwords a second |\n|---|---|---|---|---|")
    calm = others(address, cookie, seconds)
    peace = at(calm, 0.99)
    print(f"| in peace | {at(calm, 0.5):.0f} | {peace:.0f} | 1.00 | 0 |", flush=True)
    for mode in ("enforce", "off"):
        client.must("PUT", "/_node/_local/_config/chttpd_auth_lockout/mode", mode)
        stop, sent = multiprocessing.Event(), multiprocessing.Value("L", 0)
        process = multiprocessing.Process(target=flood, args=(address, attackers, f"mallory-{mode}", stop, sent))
        process.start()
        time.sleep(1)
        before = sent.value
        times = others(address, cookie, seconds)
        rate = (sent.value - before) / seconds
        stop.set()
        process.join(10)
        if process.is_alive():
            process.kill()
        p99 = at(times, 0.99)
        name = f"{attackers} clients with wrong passwords, lock-out {'on' if mode == 'enforce' else 'off'}"
        print(f"| {name} | {at(times, 0.5):.0f} | {p99:.0f} | {p99 / peace:.2f} | {rate:.0f} |", flush=True)
    print("\naim: p99 at most 2.00 times that of peace")


def run(own, args):
    """The node hashes as in production for names that it does not know; the administrator's own hash is quick."""
    parts = urllib.parse.urlsplit(own.url)
    address, client = (parts.hostname, parts.port), node.Client(own.url)
    client.must("PUT", "/bench-auth")
    client.must("PUT", DOCUMENT, {"value": 1})
    cookie = log_in(address)
    compare_logins(address, cookie)
    under_attack(address, cookie, client, args.seconds)
