// Versions of one document beside each other, member by member, and a document put together from them.

import { h, fill, uniqueId } from "../dom.js";
import { button, dialog, segmented } from "../ui.js";
import { code, diffView } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.merge;

/// The members of a text as a map of names to compact texts.
function membersOf(source) {
  return new Map(source ? json.members(source).map((member) => [member.name, json.compact(member.text)]) : []);
}

/// A table with one row for each member and one column for each version (`{label, text, sub, head}`), in which one value
/// of each row is chosen. `fixed` names members that are not chosen (`_rev`). `pick(name, texts)` gives the number of the
/// version that is chosen first, or -1 where that is to be decided. Answers `{element, text(), left()}`.
export function memberTable(versions, { fixed = ["_rev"], pick, onchange, offered = versions.map((_, at) => at) }) {
  const maps = versions.map((version) => membersOf(version.text));
  const names = [...new Set(maps.flatMap((map) => [...map.keys()]))].filter((name) => !fixed.includes(name));
  const chosen = new Map();
  const rows = names.map((name) => {
    const texts = maps.map((map) => map.get(name));
    const same = texts.every((value) => value === texts[0]);
    const first = same ? offered[0] : pick(name, texts);
    chosen.set(name, first);
    const group = uniqueId("pick");
    const cells = texts.map((value, at) => h("td", { class: ["version", !offered.includes(at) && "unoffered"] },
      h("label", null, same || !offered.includes(at) ? null : h("input", { type: "radio", name: group, checked: at === first, "aria-label": t.take(name, versions[at].label), onchange: () => { chosen.set(name, at); mark(); } }),
        value === undefined ? h("span", { class: "faint" }, t.absent) : code(json.format(value), { most: 12 }))));
    const row = h("tr", { class: same ? "same" : "unequal" }, h("th", { scope: "row", class: "mono" }, name), cells);
    const mark = () => {
      row.classList.toggle("undecided", chosen.get(name) < 0);
      cells.forEach((cell, at) => cell.classList.toggle("taken", !same && chosen.get(name) === at));
      onchange?.();
    };
    row.mark = mark;
    return row;
  });
  const different = rows.filter((row) => row.classList.contains("unequal"));
  const body = h("tbody", null, different.length ? different : rows);
  const element = h("div", { class: "stack" },
    different.length && different.length < rows.length ? segmented(t.rows, [["some", t.onlyDifferent(different.length)], ["all", t.all(rows.length)]], "some", (value) => fill(body, value === "all" ? rows : different)) : null,
    h("div", { class: "table-wrap merge", tabIndex: 0, role: "region", "aria-label": t.label }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, t.member), versions.map((version) => h("th", { scope: "col" }, h("div", null, version.label), version.sub ? h("div", { class: "mono faint" }, version.sub) : null, version.head ?? null)))), body)));
  for (const row of different) row.mark();
  return {
    element,
    left: () => [...chosen.values()].filter((at) => at < 0).length,
    /// The document that was put together, with the fixed members of the version `rest`.
    text: (rest) => json.format(json.object([
      ...names.filter((name) => name === "_id").map((name) => ({ name, text: maps[rest].get(name) })),
      ...fixed.filter((name) => maps[rest].has(name)).map((name) => ({ name, text: maps[rest].get(name) })),
      ...names.filter((name) => name !== "_id").map((name) => ({ name, text: maps[Math.max(0, chosen.get(name))].get(name) })).filter((member) => member.text !== undefined),
    ])),
    choose: (at) => {
      for (const row of different) row.querySelectorAll("td")[at]?.querySelector("input")?.click();
    },
  };
}

/// The dialog behind a 409: what was loaded, what is stored now, what was typed. Answers `{text, save}`, or undefined.
export async function threeWay({ base, theirs, own }) {
  const versions = [
    ...(base ? [{ label: t.base, text: base, sub: rev(base) }] : []),
    { label: t.theirs, text: theirs, sub: rev(theirs) },
    { label: t.own, text: own },
  ];
  const atTheirs = versions.length - 2, atOwn = versions.length - 1;
  const preview = h("div");
  const store = button(t.save, { kind: "primary", type: "submit" });
  const told = h("p", { class: "soft", role: "status" });
  const rows = memberTable(versions, {
    offered: [atTheirs, atOwn],
    pick: (_, texts) => {
      const was = base ? texts[0] : undefined;
      if (texts[atTheirs] === texts[atOwn]) return atOwn;
      if (base && texts[atOwn] === was) return atTheirs;
      return base && texts[atTheirs] === was ? atOwn : -1;
    },
    onchange: () => queueMicrotask(look),
  });
  function look() {
    const left = rows.left();
    store.disabled = left > 0;
    told.textContent = left ? t.left(left) : t.ready;
    fill(preview, left ? null : diffView(theirs, rows.text(atTheirs), { label: t.result }));
  }
  look();
  const shown = dialog({
    title: t.title, wide: true,
    content: () => [h("p", null, t.words), told, rows.element,
      h("div", { class: "row" }, button(t.allTheirs, { small: true, onclick: () => rows.choose(atTheirs) }), button(t.allOwn, { small: true, onclick: () => rows.choose(atOwn) })), preview],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), button(t.edit, { onclick: () => close({ text: rows.text(atTheirs), save: false }) }), store],
    onsubmit: (close) => { if (!rows.left()) close({ text: rows.text(atTheirs), save: true }); },
  });
  return shown.done;
}

function rev(source) {
  return JSON.parse(source)._rev?.replace(/^(\d+-.{7}).*$/, "$1");
}

