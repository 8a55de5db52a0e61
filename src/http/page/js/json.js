// JSON as text. Numbers stay as they are written (`1.0` is not `1`, integers have any size), members keep their order:
// what the page shows and sends is never a reading of `JSON.parse`.

import { text } from "./text.js";

export class JsonError extends Error {
  constructor(message, source, at) {
    super(message);
    const before = source.slice(0, at).split("\n");
    this.line = before.length;
    this.column = before.at(-1).length + 1;
    this.at = at;
  }
}

const SPACE = /[ \t\r\n]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const DEEP = 1000;

function space(source, at) {
  SPACE.lastIndex = at;
  SPACE.test(source);
  return SPACE.lastIndex;
}

function matched(pattern, source, at) {
  pattern.lastIndex = at;
  return pattern.test(source) ? pattern.lastIndex : -1;
}

function stringEnd(source, start) {
  for (let at = start + 1; ; at += 1) {
    const code = source.charCodeAt(at);
    if (code === 34) return at + 1;
    if (code === 92) {
      const sign = source[at + 1];
      if (sign === "u" && /^[0-9a-fA-F]{4}$/.test(source.slice(at + 2, at + 6))) at += 5;
      else if (sign && '"\\/bfnrt'.includes(sign)) at += 1;
      else throw new JsonError(text.json.escape, source, at);
    } else if (!(code >= 32)) throw new JsonError(text.json.string, source, Number.isNaN(code) ? start : at);
  }
}

/// Walks over one value; calls `out` with each token: `{ } [ ] , : "…" 12 true`. Answers where it ends.
function value(source, at, out, depth) {
  const sign = source[at];
  if (depth > DEEP) throw new JsonError(text.json.deep, source, at);
  if (sign === '"') {
    const end = stringEnd(source, at);
    out?.(source.slice(at, end), "value", at);
    return end;
  }
  if (sign === "{" || sign === "[") return container(source, at, out, depth, sign === "{");
  let end = matched(NUMBER, source, at);
  if (end < 0) end = matched(WORD, source, at);
  if (end < 0) throw new JsonError(sign === undefined ? text.json.end : sign === "'" ? text.json.quotes : sign === "}" || sign === "]" || sign === "," ? text.json.missing : text.json.value(shown(source, at)), source, at);
  out?.(source.slice(at, end), "value", at);
  return end;
}

function shown(source, at) {
  return /^[\w$.+-]{1,20}|./.exec(source.slice(at, at + 20))?.[0] ?? "";
}

function container(source, start, out, depth, isObject) {
  const close = isObject ? "}" : "]";
  out?.(source[start], "open", start);
  let at = space(source, start + 1), count = 0;
  const names = isObject ? new Set() : null;
  while (source[at] !== close || count) {
    if (isObject) {
      if (source[at] !== '"') throw new JsonError(source[at] === undefined ? text.json.end : source[at] === close ? text.json.comma : text.json.name, source, at);
      const end = stringEnd(source, at);
      const name = source.slice(at, end);
      if (names.has(name)) throw new JsonError(text.json.twice(name), source, at);
      names.add(name);
      out?.(name, "name", at);
      at = space(source, end);
      if (source[at] !== ":") throw new JsonError(text.json.colon(name), source, at);
      at = space(source, at + 1);
    } else if (source[at] === close) throw new JsonError(text.json.comma, source, at);
    at = space(source, value(source, at, out, depth + 1));
    count += 1;
    if (source[at] === close) break;
    if (source[at] !== ",") throw new JsonError(source[at] === undefined ? text.json.end : text.json.between(close), source, at);
    out?.(",", "comma", at);
    at = space(source, at + 1);
  }
  out?.(close, "close", at);
  return at + 1;
}

function whole(source, out) {
  const end = space(source, value(source, space(source, 0), out, 0));
  if (end < source.length) throw new JsonError(text.json.behind, source, end);
}

/// Null, or what is wrong and where: `{line, column, message}`. `wants`: `object` or `array`.
export function check(source, wants) {
  try {
    whole(source, null);
    const first = source[space(source, 0)];
    if (wants === "object" && first !== "{") throw new JsonError(text.json.object, source, 0);
    if (wants === "array" && first !== "[") throw new JsonError(text.json.array, source, 0);
    return null;
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return error;
  }
}

/// From this size on a text is formatted densely, because browsers lay out a text area by its lines.
const DENSE_FROM = 200000;
/// Up to this many characters a list or object without others in it stays in one line then.
const DENSE_LINE = 100;

