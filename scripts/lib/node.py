"""What scripts that run nodes share: a node, an HTTP client, loading and reading back.
Standard library only.

A script that is given no --url runs the release binary on a free port of loopback, with its data in a new folder.
"""

import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import logs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PASSWORD = "pass"
# Ports that `free_port` gave already.
GIVEN = set()


def profile():
    """The profile of cargo with which nodes are built: `release`, or what $SETTEE_PROFILE says (`scripts/bench`: dist)."""
    return os.environ.get("SETTEE_PROFILE", "release")


def binary():
    """The node, built from what is there; $SETTEE names another that is taken as it is."""
    if os.environ.get("SETTEE"):
        return pathlib.Path(os.environ["SETTEE"])
    subprocess.run(["cargo", "build", "--profile", profile(), "--quiet", "-p", "settee"], cwd=ROOT, check=True)
    return ROOT / "target" / profile() / "settee"


def load_generator():
    """The program that makes the load of `scripts/bench`, built from what is there; $SETTEE_BENCH names another."""
    if os.environ.get("SETTEE_BENCH"):
        return pathlib.Path(os.environ["SETTEE_BENCH"])
    build = ["cargo", "build", "--release", "--quiet", "-p", "settee-conformance", "--bin", "settee-bench"]
    subprocess.run(build, cwd=ROOT, check=True)
    return ROOT / "target/release/settee-bench"


def quick_admin():
    """A setting that makes the administrator `adm` with a hash that is quick to check: what is measured is not PBKDF2."""
    salt = "scripts"
    derived = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt.encode(), 10).hex()
    return f"admins/adm=-pbkdf2:sha256-{derived},{salt},10"


def free_port():
    """A port of loopback that nobody has now. It is below those that the system gives to connections, which would take the
    port of a node that is down for a moment, and beyond those of `scripts/test` and of the tests in Rust."""
    while True:
        port = random.SystemRandom().randrange(24_500, 32_700)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in GIVEN:
            GIVEN.add(port)
            return port


class Failure(Exception):
    """An answer that no node should give."""


