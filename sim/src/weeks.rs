//! Simulated weeks of one node: each day some load, then silence until the next. What the node holds (tasks, timers,
//! connections, open files) is the same every night, or something leaks (I29). Bytes on its disk are told, not checked:
//! the journal grows until it is worth a flush.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use settee::config::{Config, Setting};
use settee::node::Node;
use settee::storage::StorageOptions;

use crate::client::{Answer, Client};
use crate::place::{PASSWORD, USER, address_of, settings_outside};
use crate::world::{Options, SimNode, SimWorld, run_seed_with};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Nights until everything that is made once is there.
const SETTLING: u64 = 2;
/// Documents of each day's own database.
const DOCUMENTS: u64 = 20;
/// Writes to each document of the database that stays.
const OVERWRITES: u64 = 5;

/// What a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Tasks of its process.
    pub tasks: usize,
    /// Timers of the world.
    pub timers: usize,
    /// Connections of the world.
    pub connections: usize,
    /// Handles on its disk.
    pub handles: usize,
    /// Bytes on its disk.
    pub bytes: u64,
}

impl Held {
    fn by(world: &SimWorld, node: &SimNode) -> Held {
        let by_node = madsim::runtime::Handle::current().metrics().num_tasks_by_node();
        let (timers, connections) = world.load();
        Held {
            tasks: by_node.get(node.name()).copied().unwrap_or(0),
            timers,
            connections,
            handles: Arc::strong_count(node.disk()),
            bytes: node.disk().files().iter().map(|(_, bytes)| bytes).sum(),
        }
    }

    /// What there is more of than before.
    fn more_than(&self, first: &Held) -> Option<String> {
        let counts = [
            ("tasks", first.tasks, self.tasks),
            ("timers", first.timers, self.timers),
            ("connections", first.connections, self.connections),
            ("files", first.handles, self.handles),
        ];
        let grown = counts.into_iter().find(|(_, before, now)| now > before);
        grown.map(|(what, before, now)| format!("{now} {what}, {before} in an earlier night"))
    }
}

/// Runs so many days; what was held every night.
///
/// # Errors
/// A request that was not served, what grows, or panics.
pub fn run(seed: u64, days: u64) -> Result<Vec<Held>, String> {
    if days < SETTLING + 2 {
        return Err(format!("{} days are the least: in the first nights it only settles", SETTLING + 2));
    }
    let options = Options { time_limit: DAY * (days as u32 + 2), ..Options::default() };
    let run = run_seed_with(seed, options, move |world| live(world, days));
    match run.panics {
        0 => run.value,
        panics => Err(format!("{panics} panics were caught")),
    }
}

async fn live(world: SimWorld, days: u64) -> Result<Vec<Held>, String> {
    let at = address_of(0);
    let node = world.node("node1", at.ip());
    let env = node.env();
    drop(env.clone().spawn(async move {
        let mut settings = settings_outside();
        settings.extend(["chttpd/bind_address=any".to_owned(), format!("chttpd/port={}", at.port())]);
        let settings = settings.iter().filter_map(|text| Setting::parse(text)).collect();
        let config = Config::in_memory(&env, settings);
        let node = Node::start_with(&env, &config, Path::new("/data"), StorageOptions::default()).await;
        if node.is_ok() {
            std::future::pending::<()>().await;
        }
    }));
    let machine = world.node("client", std::net::Ipv4Addr::new(10, 0, 1, 1).into());
    let mut client = Client::new(machine.env(), at, USER, PASSWORD);
    world.sleep(Duration::from_secs(5)).await;
    served("PUT", "/kept", client.json("PUT", "/kept?q=2", &Value::Null).await)?;
    let mut nights: Vec<Held> = Vec::new();
    for day in 0..days {
        work(&mut client, day).await?;
        // A feed that is left in the middle.
        let _ = client.listen("/kept/_changes?feed=continuous&since=now&heartbeat=1000", Duration::from_secs(5)).await;
        client.hang_up();
        world.sleep(DAY).await;
        let held = Held::by(&world, &node);
        if let Some(grown) = nights.get(SETTLING as usize).and_then(|first| held.more_than(first)) {
            return Err(format!("night {day}: {grown}"));
        }
        nights.push(held);
    }
    Ok(nights)
}

/// One day: a database that comes and goes, with a view, a query and feeds, and one that stays and is overwritten.
async fn work(client: &mut Client, day: u64) -> Result<(), String> {
    let own = format!("/day-{day}");
    let views = json!({ "views": { "n": { "map": "function (d) { emit(d.n, 1); }", "reduce": "_count" } } });
    let mut asks = vec![("PUT", format!("{own}?q=2"), Value::Null), ("PUT", format!("{own}/_design/d"), views)];
    asks.extend((0..DOCUMENTS).map(|n| ("PUT", format!("{own}/doc-{n}"), json!({ "n": n, "x": "y".repeat(500) }))));
    asks.push(("GET", format!("{own}/_design/d/_view/n"), Value::Null));
    asks.push(("POST", format!("{own}/_find"), json!({ "selector": { "n": { "$gt": 3 } } })));
    asks.push(("GET", format!("{own}/_changes?feed=longpoll&since=now&timeout=1000"), Value::Null));
    asks.push(("DELETE", own, Value::Null));
    for (method, path, body) in asks {
        served(method, &path, client.json(method, &path, &body).await)?;
    }
    for n in 0..DOCUMENTS * OVERWRITES {
        let path = format!("/kept/doc-{}", n % DOCUMENTS);
        let before = client.get(&path).await.map(|a| a.json()).unwrap_or_default();
        let mut body = json!({ "n": n, "x": "y".repeat(500) });
        if let Some(rev) = before["_rev"].as_str() {
            body["_rev"] = json!(rev);
        }
        served("PUT", &path, client.json("PUT", &path, &body).await)?;
    }
    served("POST", "/kept/_compact", client.json("POST", "/kept/_compact", &Value::Null).await)
}

fn served<E: std::fmt::Debug>(method: &str, path: &str, answer: Result<Answer, E>) -> Result<(), String> {
    match answer {
        Ok(answer) if answer.status < 300 => Ok(()),
        Ok(answer) => Err(format!("{method} {path}: {} {}", answer.status, answer.json())),
        Err(error) => Err(format!("{method} {path}: {error:?}")),
    }
}
