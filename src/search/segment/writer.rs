//! The bytes of a segment, written field by field.
//!
//! ```text
//!   data      of each field: postings, norms, greatest words, numbers, documents without norms
//!             stored values of each document, their places, the documents' numbers
//!   resident  directory of fields, dictionary of each field (an fst of words to places of postings)
//!   table     a checksum of four bytes for each block of the data
//!   foot      lengths of the three, checksum of resident part and table, version, mark
//! ```

use bytes::Bytes;
use fst::MapBuilder;

use super::codec::{put, put_bytes, short_checksum, sortable, width};
use super::column::ColumnMeta;
use super::postings::Postings;
use crate::document::Scoring;

/// Bytes of data under one checksum.
pub(crate) const BLOCK: u64 = 4096;
/// The format's version.
pub(crate) const VERSION: u32 = 1;
/// The last bytes of every segment.
pub(crate) const MARK: u32 = 0x4753_5453;
/// Bytes of the foot.
pub(crate) const FOOT: u64 = 40;

/// What a dictionary is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Words and numbers of a field.
    Words,
    /// Facets of a field.
    Facets,
    /// The least value of each document, of a field of which some document has several: what it is sorted by.
    Least,
}

/// The code of words with totals behind them.
pub(crate) const WORDS_WITH_TOTALS: u64 = 3;

/// What BM25 counts of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Documents that have a word.
    pub(crate) documents: u64,
    /// Words of all documents.
    pub(crate) words: u64,
}

/// Where what a field has stands.
#[derive(Clone, Debug)]
pub(crate) struct FieldMeta {
    /// The dictionary, from the beginning of the resident part.
    pub(crate) dictionary: (u64, u64),
    /// How many words it has.
    pub(crate) words: u64,
    /// Postings: offset, length.
    pub(crate) postings: (u64, u64),
    /// Length norms by document, but of documents without norms.
    pub(crate) norms: ColumnMeta,
    /// The greatest word of each document, as the place of its postings plus one.
    pub(crate) greatest: ColumnMeta,
    /// The greatest number of each document, plus one.
    pub(crate) numbers: ColumnMeta,
    /// Numbers in order, then their documents: offset, count.
    pub(crate) points: (u64, u64),
    /// Documents whose words have no norms: offset, length.
    pub(crate) no_norms: (u64, u64),
    /// Of the words of an index that is scored by BM25.
    pub(crate) totals: Option<Totals>,
}

/// What a field has besides its words.
#[derive(Default)]
pub(crate) struct FieldRest {
    /// Norm of each document, 0 where it has none.
    pub(crate) norms: Vec<u64>,
    /// Documents whose words have no norms, ascending.
    pub(crate) no_norms: Vec<u32>,
    /// Numbers as sortable integers with their documents, in order.
    pub(crate) points: Vec<(u64, u32)>,
}

/// Writes a segment.
pub(crate) struct Writer {
    data: Vec<u8>,
    documents: u32,
    fields: Vec<(Kind, String, FieldMeta)>,
    dictionaries: Vec<u8>,
    builder: Option<MapBuilder<Vec<u8>>>,
    words: u64,
    start: u64,
    greatest: Vec<u64>,
    scoring: Scoring,
    total: u64,
}

impl Writer {
    pub(crate) fn new(documents: u32, scoring: Scoring) -> Writer {
        Writer {
            scoring,
            total: 0,
            data: Vec::new(),
            documents,
            fields: Vec::new(),
            dictionaries: Vec::new(),
            builder: None,
            words: 0,
            start: 0,
            greatest: Vec::new(),
        }
    }

    /// Begins a field; fields come in the order of kind and name.
    pub(crate) fn start_field(&mut self) {
        self.builder = Some(MapBuilder::memory());
        (self.words, self.total) = (0, 0);
        self.start = self.data.len() as u64;
        self.greatest.clear();
        self.greatest.resize(self.documents as usize, 0);
    }

    /// Writes a word of the field; words come in the order of their bytes.
    pub(crate) fn word(&mut self, word: &[u8], postings: &Postings) {
        let place = self.data.len() as u64 - self.start;
        let Some(builder) = self.builder.as_mut().filter(|_| postings.documents() > 0) else { return };
        // Words come in order, so that the dictionary takes each of them.
        if builder.insert(word, place).is_err() {
            return;
        }
        self.words += 1;
        self.total += postings.total();
        postings.encode(&mut self.data);
        for doc in postings.docs() {
            self.greatest[*doc as usize] = place + 1;
        }
    }

