// The changes of a database as they happen, filtered where they are made.

import { h, fill, sleep, within } from "../dom.js";
import { button, select, field, editor, virtualList, notice, badge, icon, toast, shortRev, dialog } from "../ui.js";
import { ask, path, changes, plain } from "../api.js";
import { remember } from "../router.js";
import { docLink } from "./documents.js";
import { inDatabase } from "./db_frame.js";
import { code } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.changes;
/// So many rows are kept; older ones go.
const KEEP = 5000;
const PAST = 100;

export async function changesView(ctx) {
  const { db } = ctx.params;
  const at = { filter: ctx.query.get("filter") ?? "none", selector: ctx.query.get("selector") ?? '{\n  "type": "order"\n}', name: ctx.query.get("name") ?? "", ids: "" };
  let rows = [], run = null, paused = false, held = [], seen = 0;
  const status = h("p", { class: "row live", role: "status" });
  const told = h("div");
  const list = virtualList({ label: t.list, height: 34, class: "changes", make: (row) => line(db, row) });
  const find = h("input", { type: "search", placeholder: t.find, "aria-label": t.find, oninput: () => show() });
  const pause = button(t.pause, { icon: "pause", onclick: () => { paused = !paused; fill(pause, icon(paused ? "play" : "pause"), h("span", null, paused ? t.resume : t.pause)); if (!paused) { add(held); held = []; } state(paused ? "paused" : "live"); } });
  const selector = editor({ value: at.selector, label: t.selector, minLines: 4, maxLines: 12, check: (value) => json.check(value, "object"), onrun: () => start() });
  const name = h("input", { type: "text", class: "mono", value: at.name, placeholder: "app/important" });
  const ids = h("textarea", { class: "mono", rows: 3, placeholder: "id-1\nid-2" });
  const options = h("div");
  const kind = select(Object.entries(t.filters), { value: at.filter, onchange: () => { drawOptions(); if (kind.value === "none" || kind.value === "design") start(); } });
  const apply = button(t.apply, { kind: "primary", onclick: () => { start(); } });

  function drawOptions() {
    const control = { selector: selector.element, function: field(t.functionName, name, { hint: t.functionHint }), ids: field(t.ids, ids) }[kind.value];
    fill(options, control ? h("div", { class: "card below" }, control, h("div", null, apply)) : null);
  }
  function request() {
    if (kind.value === "selector") return { params: { filter: "_selector" }, body: `{"selector":${selector.value}}` };
    if (kind.value === "ids") return { params: { filter: "_doc_ids" }, body: { doc_ids: ids.value.split("\n").map((id) => id.trim()).filter(Boolean) } };
    if (kind.value === "design") return { params: { filter: "_design" } };
    if (kind.value === "function") return { params: { filter: name.value.trim() } };
    return { params: {} };
  }
  function state(kind) {
    fill(status, h("span", { class: ["dot", kind] }), t.states[kind], " ", h("span", { class: "faint" }, t.seen(seen, paused ? held.length : 0)));
  }
  function add(next) {
    rows = [...next.slice().reverse(), ...rows].slice(0, KEEP);
    seen += next.length;
    show();
  }
  function show() {
    const word = find.value.trim().toLowerCase();
    list.update(word ? rows.filter((row) => row.id.toLowerCase().includes(word)) : rows);
  }
  async function start() {
    run?.abort();
    const own = run = within(ctx.signal);
    fill(told);
    rows = [];
    seen = 0;
    held = [];
    if (kind.value === "selector" && selector.error) return;
    remember({ filter: kind.value === "none" ? "" : kind.value, selector: kind.value === "selector" ? selector.value : "", name: kind.value === "function" ? name.value : "" });
    state("starting");
    try {
      const { params, body } = request();
      // The last rows first, then what follows.
      const past = await ask(body ? "POST" : "GET", path(db, "_changes"), { params: { ...params, descending: true, limit: PAST }, body, signal: own.signal });
      // What happens meanwhile stands behind the newest of these; `last_seq` says how far a filter that passed none came.
      const since = past.results[0]?.seq ?? past.last_seq;
      add(past.results.reverse());
      const live = () => state(paused ? "paused" : "live");
      live();
      let batch = [];
      const flush = () => { if (!batch.length) return; if (paused) { held.push(...batch); state("paused"); } else { add(batch); state("live"); } batch = []; };
      (async () => { while (!own.signal.aborted) { await sleep(200, own.signal); flush(); } })();
      for await (const row of changes(db, { since, params, body, signal: own.signal, onOpen: live, onError: () => state("broken") })) batch.push({ ...row, time: new Date() });
    } catch (error) {
      if (error.name === "AbortError" || own.signal.aborted) return;
      state("stopped");
      fill(told, notice("error", h("p", { class: "strong" }, error.message), h("p", null, error.next)));
    }
  }
  drawOptions();
  show();
  start();
  return inDatabase(ctx, "changes",
    h("div", { class: "toolbar" }, h("div", { class: "search-box grow" }, icon("search"), find), h("label", { class: "row" }, h("span", { class: "small" }, t.filter), kind), pause,
      button(t.clear, { onclick: () => { rows = []; show(); toast(t.cleared); } })),
    options, told, status, list);
}

function line(db, row) {
  const rev = row.changes?.[0]?.rev;
  return h("div", { class: "change" },
    row.deleted ? badge(t.deleted, "bad") : /^1-/.test(rev ?? "") ? badge(t.created, "ok") : badge(t.updated, "accent"),
    h("a", { href: docLink(db, row.id), class: "mono grow cut-line", title: row.id }, row.id),
    row.changes?.length > 1 ? badge(t.leaves(row.changes.length), "warn") : null,
    h("span", { class: "mono faint wide-only" }, shortRev(rev)),
    h("span", { class: "mono faint wide-only", title: row.seq }, String(row.seq).split("-")[0]),
    h("time", { class: "faint wide-only" }, row.time ? row.time.toLocaleTimeString("en-GB") : t.before),
    button(t.look, { icon: "eye", iconOnly: true, small: true, kind: "ghost", onclick: () => look(db, row) }));
}

async function look(db, row) {
  const body = h("div", null, text.app.loading);
  dialog({ title: row.id, wide: true, content: () => body, actions: (close) => [button(text.app.close, { onclick: () => close() })] });
  try {
    fill(body, code(json.format(await plain(path(db, row.id), { rev: row.changes[0].rev })), { label: row.id }));
  } catch (error) {
    fill(body, h("p", null, error.status === 404 ? t.goneNow : error.message));
  }
}
