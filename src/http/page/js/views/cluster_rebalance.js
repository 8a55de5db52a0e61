// Rebalancing: the plan, what is under way, nodes that are emptied; and splits of ranges.

import { h, fill, every } from "../dom.js";
import { get, post, del } from "../api.js";
import { pageHead, card, table, button, checkbox, attempt, notice, problem, progress, empty, badge, ago, moment } from "../ui.js";
import { nodeNames, did, isTouched } from "./operate_common.js";
import { text } from "../text.js";

const words = text.cluster.rebalance;
const SHOWN = 200;

export async function rebalance(ctx) {
  const nodes = await nodeNames();
  const plan = h("div", { role: "status" }), under = h("div", { class: "stack" }), splits = h("div");
  const boxes = nodes.names.map((name) => [name, checkbox(name)]);
  const request = (dry) => {
    const drain = boxes.filter(([, box]) => box.box.checked).map(([name]) => name);
    return post("_cluster/rebalance", { dry_run: dry, ...(drain.length ? { drain } : {}) });
  };
  const show = async () => {
    const answer = await attempt(() => request(true));
    if (!answer) return;
    fill(plan, h("div", { class: "stack" }, notice("info", h("p", { class: "strong" }, words.planned(answer.moves.length))), answer.moves.length ? moves(answer.moves) : null,
      answer.moves.length ? h("div", null, button(words.begin, { kind: "primary", onclick: begin })) : null));
  };
  const begin = async () => {
    if (await did(() => request(false), { ok: words.begun })) { fill(plan); await look(); }
  };
  const look = async () => {
    try {
      const [status, { jobs }] = await Promise.all([get("_cluster/rebalance", null, { signal: ctx.signal }), get("_reshard/jobs", null, { signal: ctx.signal })]);
      if (isTouched()) return;
      // A move that has begun counts once it has ended; a plan made anew may add some.
      const ended = (one) => Math.max(0, one.moves_begun - status.moves.length), all = (one) => one.moves_begun + one.moves_planned;
      const isBusy = status.requests.length || status.moves.length;
      fill(under, isBusy ? null : h("p", { class: "soft" }, words.none),
        status.requests.map((one) => h("div", { class: "row" }, h("div", { class: "grow" }, h("p", null, words.request(one.node, one.moves_begun, one.moves_planned), " ", h("span", { class: "faint", title: moment(one.start_time) }, ago(one.start_time))),
          progress(words.progress, all(one) ? ended(one) / all(one) : null), h("p", { class: "small soft" }, words.done(ended(one), all(one)))),
          button(words.end, { kind: "danger", small: true, onclick: async () => { if (await did(() => del("_cluster/rebalance"), { ok: words.ended })) await look(); } }))),
        status.moves.length ? moves(status.moves) : null);
      fill(splits, jobs.length ? table({
        label: words.reshard, rows: jobs, key: (job) => job.id,
        columns: [
          { label: words.columns.db, isHead: true, cell: (job) => job.source?.replace(/^shards\/[0-9a-f-]+\//, "").replace(/\.\d+$/, "") ?? job.db ?? job.id },
          { label: words.job.shard, cell: (job) => h("span", { class: "mono small" }, /[0-9a-f]{8}-[0-9a-f]{8}/.exec(job.source ?? "")?.[0] ?? "–") },
          { label: words.job.state, cell: (job) => badge(job.job_state ?? job.state, { completed: "ok", failed: "bad", running: "accent" }[job.job_state ?? job.state]) },
          { label: words.columns.from, cell: (job) => job.node ?? "–" },
        ],
      }) : h("p", { class: "soft" }, words.noReshard));
    } catch (error) {
      if (error.name !== "AbortError") fill(under, problem(error, { retry: look }));
    }
  };
  every(2000, ctx.signal, look);
  return h("div", { class: "stack" }, pageHead(words.title, { sub: words.sub, crumbs: [[text.cluster.overview.title, "#/cluster"]] }),
    nodes.names.length < 2 ? empty(words.alone, { icon: "node" })
      : card(words.plan, h("fieldset", { class: "stack" }, h("legend", null, words.drain), h("p", { class: "soft" }, words.drainHint), h("div", { class: "row" }, boxes.map(([, box]) => box))),
        h("div", { class: "actions" }, button(words.plan, { kind: "primary", onclick: show })), plan),
    card(words.under, under), card(words.reshard, splits));
}

function moves(list) {
  return table({
    label: words.moves, rows: list.slice(0, SHOWN),
    columns: [
      { label: words.columns.db, isHead: true, cell: (move) => move.db }, { label: words.columns.range, cell: (move) => h("span", { class: "mono" }, move.range) },
      { label: words.columns.from, cell: (move) => move.from ?? h("span", { class: "faint" }, words.added) }, { label: words.columns.to, cell: (move) => move.to ?? h("span", { class: "faint" }, words.removed) },
    ],
  });
}
