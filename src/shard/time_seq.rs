//! At which sequence a replica stood at which time: what a feed since a time begins with.
//!
//! One small value of the shard holds bins: the time at which a bin began, and the last sequence before it. The first
//! commit of a bin that gives out sequences writes the value in its own transaction; the others of the bin read
//! nothing for it. A bin lasts three hours; once there are `limits::TIME_BINS` of them, older ones become one, the
//! further back the wider (CouchDB documentation, 'Time-based since').
//!
//! Promises: who reads from [`TimeSeq::since`] on misses no change that was committed here at that time or later, by
//! the clock of the node. A clock that went back makes no bin: what is written then belongs to the last one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::keys::{self, Kind};
use super::record::Header;
use super::replica::Inner;
use super::{ShardError, ShardId, ShardReplica};
use crate::limits;
use crate::storage::{StorageError, View, WriteView};
use crate::wire::message_pack::{self, encode};
use crate::world::buggify::{Mutation, mutated};

/// The value of the shard that holds it.
const NAME: &[u8] = b"times";

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// Seconds of one bin.
const BIN: u64 = 3 * HOUR;
/// Up to which length two bins become one; those that began before twice that, and so on.
const WIDTHS: [u64; 12] =
    [BIN, 6 * HOUR, 12 * HOUR, DAY, 10 * DAY, 30 * DAY, 180 * DAY, YEAR, 2 * YEAR, 4 * YEAR, 8 * YEAR, 16 * YEAR];

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSeq {
    /// When each bin began, in seconds since the Unix epoch, and the last sequence before it; the oldest first.
    bins: Vec<(u64, u64)>,
}

/// [`TimeSeq`] with the last sequence, of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The bins.
    pub bins: TimeSeq,
    /// The last sequence.
    pub update_seq: u64,
}

impl TimeSeq {
    /// Notes that the first commit at a time follows a sequence; whether that began a bin.
    fn note(&mut self, now: u64, before: u64) -> bool {
        let begun = now - now % BIN;
        match self.bins.last() {
            // What was written before the first bin may have been written within it: it begins now.
            None => self.bins.push((if before == 0 { begun } else { now }, before)),
            Some((time, seq)) if begun > *time && before > *seq => {
                if self.bins.len() >= limits::TIME_BINS {
                    self.roll_up(begun);
                }
                self.bins.push((begun, before));
            }
            Some(_) => return false,
        }
        true
    }

    /// When the last bin began.
    fn last(&self) -> Option<u64> {
        self.bins.last().map(|(time, _)| *time)
    }

    /// Makes room for a bin.
    fn roll_up(&mut self, now: u64) {
        let ends: Vec<u64> = self.bins.iter().skip(1).map(|(time, _)| *time).chain([now]).collect();
        let length = |at: usize| ends[at].saturating_sub(self.bins[at].0);
        for pair in WIDTHS.windows(2) {
            let before = now.saturating_sub(pair[1]);
            let old = self.bins.iter().take_while(|(time, _)| *time <= before).count();
            let merged = merged(&self.bins[..old], &length, pair[0]);
            if merged.len() < old {
                self.bins.splice(..old, merged);
                return;
            }
        }
        // The oldest half, whatever its lengths.
        let half = self.bins.len() / 2;
        let longest = (0..half).map(length).max().unwrap_or_default();
        let merged = merged(&self.bins[..half], &length, longest);
        self.bins.splice(..half, merged);
    }

    /// The last sequence of which it is known that it was given out before a time; `None` for a time behind the last
    /// bin: all was.
    pub fn since(&self, time: u64) -> Option<u64> {
        if self.last().is_some_and(|last| time > last.saturating_add(BIN)) {
            return None;
        }
        Some(self.bins.iter().rev().find(|(begun, _)| *begun <= time).map_or(0, |(_, seq)| *seq))
    }
}

/// Bins of which each two neighbours that are no longer than `most` became one.
fn merged(bins: &[(u64, u64)], length: &impl Fn(usize) -> u64, most: u64) -> Vec<(u64, u64)> {
    let (mut out, mut at) = (Vec::with_capacity(bins.len()), 0);
    while at < bins.len() {
        out.push(bins[at]);
        let are_short = at + 1 < bins.len() && length(at) <= most && length(at + 1) <= most;
        at += 1 + usize::from(are_short);
    }
    out
}

impl Times {
    /// The position from which a feed since a time is read.
    pub fn since(&self, time: u64) -> u64 {
        // The clocks of nodes and clients differ, and a change is acknowledged after it was given its sequence.
        let time = time.saturating_sub(limits::TIME_SLACK.as_secs());
        self.bins.since(time).unwrap_or(self.update_seq).min(self.update_seq)
    }

    /// How many changes there were in each bin, by the time when it began; the oldest first. What was changed before
    /// the first one counts from 1970 on.
    pub fn histogram(&self) -> Vec<(u64, u64)> {
        let bins = &self.bins.bins;
        let before = bins.first().filter(|(_, seq)| *seq > 0).map(|_| (0, 0));
        let bins: Vec<(u64, u64)> = before.into_iter().chain(bins.iter().copied()).collect();
        let ends = bins.iter().skip(1).map(|(_, seq)| *seq).chain([self.update_seq]);
        bins.iter().zip(ends).map(|((time, seq), end)| (*time, end.saturating_sub(*seq))).collect()
    }
}

