//! Reads of a view on the replicas of several ranges at once: replicas of this node share one job, because most reads
//! are short; replicas of other nodes are asked in parallel.

use std::collections::VecDeque;

use futures_util::future::{join, join_all, try_join};

use crate::coordinator::read::view_state::StateReads;
use crate::coordinator::replica::range_replica::ReplicaView;
use crate::index::{
    GroupBy, GroupPage, Hold, IndexError, Places, RowPage, StateOf, ViewIndex, count_of, counted_rows_of, groups_of,
    rows_of,
};
use crate::storage::Direction;
use crate::world::cost;

/// What is to be read of which replica; each has a number, which comes back with its answer.
pub(in crate::coordinator) type Reads<'v> = Vec<(usize, &'v ReplicaView, VecDeque<Places>)>;

/// Those of this node, their numbers beside them; and those of others.
struct Parted<'v> {
    numbers: Vec<usize>,
    own: Vec<(&'v ViewIndex, VecDeque<Places>)>,
    others: Reads<'v>,
}

impl<'v> Parted<'v> {
    fn of(reads: Reads<'v>) -> Parted<'v> {
        let mut parted = Parted { numbers: Vec::new(), own: Vec::new(), others: Vec::new() };
        for (number, view, places) in reads {
            match view {
                ReplicaView::Own(index) => {
                    parted.numbers.push(number);
                    parted.own.push((index, places));
                }
                ReplicaView::Remote { .. } => parted.others.push((number, view, places)),
            }
        }
        parted
    }
}

/// What a view of a range answers, with the number of the view.
type Numbered<T> = (usize, Result<T, IndexError>);

/// The next rows, see [`rows_of`].
pub(in crate::coordinator) async fn rows(
    reads: Reads<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<Numbered<RowPage>> {
    let Parted { numbers, own, others } = Parted::of(reads);
    let mut asked = Vec::with_capacity(others.len());
    for (number, view, places) in others {
        asked.push(async move { (number, view.rows(places, direction, limit, StateOf::Now).await) });
    }
    // Others are asked first: what is read here may hold up this task.
    let (others, own) = join(join_all(asked), rows_of(own, direction, limit)).await;
    let own = own.into_iter().map(|page| page.map_err(IndexError::from));
    let pages: Vec<Numbered<RowPage>> = numbers.into_iter().zip(own).chain(others).collect();
    let rows = pages.iter().filter_map(|(_, page)| page.as_ref().ok()).map(|page| page.rows.len()).sum();
    cost::read(pages.len(), rows);
    pages
}

/// The first rows, and how many rows lie in `before`: see [`counted_rows_of`].
pub(in crate::coordinator) async fn counted_rows(
    before: &Places,
    reads: Reads<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<Numbered<(u64, RowPage)>> {
    let Parted { numbers, own, others } = Parted::of(reads);
    let mut asked = Vec::with_capacity(others.len());
    for (number, view, places) in others {
        let both = try_join(view.count(before.clone()), view.rows(places, direction, limit, StateOf::Now));
        asked.push(async move { (number, both.await) });
    }
    let (others, own) = join(join_all(asked), counted_rows_of(before, own, direction, limit)).await;
    let own = own.into_iter().map(|page| page.map_err(IndexError::from));
    let pages: Vec<Numbered<(u64, RowPage)>> = numbers.into_iter().zip(own).chain(others).collect();
    let rows = pages.iter().filter_map(|(_, page)| page.as_ref().ok()).map(|(_, page)| page.rows.len()).sum();
    cost::read(pages.len(), rows);
    pages
}

/// The next rows of the state of an answer, see [`ViewIndex::rows`].
pub(in crate::coordinator) async fn rows_of_state(
    reads: StateReads<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<Numbered<RowPage>> {
    let mut asked = Vec::with_capacity(reads.len());
    for (number, view, places, of) in reads {
        asked.push(async move { (number, view.rows(places, direction, limit, of).await) });
    }
    let pages = join_all(asked).await;
    let rows = pages.iter().filter_map(|(_, page)| page.as_ref().ok()).map(|page| page.rows.len()).sum();
    cost::read(pages.len(), rows);
    pages
}

/// Reduced groups of the state of an answer, see [`groups_of`]. `hold`: when the states of first pages are held.
pub(in crate::coordinator) async fn groups(
    reads: StateReads<'_>,
    by: &GroupBy,
    limit: usize,
    hold: Hold,
) -> Vec<Numbered<GroupPage>> {
    let (mut numbers, mut own, mut asked) = (Vec::new(), Vec::new(), Vec::with_capacity(reads.len()));
    for (number, view, places, of) in reads {
        match view {
            // As many read their first page at once, most of them their only one.
            ReplicaView::Own(index) if !matches!(of, StateOf::Held(_)) => {
                numbers.push(number);
                own.push((index, places));
            }
            view => asked.push(async move { (number, view.groups(by, places, limit, of).await) }),
        }
    }
    let (others, own) = join(join_all(asked), groups_of(by, own, limit, Some(hold))).await;
    numbers.into_iter().zip(own).chain(others).collect()
}

/// How many rows of all of them lie in `places`.
pub(in crate::coordinator) async fn count(views: Vec<&ReplicaView>, places: Places) -> Result<u64, IndexError> {
    let (mut own, mut asked) = (Vec::new(), Vec::new());
    for view in views {
        match view {
            ReplicaView::Own(index) => own.push(index),
            ReplicaView::Remote { .. } => asked.push(view.count(places.clone())),
        }
    }
    let (others, own) = join(join_all(asked), count_of(&own, &places)).await;
    own.into_iter().map(|count| count.map_err(IndexError::from)).chain(others).sum()
}
