"""Scenes of the administration page: what a document's menu does, and uploads, imports and exports that take long."""

import contextlib
import json

from page_browser import scene
from page_scenes_data import download, watch_downloads


@contextlib.contextmanager
def slow(page, bytes_s):
    """A network that carries so many bytes a second."""
    page.cdp("Network.enable")
    page.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=bytes_s, uploadThroughput=bytes_s)
    try:
        yield
    finally:
        page.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)


def under_way(page, what):
    """Waits until a bar stands between its ends."""
    told = "return [...document.querySelectorAll('progress')].some((e) => e.hasAttribute('value') && e.value > 0 && e.value < 1)"
    page.until(f"the bar of {what}", lambda: page.js(told))


@scene("document-menu", title="A document is formatted, duplicated, copied to another id, opened as it is served, deleted", sets=("default", "phone"))
def document_menu(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/first", {"n": 1, "deep": {"a": [1, 2]}})
    page.go("#/db/papers/doc/first")
    page.find("type", "Text of first")
    rev = page.look("/papers/first")["_rev"]
    page.paste("Text of first", '{"_id":"first","_rev":"%s","big":12345678901234567890,"n":2}' % rev)
    page.click("Format")
    page.until("the text is formatted", lambda: '{\n  "_id": "first",' in page.js("return document.querySelector('textarea.editor-text').value"))
    page.press("Control+s")
    page.see("Stored as 2-")
    page.click("More for this document")
    page.click("Duplicate into a new document")
    page.find("type", "Text of New document")
    page.see("12345678901234567890")
    page.check("_rev" not in page.js("return document.querySelector('textarea.editor-text').value"), "the duplicate has the revision")
    page.click("Create document")
    page.see("Stored as 1-")
    page.check(page.api("GET", "/papers")["doc_count"] == 2, "the duplicate is not there")
    page.go("#/db/papers/doc/first")
    page.find("type", "Text of first")
    page.js("window.open = (address) => { window.__opened = String(address); }")
    page.click("More for this document")
    page.click("Open as served")
    page.check(page.js("return window.__opened") == page.base + "/papers/first", "another address is opened")
    page.click("More for this document")
    page.click("Copy to another id")
    page.type("New id", "second copy")
    page.click("Copy")
    page.see("Copied to second copy")
    page.find("type", "Text of second copy")
    page.check(page.look("/papers/second%20copy")["n"] == 2, "the copy is not there")
    page.click("More for this document")
    page.click("Delete document")
    page.see("Delete second copy?")
    page.click("Delete document")
    page.see("second copy is deleted")
    page.see("1 to 2 of 2")
    page.check(page.look("/papers/second%20copy") is None, "the document is still there")


@scene("upload-under-way", title="An upload shows how far it is and is cancelled; attachments are downloaded")
def upload_under_way(page):
    page.empty_database("papers")
    page.api("PUT", "/papers/first", {"n": 1})
    large = page.scratch / "large.bin"
    large.write_bytes(bytes(3_000_000))
    watch_downloads(page)
    page.go("#/db/papers/doc/first?tab=attachments")
    page.see("No attachments")
    with slow(page, 400_000):
        page.attach(None, large)
        under_way(page, "the upload")
        page.see("of 3.0 MB")
        page.shot("an upload under way")
        page.click("Cancel")
        page.until("the upload goes", lambda: not page.js("return !!document.querySelector('.upload')"))
    page.see("No attachments")
    page.check("_attachments" not in page.look("/papers/first"), "what was cancelled is stored")
    note = page.scratch / "note.txt"
    note.write_text("a note")
    page.attach(None, note)
    page.see("note.txt is stored")
    page.click("Actions for note.txt")
    page.click("Download")
    address = download(page, "note.txt")
    page.check("/papers/first/note.txt?rev=" in address, f"another address: {address}")
    page.check(page.browser.wait("fetch(arguments[0]).then((a) => a.text()).then(arguments[1])", address) == "a note", "another text")
    watch_downloads(page)
    page.click("Actions for note.txt")
    page.click("Preview")
    page.see("a note")
    page.click("Download")
    download(page, "note.txt")
    page.click("Close", nth=1)
    # Somebody deleted it meanwhile: the preview says so in words.
    page.api("DELETE", "/papers/first/note.txt?rev=" + page.look("/papers/first")["_rev"])
    page.api("POST", "/papers/_compact", {})
    page.allow("status of 404")
    page.until("the revision with it is gone", lambda: page.look("/papers/first?" + address.split("?")[1]) is None)
    page.click("note.txt", nth=0)
    page.see("It may have been deleted")
    page.press("Escape")


@scene("transfer-under-way", title="Import and export show how far they are and are cancelled; revisions are kept, refusals are saved as a list")
def transfer_under_way(page):
    page.empty_database("papers")
    watch_downloads(page)
    lines = page.scratch / "many.ndjson"
    lines.write_text("".join(json.dumps({"_id": f"line-{at:05d}", "text": f"{at} " * 60}) + "\n" for at in range(9000)))
    page.go("#/db/papers/import")
    page.attach("File", lines)
    page.see("The first document")
    with slow(page, 400_000):
        page.click("Import")
        under_way(page, "the import")
        page.see("stored,")
        page.shot("an import under way")
        page.click("Cancel")
        page.see("Stopped.")
    stored = page.api("GET", "/papers")["doc_count"]
    page.check(0 < stored < 9000, f"{stored} documents are stored")
    kept = page.scratch / "kept.json"
    kept.write_text(json.dumps([{"_id": "kept", "_rev": "3-" + "a" * 32, "n": 1}]))
    page.attach("File", kept)
    page.choose("Revisions", "Keep ids of revisions (new_edits=false)")
    page.click("Import")
    page.see("1 document stored")
    page.check(page.look("/papers/kept")["_rev"] == "3-" + "a" * 32, "the revision is another one")
    page.choose("Revisions", "Store as new documents")
    page.click("Import")
    page.see("0 documents stored, 1 refused")
    page.see("A conflict: a document with this id is there already")
    page.click("Save list")
    refused = json.loads(download(page, "papers-refused.json"))
    page.check([(one["id"], one["error"]) for one in refused] == [("kept", "conflict")], f"{refused}")
    page.api("POST", "/papers/_bulk_docs", {"docs": [{"_id": f"more-{at:05d}", "text": f"{at} " * 60} for at in range(9000)]})
    page.go("#/db/papers/export")
    with slow(page, 400_000):
        page.click("Export", nth=0)
        under_way(page, "the export")
        page.shot("an export under way")
        page.click("Cancel")
        page.see("Stopped after")


@scene("changes-filters", title="Changes of some ids, of design documents, by a filter function; found by their id, cleared")
def changes_filters(page):
    page.empty_database("papers")
    page.api("POST", "/papers/_bulk_docs", {"docs": [{"_id": "a1", "important": True}, {"_id": "b2"}, {"_id": "c3"}]})
    page.api("PUT", "/papers/_design/app", {"filters": {"important": "function (doc) { return !!doc.important; }"}})

    def shown(*ids):
        page.until(f"the changes {ids}", lambda: sorted(page.text_of(".change a")) == sorted(ids))

    page.go("#/db/papers/changes")
    shown("a1", "b2", "c3", "_design/app")
    page.type("Filter by id", "B")
    shown("b2")
    page.type("Filter by id", "c")
    page.press("Backspace")
    shown("a1", "b2", "c3", "_design/app")
    page.click("Clear")
    shown()
    page.choose("Only", "Some ids")
    page.paste("Ids, one a line", "a1\nc3\nlater")
    page.click("Apply")
    shown("a1", "c3")
    page.api("PUT", "/papers/later", {})
    page.api("PUT", "/papers/other", {})
    shown("a1", "c3", "later")
    page.choose("Only", "Design documents")
    shown("_design/app")
    page.choose("Only", "A filter function")
    page.type("Filter function", "app/important")
    page.click("Apply")
    shown("a1")
    page.api("PUT", "/papers/also", {"important": True})
    shown("a1", "also")
    page.shot("changes by a filter function")
    page.allow("status of 404")
    page.type("Filter function", "app/nothing")
    page.click("Apply")
    page.see("Stopped")
    page.until("the mistake is told", lambda: page.text_of(".notice.error"))


@scene("documents-list", title="The list of documents: how many per page, all of a page selected, another column, back to what the data give; system databases")
def documents_list(page):
    page.empty_database("papers")
    page.api("POST", "/papers/_bulk_docs", {"docs": [{"_id": f"d-{at:03d}", "n": at, "rare": at} if at == 50 else {"_id": f"d-{at:03d}", "n": at} for at in range(60)]})
    page.go("#/db/papers")
    page.see("1 to 25 of 60")
    page.choose("Per page", "10")
    page.see("1 to 10 of 60")
    page.click("Next")
    page.see("11 to 20 of 60")
    page.tick("Select all on this page")
    page.see("10 documents selected")
    page.click("Clear")
    page.gone("10 documents selected")
    page.click("First")
    page.see("1 to 10 of 60")
    page.click("Columns")
    page.type("Another member", "rare")
    page.click("Show")
    page.until("the column is there", lambda: "rare" in " ".join(page.text_of("thead th")))
    page.click("Columns")
    page.click("Choose by the data")
    page.until("the column goes", lambda: "rare" not in " ".join(page.text_of("thead th")))
    page.api("PUT", "/papers/a-first", {})
    page.click("Refresh")
    page.see("a-first")
    page.go("#/databases")
    page.gone("_replicator")
    if page.look("/_replicator") is None:
        page.api("PUT", "/_replicator")
    page.tick("System databases")
    page.see("_replicator")


@scene("samples-elsewhere", title="Sample data for an empty database, for one that is made, for a partitioned one")
def samples_elsewhere(page):
    page.client.ask("DELETE", "/sampled")
    page.empty_database("papers")
    page.go("#/db/papers")
    page.click("Add sample data")
    page.see("Sample data added")
    page.see("book-dune")
    page.check(page.api("GET", "/papers")["doc_count"] == 58, "the sample has 58 documents")
    page.go("#/databases")
    page.click("Create database")
    page.type("Name", "sampled")
    page.click("Ranges, ")
    page.tick("Partitioned")
    page.tick("Fill it with sample data")
    page.click("Create")
    page.see("sampled is there")
    page.see("book:dune")
    page.check(page.api("GET", "/sampled/_partition/book")["doc_count"] == 12, "the partition has 12 books")
    rows = page.api("GET", "/sampled/_design/library/_view/by_author?limit=1")["rows"]
    page.check(rows, "its views have no rows")
    page.api("DELETE", "/sampled")
    page.go("#/databases")
