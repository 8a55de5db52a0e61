//! What happens in peace: before the clients begin the nodes find each other and the databases are made; when all
//! faults have ended everything is read back and held against the model.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use settee::limits;
use settee::world::buggify;

use crate::client::Client;
use crate::faults::Scene;
use crate::model::Violation;
use crate::place::{PASSWORD, USER, address_of};
use crate::plan::{Op, Plan, WorldPlan};
use crate::workload::{
    DB, MAINTENANCE, Worker, carry_out, check_between, check_members, give_first_secret, lock, look_at_connections,
    look_at_databases, look_at_members, set_up_cluster, set_up_counted, set_up_filters, set_up_own,
};
use crate::world::SimNode;

/// The budget of what requests hold, a feed as long as it is read.
const BODIES: &str = "memory of bodies of requests";
/// How long the node may take to answer again once all faults have ended.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long what nobody gives back may be held: states of indexes the longest, where the word that they are needed no
/// more was lost.
const GIVEN_BACK: Duration = limits::HELD_STATE_IDLE.saturating_add(RECOVERY);
/// How long the replicas of a cluster may take to become equal once all faults have ended.
const CONVERGENCE: Duration = Duration::from_secs(60);
/// How long it may take in peace until every node knows what others know, of nodes and of databases.
const SPREAD: Duration = Duration::from_secs(5);
/// Until a node that hears no other one knows that, and until it has met them again.
const NOTICED: Duration = Duration::from_secs(12);
/// How often the set-up is tried: the first start may be cut.
const SET_UP_TRIES: u32 = 5;

pub(crate) fn client(machine: &SimNode, node: u32) -> Client {
    Client::new(machine.env(), address_of(node), USER, PASSWORD)
}

/// Waits until the nodes answer and makes the databases; again, should the first start be cut.
pub(crate) async fn set_up(oracle: &SimNode, plan: &Plan) -> Result<(), Violation> {
    let mut last = String::new();
    for _ in 0..SET_UP_TRIES {
        ready(oracle, &plan.world).await?;
        match make_databases(oracle, plan).await {
            Ok(()) => {
                first_secrets(oracle, plan).await?;
                return know_databases(oracle, &plan.world).await;
            }
            Err(error) => last = error,
        }
    }
    Err(Violation { invariant: "I28", what: format!("the databases are not made: {last}") })
}

/// Makes the databases of each cluster, or of the first server where there is none.
///
/// # Errors
/// The request that was refused.
async fn make_databases(oracle: &SimNode, plan: &Plan) -> Result<(), String> {
    let clusters = plan.world.clusters();
    for nodes in &clusters {
        set_up_cluster(&mut client(oracle, nodes.start), plan).await?;
    }
    if !clusters.is_empty() {
        return Ok(());
    }
    let mut client = client(oracle, 0);
    let shared = ("PUT", format!("/{DB}?q={}", plan.world.q), Value::Null);
    carry_out(&mut client, [shared], &[412]).await?;
    if plan.has_filters() {
        set_up_filters(&mut client).await?;
    }
    if plan.has_groups() {
        set_up_counted(&mut client, &format!("?q={}", plan.world.q.min(2)), 1).await?;
    }
    set_up_own(&mut client, &plan.world).await
}

/// Gives all nodes the same secret of cookies, where it is to change.
async fn first_secrets(oracle: &SimNode, plan: &Plan) -> Result<(), Violation> {
    if !plan.changes_secrets() {
        return Ok(());
    }
    let nodes = (0..plan.world.nodes).collect::<Vec<u32>>();
    let told = soon(oracle, &nodes, SPREAD, async |client| give_first_secret(client).await).await;
    told.map_err(|wrong| Violation { invariant: "I28", what: format!("a node takes no secret: {wrong}") })
}

/// Waits until all nodes of each cluster know its databases.
async fn know_databases(oracle: &SimNode, world: &WorldPlan) -> Result<(), Violation> {
    for nodes in world.clusters() {
        soon_everywhere(oracle, nodes, async |client| look_at_databases(client).await).await?;
    }
    Ok(())
}

/// Waits until all nodes answer and those that are one cluster know each other.
pub(crate) async fn ready(oracle: &SimNode, world: &WorldPlan) -> Result<(), Violation> {
    for node in 0..world.machines() {
        wait_until_up(oracle, node).await?;
    }
    for nodes in world.clusters() {
        let count = nodes.len() as u32;
        soon_everywhere(oracle, nodes, async |client| look_at_members(client, count).await).await?;
    }
    Ok(())
}

