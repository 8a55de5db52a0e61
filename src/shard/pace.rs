//! Pace of background work: a limit on its speed, so that requests come first.

use std::time::Duration;

use crate::world::{Env, Instant};

/// Spreads steps of work over time. After each step it pauses: until the bytes that the step moved are within the
/// budget, and at least as long as the step took, so that a disk that is busy with requests sees half as much of it.
#[derive(Clone, Debug)]
pub struct Pace {
    env: Env,
    bytes_per_second: u64,
    began: Instant,
}

impl Pace {
    /// A pace of so many MB a second, counted from now; 0 for none.
    pub fn new(env: &Env, mb_per_second: u64) -> Pace {
        let bytes_per_second = mb_per_second.saturating_mul(1 << 20);
        Pace { env: env.clone(), bytes_per_second, began: env.now() }
    }

    /// Ends a step that moved `bytes`, waiting for its share of time to pass.
    pub async fn spend(&mut self, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let took = self.env.now().since(self.began);
        self.env.sleep(pause(bytes, self.bytes_per_second, took)).await;
        self.began = self.env.now();
    }
}

fn pause(bytes: u64, bytes_per_second: u64, took: Duration) -> Duration {
    let micros = bytes.saturating_mul(1_000_000) / bytes_per_second;
    Duration::from_micros(micros).saturating_sub(took).max(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_followed_by_what_its_bytes_may_take_and_by_no_less_than_it_took() {
        let millis = Duration::from_millis;
        assert_eq!(pause(1 << 20, 10 << 20, millis(20)), millis(80));
        assert_eq!(pause(1 << 20, 10 << 20, millis(70)), millis(70));
        assert_eq!(pause(0, 10 << 20, millis(5)), millis(5));
        assert_eq!(pause(u64::MAX, 1, Duration::ZERO), Duration::from_micros(u64::MAX));
    }
}
