//! Whether what clients did to one document looks as if it had been done one after the other (I10). Documents without
//! replicated edits grow by one revision at a time, so that generations are the places in that order and no search is
//! needed: what was over before something else began must not have a later place. On one node that goes for all that
//! was answered; in a cluster in peace for writes that so many replicas held that every read meets one of them, while a
//! write that is under way may be shown by one read and not by the next.

use std::collections::BTreeSet;

use crate::model::{Edit, Outcome, Violation, order};

/// Places in time: the order in which requests were sent and answers came.
pub type Tick = u64;

/// A read of a winner.
#[derive(Clone, Debug)]
pub struct Read {
    /// When it was sent.
    pub from: Tick,
    /// When its answer came.
    pub to: Tick,
    /// The revision shown; `None`: there was none, or a tombstone.
    pub rev: Option<String>,
}

/// An edit with its times.
#[derive(Clone, Debug)]
pub struct Sent<'a> {
    /// What was sent.
    pub edit: &'a Edit,
    /// When it was sent.
    pub from: Tick,
    /// When its answer came, if one did.
    pub to: Option<Tick>,
    /// Whether reads that begin after that must show it.
    pub shown: bool,
}

/// Checks all that was done to one document. `one_replica`: what a read showed every later one shows, too.
///
/// # Errors
/// I10 with the two requests that contradict each other.
pub fn check(doc: &str, edits: &[Sent<'_>], reads: &[Read], one_replica: bool) -> Result<(), Violation> {
    if edits.iter().any(|sent| sent.edit.given.is_some()) {
        return Ok(());
    }
    let broken = |what: String| Err(Violation { invariant: "I10", what: format!("{doc}: {what}") });
    // What is known to be there from some moment on: ends and places, of writes and of reads.
    let written = edits.iter().filter(|sent| sent.shown).filter_map(|sent| Some((sent.to?, place(sent.edit)?)));
    let read = reads.iter().filter(|_| one_replica).filter_map(|read| Some((read.to, order(read.rev.as_deref()?).0)));
    let known: Vec<(Tick, u64)> = written.chain(read).collect();
    let least = |from: Tick| known.iter().filter(|(to, _)| *to < from).map(|(_, at)| *at).max().unwrap_or(0);
    for sent in edits {
        if let Some(at) = place(sent.edit).filter(|at| *at <= least(sent.from)) {
            return broken(format!("generation {at} was written after generation {} was there", least(sent.from)));
        }
    }
    for read in reads {
        let shown = match &read.rev {
            Some(rev) => order(rev).0,
            None => tombstones(edits, read.to).last().copied().unwrap_or(0),
        };
        if shown < least(read.from) {
            return broken(format!("{:?} was read after generation {} was there", read.rev, least(read.from)));
        }
    }
    Ok(())
}

/// The generation that an acknowledged edit made.
fn place(edit: &Edit) -> Option<u64> {
    match &edit.outcome {
        Outcome::Acknowledged(rev) => Some(order(rev).0),
        Outcome::Refused | Outcome::Unknown => None,
    }
}

/// Generations that tombstones sent before `end` have or may have.
fn tombstones(edits: &[Sent<'_>], end: Tick) -> BTreeSet<u64> {
    let sent = edits.iter().filter(|sent| sent.edit.deleted && sent.from < end);
    sent.filter_map(|sent| Some(order(sent.edit.parent.as_deref()?).0 + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(parent: Option<&str>, made: &str, deleted: bool) -> Edit {
        let outcome = Outcome::Acknowledged(made.to_owned());
        let parent = parent.map(str::to_owned);
        Edit { doc: "d".into(), parent, deleted, v: None, blobs: vec![], given: None, outcome }
    }

    fn read(from: Tick, to: Tick, rev: Option<&str>) -> Read {
        Read { from, to, rev: rev.map(str::to_owned) }
    }

    fn sent(edit: &Edit, from: Tick, to: Option<Tick>) -> Sent<'_> {
        Sent { edit, from, to, shown: true }
    }

    #[test]
    fn a_read_may_not_be_older_than_what_was_over_before_it() {
        let (first, second) = (edit(None, "1-a", false), edit(Some("1-a"), "2-b", false));
        let edits = [sent(&first, 1, Some(2)), sent(&second, 3, Some(6))];
        let check = |reads: &[Read]| check("d", &edits, reads, true);
        assert_eq!(check(&[read(4, 5, Some("1-a")), read(4, 7, Some("2-b"))]), Ok(()));
        assert!(check(&[read(7, 8, Some("1-a"))]).is_err(), "stale");
        assert!(check(&[read(4, 5, Some("2-b")), read(7, 8, Some("1-a"))]).is_err(), "back in time");
        assert!(check(&[read(7, 8, None)]).is_err(), "gone");
    }

    #[test]
    fn several_replicas_show_what_enough_of_them_held() {
        let (first, second) = (edit(None, "1-a", false), edit(Some("1-a"), "2-b", false));
        let few = Sent { shown: false, ..sent(&second, 3, Some(4)) };
        let (under_way, held) = (sent(&second, 3, Some(9)), sent(&second, 3, Some(4)));
        let check = |second, reads: &[Read]| check("d", &[sent(&first, 1, Some(2)), second], reads, false);
        assert_eq!(check(under_way, &[read(4, 5, Some("2-b")), read(6, 7, Some("1-a"))]), Ok(()));
        assert_eq!(check(few, &[read(5, 6, Some("1-a"))]), Ok(()));
        assert!(check(held.clone(), &[read(5, 6, Some("1-a"))]).is_err(), "stale");
        assert!(check(held, &[read(5, 6, None)]).is_err(), "gone");
    }

    #[test]
    fn a_tombstone_explains_that_nothing_is_shown() {
        let (first, second) = (edit(None, "1-a", false), edit(Some("1-a"), "2-b", true));
        let edits = [sent(&first, 1, Some(2)), sent(&second, 3, None)];
        assert_eq!(check("d", &edits, &[read(4, 5, None)], true), Ok(()));
    }
}
