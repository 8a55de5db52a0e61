//! Segments that are open for reading.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fst::Map;

use super::codec::{fixed, get, get_bytes, get_text, get32, short_checksum, sortable};
use super::column::{Column, ColumnMeta};
use super::postings::{Docs, Head, Positions};
use super::writer::{BLOCK, FOOT, FieldMeta, Kind, MARK, Totals, VERSION, WORDS_WITH_TOTALS};
use super::{SegmentError, Source};
use crate::document::{ID, Scoring};
use crate::search::Stored;

/// Bytes that are read at once where one record begins.
const RECORD: u64 = 256;
/// Bytes that a search reads at once where records follow each other.
pub(crate) const WINDOW: u64 = 8 << 10;
/// Bytes of the longest head of a record.
const HEAD: u64 = 25;
/// Bytes of a number and of a document's place in the points of a field.
const POINT: u64 = 8;
const PLACE: u64 = 4;
/// Bytes of memory of a field besides its dictionary.
const FIELD_MEMORY: usize = 400;

type Dictionary = Map<Bytes>;

/// What a segment knows of a field.
pub(crate) struct Field {
    pub(crate) meta: FieldMeta,
    pub(crate) dictionary: Dictionary,
}

/// What is in memory of a segment.
struct Resident {
    source: Arc<dyn Source>,
    documents: u32,
    data: u64,
    table: Bytes,
    fields: BTreeMap<(Kind, String), Field>,
    first: u64,
    numbers: ColumnMeta,
    names: Vec<String>,
    stored: (u64, u64),
    places: (u64, usize),
    memory: usize,
}

/// A segment that is open for reading: its dictionary is in memory, the rest is read as it is needed. Cheap to clone.
#[derive(Clone)]
pub struct Segment {
    resident: Arc<Resident>,
}

/// The postings of one word, before they are read.
#[derive(Clone)]
pub(crate) struct Found {
    /// Documents that have the word, deleted ones too.
    pub(crate) documents: u32,
    doc_range: (u64, u64),
    position_range: (u64, u64),
}

impl Found {
    /// Where its documents stand: offset, length.
    pub(crate) fn doc_range(&self) -> (u64, u64) {
        self.doc_range
    }

    /// Where its positions stand: offset, length.
    pub(crate) fn position_range(&self) -> (u64, u64) {
        self.position_range
    }
}

/// Bytes of a segment that were read last, for reads that follow each other.
pub(crate) struct Window {
    size: u64,
    start: u64,
    bytes: Bytes,
}

impl Window {
    /// A window that reads so many bytes at once.
    pub(crate) fn new(size: u64) -> Window {
        Window { size, start: 0, bytes: Bytes::new() }
    }

    /// Some of the data; as little of it as there is beyond `length` is read with it.
    pub(crate) fn read(&mut self, segment: &Segment, start: u64, length: u64) -> Result<Bytes, SegmentError> {
        let end = start.checked_add(length).ok_or(SegmentError::Damaged("a range"))?;
        if start < self.start || end > self.start + self.bytes.len() as u64 {
            let left = segment.resident.data.saturating_sub(start);
            self.bytes = segment.read(start, length.max(self.size.min(left)))?;
            self.start = start;
        }
        let from = (start - self.start) as usize;
        Ok(self.bytes.slice(from..from + length as usize))
    }
}

/// What a document stores.
pub(crate) struct StoredDocument {
    /// Its id.
    pub(crate) id: String,
    /// Its values with their names, in the order in which they were indexed.
    pub(crate) fields: Vec<(String, Stored)>,
}

const FOOT_DAMAGE: SegmentError = SegmentError::Damaged("foot");
const DIRECTORY_DAMAGE: SegmentError = SegmentError::Damaged("directory");

