// Dialogs, questions, short messages.

import { h, fill, uniqueId } from "../dom.js";
import { icon } from "./icons.js";
import { button } from "./form.js";
import { text } from "../text.js";

/// Opens a modal dialog; answers `{element, close, done}`; `done` is a promise of what `close(value)` was given
/// (undefined when it was dismissed). `content(close)` gives the nodes of its body, `actions(close)` those of its foot.
export function dialog({ title, content, actions, wide = false, onsubmit }) {
  let finish;
  const done = new Promise((resolve) => { finish = resolve; });
  const id = uniqueId("dialog");
  const opener = document.activeElement;
  const close = (value) => { element.result = value; element.close(); };
  const body = h("form", {
    class: "dialog-body", method: "dialog", noValidate: true,
    onsubmit: (event) => { event.preventDefault(); onsubmit?.(close); },
  });
  const element = h("dialog", { class: ["dialog", wide && "wide"], "aria-labelledby": id }, body);
  fill(body,
    h("header", { class: "dialog-head" }, h("h2", { id }, title),
      h("button", { type: "button", class: "ghost small", "aria-label": text.app.close, onclick: () => close() }, icon("close"))),
    h("div", { class: "dialog-content" }, content?.(close)),
    actions ? h("footer", { class: "dialog-foot" }, actions(close)) : null);
  element.addEventListener("close", () => {
    element.remove();
    finish(element.result);
    if (opener?.isConnected) opener.focus();
  });
  // A press beside the dialog closes it only if it began there.
  let pressed = null;
  element.addEventListener("pointerdown", (event) => { pressed = event.target; });
  element.addEventListener("click", (event) => { if (event.target === element && pressed === element) close(); });
  document.body.append(element);
  element.showModal();
  // The first control rather than the cross; where there is none the action.
  const first = body.querySelector("[autofocus], .dialog-content :is(input, select, textarea, button)") ?? body.querySelector(".dialog-foot :is(.primary, button:last-child)");
  first?.focus();
  return { element, close, done };
}

/// A question; answers whether it was agreed to. With `typed` the action stays off until that text was typed.
export function confirm({ title, message, action, danger = false, typed, details }) {
  let input = null;
  const agree = (close) => { if (!typed || input.value === typed) close(true); };
  const yes = button(action, { kind: danger ? "danger" : "primary", type: "submit", disabled: Boolean(typed) });
  const shown = dialog({
    title,
    onsubmit: agree,
    content: () => [
      h("p", null, message), details ?? null,
      typed ? h("label", { class: "field" }, h("span", { class: "field-label" }, text.app.typeToConfirm(typed)),
        input = h("input", { type: "text", autocomplete: "off", spellcheck: false, autofocus: true, class: "mono",
          oninput: () => { yes.disabled = input.value !== typed; } })) : null,
    ],
    actions: (close) => [button(text.app.cancel, { onclick: () => close(false) }), yes],
  });
  // What cannot be undone is not one press of Enter away.
  if (!typed && danger) shown.element.querySelector(".dialog-foot button")?.focus();
  return shown.done.then(Boolean);
}

let shelf = null;
/// A short message at the foot of the page. `kind`: `ok`, `error`, `info`. `action`: `{label, run}`.
export function toast(message, { kind = "ok", action, ms } = {}) {
  if (!shelf) {
    shelf = h("div", { class: "toasts", role: "status", "aria-live": "polite", popover: "manual" });
    document.body.append(shelf);
  }
  const gone = () => element.remove();
  const element = h("div", { class: ["toast", kind] }, icon(kind === "error" ? "warning" : kind === "ok" ? "check" : "info"),
    h("span", { class: "grow" }, message),
    action ? h("button", { type: "button", class: "link", onclick: () => { gone(); action.run(); } }, action.label) : null,
    h("button", { type: "button", class: "ghost small", "aria-label": text.app.close, onclick: gone }, icon("close")));
  shelf.append(element);
  // In the top layer, above dialogs.
  if (shelf.matches(":popover-open")) shelf.hidePopover?.();
  shelf.showPopover?.();
  setTimeout(gone, ms ?? (kind === "error" ? 12000 : action ? 8000 : 4000));
}

/// An error as a block: what happened and what to do next.
export function problem(error, { retry } = {}) {
  return h("div", { class: "notice error", role: "alert" }, icon("warning"),
    h("div", { class: "grow" }, h("p", { class: "strong" }, error.message), error.next ? h("p", null, error.next) : null,
      error.request ? h("p", { class: "faint mono small" }, error.request, error.status ? ` → ${error.status}` : "") : null),
    retry ? button(text.app.retry, { onclick: retry, icon: "refresh" }) : null);
}

/// A notice: `kind` is `info`, `warning`, `error` or `ok`.
export function notice(kind, ...content) {
  return h("div", { class: ["notice", kind], role: kind === "error" ? "alert" : null }, icon(kind === "ok" ? "check" : kind === "info" ? "info" : "warning"),
    h("div", { class: "grow" }, content));
}

/// Runs something and tells its failure as a short message; answers its value, or undefined.
export async function attempt(run, { ok } = {}) {
  try {
    const value = await run();
    if (ok) toast(typeof ok === "function" ? ok(value) : ok);
    return value ?? true;
  } catch (error) {
    if (error.name !== "AbortError") toast(h("span", null, h("strong", null, error.message), error.next ? " " + error.next : ""), { kind: "error" });
    return undefined;
  }
}