fn key(shard: ShardId) -> Vec<u8> {
    keys::key(shard, Kind::Meta, NAME)
}

fn read(view: &dyn View, shard: ShardId) -> Result<TimeSeq, StorageError> {
    let damaged = |why| StorageError::Corrupt(format!("times of sequences: {why}"));
    let stored = view.get(&key(shard))?;
    Ok(stored.map(|bytes| message_pack::decode(&bytes).map_err(damaged)).transpose()?.unwrap_or_default())
}

/// Called in a transaction that gives out sequences behind `before` and up to `last`.
pub(super) fn note(
    view: &mut WriteView<'_>,
    inner: &Arc<Inner>,
    (before, last): (u64, u64),
) -> Result<(), StorageError> {
    let now = inner.storage.env().wall().as_secs();
    if now < inner.bin_ends.load(Ordering::SeqCst) {
        return Ok(());
    }
    let mut times = read(view, inner.shard)?;
    if times.note(now, before) {
        if let Some((_, seq)) = times.bins.last_mut().filter(|_| mutated(Mutation::TimeNotedLate)) {
            *seq = last;
        }
        view.put(key(inner.shard), encode(&times));
    }
    let ends = times.last().map_or(0, |begun| begun - begun % BIN + BIN);
    let inner = Arc::clone(inner);
    view.after_commit(move || inner.bin_ends.store(ends, Ordering::SeqCst));
    Ok(())
}

impl ShardReplica {
    /// At which sequence the replica stood at which time.
    pub async fn times(&self) -> Result<Times, ShardError> {
        let times = |view: &dyn View, shard| {
            Ok(Times { bins: read(view, shard)?, update_seq: Header::read(view, shard)?.update_seq })
        };
        self.read(times).await
    }

    /// Forgets that; durable on return.
    pub async fn clear_times(&self) -> Result<(), ShardError> {
        let inner = Arc::clone(&self.0);
        self.write(move |view| {
            view.delete(key(inner.shard));
            view.after_commit(move || inner.bin_ends.store(0, Ordering::SeqCst));
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least, in 2026.
    const BEGIN: u64 = 1_767_225_600;

    fn of(bins: &[(u64, u64)]) -> TimeSeq {
        TimeSeq { bins: bins.to_vec() }
    }

    #[test]
    fn the_first_commit_of_a_bin_begins_it() {
        let mut times = TimeSeq::default();
        assert!(times.note(BEGIN + 7, 0) && !times.note(BEGIN + 8, 5));
        assert!(!times.note(BEGIN - BIN, 6), "the clock went back");
        assert!(times.note(BEGIN + BIN, 9));
        assert_eq!(times, of(&[(BEGIN, 0), (BEGIN + BIN, 9)]));
        let mut later = TimeSeq::default();
        assert!(later.note(BEGIN + 7, 3), "what was there before may be of the same hour");
        assert_eq!(later, of(&[(BEGIN + 7, 3)]));
    }

    #[test]
    fn a_time_is_looked_up_in_the_bin_that_it_lies_in() {
        assert_eq!(TimeSeq::default().since(u64::MAX), Some(0), "nothing is known");
        let times = of(&[(BEGIN, 0), (BEGIN + BIN, 9), (BEGIN + 5 * BIN, 20)]);
        for (time, since) in [
            (0, Some(0)),
            (BEGIN + BIN - 1, Some(0)),
            (BEGIN + BIN, Some(9)),
            (BEGIN + 4 * BIN, Some(9)),
            (BEGIN + 6 * BIN, Some(20)),
            (BEGIN + 6 * BIN + 1, None),
        ] {
            assert_eq!(times.since(time), since, "{time}");
        }
        let times = Times { bins: times, update_seq: 26 };
        assert_eq!(times.since(BEGIN + BIN), 0, "clocks differ");
        assert_eq!((times.since(BEGIN + BIN + 60), times.since(u64::MAX)), (9, 26));
        assert_eq!(times.histogram(), [(BEGIN, 9), (BEGIN + BIN, 11), (BEGIN + 5 * BIN, 6)]);
        let times = Times { bins: of(&[(BEGIN, 4)]), update_seq: 6 };
        assert_eq!(times.histogram(), [(0, 4), (BEGIN, 2)]);
    }

    /// For years one commit in each hour: there are never too many bins, those of the last days are short, and no
    /// lookup passes over a change.
    #[test]
    fn bins_are_bounded_and_the_further_back_the_wider() {
        let mut times = TimeSeq::default();
        for hour in 0..200_000_u64 {
            times.note(BEGIN + hour * HOUR, hour);
            assert!(times.bins.len() <= limits::TIME_BINS);
            assert!(times.bins.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
            if hour % 997 == 0 {
                for back in [0, 1, 5, 40, 1_000, 50_000] {
                    let at = hour.saturating_sub(back);
                    // The change of that hour has the sequence behind it.
                    assert!(times.since(BEGIN + at * HOUR).unwrap_or(hour) <= at, "{at} of {hour}");
                }
            }
        }
        let last = times.last().unwrap();
        let recent = times.bins.iter().filter(|(time, _)| last - time < 3 * DAY).count();
        assert!(recent > 5, "{recent}");
        assert!(times.bins[1].0 - times.bins[0].0 < 10 * YEAR);
    }
}
