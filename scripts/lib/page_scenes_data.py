"""Scenes of the administration page: databases, documents, conflicts, revisions, attachments, changes, import, export."""

import json
from urllib.parse import quote

from page_browser import scene


def download(page, name):
    """The text of the last file that the page gave the browser to save."""
    return page.until(f"the file {name}", lambda: page.js("return window.__saved && window.__saved[arguments[0]]", name))


def watch_downloads(page):
    """Downloads are kept in the page instead of on a disk."""
    page.js("""
        const known = window.__saved;
        window.__saved = {};
        if (known) return;
        const blobs = {}, make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
        URL.createObjectURL = (blob) => { const address = make.call(URL, blob); blobs[address] = blob; return address; };
        HTMLAnchorElement.prototype.click = function () {
          if (!this.download) { click.call(this); return; }
          const name = this.download;
          // What the browser would load by itself is kept as its address.
          if (blobs[this.href]) blobs[this.href].text().then((text) => { window.__saved[name] = text; });
          else window.__saved[name] = this.href;
        };""")


def leave(page):
    """Leaves a screen with unsaved text."""
    page.js("location.hash = '#/databases'")
    page.click("Leave")
    page.see("Create database")


@scene("databases", title="A database is made with its options and deleted by its name; wrong names are told before they are sent", sets=("default", "phone"))
def databases(page):
    page.go("#/databases")
    page.click("Create database")
    page.type("Name", "Orders!")
    page.see("must begin with a lower case letter")
    page.type("Name", "orders")
    page.click("Ranges, replicas, partitions")
    page.type("Ranges (q)", "3")
    page.tick("Partitioned")
    page.shot("making a database")
    page.click("Create", nth=0)
    page.see("orders is there")
    info = page.api("GET", "/orders")
    page.check(info["cluster"]["q"] == 3 and info["props"].get("partitioned"), f"q and partitions: {info}")
    page.allow("status of 412")
    page.go("#/databases")
    page.click("Create database")
    page.type("Name", "orders")
    page.press("Enter")
    page.see("already exists")
    page.see("Choose another name")
    page.press("Escape")
    page.type("Find by the beginning of the name", "orders")
    page.until("one row is left", lambda: page.text_of("tbody th") == ["orders"])
    page.click("Actions for orders")
    page.click("Delete database")
    page.see("This cannot be undone")
    page.check(page.js("return document.querySelector('dialog [type=submit]').disabled"), "deleting waits for the name")
    page.shot("deleting a database")
    page.type("Type “orders” to confirm", "orders")
    page.press("Enter")
    page.see("orders is deleted")
    page.check(page.look("/orders") is None, "it is gone")
    page.see("No database begins with")


@scene("many-databases", title="Databases are paged, and found by the beginning of their name")
def many_databases(page):
    for number in range(130):
        page.api("PUT", f"/m{number:03d}?q=1", status=(201, 412))
    page.go("#/databases")
    page.type("Find by the beginning of the name", "m")
    page.see("m049")
    page.shot("many databases")
    page.click("Next")
    page.see("m050")
    page.see("51 to 100")
    page.click("Next")
    page.see("m129")
    page.click("Previous")
    page.see("m050")
    page.type("Find by the beginning of the name", "m12")
    page.see("m120")
    page.gone("m050")
    for number in range(130):
        page.api("DELETE", f"/m{number:03d}")


@scene("document", title="A document is written, its mistakes are told, differences are shown, and it is stored as it is typed", sets=("default", "phone"))
def document(page):
    page.empty_database("papers")
    page.go("#/db/papers")
    page.see("This database is empty")
    page.click("New document")
    page.see("New document")
    editor = "Text of New document"
    page.paste(editor, '{"_id": "first", "n": 1,}')
    page.see("a comma too many")
    page.paste(editor, "{\"_id\": 'first'}")
    page.see("Strings and names stand in double quotes")
    page.shot("a mistake in a document")
    page.paste(editor, '{"_id": "first", "one": 1.0, "big": 123456789012345678901234567890, "text": "a"}')
    page.click("Create document")
    page.see("Stored as 1-")
    page.see("123456789012345678901234567890")
    page.change("Text of first", '"a"', '"b"')
    page.click("Compare with stored")
    page.see("against the stored revision")
    page.shot("a document and what changed in it")
    page.press("Control+s")
    page.until("it is stored", lambda: page.api("GET", "/papers/first")["text"] == "b")
    page.see("Stored as 2-")
    page.paste("Text of first", '{"_id": "second"}')
    page.see("The id of a document cannot be changed")
    page.click("Undo all changes")
    page.gone("The id of a document cannot be changed")


