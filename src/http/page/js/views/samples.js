// Sample data: a small library with books, readers and loans, a design document and an index to try everything with.

import { post, put, path } from "../api.js";

const BOOKS = [
  ["dune", "Dune", "Frank Herbert", 1965, ["science fiction", "desert"], 4.6, "A desert planet, its spice, and a family that is sent to rule it."],
  ["solaris", "Solaris", "Stanisław Lem", 1961, ["science fiction"], 4.2, "Scientists study an ocean that studies them."],
  ["left-hand", "The Left Hand of Darkness", "Ursula K. Le Guin", 1969, ["science fiction"], 4.3, "An envoy on a winter planet learns whom to trust."],
  ["neuromancer", "Neuromancer", "William Gibson", 1984, ["science fiction", "cyberpunk"], 4.0, "A console cowboy is hired for one last run."],
  ["emma", "Emma", "Jane Austen", 1815, ["novel", "comedy"], 4.0, "A matchmaker misreads everybody, herself first."],
  ["middlemarch", "Middlemarch", "George Eliot", 1871, ["novel"], 4.1, "A provincial town, its marriages and its hopes."],
  ["moby-dick", "Moby-Dick", "Herman Melville", 1851, ["novel", "sea"], 3.9, "A captain hunts the whale that took his leg."],
  ["treasure-island", "Treasure Island", "Robert Louis Stevenson", 1883, ["adventure", "sea"], 4.1, "A map, a parrot and a cook with one leg."],
  ["kon-tiki", "Kon-Tiki", "Thor Heyerdahl", 1948, ["travel", "sea"], 4.2, "Six men cross the Pacific on a raft."],
  ["origin", "On the Origin of Species", "Charles Darwin", 1859, ["science"], 4.0, "How species come to be and to differ."],
  ["cosmos", "Cosmos", "Carl Sagan", 1980, ["science", "space"], 4.5, "Fifteen billion years in thirteen chapters."],
  ["silent-spring", "Silent Spring", "Rachel Carson", 1962, ["science", "nature"], 4.1, "What pesticides do to birds, water and us."],
];
const READERS = [["ada", "Ada", "London"], ["grace", "Grace", "New York"], ["linus", "Linus", "Helsinki"], ["margaret", "Margaret", "Boston"]];

const MAPS = {
  by_author: { map: "function (doc) {\n  if (doc.type === 'book') {\n    emit(doc.author, doc.title);\n  }\n}" },
  by_tag: { map: "function (doc) {\n  (doc.tags || []).forEach(function (tag) {\n    emit(tag, doc.rating);\n  });\n}", reduce: "_stats" },
  loans_by_month: { map: "function (doc) {\n  if (doc.type === 'loan') {\n    emit(doc.date.split('-').map(Number), 1);\n  }\n}", reduce: "_sum" },
};
const INDEX = "function (doc) {\n  if (doc.type !== 'book') return;\n  index('default', [doc.title, doc.about].concat(doc.tags).join(' '));\n  index('title', doc.title, { store: true });\n  index('about', doc.about, { store: true });\n  index('author', doc.author, { facet: true, store: true });\n  index('year', doc.year, { store: true });\n}";

/// The documents of the sample; in a partitioned database the type is the partition.
export function sampleDocs(isPartitioned) {
  const id = (type, name) => (isPartitioned ? `${type}:${name}` : `${type}-${name}`);
  const docs = BOOKS.map(([name, title, author, year, tags, rating, about]) => ({ _id: id("book", name), type: "book", title, author, year, tags, rating, about }));
  for (const [name, first, city] of READERS) docs.push({ _id: id("reader", name), type: "reader", name: first, city, since: 2019 + name.length });
  for (let at = 0; at < 40; at += 1) {
    const date = new Date(Date.UTC(2026, 0, 3 + at * 7));
    docs.push({
      _id: id("loan", String(at + 1).padStart(4, "0")), type: "loan", book: id("book", BOOKS[(at * 5) % BOOKS.length][0]), reader: id("reader", READERS[(at * 3) % READERS.length][0]),
      date: date.toISOString().slice(0, 10), days: 7 + ((at * 11) % 21), returned: at % 7 !== 0,
    });
  }
  return docs;
}

/// Stores the sample in a database.
export async function addSamples(db, isPartitioned = false) {
  const note = new Blob(["These documents are samples.\nDelete the database when you have seen enough.\n"], { type: "text/plain" });
  const docs = sampleDocs(isPartitioned);
  docs[0]._attachments = { "read me.txt": { content_type: "text/plain", data: btoa(await note.text()) } };
  docs.push({
    _id: "_design/library", language: "javascript", ...(isPartitioned ? { options: { partitioned: false } } : {}), views: MAPS, indexes: { books: { analyzer: "english", index: INDEX } },
  });
  await post(path(db, "_bulk_docs"), { docs });
  await post(path(db, "_index"), { index: { fields: ["type", "year"] }, ddoc: "by-type-and-year", name: "by-type-and-year", ...(isPartitioned ? { partitioned: false } : {}) });
}

/// Makes a database with the sample under the first name that is free, and answers the name.
export async function sampleDatabase() {
  for (let at = 1; ; at += 1) {
    const db = at === 1 ? "library" : `library-${at}`;
    try {
      await put(path(db), undefined);
    } catch (error) {
      if (error.status === 412 && at < 50) continue;
      throw error;
    }
    await addSamples(db);
    return db;
  }
}
