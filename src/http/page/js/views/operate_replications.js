// Replications: documents of `_replicator` and those that run without one; state, lag, history, restart, cancel.

import { h, every } from "../dom.js";
import { get, put, del, post, path } from "../api.js";
import { pageHead, table, badge, button, menu, empty, dialog, confirm, facts, problem, select, field, ago, moment, count } from "../ui.js";
import { bareUrl, did, refresh, show } from "./operate_common.js";
import { replicationForm } from "./operate_replication_form.js";
import { text } from "../text.js";

const words = text.operate.replications;
const PAGE = 200;
const KINDS = { running: "ok", pending: "accent", completed: "ok", crashing: "warn", failed: "bad", error: "bad", initializing: "accent" };

export function replications(ctx) {
  const holder = h("div");
  let wanted = "", limit = PAGE;
  const list = table({
    label: words.title, key: (one) => one.key, rows: [],
    columns: [
      { label: words.columns.id, isHead: true, sort: (one) => one.name, cell: (one) => h("div", { class: "task-what" },
        h("span", { class: "row" }, h("span", { class: "strong break" }, one.name), one.doc_id ? null : badge(words.once)),
        h("span", { class: "ends small soft" }, bareUrl(one.source), h("span", { class: "route-arrow" }, "→"), bareUrl(one.target))) },
      { label: words.columns.state, sort: (one) => one.state, cell: (one) => h("div", { class: "task-what" }, badge(words.states[one.state] ?? one.state ?? "–", KINDS[one.state]), one.info?.error ? h("span", { class: "small bad break" }, String(one.info.error)) : null) },
      { label: words.columns.lag, class: "num", sort: (one) => one.info?.changes_pending ?? -1, cell: (one) => one.state === "completed" ? words.behind(0) : typeof one.info?.changes_pending === "number" ? words.behind(one.info.changes_pending) : "–" },
      { label: words.columns.written, class: "num", sort: (one) => one.info?.docs_written ?? 0, cell: (one) => count(one.info?.docs_written ?? 0) },
      { label: words.columns.node, cell: (one) => one.node ?? "–" },
      { label: words.columns.updated, sort: (one) => one.last_updated ?? "", cell: (one) => one.last_updated ? h("span", { title: moment(one.last_updated) }, ago(one.last_updated)) : "–" },
      { label: words.actions, head: h("span", { class: "sr-only" }, words.actions), class: "right", cell: (one) => menu(`${words.actions}: ${one.name}`, () => actions(one)) },
    ],
  });
  const create = () => replicationForm(look);
  const nothing = empty(words.none, { hint: words.noneHint, icon: "refresh", actions: button(words.create, { kind: "primary", icon: "plus", onclick: () => { create(); } }) });

  const told = h("span", { class: "faint", role: "status" });
  const foot = h("div", { class: "row below", hidden: true }, button(words.more, { onclick: () => { limit += PAGE; return look(); } }), told);
  const shown = h("div", null, list, foot);
  async function look() {
    try {
      const [docs, jobs] = await Promise.all([
        get("_scheduler/docs", { limit, states: wanted }, { signal: ctx.signal }).catch((error) => { if (error.status === 404) return { docs: [] }; throw error; }),
        get("_scheduler/jobs", { limit }, { signal: ctx.signal }),
      ]);
      const transient = jobs.jobs.filter((job) => !job.doc_id).map((job) => ({ ...job, state: stateOf(job), last_updated: job.history?.[0]?.timestamp ?? job.start_time, once: true }));
      const rows = [...docs.docs, ...transient.filter((one) => !wanted || one.state === wanted)].map((one) => ({
        ...one, name: one.doc_id ?? one.id ?? "", key: one.doc_id ? `${one.database} ${one.doc_id}` : one.id,
        job: jobs.jobs.find((job) => job.id === one.id),
      }));
      refresh(list, rows);
      const total = docs.total_rows ?? docs.docs.length;
      foot.hidden = docs.docs.length >= total && jobs.jobs.length >= jobs.total_rows;
      told.textContent = words.shown(docs.docs.length, total);
      show(holder, rows.length || wanted ? shown : nothing);
    } catch (error) {
      if (error.name !== "AbortError") holder.replaceChildren(problem(error, { retry: look }));
    }
  }

  function actions(one) {
    const isDocument = Boolean(one.doc_id);
    return [
      { label: words.details, icon: "info", run: () => details(one) },
      isDocument ? { label: words.restart, icon: "refresh", run: () => restart(one) } : null,
      isDocument ? { label: words.remove, icon: "trash", danger: true, run: () => remove(one) } : { label: words.cancel, icon: "stop", danger: true, run: () => cancel(one) },
    ].filter(Boolean);
  }
  const documentPath = (one) => path(one.database ?? "_replicator", one.doc_id);

  async function restart(one) {
    const done = await did(async () => {
      const doc = await get(documentPath(one));
      for (const name of Object.keys(doc)) if (name.startsWith("_replication_")) delete doc[name];
      await put(documentPath(one), doc);
    }, { ok: words.restarted });
    if (done) await look();
  }
  async function remove(one) {
    if (!(await confirm({ title: words.removeTitle, message: words.removeMessage(one.name), action: words.remove, danger: true }))) return;
    const done = await did(async () => {
      const doc = await get(documentPath(one));
      await del(documentPath(one), { rev: doc._rev });
    }, { ok: words.removed });
    if (done) await look();
  }
  async function cancel(one) {
    if (!(await confirm({ title: words.cancelTitle, message: words.cancelMessage, action: words.cancelAction, danger: true }))) return;
    if (await did(() => post("_replicate", { replication_id: one.id, cancel: true }), { ok: words.cancelled })) await look();
  }

  const filter = field(words.filter, select([["", words.all], ...["running", "pending", "crashing", "completed", "failed", "error"].map((state) => [state, words.states[state]])], {
    onchange: (event) => { wanted = event.target.value; limit = PAGE; look(); },
  }), { inline: true });
  every(3000, ctx.signal, look);
  return h("div", null, pageHead(words.title, { sub: words.sub, actions: button(words.create, { kind: "primary", icon: "plus", onclick: () => { create(); } }) }),
    h("div", { class: "toolbar" }, filter), holder);
}

