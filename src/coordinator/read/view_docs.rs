//! Documents that go with rows of a view or of an index.
//!
//! A document is read from the replica whose index gave the row, so it is not older than the row. Promises: a document
//! is missing only where that replica has purged it; a document that a row's value names by `_id`, or that is read
//! because the replica failed, only where no replica in reach has it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::documents::RowDoc;
use crate::coordinator::read::view::{ViewError, ViewRow, ViewRows};
use crate::coordinator::topology::error::ReadError;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::revision::Revision;
use crate::index::{Row, reduce};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{Fetched, ShardError, Want};
use crate::world::buggify::fewer;

impl ViewRows {
    /// The first of the rows with their documents, as many as may be in memory together, one at least; then the others.
    pub(in crate::coordinator) async fn with_docs(
        &self,
        mut rows: Vec<Row>,
    ) -> Result<(Vec<ViewRow>, Vec<Row>), ViewError> {
        let wanted: Vec<Option<(DocId, Option<Revision>)>> = rows.iter().map(linked).collect();
        let want =
            |(id, rev): &(DocId, Option<Revision>)| (id.clone(), rev.clone().map_or(Want::Winner, Want::Revision));
        let wants: Vec<(DocId, Want)> = wanted.iter().flatten().map(want).collect();
        let found = self.first_documents(&wants, limits::FETCH_BYTES).await?;
        // Up to the first row whose document was not read.
        let is_read = |read: &mut usize, wanted: &Option<_>| {
            *read += usize::from(wanted.is_some());
            (*read <= found.len()).then_some(())
        };
        let count = wanted.iter().scan(0, is_read).count();
        let rest = rows.split_off(count);
        let doc = |row: &Row, (id, rev): (DocId, Option<Revision>), fetched: Option<Fetched>| {
            let mut fetched = fetched?;
            // A revision that is named is shown whatever it is, the winner only while the document lives.
            let stored = fetched.take_one().filter(|stored| rev.is_some() || !stored.deleted)?;
            // Another document is opened as it is: what else the query asks for holds for the row's own.
            let shows_conflicts = self.query.conflicts && id == row.id;
            let conflicts = if shows_conflicts { fetched.conflicts(&stored.rev).0 } else { Vec::new() };
            Some(Box::new(RowDoc { id, stored, conflicts }))
        };
        let mut found = found.into_iter();
        let with_doc = |(row, wanted): (Row, Option<_>)| {
            let doc = wanted.and_then(|wanted| doc(&row, wanted, found.next().flatten()));
            ViewRow { row, doc: Some(doc) }
        };
        Ok((rows.into_iter().zip(wanted).map(with_doc).collect(), rest))
    }

    /// Documents as they are now, in the order of the wants: the first ones, as many as have about so many bytes, one
    /// at least. Each is read from the replica whose index is read for its range, and from all replicas in reach where
    /// that one fails or has nothing.
    pub(in crate::coordinator) async fn first_documents(
        &self,
        wants: &[(DocId, Want)],
        bytes: usize,
    ) -> Result<Vec<Option<Fetched>>, ReadError> {
        let found = self.some_documents(wants, fewer("read: room for one byte", bytes)).await?;
        let found = match found.is_empty() && !wants.is_empty() {
            // It is larger than that.
            true => self.some_documents(&wants[..1], usize::MAX).await?,
            false => found,
        };
        self.view.database.context.env.metrics().add(Counter::DatabaseReads, found.len() as u64);
        Ok(found)
    }

