"""Scenes of the administration page over much data (`--sets long`): 100,000 databases, a database of 1,000,000 documents.
`PAGE_DATABASES` and `PAGE_DOCUMENTS` name other numbers. Times are told, and have a bound."""

import concurrent.futures
import os
import time

import node
from page_browser import scene

DATABASES = int(os.environ.get("PAGE_DATABASES", 100_000))
DOCUMENTS = int(os.environ.get("PAGE_DOCUMENTS", 1_000_000))
CLIENTS = 8
BATCH = 2000
BOUND_S = 3


def spread(page, count, work):
    """Runs `work(client, number)` for all numbers, over some connections."""
    url = f"http://adm:{node.PASSWORD}@" + page.base.split("//")[1]

    def part(first):
        client = node.Client(url)
        for number in range(first, count, CLIENTS):
            work(client, number)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(part, range(CLIENTS)))
    # Its connection was idle meanwhile, for longer than nodes keep one.
    page.client.close()


def timed(page, what, run):
    begun = time.monotonic()
    run()
    took = time.monotonic() - begun
    print(f"        {what}: {took:.1f} s", flush=True)
    page.check(took < BOUND_S, f"{what} took {took:.1f} s")


@scene("scale-databases", title="100,000 databases stay usable: list, search, paging", sets=("long",))
def scale_databases(page):
    spread(page, DATABASES, lambda client, number: client.must("PUT", f"/scale{number:06d}?q=1", status=(201, 412)))
    page.go("#/account")

    def first():
        page.go("#/databases")
        page.see("scale000030")

    def found():
        page.type("Find by the beginning of the name", f"scale{DATABASES - 1:06d}")
        page.until("one row is left", lambda: page.text_of("tbody th") == [f"scale{DATABASES - 1:06d}"])

    def paged():
        page.type("Find by the beginning of the name", "scale")
        page.see("scale000049")
        for at in range(1, 6):
            page.click("Next")
            page.see(f"scale{at * 50 + 49:06d}")

    timed(page, f"the list of {DATABASES:,} databases", first)
    timed(page, "a database is found by its name", found)
    timed(page, "six pages", paged)
    page.shot("a hundred thousand databases")


@scene("scale-documents", title="A database of 1,000,000 documents stays usable: list, jump, paging, changes, query", sets=("long",))
def scale_documents(page):
    if page.look("/million") is None:
        page.api("PUT", "/million?q=2")

    def batch(client, number):
        docs = [{"_id": f"doc-{at:07d}", "number": at, "kind": "even" if at % 2 == 0 else "odd", "text": "some words that fill it"}
                for at in range(number * BATCH, (number + 1) * BATCH)]
        client.must("POST", "/million/_bulk_docs", {"docs": docs})

    spread(page, DOCUMENTS // BATCH, batch)
    middle, last = DOCUMENTS // 2, DOCUMENTS - 1
    page.go("#/databases")

    def first():
        page.go("#/db/million")
        page.see(f"1 to 25 of {DOCUMENTS:,}")

    def jumped():
        page.type("Id, or its beginning", f"doc-{middle:07d}")
        page.until("one row is left", lambda: page.text_of("tbody th") == [f"doc-{middle:07d}"])

    def paged():
        page.type("Id, or its beginning", "doc-")
        page.see("doc-0000024")
        for at in range(1, 5):
            page.click("Next")
            page.see(f"doc-{at * 25 + 24:07d}")

    def changed():
        page.go("#/db/million/changes")
        page.see("Live")
        page.api("PUT", "/million/just-now", {"number": 1})
        page.see("just-now")

    def queried():
        page.go("#/db/million/query")
        page.paste("Query", '{"selector": {"_id": {"$gt": "doc-%07d"}}, "limit": 10}' % (last - 10))
        page.click("Run query")
        page.see(f"doc-{last:07d}")

    def built():
        page.api("PUT", "/million/_design/app", {"autoupdate": False, "views": {"by_kind": {
            "map": "function (doc) { var parts = doc.text.split(' '); emit([doc.kind, parts.length], doc.number); }", "reduce": "_count"}}})
        page.go("#/db/million/design/app/view/by_kind")
        page.see("Building an index of million")
        page.see("about")

    for what, run in (("the first page of a million", first), ("a jump into the middle", jumped), ("five pages", paged), ("live changes", changed), ("a query", queried), ("the progress of a build", built)):
        timed(page, what, run)
    page.shot("a view of a million documents while it is built")
