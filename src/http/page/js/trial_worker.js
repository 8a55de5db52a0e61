// Runs functions of design documents over samples, away from the page: a worker without access to anything. Its own
// content security policy allows `eval` here and forbids every request.

/* global self */
const rows = [];
let current = null, typed = false;

function compile(source) {
  // As in a design document: an expression that is a function; a semicolon behind it does not matter.
  const value = (0, eval)("(" + source.trim().replace(/;+\s*$/, "") + ")");
  if (typeof value !== "function") throw new TypeError("This is not a function.");
  return value;
}

const logged = [];
Object.assign(self, {
  emit: (key, value) => { rows.push({ id: current, key: key === undefined ? null : key, value: value === undefined ? null : value }); },
  log: (message) => { if (logged.length < 50) logged.push(typeof message === "string" ? message : JSON.stringify(message)); },
  sum: (values) => values.reduce((a, b) => a + b, 0),
  isArray: Array.isArray,
  toJSON: JSON.stringify,
  // As `_search` has it; where fields have types the type stands first.
  index: (...given) => {
    const [name, value, options] = typed ? given.slice(1) : given;
    const shown = typed ? { type: given[0], value, options } : options ? { value, options } : value;
    rows.push({ id: current, key: name, value: shown });
  },
  require: () => { throw new Error("require() is there on the node only."); },
});

// A policy forbids requests, too; without these a function is told so at once.
for (const name of ["fetch", "XMLHttpRequest", "WebSocket", "WebTransport", "EventSource", "Worker", "BroadcastChannel", "importScripts", "indexedDB", "caches"]) self[name] = undefined;

function freeze(value) {
  if (value && typeof value === "object") { Object.values(value).forEach(freeze); Object.freeze(value); }
  return value;
}

function place(error) {
  const at = /<anonymous>:(\d+):(\d+)/.exec(error.stack ?? "");
  return { message: `${error.name}: ${error.message}`, line: at ? Number(at[1]) : null };
}

self.onmessage = ({ data }) => {
  const errors = [];
  try {
    if (data.task === "map") {
      typed = data.typed;
      const map = compile(data.source);
      for (const doc of data.docs) {
        current = doc._id;
        try { map(freeze(doc)); } catch (error) { if (errors.length < 50) errors.push({ id: current, ...place(error) }); }
      }
      self.postMessage({ rows: JSON.parse(JSON.stringify(rows)), errors, logged });
    } else {
      const reduce = compile(data.source);
      const results = data.groups.map((group) => {
        try { return { key: group.key, value: reduce(group.keys, group.values, false) ?? null }; } catch (error) { errors.push({ id: JSON.stringify(group.key), ...place(error) }); return { key: group.key, value: null }; }
      });
      self.postMessage({ rows: JSON.parse(JSON.stringify(results)), errors, logged });
    }
  } catch (error) {
    self.postMessage({ broken: place(error), rows: [], errors, logged });
  }
};
