"""Attacks of `scripts/hostile` by what members may ask: queries, functions of design documents, feeds. Standard library
only. See `hostile_http`."""

import json
import threading
import time

import node
from hostile_http import Unmet, close_all, connect, expect, head

# Bodies of a map function that ought not to end, or not to fit.
FUNCTIONS = {
    "loop": "for (;;) {}",
    "allocation": "var all = []; for (;;) all.push(new Array(1e6).join('x') + all.length);",
    "recursion": "function down(n) { return down(n + 1) + 1; } down(0);",
    "regex": "/^(a+)+$/.test(new Array(40).join('a') + 'b');",
    "large text": "var text = 'x'; for (;;) text += text;",
    "large array": "new Array(4e9 >>> 0).fill(1);",
    "sort": "var all = []; for (var i = 0; i < 3e6; i++) all.push(Math.sin(i)); for (;;) all.sort();",
    "json": "var deep = []; for (var i = 0; i < 1e5; i++) deep = [deep]; for (;;) JSON.stringify(deep);",
    "parse": "var text = new Array(1e6).join('[1],'); for (;;) JSON.parse('[' + text + '1]');",
    "getter": "Object.defineProperty(doc, 'x', {get: function () { for (;;) {} }}); emit(doc, 1); doc.x;",
    "toJSON": "emit({toJSON: function () { for (;;) {} }}, 1);",
    "prototype": "Object.prototype.toJSON = function () { for (;;) {} }; Array.prototype.push = null; emit(1, {});",
    "constructor": "this.constructor.constructor('for (;;) {}')();",
    "promise": "(async function again() { for (;;) await null; })();",
    "generator": "function* all() { for (;;) yield 1; } Array.from(all());",
    "emits": "for (;;) emit(doc._id, new Array(1000).join('x'));",
    "proxy": "emit(new Proxy({}, {ownKeys: function () { for (;;) {} }}), 1);",
    "replace": "'x'.repeat(1e6).replace(/x/g, function () { return 'y'.repeat(1e6); });",
    "bigint": "var n = 7n; for (;;) n = n * n;",
}


def functions(run):
    """limits::scripts: time, memory and stack of functions; 500 with a reason, and other databases' functions run."""
    slowest, odd = 0.0, []
    for name, source in FUNCTIONS.items():
        db = "/functions"
        run.admin.ask("DELETE", db)
        run.admin.must("PUT", db + "?q=1")
        run.admin.must("PUT", db + "/a", {"n": 1})
        run.admin.must("PUT", db + "/_design/d", {"views": {"v": {"map": f"function (doc) {{ {source} }}"}}})
        begun = time.monotonic()
        client = node.Client(run.url, timeout=120)
        try:
            status, answer = client.ask("GET", db + "/_design/d/_view/v?limit=1")
        except OSError as error:
            raise Unmet(f"{name}: {error!r}") from error
        took = time.monotonic() - begun
        slowest = max(slowest, took)
        if took > 30:
            odd.append((name, status, f"{took:.0f} s"))
        # A view that leaves the document out is an answer, too.
        expect(status in (200, 500, 503), f"{name}: {status} {answer}")
    # What one database's functions did to their world is nothing to another's.
    status, answer = run.admin.ask("GET", "/quiet/_design/d/_view/by_n?limit=1&update=true")
    expect(status == 200 and answer["rows"], f"another database's view: {status} {answer}")
    expect(not odd, f"longer than 30 s: {odd}")
    return f"{len(FUNCTIONS)} functions, the slowest {slowest:.1f} s"


def shows(run):
    """Script workers are shared between databases: 60 show functions that loop."""
    run.admin.ask("DELETE", "/functions")
    run.admin.must("PUT", "/functions?q=1")
    run.admin.must("PUT", "/functions/_design/d", {"shows": {"s": "function () { for (;;) {} }"}})
    socks = [connect(run, 90) for _ in range(60)]
    for sock in socks:
        sock.sendall(head("GET", "/functions/_design/d/_show/s", admin=True))
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < run.seconds:
        # A validation in another database.
        run.admin.must("PUT", f"/quiet/valid-{time.monotonic_ns()}", {"n": 1})
        count += 1
    close_all(socks)
    return f"{len(socks)} shows; {count} validated writes beside them"


