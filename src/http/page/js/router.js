// Routes in the fragment of the address: `#/db/NAME/docs?limit=20`. One view is shown at a time.

import { fill } from "./dom.js";

/// Makes a link to a route: segments are encoded, parameters that are undefined or empty are left out.
export function link(segments, params) {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== "") out.append(name, value);
  }
  const written = out.toString();
  return "#/" + segments.map(encodeURIComponent).join("/") + (written && "?" + written);
}

/// Goes to a route, or replaces the address without a step in the history.
export function go(hash, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", hash);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else if (location.hash === hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

/// Changes parameters of the address without showing the view anew.
export function remember(params) {
  const now = parse(location.hash);
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "") now.query.delete(name);
    else now.query.set(name, value);
  }
  const written = now.query.toString();
  history.replaceState(null, "", "#/" + now.segments.map(encodeURIComponent).join("/") + (written && "?" + written));
}

function parse(hash) {
  const [route, search = ""] = hash.replace(/^#?\/?/, "").split("?");
  const segments = route.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { segments, query: new URLSearchParams(search) };
}

/// Whether a pattern such as `/db/:name/docs` names the segments; its parameters, or null.
function match(pattern, segments) {
  const parts = pattern.split("/").filter(Boolean);
  if (parts.length !== segments.length) return null;
  const params = {};
  for (const [at, part] of parts.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = segments[at];
    else if (part !== segments[at]) return null;
  }
  return params;
}

/// Questions before a view is left, such as one for unsaved text: functions that answer whether it may be.
const guards = new Set();

/// Has `fn` asked before this view is left; the view's signal ends it.
export function beforeLeave(fn, signal) {
  if (signal.aborted) return;
  guards.add(fn);
  signal.addEventListener("abort", () => guards.delete(fn));
}

window.addEventListener("beforeunload", (event) => {
  if ([...guards].some((guard) => guard.isDirty?.())) event.preventDefault();
});

/// Starts: `show(route, ctx)` is called for each address. `routes`: `{path, load, title, nav}`.
export function start(routes, { outlet, before, after, failed }) {
  let leaving = null, shown = "";
  async function show() {
    if (location.hash === shown && leaving) {
      // The same address again: shown anew.
    } else if (leaving && guards.size) {
      const wanted = location.hash;
      history.replaceState(null, "", shown || "#/");
      for (const guard of [...guards]) if (!(await guard())) return;
      guards.clear();
      history.replaceState(null, "", wanted);
    }
    leaving?.abort();
    const own = new AbortController();
    leaving = own;
    shown = location.hash;
    const { segments, query } = parse(location.hash);
    let found = null, params = null;
    for (const route of routes) {
      params = match(route.path, segments);
      if (params) { found = route; break; }
    }
    const ctx = { params: params ?? {}, query, signal: own.signal, segments, outlet };
    if (!(await before(found, ctx)) || own.signal.aborted) return;
    try {
      const view = await found.load();
      const element = await view(ctx);
      if (own.signal.aborted) return;
      fill(outlet, element);
      after(found, ctx);
    } catch (error) {
      if (own.signal.aborted || error.name === "AbortError") return;
      failed(error, ctx);
    }
  }
  window.addEventListener("hashchange", show);
  show();
  return show;
}
