// A code editor: a textarea for all typing, and behind it a drawing of the lines that are in sight: numbers, colours,
// matching brackets, the line of an error. Lines do not wrap, so that each has its height.

import { h, fill, uniqueId, debounce } from "../dom.js";
import { tokens, matchingBracket } from "./highlight.js";
import { text } from "../text.js";

const LINE = 20;
/// Beyond this many characters in one line the line is not coloured.
const LONG_LINE = 5000;
/// JavaScript is coloured from its begin on, because comments go over lines; not beyond this many lines.
const STATE_LINES = 5000;

/// `value`, `language` (`json`, `javascript`, `text`), `label`, `readOnly`, `minLines`, `maxLines`, `oninput(value)`,
/// `onsave()` (Ctrl+S), `onrun()` (Ctrl+Enter), `check(value)` → `{line, column, message}` or null.
export function editor({ value = "", language = "json", label, readOnly = false, minLines = 4, maxLines = 30, oninput, onsave, onrun, check }) {
  const helpId = uniqueId("help"), errorId = uniqueId("error");
  const area = h("textarea", {
    class: "editor-text", value, readOnly, spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": label,
    "aria-describedby": `${helpId} ${errorId}`, oninput: changed, onscroll: draw, onkeydown: pressed,
  });
  const lines = h("div", { class: "editor-lines" });
  const numbers = h("div", { class: "editor-numbers" });
  const foot = h("p", { class: "editor-error", id: errorId, role: "status" });
  const view = h("div", { class: "editor-view", "aria-hidden": "true" }, lines);
  const pane = h("div", { class: "editor-pane" }, h("div", { class: "editor-gutter", "aria-hidden": "true" }, numbers), view, area);
  const element = h("div", { class: ["editor", readOnly && "read-only"] }, pane, foot,
    h("p", { class: "sr-only", id: helpId }, readOnly ? "" : text.editor.keys));
  let split = value.split("\n"), error = null, brackets = null, states = [], freeTab = false;

  function resize() {
    const shown = Math.min(Math.max(split.length, minLines), maxLines);
    pane.style.height = `${shown * LINE + 18}px`;
    element.style.setProperty("--digits", String(split.length).length);
  }
  function changed() {
    split = area.value.split("\n");
    states = [];
    resize();
    draw();
    checkSoon();
    oninput?.(area.value);
  }
  const checkNow = () => { if (check) setError(check(area.value)); };
  const checkSoon = debounce(checkNow, 250);

  function stateBefore(line) {
    if (language !== "javascript" || line > STATE_LINES) return "";
    for (let at = states.length; at < line; at += 1) states.push(tokens(split[at], language, states[at - 1] ?? "").state);
    return line ? states[line - 1] : "";
  }
  function draw() {
    const from = Math.max(0, Math.floor(area.scrollTop / LINE) - 5);
    const to = Math.min(split.length, from + Math.ceil((area.clientHeight || 400) / LINE) + 11);
    const move = `translate(${-area.scrollLeft}px, ${from * LINE - area.scrollTop}px)`;
    lines.style.transform = move;
    numbers.style.transform = `translateY(${from * LINE - area.scrollTop}px)`;
    let state = stateBefore(from);
    const shown = [], digits = [];
    for (let at = from; at < to; at += 1) {
      const line = split[at];
      const told = line.length > LONG_LINE ? { spans: [], state } : tokens(line, language, state);
      state = told.state;
      const isWrong = error?.line === at + 1;
      shown.push(h("div", { class: isWrong ? "line wrong" : "line" }, painted(line, told.spans, at)));
      digits.push(h("div", { class: isWrong ? "wrong" : null }, at + 1));
    }
    fill(lines, shown);
    fill(numbers, digits);
  }
  function painted(line, spans, at) {
    const marks = (brackets ?? []).filter((mark) => mark.line === at).map((mark) => mark.column);
    const out = [];
    let done = 0;
    const plain = (end) => {
      for (const column of marks.filter((mark) => mark >= done && mark < end).sort((a, b) => a - b)) {
        if (column > done) out.push(line.slice(done, column));
        out.push(h("span", { class: "t-bracket" }, line[column]));
        done = column + 1;
      }
      if (end > done) out.push(line.slice(done, end));
      done = end;
    };
    for (const span of spans) {
      plain(span.start);
      out.push(h("span", { class: "t-" + span.kind }, line.slice(span.start, span.end)));
      done = span.end;
    }
    plain(line.length);
    return out;
  }
  function place(position) {
    let line = 0, left = position;
    while (line < split.length && left > split[line].length) { left -= split[line].length + 1; line += 1; }
    return { line, column: left };
  }
  function setError(next) {
    error = next;
    fill(foot, error ? [error.line ? h("button", { type: "button", class: "link", onclick: () => goTo(error.line, error.column) }, text.editor.line(error.line)) : null, " " + error.message] : null);
    foot.hidden = !error;
    area.setAttribute("aria-invalid", Boolean(error));
    draw();
  }
  function goTo(line, column = 1) {
    const at = split.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
    area.focus();
    area.setSelectionRange(at, at);
    area.scrollTop = Math.max(0, (line - 4) * LINE);
  }
  /// Types text at the cursor so that it can be undone.
  function type(words) {
    if (!document.execCommand("insertText", false, words)) area.setRangeText(words, area.selectionStart, area.selectionEnd, "end");
  }
  function pressed(event) {
    const command = event.ctrlKey || event.metaKey;
    if (command && event.key === "s" && onsave) { event.preventDefault(); onsave(); return; }
    if (command && event.key === "Enter" && onrun) { event.preventDefault(); onrun(); return; }
    if (event.key === "Escape") { if (!freeTab) event.stopPropagation(); freeTab = true; return; }
    if (readOnly) return;
    if (event.key === "Tab" && !command && !event.altKey) {
      if (freeTab) { freeTab = false; return; }
      event.preventDefault();
      indent(event.shiftKey);
    } else if (event.key === "Enter" && !command) {
      event.preventDefault();
      const before = area.value.slice(0, area.selectionStart);
      const line = before.slice(before.lastIndexOf("\n") + 1);
      const own = /^\s*/.exec(line)[0];
      const opens = /[[{(]\s*$/.test(line);
      const shuts = opens && /^\s*[\]})]/.test(area.value.slice(area.selectionEnd));
      type("\n" + own + (opens ? "  " : ""));
      if (shuts) {
        const at = area.selectionStart;
        type("\n" + own);
        area.setSelectionRange(at, at);
      }
    } else if (event.key !== "Shift") freeTab = false;
  }
  function indent(isBack) {
    const { selectionStart: start, selectionEnd: end, value: all } = area;
    if (start === end && !isBack) { type("  "); return; }
    const from = all.lastIndexOf("\n", start - 1) + 1;
    const block = all.slice(from, end);
    const moved = isBack ? block.replace(/^ {1,2}/gm, "") : block.replace(/^/gm, "  ");
    area.setSelectionRange(from, end);
    type(moved);
    area.setSelectionRange(from, from + moved.length);
  }
  function findBrackets() {
    if (document.activeElement !== area) return;
    const found = area.selectionStart === area.selectionEnd && area.value.length < 1e6 ? matchingBracket(area.value, area.selectionStart) : null;
    const next = found ? found.map(place) : null;
    if (!next && !brackets) return;
    brackets = next;
    draw();
  }
  area.addEventListener("keyup", findBrackets);
  area.addEventListener("click", findBrackets);
  area.addEventListener("focus", () => { freeTab = false; });
  new ResizeObserver(draw).observe(area);
  resize();
  foot.hidden = true;
  draw();
  if (value) checkNow();

  return {
    element, area, setError, goTo,
    get value() { return area.value; },
    /// Other text; the history of the textarea's own undo ends with it.
    set value(next) {
      area.value = next;
      split = next.split("\n");
      states = [];
      brackets = null;
      resize();
      draw();
      checkNow();
    },
    get error() { checkNow(); return error; },
    set language(next) { language = next; states = []; draw(); },
    set readOnly(next) { area.readOnly = next; element.classList.toggle("read-only", next); },
    focus() { area.focus(); },
  };
}