    /// As [`ViewRows::first_documents`]; perhaps none.
    async fn some_documents(&self, wants: &[(DocId, Want)], bytes: usize) -> Result<Vec<Option<Fetched>>, ReadError> {
        let database = &self.view.database;
        let map = database.map();
        let mut by_seat: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        // Of no range that is read: local documents, documents of other partitions, those of a range split meanwhile.
        let mut others: Vec<usize> = Vec::new();
        for (place, (id, _)) in wants.iter().enumerate() {
            let range = (!id.is_local()).then(|| map.index_of(id));
            match self.ranges.iter().position(|read| Some(*read) == range) {
                Some(seat) => by_seat.entry(seat).or_default().push(place),
                None => others.push(place),
            }
        }
        let some = |places: &[usize]| places.iter().map(|place| wants[*place].clone()).collect::<Vec<_>>();
        // Each seat has its share, so that all of them together have room.
        let share = if bytes == usize::MAX { bytes } else { bytes / by_seat.len().max(1) };
        let (mut out, mut lacking): (Vec<Option<Fetched>>, BTreeSet<usize>) =
            (vec![None; wants.len()], BTreeSet::new());
        let mut end = wants.len();
        let reads = by_seat.into_iter().map(|(seat, places)| {
            let wanted = some(&places);
            async move { (seat, places, self.seats[seat].replica.fetch_first(&wanted, share).await) }
        });
        for (seat, places, found) in join_all(reads).await {
            let is_alone = database.replicas().is_alone(self.ranges[seat]);
            match found {
                Ok(found) => {
                    end = places.get(found.len()).copied().unwrap_or(end).min(end);
                    for (place, fetched) in places.into_iter().zip(found) {
                        if !is_alone && is_lacking(&fetched) {
                            lacking.insert(place);
                        }
                        out[place] = fetched;
                    }
                }
                Err(error) if is_alone || error == ShardError::Dropped => return Err(error.into()),
                Err(_) => lacking.extend(places),
            }
        }
        out.truncate(end);
        self.fill_from_all(wants, (&mut out, bytes), (&others, &lacking)).await?;
        Ok(out)
    }

    /// Reads documents of no range that is read (`others`), and those that are `lacking`, of all replicas in reach: as
    /// many as there is room for. Those behind are left out.
    async fn fill_from_all(
        &self,
        wants: &[(DocId, Want)],
        (out, bytes): (&mut Vec<Option<Fetched>>, usize),
        (others, lacking): (&[usize], &BTreeSet<usize>),
    ) -> Result<(), ReadError> {
        let database = &self.view.database;
        let map = database.map();
        let mut held: usize = out.iter().flatten().map(Fetched::bytes).sum();
        for place in others.iter().chain(lacking).copied().collect::<BTreeSet<usize>>() {
            if held > bytes {
                out.truncate(place);
            }
            if place >= out.len() {
                return Ok(());
            }
            let (wanted, mut fetched) = (|| vec![wants[place].clone()], None);
            if !lacking.contains(&place) {
                fetched = database.documents().fetch_many(wanted(), Some(1)).await?.pop().flatten();
            }
            let may_be_elsewhere =
                || lacking.contains(&place) || !database.replicas().is_alone(map.index_of(&wants[place].0));
            if is_lacking(&fetched) && may_be_elsewhere() {
                fetched = database.documents().fetch_many(wanted(), Some(u32::MAX)).await?.pop().flatten();
            }
            held += fetched.as_ref().map_or(0, Fetched::bytes);
            out[place] = fetched;
        }
        Ok(())
    }
}

/// Whether what was wanted of a document is not there.
fn is_lacking(fetched: &Option<Fetched>) -> bool {
    fetched.as_ref().is_none_or(|fetched| fetched.found.iter().any(|(_, stored)| stored.is_none()))
}

/// The document that goes with a row: the one that its value names by `_id`, or its own; the revision that its value
/// names by `_rev`, or the winner (`conformance/cases/views`). `None` where the `_id` is null.
fn linked(row: &Row) -> Option<(DocId, Option<Revision>)> {
    let value = if row.value.first() == Some(&b'{') { reduce::parsed(&row.value) } else { Value::Null };
    let member = |name| value.as_object().and_then(|value| value.get(name));
    if member("_id").is_some_and(Value::is_null) {
        return None;
    }
    let text = |name| member(name).and_then(Value::as_str);
    let id = text("_id").map_or_else(|| row.id.clone(), DocId::new);
    Some((id, text("_rev").and_then(|rev| Revision::parse(rev).ok())))
}