/// Whether a text of this size is formatted densely.
export function isDense(source) {
  return source.length > DENSE_FROM;
}

/// The text with one member a line and two spaces for each level; `dense`: short lists and objects in one line. Throws a
/// `JsonError`.
export function format(source, dense = isDense(source)) {
  const out = [], open = [];
  let fresh = false;
  const line = () => out.push("\n", "  ".repeat(open.length));
  whole(source, (token, kind) => {
    const inner = open.at(-1);
    if (kind === "close") {
      open.pop();
      if (dense && inner.short !== null && inner.short.length < DENSE_LINE) {
        out.length = inner.at;
        out.push(inner.short + token);
      } else {
        if (!fresh) line();
        out.push(token);
      }
      fresh = false;
      return;
    }
    if (fresh) line();
    fresh = false;
    if (inner && inner.short !== null) {
      if (kind === "open" || inner.short.length > DENSE_LINE) inner.short = null;
      else inner.short += kind === "name" ? token + ": " : kind === "comma" ? ", " : token;
    }
    if (kind === "open") {
      open.push({ at: out.length, short: dense ? token : null });
      fresh = true;
      out.push(token);
    } else if (kind === "comma") {
      out.push(",");
      line();
    } else if (kind === "name") out.push(token, ": ");
    else out.push(token);
  });
  return out.join("");
}

/// The text without white space.
export function compact(source) {
  const out = [];
  whole(source, (token, kind) => out.push(token, kind === "name" ? ":" : ""));
  return out.join("");
}

/// The members of an object, or the elements of an array, one level deep: `[{name, text}]`.
export function members(source) {
  const out = [];
  let depth = 0, name = null, from = 0;
  whole(source, (token, kind, at) => {
    if (kind === "close") depth -= 1;
    if (depth === 1 && kind === "name") name = JSON.parse(token);
    else if (depth === 1 && (kind === "value" || kind === "open")) from = at;
    if (depth === 1 && (kind === "value" || kind === "close")) out.push({ name, text: source.slice(from, at + token.length) });
    if (kind === "open") depth += 1;
  });
  return out;
}

/// An object from members, in their order.
export function object(list) {
  return "{" + list.map((member) => JSON.stringify(member.name) + ":" + member.text).join(",") + "}";
}

/// The text with members set or, where the value is undefined, removed. Values are texts of JSON.
export function withMembers(source, changes) {
  const left = new Map(Object.entries(changes));
  const list = [];
  for (const member of members(source)) {
    if (!left.has(member.name)) list.push(member);
    else if (left.get(member.name) !== undefined) list.push({ name: member.name, text: left.get(member.name) });
    left.delete(member.name);
  }
  for (const [name, written] of left) if (written !== undefined) list.push({ name, text: written });
  return object(list);
}

/// Cuts a stream of text into the elements of the array at a depth: 1 for `[…]`, 2 for `{"docs": […]}`. The first array that
/// is found at depth 1, or within an object, counts.
export class Elements {
  constructor() {
    this.rest = "";
    this.at = 0;
    this.depth = 0;
    this.inString = false;
    this.from = -1;
    /// The depth of the elements, known once the array has begun.
    this.level = 0;
    this.stack = "";
    this.ended = false;
  }

  /// Takes text; answers the elements that it completed.
  push(chunk) {
    const out = [];
    this.rest += chunk;
    const source = this.rest;
    let at = this.at;
    for (; at < source.length; at += 1) {
      const code = source.charCodeAt(at);
      if (this.inString) {
        if (code === 92) {
          if (at + 1 >= source.length) break;
          at += 1;
        } else if (code === 34) this.inString = false;
        continue;
      }
      if (code === 34) this.inString = true;
      if (code === 91 || code === 123) {
        this.stack += code === 91 ? "[" : "{";
        if (!this.level && code === 91 && this.stack.length <= 2) {
          this.level = this.stack.length;
          this.from = at + 1;
        }
      } else if (code === 93 || code === 125) {
        if (this.level && this.stack.length === this.level) {
          this.cut(out, source, at);
          this.level = 99;
          this.ended = true;
        }
        this.stack = this.stack.slice(0, -1);
      } else if (code === 44 && this.stack.length === this.level) {
        this.cut(out, source, at);
        this.from = at + 1;
      }
    }
    const keep = this.level && !this.ended ? this.from : at;
    this.rest = source.slice(keep);
    this.at = at - keep;
    this.from = 0;
    return out;
  }

  cut(out, source, at) {
    const piece = source.slice(this.from, at).trim();
    if (piece) out.push(piece);
  }
}
