// Controls of forms, each with its label.

import { h, uniqueId } from "../dom.js";
import { icon } from "./icons.js";

/// A button. `kind`: `primary`, `danger`, `ghost` or none; `icon`: a name. Its `onclick` may be async: the button is off
/// meanwhile.
export function button(label, { kind, icon: name, onclick, type = "button", small, iconOnly, title, ...props } = {}) {
  const element = h("button", {
    type, class: [kind, small && "small", iconOnly && "icon-only"], title: title ?? (iconOnly ? label : null),
    "aria-label": iconOnly ? label : null, ...props,
    onclick: onclick && (async (event) => {
      const answer = onclick(event);
      if (!(answer instanceof Promise)) return;
      element.disabled = true;
      element.classList.add("busy");
      try { await answer; } finally { element.disabled = false; element.classList.remove("busy"); }
    }),
  }, name ? icon(name) : null, iconOnly ? null : h("span", null, label));
  return element;
}

/// A link that looks like a button.
export function linkButton(label, href, { kind, icon: name, small, ...props } = {}) {
  return h("a", { href, class: ["button", kind, small && "small"], ...props }, name ? icon(name) : null, h("span", null, label));
}

/// A labelled control, with a hint below.
export function field(label, control, { hint, wide, inline } = {}) {
  const id = control.id || (control.id = uniqueId("f"));
  const hintId = hint ? uniqueId("hint") : null;
  if (hintId) control.setAttribute("aria-describedby", hintId);
  return h("div", { class: ["field", wide && "wide", inline && "inline"] },
    h("label", { class: "field-label", for: id }, label), control, hint ? h("p", { class: "hint", id: hintId }, hint) : null);
}

export function input(props = {}) {
  return h("input", { type: "text", autocomplete: "off", spellcheck: false, ...props });
}

export function select(options, props = {}) {
  const { value, ...rest } = props;
  const element = h("select", rest, options.map((option) => {
    const [key, label] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: key, selected: key === value }, label);
  }));
  return element;
}

/// A checkbox with its words.
export function checkbox(label, props = {}) {
  let box;
  const element = h("label", { class: "check" }, box = h("input", { type: "checkbox", ...props }), h("span", null, label));
  element.box = box;
  return element;
}

/// Buttons of which one is chosen.
export function segmented(label, options, value, onchange) {
  const name = uniqueId("seg");
  return h("div", { class: "segmented", role: "radiogroup", "aria-label": label }, options.map(([key, words, glyph]) =>
    h("label", { title: words }, h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => onchange(key) }),
      h("span", null, glyph ? icon(glyph) : null, h("span", { class: glyph ? "words" : null }, words)))));
}
