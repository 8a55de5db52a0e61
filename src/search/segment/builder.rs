//! Documents to a segment: words are collected field by field, ordered, and written.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

use bytes::Bytes;

use super::codec::{length_byte, norm_byte, put, put_bytes};
use super::postings::Postings;
use super::writer::{FieldRest, Kind, Writer, point};
use crate::analysis::{Analyzer, Token};
use crate::document::{Document, Field, ID, Indexed, Scoring, Value};

/// Bytes of the longest word; longer ones are not indexed.
const MAX_WORD: usize = 32_766;

/// Keys without chance, so that equal input does equal work. The order of entries is used nowhere.
type Ids = HashMap<Box<[u8]>, u32, BuildHasherDefault<DefaultHasher>>;

/// One place of a word.
struct Place {
    word: u32,
    doc: u32,
    position: u32,
}

/// What was collected of one field.
#[derive(Default)]
struct Collected {
    ids: Ids,
    places: Vec<Place>,
    norms: Vec<(u32, u8)>,
    no_norms: Vec<u32>,
    points: Vec<(u64, u32)>,
}

/// A word that every analyzer which leaves words out keeps as it is.
const PROBE: &str = "0";

/// The words of one document's field, instance behind instance.
struct InDocument<'a> {
    next: u32,
    /// The text before and where it began: words that were left out at its end count as soon as another text follows.
    before: Option<(&'a str, u32)>,
    length: u32,
    boost: f32,
    omits: bool,
}

impl Default for InDocument<'_> {
    fn default() -> Self {
        InDocument { next: 0, before: None, length: 0, boost: 1.0, omits: false }
    }
}

impl InDocument<'_> {
    /// Passes over the words that were left out at the end of the text before.
    fn pass_end(&mut self, name: &str, analyzer: &Analyzer) {
        let Some((text, start)) = self.before.take() else { return };
        let last = tokens(analyzer, name, &format!("{text} {PROBE}")).pop();
        if let Some(last) = last.filter(|last| last.text == PROBE) {
            self.next = self.next.max(start.saturating_add(last.position));
        }
    }
}

impl Collected {
    fn add(&mut self, word: &str, doc: u32, position: u32) {
        if word.len() > MAX_WORD {
            return;
        }
        let next = self.ids.len() as u32;
        let word = match self.ids.get(word.as_bytes()) {
            Some(id) => *id,
            None => {
                self.ids.insert(word.as_bytes().into(), next);
                next
            }
        };
        self.places.push(Place { word, doc, position });
    }

    /// Whether the document that was added last has a word.
    fn has(&self, word: &str, doc: u32) -> bool {
        let Some(id) = self.ids.get(word.as_bytes()) else { return false };
        self.places.iter().rev().take_while(|place| place.doc == doc).any(|place| place.word == *id)
    }

    /// Writes the field.
    fn write(self, writer: &mut Writer, documents: u32, kind: Kind, name: &str) {
        writer.start_field();
        let mut words: Vec<(Box<[u8]>, u32)> = self.ids.into_iter().collect();
        words.sort_unstable();
        let mut counts = vec![0usize; words.len() + 1];
        for place in &self.places {
            counts[place.word as usize + 1] += 1;
        }
        for word in 1..counts.len() {
            counts[word] += counts[word - 1];
        }
        let mut ends = counts.clone();
        let mut ordered = vec![(0u32, 0u32); self.places.len()];
        for place in &self.places {
            let end = &mut ends[place.word as usize];
            ordered[*end] = (place.doc, place.position);
            *end += 1;
        }
        let mut postings = Postings::default();
        let mut positions = Vec::new();
        for (word, id) in words {
            postings.clear();
            let places = &ordered[counts[id as usize]..counts[id as usize + 1]];
            for group in places.chunk_by(|a, b| a.0 == b.0) {
                positions.clear();
                if kind == Kind::Words {
                    positions.extend(group.iter().map(|(_, position)| *position));
                    positions.sort_unstable();
                }
                postings.push(group[0].0, &positions);
            }
            writer.word(&word, &postings);
        }
        let mut rest = FieldRest { no_norms: self.no_norms, points: self.points, ..FieldRest::default() };
        rest.points.sort_unstable();
        if !self.norms.is_empty() {
            rest.norms = vec![0; documents as usize];
            for (doc, norm) in self.norms {
                rest.norms[doc as usize] = u64::from(norm);
            }
        }
        writer.end_field(kind, name, &rest);
    }
}

