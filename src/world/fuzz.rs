//! Fuzzing on stable Rust, as unit tests: kept inputs, changed at random.
//!
//! A target has a name, inputs that are right, and a function that must neither panic nor break its own assertions.
//! Each input is tried as it is; then inputs are changed (bytes flipped, lost, doubled, words of the target put in, two
//! inputs joined) until the time is over: `FUZZ_MS` milliseconds for each target, 100 where that is not set. What fails
//! is shrunk to few changes and printed; it becomes one of the kept inputs, with the mend.
//!
//! `FUZZ_SEED` asks for another run; a seed and a target always give the same inputs in the same order.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

const SEED: u64 = 0x5e77_ee26;
/// Inputs between two looks at the clock.
const ROUND: u32 = 64;
/// Longest input, in bytes: changes may double it again and again.
const LONGEST: usize = 1 << 16;

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Remove(Index, u8),
    Double(Index, u8),
    Insert(Index, Index),
    Number(Index, u64),
    Cut(Index),
    Join(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || any::<Index>();
    prop_oneof![
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (at(), 1..40_u8).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (at(), 1..40_u8).prop_map(|(at, count)| Change::Double(at, count)),
        4 => (at(), at()).prop_map(|(at, word)| Change::Insert(at, word)),
        1 => (at(), prop_oneof![Just(0), Just(u64::MAX), Just(1 << 31), Just(1 << 63), any::<u64>()])
            .prop_map(|(at, number)| Change::Number(at, number)),
        1 => at().prop_map(Change::Cut),
        1 => (at(), at()).prop_map(|(at, other)| Change::Join(at, other)),
    ]
}

/// A target.
pub struct Fuzz<'t> {
    name: &'static str,
    inputs: Vec<Vec<u8>>,
    words: Vec<&'t [u8]>,
}

impl<'t> Fuzz<'t> {
    /// A target with its right inputs.
    pub fn new<I: AsRef<[u8]>>(name: &'static str, inputs: impl IntoIterator<Item = I>) -> Fuzz<'t> {
        let inputs: Vec<Vec<u8>> = inputs.into_iter().map(|input| input.as_ref().to_vec()).collect();
        assert!(!inputs.is_empty(), "{name} has inputs");
        Fuzz { name, inputs, words: vec![b"\0", b"\xff\xff\xff\xff", b"-1", b"18446744073709551616", b"\xed\xa0\x80"] }
    }

    /// What means something to the target, put into inputs.
    #[must_use]
    pub fn words(mut self, words: &[&'t str]) -> Fuzz<'t> {
        self.words.extend(words.iter().map(|word| word.as_bytes()));
        self
    }

    fn changed(&self, first: &Index, changes: &[Change]) -> Vec<u8> {
        let mut out = first.get(&self.inputs).clone();
        for change in changes {
            let place = |at: &Index| at.index(out.len() + 1);
            match change {
                Change::Flip(at, bit) if !out.is_empty() => {
                    let at = at.index(out.len());
                    out[at] ^= 1 << bit;
                }
                Change::Set(at, byte) if !out.is_empty() => {
                    let at = at.index(out.len());
                    out[at] = *byte;
                }
                Change::Remove(at, count) => {
                    let at = place(at);
                    let end = (at + usize::from(*count)).min(out.len());
                    out.drain(at..end);
                }
                Change::Double(at, count) => {
                    let at = place(at);
                    let end = (at + usize::from(*count)).min(out.len());
                    let piece = out[at..end].to_vec();
                    out.splice(at..at, piece);
                }
                Change::Insert(at, word) => {
                    let at = place(at);
                    out.splice(at..at, word.get(&self.words).iter().copied());
                }
                Change::Number(at, number) => {
                    let at = place(at);
                    out.splice(at..at, number.to_le_bytes());
                }
                Change::Cut(at) => {
                    let at = place(at);
                    out.truncate(at);
                }
                Change::Join(at, other) => {
                    let at = place(at);
                    out.truncate(at);
                    let other = other.get(&self.inputs);
                    out.extend_from_slice(&other[at.min(other.len())..]);
                }
                Change::Flip(..) | Change::Set(..) => {}
            }
            out.truncate(LONGEST);
        }
        out
    }

    /// Tries inputs until the time is over.
    pub fn run(self, target: impl Fn(&[u8])) {
        for input in &self.inputs {
            target(input);
        }
        let number =
            |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        let (until, seed) = (Instant::now() + Duration::from_millis(number("FUZZ_MS", 100)), number("FUZZ_SEED", SEED));
        let strategy = (any::<Index>(), vec(change(), 1..12));
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        self.name.bytes().enumerate().for_each(|(at, byte)| bytes[8 + at % 24] ^= byte);
        let config = Config { cases: ROUND, failure_persistence: None, ..Config::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let (mut runner, tried) = (TestRunner::new_with_rng(config.clone(), rng), Cell::new(0_u64));
        while Instant::now() < until {
            let outcome = runner.run(&strategy, |(first, changes)| {
                let input = self.changed(&first, &changes);
                tried.set(tried.get() + 1);
                match catch_unwind(AssertUnwindSafe(|| target(&input))) {
                    Ok(()) => Ok(()),
                    Err(_) => Err(TestCaseError::fail("it panicked")),
                }
            });
            if let Err(TestError::Fail(_, (first, changes))) = outcome {
                let input = self.changed(&first, &changes);
                panic!("{}: failed by b\"{}\"", self.name, input.escape_ascii());
            }
            let next = runner.new_rng();
            runner = TestRunner::new_with_rng(config.clone(), next);
        }
        println!("fuzz: {}: {} inputs", self.name, tried.get());
    }
}
