//! Identifiers of 32 hexadecimal digits, by the algorithms of `uuids/algorithm`.
//!
//! `sequential` (the default): 26 random digits and a counter that grows by random steps, so that ids made one after
//! the other sort that way; a new prefix when the counter is used up. `random`: all digits. `utc_random`: microseconds
//! since 1970, then random digits. `utc_id`: microseconds, then `uuids/utc_id_suffix`. `uuid_v7`: that of RFC 9562,
//! without hyphens. The times of one node's identifiers grow with each, also where the clock stands or goes back:
//! `utc_id` has nothing else to tell two apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::config::Config;
use crate::wire::hex;
use crate::world::Env;

/// Largest value of the counter of `sequential`, six digits.
const COUNTER_MAX: u32 = 0xff_f000;
/// Largest step of the counter.
const STEP_MAX: u64 = 0xffd;

/// Makes identifiers. One per node.
pub struct Uuids {
    env: Env,
    config: Config,
    sequence: Mutex<Option<Sequence>>,
    /// The time in the newest identifier that has one, in microseconds.
    newest_us: AtomicU64,
}

struct Sequence {
    prefix: String,
    counter: u32,
}

impl Uuids {
    /// A maker for this node.
    pub fn new(env: &Env, config: &Config) -> Uuids {
        Uuids { env: env.clone(), config: config.clone(), sequence: Mutex::new(None), newest_us: AtomicU64::new(0) }
    }

    /// A new identifier.
    pub fn next(&self) -> String {
        match self.config.text("uuids", "algorithm", "sequential").as_str() {
            "random" => hex::encode(&self.env.random_bytes::<16>()),
            "utc_random" => format!("{:014x}{}", self.micros(), &hex::encode(&self.env.random_bytes::<9>())),
            "utc_id" => format!("{:014x}{}", self.micros(), self.config.text("uuids", "utc_id_suffix", "")),
            "uuid_v7" => self.version_7(),
            _ => self.sequential(),
        }
    }

    /// The wall clock's time in microseconds, or one more than that of the last call, if that is later.
    fn micros(&self) -> u64 {
        let now = u64::try_from(self.env.wall().as_micros()).unwrap_or(u64::MAX);
        let later = |newest: u64| Some(now.max(newest.saturating_add(1)));
        match self.newest_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later) {
            Ok(newest) | Err(newest) => now.max(newest.saturating_add(1)),
        }
    }

    /// Milliseconds in 48 bits, the version, the rest of the time in 12 bits (RFC 9562, 6.2, method 3), the variant,
    /// and 62 random bits.
    fn version_7(&self) -> String {
        let micros = self.micros();
        let (millis, rest) = ((micros / 1000) & 0xffff_ffff_ffff, (micros % 1000) * 4096 / 1000);
        let random = (self.env.random_u64() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        format!("{millis:012x}7{rest:03x}{random:016x}")
    }

    fn sequential(&self) -> String {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        let step = || 1 + (self.env.random_u64() % STEP_MAX) as u32;
        let next = match sequence.take() {
            Some(Sequence { prefix, counter }) if counter < COUNTER_MAX => {
                Sequence { prefix, counter: counter + step() }
            }
            _ => Sequence { prefix: hex::encode(&self.env.random_bytes::<13>()), counter: step() },
        };
        let uuid = format!("{}{:06x}", next.prefix, next.counter);
        *sequence = Some(next);
        uuid
    }
}

#[cfg(test)]
mod tests {
    use super::Uuids;
    use crate::config::{Config, Setting};
    use crate::world::tokio_host;

    fn made(setting: &str, count: usize) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let uuids = Uuids::new(&env, &Config::in_memory(&env, vec![Setting::parse(setting).unwrap()]));
        (0..count).map(|_| uuids.next()).collect()
    }

    #[test]
    fn sequential_ones_sort_in_the_order_of_making_within_a_prefix() {
        let all = made("uuids/algorithm=sequential", 20_000);
        assert!(all.iter().all(|u| u.len() == 32 && u.bytes().all(|b| b.is_ascii_hexdigit())));
        let same = all.windows(2).filter(|w| w[0][..26] == w[1][..26]).count();
        assert!(all.windows(2).all(|w| w[0][..26] != w[1][..26] || w[0] < w[1]));
        assert!(same > 19_980 && same < 19_999, "the prefix changes when the counter is used up: {same}");
    }

    #[test]
    fn two_utc_ids_of_one_answer_are_never_equal() {
        for algorithm in ["sequential", "random", "utc_random", "utc_id", "uuid_v7"] {
            let all = made(&format!("uuids/algorithm={algorithm}"), 5_000);
            let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{algorithm}");
            let sorts = matches!(algorithm, "utc_random" | "utc_id" | "uuid_v7");
            assert!(!sorts || all.is_sorted(), "{algorithm} sorts in the order of making");
        }
    }

    #[test]
    fn uuid_v7_has_its_version_and_variant() {
        for uuid in made("uuids/algorithm=uuid_v7", 100) {
            assert_eq!((uuid.len(), &uuid[12..13]), (32, "7"), "{uuid}");
            assert!(matches!(&uuid[16..17], "8" | "9" | "a" | "b"), "{uuid}");
        }
    }

    #[test]
    fn other_algorithms_have_their_forms() {
        assert!(made("uuids/algorithm=random", 5).iter().all(|u| u.len() == 32));
        let utc = made("uuids/algorithm=utc_random", 2);
        assert_eq!((utc[0].len(), &utc[0][..4]), (32, &utc[1][..4]));
    }
}
