// Compaction and clean-up of databases.

import { h, fill, debounce, every } from "../dom.js";
import { get, post, path } from "../api.js";
import { pageHead, table, button, menu, attempt, input, bytes, icon, problem, count } from "../ui.js";
import { meter } from "../chart.js";
import { isTouched, nodePath } from "./operate_common.js";
import { link } from "../router.js";
import { text } from "../text.js";

const words = text.operate.compaction;
const PAGE = 50;

export function compaction(ctx) {
  let limit = PAGE;
  /// Databases that were asked to compact, until they have.
  const asked = new Set();
  const running = h("p", { class: "soft", role: "status" });
  const search = input({ type: "search", "aria-label": words.search, placeholder: words.search, oninput: debounce(() => { limit = PAGE; look(); }) });
  const list = table({
    label: words.title, rows: [], key: (row) => row.key,
    columns: [
      { label: words.columns.db, isHead: true, sort: (row) => row.key, cell: (row) => h("a", { href: link(["db", row.key]) }, row.key) },
      { label: words.columns.file, class: "num", sort: (row) => row.info?.sizes?.file ?? 0, cell: (row) => bytes(row.info?.sizes?.file) },
      { label: words.columns.active, class: "num", sort: (row) => row.info?.sizes?.active ?? 0, cell: (row) => bytes(row.info?.sizes?.active) },
      { label: words.columns.share, sort: (row) => share(row), cell: (row) => row.info ? meter(words.columns.share, share(row), 1, `${count(Math.round(share(row) * 100))} %`, { warn: 2, bad: 2 }) : "–" },
      { label: text.operate.replications.actions, head: h("span", { class: "sr-only" }, text.operate.replications.actions), class: "right", cell: (row) => h("span", { class: "row nowrap" },
        button(words.compact, { small: true, "aria-label": `${words.compact} ${row.key}`, onclick: () => compact(row.key) }),
        menu(`${text.operate.replications.actions}: ${row.key}`, [
          { label: words.views, icon: "trash", run: () => attempt(() => post(path(row.key, "_view_cleanup")), { ok: words.cleaned(row.key) }) },
          { label: words.search_, icon: "trash", run: () => attempt(() => post(path(row.key, "_search_cleanup")), { ok: words.cleaned(row.key) }) },
        ])) },
    ],
  });
  const holder = h("div", { class: "stack" });
  const more = button(words.more, { onclick: () => { limit += PAGE; return look(); } });
  async function compact(db) {
    if (await attempt(() => post(path(db, "_compact")), { ok: words.started(db) })) asked.add(db);
  }
  async function look() {
    try {
      const start = JSON.stringify(search.value), end = JSON.stringify(search.value + "\ufff0");
      const rows = await get("_dbs_info", { start_key: start, end_key: end, limit: limit + 1 }, { signal: ctx.signal });
      for (const row of rows) if (!row.info?.compact_running) asked.delete(row.key);
      if (!isTouched()) list.update(rows.slice(0, limit));
      fill(holder, list, rows.length > limit ? more : null);
    } catch (error) {
      if (error.name !== "AbortError") fill(holder, problem(error, { retry: look }));
    }
  }
  every(2000, ctx.signal, async () => {
    try {
      const status = await get(nodePath("_local", "_smoosh", "status"), null, { signal: ctx.signal });
      running.textContent = words.running(Object.values(status.channels).reduce((sum, channel) => sum + channel.active, 0));
    } catch { /* The list says what is wrong. */ }
    // Sizes are those of a moment: they are shown again until what was asked for has ended.
    if (asked.size) await look();
  });
  look();
  return h("div", null, pageHead(words.title, { sub: words.sub }),
    h("div", { class: "toolbar" }, h("div", { class: "search-box grow" }, icon("search"), search), running), holder);
}

function share(row) {
  const { file = 0, active = 0 } = row.info?.sizes ?? {};
  return file ? Math.min(1, active / file) : 1;
}