impl Segment {
    /// Reads what is kept in memory.
    pub fn open(source: Arc<dyn Source>) -> Result<Segment, SegmentError> {
        let length = source.len();
        let foot_start = length.checked_sub(FOOT).ok_or(FOOT_DAMAGE)?;
        let foot = exact(&*source, foot_start..length)?;
        let part = |from: usize, to: usize| fixed(&foot[from..to]);
        if part(36, 40) != u64::from(MARK) {
            return Err(FOOT_DAMAGE);
        }
        if part(32, 36) != u64::from(VERSION) {
            return Err(SegmentError::Damaged("version"));
        }
        let (data, directory, dictionaries) = (part(0, 8), part(8, 16), part(16, 24));
        let documents = part(24, 28) as u32;
        let table = data.div_ceil(BLOCK).checked_mul(PLACE);
        let total = [Some(data), Some(directory), Some(dictionaries), table, Some(FOOT)]
            .into_iter()
            .try_fold(0u64, |sum, part| sum.checked_add(part?));
        if total != Some(length) {
            return Err(FOOT_DAMAGE);
        }
        let resident = exact(&*source, data..length)?;
        let checked = &resident[..resident.len() - 12];
        if u64::from(short_checksum(checked)) != part(28, 32) {
            return Err(SegmentError::Damaged("checksum of the directory"));
        }
        let table_start = (directory + dictionaries) as usize;
        let table = resident.slice(table_start..resident.len() - FOOT as usize);
        let dictionaries = resident.slice(directory as usize..table_start);
        let mut read = Resident {
            memory: resident.len() + size_of::<Resident>(),
            source,
            documents,
            data,
            table,
            fields: BTreeMap::new(),
            first: 0,
            numbers: ColumnMeta::default(),
            names: Vec::new(),
            stored: (0, 0),
            places: (0, 0),
        };
        read.directory(&resident[..directory as usize], &dictionaries)?;
        Ok(Segment { resident: Arc::new(read) })
    }

    /// How many documents it has, deleted ones too.
    pub fn document_count(&self) -> u32 {
        self.resident.documents
    }

