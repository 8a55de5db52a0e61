// What the screens of 'Operate' and 'Cluster' share: the nodes, a choice of one, lists of words.

import { h, fill, debounce, sleep, uniqueId } from "../dom.js";
import { get, path } from "../api.js";
import { field, input, select, badge, attempt } from "../ui.js";
import { server } from "../session.js";
import { text } from "../text.js";

/// The names of the members, this node first.
export async function nodeNames() {
  const [own, members] = await Promise.all([get("_node/_local"), get("_membership")]);
  const all = [...new Set([...members.cluster_nodes, ...members.all_nodes])].filter((name) => name !== own.name);
  return { own: own.name, names: [own.name, ...all], up: new Set(members.all_nodes) };
}

/// A choice of a node; nothing where there is one only.
export function nodeChoice({ names, own, up }, chosen, onchange) {
  if (names.length < 2) return null;
  const options = names.map((name) => [name, name === own ? `${name} (${text.operate.ownNode})` : up.has(name) ? name : `${name} – ${text.cluster.overview.down}`]);
  return field(text.operate.node, select(options, { value: chosen, onchange: (event) => onchange(event.target.value) }), { inline: true });
}

/// A field for the name of a database, which proposes names that begin so; `known` belongs beside it.
export function databaseInput(props) {
  const known = h("datalist", { id: uniqueId("dbs") });
  const suggest = debounce(async () => {
    const start_key = JSON.stringify(control.value), end_key = JSON.stringify(control.value + "\ufff0");
    try { fill(known, (await get("_all_dbs", { start_key, end_key, limit: 30 })).map((db) => h("option", { value: db }))); } catch { /* The list helps and is not needed. */ }
  }, 150);
  const control = input({ ...props, list: known.id, oninput: suggest, onfocus: suggest });
  return { control, known };
}

/// Does something and tells its failure; answers whether it was done, whatever the node answered.
export async function did(run, options) {
  return Boolean(await attempt(async () => { await run(); return true; }, options));
}

let isPressed = false;
addEventListener("pointerdown", () => { isPressed = true; }, true);
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(() => { isPressed = false; }, 50), true);

/// Whether the reader is in the middle of a press or a menu, which drawing anew would take away.
export function isTouched() {
  return isPressed || Boolean(document.querySelector(".menu:popover-open"));
}

/// Runs `fn` now and again, every `ms` milliseconds until the signal is aborted; what takes long is asked for less often,
/// so that looking at a node of very many databases is no load of its own.
export async function watch(ms, signal, fn) {
  while (!signal.aborted) {
    const began = performance.now();
    if (!document.hidden) await fn();
    await sleep(Math.max(ms, 10 * (performance.now() - began)), signal);
  }
}

/// Puts one element into a holder, unless it is there.
export function show(holder, element) {
  if (holder.firstChild !== element || holder.childNodes.length > 1) holder.replaceChildren(element);
}

/// Shows other rows in a table, but not the same ones again.
export function refresh(table, rows) {
  const written = JSON.stringify(rows);
  if (table.written === written || (table.written && isTouched())) return;
  table.written = written;
  table.update(rows);
}

/// A path below a node.
export function nodePath(name, ...rest) {
  return path("_node", name, ...rest);
}

/// Words from a field with commas.
export function words(typed) {
  return [...new Set(typed.split(",").map((word) => word.trim()).filter(Boolean))];
}

export function tokens(list, kind) {
  return h("span", { class: "tokens" }, list.length ? list.map((word) => badge(word, kind)) : h("span", { class: "faint" }, "–"));
}

/// `host:port/db` of an address, without credentials, whatever it holds.
export function bareUrl(url) {
  try {
    const parsed = new URL(url);
    parsed.username = parsed.password = "";
    const isHere = parsed.host === location.host || server.value === null;
    const name = decodeURIComponent(parsed.pathname.replace(/^\/|\/$/g, ""));
    return isHere ? name : `${parsed.host}/${name}`;
  } catch {
    return String(url ?? "–");
  }
}