/// The tokens of a text of `field`; the field of ids is one token.
pub(crate) fn tokens(analyzer: &Analyzer, field: &str, text: &str) -> Vec<Token> {
    if field == ID {
        return vec![Token { text: text.to_owned(), position: 0, start: 0, end: text.len() }];
    }
    analyzer.tokens(field, text)
}

/// Collects documents.
struct Builder<'d> {
    fields: BTreeMap<(Kind, String), Collected>,
    scoring: Scoring,
    /// Fields that are sorted by the least of a document's values, as some document has several.
    several: BTreeSet<&'d str>,
}

/// Whether matches are sorted by a field: numbers, and text as it is.
fn is_sorted_by(field: &Field) -> bool {
    match &field.value {
        Value::Number(number) => number.is_finite() && field.options.index != Indexed::Stored,
        _ => field.options.index == Indexed::NotAnalyzedNoNorms,
    }
}

/// Fields with several values in one document.
fn several(documents: &[Document]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for document in documents {
        let mut seen = BTreeSet::new();
        for field in document.fields.iter().filter(|field| is_sorted_by(field)) {
            if !seen.insert(field.name.as_str()) {
                found.insert(field.name.as_str());
            }
        }
    }
    found
}

impl Builder<'_> {
    /// Adds the least value of each field that has several somewhere.
    fn least(&mut self, doc: u32, document: &Document) {
        let mut numbers: BTreeMap<&str, f64> = BTreeMap::new();
        let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
        for field in document.fields.iter().filter(|field| self.several.contains(field.name.as_str())) {
            if !is_sorted_by(field) {
                continue;
            }
            match &field.value {
                Value::Number(number) => {
                    let least = numbers.entry(&field.name).or_insert(*number);
                    *least = least.min(*number);
                }
                Value::Text(text) => {
                    let least = texts.entry(&field.name).or_insert(text);
                    *least = (*least).min(text);
                }
                Value::Bool(_) => {}
            }
        }
        for (name, number) in numbers {
            self.collected(Kind::Least, name).points.push((point(number), doc));
        }
        for (name, text) in texts {
            self.collected(Kind::Least, name).add(text, doc, 0);
        }
    }

    fn document(&mut self, doc: u32, document: &Document, analyzer: &Analyzer) {
        let mut within: BTreeMap<&str, InDocument<'_>> = BTreeMap::new();
        self.one_token(ID, &document.id, doc, within.entry(ID).or_default());
        within.entry(ID).or_default().omits = true;
        for field in &document.fields {
            self.field(doc, field, analyzer, within.entry(&field.name).or_default());
        }
        let scoring = self.scoring;
        for (name, state) in within {
            if state.length == 0 {
                continue;
            }
            let collected = self.words(name);
            if state.omits {
                collected.no_norms.push(doc);
            } else {
                let length = (1.0 / f64::from(state.length).sqrt()) as f32;
                let norm = match scoring {
                    Scoring::TfIdf => norm_byte(state.boost * length),
                    Scoring::Bm25 => length_byte(state.length),
                };
                collected.norms.push((doc, norm));
            }
        }
        if !self.several.is_empty() {
            self.least(doc, document);
        }
    }

    fn words(&mut self, name: &str) -> &mut Collected {
        self.collected(Kind::Words, name)
    }

    fn collected(&mut self, kind: Kind, name: &str) -> &mut Collected {
        self.fields.entry((kind, name.to_owned())).or_default()
    }

    fn one_token(&mut self, name: &str, text: &str, doc: u32, state: &mut InDocument<'_>) {
        self.words(name).add(text, doc, state.next);
        state.next += 1;
        state.length += 1;
    }

    fn field<'a>(&mut self, doc: u32, field: &'a Field, analyzer: &Analyzer, state: &mut InDocument<'a>) {
        let options = &field.options;
        if !matches!(options.index, Indexed::No | Indexed::Stored) && !matches!(field.value, Value::Number(_)) {
            state.pass_end(&field.name, analyzer);
        }
        match &field.value {
            _ if options.index == Indexed::Stored => {}
            Value::Number(number) if number.is_finite() => self.words(&field.name).points.push((point(*number), doc)),
            Value::Number(_) => {}
            Value::Bool(_) if options.index == Indexed::No => {}
            Value::Bool(value) => self.one_token(&field.name, if *value { "true" } else { "false" }, doc, state),
            Value::Text(text) => {
                if options.facet && !text.is_empty() && (options.store || options.index != Indexed::No) {
                    let facets = self.fields.entry((Kind::Facets, field.name.clone())).or_default();
                    facets.add(text, doc, 0);
                }
                self.text(doc, field, text, analyzer, state);
            }
        }
    }

    fn text<'a>(&mut self, doc: u32, field: &Field, text: &'a str, analyzer: &Analyzer, state: &mut InDocument<'a>) {
        let before = state.next;
        let length = state.length;
        match field.options.index {
            Indexed::No | Indexed::Stored => return,
            // Of a value that stands twice in a document it counts only that it is there.
            Indexed::NotAnalyzedNoNorms if self.scoring == Scoring::Bm25 && self.words(&field.name).has(text, doc) => {}
            Indexed::NotAnalyzed | Indexed::NotAnalyzedNoNorms => self.one_token(&field.name, text, doc, state),
            Indexed::Analyzed | Indexed::AnalyzedNoNorms => {
                let collected = self.words(&field.name);
                let mut last = None;
                for token in tokens(analyzer, &field.name, text) {
                    let Some(position) = before.checked_add(token.position) else { break };
                    collected.add(&token.text, doc, position);
                    // Words at one position count once in the length.
                    state.length += u32::from(last != Some(token.position));
                    last = Some(token.position);
                    state.next = position + 1;
                }
                state.before = Some((text, before));
            }
        }
        if state.length > length {
            state.boost *= field.options.boost;
            state.omits |= matches!(field.options.index, Indexed::AnalyzedNoNorms | Indexed::NotAnalyzedNoNorms);
        }
    }
}

