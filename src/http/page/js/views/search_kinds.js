// The two forms of full-text indexes: `_search` (as Clouseau has it) and `_nouveau`, with what differs between them.

import { text } from "../text.js";

const t = text.search;
/// Signs for private use that mark what is highlighted.
export const MARKS = ["\ue000", "\ue001"];

const LANGUAGES = ["arabic", "armenian", "basque", "bulgarian", "catalan", "cjk", "chinese", "czech", "danish", "dutch", "english", "finnish", "french", "galician", "german", "hindi", "hungarian", "indonesian", "irish", "italian", "japanese", "latvian", "norwegian", "persian", "polish", "romanian", "russian", "spanish", "swedish", "thai", "turkish"];
const COMMON = ["standard", "keyword", "simple", "simple_asciifolding", "whitespace", "classic", "email"];

/// Names that calls of `index` in a function give, with whether they are stored and counted.
function named(source, isTyped) {
  const found = { all: [], stored: [], counted: [] };
  const pattern = isTyped ? /index\(\s*["'](\w+)["']\s*,\s*["']([^"']+)["']\s*,[^;]*?(\{[^}]*\})?\s*\)/g : /index\(\s*()["']([^"']+)["']\s*,[^;]*?(\{[^}]*\})?\s*\)/g;
  const add = (list, name) => { if (!list.includes(name)) list.push(name); };
  for (const [, type, name, options = ""] of source.matchAll(pattern)) {
    add(found.all, name);
    if (/store["']?\s*:\s*(true|["']yes)/.test(options)) add(found.stored, name);
    if (isTyped ? type === "string" : /facet["']?\s*:\s*true/.test(options)) add(found.counted, name);
  }
  return found;
}

export const KINDS = {
  search: {
    member: "indexes", call: "_search", info: "_search_info", analyze: "_search_analyze", analyzerMember: "analyzer",
    analyzers: [...COMMON, ...LANGUAGES, "brazilian", "greek", "portuguese"].sort(),
    template: "function (doc) {\n  if (doc.name) {\n    index('name', doc.name, { store: true });\n  }\n}",
    rangesHint: '{"year":{"old":"[0 TO 1900]"}}', placeholder: t.placeholder, hasHighlights: true, hasGroups: true, typed: false,
    fields: (source) => named(source, false),
    canDrill: () => true,
    /// Further members of the definition of an index.
    extra: () => ({}),
    /// The body of a request; `form` has what was typed.
    body: (form) => ({
      q: form.q, limit: form.group ? undefined : form.limit, sort: form.sort, ranges: form.group ? undefined : form.ranges, include_docs: form.docs || undefined, stale: form.asIs ? "ok" : undefined,
      bookmark: form.bookmark, drilldown: form.drill.length ? form.drill : undefined, counts: form.counts.length && !form.group ? form.counts : undefined,
      ...(form.highlight.length ? { highlight_fields: form.highlight, highlight_pre_tag: MARKS[0], highlight_post_tag: MARKS[1], highlight_number: 2, highlight_size: 160 } : {}),
      ...(form.group ? { group_field: form.group, group_limit: 5 } : {}),
    }),
    read: (answer) => ({ ...answer, total: answer.total_rows ?? answer.total_grouped_hits, rows: answer.groups ? answer.groups.flatMap((group) => group.rows) : answer.rows }),
    sizes: (info) => ({ documents: info.doc_count, bytes: info.disk_size }),
  },
  nouveau: {
    member: "nouveau", call: "_nouveau", info: "_nouveau_info", analyze: "_nouveau_analyze", analyzerMember: "default_analyzer",
    analyzers: [...COMMON, ...LANGUAGES, "portugese"].sort(),
    template: "function (doc) {\n  if (doc.name) {\n    index('text', 'name', doc.name, { store: true });\n  }\n}",
    rangesHint: '{"year":[{"label":"old","max":1900}]}', placeholder: t.placeholderTyped, hasHighlights: false, hasGroups: false, typed: true,
    fields: (source) => named(source, true),
    /// A query finds a string as a whole where its analyzer leaves it whole.
    canDrill: (about, field) => (about.field_analyzers?.[field] ?? about.default_analyzer ?? "standard") === "keyword",
    extra: (about, source) => {
      const whole = Object.fromEntries(named(source, true).counted.map((field) => [field, "keyword"]));
      return Object.keys(whole).length ? { field_analyzers: { ...whole, ...about?.field_analyzers } } : {};
    },
    body: (form) => ({
      // There is no drill-down: what was pressed is a part of the query.
      q: [form.drill.length && form.q !== "*:*" ? `(${form.q})` : form.q, ...form.drill.map(([field, value]) => `${field}:${JSON.stringify(value)}`)].join(" AND "),
      limit: form.limit, sort: form.sort, ranges: form.ranges, include_docs: form.docs || undefined, update: form.asIs ? false : undefined, bookmark: form.bookmark, counts: form.counts.length ? form.counts : undefined,
    }),
    read: (answer) => ({
      bookmark: answer.bookmark, counts: answer.counts, ranges: answer.ranges, total: answer.total_hits,
      rows: answer.hits.map((hit) => ({ ...hit, order: hit.order?.map((part) => part?.value ?? part) })),
    }),
    sizes: (info) => ({ documents: info.num_docs, bytes: info.disk_size }),
  },
};
