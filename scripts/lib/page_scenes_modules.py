"""Scenes of the administration page without a screen: modules that only compute, against random data, in the browser that runs them."""

import json
import os
import re

import node
from page_browser import scene

# A generator with a seed, and random JSON text with white space and numbers that doubles do not hold.
RANDOM = r"""
let seed = 7;
const random = (n) => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed % n; };
const pick = (list) => list[random(list.length)];
const space = () => pick(["", "", " ", "\n", "\t "]);
const string = () => JSON.stringify(Array.from({length: random(6)}, () => pick(["a", "é", "\"", "\\", "\n", "{", "]", ",", ":", "😀", "\u2028"])).join(""));
const number = () => pick(["0", "-1", "1.0", "1e400", "123456789012345678901234567890", "2.50", "-0.0"]);
function value(depth) {
  const kind = random(depth > 3 ? 4 : 6);
  if (kind === 0) return string();
  if (kind === 1) return number();
  if (kind < 4) return pick(["true", "false", "null"]);
  const many = random(4);
  if (kind === 4) return "[" + space() + Array.from({length: many}, () => value(depth + 1)).join(space() + "," + space()) + space() + "]";
  return "{" + space() + Array.from({length: many}, (_, at) => JSON.stringify("m" + at) + space() + ":" + space() + value(depth + 1)).join(space() + "," + space()) + space() + "}";
}
"""


def run(page, code):
    """The answer of an async function body in the page."""
    page.go("#/account")
    told = page.browser.wait("const done = arguments[0]; (async () => {" + RANDOM + code + "})().then((v) => done({v}), (e) => done({e: String(e.stack)}))")
    page.check("e" not in told, told.get("e"))
    return told["v"]


@scene("json-text", title="JSON is formatted and taken apart without changing numbers or order; mistakes are told with their line")
def json_text(page):
    wrong = run(page, r"""
        const json = await import("/_utils/js/json.js");
        const bare = (text) => text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
        for (let at = 0; at < 3000; at += 1) {
          const text = space() + value(0) + space();
          const formatted = json.format(text);
          if (bare(formatted) !== bare(text)) return ["format", text, formatted];
          if (json.compact(text) !== bare(text)) return ["compact", text, json.compact(text)];
          if (json.format(formatted) !== formatted) return ["again", text];
          const dense = json.format(text, true);
          if (bare(dense) !== bare(text) || json.format(dense, true) !== dense || json.format(dense, false) !== formatted) return ["dense", text, dense];
          if (json.check(text)) return ["check", text];
          if (/^\s*\{/.test(text) && json.compact(json.object(json.members(text))) !== bare(text)) return ["members", text];
          // What JSON.parse refuses is refused, what it takes is taken (but for names that are there twice).
          const broken = text.slice(0, random(text.length)) + pick(["", ",", "}", "x", "\"", "'"]) + text.slice(random(text.length));
          let good = true;
          try { JSON.parse(broken); } catch { good = false; }
          const told = json.check(broken);
          if (good !== !told && !/twice/.test(told?.message ?? "")) return ["broken", broken, told?.message];
          if (told && !(told.line >= 1 && told.column >= 1 && told.message)) return ["place", broken];
        }
        return null;""")
    page.check(wrong is None, f"{wrong}")


@scene("streams", title="Lists in files are cut at any place; CSV is written and read back")
def streams(page):
    wrong = run(page, r"""
        const json = await import("/_utils/js/json.js"), csv = await import("/_utils/js/csv.js");
        for (let round = 0; round < 400; round += 1) {
          const items = Array.from({length: random(8)}, () => value(1));
          const list = "[" + items.join(space() + ",") + space() + "]";
          const text = pick([list, `{"docs":${list}}`, `{"total_rows":1,"rows": ${list},"x":{"y":1}}`, `{"a":{"b":1},"docs":${list}}`]);
          const cutter = new json.Elements(), found = [];
          for (let at = 0; at < text.length;) { const step = 1 + random(7); found.push(...cutter.push(text.slice(at, at + step))); at += step; }
          if (JSON.stringify(found.map((t) => json.compact(t))) !== JSON.stringify(items.map((t) => json.compact(t)))) return ["elements", text, found];
          const sign = () => pick(["a", "\"", ",", "\n", ";", " ", "é"]);
          const rows = Array.from({length: 1 + random(4)}, () => Array.from({length: 3}, () => Array.from({length: random(5)}, sign).join("")));
          if (rows.some((row) => row.every((cell) => !cell))) continue;
          const written = rows.map((row) => row.map((cell) => csv.cell(cell)).join(",") + "\r\n").join("");
          const reader = new csv.CsvReader(","), read = [];
          for (let at = 0; at < written.length;) { const step = 1 + random(5); read.push(...reader.push(written.slice(at, at + step))); at += step; }
          read.push(...reader.push("", true));
          if (JSON.stringify(read) !== JSON.stringify(rows)) return ["csv", rows, read];
        }
        return null;""")
    page.check(wrong is None, f"{wrong}")