pub(crate) async fn wait_until_up(oracle: &SimNode, node: u32) -> Result<(), Violation> {
    wait_until_up_or(oracle, node, || ()).await
}

/// The same; `stopped` is called whenever the node says that a disk error has stopped its writes: it does not take any
/// before somebody restarts it.
pub(crate) async fn wait_until_up_or(oracle: &SimNode, node: u32, stopped: impl Fn()) -> Result<(), Violation> {
    let env = oracle.env();
    let (started, mut last) = (env.now(), String::new());
    while env.now().since(started) < RECOVERY {
        // A connection of its own for each try: an old one may be half open.
        match env.timeout(Duration::from_secs(5), async { client(oracle, node).get("/_up").await }).await {
            Ok(Ok(answer)) if answer.status == 200 => return Ok(()),
            answer => {
                match &answer {
                    Ok(Ok(answer)) if answer.json()["status"] == "writes_stopped" => stopped(),
                    Ok(Ok(answer)) if answer.json()["status"] == "maintenance_mode" => {
                        let mut client = client(oracle, node);
                        let _ = client.json("PUT", MAINTENANCE, &Value::String("false".to_owned())).await;
                    }
                    _ => {}
                }
                last = format!("{answer:?}");
            }
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    let what = format!("node {node} does not answer after all faults have ended: at last {last}");
    Err(Violation { invariant: "I28", what })
}

/// Waits until all nodes of a cluster answer as they should in peace.
async fn soon_everywhere(
    oracle: &SimNode,
    nodes: Range<u32>,
    look: impl AsyncFn(&mut Client) -> Result<(), String>,
) -> Result<(), Violation> {
    let all: Vec<u32> = nodes.collect();
    let wrong =
        |wrong| Violation { invariant: "I28", what: format!("nodes do not hear of the others in peace: {wrong}") };
    soon(oracle, &all, SPREAD, look).await.map_err(wrong)
}

/// Waits until these nodes of a cluster reach each other, and count nobody else in; whether they do in time.
pub(crate) async fn meet(oracle: &SimNode, nodes: &[u32], within: Duration) -> bool {
    soon(oracle, nodes, within, async |client| look_at_connections(client, nodes).await).await.is_ok()
}

/// Waits until these nodes answer as they should.
///
/// # Errors
/// The first that does not in time, and what it answers.
async fn soon(
    oracle: &SimNode,
    nodes: &[u32],
    within: Duration,
    look: impl AsyncFn(&mut Client) -> Result<(), String>,
) -> Result<(), String> {
    let env = oracle.env();
    let started = env.now();
    for node in nodes {
        while let Err(answer) = look(&mut client(oracle, *node)).await {
            if env.now().since(started) > within {
                return Err(format!("node {node}: {answer}"));
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

pub(crate) async fn check_final_state(scene: &Scene, plan: &Plan, workers: &mut Vec<Worker>) -> Result<(), Violation> {
    let oracle = &scene.oracle;
    for node in (0..plan.world.machines()).filter(|node| plan.spoiled() != Some(*node)) {
        wait_until_up(oracle, node).await?;
    }
    for worker in workers.iter_mut() {
        worker.reconnect();
    }
    match plan.world.far {
        Some(_) => {
            let mut oracles: Vec<Worker> = (0..plan.world.machines()).map(|node| reader_at(scene, node)).collect();
            check_between(&mut oracles, plan).await?;
        }
        None if plan.world.n > 0 => oracle.env().sleep(CONVERGENCE).await,
        None => {}
    }
    let several = members(scene, plan).await?;
    if plan.cuts_off_at_the_end() {
        for node in &several {
            check_cut_off(scene, *node).await?;
        }
    }
    if plan.mends() {
        check_mended(oracle, &several).await?;
    }
    if plan.world.n > 0 {
        workers.retain(|worker| worker.is_at(&several));
    }
    for node in &several {
        reader_at(scene, *node).check_places().await?;
    }
    for node in &several {
        reader_at(scene, *node).check_alone().await?;
    }
    let first = client(oracle, several.first().copied().unwrap_or(0));
    let mut reader = Worker::new("oracle", first, Arc::clone(&scene.shared));
    let trees = reader.check_final_state(workers).await?;
    for node in several.iter().skip(1) {
        reader_at(scene, *node).check_final_state(&mut []).await?;
    }
    if plan.world.nodes == 2 && plan.world.n == 0 {
        reader.check_copy(&mut client(oracle, 1)).await?;
    }
    if plan.world.nodes > 1 {
        for worker in workers.iter_mut() {
            worker.check_jobs().await?;
        }
    }
    // Where the disk was damaged a compaction may well meet it; the replicas of a cluster are compacted one by one.
    if plan.world.n == 0 && !plan.damages() {
        reader.check_compaction(&trees).await?;
    }
    check_memory(oracle, plan).await
}

/// Whether every budget of memory is given back on all nodes while nobody asks for anything: each at some moment, since
/// nodes go on comparing their replicas. Feeds that clients keep open may hold what they asked with.
async fn check_memory(oracle: &SimNode, plan: &Plan) -> Result<(), Violation> {
    let feeds = plan.clients.iter().flatten().filter(|timed| matches!(timed.op, Op::Keep { .. })).count() as i64;
    let at_rest = |what: &str| if what == BODIES { feeds } else { 0 };
    let (env, mut never) = (oracle.env(), buggify::taken());
    let started = env.now();
    loop {
        let now = buggify::taken();
        never.retain(|what, _| now.get(what).is_some_and(|units| !(0..=at_rest(what)).contains(units)));
        if never.is_empty() {
            return Ok(());
        }
        if env.now().since(started) > GIVEN_BACK {
            let what = format!("budgets that are not given back at rest, with the units that are held: {now:?}");
            return Err(Violation { invariant: "I35", what });
        }
        env.sleep(Duration::from_millis(50)).await;
    }
}

/// Whether damaged store files of single shards are replaced, once somebody has read all documents.
async fn check_mended(oracle: &SimNode, nodes: &[u32]) -> Result<(), Violation> {
    for node in nodes {
        // What is damaged there is read from others.
        let _ = client(oracle, *node).get(&format!("/{DB}/_all_docs?include_docs=true&conflicts=true")).await;
    }
    let look = async |client: &mut Client| match client.get("/_node/_local/_stats/settee/damaged_files").await {
        Ok(answer) if answer.json()["value"] == 0 => Ok(()),
        Ok(answer) => Err(answer.json().to_string()),
        other => Err(format!("{other:?}")),
    };
    let wrong = |wrong| Violation { invariant: "I31", what: format!("a damaged store file is not replaced: {wrong}") };
    soon(oracle, nodes, RECOVERY, look).await.map_err(wrong)
}

/// What a node holds that hears no other one: as long as it does, it may answer with what they hold.
async fn check_cut_off(scene: &Scene, node: u32) -> Result<(), Violation> {
    let own = address_of(node).ip();
    let others: Vec<_> = scene.keepers.iter().map(|keeper| keeper.node.ip()).filter(|ip| *ip != own).collect();
    let (world, env) = (&scene.world, scene.oracle.env());
    world.partition_one_way(&[own], &others);
    world.partition_one_way(&others, &[own]);
    env.sleep(NOTICED).await;
    let outcome = reader_at(scene, node).check_replicas_here().await;
    for other in others {
        world.heal(own, other);
        world.heal(other, own);
    }
    env.sleep(NOTICED).await;
    outcome
}

fn reader_at(scene: &Scene, node: u32) -> Worker {
    Worker::new(&format!("oracle of node {node}"), client(&scene.oracle, node), Arc::clone(&scene.shared))
}

/// The nodes of clusters that are checked in the end, once they agree on who they are; none without one.
async fn members(scene: &Scene, plan: &Plan) -> Result<Vec<u32>, Violation> {
    let mut stays = plan.stays().concat();
    stays.retain(|node| plan.spoiled() != Some(*node));
    let Some(first) = stays.first().filter(|_| plan.changes_members()) else { return Ok(stays) };
    let mut oracles: Vec<Worker> = (0..plan.world.nodes).map(|node| reader_at(scene, node)).collect();
    let nodes = check_members(&mut oracles, *first as usize).await?;
    lock(&scene.shared).clusters = vec![nodes.clone()];
    Ok(nodes)
}
