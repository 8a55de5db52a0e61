// The cluster at a glance: nodes, what is down, and what that means for the promises.

import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { pageHead, card, badge, facts, notice, problem, loading, linkButton, bytes, duration, count } from "../ui.js";
import { bars } from "../chart.js";
import { isTouched, watch } from "./operate_common.js";
import { link } from "../router.js";
import { text } from "../text.js";

const words = text.cluster.overview;

export function overview(ctx) {
  const holder = h("div", { class: "stack" }, loading());
  watch(2500, ctx.signal, async () => {
    try {
      const status = await get("_cluster/status", null, { signal: ctx.signal });
      if (!isTouched()) fill(holder, promises(status), nodeCards(status), extra(status));
    } catch (error) {
      if (error.name !== "AbortError") fill(holder, problem(error));
    }
  });
  return h("div", null, pageHead(words.title, { sub: words.sub, actions: [
    linkButton(words.map, "#/cluster/map", { icon: "partition" }), linkButton(words.live, "#/cluster/charts", { icon: "chart" }), linkButton(words.rebalance, "#/cluster/rebalance", { icon: "refresh" }),
  ] }), holder);
}

/// What the state of the replicas means for reads and writes, in words.
function promises({ reach, members, voters }) {
  const notes = [];
  if (members.length === 1) notes.push(notice("info", h("p", null, words.alone)));
  if (!reach.lacking) {
    notes.push(notice("ok", h("p", { class: "strong" }, words.whole), h("p", null, words.wholeHint(reach.databases, reach.ranges))));
  } else {
    const worst = reach.named.some((one) => one.writes !== 201) ? "error" : "warning";
    notes.push(notice(worst, h("p", { class: "strong" }, words.lacking(reach.lacking)), reach.named.slice(0, 12).map(promise),
      reach.lacking > 12 ? h("p", { class: "soft" }, words.more(reach.lacking - 12)) : null));
  }
  const up = new Set(members.filter((member) => member.up).map((member) => member.name));
  const away = voters.nodes.filter((name) => !up.has(name));
  const lack = Math.floor(voters.nodes.length / 2) + 1 - (voters.nodes.length - away.length);
  if (lack > 0) notes.push(notice("error", h("p", { class: "strong" }, words.noMajority), h("p", null, words.noMajorityHint(lack, away.join(", ")))));
  if (reach.short_of_n && members.length > 1) notes.push(notice("warning", h("p", null, words.shortOfN(reach.short_of_n))));
  return notes;
}

function promise(one) {
  const amount = one.writes === 503 ? one.none : one.writes === 202 ? one.below_quorum : one.lacking;
  const [before, db, after] = words.writes[one.writes](one.db, amount, one.ranges);
  return h("p", { class: "promise" }, badge(String(one.writes), one.writes === 201 ? "ok" : one.writes === 202 ? "warn" : "bad"),
    h("span", { class: "grow" }, before, h("a", { href: link(["cluster", "map"], { db }) }, db), after, " ", h("span", { class: "soft" }, words.missing(one.missing.join(", ")))));
}

function nodeCards({ members, node }) {
  return h("div", { class: "split" }, members.map((member) => nodeCard(member, member.name === node)));
}

function nodeCard(member, isOwn) {
  const { state } = member;
  const [kind, what] = condition(member);
  const used = state?.free_bytes === null || state?.free_bytes === undefined ? null : state.free_bytes;
  const notes = [];
  if (state) {
    if (state.lagging.length) notes.push([words.lagging, " ", maps(state.lagging.slice(0, 5))]);
    if (state.filling.length) notes.push([words.filling, " ", maps(state.filling.slice(0, 5))]);
    for (const other of state.not_compared?.slice(0, 5) ?? []) {
      const next = other.databases.slice(0, 3);
      notes.push([words.notCompared(other), next.length ? [" (", words.next, " ", maps(next), ")"] : null, other.last_error ? `: ${other.last_error}` : null]);
    }
    if (state.rebuilding.length) notes.push(words.rebuilding(state.rebuilding.length));
    if (used !== null && used < state.reserve_bytes * 2) notes.push(words.diskLow);
  } else notes.push(words.leave);
  return h("section", { class: "card node-card" },
    h("h2", null, h("span", { class: ["dot", kind] }), member.name, badge(what, kind || "ok"),
      state ? h("span", { title: state.in_sync ? words.inSyncHint : words.notInSyncHint }, badge(state.in_sync ? words.inSync : words.notInSync, state.in_sync ? "ok" : "warn")) : null,
      isOwn ? badge(text.operate.ownNode) : null),
    facts([
      [words.zone, member.zone ?? h("span", { class: "faint" }, words.noZone)], [words.replicas, count(member.replicas)],
      state ? [words.uptime, duration(state.uptime)] : null, state ? [words.version, state.version] : null,
      state ? [words.memory, bytes(state.memory_bytes)] : null, used === null ? null : [words.disk, bytes(used)], state ? [words.connections, count(state.connections)] : null,
      state?.damaged_files ? [words.damaged, h("span", { class: "bad" }, count(state.damaged_files))] : null, state?.panics ? [words.panics, h("span", { class: "bad" }, count(state.panics))] : null,
    ]),
    notes.map((note) => h("p", { class: "small soft" }, note)));
}

/// Names of databases, each leads to where it lies.
function maps(names) {
  return names.map((db, at) => [at ? ", " : "", h("a", { href: link(["cluster", "map"], { db }) }, db)]);
}

/// The colour and the words of a member's condition.
function condition({ up, state }) {
  if (!up) return ["bad", words.down];
  if (!state) return ["bad", words.silent];
  if (state.status === "writes_stopped") return ["bad", words.writesStopped];
  if (state.maintenance || state.status === "maintenance_mode" || state.status === "nolb") return ["warn", words.maintenance];
  if (state.status === "seeding") return ["warn", words.seeding];
  return state.in_sync ? ["", words.up] : ["warn", words.up];
}

function extra({ members, voters, rebalance }) {
  if (members.length < 2) return null;
  const moves = rebalance.moves.length;
  return h("div", { class: "split" },
    card(words.load, bars({ label: words.load, items: members.map((member) => ({ label: member.name, value: member.replicas, words: count(member.replicas), kind: member.up ? "" : "bad" })) })),
    card(words.rebalance, h("p", null, moves ? words.moving(moves) : text.cluster.rebalance.none), h("p", { class: "soft small" }, words.voters(voters.nodes.length, voters.nodes.join(", ")))));
}