class Client:
    """One keep-alive connection."""

    def __init__(self, url, timeout=300):
        parts = urllib.parse.urlsplit(url)
        self.at = (parts.hostname, parts.port or 5984)
        self.timeout = timeout
        user, password = urllib.parse.unquote(parts.username or "adm"), urllib.parse.unquote(parts.password or PASSWORD)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.headers = {"Authorization": "Basic " + token, "Accept": "application/json"}
        self.connection = None
        # The headers of the last answer.
        self.told = {}

    def ask(self, method, target, body=None):
        """Status and JSON of an answer. Connection errors are the caller's: the outcome is unknown then."""
        # One that was idle for longer than the server keeps it: what can be read is its end.
        if self.connection is not None and self.connection.sock and select.select([self.connection.sock], [], [], 0)[0]:
            self.close()
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.at, timeout=self.timeout)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = dict(self.headers)
        if body is not None:
            body = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        try:
            self.connection.request(method, target, body, headers)
            answer = self.connection.getresponse()
            data, self.told = answer.read(), answer.headers
        except BaseException:
            self.close()
            raise
        return answer.status, json.loads(data) if data.strip() else None

    def must(self, method, target, body=None, status=(200, 201)):
        got, answer = self.ask(method, target, body)
        if got not in status:
            raise Failure(f"{method} {target}: {got} {answer}")
        return answer

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Node:
    """A node of our own on loopback; its data go with it unless they are kept. A panic in its log is a `Failure` when it ends."""

    # Whether somebody else looks for panics: where files are damaged an engine may panic over them.
    may_panic = False

    def __init__(self, extra=()):
        self.folder = tempfile.mkdtemp(prefix="settee-")
        self.port = free_port()
        self.url = f"http://adm:{PASSWORD}@127.0.0.1:{self.port}"
        self.extra = list(extra)
        self.binary = binary()
        self.process = None

    def start(self, limit_s=180):
        """Starts it and answers the seconds until `/_up` said 200."""
        command = [str(self.binary), "serve", "--data", self.folder + "/data", "--port", str(self.port)]
        command += ["--set", quick_admin(), "--set", "log/level=warning", *self.extra]
        begun = time.monotonic()
        self.log = open(self.folder + "/log", "ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        while time.monotonic() - begun < limit_s:
            if self.process.poll() is not None:
                break
            client = Client(self.url, timeout=30)
            try:
                if client.ask("GET", "/_up")[0] == 200:
                    return time.monotonic() - begun
            except OSError:
                time.sleep(0.002)
            finally:
                client.close()
        told = pathlib.Path(self.folder, "log").read_text(errors="replace")[-2000:]
        raise Failure(f"the node did not start: {told}")

    def kill(self):
        """SIGKILL: nothing is flushed."""
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.check_log()

    def check_log(self):
        found = [] if self.may_panic else logs.panics(self.folder + "/log")
        if found:
            raise Failure(f"the node of port {self.port}: {logs.told(found)}")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.check_log()

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self.remove()


def usage(pid):
    """CPU seconds used so far, and the resident memory in MB, of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / ticks, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb(pid):
    """The most memory in MB that a process ever had resident."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


class Watch:
    """Calls `look` again and again during a block, on a thread of its own."""

    every_s = 0.02

    def __init__(self):
        self.over = threading.Event()

    def __enter__(self):
        def watch():
            while not self.over.wait(self.every_s):
                self.look()

        self.thread = threading.Thread(target=watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Peak(Watch):
    """The most memory of a node during a block, in MB."""

    def __init__(self, own):
        super().__init__()
        self.own, self.most_mb = own, 0

    def look(self):
        self.most_mb = max(self.most_mb, usage(self.own.process.pid)[1])


def bulk_load(url, db, batches, workers):
    """Writes all batches of documents through `_bulk_docs`, each item judged. Answers documents and seconds."""
    target = f"/{urllib.parse.quote(db, safe='')}/_bulk_docs"

    def load(share):
        client, count = Client(url), 0
        for batch in share:
            for item in client.must("POST", target, {"docs": batch}):
                if not item.get("ok"):
                    raise Failure(f"{db}: {item}")
            count += len(batch)
        client.close()
        return count

    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        counts = list(pool.map(load, batches))
    return sum(counts), time.monotonic() - begun


def read_all(url, db, page=5000):
    """Yields every document of `_all_docs?include_docs=true`, page by page, without its `_rev`; checks ids and totals."""
    client, name = Client(url), urllib.parse.quote(db, safe="")
    total = client.must("GET", f"/{name}")["doc_count"]
    start, seen, before = "", 0, None
    while True:
        answer = client.must("GET", f"/{name}/_all_docs?include_docs=true&limit={page + 1}{start}")
        rows = answer["rows"]
        if (answer["total_rows"], answer["offset"]) != (total, seen):
            raise Failure(f"{db}: total {answer['total_rows']} of {total}, offset {answer['offset']} after {seen} rows")
        for row in rows[:page]:
            doc = row["doc"]
            if row["id"] != row["key"] or doc["_id"] != row["id"] or doc.pop("_rev") != row["value"]["rev"]:
                raise Failure(f"{db}: row and document disagree: {row}")
            if before is not None and before.encode() >= row["id"].encode():
                raise Failure(f"{db}: {row['id']} after {before}")
            before, seen = row["id"], seen + 1
            yield doc
        if len(rows) <= page:
            break
        start = "&startkey=" + urllib.parse.quote(json.dumps(rows[page]["id"]))
    if seen != total:
        raise Failure(f"{db}: {seen} rows of {total}")
    client.close()


def main(run):
    """Runs a script; a wrong answer is told in one line, with exit status 1."""
    try:
        sys.exit(run())
    except (Failure, OSError) as error:
        sys.exit(f"FAILED: {error}")