@scene("differences", title="The difference of two texts leads from one to the other")
def differences(page):
    wrong = run(page, r"""
        const { lineDiff } = await import("/_utils/js/diff.js");
        for (let round = 0; round < 500; round += 1) {
          const a = Array.from({length: random(30)}, () => pick("abcd")), b = a.flatMap((line) => pick([[line], [line], [line], [], [line, pick("xyz")], [pick("xyz")]]));
          const ops = lineDiff(a.join("\n"), b.join("\n"));
          const before = ops.filter((op) => op.kind !== "+").map((op) => op.line).join("\n"), after = ops.filter((op) => op.kind !== "-").map((op) => op.line).join("\n");
          if (before !== a.join("\n") || after !== b.join("\n")) return [a, b, ops];
          if (ops.some((op) => (op.a && a[op.a - 1] !== op.line && a.length) || (op.b && b[op.b - 1] !== op.line && b.length))) return ["numbers", a, b, ops];
        }
        return null;""")
    page.check(wrong is None, f"{wrong}")


@scene("trial-order", title="A trial's rows stand in the order in which the node has them, and are reduced as it does")
def trial_order(page):
    keys = [None, False, True, -1, 0, 1.5, 10, "a", "A", "b", "aa", "B", "ä", "", [], [1], [1, 2], ["a"], [None], {}, {"a": 1}, {"a": 2}, {"b": 1}, [[1]], "10", "9"]
    if page.look("/order") is not None:
        page.api("DELETE", "/order")
    page.api("PUT", "/order?q=1")
    page.api("POST", "/order/_bulk_docs", {"docs": [{"_id": f"k{at:02d}", "key": key, "n": at} for at, key in enumerate(keys)]})
    source = "function (doc) { emit(doc.key, doc.n); }"
    page.api("PUT", "/order/_design/app", {"views": {"all": {"map": source, "reduce": "_stats"}}})
    rows = page.api("GET", "/order/_design/app/_view/all?reduce=false")["rows"]
    groups = page.api("GET", "/order/_design/app/_view/all?group_level=1")["rows"]
    told = run(page, f"""
        const {{ trialMap, trialReduce }} = await import("/_utils/js/trial.js");
        const docs = (await (await fetch("/order/_all_docs?include_docs=true")).json()).rows.map((row) => row.doc).filter((doc) => doc.n !== undefined);
        const mapped = await trialMap({json.dumps(source)}, docs);
        const reduced = await trialReduce("_stats", mapped.rows, 1);
        return {{ rows: mapped.rows.map((row) => row.id), groups: reduced.rows }};""")
    page.check(told["rows"] == [row["id"] for row in rows], f"{[row['key'] for row in rows]} {told['rows']}")
    page.check(told["groups"] == groups, f"{told['groups']} {groups}")
    page.api("DELETE", "/order")


@scene("preloads", title="The page asks at once for all modules that its first screen needs")
def preloads(page):
    root, found = node.ROOT / "src/http/page", []

    def walk(path):
        for named in re.findall(r'^(?:import|export) .*?from "(.+?)";', (root / path).read_text(), re.MULTILINE):
            target = os.path.normpath(os.path.join(os.path.dirname(path), named))
            if target not in found:
                found.append(target)
                walk(target)

    walk("app.js")
    listed = re.findall(r'rel="modulepreload" href="(.+?)"', (root / "index.html").read_text())
    page.check(set(listed) == set(found), f"in index.html only: {set(listed) - set(found)}, missing: {set(found) - set(listed)}")
