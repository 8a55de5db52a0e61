// Elements made by function calls, lists updated by key, and values that tell who watches them.

const SVG = "http://www.w3.org/2000/svg";

/// An element. `props`: `class`, `style` (an object), `dataset`, `on…` listeners, properties that exist, else attributes.
/// Children: nodes, text, numbers, arrays of them; null, undefined and false are left out.
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/// An element of SVG.
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

/// Sets one property or attribute. False, null and undefined remove an attribute.
export function set(element, name, value) {
  if (name === "ref") value(element);
  else if (name.startsWith("on") && typeof value === "function") element.addEventListener(name.slice(2), value);
  else if (name === "class") element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value ?? "");
  else if (name === "style") setStyle(element, value ?? {});
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name in element && !(element instanceof SVGElement) && !name.includes("-") && !ATTRIBUTES.has(name)) element[name] = value ?? "";
  else if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

/// Names that are properties, too, but of another type or read-only.
const ATTRIBUTES = new Set(["list", "form", "role", "width", "height", "colspan", "rowspan", "href", "download", "for", "popover"]);

function setStyle(element, style) {
  for (const [name, value] of Object.entries(style)) {
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.style[name] = value ?? "";
  }
}

export function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/// Replaces what an element contains.
export function fill(element, ...children) {
  element.textContent = "";
  append(element, children);
  return element;
}

/// Brings the children of `parent` in line with `items` without making anew what stays. `make(item)` gives an element;
/// `update(element, item)` is called for those that are there already.
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.__key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = old.get(key);
    if (element) {
      old.delete(key);
      if (update) update(element, item);
    } else {
      element = make(item);
      element.__key = key;
    }
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of old.values()) element.remove();
}

/// A value that tells its watchers when it changes. `watch(fn, signal)` calls `fn` now and at each change until the
/// signal (of a view, say) is aborted.
export function state(value) {
  const watchers = new Set();
  return {
    get value() { return value; },
    set value(next) {
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    watch(fn, signal) {
      if (signal?.aborted) return;
      watchers.add(fn);
      signal?.addEventListener("abort", () => watchers.delete(fn));
      fn(value);
    },
  };
}

/// A controller that is aborted with `signal`, at once where that is aborted already: a view may be left while it is made.
export function within(signal) {
  const own = new AbortController();
  if (signal.aborted) own.abort();
  else signal.addEventListener("abort", () => own.abort());
  return own;
}

let ids = 0;
/// An id that no other element has.
export function uniqueId(prefix = "e") {
  ids += 1;
  return `${prefix}${ids}`;
}

/// Calls `fn` when nothing has called for `ms` milliseconds.
export function debounce(fn, ms = 200) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), ms);
  };
}

/// Waits; ends early, without an error, when the signal is aborted.
export function sleep(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); done(); });
  });
}

/// Runs `fn` now and every `ms` milliseconds until the signal is aborted; not while the page is hidden.
export async function every(ms, signal, fn) {
  while (!signal.aborted) {
    if (!document.hidden) await fn();
    await sleep(ms, signal);
  }
}
