// A trial of functions over sample documents, before anything is stored.

import { text } from "./text.js";

const LIMIT_MS = 4000;

function work(message) {
  return new Promise((done) => {
    let worker;
    try {
      worker = new Worker(new URL("trial_worker.js", import.meta.url));
    } catch (error) {
      done({ broken: { message: String(error.message) }, rows: [], errors: [], logged: [] });
      return;
    }
    const end = (answer) => { clearTimeout(timer); worker.terminate(); done(answer); };
    const timer = setTimeout(() => end({ broken: { message: text.trial.endless(LIMIT_MS / 1000) }, rows: [], errors: [], logged: [] }), LIMIT_MS);
    worker.onmessage = (event) => end(event.data);
    worker.onerror = (event) => { event.preventDefault(); end({ broken: { message: event.message || text.trial.noWorker, line: event.lineno }, rows: [], errors: [], logged: [] }); };
    worker.postMessage(message);
  });
}

/// The rows that a map function (or one that indexes, `typed` as Nouveau has it) makes of documents, in the order of their keys: `{rows, errors, logged, broken}`.
export async function trialMap(source, docs, { typed = false } = {}) {
  const answer = await work({ task: "map", source, docs, typed });
  answer.rows.sort((a, b) => compareKeys(a.key, b.key) || compareKeys(a.id, b.id));
  return answer;
}

/// Reduces rows: with `level` groups by so many elements of an array key (Infinity: equal keys, 0: all).
export async function trialReduce(reduce, rows, level) {
  const groups = [];
  for (const row of rows) {
    const key = level === 0 ? null : Array.isArray(row.key) && level !== Infinity ? row.key.slice(0, level) : row.key;
    const last = groups.at(-1);
    if (last && compareKeys(last.key, key) === 0) { last.keys.push([row.key, row.id]); last.values.push(row.value); } else groups.push({ key, keys: [[row.key, row.id]], values: [row.value] });
  }
  if (!reduce.startsWith("_")) return work({ task: "reduce", source: reduce, groups });
  const errors = [];
  const results = groups.map((group) => {
    try { return { key: group.key, value: builtIn(reduce, group) }; } catch (error) { errors.push({ id: JSON.stringify(group.key), message: error.message }); return { key: group.key, value: null }; }
  });
  return { rows: results, errors, logged: [] };
}

function builtIn(name, { keys, values }) {
  if (name === "_count") return values.length;
  if (name === "_approx_count_distinct") return new Set(keys.map(([key]) => JSON.stringify(key))).size;
  const numbers = (list) => list.every((value) => typeof value === "number");
  if (name === "_sum") return values.reduce(add);
  if (name === "_stats" && numbers(values)) {
    const sum = values.reduce((a, b) => a + b, 0);
    return { sum, count: values.length, min: Math.min(...values), max: Math.max(...values), sumsqr: values.reduce((a, b) => a + b * b, 0) };
  }
  throw new Error(text.trial.reduceValues(name));
}

function add(a, b) {
  if (typeof a === "number" && typeof b === "number") return a + b;
  if (Array.isArray(a) && Array.isArray(b)) return Array.from({ length: Math.max(a.length, b.length) }, (_, at) => (a[at] ?? 0) + (b[at] ?? 0));
  if (a && b && typeof a === "object" && typeof b === "object") {
    const out = { ...a };
    for (const [name, value] of Object.entries(b)) out[name] = name in out ? add(out[name], value) : value;
    return out;
  }
  throw new Error(text.trial.reduceValues("_sum"));
}

const ORDER = (value) => value === null ? 0 : value === false ? 1 : value === true ? 2 : typeof value === "number" ? 3 : typeof value === "string" ? 4 : Array.isArray(value) ? 5 : 6;
const collator = new Intl.Collator("en", { caseFirst: "lower" });

/// The order of keys of a view, but for rare signs.
export function compareKeys(a, b) {
  const kind = ORDER(a) - ORDER(b);
  if (kind) return kind;
  if (typeof a === "number") return a - b;
  if (typeof a === "string") return collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);
  if (Array.isArray(a)) {
    for (let at = 0; at < Math.min(a.length, b.length); at += 1) {
      const each = compareKeys(a[at], b[at]);
      if (each) return each;
    }
    return a.length - b.length;
  }
  if (a && typeof a === "object") return compareKeys(Object.entries(a).flat(), Object.entries(b).flat());
  return 0;
}