    /// Bytes of memory that it holds while it is open.
    pub fn memory(&self) -> usize {
        self.resident.memory
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &(Kind, String)> {
        self.resident.fields.keys()
    }

    pub(crate) fn field(&self, kind: Kind, name: &str) -> Option<&Field> {
        self.resident.fields.get(&(kind, name.to_owned()))
    }

    /// What matches are sorted by: the least value of each document where some have several.
    pub(crate) fn sorted_by(&self, name: &str) -> Option<&Field> {
        self.field(Kind::Least, name).or_else(|| self.field(Kind::Words, name))
    }

    /// Whether matches are scored by BM25.
    pub(crate) fn scoring(&self) -> Scoring {
        match self.field(Kind::Words, ID).is_some_and(|field| field.meta.totals.is_some()) {
            true => Scoring::Bm25,
            false => Scoring::TfIdf,
        }
    }

    pub(crate) fn has_facets(&self) -> bool {
        self.resident.fields.keys().any(|(kind, _)| *kind == Kind::Facets)
    }

    /// Some of the data, checked.
    pub(crate) fn read(&self, start: u64, length: u64) -> Result<Bytes, SegmentError> {
        let inner = &*self.resident;
        let end = start.checked_add(length).filter(|end| *end <= inner.data).ok_or(SegmentError::Damaged("a range"))?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let from = start / BLOCK * BLOCK;
        let to = end.div_ceil(BLOCK).saturating_mul(BLOCK).min(inner.data);
        let bytes = exact(&*inner.source, from..to)?;
        for (place, block) in bytes.chunks(BLOCK as usize).enumerate() {
            let entry = ((from / BLOCK) as usize + place) * PLACE as usize;
            let sum = inner.table.get(entry..entry + PLACE as usize).ok_or(FOOT_DAMAGE)?;
            if short_checksum(block).to_le_bytes() != sum {
                return Err(SegmentError::Damaged("checksum of a block"));
            }
        }
        Ok(bytes.slice((start - from) as usize..(end - from) as usize))
    }

    /// The postings of a word of a field.
    pub(crate) fn find(&self, field: &Field, word: &[u8]) -> Result<Option<Found>, SegmentError> {
        let mut window = Window::new(RECORD);
        field.dictionary.get(word).map(|place| self.found(field, place, &mut window)).transpose()
    }

    /// The postings at a place of a field.
    pub(crate) fn found(&self, field: &Field, place: u64, window: &mut Window) -> Result<Found, SegmentError> {
        let (start, length) = field.meta.postings;
        let left = length.checked_sub(place).ok_or(SegmentError::Damaged("a dictionary"))?;
        let at = start + place;
        let head = Head::decode(&window.read(self, at, left.min(HEAD))?)?;
        let docs = at + head.length as u64;
        Ok(Found {
            documents: head.documents.min(self.document_count()),
            doc_range: (docs, head.doc_bytes),
            position_range: (docs.saturating_add(head.doc_bytes), head.position_bytes),
        })
    }

    /// The documents of a word.
    pub(crate) fn docs(&self, found: &Found, window: &mut Window) -> Result<Docs, SegmentError> {
        let bytes = window.read(self, found.doc_range.0, found.doc_range.1)?;
        Ok(Docs::new(bytes, found.documents, self.document_count()))
    }

    /// The positions of a word.
    pub(crate) fn positions(&self, found: &Found, window: &mut Window) -> Result<Positions, SegmentError> {
        Ok(Positions::new(window.read(self, found.position_range.0, found.position_range.1)?))
    }

    /// Whether length norms of a field count: none of its documents goes without.
    pub(crate) fn has_norms(field: &Field) -> bool {
        field.meta.no_norms.1 == 0 && field.meta.points.1 == 0
    }

    /// Documents whose words of the field have no norms.
    pub(crate) fn no_norms(&self, field: &Field) -> Result<Vec<u32>, SegmentError> {
        let bytes = self.read(field.meta.no_norms.0, field.meta.no_norms.1)?;
        let (mut at, mut last, mut output) = (0, 0u32, Vec::new());
        while at < bytes.len() {
            last = last.checked_add(get32(&bytes, &mut at)?).ok_or(DIRECTORY_DAMAGE)?;
            output.push(last);
        }
        Ok(output)
    }

    pub(crate) fn column(&self, meta: &ColumnMeta) -> Result<Column, SegmentError> {
        meta.read(self)
    }

    /// The word whose postings stand at this place.
    pub(crate) fn word_at(field: &Field, place: u64) -> Option<String> {
        let key = field.dictionary.as_fst().get_key(place)?;
        String::from_utf8(key).ok()
    }

    /// Numbers of a field from one to another, both counting, with their documents.
    pub(crate) fn points(&self, field: &Field, low: u64, high: u64) -> Result<Vec<u32>, SegmentError> {
        let (start, count) = field.meta.points;
        if low > high || count == 0 {
            return Ok(Vec::new());
        }
        let from = self.first_point(start, count, low)?;
        let to = match high.checked_add(1) {
            Some(next) => self.first_point(start, count, next)?,
            None => count,
        };
        let bytes = self.read(start + count * POINT + from * PLACE, to.saturating_sub(from) * PLACE)?;
        let docs: Vec<u32> = bytes.chunks_exact(PLACE as usize).map(|doc| fixed(doc) as u32).collect();
        if docs.iter().any(|doc| *doc >= self.document_count()) {
            return Err(SegmentError::Damaged("a document's place"));
        }
        Ok(docs)
    }

    /// How many numbers are less than this.
    fn first_point(&self, start: u64, count: u64, value: u64) -> Result<u64, SegmentError> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            if fixed(&self.read(start + middle * POINT, POINT)?) < value {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// All numbers of a field with their documents.
    pub(crate) fn all_points(&self, field: &Field) -> Result<Vec<(u64, u32)>, SegmentError> {
        let (start, count) = field.meta.points;
        let values = self.read(start, count * POINT)?;
        let docs = self.read(start + count * POINT, count * PLACE)?;
        let values = values.chunks_exact(POINT as usize).map(fixed);
        Ok(values.zip(docs.chunks_exact(PLACE as usize).map(|doc| fixed(doc) as u32)).collect())
    }

    /// The numbers of all documents.
    pub(crate) fn numbers(&self) -> Result<Numbers, SegmentError> {
        Ok(Numbers { first: self.resident.first, column: self.column(&self.resident.numbers)? })
    }

    /// What a document stores.
    pub(crate) fn stored(&self, doc: u32) -> Result<StoredDocument, SegmentError> {
        self.stored_in(doc, &mut [Window::new(0), Window::new(0)])
    }

    /// What a document stores, read through windows of places and of values.
    pub(crate) fn stored_in(&self, doc: u32, windows: &mut [Window; 2]) -> Result<StoredDocument, SegmentError> {
        let inner = &*self.resident;
        let (start, width) = inner.places;
        let is_last = doc + 1 >= inner.documents;
        let length = if is_last { width } else { 2 * width };
        let places = windows[0].read(self, start + u64::from(doc) * width as u64, length as u64)?;
        let from = fixed(&places[..width]);
        let to = if is_last { inner.stored.1 } else { fixed(&places[width..]) };
        let length = to.checked_sub(from).filter(|_| to <= inner.stored.1).ok_or(SegmentError::Damaged("a place"))?;
        decode_stored(&windows[1].read(self, inner.stored.0 + from, length)?, &inner.names)
    }
}

/// Numbers of documents by their places.
pub(crate) struct Numbers {
    first: u64,
    column: Column,
}

impl Numbers {
    pub(crate) fn get(&self, doc: u32) -> u64 {
        self.first.wrapping_add(self.column.get(doc)).wrapping_sub(1)
    }

    /// The document of a number.
    pub(crate) fn find(&self, documents: u32, number: u64) -> Option<u32> {
        let (mut low, mut high) = (0, documents);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle) < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < documents && self.get(low) == number).then_some(low)
    }
}

