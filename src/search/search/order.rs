//! The order of matches: sort values as integers that compare alike within one part, and as they are told.

use std::cmp::Ordering;

use fst::{IntoStreamer, Streamer};

use super::{SearchError, Sort, SortValue};
use crate::segment::{Column, Field, Kind, Numbers, Part, Segment, sortable, unsortable};

/// The radius of the earth at the equator, in kilometres.
const RADIUS: f64 = 6378.137;
/// Miles of a kilometre.
const MILES: f64 = 0.621_371_192;
/// The first and the last of the bytes with which a field's first word may begin so that it sorts as a number: an
/// accident of the reference, which takes such words for numbers of some precision.
const NUMBER_LIKE: std::ops::RangeInclusive<u8> = 0x20..=0x5f;

/// The order of relevance.
pub(crate) const BY_SCORE: [Sort; 1] = [Sort::Score { reverse: false }];

/// The order that a request names, or that of relevance.
pub(crate) fn or_by_score(sort: &[Sort]) -> &[Sort] {
    if sort.is_empty() { &BY_SCORE } else { sort }
}

/// A number of a field in one part.
struct Numeric(Option<Column>);

impl Numeric {
    fn read(part: &Part, name: &str) -> Result<Numeric, SearchError> {
        let field = part.segment.sorted_by(name);
        Ok(Numeric(field.map(|field| part.segment.column(&field.meta.numbers)).transpose()?))
    }

    fn get(&self, doc: u32) -> Option<f64> {
        let value = self.0.as_ref()?.get(doc);
        value.checked_sub(1).map(unsortable)
    }
}

