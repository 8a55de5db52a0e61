//! Several segments to one: fields and words in their order, deleted documents left out.

use std::collections::BTreeSet;

use bytes::Bytes;
use fst::map::OpBuilder;

use super::builder::store;
use super::postings::Postings;
use super::reader::{Field, Segment, Window};
use super::writer::{FieldRest, Kind, Writer};
use super::{Part, SegmentError};
use crate::document::Value;
use crate::search::Stored;

/// The place of a document that is left out.
const GONE: u32 = u32::MAX;

/// Bytes that are read at once of each part.
const WINDOW: u64 = 64 << 10;

/// A part with the new places of its documents.
struct Source<'a> {
    segment: &'a Segment,
    places: Vec<u32>,
}

/// The bytes of one segment with the documents of several that count, in their order: the bytes that [`super::build`]
/// makes of those documents. The parts follow each other: numbers of one are above those of the one before. Reads and
/// writes bounded blocks; the result is in memory.
pub fn merge(parts: &[Part]) -> Result<Bytes, SegmentError> {
    let mut sources = Vec::with_capacity(parts.len());
    let mut numbers: Vec<u64> = Vec::new();
    for part in parts {
        let known = part.segment.numbers()?;
        let mut places = vec![GONE; part.segment.document_count() as usize];
        for (doc, place) in places.iter_mut().enumerate() {
            let number = known.get(doc as u32);
            if part.deleted.contains(number) {
                continue;
            }
            if numbers.last().is_some_and(|last| *last >= number) {
                return Err(SegmentError::Damaged("order of documents"));
            }
            *place = numbers.len() as u32;
            numbers.push(number);
        }
        sources.push(Source { segment: &part.segment, places });
    }
    let documents = u32::try_from(numbers.len()).ok().filter(|count| *count < GONE);
    let documents = documents.ok_or(SegmentError::Damaged("too many documents"))?;
    let scoring = parts.first().map_or_else(Default::default, |part| part.segment.scoring());
    let mut writer = Writer::new(documents, scoring);
    let keys: BTreeSet<&(Kind, String)> = parts.iter().flat_map(|part| part.segment.fields()).collect();
    for (kind, name) in keys {
        merge_field(&mut writer, &sources, documents, *kind, name)?;
    }
    let names = stored_names(&sources)?;
    let mut stored = Vec::new();
    let mut places = Vec::with_capacity(numbers.len());
    for source in &sources {
        let mut windows = [Window::new(WINDOW), Window::new(WINDOW)];
        for doc in source.kept() {
            places.push(stored.len() as u64);
            let document = source.segment.stored_in(doc, &mut windows)?;
            let values: Vec<(String, Value)> = document.fields.into_iter().map(|(name, v)| (name, value(v))).collect();
            let fields: Vec<(&str, &Value)> = values.iter().map(|(name, value)| (name.as_str(), value)).collect();
            store(&mut stored, &document.id, &fields, &names);
        }
    }
    Ok(writer.finish(&numbers, &names, &stored, &places))
}

fn value(stored: Stored) -> Value {
    match stored {
        Stored::Text(text) => Value::Text(text),
        Stored::Number(number) => Value::Number(number),
    }
}

impl Source<'_> {
    fn kept(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.places.len() as u32).filter(|doc| self.places[*doc as usize] != GONE)
    }

    /// The new place of a document that counts.
    fn place(&self, doc: u32) -> Option<u32> {
        self.places.get(doc as usize).copied().filter(|place| *place != GONE)
    }
}

fn stored_names(sources: &[Source<'_>]) -> Result<Vec<String>, SegmentError> {
    let mut names = BTreeSet::new();
    for source in sources {
        let mut windows = [Window::new(WINDOW), Window::new(WINDOW)];
        for doc in source.kept() {
            for (name, _) in source.segment.stored_in(doc, &mut windows)?.fields {
                if !names.contains(&name) {
                    names.insert(name);
                }
            }
        }
    }
    Ok(names.into_iter().collect())
}

/// The field of a segment; where no document has several values, the words themselves are the least ones.
fn field_of<'a>(segment: &'a Segment, kind: Kind, name: &str) -> Option<&'a Field> {
    if kind == Kind::Least { segment.sorted_by(name) } else { segment.field(kind, name) }
}

fn merge_field(
    writer: &mut Writer,
    sources: &[Source<'_>],
    documents: u32,
    kind: Kind,
    name: &str,
) -> Result<(), SegmentError> {
    let having: Vec<(&Source<'_>, &Field)> =
        sources.iter().filter_map(|source| Some((source, field_of(source.segment, kind, name)?))).collect();
    writer.start_field();
    let mut streams = OpBuilder::new();
    for (_, field) in &having {
        streams.push(field.dictionary.stream());
    }
    let mut union = streams.union();
    let mut windows: Vec<Window> = having.iter().map(|_| Window::new(WINDOW)).collect();
    let mut postings = Postings::default();
    let mut positions = Vec::new();
    while let Some((word, places)) = fst::Streamer::next(&mut union) {
        let mut places = places.to_vec();
        places.sort_unstable_by_key(|place| place.index);
        postings.clear();
        for place in places {
            let (source, field) = having[place.index];
            let window = &mut windows[place.index];
            let found = source.segment.found(field, place.value, window)?;
            let mut docs = source.segment.docs(&found, window)?;
            let mut reader = source.segment.positions(&found, window)?;
            while let Some((doc, frequency)) = docs.next()? {
                positions.clear();
                if kind == Kind::Words {
                    reader.read(frequency, &mut positions)?;
                }
                if let Some(doc) = source.place(doc) {
                    postings.push(doc, &positions);
                }
            }
        }
        writer.word(word, &postings);
    }
    let mut rest = FieldRest::default();
    for (source, field) in having {
        let norms = source.segment.column(&field.meta.norms)?;
        for (doc, norm) in norms.iter().filter_map(|(doc, norm)| Some((source.place(doc)?, norm))) {
            if rest.norms.is_empty() {
                rest.norms = vec![0; documents as usize];
            }
            rest.norms[doc as usize] = norm;
        }
        rest.no_norms.extend(source.segment.no_norms(field)?.into_iter().filter_map(|doc| source.place(doc)));
        let points = source.segment.all_points(field)?.into_iter();
        rest.points.extend(points.filter_map(|(value, doc)| Some((value, source.place(doc)?))));
    }
    rest.points.sort_unstable();
    writer.end_field(kind, name, &rest);
    Ok(())
}
