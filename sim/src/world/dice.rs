//! Seeded random streams, one per user, so that a draw more in one place does not move those of another.

use std::cell::Cell;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

thread_local! {
    /// Makes all draws of this thread's world others; 0 until [`reseed`].
    static SALT: Cell<u64> = const { Cell::new(0) };
}

/// From now on the streams of this thread's world give other numbers than their seed's.
pub(super) fn reseed(salt: u64) {
    SALT.set(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
}

/// A random stream named by a seed and a label. Same seed and label, same draws.
#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream `label` of `seed`.
    pub fn new(seed: u64, label: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(seed.to_le_bytes());
        hasher.update(label.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(&hasher.finalize());
        Dice(ChaCha8Rng::from_seed(key))
    }

    /// A number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64() ^ SALT.get()
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the modulo is below 2^-32 for all bounds in use.
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// True with the given probability (0 to 1). Draws nothing when the answer is certain.
    pub fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        probability >= 1.0 || ((self.number() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A time in `from..=to`.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let (low, high) = (from.as_nanos() as u64, to.as_nanos() as u64);
        Duration::from_nanos(low + self.below(high.saturating_sub(low) + 1))
    }

    /// Fills `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill_bytes(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, label| Dice::new(seed, label).number();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn draws_stay_in_range() {
        let mut dice = Dice::new(7, "range");
        let (low, high) = (Duration::from_micros(3), Duration::from_micros(5));
        for _ in 0..1000 {
            assert!(dice.below(3) < 3);
            let time = dice.between(low, high);
            assert!(time >= low && time <= high);
        }
        assert!(!dice.chance(0.0) && dice.chance(1.0));
        let hits = (0..10_000).filter(|_| dice.chance(0.25)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
    }
}
