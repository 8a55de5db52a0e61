//! Quorums: the one place that counts the replies of replicas.
//!
//! Pure: the caller reports every reply, and the module says what may be answered. A write is met when `w` replicas
//! hold it, accepted when at least one does, and of unknown outcome when none is known to hold it but one may
//! (`docs/consistency.md`).

/// How far a write has got when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// At least one replica holds it, fewer than were asked for.
    Accepted,
    /// As many replicas as were asked for hold it.
    Quorum,
}

/// The default number of replicas that must answer: the majority of those of the range.
pub fn majority(n: u32) -> u32 {
    n / 2 + 1
}

/// How many of `n` replicas have one in common with every majority of them.
pub fn shared_with_every_majority(n: u32) -> u32 {
    n + 1 - majority(n).min(n)
}

/// What the replies so far allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Fewer than wanted hold it, and no more replies will come.
    Accepted,
    /// No replica holds it and none may.
    Failed,
    /// As many as wanted hold it.
    Met,
    /// No replica is known to hold it, but some did not answer.
    Unknown,
    /// More replies can change the decision.
    Waiting,
}

/// Counts the replies of the replicas of one range to one request.
#[derive(Clone, Debug)]
pub struct Tally {
    replicas: u32,
    wanted: u32,
    done: u32,
    refused: u32,
    silent: u32,
}

impl Tally {
    /// For `replicas` replicas of which `wanted` must hold the write. `wanted` above `replicas` can never be met.
    pub fn new(replicas: u32, wanted: u32) -> Tally {
        Tally { replicas, wanted: wanted.max(1), done: 0, refused: 0, silent: 0 }
    }

    /// A replica holds the write durably.
    pub fn done(&mut self) {
        self.done += 1;
        self.check();
    }

    /// A replica answered that it does not hold the write and never will.
    pub fn refused(&mut self) {
        self.refused += 1;
        self.check();
    }

    /// A replica did not answer: it may hold the write or come to hold it.
    pub fn silent(&mut self) {
        self.silent += 1;
        self.check();
    }

    fn check(&self) {
        assert!(self.done + self.refused + self.silent <= self.replicas, "more replies than replicas");
    }

    /// What may be answered now.
    pub fn decision(&self) -> Decision {
        let open = self.replicas - self.done - self.refused - self.silent;
        match () {
            () if self.done >= self.wanted => Decision::Met,
            () if open > 0 => Decision::Waiting,
            () if self.done > 0 => Decision::Accepted,
            () if self.silent > 0 => Decision::Unknown,
            () => Decision::Failed,
        }
    }

    /// Whether more replies can change the decision.
    pub fn waits(&self) -> bool {
        self.decision() == Decision::Waiting
    }

    /// Whether as many replicas as wanted hold it.
    pub fn is_met(&self) -> bool {
        self.decision() == Decision::Met
    }

    /// How many replicas hold it.
    pub fn held(&self) -> u32 {
        self.done
    }

    /// The decision as what a successful write reports; `None` when it did not succeed (yet).
    pub fn written(&self) -> Option<Written> {
        match self.decision() {
            Decision::Met => Some(Written::Quorum),
            Decision::Accepted => Some(Written::Accepted),
            Decision::Failed | Decision::Unknown | Decision::Waiting => None,
        }
    }
}

/// How many of the replicas of a range a read is to ask: `r` as asked for, else the majority; never more than there
/// are.
pub fn replicas_to_ask(r: Option<u32>, replicas: usize) -> usize {
    let wanted = r.unwrap_or_else(|| majority(replicas as u32)).max(1);
    usize::try_from(wanted).unwrap_or(usize::MAX).min(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majorities() {
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
        assert_eq!([1, 2, 3, 4, 5].map(shared_with_every_majority), [1, 1, 2, 2, 3]);
    }

    /// Every combination of replies for up to five replicas and every `w`, against the definition.
    #[test]
    fn outcomes_of_all_combinations() {
        for n in 1..=5_u32 {
            for wanted in 1..=6 {
                for done in 0..=n {
                    for refused in 0..=n - done {
                        for silent in 0..=n - done - refused {
                            let mut tally = Tally::new(n, wanted);
                            (0..done).for_each(|_| tally.done());
                            (0..refused).for_each(|_| tally.refused());
                            (0..silent).for_each(|_| tally.silent());
                            let all_in = done + refused + silent == n;
                            let expected = match (done >= wanted, all_in) {
                                (true, _) => Decision::Met,
                                (false, false) => Decision::Waiting,
                                (false, true) if done > 0 => Decision::Accepted,
                                (false, true) if silent > 0 => Decision::Unknown,
                                (false, true) => Decision::Failed,
                            };
                            assert_eq!(tally.decision(), expected, "n={n} w={wanted} {done}/{refused}/{silent}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_replica_and_more_wanted_is_accepted() {
        let mut tally = Tally::new(1, 9);
        assert_eq!(tally.written(), None);
        tally.done();
        assert_eq!(tally.written(), Some(Written::Accepted));
    }

    #[test]
    #[should_panic(expected = "more replies than replicas")]
    fn a_replica_answers_once() {
        let mut tally = Tally::new(1, 1);
        tally.done();
        tally.done();
    }
}
