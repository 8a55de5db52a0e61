// The last lines of a node's log as they come, and its slow requests.

import { h, fill, every } from "../dom.js";
import { get } from "../api.js";
import { pageHead, panels, table, virtualList, field, input, select, button, empty, ago, moment, duration, problem, badge, icon } from "../ui.js";
import { nodeNames, nodeChoice, nodePath, refresh, show } from "./operate_common.js";
import { text } from "../text.js";

const words = text.operate.log;
const KEPT = 5000;

export async function log(ctx) {
  const nodes = await nodeNames();
  let node = nodes.own;
  const changed = new EventTarget();
  const choice = nodeChoice(nodes, node, (chosen) => { node = chosen; changed.dispatchEvent(new Event("node")); });
  const of = { get node() { return node; }, changed };
  return h("div", null, pageHead(words.title, { sub: words.sub, actions: choice }),
    panels(words.title, [["log", words.tabs.log, () => lines(ctx, of)], ["slow", words.tabs.slow, () => slow(ctx, of)]], ctx.query.get("tab") ?? "log"));
}

function lines(ctx, of) {
  let all = [], last = 0, level = "info", wanted = "", isPaused = false, turn = 0;
  const list = virtualList({
    label: words.tabs.log, height: 24, stick: true, class: "log",
    make: (line) => h("div", { class: line.level }, h("span", { class: "log-time", title: line.time }, line.time.slice(11, 19)), h("span", { class: "log-level" }, line.level), h("span", { class: "log-text", title: line.text }, line.text)),
  });
  const told = h("span", { class: "soft", role: "status" }), wrong = h("div");
  const draw = () => {
    const asked = wanted.toLowerCase();
    const shown = asked ? all.filter((line) => line.text.toLowerCase().includes(asked)) : all;
    list.update(shown);
    told.textContent = shown.length ? words.count(shown.length) : words.none;
  };
  const anew = () => { turn += 1; all = []; last = 0; draw(); look(); };
  async function look() {
    const own = turn;
    try {
      const answer = await get(nodePath(of.node, "_log"), { level, since: last, limit: 1000 }, { signal: ctx.signal });
      if (own !== turn) return;
      fill(wrong);
      // A node that was started anew counts from 1.
      if (answer.last < last) { all = []; last = 0; return; }
      last = answer.last;
      if (answer.lines.length || !all.length) {
        all = [...all, ...answer.lines].slice(-KEPT);
        draw();
      }
    } catch (error) {
      if (error.name !== "AbortError") fill(wrong, problem(error));
    }
  }
  const pause = button(words.pause, { icon: "pause", onclick: () => { isPaused = !isPaused; pause.lastChild.textContent = isPaused ? words.resume : words.pause; } });
  every(1500, ctx.signal, async () => { if (!isPaused) await look(); });
  of.changed.addEventListener("node", anew, { signal: ctx.signal });
  return h("div", { class: "stack" }, h("div", { class: "toolbar" },
    field(words.level, select(Object.entries(words.levels), { value: level, onchange: (event) => { level = event.target.value; anew(); } }), { inline: true }),
    h("div", { class: "search-box grow" }, icon("search"), input({ type: "search", "aria-label": words.find, placeholder: words.find, oninput: (event) => { wanted = event.target.value; draw(); } })),
    pause, told), wrong, list);
}

function slow(ctx, of) {
  const sub = h("p", { class: "soft" }), holder = h("div");
  const list = table({
    label: words.tabs.slow, rows: [], key: (row) => row.id + row.time,
    columns: [
      { label: words.columns.took, class: "num", sort: (row) => row.ms, cell: (row) => duration(row.ms / 1000) },
      { label: words.columns.request, isHead: true, cell: (row) => h("span", { class: "mono break" }, badge(row.method), " ", row.path) },
      { label: words.columns.status, class: "num", sort: (row) => row.status, cell: (row) => h("span", { class: row.status >= 500 ? "bad" : row.status >= 400 ? "warn" : null }, row.status) },
      { label: words.columns.user, cell: (row) => row.user ?? h("span", { class: "faint" }, words.anonymous) },
      { label: words.columns.from, class: "nowrap", cell: (row) => row.peer },
      { label: words.columns.time, class: "nowrap", sort: (row) => row.time, cell: (row) => h("span", { title: moment(row.time) }, ago(row.time)) },
    ],
  });
  const nothing = empty(words.slowNone, { icon: "bolt" });
  async function look() {
    try {
      const answer = await get(nodePath(of.node, "_slow_requests"), null, { signal: ctx.signal });
      sub.textContent = words.slowSub(answer.threshold_ms);
      refresh(list, answer.requests);
      show(holder, answer.requests.length ? list : nothing);
    } catch (error) {
      if (error.name !== "AbortError") fill(holder, problem(error, { retry: look }));
    }
  }
  every(3000, ctx.signal, look);
  of.changed.addEventListener("node", look, { signal: ctx.signal });
  return h("div", { class: "stack" }, sub, holder);
}