    /// Ends a field. One that has nothing leaves nothing.
    pub(crate) fn end_field(&mut self, kind: Kind, name: &str, rest: &FieldRest) {
        let Some(dictionary) = self.builder.take().and_then(|builder| builder.into_inner().ok()) else { return };
        if self.words == 0 && rest.points.is_empty() {
            return;
        }
        let postings = (self.start, self.data.len() as u64 - self.start);
        let place = (self.dictionaries.len() as u64, dictionary.len() as u64);
        self.dictionaries.extend_from_slice(&dictionary);
        let none: Vec<u64> = vec![0; self.documents as usize];
        let norms =
            ColumnMeta::write(&mut self.data, self.documents, if rest.norms.is_empty() { &none } else { &rest.norms });
        let is_words = kind != Kind::Facets;
        let totals =
            Totals { documents: self.greatest.iter().filter(|place| **place != 0).count() as u64, words: self.total };
        let totals = (kind == Kind::Words && self.scoring == Scoring::Bm25).then_some(totals);
        let greatest = ColumnMeta::write(&mut self.data, self.documents, if is_words { &self.greatest } else { &none });
        let mut greatest_numbers = none;
        for (value, doc) in &rest.points {
            greatest_numbers[*doc as usize] = value + 1;
        }
        let numbers = ColumnMeta::write(&mut self.data, self.documents, &greatest_numbers);
        let points = (self.data.len() as u64, rest.points.len() as u64);
        for (value, _) in &rest.points {
            self.data.extend_from_slice(&value.to_le_bytes());
        }
        for (_, doc) in &rest.points {
            self.data.extend_from_slice(&doc.to_le_bytes());
        }
        let start = self.data.len() as u64;
        let mut last = 0;
        for doc in &rest.no_norms {
            put(&mut self.data, u64::from(doc - last));
            last = *doc;
        }
        let no_norms = (start, self.data.len() as u64 - start);
        let words = self.words;
        let meta = FieldMeta { dictionary: place, words, postings, norms, greatest, numbers, points, no_norms, totals };
        self.fields.push((kind, name.to_owned(), meta));
    }

    /// Ends the segment: numbers of the documents, stored values of each, and the names that those use by their place.
    pub(crate) fn finish(mut self, numbers: &[u64], names: &[String], stored: &[u8], places: &[u64]) -> Bytes {
        let stored_start = self.data.len() as u64;
        self.data.extend_from_slice(stored);
        let place_width = width(stored.len() as u64);
        let places_start = self.data.len() as u64;
        for place in places {
            self.data.extend_from_slice(&place.to_le_bytes()[..place_width]);
        }
        let first = numbers.first().copied().unwrap_or(0);
        let from_first: Vec<u64> = numbers.iter().map(|number| number - first + 1).collect();
        let number_column = ColumnMeta::write(&mut self.data, self.documents, &from_first);
        let mut directory = Vec::new();
        for value in [first, stored_start, stored.len() as u64, places_start, place_width as u64] {
            put(&mut directory, value);
        }
        number_column.encode(&mut directory);
        put(&mut directory, names.len() as u64);
        for name in names {
            put_bytes(&mut directory, name.as_bytes());
        }
        put(&mut directory, self.fields.len() as u64);
        for (kind, name, meta) in &self.fields {
            encode_field(&mut directory, *kind, name, meta);
        }
        let blocks = self.data.chunks(BLOCK as usize).map(short_checksum);
        let table: Vec<u8> = blocks.flat_map(u32::to_le_bytes).collect();
        let mut resident = directory;
        let directory_length = resident.len() as u64;
        resident.append(&mut self.dictionaries);
        let mut output = self.data;
        let data_length = output.len() as u64;
        let resident_length = resident.len() as u64;
        output.append(&mut resident);
        output.extend_from_slice(&table);
        for length in [data_length, directory_length, resident_length - directory_length] {
            output.extend_from_slice(&length.to_le_bytes());
        }
        output.extend_from_slice(&self.documents.to_le_bytes());
        let sum = short_checksum(&output[data_length as usize..]);
        output.extend_from_slice(&sum.to_le_bytes());
        output.extend_from_slice(&VERSION.to_le_bytes());
        output.extend_from_slice(&MARK.to_le_bytes());
        Bytes::from(output)
    }
}

fn encode_field(output: &mut Vec<u8>, kind: Kind, name: &str, meta: &FieldMeta) {
    put(output, if meta.totals.is_some() { WORDS_WITH_TOTALS } else { kind as u64 });
    put_bytes(output, name.as_bytes());
    put(output, meta.words);
    for (start, length) in [meta.dictionary, meta.postings, meta.points, meta.no_norms] {
        put(output, start);
        put(output, length);
    }
    for column in [meta.norms, meta.greatest, meta.numbers] {
        column.encode(output);
    }
    if let Some(Totals { documents, words }) = meta.totals {
        put(output, documents);
        put(output, words);
    }
}

/// A finite number as it is indexed.
pub(crate) fn point(value: f64) -> u64 {
    sortable(value)
}
