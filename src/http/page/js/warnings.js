// What is unsafe or unfinished, for the top of the page. Each can be put aside by whoever signed in, for a week.

import { h } from "./dom.js";
import { get } from "./api.js";
import { icon } from "./ui.js";
import { text } from "./text.js";

const WEEK_MS = 7 * 24 * 3600 * 1000;
const t = text.warnings;

function isLoopback(host) {
  return host === "localhost" || host === "[::1]" || /^127\./.test(host) || host.endsWith(".localhost");
}

/// Whether other machines reach what listens there; unset is this machine alone.
function isPublicBind(address) {
  return Boolean(address) && !/^(127\.|::1$|localhost$)/.test(address);
}

function putAside(id) {
  try { localStorage.setItem("settee.aside." + id, String(Date.now())); } catch { /* It comes back with the next page. */ }
}

function isAside(id) {
  try { return Date.now() - Number(localStorage.getItem("settee.aside." + id)) < WEEK_MS; } catch { return false; }
}

/// `[{id, kind, title, words, href, label}]` for the one who is signed in.
export async function findWarnings(session) {
  const out = [];
  if (location.protocol === "http:" && !isLoopback(location.hostname)) out.push({ id: "tls", kind: "error", ...t.tls });
  if (!session?.isAdmin) return out;
  const ask = (target) => get(target, null, { quiet: true }).catch(() => ({}));
  const section = (name) => ask(`_node/_local/_config/${name}`);
  const [setup, members, auth, cors, chttpd, couchdb, ssl, cluster] = await Promise.all([ask("_cluster_setup"), ask("_membership"), section("chttpd_auth"), section("cors"), section("chttpd"), section("couchdb"), section("ssl"), section("cluster")]);
  if (/disabled/.test(setup.state ?? "")) out.push({ id: "setup", kind: "info", ...t.setup, href: "#/setup" });
  if (setup.state === "cluster_enabled") out.push({ id: "unfinished", kind: "warning", ...t.unfinished, href: "#/setup" });
  if (/^(true|nolb)$/.test(couchdb.maintenance_mode ?? "")) out.push({ id: "maintenance", kind: "warning", ...t.maintenance });
  if (chttpd.enable_cors === "true" && cors.origins === "*" && cors.credentials === "true") out.push({ id: "cors", kind: "warning", ...t.cors });
  if (!out.some((each) => each.id === "tls") && isPublicBind(chttpd.bind_address) && ssl.enable !== "true") out.push({ id: "plain", kind: "warning", ...t.plain });
  if (members.cluster_nodes?.length > 1 && isPublicBind(cluster.bind_address ?? chttpd.bind_address) && cluster.tls !== "true") out.push({ id: "cluster-tls", kind: "warning", ...t.clusterTls });
  const isPublic = isPublicBind(chttpd.bind_address) || !isLoopback(location.hostname);
  if (isPublic && !auth.password_regexp) out.push({ id: "passwords", kind: "info", ...t.passwords });
  if (isPublic && chttpd.require_valid_user !== "true" && chttpd.admin_only_all_dbs === "false") out.push({ id: "listing", kind: "warning", ...t.listing });
  return out.filter((each) => !isAside(each.id));
}

export function warningBar(warning, gone) {
  const bar = h("div", { class: ["notice", warning.kind], role: "note" }, icon(warning.kind === "info" ? "info" : "warning"),
    h("div", { class: "grow" }, h("strong", null, warning.title), " ", warning.words, " ", warning.href ? h("a", { href: warning.href }, warning.label) : null),
    h("button", { type: "button", class: "ghost small", "aria-label": t.aside(warning.title), title: t.aside(warning.title), onclick: () => { putAside(warning.id); bar.remove(); gone?.(); } }, icon("close")));
  return bar;
}