@scene("leave-unsaved", title="A screen with unsaved text is not left without a question")
def leave_unsaved(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/draft", {"n": 1})
    page.go("#/db/papers/doc/draft")
    page.change("Text of draft", ": 1\n", ": 2\n")
    page.click("Changes", nth=0)
    page.see("Leave without saving?")
    page.click("Cancel")
    page.see("Compare with stored")
    page.click("Changes", nth=0)
    page.click("Leave")
    page.until("the feed", lambda: page.js("return !!document.querySelector('.live .dot.live')"))
    page.go("#/databases")


@scene("conflict-on-save", title="A 409 shows three texts, takes what only one side changed, and asks for the rest")
def conflict_on_save(page):
    page.empty_database("papers")
    rev = page.api("PUT", "/papers/first", {"a": 1, "b": 1, "c": 1})["rev"]
    page.go("#/db/papers/doc/first")
    page.see("Compare with stored")
    page.api("PUT", "/papers/first", {"_rev": rev, "a": 2, "b": 2, "c": 1})
    page.allow("status of 409")
    page.paste("Text of first", '{"_id": "first", "_rev": "%s", "a": 1, "b": 3, "c": 3}' % rev)
    page.press("Control+s")
    page.see("Somebody else stored this document meanwhile")
    page.see("1 member changed on both sides")
    page.shot("a conflict while saving")
    page.click("Take b from: Yours")
    page.see("Nothing is left to decide")
    page.click("Save the merged document")
    page.see("Stored as 3-")
    now = page.api("GET", "/papers/first")
    page.check((now["a"], now["b"], now["c"]) == (2, 3, 3), f"merged: {now}")


def with_conflicts(page):
    """A document with three live leaves and a deleted one."""
    page.empty_database("papers")
    rev, revs = None, []
    for number in range(14):
        body = {"customer": "Ada", "total": 10 + number, **({"_rev": rev} if rev else {})}
        rev = page.api("PUT", "/papers/order", body)["rev"]
        revs.append(rev.split("-")[1])

    def leaf(parent, letter, **members):
        ids = [letter * 32, *reversed(revs[:parent])]
        return {"_id": "order", "_rev": f"{parent + 1}-{letter * 32}", "_revisions": {"start": parent + 1, "ids": ids}, **members}

    page.api("POST", "/papers/_bulk_docs", {"new_edits": False, "docs": [
        leaf(14, "b", customer="Grace", total=99), leaf(13, "c", customer="Ada", total=50, note="by phone"),
        leaf(9, "d", _deleted=True), leaf(14, "a", customer="Ada", total=98, status="paid")]})


@scene("conflicts", title="Conflicts stand side by side; one press keeps a revision, another stores a merged document")
def conflicts(page):
    with_conflicts(page)
    page.go("#/db/papers")
    page.see("2 conflicts")
    page.click("order", nth=0)
    page.click("Conflicts")
    page.see("3 revisions stand side by side")
    page.see("by phone")
    page.shot("conflicts side by side")
    page.click("Take status from: Conflict 1")
    page.click("Store merged document")
    page.see("There are no conflicts")
    now = page.api("GET", "/papers/order?conflicts=true")
    page.check(now["status"] == "paid" and now["total"] == 99 and "_conflicts" not in now, f"merged: {now}")
    with_conflicts(page)
    page.go("#/db/papers")
    page.go("#/db/papers/doc/order?tab=conflicts")
    page.click("Keep this one", nth=1)
    page.click("Keep this one", nth=0)
    page.see("There are no conflicts")
    now = page.api("GET", "/papers/order?conflicts=true")
    page.check(now["total"] == 98 and "_conflicts" not in now, f"kept: {now}")


@scene("revisions", title="The revision tree is drawn; each revision shows its text and what it changed")
def revisions(page):
    with_conflicts(page)
    page.go("#/db/papers/doc/order?tab=revisions")
    page.see("3 live, 1 deleted")
    page.check(page.js("return document.querySelectorAll('.tree .node').length") == 18, "eighteen revisions are drawn")
    page.shot("a revision tree")
    page.js("document.querySelector('.tree .conflict').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
    page.see("15-aaaaaaaa")
    page.click("Against the current one")
    page.see("what the current revision changed")
    page.js("document.querySelectorAll('.tree .inner')[12].dispatchEvent(new MouseEvent('click'))")
    page.click("Text")


@scene("deleted-document", title="A deleted document is told from one that never was, and comes back")
def deleted_document(page):
    page.empty_database("papers")
    rev = page.api("PUT", "/papers/gone", {"text": "kept"})["rev"]
    page.api("DELETE", f"/papers/gone?rev={rev}")
    page.allow("status of 404")
    page.go("#/db/papers/doc/gone")
    page.see("This document is deleted")
    page.click("Restore the last revision")
    page.see("The document is back")
    page.check(page.api("GET", "/papers/gone")["text"] == "kept", "it is back")
    page.go("#/db/papers/doc/never")
    page.see("There is no such document")


@scene("attachments", title="Attachments are uploaded, looked at, downloaded and deleted", sets=("default", "phone"))
def attachments(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/first", {"n": 1})
    note, picture = page.scratch / "a note.txt", page.scratch / "dot.png"
    note.write_text("<b>not bold</b>\nsecond line\n")
    picture.write_bytes(bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8ffff3f0005fe02fea735"
        "81e40000000049454e44ae426082"))
    page.go("#/db/papers/doc/first?tab=attachments")
    page.see("No attachments")
    page.attach(None, note, picture)
    page.see("dot.png is stored")
    page.see("a note.txt")
    page.shot("attachments")
    page.click("a note.txt")
    page.see("<b>not bold</b>")
    page.press("Escape")
    page.click("dot.png")
    page.until("the picture is drawn", lambda: page.js("const i = document.querySelector('.preview img'); return i && i.naturalWidth === 1"))
    page.press("Escape")
    page.click("Actions for dot.png")
    page.click("Delete")
    page.click("Delete")
    page.see("dot.png is deleted")
    page.check(list(page.api("GET", "/papers/first")["_attachments"]) == ["a note.txt"], "one is left")


@scene("documents", title="Documents are paged, found by their ids, shown as table and JSON, selected, deleted, exported")
def documents(page):
    page.empty_database("papers")
    page.api("POST", "/papers/_bulk_docs", {"docs": [
        {"_id": f"{kind}-{number:03d}", "kind": kind, "number": number, "deep": {"a": [1, 2]}} for kind in ("bill", "order") for number in range(60)]})
    watch_downloads(page)
    page.go("#/db/papers")
    page.see("1 to 25 of 120")
    page.shot("documents as a table")
    page.click("Next")
    page.see("26 to 50 of 120")
    page.click("Previous")
    page.see("1 to 25 of 120")
    page.type("Id, or its beginning", "order-01")
    page.see("order-019")
    page.gone("order-020")
    page.click("JSON")
    page.see('"number": 10')
    page.shot("documents as JSON")
    page.click("Table")
    page.tick("Select order-010")
    page.tick("Select order-011")
    page.see("2 documents selected")
    page.shot("selected documents")
    page.click("Export")
    saved = json.loads(download(page, "papers-2.json"))
    page.check([doc["_id"] for doc in saved] == ["order-010", "order-011"], f"exported: {saved}")
    page.click("Delete")
    page.click("Delete", nth=0)
    page.see("2 documents deleted")
    page.check(page.api("GET", "/papers")["doc_count"] == 118, "two are gone")
    page.click("Columns")
    page.tick("deep", on=False)
    page.click("Show")
    page.until("the column goes", lambda: "deep" not in " ".join(page.text_of("thead th")))
    page.click("More")
    page.click("Copy address")
    page.see("Copied")


@scene("partitions", title="In a partitioned database documents are shown by partition, and ids without one are told")
def partitions(page):
    page.empty_database("parts", "q=2&partitioned=true")
    page.api("POST", "/parts/_bulk_docs", {"docs": [{"_id": f"{name}:{at}", "at": at} for name in ("east", "west") for at in range(5)]})
    page.go("#/db/parts")
    page.see("partitioned")
    page.type("Partition", "west")
    page.see("west:4")
    page.gone("east:0")
    page.see("Partition west: 5 documents")
    page.shot("a partition")
    page.click("New document")
    page.paste("Text of New document", '{"_id": "nowhere"}')
    page.see("an id is PARTITION:ID")
    leave(page)


@scene("changes", title="Changes are shown as they happen, filtered by a selector, held while paused", sets=("default", "phone"))
def changes(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/before", {"type": "order"})
    page.go("#/db/papers/changes")
    page.until("the feed", lambda: page.js("return !!document.querySelector('.live .dot.live')"))
    page.see("before")
    page.api("PUT", "/papers/during", {"type": "bill"})
    page.see("during")
    page.shot("changes as they happen")
    page.click("Pause")
    page.api("PUT", "/papers/held", {"type": "order"})
    page.see("1 waiting")
    page.click("Resume")
    page.see("held")
    page.choose("Only", "A selector")
    page.paste("Selector", '{"type": "bill"}')
    page.click("Apply")
    page.gone("held")
    page.see("during")
    page.api("PUT", "/papers/second-bill", {"type": "bill"})
    page.see("second-bill")


# Stores a document when the past was answered and before the page follows, and refuses the first feed.
BETWEEN = """
const own = window.fetch, asked = window.__asked = [];
let rounds = 0;
window.fetch = async (url, init) => {
  const text = String(url);
  if (text.includes("feed=continuous")) {
    asked.push(text);
    if (asked.length === 1) return new Response('{"error":"too_many_requests"}', { status: 429 });
  }
  const answer = await own(url, init);
  if (text.includes("descending=true")) {
    rounds += 1;
    await own(`/papers/between-${rounds}`, { method: "PUT", body: JSON.stringify({ rounds }), headers: { "Content-Type": "application/json" } });
  }
  return answer;
};
window.__restore = () => { window.fetch = own; };"""


@scene("changes-between", title="No change is lost between the past and the feed, nor by a feed that the node refuses for a moment")
def changes_between(page):
    page.empty_database("papers")
    page.api("POST", "/papers/_bulk_docs", {"docs": [{"_id": f"old-{at}"} for at in range(5)]})
    page.js(BETWEEN)
    try:
        page.go("#/db/papers/changes")
        page.see("old-4")
        page.see("between-1")
        page.until("the feed", lambda: page.js("return !!document.querySelector('.live .dot.live')"))
        page.check(len(page.js("return window.__asked")) >= 2, "the feed is asked for again after 429")
        # With a filter that passes none of the past.
        page.js("window.__asked.length = 1")
        page.choose("Only", "A selector")
        page.paste("Selector", '{"rounds": 2}')
        page.click("Apply")
        page.until("the change between", lambda: page.text_of(".change a") == ["between-2"])
        # Left before it was there: it asks for nothing any more.
        page.go("#/databases")
        page.js("window.__asked.length = 1; location.hash = '#/db/papers/changes'; setTimeout(() => { location.hash = '#/account'; })")
        page.see("What you may do on this server")
        page.browser.wait("setTimeout(arguments[0], 1500)")
        page.check(len(page.js("return window.__asked")) == 1, "a feed is open for a screen that nobody sees")
    finally:
        page.js("window.__restore()")
    page.go("#/databases")


@scene("import", title="NDJSON, JSON and CSV are imported, with progress and a list of what was refused")
def import_(page):
    page.empty_database("papers")
    lines = page.scratch / "lines.ndjson"
    lines.write_text("".join(json.dumps({"_id": f"line-{number:05d}", "number": number}) + "\n" for number in range(3000)) + "{broken\n")
    page.go("#/db/papers/import")
    page.attach("File", lines)
    page.see("The first document")
    page.shot("a file before it is imported")
    page.click("Import")
    page.see("3,000 documents stored, 1 refused")
    page.shot("an import with a refusal")
    page.check(page.api("GET", "/papers")["doc_count"] == 3000, "all are there")
    table = page.scratch / "table.csv"
    table.write_text('name;age;note\nAda;36;"says ""hello""; twice"\nGrace;;x\n')
    page.attach("File", table)
    page.see("Column for the id")
    page.type("Column for the id", "name")
    page.press("Tab")
    page.click("Import")
    page.see("2 documents stored")
    ada, grace = page.api("GET", "/papers/Ada"), page.api("GET", "/papers/Grace")
    page.check(ada["age"] == 36 and ada["note"] == 'says "hello"; twice' and "age" not in grace, f"{ada} {grace}")
    rows = page.scratch / "rows.json"
    rows.write_text('{"total_rows":2,"rows":[\n{"id":"r1","key":"r1","value":{},"doc":{"_id":"r1","_rev":"1-abc","big":12345678901234567890}},\n'
                    '{"id":"r2","key":"r2","value":{},"doc":{"_id":"r2","one":1.0}}]}')
    page.attach("File", rows)
    page.see("12345678901234567890")
    page.click("Import")
    page.see("2 documents stored")
    page.check(page.api("GET", "/papers/r1")["big"] == 12345678901234567890, "numbers stay as they are")


@scene("export", title="A database is exported as NDJSON, JSON and CSV")
def export(page):
    page.empty_database("papers")
    page.api("POST", "/papers/_bulk_docs", {"docs": [{"_id": f"d{number:04d}", "n": number, "text": '=1+1,"x"'} for number in range(1200)]})
    page.api("PUT", "/papers/_design/app", {"views": {}})
    watch_downloads(page)
    page.go("#/db/papers/export")
    page.click("Export", nth=0)
    page.see("1,201 documents")
    lines = download(page, "papers.ndjson").splitlines()
    page.check(len(lines) == 1201 and "_rev" not in json.loads(lines[5]), f"{len(lines)} lines")
    page.shot("an export")
    page.click("JSON")
    page.tick("With design documents", on=False)
    page.click("Export", nth=0)
    page.see("1,200 documents")
    page.check(len(json.loads(download(page, "papers.json"))) == 1200, "a list of all")
    page.click("CSV")
    page.click("Export", nth=0)
    text = page.until("the CSV", lambda: page.js("return window.__saved['papers.csv']"))
    page.check(text.startswith('_id,n,text\r\nd0000,0,"\'=1+1,""x"""\r\n') and text.count("\r\n") == 1201, text[:100])
    # A member that no document of the first page has is told, and exported when that is asked for. Design documents are no rows.
    page.api("PUT", "/papers/later", {"n": 1, "late": "yes"})
    page.tick("With design documents")
    page.click("Export", nth=0)
    page.see("1,201 documents")
    page.see("1 member of later documents has no column")
    page.shot("members without a column")
    page.click("Export again with them")
    page.gone("has no column")
    page.see("1,201 documents")
    text = page.until("the CSV with all members", lambda: page.js("return window.__saved['papers.csv'].startsWith('_id,n,text,late') && window.__saved['papers.csv']"))
    page.check(text.endswith("later,1,,yes\r\n"), text[-60:])


@scene("odd-names", title="Names and ids with any signs: database, document, attachment, design document, view")
def odd_names(page):
    db, doc, view = "odd/name+(x)$", "a b/c?d#e%20ü:1&=", "v/é ?"
    if page.look("/" + quote(db, safe="")) is not None:
        page.api("DELETE", "/" + quote(db, safe=""))
    page.go("#/databases")
    page.click("Create database")
    page.type("Name", db)
    page.click("Create", nth=0)
    page.see("This database is empty")
    page.click("New document")
    page.paste("Text of New document", json.dumps({"_id": doc, "n": 1}, ensure_ascii=False))
    page.click("Create document")
    page.see("Stored as 1-")
    page.find("type", "Text of " + doc)
    page.click("Attachments")
    path = page.scratch / "x #1 ü%.txt"
    path.write_text("odd")
    page.attach(None, path)
    page.see("is stored")
    page.click("x #1 ü%.txt")
    page.see("odd")
    page.press("Escape")
    page.go("#/db/" + quote(db, safe="()"))
    page.see("1 to 1 of 1")
    page.click(doc)
    page.find("type", "Text of " + doc)
    base = f"/{quote(db, safe='')}/_design/{quote('d/d é', safe='')}"
    page.api("PUT", base, {"views": {view: {"map": "function (doc) { emit(doc.n); }"}}})
    page.go("#/db/" + quote(db, safe="()") + "/design")
    page.click(view)
    page.see("1 row")
    page.click("Functions")
    page.paste("Map function", "function (doc) { emit('changed'); }")
    page.click("Save and build")
    page.see('"changed"')
    page.go("#/db/" + quote(db, safe="()") + "/changes")
    page.see(doc)
    page.click("Show the document", nth=1)
    page.press("Escape")
    page.api("DELETE", "/" + quote(db, safe=""))
    page.allow("status of 404")
    page.go("#/databases")


@scene("large-document", title="A document of two megabytes is edited, one line of it changed and stored")
def large_document(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/large", {"items": [{"number": at, "text": "some words of it " * 3} for at in range(20000)], "last": "before"})
    page.go("#/db/papers/doc/large")
    page.find("type", "Text of large")
    # As a key press does it: to put megabytes in at once takes browsers minutes.
    page.js("""
        const area = document.querySelector("textarea.editor-text"), at = area.value.indexOf('"before"');
        area.focus();
        area.setRangeText('"after"', at, at + '"before"'.length, "end");
        area.dispatchEvent(new InputEvent("input", { bubbles: true }));""")
    page.press("Control+s")
    page.see("Stored as 2-")
    page.check(page.api("GET", "/papers/large")["last"] == "after", "it is stored")
    page.api("PUT", "/papers/larger", {"items": [{"number": at, "text": "some words of it " * 9} for at in range(30000)]})
    page.go("#/db/papers/doc/larger")
    page.see("This document is large")
    page.shot("a document of five megabytes")
    page.go("#/databases")


@scene("local-documents", title="Local documents and design documents have lists of their own; both are opened, stored and deleted")
def local_documents(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/_local/here", {"n": 1})
    page.api("PUT", "/papers/_design/app", {"views": {"all": {"map": "function (doc) { emit(null); }"}}})
    page.go("#/db/papers")
    page.choose("Kind of documents", "Local documents")
    page.see("_local/here")
    page.click("_local/here")
    page.change("Text of _local/here", ": 1\n", ": 2\n")
    page.press("Control+s")
    page.until("it is stored", lambda: page.api("GET", "/papers/_local/here")["n"] == 2)
    page.api("PUT", "/papers/_local/stays", {"n": 1})
    page.go("#/db/papers?kind=local")
    page.tick("Select _local/here")
    page.see("1 document selected")
    page.click("Delete")
    page.see("they never replicate")
    page.click("Delete")
    page.see("1 document deleted")
    page.gone("_local/here")
    page.see("_local/stays")
    page.check(page.look("/papers/_local/here") is None, "the local document is still there")
    # Somebody else was quicker: it is told, and nothing is said to be deleted.
    page.allow("status of 404")
    page.tick("Select _local/stays")
    page.api("DELETE", "/papers/_local/stays")
    page.click("Delete")
    page.click("Delete")
    page.see("1 document could not be deleted")
    page.go("#/db/papers?kind=design")
    page.see("_design/app")
    page.gone("_local/here")
    page.click("_design/app")
    page.see("View: all")
    page.click("As JSON")
    page.change("Text of _design/app", "emit(null)", "emit(1)")
    page.click("Save")
    page.see("Stored as 2-")
    page.go("#/databases")
