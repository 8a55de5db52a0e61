// Live charts of a node, from the counters of `_stats`.

import { h, fill, every } from "../dom.js";
import { get } from "../api.js";
import { pageHead, problem, bytes, count } from "../ui.js";
import { lineChart } from "../chart.js";
import { nodeNames, nodeChoice, nodePath } from "./operate_common.js";
import { text } from "../text.js";

const words = text.cluster.charts;
const PAUSE_MS = 2000;

const rate = (n) => n >= 100 ? count(Math.round(n)) : n.toFixed(n >= 10 ? 0 : 1);
const ms = (n) => n >= 1000 ? `${(n / 1000).toFixed(1)} s` : `${n >= 10 ? Math.round(n) : n.toFixed(1)} ms`;

export async function charts(ctx) {
  const nodes = await nodeNames();
  let node = ctx.query.get("node") ?? nodes.own, before = null, all = null;
  const grid = h("div", { class: "charts" }), wrong = h("div"), hint = h("p", { class: "soft small" }, words.waiting);
  const anew = () => { before = null; all = made(); fill(grid, Object.values(all)); };
  anew();
  every(PAUSE_MS, ctx.signal, async () => {
    try {
      const [stats, state] = await Promise.all([get(nodePath(node, "_stats"), null, { signal: ctx.signal }), get(nodePath(node, "_state"), null, { signal: ctx.signal })]);
      const now = { at: performance.now(), ...read(stats), state };
      fill(wrong);
      push(all, before, now);
      if (before) hint.hidden = true;
      before = now;
    } catch (error) {
      if (error.name === "AbortError") return;
      before = null;
      for (const chart of Object.values(all)) chart.push([]);
      fill(wrong, problem(error));
    }
  });
  return h("div", null, pageHead(words.title, { sub: words.sub, crumbs: [[text.cluster.overview.title, "#/cluster"]], actions: nodeChoice(nodes, node, (chosen) => { node = chosen; anew(); }) }), wrong, grid, hint);
}

function made() {
  return {
    requests: lineChart({ label: words.requests, series: [words.all, words.writes], format: rate, max: 5 }),
    latency: lineChart({ label: words.latency, series: [words.p50, words.p99], format: ms, max: 5 }),
    errors: lineChart({ label: words.errors, series: [words.clientErrors, words.serverErrors], format: rate, max: 1 }),
    memory: lineChart({ label: words.memory, series: [words.resident], format: bytes, max: 64e6 }),
    disk: lineChart({ label: words.disk, series: [words.free], format: bytes }),
    journal: lineChart({ label: words.journal, series: [words.bytes], format: bytes, max: 1000 }),
    commits: lineChart({ label: words.commits, series: [text.cluster.charts.commits.split(" ")[0], words.syncs], format: rate, max: 1 }),
    connections: lineChart({ label: words.connections, series: [words.open], format: rate, max: 4 }),
  };
}

/// The numbers of a look that charts need.
function read(stats) {
  const value = (...names) => names.reduce((at, name) => at?.[name], stats)?.value ?? 0;
  const methods = stats.couchdb?.httpd_request_methods ?? {};
  const statuses = Object.entries(stats.couchdb?.httpd_status_codes ?? {});
  const sum = (first) => statuses.filter(([code]) => code.startsWith(first)).reduce((total, [, one]) => total + one.value, 0);
  return {
    requests: value("couchdb", "httpd", "requests"),
    writes: ["PUT", "POST", "DELETE", "COPY"].reduce((total, name) => total + (methods[name]?.value ?? 0), 0),
    refused: sum("4"), failed: sum("5"),
    times: new Map((stats.couchdb?.request_time?.value?.histogram ?? []).map(([upper, n]) => [upper, n])),
    journal: value("settee", "journal", "bytes"), commits: value("couchdb", "commits"), syncs: value("fsync", "count"),
  };
}

function push(all, before, now) {
  const { state } = now;
  all.memory.push([state.memory_bytes]);
  all.disk.push([state.free_bytes]);
  all.connections.push([state.connections]);
  if (!before || now.requests < before.requests) return;
  const seconds = (now.at - before.at) / 1000;
  const per = (name) => (now[name] - before[name]) / seconds;
  all.requests.push([per("requests"), per("writes")]);
  all.errors.push([per("refused"), per("failed")]);
  all.journal.push([per("journal")]);
  all.commits.push([per("commits"), per("syncs")]);
  const times = [...now.times].map(([upper, n]) => [upper, n - (before.times.get(upper) ?? 0)]).filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0]);
  all.latency.push([share(times, 0.5), share(times, 0.99)]);
}

/// The time within which a share of the requests between two looks were answered; null without any.
function share(times, part) {
  const total = times.reduce((sum, [, n]) => sum + n, 0);
  let seen = 0;
  for (const [upper, n] of times) {
    seen += n;
    if (seen >= total * part) return upper;
  }
  return null;
}
