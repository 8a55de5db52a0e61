//! Groups of a view with built-in reductions, merged over the ranges: each range reduces its own rows
//! (`index/groups.rs`), and this module combines the parts of a group. Groups of several keys are read together. All
//! that is read of a range is one state of its index (`view_state.rs`).

use std::collections::VecDeque;

use crate::coordinator::read::view::{ViewError, ViewRows};
use crate::coordinator::read::view_reads;
use crate::coordinator::read::view_reduce::GroupRow;
use crate::index::{GroupBy, GroupPart, Grouping, InvalidValue, Places, Reduce};
use crate::limits;
use crate::storage::Direction;
use crate::world::buggify::capped;

/// The groups of one range, for the spans that are read together.
pub(in crate::coordinator) struct GroupLane {
    groups: VecDeque<GroupPart>,
    rest: VecDeque<Places>,
}

impl ViewRows {
    /// The next groups, none at the end.
    pub(in crate::coordinator) async fn builtin_groups(
        &mut self,
        grouping: Grouping,
        reduce: &Reduce,
    ) -> Result<Vec<GroupRow>, ViewError> {
        let direction = if self.query.descending { Direction::Reverse } else { Direction::Forward };
        let by = GroupBy { grouping, reduce: reduce.clone(), direction, prefix: self.prefix };
        let (mut out, bounded) = (Vec::new(), self.bounds_reductions());
        while out.len() < limits::GROUPS_PER_PAGE && self.left > 0 {
            let Some(group) = self.next_group_of_all(&by, bounded).await? else {
                if !self.next_span() {
                    break;
                }
                continue;
            };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            out.push(GroupRow { key: group.key, value: Ok(group.sum.finish()) });
        }
        Ok(out)
    }

    /// The next group of the span with the rows of all ranges.
    async fn next_group_of_all(&mut self, by: &GroupBy, bounded: bool) -> Result<Option<GroupPart>, ViewError> {
        while self
            .group_range_cursors
            .iter()
            .any(|range_cursor| range_cursor.groups.is_empty() && !range_cursor.rest.is_empty())
        {
            self.fill_groups(by).await?;
        }
        let descending = self.query.descending;
        let span = self.together.front();
        let is_inside = |group: &&GroupPart| span.is_some_and(|span| belongs(group, span));
        let marks = self
            .group_range_cursors
            .iter()
            .filter_map(|range_cursor| Some(&range_cursor.groups.front().filter(is_inside)?.mark));
        let next = if descending { marks.max() } else { marks.min() };
        let Some(mark) = next.cloned() else { return Ok(None) };
        let is_part = |part: &GroupPart| part.mark == mark && span.is_some_and(|span| belongs(part, span));
        let has_part = |range_cursor: &&mut GroupLane| range_cursor.groups.front().is_some_and(is_part);
        let parts = self
            .group_range_cursors
            .iter_mut()
            .filter(has_part)
            .filter_map(|range_cursor| range_cursor.groups.pop_front());
        Ok(joined(parts, descending, bounded)?)
    }

    /// Reads groups where a range has none at hand.
    async fn fill_groups(&mut self, by: &GroupBy) -> Result<(), ViewError> {
        let wanted = usize::try_from(self.skip.saturating_add(self.left)).unwrap_or(usize::MAX);
        let most = capped("view: groups of a range read at once", limits::GROUPS_AT_ONCE);
        // Every range may have a part of every group.
        let limit = wanted.clamp(1, most);
        let cursors = self.group_range_cursors.iter().enumerate();
        let empty = cursors.filter(|(_, cursor)| cursor.groups.is_empty() && !cursor.rest.is_empty());
        let empty: Vec<usize> = empty.map(|(at, _)| at).collect();
        let (hold, states) = self.states_of(&empty, wanted <= limit);
        let read = |(at, of): (usize, _)| (at, &self.seats[at].view, self.group_range_cursors[at].rest.clone(), of);
        let reads = empty.into_iter().zip(states).map(read).collect();
        let pages = view_reads::groups(reads, by, limit, hold).await;
        self.take_pages(pages, |rows, at, page| {
            rows.took(at, page.held.is_some(), page.rest.is_empty());
            rows.group_range_cursors[at] = GroupLane { groups: page.groups.into(), rest: page.rest };
        })
        .await
    }
}

/// Whether a group is one of a span: what holds all rows is of the only one.
fn belongs(group: &GroupPart, span: &VecDeque<Places>) -> bool {
    group.first.is_empty() || span.iter().any(|places| places.holds(&group.first))
}

/// The parts of a group put together. `bounded`: a sum that is too large becomes an error, that of a range by itself.
fn joined(
    parts: impl Iterator<Item = GroupPart>,
    descending: bool,
    bounded: bool,
) -> Result<Option<GroupPart>, InvalidValue> {
    let (mut whole, mut taken): (Option<GroupPart>, usize) = (None, 0);
    for mut part in parts {
        part.sum.settle();
        if bounded {
            let bytes = part.sum.bytes();
            part.sum.bound(bytes);
            taken += bytes;
        }
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => {
                whole.sum.merge(&part.sum)?;
                if (part.first < whole.first) != descending {
                    (whole.first, whole.key) = (part.first, part.key);
                }
            }
        }
    }
    if let Some(whole) = whole.as_mut().filter(|_| bounded) {
        whole.sum.bound(taken);
    }
    Ok(whole)
}

impl GroupLane {
    /// All groups of `rest` are still to be read.
    pub(in crate::coordinator) fn new(rest: VecDeque<Places>) -> GroupLane {
        GroupLane { groups: VecDeque::new(), rest }
    }
}