function stateOf(job) {
  const last = job.history?.[0]?.type;
  return last === "crashed" ? "crashing" : last === "started" ? "running" : last === "stopped" ? "pending" : "pending";
}

function details(one) {
  const info = { ...(one.info ?? {}), ...(one.job?.info ?? {}) };
  const shown = Object.entries(info).filter(([, value]) => value !== null && value !== undefined && typeof value !== "object");
  const events = one.job?.history ?? one.history ?? [];
  dialog({
    title: one.name, wide: true,
    content: () => [
      h("p", { class: "ends" }, bareUrl(one.source), h("span", { class: "route-arrow" }, "→"), bareUrl(one.target)),
      facts([
        [words.columns.state, badge(words.states[one.state] ?? one.state ?? "–", KINDS[one.state])],
        [words.columns.node, one.node ?? "–"],
        one.job?.user ? [words.owner, one.job.user] : null,
        ...shown.map(([name, value]) => [words.info[name] ?? name, typeof value === "number" ? count(value) : h("span", { class: "mono small" }, String(value).slice(0, 120))]),
      ]),
      h("h3", null, words.history),
      events.length ? h("ul", { class: "timeline", tabIndex: 0, "aria-label": words.history }, events.map((event) => h("li", null,
        h("span", { class: "faint", title: moment(event.timestamp) }, ago(event.timestamp)), badge(words.states[event.type] ?? event.type, event.type === "crashed" ? "bad" : event.type === "started" ? "ok" : null),
        h("span", null, typeof event.reason === "string" ? event.reason : event.reason ? JSON.stringify(event.reason) : "")))) : h("p", { class: "soft" }, words.noHistory),
    ],
    actions: (close) => button(text.app.close, { onclick: () => close() }),
  });
}