enum Source<'a> {
    Score,
    Number,
    Numeric(Numeric),
    Text(Option<(&'a Field, Column)>),
    Distance { longitude: Numeric, latitude: Numeric, from: (f64, f64), is_miles: bool },
}

/// The order of one part's matches.
pub(crate) struct Order<'a> {
    sources: Vec<(Source<'a>, bool)>,
}

/// Refuses an order by numbers of a field that has only words.
pub(crate) fn check(sort: &[Sort], parts: &[Part]) -> Result<(), SearchError> {
    for sort in sort {
        match sort {
            Sort::Field { name, is_text: false, .. } => check_number(name, parts)?,
            Sort::Distance { longitude, latitude, .. } => {
                check_number(longitude, parts)?;
                check_number(latitude, parts)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_number(name: &str, parts: &[Part]) -> Result<(), SearchError> {
    let fields: Vec<&Field> = parts.iter().filter_map(|part| part.segment.field(Kind::Words, name)).collect();
    if fields.iter().any(|field| field.meta.points.1 > 0) {
        return Ok(());
    }
    let first = fields.iter().filter_map(|field| {
        let mut stream = field.dictionary.stream();
        stream.next().map(|(word, _)| word.to_vec())
    });
    match first.min().as_deref().and_then(|word| word.first()) {
        Some(byte) if !NUMBER_LIKE.contains(byte) => {
            Err(SearchError::Refused("cannot sort string field as numeric field".into()))
        }
        _ => Ok(()),
    }
}

impl<'a> Order<'a> {
    pub(crate) fn new(sort: &[Sort], part: &'a Part) -> Result<Order<'a>, SearchError> {
        let mut sources = Vec::with_capacity(sort.len());
        for sort in sort {
            sources.push(match sort {
                Sort::Score { reverse } => (Source::Score, !reverse),
                Sort::Number { reverse } => (Source::Number, *reverse),
                Sort::Field { name, is_text: false, reverse } => {
                    (Source::Numeric(Numeric::read(part, name)?), *reverse)
                }
                Sort::Field { name, is_text: true, reverse } => (Source::Text(text_column(part, name)?), *reverse),
                Sort::Distance { longitude, latitude, from, is_miles, reverse } => {
                    let longitude = Numeric::read(part, longitude)?;
                    let latitude = Numeric::read(part, latitude)?;
                    (Source::Distance { longitude, latitude, from: *from, is_miles: *is_miles }, *reverse)
                }
            });
        }
        Ok(Order { sources })
    }

    /// The sort values of a document as integers: less is earlier.
    pub(crate) fn keys(&self, doc: u32, score: f32, number: u64, output: &mut Vec<u64>) {
        output.clear();
        for (source, is_reverse) in &self.sources {
            let key = match source {
                Source::Score => sortable(f64::from(score)),
                Source::Number => number,
                Source::Numeric(numeric) => sortable(numeric.get(doc).unwrap_or(0.0)),
                // Places doubled leave room for words that are not in the dictionary.
                Source::Text(text) => text.as_ref().map_or(0, |(_, column)| column.get(doc) * 2),
                Source::Distance { .. } => sortable(source.distance(doc)),
            };
            output.push(if *is_reverse { !key } else { key });
        }
    }

    /// The sort values of a document as they are told, its number last.
    pub(crate) fn values(&self, doc: u32, score: f32, number: u64) -> Vec<SortValue> {
        let value = |source: &Source<'_>| match source {
            Source::Score => SortValue::Number(f64::from(score)),
            Source::Number => SortValue::Document(number),
            Source::Numeric(numeric) => SortValue::Number(numeric.get(doc).unwrap_or(0.0)),
            Source::Text(text) => SortValue::Text(text.as_ref().and_then(|(field, column)| word(field, column, doc))),
            Source::Distance { .. } => SortValue::Number(source.distance(doc)),
        };
        let mut values: Vec<SortValue> = self.sources.iter().map(|(source, _)| value(source)).collect();
        values.push(SortValue::Document(number));
        values
    }

    /// Sort values that were told as keys of this part, with the number behind.
    pub(crate) fn after(&self, after: &[SortValue]) -> Result<(Vec<u64>, u64), SearchError> {
        let refused = || SearchError::Refused("sort order not compatible with given bookmark".into());
        let Some((SortValue::Document(number), values)) = after.split_last() else { return Err(refused()) };
        if values.len() != self.sources.len() {
            return Err(refused());
        }
        let mut keys = Vec::with_capacity(values.len());
        for ((source, is_reverse), value) in self.sources.iter().zip(values) {
            let key = match (source, value) {
                (Source::Score, SortValue::Number(score)) => sortable(*score),
                (Source::Number, SortValue::Document(number)) => *number,
                (Source::Numeric(_) | Source::Distance { .. }, SortValue::Number(number)) => sortable(*number),
                // A shard that did not know the field had null for it.
                (Source::Numeric(_), SortValue::Text(None)) => sortable(0.0),
                (Source::Text(None), SortValue::Number(_)) => u64::MAX,
                (Source::Text(_), SortValue::Text(None)) => 0,
                (Source::Text(None), SortValue::Text(Some(_))) => u64::MAX,
                (Source::Text(Some((field, _))), SortValue::Text(Some(text))) => text_key(field, text),
                _ => return Err(refused()),
            };
            keys.push(if *is_reverse { !key } else { key });
        }
        Ok((keys, *number))
    }
}

impl Source<'_> {
    /// The distance of a document, half round the globe where it has no place.
    fn distance(&self, doc: u32) -> f64 {
        let Source::Distance { longitude, latitude, from, is_miles } = self else { return 0.0 };
        let radius = if *is_miles { RADIUS * MILES } else { RADIUS };
        let degrees = match (longitude.get(doc), latitude.get(doc)) {
            (Some(longitude), Some(latitude)) => haversine(*from, (longitude, latitude)).to_degrees(),
            _ => 180.0,
        };
        degrees * (1f64.to_radians() * radius)
    }
}

/// The angle between two places, given as longitude and latitude in degrees.
fn haversine(from: (f64, f64), to: (f64, f64)) -> f64 {
    let (longitude, latitude) = (from.0.to_radians(), from.1.to_radians());
    let (other_longitude, other_latitude) = (to.0.to_radians(), to.1.to_radians());
    if (longitude, latitude) == (other_longitude, other_latitude) {
        return 0.0;
    }
    let x = ((longitude - other_longitude) * 0.5).sin();
    let y = ((latitude - other_latitude) * 0.5).sin();
    let h = y * y + latitude.cos() * other_latitude.cos() * x * x;
    2.0 * h.sqrt().atan2((1.0 - h).max(0.0).sqrt())
}

fn text_column<'a>(part: &'a Part, name: &str) -> Result<Option<(&'a Field, Column)>, SearchError> {
    let Some(field) = part.segment.sorted_by(name) else { return Ok(None) };
    Ok(Some((field, part.segment.column(&field.meta.greatest)?)))
}

fn word(field: &Field, column: &Column, doc: u32) -> Option<String> {
    Segment::word_at(field, column.get(doc).checked_sub(1)?)
}

/// The key of a text: that of its word, or between those of its neighbours.
fn text_key(field: &Field, text: &str) -> u64 {
    let mut stream = field.dictionary.range().ge(text).into_stream();
    match stream.next() {
        Some((word, place)) if word == text.as_bytes() => (place + 1) * 2,
        Some((_, place)) => (place + 1) * 2 - 1,
        None => u64::MAX - 1,
    }
}

/// The text values of a field in one part, by which documents are grouped.
pub(crate) struct Texts<'a>(Option<(&'a Field, Column)>);

impl<'a> Texts<'a> {
    pub(crate) fn new(part: &'a Part, name: &str) -> Result<Texts<'a>, SearchError> {
        Ok(Texts(text_column(part, name)?))
    }

    /// A document's value as an integer, 0 where it has none.
    pub(crate) fn key(&self, doc: u32) -> u64 {
        self.0.as_ref().map_or(0, |(_, column)| column.get(doc))
    }

    /// The text of a key.
    pub(crate) fn text(&self, key: u64) -> Option<String> {
        let (field, _) = self.0.as_ref()?;
        Segment::word_at(field, key.checked_sub(1)?)
    }

    /// The key of a text; `None`: no document of the part has it.
    pub(crate) fn find(&self, text: Option<&str>) -> Option<u64> {
        match (text, &self.0) {
            (None, _) => Some(0),
            (Some(_), None) => None,
            (Some(text), Some((field, _))) => field.dictionary.get(text).map(|place| place + 1),
        }
    }
}

/// The order of two rows, without their documents' numbers.
pub(crate) fn compare(sort: &[Sort], a: &[SortValue], b: &[SortValue]) -> Ordering {
    for (sort, (a, b)) in sort.iter().zip(a.iter().zip(b)) {
        let order = match (a, b) {
            (SortValue::Text(a), SortValue::Text(b)) => a.cmp(b),
            (SortValue::Number(a), SortValue::Number(b)) => sortable(*a).cmp(&sortable(*b)),
            (SortValue::Document(a), SortValue::Document(b)) => a.cmp(b),
            _ => Ordering::Equal,
        };
        let order = if is_descending(sort) { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn is_descending(sort: &Sort) -> bool {
    match sort {
        Sort::Score { reverse } => !reverse,
        Sort::Number { reverse } | Sort::Field { reverse, .. } | Sort::Distance { reverse, .. } => *reverse,
    }
}

/// The number of the document at the end of an order.
pub(crate) fn last_number(order: &[SortValue]) -> u64 {
    match order.last() {
        Some(SortValue::Document(number)) => *number,
        _ => 0,
    }
}

/// Numbers and deleted documents of a part.
pub(crate) struct Live {
    pub(crate) numbers: Numbers,
    pub(crate) deleted: Option<super::bits::Bits>,
}

impl Live {
    pub(crate) fn new(part: &Part) -> Result<Live, SearchError> {
        let numbers = part.segment.numbers()?;
        let count = part.segment.document_count();
        let deleted = (part.deleted.count() > 0).then(|| {
            let mut bits = super::bits::Bits::new(count);
            for doc in part.deleted.iter().filter_map(|number| numbers.find(count, number)) {
                bits.set(doc);
            }
            bits
        });
        Ok(Live { numbers, deleted })
    }

    pub(crate) fn has(&self, doc: u32) -> bool {
        self.deleted.as_ref().is_none_or(|deleted| !deleted.has(doc))
    }
}
