//! The scene `forgotten`: tombstones are forgotten within seconds, and the one that still holds what they stood for
//! comes back.
//!
//! Each client writes documents of its own, deletes most of them, and writes and deletes some again, when the
//! tombstones may be forgotten. Meanwhile a node is cut off since before the deletions, or its disk goes back to before
//! them, or nodes die while replicas agree on what to forget.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::fault::Fault;
use super::op::{Op, TimedOp};
use super::stage::{Drawn, Timetable, fault, trouble};
use super::types::WorldPlan;

/// The age at which tombstones are forgotten. They are looked for as often.
const AGE_MS: u32 = 5_000;
/// Documents of each client.
const DOCUMENTS: u64 = 8;
/// Before it nothing is deleted.
const DELETED_MS: u64 = 5_000;
/// By then the first tombstones are forgotten, in peace.
const FORGOTTEN_MS: u64 = 34_000;

/// The plan of a number, of a scene's draws and usual world.
pub(super) fn drawn(mut rng: ChaCha8Rng, number: u64, world: WorldPlan) -> Drawn {
    let world = WorldPlan {
        q: pick(&mut rng, &[1, 2]),
        documents: 2,
        turns: rng.random_range(0..2) == 0,
        tombstone_ms: AGE_MS,
        ..world
    };
    let victim = (number % u64::from(world.nodes)) as u32;
    let clients = (0..u64::from(world.nodes)).map(|nth| client(&mut rng, nth)).collect();
    let (before_ms, within_ms) = (rng.random_range(3_500..DELETED_MS - 500), rng.random_range(0..10_000));
    let mut faults = match number / u64::from(world.nodes) % 4 {
        0 => {
            let for_ms = FORGOTTEN_MS + within_ms;
            vec![fault(before_ms, victim, Fault::Split { group: 1 << victim, one_way: false, for_ms })]
        }
        1 => {
            let back_ms = FORGOTTEN_MS + within_ms - before_ms;
            vec![fault(before_ms, victim, Fault::BackInTime { back_ms, stopped: rng.random_range(0..2) == 0 })]
        }
        2 => (0..rng.random_range(2..=5)).map(|_| trouble(&mut rng, &world, DELETED_MS)).collect(),
        _ => Vec::new(),
    };
    faults.sort_by_key(|timed| timed.at_ms);
    (world, clients, faults)
}

/// Writes all its documents, deletes most of them, and, when these may be forgotten, writes some again.
fn client(rng: &mut ChaCha8Rng, nth: u64) -> Vec<TimedOp> {
    let v = |doc: u64| 1 + DOCUMENTS * nth + doc;
    let mut ops = Timetable::default();
    for doc in 0..DOCUMENTS {
        ops.at(500 + 200 * doc, Op::Lay { v: v(doc) });
    }
    // The first stays.
    for doc in 1..DOCUMENTS {
        ops.at(DELETED_MS + 300 * doc, Op::Bury { v: v(doc) });
    }
    let again_ms = rng.random_range(15_000..FORGOTTEN_MS);
    for doc in 1..4 {
        ops.at(again_ms + 400 * doc, Op::Lay { v: v(doc) });
    }
    for doc in 1..3 {
        ops.at(again_ms + 2_500 + 300 * doc, Op::Bury { v: v(doc) });
    }
    ops.at(FORGOTTEN_MS + rng.random_range(12_000..30_000), Op::Lay { v: v(4) });
    ops.into_ops()
}

#[cfg(test)]
mod tests {
    use settee::world::buggify::Mutation;

    use super::super::{Plan, Scene};
    use crate::bugs::Plant;
    use crate::run::run_plan;

    #[test]
    fn tombstones_are_forgotten_and_nothing_comes_back() {
        let (mut forgotten, mut given_up, mut failures) = (0, 0, Vec::new());
        for number in [1, 4, 7, 10] {
            let report = run_plan(Plan::of_scene(Scene::Forgotten, number), None);
            let count = |what: &str| report.history.coverage.counted(what);
            forgotten += count("tombstones were forgotten");
            given_up += count("discarded what the others had collected");
            failures.extend(report.failure.map(|failure| format!("forgotten-{number}: {failure}")));
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(forgotten > 0 && given_up > 0, "{forgotten} times forgotten, {given_up} times given up");
    }

    #[test]
    fn what_is_forgotten_where_not_all_were_asked_comes_back() {
        let failure =
            |number| run_plan(Plan::of_scene(Scene::Forgotten, number), Some(Plant::Node(Mutation::ForgetEarly)));
        // Where the node that proposes is the one that is cut off nothing is forgotten.
        let caught = (0..20).find_map(|number| failure(number).failure.map(|failure| failure.invariant));
        assert_eq!(caught, Some("I7"));
    }
}
