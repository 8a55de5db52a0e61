"""What scenes of the administration page share: a hand that clicks and types at the page's real controls, eyes that look at
it in three forms (light, dark, phone), and the list of scenes. Standard library only.

A scene is a function in a file `lib/page_scenes_*.py`:

    @scene("create-database", title="A database is made and deleted")
    def create_database(page):
        page.go("#/databases")
        page.click("Create database")
        page.type("Name", "orders")
        page.click("Create")
        page.see("orders")
        page.shot("a new database")

Controls are found by the name that a screen reader says: label, `aria-label`, text. Every wait ends after `WAIT_S`.
"""

import base64
import http.client
import json
import os
import pathlib
import time
import urllib.parse

import node
from browser import Browser, Failed

WAIT_S = 60
SIZES = {"light": (1280, 860), "dark": (1280, 860), "phone": (390, 844)}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Backspace": "\ue003", "ArrowDown": "\ue015",
        "ArrowUp": "\ue013", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Control": "\ue009", "Shift": "\ue008",
        "Home": "\ue011", "End": "\ue010", "Delete": "\ue017", "Space": " "}

# Finds a control of a kind by its name, in the dialog on top if there is one, in a row that has a text if one is given.
FIND = """
const [kind, wanted, row, nth, css] = arguments;
const KINDS = {
  click: "button,a[href],summary,[role=tab],[role=menuitem],[role=option],label,input[type=checkbox],input[type=radio],tr.opens,[data-click]",
  type: "input:not([type=checkbox]):not([type=radio]):not([type=file]),textarea,[contenteditable=true]",
  select: "select", check: "input[type=checkbox],input[type=radio]", file: "input[type=file]", any: css || "*",
};
const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
const tidy = (text) => (text || "").replace(/\\s+/g, " ").trim();
function name(e) {
  const own = e.getAttribute("aria-label");
  if (own) return tidy(own);
  const by = e.getAttribute("aria-labelledby");
  if (by) return tidy(by.split(/\\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" "));
  if (e.labels && e.labels.length) {
    const label = e.labels[0], words = label.querySelector(".field-label") ?? label;
    return tidy(words.textContent);
  }
  return tidy(e.textContent) || tidy(e.title) || tidy(e.placeholder) || tidy(e.value);
}
const dialogs = [...document.querySelectorAll("dialog[open],[role=dialog]")].filter(seen);
let roots = dialogs.length ? [dialogs[dialogs.length - 1]] : [document];
const pop = [...document.querySelectorAll("[popover]:popover-open")].filter((e) => e.classList.contains("menu"));
if (kind === "click" && pop.length) roots = [pop[pop.length - 1], ...roots];
for (const root of roots) {
  let scopes = [root];
  if (row) {
    scopes = [...root.querySelectorAll("tr,li,article,section,.card,.row-item,fieldset")].filter((e) => seen(e) && tidy(e.textContent).includes(row));
    // The innermost first.
    scopes.sort((a, b) => a.textContent.length - b.textContent.length);
  }
  for (const scope of scopes) {
    const all = [...scope.querySelectorAll(KINDS[kind])].filter((e) => kind === "file" || seen(e) || (e.type === "checkbox" || e.type === "radio"));
    if (!wanted) { if (all[nth]) return all[nth]; continue; }
    for (const fits of [(n) => n === wanted, (n) => n.startsWith(wanted), (n) => n.includes(wanted)]) {
      const found = all.filter((e) => fits(name(e)));
      if (found[nth]) return found[nth];
    }
  }
}
return null;"""

SEES = """
const [wanted] = arguments;
const tidy = (text) => (text || "").replace(/\\s+/g, " ");
const dialogs = [...document.querySelectorAll("dialog[open]")];
const text = [document.body, ...dialogs].map((e) => tidy(e.innerText)).join(" ")
  + [...document.querySelectorAll("input,textarea,select")].filter((e) => e.checkVisibility()).map((e) => " " + tidy(e.value)).join("");
return text.toLowerCase().includes(tidy(wanted).toLowerCase());"""

