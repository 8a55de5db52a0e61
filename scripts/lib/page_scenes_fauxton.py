"""Fauxton, CouchDB's own web interface, in place of the page (`[settee] utils_dir`): its main tasks by its own controls."""

import importlib.machinery
import importlib.util
import pathlib
import shutil

import node
from page_browser import ELEMENT, Wrong, scene

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "fauxton"


def folder():
    """The released page, from npm where it is not there."""
    loader = importlib.machinery.SourceFileLoader("fauxton_script", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fauxton_script", loader))
    loader.exec_module(module)
    return module.fetch()


def code(page, text, nth=0):
    """Puts text into an editor of Fauxton (ACE) as from the clipboard."""
    page.until("the editor", lambda: page.js("return [...document.querySelectorAll('.ace_editor')].filter((e) => e.offsetParent && e.env?.editor).length > arguments[0]", nth))
    page.js("""const editors = [...document.querySelectorAll('.ace_editor')].filter((e) => e.offsetParent && e.env?.editor);
            editors[arguments[1]].env.editor.setValue(arguments[0], 1);""", text, nth)


def option(page, css):
    """Presses an option of a select, as a user does."""
    element = page.until(f"the option {css}", lambda: page.js("return document.querySelector(arguments[0])", css))[ELEMENT]
    page.browser.call("POST", f"/element/{element}/click")


def tasks(page, db="fauxton-db"):
    page.open("#login")
    page.put("#username", "adm")
    page.put("#password", node.PASSWORD)
    page.click(css="#submit")
    page.see("You have been logged in.")

    # A database.
    page.click("Create Database")
    page.put("#js-new-database-name", db)
    page.js("document.querySelector('#non-partitioned-db')?.click()")
    page.click(css="#js-create-database")
    page.until("the database", lambda: page.look(f"/{db}"))

    # A document.
    page.click("Create Document")
    code(page, '{"_id": "first", "kind": "note", "n": 7}')
    page.click("Create Document")
    page.until("the document", lambda: page.look(f"/{db}/first"))
    page.open(f"#/database/{db}/_all_docs")
    page.see("first")

    # A view, and its rows.
    page.open(f"#/database/{db}/new_view")
    page.put("#new-ddoc", "notes")
    page.put("#index-name", "by-n")
    code(page, "function (doc) { emit(doc.n, doc.kind); }")
    page.click("Create Document and then Build Index")
    page.until("the view", lambda: page.look(f"/{db}/_design/notes"))
    page.open(f"#/database/{db}/_design/notes/_view/by-n")
    page.see("first")
    page.check(page.look(f"/{db}/_design/notes/_view/by-n")["rows"][0]["key"] == 7, "the view has other rows")

    # A query.
    page.open(f"#/database/{db}/_find")
    code(page, '{"selector": {"kind": "note"}}')
    page.click("Run Query")
    page.see("first")

    # A replication.
    page.open(f"#/replication/_create/{db}")
    page.see("Start Replication", 20)
    option(page, "#select-replication-source-auth option[value=BASIC_AUTH]")
    option(page, "#replication-target option[value=REPLICATION_TARGET_NEW_LOCAL_DATABASE]")
    option(page, "#select-replication-target-auth option[value=BASIC_AUTH]")
    # The names are there already.
    page.put(".replication__new-input", f"{db[:7]}-copy")
    for side in ("source", "target"):
        page.put(f"#replication-{side}-auth-password", node.PASSWORD)
    page.click(css="#replicate")
    page.until("the copy", lambda: (page.look(f"/{db[:7]}-copy") or {}).get("doc_count") == 2, 30)


@scene("fauxton", title="Fauxton: sign in, database, document, view, query, replication", sets=("long", "fauxton"))
def fauxton(page):
    if not shutil.which("npm"):
        raise Wrong("npm is not here: it brings Fauxton")
    page.api("PUT", "/_node/_local/_config/settee/utils_dir", str(folder()))
    try:
        page.client.ask("DELETE", "/fauxton-db")
        page.client.ask("DELETE", "/fauxton-copy")
        # Nobody is signed in, and nothing of the other page is left.
        page.browser.call("DELETE", "/cookie")
        page.browser.open("about:blank")
        tasks(page)
        # It asks who is there with the password of a form, before it is known to be right.
        page.allow("status of 401")
    finally:
        page.api("DELETE", "/_node/_local/_config/settee/utils_dir")
        page.browser.open("about:blank")
        # Still signed in, by Fauxton.
        page.open()
