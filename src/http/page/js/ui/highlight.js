// Tokens of JSON and JavaScript for colouring, line by line.

const KEYWORDS = new Set(("break case catch class const continue debugger default delete do else extends finally for function if in instanceof let new of "
  + "return static super switch this throw try typeof var void while with yield async await").split(" "));
const ATOMS = new Set(["true", "false", "null", "undefined", "NaN", "Infinity"]);
const BUILT_IN = new Set(["emit", "index", "log", "sum", "isArray", "toJSON", "require", "exports", "module", "Math", "JSON", "Object", "Array", "Date", "String", "Number"]);

/// Patterns in one expression; which group matched says what it is. Comments and template strings may go on in the next
/// line: `state` is `""`, `"comment"` or `"template"`.
const JS = /(\/\/.*)|(\/\*)|(`)|("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(\b\d[\w.]*(?:[eE][+-]?\d+)?)|([A-Za-z_$][\w$]*)|(\/(?![*/])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*)/g;
const JSON_TOKENS = /("(?:[^"\\]|\\.)*"?)(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;

/// Spans of one line: `[{start, end, kind}]`, and the state after it.
export function tokens(line, language, state = "") {
  if (language === "json") return { spans: jsonSpans(line), state: "" };
  if (language === "javascript") return jsSpans(line, state);
  return { spans: [], state: "" };
}

function jsonSpans(line) {
  const spans = [];
  JSON_TOKENS.lastIndex = 0;
  for (let found; (found = JSON_TOKENS.exec(line));) {
    const [all, string, colon, number] = found;
    const kind = string ? (colon ? "name" : "string") : number ? "number" : "atom";
    spans.push({ start: found.index, end: found.index + (string ? string.length : all.length), kind });
  }
  return spans;
}

function jsSpans(line, state) {
  const spans = [];
  let at = 0;
  const closing = (end, kind, from) => {
    const found = line.slice(from).search(end);
    const stop = found < 0 ? line.length : from + found + (kind === "comment" ? 2 : 1);
    spans.push({ start: at, end: stop, kind: kind === "template" ? "string" : kind });
    at = stop;
    return found < 0 ? kind : "";
  };
  if (state === "comment") state = closing(/\*\//, "comment", 0);
  else if (state === "template") state = closing(/`/, "template", 0);
  while (at < line.length && !state) {
    JS.lastIndex = at;
    const found = JS.exec(line);
    if (!found) break;
    const [all, comment, block, template, string, number, word, pattern] = found;
    at = found.index;
    if (block) { state = closing(/\*\//, "comment", at + 2); continue; }
    if (template) { state = closing(/`/, "template", at + 1); continue; }
    // A slash behind a value divides.
    if (pattern && /[\w$)\]]\s*$/.test(line.slice(0, at))) { at += 1; continue; }
    const kind = comment ? "comment" : string || pattern ? "string" : number ? "number"
      : KEYWORDS.has(word) ? "keyword" : ATOMS.has(word) ? "atom" : BUILT_IN.has(word) ? "built-in" : null;
    at += all.length;
    if (kind) spans.push({ start: at - all.length, end: at, kind });
  }
  return { spans, state };
}

const PAIRS = { "(": ")", "[": "]", "{": "}" };
const CLOSING = { ")": "(", "]": "[", "}": "{" };
const FAR = 200000;

/// The positions of the bracket before or behind the cursor and of its partner, or null. Text in strings is passed over
/// by their quotes only, which is enough to see what belongs together.
export function matchingBracket(text, at) {
  for (const place of [at - 1, at]) {
    const sign = text[place];
    if (PAIRS[sign]) return seek(text, place, 1, sign, PAIRS[sign]);
    if (CLOSING[sign]) return seek(text, place, -1, sign, CLOSING[sign]);
  }
  return null;
}

function seek(text, start, step, same, partner) {
  let depth = 0, quoted = false;
  for (let at = start; at >= 0 && at < text.length && Math.abs(at - start) < FAR; at += step) {
    const sign = text[at];
    if (sign === '"' && text[at - 1] !== "\\") quoted = !quoted;
    if (sign === "\n") quoted = false;
    if (quoted) continue;
    if (sign === same) depth += 1;
    else if (sign === partner) depth -= 1;
    if (depth === 0) return [start, at];
  }
  return null;
}