/// The stored values of a document. Names are told by their place in `names`.
pub(crate) fn store(output: &mut Vec<u8>, id: &str, fields: &[(&str, &Value)], names: &[String]) {
    put_bytes(output, id.as_bytes());
    put(output, fields.len() as u64);
    for (name, value) in fields {
        let place = names.binary_search_by(|known| known.as_str().cmp(name)).unwrap_or(0) as u64;
        let text = match value {
            Value::Number(number) => {
                put(output, place << 1 | 1);
                output.extend_from_slice(&number.to_le_bytes());
                continue;
            }
            Value::Text(text) => text.as_str(),
            Value::Bool(value) => {
                if *value {
                    "true"
                } else {
                    "false"
                }
            }
        };
        put(output, place << 1);
        put_bytes(output, text.as_bytes());
    }
}

fn stored_fields(document: &Document) -> Vec<(&str, &Value)> {
    let is_kept =
        |field: &&Field| field.options.store && !matches!(&field.value, Value::Number(number) if !number.is_finite());
    document.fields.iter().filter(is_kept).map(|field| (field.name.as_str(), &field.value)).collect()
}

/// The bytes of a segment of `documents`, which stand in ascending order of their numbers. Equal input, equal bytes.
///
/// A word that is longer than 32,766 bytes is not indexed.
pub fn build(documents: &[Document], analyzer: &Analyzer) -> Bytes {
    let count = documents.len() as u32;
    let scoring = analyzer.scoring();
    let several = if scoring == Scoring::Bm25 { several(documents) } else { BTreeSet::new() };
    let mut builder = Builder { fields: BTreeMap::new(), scoring, several };
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (doc, document) in documents.iter().enumerate() {
        builder.document(doc as u32, document, analyzer);
        names.extend(stored_fields(document).iter().map(|(name, _)| *name));
    }
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let mut writer = Writer::new(count, scoring);
    for ((kind, name), collected) in builder.fields {
        collected.write(&mut writer, count, kind, &name);
    }
    let mut stored = Vec::new();
    let mut places = Vec::with_capacity(documents.len());
    let mut numbers = Vec::with_capacity(documents.len());
    for document in documents {
        places.push(stored.len() as u64);
        numbers.push(document.number);
        store(&mut stored, &document.id, &stored_fields(document), &names);
    }
    writer.finish(&numbers, &names, &stored, &places)
}
