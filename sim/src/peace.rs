//! What happens in peace: before the clients begin the nodes find each other and the databases are made; when all
//! faults have ended everything is read back and held against the model.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::client::Client;
use crate::faults::Scene;
use crate::model::Violation;
use crate::place::{PASSWORD, USER, address_of};
use crate::plan::Plan;
use crate::workload::{DB, Worker, judge_between, look_at_databases, look_at_members, set_up_cluster, set_up_own};
use crate::world::SimNode;

/// How long the node may take to answer again once all faults have ended.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long the copies of a cluster may take to become equal once all faults have ended.
const CONVERGENCE: Duration = Duration::from_secs(60);
/// How long it may take in peace until every node knows what others know, of nodes and of databases.
const SPREAD: Duration = Duration::from_secs(5);
/// How often the set-up is tried: the first start may be cut.
const SET_UP_TRIES: u32 = 5;

pub(crate) fn client(machine: &SimNode, node: u32) -> Client {
    Client::new(machine.env(), address_of(node), USER, PASSWORD)
}

/// Waits until the nodes answer and makes the databases; again, should the first start be cut.
pub(crate) async fn set_up(judge: &SimNode, plan: &Plan) -> Result<(), Violation> {
    let mut last = String::new();
    for _ in 0..SET_UP_TRIES {
        let nodes = 0..plan.world.machines();
        if plan.world.n > 0 {
            match set_up_clusters(judge, plan).await? {
                Ok(()) => return soon_everywhere(judge, nodes, async |client| look_at_databases(client).await).await,
                Err(error) => last = error,
            }
            continue;
        }
        ready(judge, nodes, false).await?;
        let mut client = client(judge, 0);
        let made = client.json("PUT", &format!("/{DB}?q={}", plan.world.q), &Value::Null).await;
        match made {
            Ok(a) if a.status < 300 || a.status == 412 => match set_up_own(&mut client, &plan.world).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            },
            other => last = format!("{other:?}"),
        }
    }
    Err(Violation { invariant: "I28", what: format!("the databases are not made: {last}") })
}

/// Makes the databases of each cluster when its nodes have found each other; the request that was refused.
async fn set_up_clusters(judge: &SimNode, plan: &Plan) -> Result<Result<(), String>, Violation> {
    for nodes in plan.world.clusters() {
        let mut first = client(judge, nodes.start);
        ready(judge, nodes, true).await?;
        if let Err(error) = set_up_cluster(&mut first, plan).await {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Waits until all nodes answer and, where they are one cluster, know each other.
pub(crate) async fn ready(judge: &SimNode, nodes: Range<u32>, cluster: bool) -> Result<(), Violation> {
    for node in nodes.clone() {
        wait_until_up(judge, node).await?;
    }
    let count = nodes.len() as u32;
    match cluster {
        true => soon_everywhere(judge, nodes, async |client| look_at_members(client, count).await).await,
        false => Ok(()),
    }
}

pub(crate) async fn wait_until_up(judge: &SimNode, node: u32) -> Result<(), Violation> {
    let env = judge.env();
    let started = env.now();
    while env.now().since(started) < RECOVERY {
        // A connection of its own for each try: an old one may be half open.
        let answer = env.timeout(Duration::from_secs(5), async { client(judge, node).get("/_up").await }).await;
        if matches!(answer, Ok(Ok(a)) if a.status == 200) {
            return Ok(());
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    Err(Violation { invariant: "I28", what: format!("node {node} does not answer after all faults have ended") })
}

/// Waits until all nodes of a cluster answer as they should in peace.
async fn soon_everywhere(
    judge: &SimNode,
    nodes: Range<u32>,
    look: impl AsyncFn(&mut Client) -> Result<(), String>,
) -> Result<(), Violation> {
    let env = judge.env();
    let started = env.now();
    for node in nodes {
        while let Err(answer) = look(&mut client(judge, node)).await {
            if env.now().since(started) > SPREAD {
                let what = format!("node {node} does not hear of the others in peace: {answer}");
                return Err(Violation { invariant: "I28", what });
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

pub(crate) async fn judge_at_the_end(scene: &Scene, plan: &Plan, workers: &mut [Worker]) -> Result<(), Violation> {
    let judge = &scene.judge;
    for node in 0..plan.world.machines() {
        wait_until_up(judge, node).await?;
    }
    let mut reader = Worker::new("judge", client(judge, 0), Arc::clone(&scene.shared));
    for worker in workers.iter_mut() {
        worker.reconnect();
    }
    let several = if plan.world.n > 0 { plan.world.machines() } else { 0 };
    let reader_of =
        |node| Worker::new(&format!("judge of node {node}"), client(judge, node), Arc::clone(&scene.shared));
    match plan.world.far {
        Some(_) => judge_between(&mut (0..several).map(reader_of).collect::<Vec<_>>(), plan).await?,
        None if several > 0 => judge.env().sleep(CONVERGENCE).await,
        None => {}
    }
    for node in 0..several {
        reader_of(node).judge_places().await?;
    }
    for node in 0..several {
        reader_of(node).judge_alone().await?;
    }
    let trees = reader.judge_at_the_end(workers).await?;
    for node in 1..several {
        reader_of(node).judge_at_the_end(&mut []).await?;
    }
    if plan.world.nodes == 2 && plan.world.n == 0 {
        reader.judge_copy(&mut client(judge, 1)).await?;
    }
    if plan.world.nodes > 1 {
        for worker in workers.iter_mut() {
            worker.judge_jobs().await?;
        }
    }
    // Where the disk was damaged a compaction may well meet it; the copies of a cluster are compacted one by one.
    if plan.world.n == 0 && !plan.damages() {
        reader.judge_compaction(&trees).await?;
    }
    Ok(())
}
