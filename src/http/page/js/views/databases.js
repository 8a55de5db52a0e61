// The list of databases: pages of names with counts and sizes, found by the begin of their name, so that a hundred
// thousand are as quick as ten; making and removing them.

import { h, fill, debounce } from "../dom.js";
import { pageHead, table, button, menu, icon, loading, problem, empty, notice, badge, attempt, count, bytes } from "../ui.js";
import { get, ask, query, path } from "../api.js";
import { link, go, remember } from "../router.js";
import { session } from "../session.js";
import { createDatabase } from "./db_create.js";
import { removeDatabase } from "./db_frame.js";
import { welcome } from "./welcome.js";
import { text } from "../text.js";

const PAGE = 50;
const LAST = "\ufff0";
const t = text.databases;

export function databases(ctx) {
  const found = h("input", {
    type: "search", placeholder: t.find, "aria-label": t.find, value: ctx.query.get("find") ?? "", spellcheck: false,
    oninput: debounce(() => { starts = [undefined]; remember({ find: found.value }); load(); }, 150),
    onkeydown: (event) => { if (event.key === "Enter" && names.length) go(link(["db", names[0]])); },
  });
  const system = h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { showSystem = event.target.checked; load(); } }), h("span", null, t.system));
  const list = h("div", null, loading());
  const foot = h("nav", { class: "pager", "aria-label": t.pages });
  let shown = null, starts = [undefined], names = [], showSystem = false, turn = 0;

  async function load() {
    const own = ++turn;
    const prefix = found.value.trim();
    const start = starts.at(-1);
    try {
      // System databases stand first, because "_" sorts before letters; without a prefix the list begins behind them.
      const params = { limit: PAGE + 1, startkey: start ?? (prefix || (showSystem ? undefined : "`")), endkey: prefix ? prefix + LAST : undefined };
      const rows = await get("_dbs_info", params, { json: ["startkey", "endkey"], signal: ctx.signal });
      if (own !== turn) return;
      names = rows.slice(0, PAGE).map((row) => row.key ?? row.info?.db_name);
      draw(rows.slice(0, PAGE), rows.length > PAGE ? rows[PAGE].key : null, prefix);
    } catch (error) {
      if (own !== turn || error.name === "AbortError") return;
      if (error.status === 401 || error.status === 403) fill(list, notAllowed());
      else fill(list, problem(error, { retry: load }));
      fill(foot);
    }
  }

  async function draw(rows, next, prefix) {
    if (!rows.length && !prefix && starts.length === 1) {
      fill(list, await welcome({ created: load }));
      fill(foot);
      toolbar.hidden = !showSystem && !(await hasOwn());
      return;
    }
    toolbar.hidden = false;
    if (!rows.length) fill(list, empty(t.nothing(prefix), { icon: "search", hint: t.nothingHint, actions: canCreate() ? [button(t.createNamed(prefix), { kind: "primary", icon: "plus", onclick: () => createDatabase({ name: prefix }) })] : null }));
    else if (shown?.isConnected) shown.update(rows);
    else fill(list, shown = shownTable(rows, load));
    fill(foot, starts.length > 1 || next ? [
      button(t.previous, { icon: "left", disabled: starts.length === 1, onclick: () => { starts.pop(); load(); } }),
      h("span", { class: "faint" }, t.range((starts.length - 1) * PAGE + 1, (starts.length - 1) * PAGE + rows.length)),
      button(t.next, { disabled: !next, onclick: () => { starts.push(next); load(); } }),
    ] : null);
  }
  const hasOwn = async () => (await get("_all_dbs", { limit: 1 }).catch(() => [])).length > 0;

  const canCreate = () => session.value?.isAdmin;
  const toolbar = h("div", { class: "toolbar" }, h("div", { class: "search-box grow" }, icon("search"), found), system,
    button(text.app.refresh, { icon: "refresh", iconOnly: true, onclick: load }));
  load();
  return h("div", null,
    pageHead(t.title, { sub: t.sub, actions: [canCreate() ? button(t.create, { kind: "primary", icon: "plus", onclick: () => createDatabase({ name: found.value.trim() }) }) : null] }),
    toolbar, list, foot);
}

function shownTable(rows, reload) {
  return table({
    label: t.title, rows, key: (row) => row.key,
    onopen: (row) => go(link(["db", row.key])),
    columns: [
      { label: t.name, isHead: true, cell: (row) => h("a", { href: link(["db", row.key]), class: "break" }, row.key) },
      { label: t.documents, class: "num", cell: (row) => row.info ? count(row.info.doc_count) : "–" },
      { label: t.deleted, class: "num wide-only", cell: (row) => row.info ? count(row.info.doc_del_count) : "–" },
      { label: t.data, class: "num", cell: (row) => bytes(row.info?.sizes?.external) },
      { label: t.disk, class: "num wide-only", cell: (row) => bytes(row.info?.sizes?.file) },
      { label: t.shards, class: "wide-only", cell: (row) => row.info ? h("span", { class: "faint nowrap" }, t.layout(row.info.cluster ?? {})) : badge(t.unreadable, "warn") },
      { label: "", class: "wide-only", cell: (row) => row.info?.props?.partitioned ? badge(text.database.partitioned, "accent") : "" },
      { label: "", head: h("span", { class: "sr-only" }, t.actions), class: "right", cell: (row) => menu(t.actionsOf(row.key), [
        { label: t.open, icon: "table", href: link(["db", row.key]) },
        { label: text.tabs.query, icon: "query", href: link(["db", row.key, "query"]) },
        { label: text.tabs.changes, icon: "changes", href: link(["db", row.key, "changes"]) },
        { label: text.transfer.exportTitle, icon: "download", href: link(["db", row.key, "export"]) },
        null,
        { label: text.database.remove, icon: "trash", danger: true, disabled: !session.value?.isAdmin, run: () => removeDatabase(row.key).then((gone) => gone && reload()) },
      ]) },
    ],
  });
}

/// Who may not list the databases opens one by its name.
function notAllowed() {
  const name = h("input", { type: "text", class: "mono grow", "aria-label": t.name, placeholder: t.name, required: true });
  return h("div", { class: "stack" }, notice("info", h("p", { class: "strong" }, t.notAllowed), h("p", null, t.notAllowedHint)),
    h("form", { class: "row", onsubmit: async (event) => {
      event.preventDefault();
      if (await attempt(() => ask("GET", path(name.value)))) go(link(["db", name.value]));
    } }, name, button(t.open, { type: "submit", kind: "primary" })));
}

/// Databases whose names begin so, for the field that goes anywhere.
export async function suggestions(prefix, signal) {
  return get("_all_dbs" + query({ limit: 8, startkey: prefix, endkey: prefix + LAST }, ["startkey", "endkey"]), null, { signal });
}

