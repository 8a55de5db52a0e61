//! Identifiers of 32 hexadecimal digits, by the algorithms of `uuids/algorithm`.
//!
//! `sequential` (the default): 26 random digits and a counter that grows by random steps, so that ids made one after
//! the other sort that way; a new prefix when the counter is used up. `random`: all digits. `utc_random`: microseconds
//! since 1970, then random digits. `utc_id`: microseconds, then `uuids/utc_id_suffix`.

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
}

struct Sequence {
    prefix: String,
    counter: u32,
}

impl Uuids {
    /// A maker for this node.
    pub fn new(env: &Env, config: &Config) -> Uuids {
        Uuids { env: env.clone(), config: config.clone(), sequence: Mutex::new(None) }
    }

    /// A new identifier.
    pub fn next(&self) -> String {
        match self.config.text("uuids", "algorithm", "sequential").as_str() {
            "random" => hex::encode(&self.env.random_bytes::<16>()),
            "utc_random" => format!("{:014x}{}", self.micros(), &hex::encode(&self.env.random_bytes::<9>())),
            "utc_id" => format!("{:014x}{}", self.micros(), self.config.text("uuids", "utc_id_suffix", "")),
            _ => self.sequential(),
        }
    }

    fn micros(&self) -> u128 {
        self.env.wall().as_micros()
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
    fn other_algorithms_have_their_forms() {
        assert!(made("uuids/algorithm=random", 5).iter().all(|u| u.len() == 32));
        let utc = made("uuids/algorithm=utc_random", 2);
        assert_eq!((utc[0].len(), &utc[0][..4]), (32, &utc[1][..4]));
    }
}