WIDE = """
const width = document.documentElement.clientWidth;
const over = [...document.querySelectorAll("main *")].filter((e) => {
  if (e.closest(".table-wrap, .tabs, pre, .editor, .virtual, svg, .scrolls, [popover]")) return false;
  return e.getBoundingClientRect().right > width + 1 && e.checkVisibility();
});
return document.documentElement.scrollWidth > width + 1 ? (over.slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join(" | ") || "the page") : null;"""

SCENES = []


class Wrong(Exception):
    """The page does not do what it is to do."""


class Skipped(Exception):
    """What a scene looks at is not on this node."""


class Scene:
    def __init__(self, name, run, title, nodes, sets):
        self.name, self.run, self.title, self.nodes, self.sets = name, run, title, nodes, sets
        self.file = pathlib.Path(run.__code__.co_filename).stem


def scene(name, title="", nodes=1, sets=("default",)):
    """Adds a scene. `nodes`: 1, or 3 for a cluster; `sets`: `default`, `phone`, `long`, `fauxton`."""

    def add(run):
        SCENES.append(Scene(name, run, title or (run.__doc__ or name).strip(), nodes, sets))
        return run

    return add


class Page:
    """The page in a browser, as one user sees it."""

    def __init__(self, browser, base, client, pictures=None, axe=None):
        self.browser, self.base, self.client = browser, base.rstrip("/"), client
        self.pictures, self.axe = pictures, axe
        self.shots, self.allowed, self.findings = [], [], []
        self.scene, self.bytes, self.told = "", 0, set()
        self.form = "light"

    # -- moving about

    def open(self, fragment="", path="/_utils/"):
        self.browser.open(self.base + path + fragment)

    def go(self, fragment):
        """Goes to an address of the page, as a link would, and waits until its heading is there."""
        self.js("""
            const shown = document.querySelector(".outlet")?.firstElementChild;
            if (shown && location.hash !== arguments[0]) shown.dataset.before = "1";
            location.hash = arguments[0];""", fragment)
        self.until(f"the screen {fragment}", lambda: self.js("""
            const outlet = document.querySelector(".outlet"), shown = outlet?.firstElementChild;
            return location.hash.startsWith(arguments[0].split("?")[0]) && !!shown && !shown.dataset.before
              && !!outlet.querySelector("h1,h2") && !outlet.querySelector(":scope > .loading") || !!document.querySelector("dialog[open] h2");""", fragment))

    def sign_in(self, name="adm", password=node.PASSWORD):
        self.open()
        self.type("User name", name)
        self.type("Password", password)
        self.press("Enter")
        self.until("signed in", lambda: not self.js("return !!document.querySelector('.login')"))

    # -- hands

    def js(self, code, *args):
        return self.browser.run(code, *args)

    def until(self, what, look, wait_s=WAIT_S):
        """Waits until `look()` is true, and answers what it gave."""
        # As long as any other wait, at least.
        wait_s = max(wait_s, WAIT_S)
        end, trouble = time.monotonic() + wait_s, ""
        while True:
            try:
                found = look()
            except Failed as error:
                found, trouble = None, f" ({str(error)[:200]})"
            if found:
                return found
            if time.monotonic() > end:
                raise Wrong(f"not within {wait_s} s: {what}{trouble}")
            time.sleep(0.05)

    def find(self, kind, name=None, row=None, nth=0, css=None, wait_s=WAIT_S):
        what = f"{kind} {name or css!r}" + (f" in {row!r}" if row else "")
        return self.until(what, lambda: self.js(FIND, kind, name, row, nth, css), wait_s)[ELEMENT]

    def click(self, name=None, row=None, nth=0, css=None):
        """Presses a button, link, tab or box of that name."""
        end = time.monotonic() + WAIT_S
        while True:
            element = self.find("any" if css else "click", name, row, nth, css)
            try:
                # Not below the head of the page, which stays where it is.
                self.js("arguments[0].scrollIntoView({ block: 'center', inline: 'nearest' })", {ELEMENT: element})
                self.browser.call("POST", f"/element/{element}/click")
                return
            except Failed as error:
                # It is being drawn, is covered by a message, or is not enabled yet.
                if time.monotonic() > end:
                    raise Wrong(f"cannot click {name or css!r}: {error}") from None
                time.sleep(0.1)

    def type(self, label, text, row=None, nth=0, clear=True):
        """Types into a field."""
        def typed():
            element = self.find("type", label, row, nth)
            if clear:
                self.browser.call("POST", f"/element/{element}/clear")
            self.browser.call("POST", f"/element/{element}/value", {"text": text})
            return True

        # A field that was drawn anew meanwhile is looked for again.
        self.until(f"to type into {label!r}", typed)

    def paste(self, label, text, row=None, nth=0):
        """Puts text in the place of what a field has, as from the clipboard: editors do not indent it."""
        element = self.find("type", label, row, nth)
        self.js("arguments[0].focus(); arguments[0].select(); document.execCommand('insertText', false, arguments[1])",
                {ELEMENT: element}, text)

    def put(self, css, text):
        """Types into what a selector names."""
        element = self.find("any", css=css)
        self.browser.call("POST", f"/element/{element}/clear")
        self.browser.call("POST", f"/element/{element}/value", {"text": text})

    def change(self, label, old, new):
        """Replaces a part of the text in an editor."""
        self.find("type", label)
        text = self.js("return document.querySelector(`textarea[aria-label=${JSON.stringify(arguments[0])}]`).value", label)
        self.check(old in text, f"{old!r} is in {text!r}")
        self.paste(label, text.replace(old, new))

    def choose(self, label, option, row=None, nth=0):
        """Chooses an option of a select by its words or value."""
        def chosen():
            element = {ELEMENT: self.find("select", label, row, nth)}
            index = self.js("const o = [...arguments[0].options].find((o) => o.text.trim() === arguments[1] || o.value === arguments[1]);"
                            "return o ? o.index : -1", element, option)
            if index < 0:
                return False
            self.js("arguments[0].focus(); arguments[0].selectedIndex = arguments[1]; for (const e of ['input', 'change']) "
                    "arguments[0].dispatchEvent(new Event(e, { bubbles: true }))", element, index)
            return True

        self.until(f"the option {option!r} of {label!r}", chosen)

    def tick(self, label, on=True, row=None, nth=0):
        """Sets a box."""
        element = self.find("check", label, row, nth)
        if self.js("return arguments[0].checked", {ELEMENT: element}) != on:
            try:
                self.browser.call("POST", f"/element/{element}/click")
            except Failed:
                # Its label lies over it.
                self.js("arguments[0].click()", {ELEMENT: element})

    def attach(self, label, *paths):
        """Gives files to a file field."""
        element = self.find("file", label)
        self.browser.call("POST", f"/element/{element}/value", {"text": "\n".join(map(str, paths))})

    def press(self, *keys):
        """Presses keys one after the other; `Control+s` holds the first."""
        actions = []
        for key in keys:
            parts = [KEYS.get(part, part) for part in key.split("+")] if len(key) > 1 else [key]
            actions += [{"type": "keyDown", "value": part} for part in parts]
            actions += [{"type": "keyUp", "value": part} for part in reversed(parts)]
        self.browser.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    # -- eyes

    def has(self, text):
        return self.js(SEES, text)

    def see(self, text, wait_s=WAIT_S):
        """Waits until a text is seen."""
        self.until(f"the text {text!r}", lambda: self.has(text), wait_s)

    def gone(self, text, wait_s=WAIT_S):
        self.until(f"the text {text!r} goes", lambda: not self.has(text), wait_s)

    def text_of(self, css):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", css)

    def allow(self, *words):
        """Complaints of the console with these words are expected in this scene, such as `status of 409`."""
        self.allowed += words

    def check(self, holds, what):
        if not holds:
            raise Wrong(what)

    def shot(self, title):
        """Looks at the page in its three forms: pictures for the gallery, accessibility, width. Short messages of what was
        done before are taken away first."""
        self.js("document.querySelectorAll('.toast').forEach((e) => e.remove())")
        for form in SIZES:
            self.become(form)
            if form == "phone" and (wide := self.js(WIDE)):
                self.findings.append(f"{title}: wider than a phone: {wide}")
            if self.axe and form != "light":
                # The frame is on every screen: what is wrong with it is told once.
                new = [found for found in self.run_axe(form) if (form, found) not in self.told]
                self.told |= {(form, found) for found in new}
                self.findings += [f"{title} ({form}): {found}" for found in new]
            if self.pictures:
                name = f"{self.scene}-{len(self.shots):02}-{form}.png"
                self.browser.picture(self.pictures / name)
                self.shots.append((self.scene, title, form, name))
        self.become(self.form)

    def become(self, form):
        width, height = SIZES[form]
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=form == "phone")
        scheme = "dark" if form == "dark" else "light"
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                         {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.browser.frame()

    def cdp(self, command, **params):
        return self.browser.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def run_axe(self, form):
        """All rules on the phone's form, those about colours on the dark one."""
        only = {"runOnly": ["color-contrast", "link-in-text-block"]} if form == "dark" else {}
        if not self.js("return typeof window.axe === 'object'"):
            self.js(self.axe + "; window.axe = axe;")
        told = self.browser.wait("""
            const [only, done] = arguments;
            axe.run(document, { resultTypes: ["violations"], ...only }).then((r) => done(r.violations
              .filter((v) => v.impact === "serious" || v.impact === "critical")
              .map((v) => `${v.impact} ${v.id}: ${v.nodes.slice(0, 2).map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join(" || ")}`)),
              (e) => done(["axe failed: " + e]));""", only)
        return told

    # -- the other way

    def api(self, method, target, body=None, status=(200, 201, 202)):
        """Asks the node itself, to prepare a scene or to look at what it did."""
        return self.client.must(method, target, body, status)

    def database(self, name, docs=(), query="q=2"):
        """A database of this name, made anew, with some documents."""
        if self.look("/" + name) is not None:
            self.api("DELETE", "/" + name)
        self.api("PUT", f"/{name}" + (f"?{query}" if query else ""))
        if docs:
            self.api("POST", f"/{name}/_bulk_docs", {"docs": list(docs)})

    def empty_database(self, name, query="q=2"):
        """An empty database of this name, and the list of databases on the screen."""
        # The screen of the scene before, which may ask for what goes now, is left first.
        self.go("#/databases")
        self.database(name, query=query)
        self.go("#/databases")

    def look(self, target):
        """The answer of a GET, or None where it is 404."""
        status, answer = self.client.ask("GET", target)
        return None if status == 404 else answer

    # -- what the browser noticed

    def noticed(self):
        """Complaints that are not expected, and requests to elsewhere, since the last time."""
        complaints, lines = ([entry for entry in self.browser.call("POST", "/se/log", {"type": kind})]
                             for kind in ("browser", "performance"))
        own = urllib.parse.urlsplit(self.base).netloc
        wrong = []
        for entry in complaints:
            if entry["level"] == "SEVERE" and not any(words in entry["message"] for words in self.allowed):
                wrong.append("console: " + entry["message"][:300])
        for line in lines:
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if urllib.parse.urlsplit(url).scheme in ("http", "https", "ws", "wss") and urllib.parse.urlsplit(url).netloc != own:
                    wrong.append(f"asked elsewhere: {url[:200]}")
            elif message["method"] == "Network.loadingFinished":
                self.bytes += int(message["params"]["encodedDataLength"])
        wrong += self.findings
        self.allowed, self.findings = [], []
        return wrong


def first_paint_ms(page):
    """When the page was first painted, after it was asked for."""
    told = "return performance.getEntriesByType('paint').find((e) => e.name === 'first-contentful-paint')?.startTime"
    return round(page.until("the first paint", lambda: page.js(told)))


def files():
    """The names of all files of the page, below its folder."""
    root = node.ROOT / "src/http/page"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def wire_bytes(page, names):
    """How many bytes the bodies of these files take, as a browser gets them."""
    url, total = urllib.parse.urlsplit(page.base), 0
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=WAIT_S)
    for name in names:
        connection.request("GET", f"/_utils/{name}", headers={"Accept-Encoding": "gzip, deflate, br"})
        answer = connection.getresponse()
        total += len(answer.read())
        if answer.status != 200:
            raise Wrong(f"/_utils/{name} answers {answer.status}")
    connection.close()
    return total
