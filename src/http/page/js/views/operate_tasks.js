// What runs in the background, with progress and the time that is left.

import { h, every } from "../dom.js";
import { get } from "../api.js";
import { pageHead, table, badge, progress, empty, ago, moment, duration, problem, count } from "../ui.js";
import { bareUrl, refresh, show } from "./operate_common.js";
import { text } from "../text.js";

const words = text.operate.tasks;

export function tasks(ctx) {
  const holder = h("div");
  const seen = new Map();
  const list = table({
    label: words.title, key: (task) => task.key, rows: [],
    columns: [
      { label: words.columns.task, isHead: true, cell: (task) => h("div", { class: "task-what" }, h("span", { class: "row" }, badge(words.kinds[task.type] ?? task.type, "accent"), named(task)), h("span", { class: "faint small" }, below(task))) },
      { label: words.columns.progress, cell: (task) => meter(task) },
      { label: words.columns.left, class: "num", cell: (task) => left(task, seen) },
      { label: words.columns.node, cell: (task) => task.node },
      { label: words.columns.started, cell: (task) => h("span", { title: moment(task.started_on * 1000) }, ago(task.started_on * 1000)) },
    ],
  });
  const nothing = empty(words.none, { hint: words.noneHint, icon: "clock" });
  every(2000, ctx.signal, async () => {
    try {
      const found = await get("_active_tasks", null, { signal: ctx.signal });
      const rows = found.map((task) => ({ ...task, key: `${task.node} ${task.pid} ${task.type}` }));
      for (const task of rows) {
        const own = seen.get(task.key) ?? [];
        own.push([Date.now(), task.changes_done ?? task.docs_written ?? 0, task.changes_pending]);
        seen.set(task.key, own.slice(-15));
      }
      refresh(list, rows);
      show(holder, rows.length ? list : nothing);
    } catch (error) {
      if (error.name !== "AbortError") holder.replaceChildren(problem(error));
    }
  });
  return h("div", null, pageHead(words.title, { sub: words.sub }), holder);
}

function named(task) {
  if (task.type === "replication") return h("span", { class: "strong" }, task.doc_id ?? task.replication_id?.slice(0, 12));
  return h("span", { class: "strong" }, task.design_document ?? (database(task) || words.allDatabases));
}

/// `shards/RANGE/NAME` as the name alone.
function database(task) {
  return task.database?.replace(/^shards\/[0-9a-f]{8}-[0-9a-f]{8}\//, "") ?? "";
}

function below(task) {
  if (task.type === "replication") return h("span", { class: "ends" }, bareUrl(task.source), h("span", { class: "route-arrow" }, "→"), bareUrl(task.target));
  const range = /^shards\/([0-9a-f]{8}-[0-9a-f]{8})\//.exec(task.database ?? "")?.[1];
  const from = task.source_node ? words.from(task.source_node) : null;
  return [database(task), range, from, task.phase ? words.phases[task.phase] ?? task.phase : null].filter(Boolean).join(", ");
}

function meter(task) {
  const label = `${words.kinds[task.type] ?? task.type} ${task.design_document ?? task.doc_id ?? ""}`;
  if (task.type === "replication") {
    const pending = task.changes_pending;
    const done = task.docs_read ?? 0;
    const isKnown = typeof pending === "number" && !task.continuous;
    return h("div", { class: "task-progress" }, progress(label, isKnown ? done / Math.max(1, done + pending) : task.continuous && pending === 0 ? 1 : null),
      h("span", { class: "small soft" }, [words.written(task.docs_written ?? 0), typeof pending === "number" ? words.pending(pending) : null].filter(Boolean).join(", ")));
  }
  const share = typeof task.progress === "number" ? task.progress / 100 : task.total_changes ? task.changes_done / task.total_changes : null;
  return h("div", { class: "task-progress" }, progress(label, share), h("span", { class: "small soft" }, words.done(task.changes_done ?? 0, task.total_changes), share === null ? "" : ` (${count(Math.round(share * 100))} %)`));
}

/// What the node says, else from how fast it was in the last half minute.
function left(task, seen) {
  if (task.type === "replication" && task.continuous) return words.continuous;
  if (typeof task.seconds_left === "number") return duration(task.seconds_left);
  const looks = seen.get(task.key) ?? [];
  const [first, last] = [looks[0], looks.at(-1)];
  const rest = task.changes_pending ?? (task.total_changes - task.changes_done);
  const rate = first && last && last[0] > first[0] ? (last[1] - first[1]) / ((last[0] - first[0]) / 1000) : 0;
  return rate > 0 && Number.isFinite(rest) ? duration(rest / rate) : words.unknown;
}
