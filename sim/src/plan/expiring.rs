//! The scene `expiring`: documents end within seconds, or are given a later end in time, and the clock of one node of
//! three is wrong.
//!
//! That clock is ahead of the others by up to ten minutes, or a little behind; meanwhile nodes die, stand still, or do
//! not hear each other. In some plans no clock is wrong.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::fault::Fault;
use super::op::{Op, TimedOp};
use super::stage::{Drawn, Timetable, fault, trouble};
use super::types::WorldPlan;

/// Documents of each client.
const DOCUMENTS: u64 = 6;
/// Seconds of an end that does not come within a plan.
const LATE_S: u32 = 86_400;
/// Until then nothing goes wrong but clocks, and nothing ends.
const CALM_MS: u64 = 8_000;
/// Until then somebody looks at the documents.
const LOOKS_MS: u64 = 60_000;

/// The plan of a number, of a scene's draws and usual world.
pub(super) fn drawn(mut rng: ChaCha8Rng, number: u64, world: WorldPlan) -> Drawn {
    let turns = rng.random_range(0..2) == 0;
    let world = WorldPlan { q: pick(&mut rng, &[1, 2]), documents: 2, turns, ..world };
    let victim = (number % u64::from(world.nodes)) as u32;
    let clients = (0..u64::from(world.nodes)).map(|nth| client(&mut rng, nth)).collect();
    let jump = |by_ms: i64| vec![fault(4_000, victim, Fault::ClockJump { by_ms })];
    let mut faults = match number / u64::from(world.nodes) % 4 {
        0 | 1 => jump(rng.random_range(20_000..600_000)),
        2 => jump(-rng.random_range(500..8_000)),
        _ => Vec::new(),
    };
    faults.extend((0..rng.random_range(0..=4)).map(|_| trouble(&mut rng, &world, CALM_MS)));
    faults.sort_by_key(|timed| timed.at_ms);
    (world, clients, faults)
}

/// Writes all its documents, and looks at those of all; meanwhile two are to end late after all, if they are still
/// there, and one soon after all.
fn client(rng: &mut ChaCha8Rng, nth: u64) -> Vec<TimedOp> {
    let v = |doc: u64| 1 + DOCUMENTS * nth + doc;
    let mut ops = Timetable::default();
    for doc in 0..DOCUMENTS {
        let for_s = if doc == DOCUMENTS - 1 { LATE_S } else { rng.random_range(10..40) };
        ops.at(500 + 200 * doc, Op::Live { v: v(doc), for_s });
    }
    ops.at(9_500, Op::Live { v: v(DOCUMENTS - 1), for_s: rng.random_range(1..20) });
    let later = [3, 4].map(|doc| (doc, rng.random_range(10_000..25_000)));
    let mut at_ms = 10_000;
    while at_ms < LOOKS_MS {
        ops.at(at_ms, Op::LookFor { nth: rng.random_range(0..3 * DOCUMENTS) });
        let next_ms = at_ms + rng.random_range(100..900);
        for (doc, _) in later.iter().filter(|(_, due_ms)| (at_ms..next_ms).contains(due_ms)) {
            ops.at(at_ms, Op::Live { v: v(*doc), for_s: LATE_S });
        }
        at_ms = next_ms;
    }
    ops.into_ops()
}

#[cfg(test)]
mod tests {
    use settee::world::buggify::Mutation;

    use super::super::{Plan, Scene};
    use crate::bugs::Plant;
    use crate::run::run_plan;

    #[test]
    fn documents_end_in_time_and_none_before_it() {
        let (mut ended, mut live, mut failures) = (0, 0, Vec::new());
        for number in [0, 4, 7, 11] {
            let report = run_plan(Plan::of_scene(Scene::Expiring, number), None);
            let count = |what: &str| report.history.coverage.counted(what);
            ended += count("mortals that ended");
            live += count("mortals that live");
            failures.extend(report.failure.map(|failure| format!("expiring-{number}: {failure}")));
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(ended > 0 && live > 0, "{ended} ended, {live} live");
    }

    #[test]
    fn what_ends_by_the_clock_of_one_node_is_gone_too_early() {
        let plant = Plant::Node(Mutation::ExpiryByOwnClock);
        let failure = |number| run_plan(Plan::of_scene(Scene::Expiring, number), Some(plant)).failure;
        let caught = (0..6).find_map(|number| failure(number).map(|failure| failure.invariant));
        assert_eq!(caught, Some("I37"));
    }
}
