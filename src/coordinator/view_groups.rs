//! Groups of a view with built-in reductions, merged over the ranges: each reduces its own rows (`index/groups.rs`),
//! and here the parts of a group are put together.

use std::collections::VecDeque;

use crate::coordinator::sift::share;
use crate::coordinator::view::{ViewError, ViewRows};
use crate::coordinator::view_reads;
use crate::coordinator::view_reduce::GroupRow;
use crate::index::{GroupBy, GroupError, GroupPart, Grouping, Places, Reduce};
use crate::limits;
use crate::storage::Direction;

/// The groups of one range, for the span being read.
pub(super) struct GroupLane {
    groups: VecDeque<GroupPart>,
    rest: VecDeque<Places>,
}

impl From<GroupError> for ViewError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Invalid(error) => ViewError::InvalidValue(error),
            GroupError::Shard(error) => error.into(),
        }
    }
}

impl ViewRows {
    /// The next groups, none at the end.
    pub(super) async fn builtin_groups(
        &mut self,
        grouping: Grouping,
        reduce: &Reduce,
    ) -> Result<Vec<GroupRow>, ViewError> {
        let direction = if self.query.descending { Direction::Reverse } else { Direction::Forward };
        let by = GroupBy { grouping, reduce: reduce.clone(), direction, prefix: self.prefix };
        let mut out = Vec::new();
        while out.len() < limits::GROUPS_PER_PAGE && self.left > 0 {
            let Some(group) = self.next_group_of_all(&by).await? else {
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
    async fn next_group_of_all(&mut self, by: &GroupBy) -> Result<Option<GroupPart>, ViewError> {
        self.fill_groups(by).await?;
        let descending = self.query.descending;
        let marks = self.group_lanes.iter().filter_map(|lane| Some(&lane.groups.front()?.mark));
        let next = if descending { marks.max() } else { marks.min() };
        let Some(mark) = next.cloned() else { return Ok(None) };
        let mut whole: Option<GroupPart> = None;
        for lane in &mut self.group_lanes {
            if lane.groups.front().is_none_or(|part| part.mark != mark) {
                continue;
            }
            let Some(part) = lane.groups.pop_front() else { continue };
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
        Ok(whole)
    }

    /// Reads groups where a range has none at hand.
    async fn fill_groups(&mut self, by: &GroupBy) -> Result<(), ViewError> {
        let wanted = usize::try_from(self.skip.saturating_add(self.left)).unwrap_or(usize::MAX);
        // Every range may have a part of every group.
        let limit = share(wanted, 1).min(limits::GROUPS_PER_PAGE);
        let empty =
            self.group_lanes.iter().zip(&self.seats).enumerate().filter(|(_, (lane, _))| lane.groups.is_empty());
        let more = empty.filter(|(_, (lane, _))| !lane.rest.is_empty());
        let reads = more.map(|(at, (lane, seat))| (at, &seat.view, lane.rest.clone())).collect();
        for (at, page) in view_reads::groups(reads, by, limit, &self.view.collator).await {
            let page = page?;
            self.group_lanes[at] = GroupLane { groups: page.groups.into(), rest: page.rest };
        }
        Ok(())
    }
}

impl GroupLane {
    /// All groups of `rest` are still to be read.
    pub(super) fn new(rest: VecDeque<Places>) -> GroupLane {
        GroupLane { groups: VecDeque::new(), rest }
    }
}
