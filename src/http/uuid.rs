//! Identifiers by the algorithms of `uuids/algorithm`: 32 hexadecimal digits unless said otherwise.
//!
//! `sequential` (the default): 26 random digits and a counter that grows by random steps, so that ids made one after
//! the other sort that way; a new prefix when the counter is used up. `random`: all digits. `utc_random`: microseconds
//! since 1970, then random digits. `utc_id`: microseconds, then `uuids/utc_id_suffix`. `uuid_v4` and `uuid_v7`: those
//! of RFC 9562, written as `uuids/format` says. The times of one node's identifiers grow with each, also where the
//! clock stands or goes back: `utc_id` has nothing else to tell two apart.

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
            "uuid_v4" => self.written(self.version_4()),
            "uuid_v7" => self.written(self.version_7()),
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

    /// 122 random bits, the version and the variant (RFC 9562, 5.4).
    fn version_4(&self) -> u128 {
        as_version(4, u128::from_be_bytes(self.env.random_bytes::<16>()))
    }

    /// Milliseconds in 48 bits, the version, the rest of the time in 12 bits (RFC 9562, 6.2, method 3), the variant,
    /// and 62 random bits.
    fn version_7(&self) -> u128 {
        let micros = self.micros();
        let (millis, rest) = ((micros / 1000) & 0xffff_ffff_ffff, (micros % 1000) * 4096 / 1000);
        as_version(7, u128::from(millis) << 80 | u128::from(rest) << 64 | u128::from(self.env.random_u64()))
    }

    /// A UUID as `uuids/format` wants it, which takes the names of CouchDB 3.6.
    fn written(&self, uuid: u128) -> String {
        match self.config.text("uuids", "format", "base_16").as_str() {
            "base_36" => base_36(uuid),
            "rfc9562" => with_hyphens(&format!("{uuid:032x}")),
            _ => format!("{uuid:032x}"),
        }
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

/// With the four bits of the version and the two of the variant (RFC 9562, 4) in their places.
fn as_version(version: u128, bits: u128) -> u128 {
    let places = 0xf << 76 | 0x3 << 62;
    bits & !places | version << 76 | 0x2 << 62
}

/// 25 digits of 0 to 9 and a to z, the first ones zeros where they are needed.
fn base_36(mut number: u128) -> String {
    let mut digits = [b'0'; 25];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    digits.map(char::from).iter().collect()
}

fn with_hyphens(hex: &str) -> String {
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Uuids, base_36, with_hyphens};
    use crate::config::{Config, Setting};
    use crate::world::tokio_host;

    const ALGORITHMS: [&str; 6] = ["sequential", "random", "utc_random", "utc_id", "uuid_v4", "uuid_v7"];

    fn maker(settings: &[&str]) -> Uuids {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let settings = settings.iter().map(|setting| Setting::parse(setting).unwrap()).collect();
        Uuids::new(&env, &Config::in_memory(&env, settings))
    }

    fn made(setting: &str, count: usize) -> Vec<String> {
        let uuids = maker(&[setting]);
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
        for algorithm in ALGORITHMS {
            let all = made(&format!("uuids/algorithm={algorithm}"), 5_000);
            let distinct: BTreeSet<&String> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{algorithm}");
            let sorts = matches!(algorithm, "utc_random" | "utc_id" | "uuid_v7");
            assert!(!sorts || all.is_sorted(), "{algorithm} sorts in the order of making");
        }
    }

    #[test]
    fn uuids_have_their_version_and_variant() {
        for (algorithm, version) in [("uuid_v4", "4"), ("uuid_v7", "7")] {
            for uuid in made(&format!("uuids/algorithm={algorithm}"), 100) {
                assert_eq!((uuid.len(), &uuid[12..13]), (32, version), "{uuid}");
                assert!(matches!(&uuid[16..17], "8" | "9" | "a" | "b"), "{uuid}");
            }
        }
    }

    #[test]
    fn a_uuid_is_written_as_the_format_says() {
        // The example of CouchDB's default.ini.
        let uuid = 0x0199_df37_5929_7032_b402_c3e6_1fbb_f88f;
        assert_eq!(base_36(uuid), "03eudcyamunnfraqdgmopx09b");
        assert_eq!(base_36(u128::MAX).len(), 25);
        assert_eq!(with_hyphens(&format!("{uuid:032x}")), "0199df37-5929-7032-b402-c3e61fbbf88f");
        for (format, length) in [("base_16", 32), ("base_36", 25), ("rfc9562", 36)] {
            for algorithm in ["uuid_v4", "uuid_v7"] {
                let uuids = maker(&[&format!("uuids/algorithm={algorithm}"), &format!("uuids/format={format}")]);
                assert_eq!(uuids.next().len(), length, "{algorithm} {format}");
            }
            assert_eq!(maker(&[&format!("uuids/format={format}")]).next().len(), 32, "the others stay hexadecimal");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn ids_of_several_threads_are_distinct_in_every_algorithm(
            algorithm in proptest::sample::select(&ALGORITHMS[..]),
            format in proptest::sample::select(&["base_16", "base_36", "rfc9562"][..]),
            suffix in "[a-z0-9]{0,4}",
            threads in 1..5usize,
            each in 1..300usize,
        ) {
            let settings = [
                format!("uuids/algorithm={algorithm}"),
                format!("uuids/format={format}"),
                format!("uuids/utc_id_suffix={suffix}"),
            ];
            let uuids = maker(&settings.each_ref().map(String::as_str));
            let run = || (0..each).map(|_| uuids.next()).collect::<Vec<_>>();
            let all: Vec<Vec<String>> = std::thread::scope(|scope| {
                let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
                started.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let distinct: BTreeSet<&String> = all.iter().flatten().collect();
            prop_assert_eq!(distinct.len(), threads * each);
            if matches!(algorithm, "utc_random" | "utc_id" | "uuid_v7") {
                prop_assert!(all.iter().all(|of_one| of_one.is_sorted()), "each thread's grow");
            }
            if algorithm == "utc_id" {
                prop_assert!(distinct.iter().all(|id| id.len() == 14 + suffix.len() && id.ends_with(&suffix)));
            }
        }
    }

    #[test]
    fn other_algorithms_have_their_forms() {
        assert!(made("uuids/algorithm=random", 5).iter().all(|u| u.len() == 32));
        let utc = made("uuids/algorithm=utc_random", 2);
        assert_eq!((utc[0].len(), &utc[0][..4]), (32, &utc[1][..4]));
    }
}
