// Columns of a table that are chosen from the documents shown, and cells for values of any kind.

import { h } from "./dom.js";
import { shorten } from "./format.js";

/// Names of top-level members, those first that most documents have and whose values are short.
export function membersOf(docs) {
  const seen = new Map();
  docs.forEach((doc) => {
    if (!doc || typeof doc !== "object") return;
    Object.entries(doc).forEach(([name, value], at) => {
      if (name.startsWith("_")) return;
      const entry = seen.get(name) ?? { name, times: 0, weight: 0, place: 0 };
      entry.times += 1;
      entry.place += at;
      entry.weight += value !== null && typeof value === "object" ? 0.35 : typeof value === "string" && value.length > 120 ? 0.6 : 1;
      seen.set(name, entry);
    });
  });
  const score = (entry) => entry.weight - (entry.place / entry.times) * 0.01;
  return [...seen.values()].sort((a, b) => score(b) - score(a)).map((entry) => entry.name);
}

/// A cell's content for a value.
export function valueCell(value) {
  if (value === undefined) return h("span", { class: "faint" }, "");
  if (value === null || typeof value === "boolean") return h("span", { class: "t-atom mono" }, String(value));
  if (typeof value === "number") return h("span", { class: "t-number mono" }, String(value));
  if (typeof value === "string") return h("span", { class: "value", title: value.length > 40 ? shorten(value, 600) : null }, shorten(value, 120));
  const written = JSON.stringify(value);
  return h("span", { class: "mono soft value", title: shorten(written, 600) }, shorten(written, 80));
}

/// Columns that were chosen for a table before, or null.
export function rememberedColumns(key) {
  try { return JSON.parse(localStorage.getItem("settee.columns." + key)); } catch { return null; }
}

export function rememberColumns(key, names) {
  try {
    if (names) localStorage.setItem("settee.columns." + key, JSON.stringify(names));
    else localStorage.removeItem("settee.columns." + key);
  } catch { /* Storage is not allowed: they hold until the screen is left. */ }
}
