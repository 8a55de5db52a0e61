//! Skip of the first rows of a list without reading them.
//!
//! The rows of a list are those of its ranges in one order, so the row at a position is found like the median of sorted
//! lists: an id from the middle of the open part of one range is located in all of them, which settles the rows before
//! or behind it everywhere. Each round halves the widest range and reads some 40 records per level of the summaries.

use crate::coordinator::read::Lists;
use crate::coordinator::read::scan::AllDocsQuery;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::span::{DocSource, Span};
use crate::limits;
use crate::storage::Direction;

/// What is known of a range: the row looked for has at least `low` and at most `high` of its rows before it.
struct Bracket {
    range: usize,
    low: u64,
    high: u64,
}

impl Lists<'_> {
    /// Where a list begins after as many of its first rows as can be left out at once, and how many are then left to
    /// leave out. Counts are of the moments in which they are taken, as the rows are.
    pub(in crate::coordinator) async fn skip_rows(
        self,
        query: &AllDocsQuery,
        span: Span,
    ) -> Result<(Span, u64), ReadError> {
        let (skip, few) = (query.skip, limits::PAGE_ROWS as u64);
        if skip <= few || query.source == DocSource::Local || span.is_empty() {
            return Ok((span, skip));
        }
        let ranges = self.ranges_of(&query.source);
        let counts = self.replicas().counts(&ranges, &span).await?;
        if counts.iter().sum::<u64>() <= skip {
            return Ok((Span::empty(), 0));
        }
        let bracket = |(range, high): (&usize, u64)| Bracket { range: *range, low: 0, high: high.min(skip) };
        let mut brackets: Vec<Bracket> = ranges.iter().zip(counts).map(bracket).collect();
        let direction = if query.descending { Direction::Reverse } else { Direction::Forward };
        let (mut rest, mut settled) = (span.clone(), 0);
        for _ in 0..limits::SKIP_ROUNDS_MAX {
            let widest = brackets.iter().max_by_key(|b| b.high.saturating_sub(b.low));
            let Some((range, low, width)) = widest.map(|b| (b.range, b.low, b.high.saturating_sub(b.low))) else {
                break;
            };
            if skip - settled <= few || width < 2 {
                break;
            }
            let (start, end) = (span.low.clone(), span.high.clone());
            let select = |replica: RangeReplica| {
                let (start, end) = (start.clone(), end.clone());
                async move { replica.select((start, end), direction, low + width / 2).await }
            };
            let found = self.replicas().on_one(range, select).await?;
            let Some(id) = found else { break };
            let counts = self.replicas().counts(&ranges, &span.up_to(&id, query.descending)).await?;
            let before = counts.iter().sum::<u64>();
            if before <= skip {
                brackets.iter_mut().zip(counts).for_each(|(b, count)| b.low = count);
                (rest, settled) = (span.beginning_at(id, query.descending), before);
            } else {
                brackets.iter_mut().zip(counts).for_each(|(b, count)| b.high = count.min(b.high));
            }
        }
        Ok((rest, skip - settled))
    }
}
