//! What one search may still do: steps, words, memory; and what its clauses share of a part.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Limits, SearchError, too_costly};
use crate::query::Query;
use crate::segment::{Column, Docs, Found, Kind, Part, Positions, Segment};

/// Steps between two questions whether to go on.
const STEPS: u32 = 2_048;

/// What one search may still do.
pub(crate) struct Budget<'a> {
    limits: &'a Limits,
    go_on: &'a mut dyn FnMut() -> bool,
    words: usize,
    steps: u32,
    planned: usize,
    held: usize,
    norms: BTreeMap<String, Option<Column>>,
    lists: BTreeMap<u64, Bytes>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(limits: &'a Limits, go_on: &'a mut dyn FnMut() -> bool) -> Budget<'a> {
        let (norms, lists) = (BTreeMap::new(), BTreeMap::new());
        Budget { limits, go_on, words: 0, steps: 0, planned: 0, held: 0, norms, lists }
    }

    /// One step: a document or a word.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), SearchError> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        if (self.go_on)() { Ok(()) } else { Err(SearchError::Stopped) }
    }

    /// Counts a word that a part of the query stands for.
    pub(crate) fn word(&mut self, query: &Query) -> Result<(), SearchError> {
        self.words += 1;
        if self.words > self.limits.terms {
            return Err(too_costly(query));
        }
        self.step()
    }

    /// Counts memory that is held to the end of the search.
    pub(crate) fn hold_planned(&mut self, bytes: usize) -> Result<(), SearchError> {
        self.planned += bytes;
        self.hold(0)
    }

    /// Counts memory that is held to the end of a part.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), SearchError> {
        self.held = self.held.saturating_add(bytes);
        if self.planned.saturating_add(self.held) > self.limits.held {
            return Err(SearchError::TooLarge);
        }
        Ok(())
    }

    /// Lets go of what was held of the part before.
    pub(crate) fn start_part(&mut self) {
        self.held = 0;
        self.norms.clear();
        self.lists.clear();
    }

    /// Length norms of a field; `None`: they do not count.
    pub(crate) fn norms(&mut self, part: &Part, name: &str) -> Result<Option<Column>, SearchError> {
        if let Some(known) = self.norms.get(name) {
            return Ok(known.clone());
        }
        let field = part.segment.field(Kind::Words, name).filter(|field| Segment::has_norms(field));
        let norms = field.map(|field| part.segment.column(&field.meta.norms)).transpose()?;
        self.hold(part.segment.document_count() as usize)?;
        self.norms.insert(name.to_owned(), norms.clone());
        Ok(norms)
    }

    /// The documents of a word, read once for all clauses that name it.
    pub(crate) fn docs(&mut self, part: &Part, found: &Found) -> Result<Docs, SearchError> {
        let (start, length) = found.doc_range();
        let bytes = self.list(part, start, length)?;
        Ok(Docs::new(bytes, found.documents, part.segment.document_count()))
    }

    /// The positions of a word.
    pub(crate) fn positions(&mut self, part: &Part, found: &Found) -> Result<Positions, SearchError> {
        let (start, length) = found.position_range();
        Ok(Positions::new(self.list(part, start, length)?))
    }

    fn list(&mut self, part: &Part, start: u64, length: u64) -> Result<Bytes, SearchError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        if let Some(known) = self.lists.get(&start) {
            return Ok(known.clone());
        }
        self.hold(usize::try_from(length).unwrap_or(usize::MAX).min(self.limits.held.saturating_add(1)))?;
        let bytes = part.segment.read(start, length)?;
        self.lists.insert(start, bytes.clone());
        Ok(bytes)
    }
}
