// Setting up: one node for itself, or a cluster step by step.

import { h, fill, every } from "../dom.js";
import { area, copy, button, card, facts, field, input, notice, pageHead, problem, table, badge, toast, icon, linkButton, attempt, duration } from "../ui.js";
import { get, post } from "../api.js";
import { signOut } from "../session.js";
import { go } from "../router.js";
import { text } from "../text.js";

const t = text.setup;

export function setup(ctx) {
  const holder = area(async () => {
    const [state, members, up] = await Promise.all([get("_cluster_setup", null, { signal: ctx.signal }), get("_membership", null, { signal: ctx.signal }), get("_up").catch(() => ({}))]);
    const reload = () => holder.reload();
    const isCluster = members.cluster_nodes.length > 1;
    if (state.state === "single_node_enabled" && !isCluster) return [done(t.doneSingle, t.doneSingleWords), clusterLater(reload)];
    if (state.state === "cluster_finished") return [done(t.doneCluster, t.doneClusterWords(members.cluster_nodes.length)), nodes(ctx, members), join(), addNode(reload)];
    if (state.state === "cluster_enabled") return building(ctx, members, reload);
    return choice(reload, up);
  }, { class: "stack" });
  return h("div", null, pageHead(t.title, { sub: t.words }), holder);
}

function done(title, words) {
  return notice("ok", h("p", { class: "strong" }, title), h("p", null, words, " ", h("a", { href: "#/databases" }, t.toDatabases)));
}

function choice(reload) {
  const forms = h("div");
  const option = (name, glyph, title, words, make) => h("button", { type: "button", class: "choice", "data-choice": name, onclick: () => { fill(forms, make()); forms.querySelector("input,button")?.focus(); } }, h("span", { class: "empty-icon" }, icon(glyph)), h("span", { class: "strong" }, title), h("span", { class: "soft" }, words));
  return [h("div", { class: "choices" }, option("single", "node", t.single, t.singleWords, () => single(reload)), option("cluster", "cluster", t.cluster, t.clusterWords, () => enable(reload)), option("join", "key", t.joinCluster, t.joinClusterWords, joinCluster)), forms];
}

function addressFields(isCluster) {
  const bind = input({ class: "mono", value: isCluster ? "0.0.0.0" : "127.0.0.1" });
  const port = input({ type: "number", min: 1, max: 65535, value: location.port || (location.protocol === "https:" ? 443 : 80) });
  return { bind, port, element: [field(t.bind, bind, { hint: isCluster ? t.bindClusterHint : t.bindHint }), field(t.port, port, { hint: t.portHint })] };
}

function single(reload) {
  const { bind, port, element } = addressFields(false);
  const keep = h("label", { class: "check" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { address.hidden = event.target.checked; } }), h("span", null, t.keepAddress));
  const address = h("div", { class: "fields", hidden: true }, element);
  const told = h("div");
  return h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("_cluster_setup", { action: "enable_single_node", ...(address.hidden ? {} : { bind_address: bind.value.trim(), port: Number(port.value) }) });
      toast(address.hidden ? t.singleDone : t.restartNeeded);
      reload();
    } catch (error) { fill(told, problem(error)); }
  } }, h("h2", null, t.single), h("p", { class: "soft" }, t.singleDoes), keep, address, told, h("div", null, button(t.singleAction, { kind: "primary", type: "submit" })));
}

function enable(reload) {
  const { bind, port, element } = addressFields(true);
  const many = input({ type: "number", min: 1, max: 100, value: 3 });
  const told = h("div");
  return h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("_cluster_setup", { action: "enable_cluster", bind_address: bind.value.trim(), port: Number(port.value), node_count: Number(many.value) });
      toast(t.enabled);
      reload();
    } catch (error) { fill(told, problem(error)); }
  } }, h("h2", null, t.stepEnable), h("p", { class: "soft" }, t.enableDoes), h("div", { class: "fields" }, field(t.nodeCount, many, { hint: t.nodeCountHint }), element), told, h("div", null, button(t.enableAction, { kind: "primary", type: "submit" })));
}

