// Where a database lies: its ranges, who holds them, in which state; and the place of one document.

import { h, fill, within } from "../dom.js";
import { get, post, path } from "../api.js";
import { pageHead, card, table, badge, button, field, input, facts, empty, problem, attempt, confirm, notice, progress, count } from "../ui.js";
import { rangeMap, legend } from "../chart.js";
import { databaseInput, isTouched, watch } from "./operate_common.js";
import { remember } from "../router.js";
import { session } from "../session.js";
import { text } from "../text.js";

const words = text.cluster.map;
/// A database of more ranges is not asked for the state of each replica with every look.
const MOST_ASKED = 64;
/// Others are asked with every so many looks: replicas compare digests for it.
const ASKED_EVERY = 5;
/// How the state of a replica is drawn; what is not named here as one that lags.
const KINDS = { in_sync: "ok", away: "down", maintenance: "down", silent: "down" };
/// States of replicas that documents come to.
const FILLED = ["moving", "rebuilding", "not_in_sync"];
const BADGES = { ok: "ok", lagging: "warn", down: "bad" };

export async function map(ctx) {
  const names = await get("_all_dbs", { limit: 100 });
  const first = names.find((name) => !name.startsWith("_")) ?? names[0] ?? "";
  let db = ctx.query.get("db") ?? first;
  const body = h("div", { class: "stack" });
  let shown = db ? lie(ctx, db, body) : null;
  const { control: choice, known } = databaseInput({ value: db });
  const show = () => {
    db = choice.value.trim();
    remember({ db });
    shown?.abort();
    shown = lie(ctx, db, body);
  };
  return h("div", null, pageHead(words.title, { sub: words.sub, crumbs: [[text.cluster.overview.title, "#/cluster"]] }),
    h("form", { class: "toolbar", onsubmit: (event) => { event.preventDefault(); show(); } }, field(words.database, choice, { inline: true }), known, button(words.show, { type: "submit" })),
    db ? body : empty(words.none, { icon: "partition" }));
}

