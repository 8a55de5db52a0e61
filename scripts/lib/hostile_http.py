"""Attacks of `scripts/hostile` on connections, heads and bodies. Standard library only.

An attack gets the run (`scripts/hostile`), does its worst for some seconds, and returns what it saw; it raises `Unmet` where
the node answered in another way than docs/limits.md says."""

import base64
import gzip
import io
import json
import resource
import shutil
import socket
import subprocess
import tempfile
import pathlib
import time

import node


class Unmet(Exception):
    """The node did not hold to its limit."""


def expect(held, told):
    if not held:
        raise Unmet(told)


def connect(run, timeout=30):
    return socket.create_connection(run.at, timeout=timeout)


def head(method, target, headers=(), body=None, admin=False):
    """A request's bytes."""
    lines = [f"{method} {target} HTTP/1.1", "Host: hostile", "Accept: application/json"]
    if admin:
        lines.append("Authorization: Basic " + base64.b64encode(f"adm:{node.PASSWORD}".encode()).decode())
    lines += list(headers)
    if body is not None:
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def status(sock):
    """The status of the answer; 0 where the connection ended without one."""
    got = b""
    try:
        while b"\r\n" not in got:
            more = sock.recv(4096)
            if not more:
                return 0
            got += more
    except ConnectionError:
        return 0
    return int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else 0


def ask(run, data, timeout=60):
    """Sends bytes on a connection of their own; answers the status."""
    with connect(run, timeout) as sock:
        try:
            sock.sendall(data)
        except ConnectionError:
            pass
        return status(sock)


def close_all(socks):
    for sock in socks:
        sock.close()


def zipped(text):
    return gzip.compress(text, 6)


def ask_zipped(run, target, text):
    body = zipped(text)
    return ask(run, head("POST", target, ["Content-Encoding: gzip", "Connection: close"], body, admin=True), 120)


def slow_heads(run):
    """HTTP_HEAD_MS, chttpd/max_connections: heads that come byte by byte."""
    socks = [connect(run) for _ in range(400)]
    for n in range(run.seconds):
        for sock in socks:
            try:
                sock.sendall(b"GET /quiet HTTP/1.1\r\nHost: a\r\n"[n:n + 1])
            except OSError:
                pass
        time.sleep(1)
    close_all(socks)
    return f"{len(socks)} connections"


def slow_bodies(run):
    """HTTP_BODY_GRACE, HTTP_BODY_RATE_MIN: announced bodies of 60 MB, one byte a second; 408."""
    socks = [connect(run) for _ in range(100)]
    for sock in socks:
        sock.sendall(head("POST", "/quiet/_find", ["Content-Type: application/json", "Content-Length: 60000000"], admin=True) + b"{")
    until = time.monotonic() + 18
    while time.monotonic() < until:
        time.sleep(1)
        for sock in socks:
            try:
                sock.sendall(b" ")
            except OSError:
                pass
    socks[0].settimeout(10)
    got = status(socks[0])
    close_all(socks)
    expect(got == 408, f"a slow body was answered {got}, not 408")
    return f"{len(socks)} bodies; 408"


def unread_answers(run):
    """HTTP_ANSWERS_BYTES: answers of 6 MB that nobody reads; those beyond are 503."""
    socks = [connect(run) for _ in range(120)]
    for sock in socks:
        sock.sendall(head("GET", "/large/0", admin=True))
    time.sleep(run.seconds)
    close_all(socks)
    return f"{len(socks)} answers"


def unread_feeds(run):
    """HTTP_STREAMS_BYTES, HTTP_STREAM_STALL: feeds and lists of 48 MB that nobody reads; the longest stalled are cut."""
    targets = ["/large/_changes?include_docs=true", "/large/_all_docs?include_docs=true", "/large/_changes?include_docs=true&feed=continuous"]
    socks = [connect(run) for _ in range(150)]
    for n, sock in enumerate(socks):
        sock.sendall(head("GET", targets[n % len(targets)], admin=True))
    time.sleep(run.seconds)
    close_all(socks)
    return f"{len(socks)} streams"