/// Makes this node a member of a cluster. Its sessions end, because the cluster's administrators replace its own.
function joinCluster() {
  const address = input({ class: "mono", required: true, placeholder: "10.0.0.1:9100" });
  const token = input({ class: "mono", required: true, autocomplete: "off" });
  const told = h("div");
  return h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    fill(told);
    try {
      await post("_cluster_setup", { action: "join_cluster", address: address.value.trim(), token: token.value.trim() });
      await signOut();
      toast(t.joined);
      go("#/login");
    } catch (error) { fill(told, problem(error)); }
  } }, h("h2", null, t.joinCluster), h("p", { class: "soft" }, t.joinClusterDoes), h("div", { class: "fields" }, field(t.memberAddress, address, { hint: t.memberAddressHint }), field(t.token, token)), told, h("div", null, button(t.joinClusterAction, { kind: "primary", type: "submit" })));
}

function clusterLater(reload) {
  const holder = h("div");
  return card(t.growTitle, h("p", { class: "soft" }, t.growWords), h("div", { class: "row" }, linkButton(t.toDatabases, "#/databases"), button(t.growAction, { onclick: () => { fill(holder, enable(reload)); } })), holder);
}

function building(ctx, members, reload) {
  const finish = card(t.stepFinish, h("p", { class: "soft" }, t.finishDoes), h("div", null, button(t.finishAction, { kind: "primary", icon: "check", onclick: async () => {
    if (await attempt(() => post("_cluster_setup", { action: "finish_cluster" }), { ok: t.finished })) reload();
  } })));
  return [h("ol", { class: "progress-steps", "aria-label": t.title }, h("li", { class: "done" }, icon("check"), t.stepEnable), h("li", { "aria-current": "step" }, t.stepNodes), h("li", null, t.stepFinish)), nodes(ctx, members), join(), addNode(reload), finish];
}

/// The members, brought up to date while they are seen: nodes that were added connect, nodes that join appear.
function nodes(ctx, members) {
  const rows = ({ cluster_nodes: all, all_nodes: up }) => all.map((name) => ({ name, isUp: up.includes(name) }));
  const title = h("h2", null, t.members(members.cluster_nodes.length));
  const list = table({ label: t.membersLabel, rows: rows(members), key: (row) => row.name, columns: [{ label: t.node, isHead: true, cell: (row) => h("span", { class: "mono" }, row.name) }, { label: t.state, cell: (row) => (row.isUp ? badge(t.connected, "ok") : badge(t.away, "bad")) }] });
  every(2000, ctx.signal, async () => {
    const now = await get("_membership", null, { signal: ctx.signal, quiet: true }).catch(() => null);
    if (!now || !list.isConnected) return;
    fill(title, t.members(now.cluster_nodes.length));
    list.update(rows(now));
  });
  return h("section", { class: "stack" }, title, list);
}

/// A token lets a new node join by one command; what it hands over stays hidden on the way.
function join() {
  const shown = h("div", { class: "stack" });
  const make = button(t.tokenAction, { icon: "key", onclick: async () => {
    try {
      const { token, address, expires_in: seconds } = await post("_cluster/join_token", {});
      const command = `settee serve --data DIR --node NAME@HOST --join ${address ?? "THIS_HOST:9100"} --token ${token}`;
      fill(shown, h("p", null, t.tokenUse(duration(seconds))), h("div", { class: "command" }, h("pre", { class: "code", tabIndex: 0 }, command), button(t.copy, { icon: "copy", iconOnly: true, onclick: () => copy(command) })), h("p", { class: "hint" }, t.tokenHint), h("p", null, t.tokenElsewhere), facts([[t.memberAddress, h("code", null, address ?? "THIS_HOST:9100")], [t.token, h("code", null, token)]]));
    } catch (error) { fill(shown, problem(error)); }
  } });
  return card(t.joinTitle, h("p", { class: "soft" }, t.joinWords), h("div", null, make), shown);
}

function addNode(reload) {
  const host = input({ class: "mono", required: true, placeholder: "10.0.0.2" }), port = input({ type: "number", min: 1, max: 65535, value: 5984 });
  const name = input({ autocomplete: "off" }), password = input({ type: "password", autocomplete: "new-password" });
  const told = h("div");
  return h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    fill(told);
    try {
      await post("_cluster_setup", { action: "add_node", host: host.value.trim(), port: Number(port.value), username: name.value, password: password.value });
      toast(t.added(host.value));
      reload();
    } catch (error) { fill(told, problem(error)); }
  } }, h("h2", null, t.addTitle), h("p", { class: "soft" }, t.addWords), h("div", { class: "fields" }, field(t.host, host), field(t.port, port), field(t.adminName, name), field(t.adminPassword, password)), told, h("div", null, button(t.addAction, { icon: "plus", type: "submit" })));
}

