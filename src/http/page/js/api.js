// The node's HTTP interface: requests with the session's cookie, answers as JSON, errors in words with what to do next.

import { text } from "./text.js";

/// The address of the node: what the page's own folder lies in.
export const BASE = new URL("../", document.baseURI);

/// An answer that is not a success. `status` is 0 when there was no answer. `next` says what to do.
export class ApiError extends Error {
  constructor(status, error, reason, request) {
    super(text.errors.told(status, error, reason));
    this.name = "ApiError";
    this.status = status;
    this.error = error;
    this.reason = reason;
    this.request = request;
    this.next = text.errors.next(status, error, reason);
  }
}

/// What to do when a request that needs a session has none; the frame of the page sets it.
export const hooks = { unauthorized: () => {} };

/// One segment of a path. A design document keeps its slash.
export function seg(name) {
  const text = String(name);
  if (text.startsWith("_design/")) return "_design/" + encodeURIComponent(text.slice(8));
  if (text.startsWith("_local/")) return "_local/" + encodeURIComponent(text.slice(7));
  return encodeURIComponent(text);
}

/// A path from segments: `path(db, "_design/x", "_view", "y")`.
export function path(...segments) {
  return segments.map(seg).join("/");
}

/// A query string. Undefined, null and "" are left out; `json` names of parameters are written as JSON.
export function query(params, json = []) {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    out.append(name, json.includes(name) ? JSON.stringify(value) : String(value));
  }
  const written = out.toString();
  return written && "?" + written;
}

/// The parameters of lists and views that are JSON.
export const JSON_PARAMS = ["key", "keys", "startkey", "endkey", "start_key", "end_key"];

/// A request; answers the `Response`, whatever its status, or throws an `ApiError` with status 0.
export async function raw(method, target, { params, json, body, headers = {}, signal, type } = {}) {
  const url = new URL(target.replace(/^\//, "") + query(params, json), BASE);
  const init = { method, headers: { Accept: "application/json", ...headers }, credentials: "same-origin", signal, cache: "no-store" };
  if (body !== undefined) {
    const isPlain = typeof body === "string" || body instanceof Blob || body instanceof ArrayBuffer || ArrayBuffer.isView(body);
    init.body = isPlain ? body : JSON.stringify(body);
    init.headers["Content-Type"] = type ?? "application/json";
  }
  try {
    return await fetch(url, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "no_answer", String(error.message), `${method} ${url.pathname}`);
  }
}

/// A request whose answer is JSON. Throws an `ApiError` for everything but a success.
export async function ask(method, target, options = {}) {
  const answer = await raw(method, target, options);
  return read(answer, `${method} /${target.replace(/^\//, "")}`, options);
}

/// The JSON of an answer, or its error.
export async function read(answer, request, options = {}) {
  const told = await answer.text();
  let value = null;
  try {
    value = told.trim() ? JSON.parse(told) : null;
  } catch {
    if (answer.ok && !options.plain) throw new ApiError(answer.status, "not_json", told.slice(0, 200), request);
    value = told;
  }
  if (answer.ok) return options.withHeaders ? { value, headers: answer.headers, status: answer.status } : value;
  if (answer.status === 401 && !options.quiet) hooks.unauthorized();
  throw new ApiError(answer.status, value?.error ?? "", value?.reason ?? (typeof value === "string" ? value.slice(0, 300) : ""), request);
}

export const get = (target, params, options) => ask("GET", target, { params, ...options });
export const post = (target, body = {}, options) => ask("POST", target, { body, ...options });
export const put = (target, body, options) => ask("PUT", target, { body, ...options });
export const del = (target, params, options) => ask("DELETE", target, { params, ...options });

/// The text of an answer that is not JSON.
export async function plain(target, params, options = {}) {
  const answer = await raw("GET", target, { params, headers: { Accept: "*/*" }, ...options });
  if (!answer.ok) await read(answer, `GET /${target}`);
  return answer.text();
}

/// Lines of a streamed answer, one JSON value each, until the signal is aborted or the answer ends. Blank lines
/// (heartbeats) are left out.
export async function* lines(method, target, options = {}) {
  const answer = await raw(method, target, options);
  if (!answer.ok) await read(answer, `${method} /${target}`);
  options.onOpen?.();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    const parts = rest.split("\n");
    rest = parts.pop();
    for (const part of parts) if (part.trim()) yield part;
  }
  if (rest.trim()) yield rest;
}

/// Statuses below 500 that pass by themselves: the node has too much to do.
const PASSING = [408, 429];

/// A continuous feed of changes; yields rows. Begins anew where it broke off, after a pause, until the signal is aborted.
export async function* changes(db, { since = "now", params = {}, body, signal, onOpen, onError } = {}) {
  let at = since, pause = 500;
  while (!signal?.aborted) {
    try {
      const options = { params: { ...params, feed: "continuous", since: at, heartbeat: 20000 }, body, signal, onOpen };
      for await (const line of lines(body ? "POST" : "GET", path(db, "_changes"), options)) {
        const row = JSON.parse(line);
        pause = 500;
        at = row.last_seq ?? row.seq ?? at;
        if (row.id !== undefined) yield row;
      }
    } catch (error) {
      if (signal?.aborted || error.name === "AbortError") return;
      if (error.status && error.status < 500 && !PASSING.includes(error.status)) throw error;
      onError?.(error);
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 10000);
  }
}

/// Sends a body with progress: `onProgress(sent, total)`.
export function upload(method, target, body, { params, type = "application/octet-stream", onProgress, signal } = {}) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, new URL(target + query(params), BASE));
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Content-Type", type);
    request.upload.addEventListener("progress", (event) => onProgress?.(event.loaded, event.total));
    request.addEventListener("error", () => failed(new ApiError(0, "no_answer", "", `${method} /${target}`)));
    request.addEventListener("abort", () => failed(new DOMException("aborted", "AbortError")));
    request.addEventListener("load", () => {
      let value = null;
      try { value = JSON.parse(request.responseText); } catch { /* An answer without JSON has no reason to show. */ }
      if (request.status >= 200 && request.status < 300) done(value);
      else failed(new ApiError(request.status, value?.error ?? "", value?.reason ?? "", `${method} /${target}`));
    });
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}