def idle_connections(run):
    """chttpd/max_connections, HTTP_PLACES_KEPT: as many idle connections as there are descriptors, up to 20,000."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, socks = min(20_000, soft - 200), []
    until = time.monotonic() + 60
    for n in range(wanted):
        if time.monotonic() > until:
            break
        sock = socket.socket()
        sock.settimeout(5)
        try:
            # Other addresses of loopback: one has no more ports than that.
            sock.bind((f"127.0.0.{2 + n // 10_000}", 0))
            sock.connect(run.at)
            socks.append(sock)
        except OSError:
            sock.close()
    time.sleep(run.seconds)
    close_all(socks)
    return f"{len(socks)} connections"


def large_heads(run):
    """HTTP_HEADERS_MAX, HTTP_HEAD_BYTES, chttpd/max_uri_length: 431, 414 or a closed connection."""
    many = ask(run, head("GET", "/", [f"X-{n}: y" for n in range(5_000)]))
    long = ask(run, head("GET", "/", ["X: " + "y" * 2_000_000]))
    uri = ask(run, head("GET", "/quiet?" + "a" * 50_000))
    huge = ask(run, head("GET", "/quiet?" + "a" * 5_000_000))
    expect(many in (0, 400, 431) and long in (0, 400, 431), f"heads were answered {many}, {long}")
    expect(uri == 414 and huge in (0, 400, 414, 431), f"URIs were answered {uri}, {huge}")
    return f"{many}, {long}, {uri}, {huge}"


def zip_bombs(run):
    """HTTP_JSON_BODY_BYTES, JSON_VALUES_BYTES_MAX: 413."""
    seen = [
        ask_zipped(run, "/quiet/_bulk_docs", b'{"docs":[' + b"{}," * 3_900_000 + b"{}]}"),
        ask_zipped(run, "/quiet/_find", b'{"selector":{"$or":[' + b"{}," * 2_000_000 + b"{}]}}"),
        ask_zipped(run, "/quiet", b'{"a":"' + b" " * 100_000_000 + b'"}'),
    ]
    expect(all(one == 413 for one in seen), f"bombs were answered {seen}")
    return "413"


def odd_json(run):
    """JSON_DEPTH_MAX, couchdb/max_document_size, keys of 10 MB: 400 and 413."""
    seen = [ask(run, head("POST", "/quiet", ["Connection: close"], body, admin=True)) for body in (
        b"[" * 1_000_000, b'{"a":' * 500_000, b'{"a":[' + b"{}," * 2_600_000 + b"{}]}", b'{"' + b"k" * 10_000_000 + b'":1}',
        b'{"n":' + b"9" * 1_000_000 + b"}")]
    expect(all(one in (400, 413) for one in seen), f"such JSON was answered {seen}")
    return str(seen)


def smuggling_shapes():
    """Requests that two servers may understand differently; all hide one for /smuggled."""
    hidden = b"GET /smuggled HTTP/1.1\r\nHost: hostile\r\n\r\n"
    post = b"POST /quiet/_find HTTP/1.1\r\nHost: hostile\r\nContent-Type: application/json\r\n"
    return {
        "length and chunks": post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
        "two lengths": post + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden,
        "a list of lengths": post + b"Content-Length: 0, %d\r\n\r\n" % len(hidden) + hidden,
        "a signed length": post + b"Content-Length: +0\r\n\r\n" + hidden,
        "a coding in front": post + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
        "a misspelt coding": post + b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a blank before the colon": post + b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a folded header": post + b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a negative chunk": post + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n0\r\n\r\n" + hidden,
        "a large chunk": post + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n0\r\n\r\n" + hidden,
        "a chunk with a bare line feed": post + b"Transfer-Encoding: chunked\r\n\r\n1;\nx\r\n0\r\n\r\n" + hidden,
        "a tab in the coding": post + b"Transfer-Encoding:\tchunked\x0b\r\nContent-Length: 0\r\n\r\n" + hidden,
        "a NUL in a header": post + b"X: a\x00Content-Length: 0\r\n\r\n" + hidden,
        "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + hidden,
        "no host": b"GET / HTTP/1.1\r\n\r\n" + hidden,
    }


def answers_to(at, data):
    """The statuses of all answers on one connection."""
    got = b""
    with socket.create_connection(at, timeout=3) as sock:
        try:
            sock.sendall(data)
            sock.settimeout(1)
            while True:
                more = sock.recv(65536)
                if not more:
                    break
                got += more
        except OSError:
            pass
    return [int(piece.split()[0]) for piece in got.split(b"HTTP/1.1 ")[1:] if piece[:3].isdigit()], got


def hidden_was_answered(got):
    return b"smuggled" in got or b"Database does not exist" in got


def smuggling(run):
    """Framing: what is ambiguous is refused and the connection closed."""
    bad = []
    for name, data in smuggling_shapes().items():
        statuses, got = answers_to(run.at, data)
        # These two are plain to a server that stands alone: the second request is one.
        plain = name in ("two hosts", "no host", "a folded header")
        if not plain and len(statuses) > 1:
            bad.append((name, statuses))
        if plain and statuses[:1] != [400]:
            bad.append((name, statuses))
    expect(not bad, f"two answers to one request: {bad}")
    return f"{len(smuggling_shapes())} shapes"


NGINX = """daemon off; pid {folder}/pid; error_log {folder}/error; worker_processes 1;
events {{ worker_connections 200; }}
http {{ access_log {folder}/access; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; upstream node {{ server {at}; keepalive 4; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://node; proxy_http_version 1.1; proxy_set_header Connection "";
proxy_set_header Host $host; proxy_request_buffering off; }} }} }}
"""
HAPROXY = """defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s {at}
"""


def behind(run, program, config, command):
    """Sends the shapes through a proxy: each answer must be to the request that the proxy saw, on a pool of connections."""
    if not shutil.which(program) and not pathlib.Path("/usr/sbin", program).exists():
        return f"left out: {program} is not installed"
    folder = tempfile.mkdtemp(prefix="hostile-")
    port = node.free_port()
    file = pathlib.Path(folder, "conf")
    file.write_text(config.format(folder=folder, port=port, at=f"{run.at[0]}:{run.at[1]}"))
    path = shutil.which(program) or f"/usr/sbin/{program}"
    process = subprocess.Popen([path, *command(str(file))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        bad = []
        for name, data in smuggling_shapes().items():
            answers_to(("127.0.0.1", port), data)
            # Who comes behind is answered what it asked, and nothing of another's request.
            for n in range(3):
                statuses, got = answers_to(("127.0.0.1", port), b"GET /_up HTTP/1.1\r\nHost: hostile\r\nConnection: close\r\n\r\n")
                if statuses != [200] or hidden_was_answered(got):
                    bad.append((name, statuses))
        expect(not bad, f"answers were mixed up: {bad}")
        return f"{len(smuggling_shapes())} shapes"
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def smuggling_behind_nginx(run):
    """The same with nginx in front, which keeps connections to the node."""
    return behind(run, "nginx", NGINX, lambda file: ["-c", file])


def smuggling_behind_haproxy(run):
    """The same with haproxy in front."""
    return behind(run, "haproxy", HAPROXY, lambda file: ["-db", "-f", file])


ATTACKS = [slow_heads, slow_bodies, unread_answers, unread_feeds, idle_connections, large_heads, zip_bombs, odd_json, smuggling,
           smuggling_behind_nginx, smuggling_behind_haproxy]