impl Resident {
    fn directory(&mut self, bytes: &[u8], dictionaries: &Bytes) -> Result<(), SegmentError> {
        let at = &mut 0;
        self.first = get(bytes, at)?;
        self.stored = (get(bytes, at)?, get(bytes, at)?);
        self.places = (get(bytes, at)?, get(bytes, at)? as usize);
        if !(1..=8).contains(&self.places.1) {
            return Err(DIRECTORY_DAMAGE);
        }
        self.numbers = ColumnMeta::decode(bytes, at, self.documents)?;
        for _ in 0..get(bytes, at)? {
            let name = get_text(bytes, at)?.to_owned();
            self.memory += name.len() + size_of::<String>();
            self.names.push(name);
        }
        for _ in 0..get(bytes, at)? {
            self.field(bytes, at, dictionaries)?;
        }
        Ok(())
    }

    fn field(&mut self, bytes: &[u8], at: &mut usize, dictionaries: &Bytes) -> Result<(), SegmentError> {
        let code = get(bytes, at)?;
        let kind = match code {
            0 | WORDS_WITH_TOTALS => Kind::Words,
            1 => Kind::Facets,
            2 => Kind::Least,
            _ => return Err(DIRECTORY_DAMAGE),
        };
        let name = get_text(bytes, at)?.to_owned();
        let words = get(bytes, at)?;
        let mut pairs = [(0, 0); 4];
        for pair in &mut pairs {
            *pair = (get(bytes, at)?, get(bytes, at)?);
        }
        let mut columns = [ColumnMeta::default(); 3];
        for column in &mut columns {
            *column = ColumnMeta::decode(bytes, at, self.documents)?;
        }
        let [dictionary, postings, points, no_norms] = pairs;
        let [norms, greatest, numbers] = columns;
        let end = dictionary.0.checked_add(dictionary.1).filter(|end| *end <= dictionaries.len() as u64);
        let end = end.ok_or(DIRECTORY_DAMAGE)?;
        let totals = match code {
            WORDS_WITH_TOTALS => Some(Totals { documents: get(bytes, at)?, words: get(bytes, at)? }),
            _ => None,
        };
        let meta = FieldMeta { dictionary, words, postings, norms, greatest, numbers, points, no_norms, totals };
        let map = Map::new(dictionaries.slice(dictionary.0 as usize..end as usize));
        let map = map.map_err(|_| SegmentError::Damaged("a dictionary"))?;
        self.memory += name.len() + FIELD_MEMORY;
        self.fields.insert((kind, name), Field { meta, dictionary: map });
        Ok(())
    }
}

fn exact(source: &dyn Source, range: Range<u64>) -> Result<Bytes, SegmentError> {
    let length = range.end - range.start;
    let bytes = source.read(range)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(SegmentError::Damaged("a short read")) }
}

fn decode_stored(bytes: &[u8], names: &[String]) -> Result<StoredDocument, SegmentError> {
    let at = &mut 0;
    let id = get_text(bytes, at)?.to_owned();
    let mut fields = Vec::new();
    for _ in 0..get(bytes, at)? {
        let head = get(bytes, at)?;
        let name = names.get((head >> 1) as usize).ok_or(SegmentError::Damaged("a stored name"))?.clone();
        if head & 1 == 0 {
            let text = std::str::from_utf8(get_bytes(bytes, at)?).map_err(|_| SegmentError::Damaged("stored text"))?;
            fields.push((name, Stored::Text(text.to_owned())));
        } else {
            let number = bytes.get(*at..*at + 8).ok_or(SegmentError::Damaged("a stored number"))?;
            *at += 8;
            fields.push((name, Stored::Number(f64::from_bits(fixed(number)))));
        }
    }
    Ok(StoredDocument { id, fields })
}

/// The least and the greatest sortable integer of a range of numbers; `None`: it is empty.
pub(crate) fn bounds(lower: f64, upper: f64, has_lower: bool, has_upper: bool) -> Option<(u64, u64)> {
    let low = sortable(lower).checked_add(u64::from(!has_lower))?;
    let high = sortable(upper).checked_sub(u64::from(!has_upper))?;
    (low <= high).then_some((low, high))
}