# Expressions of which an engine that goes back would not come to an end, or that are far too large.
REGEXES = ["^(a+)+$", "(a|a)*b", "(.*)*x", "a{1,1000}{1,1000}", "(?:a?){200}a{200}", "(x+x+)+y", "\\b" * 2000, "[" + "a-z" * 5000 + "]"]
# The same in the syntax of Lucene, which has intersections and complements.
SEARCHED = ["(a+)+b", "(a|a)*b", "(.*)*x", "a{1,1000}{1,1000}", "(x+x+)+y", ".*a&" * 100 + "b", "~(.*a.{20})" * 10, "[" + "a-z" * 5000 + "]"]


def regexes(run):
    """A regular expression of a selector or a search is matched in linear time, or refused."""
    run.admin.must("PUT", "/quiet/_design/search", {
        "indexes": {"i": {"index": "function (doc) { if (doc.text) index('default', doc.text); }"}},
        "nouveau": {"i": {"index": "function (doc) { if (doc.text) index('text', 'default', doc.text); }"}}})
    asked = [("_find", {"selector": {"text": {"$regex": text}}, "limit": 5}, text) for text in REGEXES]
    for kind in ("_search", "_nouveau"):
        target = f"_design/search/{kind}/i"
        # The index is built by the first.
        asked += [(target, {"q": text, "limit": 5}, text) for text in ("a", *(f"/{text}/" for text in SEARCHED))]
    for target, body, text in asked:
        begun = time.monotonic()
        status, answer = run.admin.ask("POST", f"/quiet/{target}", body)
        took = time.monotonic() - begun
        expect(status in (200, 400), f"{target} {text[:30]}: {status} {answer}")
        expect(took < 20 or text == "a", f"{target} {text[:30]} took {took:.1f} s")
    run.admin.must("DELETE", "/quiet/_design/search?rev=" + run.admin.must("GET", "/quiet/_design/search")["_rev"])
    return f"{len(REGEXES)} expressions of selectors, {len(SEARCHED)} of searches of each kind"


def flood(run, count, request):
    """So many clients that ask again and again; answers the number of answers by status."""
    statuses, lock, until = {}, threading.Lock(), time.monotonic() + run.seconds

    def work(number):
        client = node.Client(run.url, timeout=60)
        while time.monotonic() < until:
            try:
                status = client.ask(*request(number))[0]
            except OSError:
                status = 0
            with lock:
                statuses[status] = statuses.get(status, 0) + 1
            if status in (429, 503):
                time.sleep(0.1)
        client.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    expect(set(statuses) <= {200, 201, 429, 503}, f"answers: {statuses}")
    return ", ".join(f"{status}: {times}" for status, times in sorted(statuses.items()))


def uncached_queries(run):
    """FILTER_SCAN_COST: 24 clients scan 5,000 documents again and again."""
    drawn = lambda number: ("POST", "/quiet/_find", {"selector": {"n": {"$gt": number * 7 + time.monotonic_ns() % 1000}, "text": {"$regex": "q"}}, "limit": 3})
    return flood(run, 24, drawn)


def grouped_views(run):
    """24 clients reduce all of a view by ever other groups."""
    return flood(run, 24, lambda number: ("GET", f"/quiet/_design/d/_view/by_n?reduce=true&group_level=1&startkey=[{time.monotonic_ns() % 5000}]"))


def feeds(run):
    """500 feeds that wait, while others write."""
    socks = [connect(run) for _ in range(500)]
    for n, sock in enumerate(socks):
        form = ("continuous", "longpoll", "eventsource")[n % 3]
        sock.sendall(head("GET", f"/quiet/_changes?feed={form}&since=now&heartbeat=1000&include_docs=true", admin=True))
    time.sleep(run.seconds)
    close_all(socks)
    return f"{len(socks)} feeds"


def logins(run):
    """PASSWORD_CHECKS_AT_ONCE, chttpd_auth_lockout: wrong passwords of many names from 16 clients."""
    statuses, lock, until = {}, threading.Lock(), time.monotonic() + run.seconds

    def work(number):
        count = 0
        while time.monotonic() < until:
            parts = run.url.split("@")[1]
            client = node.Client(f"http://name-{number}-{count}:wrong@{parts}", timeout=60)
            try:
                status = client.ask("GET", "/quiet")[0]
            except OSError:
                status = 0
            client.close()
            count += 1
            with lock:
                statuses[status] = statuses.get(status, 0) + 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    expect(set(statuses) <= {401, 403, 429, 503}, f"answers: {statuses}")
    return ", ".join(f"{status}: {times}" for status, times in sorted(statuses.items()))


ATTACKS = [functions, shows, regexes, uncached_queries, grouped_views, feeds, logins]
