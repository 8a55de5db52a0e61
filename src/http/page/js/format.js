// Numbers, sizes, times and durations as words.

const whole = new Intl.NumberFormat("en");

export function count(n) {
  return n === null || n === undefined ? "–" : whole.format(n);
}

/// `1,234 documents`, `1 document`.
export function plural(n, one, many = one + "s") {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let size = n, at = 0;
  const units = ["B", "KB", "MB", "GB", "TB"];
  while (size >= 1000 && at < units.length - 1) { size /= 1000; at += 1; }
  return `${at === 0 ? size : size.toFixed(size < 10 ? 1 : 0)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 130000) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/// How long ago a moment was, in words; the moment itself is its title where it is shown.
export function ago(date) {
  const seconds = (Date.now() - new Date(date).getTime()) / 1000;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

export function moment(date) {
  return new Date(date).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function shorten(text, length = 80) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

/// `3-a1b2c3…` of a revision.
export function shortRev(rev) {
  return rev ? rev.replace(/^(\d+-.{7}).*$/, "$1") : "";
}