/// Shows the place of a database in `holder`, with that of one document if it is given, and keeps it fresh until the
/// answered controller is aborted.
export function lie(ctx, db, holder, document = "") {
  const own = within(ctx.signal);
  let marked = null, info = null, last = null, asked = null, looks = 0;
  const picture = h("div", { class: "stack" }), found = h("div", { role: "status" });
  const id = input({ class: "mono", value: document });
  const find = async () => {
    if (!id.value) return;
    try {
      const answer = await get(path(db, "_shards", id.value));
      marked = answer.range;
      fill(found, notice("info", h("p", { class: "strong" }, words.placed(id.value, answer.range)), h("p", null, words.on(answer.nodes.join(", ")))));
      await look();
    } catch (error) {
      fill(found, problem(error));
    }
  };
  const place = h("form", { class: "toolbar", onsubmit: (event) => { event.preventDefault(); find(); } },
    field(words.placeId, id, { inline: true }), button(words.find, { type: "submit", icon: "search" }));
  if (document) find();
  const actions = session.value?.isAdmin ? h("div", { class: "actions" },
    button(words.sync, { icon: "refresh", onclick: () => attempt(() => post(path(db, "_sync_shards")), { ok: words.synced }) }),
    button(words.split, { icon: "branch", onclick: () => split(db) })) : null;
  fill(holder, picture, card(words.place, place, found), actions);

  async function look() {
    try {
      const isAdmin = session.value?.isAdmin;
      const { shards } = await get(path(db, "_shards"), null, { signal: own.signal });
      // What is being filled is asked for each time.
      const asks = isAdmin && Object.keys(shards).length <= MOST_ASKED && (looks++ % ASKED_EVERY === 0 || (asked && !asked.in_sync));
      const [status, record, rows] = await Promise.all([
        isAdmin ? get("_cluster/status", null, { signal: own.signal }) : null,
        isAdmin ? get(path("_node", "_local", "_dbs", db), null, { signal: own.signal }).catch(() => null) : null,
        // Each replica is asked: of a database of very many ranges only what its nodes say is shown.
        asks ? get(path("_cluster", "replicas", db), null, { signal: own.signal }).catch(() => null) : asked,
      ]);
      asked = rows;
      info ??= await get(path(db), null, { signal: own.signal });
      const told = JSON.stringify([shards, marked, record?.moves, status?.members.map((member) => [member.name, member.up, member.zone, member.state?.in_sync, member.state?.maintenance, member.state?.lagging, member.state?.filling]), rows?.ranges]);
      if (told === last || (last && isTouched())) return;
      last = told;
      fill(picture, draw(shards, status, record));
    } catch (error) {
      last = null;
      if (error.name !== "AbortError") fill(picture, problem(error, { retry: look }));
    }
  }

  function draw(shards, status, record) {
    const replicas = new Map((asked?.ranges ?? []).flatMap(({ range, replicas }) => replicas.map((row) => [`${range} ${row.node}`, row])));
    const members = status?.members ?? [];
    const by = new Map(members.map((member) => [member.name, member]));
    const moves = record?.moves ?? [];
    const holders = [...new Set([...members.map((member) => member.name), ...Object.values(shards).flat()])].sort();
    const nodeState = (name) => {
      const member = by.get(name);
      if (!member) return status ? "down" : "ok";
      if (!member.up || !member.state || member.state.maintenance) return "down";
      return member.state.in_sync && !member.state.lagging.includes(db) && !member.state.filling.includes(db) ? "ok" : "lagging";
    };
    const nodes = holders.map((name) => ({ name, head: [h("span", { class: ["dot", { ok: "", lagging: "warn", down: "bad" }[nodeState(name)]] }), h("span", { class: "map-name", title: name }, name), by.get(name)?.zone ? badge(by.get(name).zone) : null] }));
    const rowOf = (name, range) => {
      const row = replicas.get(`${range} ${name}`);
      // A node that goes or comes is seen before its replicas are asked again.
      const isStale = row && (nodeState(name) === "down" ? KINDS[row.state] !== "down" : row.state === "away");
      return isStale ? undefined : row;
    };
    const stateOf = (name, range) => {
      const row = rowOf(name, range);
      return row ? KINDS[row.state] ?? "lagging" : nodeState(name);
    };
    const told = (name, range) => {
      const row = rowOf(name, range);
      return row ? words.holds(words.replicas[row.state] ?? row.state, row.documents) : words.kinds[nodeState(name)];
    };
    const behind = lags(asked?.ranges ?? []);
    const look = (node, one) => ({ kind: stateOf(node.name, one.range), words: words.words(one.range, node.name, told(node.name, one.range)) });
    const rows = Object.entries(shards).map(([range, held]) => ({ range, nodes: held, there: held.filter((name) => stateOf(name, range) !== "down").length })).sort((a, b) => a.range.localeCompare(b.range));
    const { q, n, w, r } = info?.cluster ?? {};
    return [
      card(null, facts([[words.facts.q, count(rows.length || q)], [words.facts.n, count(n)], [words.facts.w, count(w)], [words.facts.r, count(r)]]),
        rangeMap({ label: words.title, nodes, shards, look, marked, onpick: (one) => { marked = marked === one.range ? null : one.range; fill(picture, draw(shards, status, record)); } }),
        legend([["ok", words.kinds.ok], ["lagging", words.kinds.lagging], ["down", words.kinds.down], ...(moves.length ? [["moving", words.kinds.moving]] : [])])),
      moves.length ? card(words.moves, h("ul", { class: "stack" }, moves.map((move) => h("li", null, words.moveWords(move))))) : null,
      table({
        label: words.columns.range, rows: rows.slice(0, 256), key: (row) => row.range, rowClass: (row) => row.range === marked ? "selected" : "",
        columns: [
          { label: words.columns.range, isHead: true, sort: (row) => row.range, cell: (row) => h("span", { class: "mono" }, row.range) },
          { label: words.columns.nodes, cell: (row) => h("span", { class: "tokens" }, row.nodes.map((name) => h("span", { class: "replica", title: told(name, row.range) }, badge(name, BADGES[stateOf(name, row.range)]), lag(rowOf(name, row.range), behind.get(`${row.range} ${name}`))))) },
          { label: words.columns.state, sort: (row) => row.there - row.nodes.length, cell: (row) => outlook(row) },
        ],
      }),
    ];
  }
  watch(3000, own.signal, look);
  return own;
}

/// How many documents each replica that is not in sync holds fewer than the fullest one that is: `RANGE NODE` → `{lacks, most}`.
function lags(ranges) {
  const out = new Map();
  for (const { range, replicas } of ranges) {
    const most = Math.max(0, ...replicas.filter((row) => row.state === "in_sync").map((row) => row.documents ?? 0));
    for (const row of replicas) {
      if (row.state !== "in_sync" && typeof row.documents === "number" && row.documents < most) out.set(`${range} ${row.node}`, { lacks: most - row.documents, most });
    }
  }
  return out;
}

/// How far behind a replica is, in words; one that is filled or rebuilt also as a bar.
function lag(row, about) {
  if (!row || !about) return null;
  return h("span", { class: "replica-lag" }, h("span", { class: "small soft" }, words.behind(about.lacks)),
    FILLED.includes(row.state) ? progress(`${row.node}: ${words.behind(about.lacks)}`, 1 - about.lacks / about.most) : null);
}

function outlook({ there, nodes }) {
  if (there === nodes.length) return badge(words.states.ok, "ok");
  if (there === 0) return badge(words.states.none, "bad");
  return there >= Math.floor(nodes.length / 2) + 1 ? badge(words.states.quorum, "warn") : badge(words.states.below, "bad");
}

async function split(db) {
  if (!(await confirm({ title: words.splitTitle(db), message: words.splitMessage, action: words.split }))) return;
  await attempt(() => post("_reshard/jobs", { type: "split", db }), { ok: (jobs) => words.splitting(Array.isArray(jobs) ? jobs.filter((job) => job.ok).length : 0) });
}
