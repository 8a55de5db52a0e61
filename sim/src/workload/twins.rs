//! What only several nodes can get wrong: a database that is made on both sides of a split, purges that a replica
//! missed, replicas that stay different, answers that count too few replicas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::common::Common;
use super::documents::{leaf_set, leaves};
use super::graves::Graves;
use super::maintained::Maintained;
use super::members::{Members, ask};
use super::mortals::{self, Mortals};
use super::own::{carry_out, keep_purges};
use super::rules::{self, Rules};
use super::secrets::Secrets;
use super::{DB, PASSING, Worker, abreast, between, broken, counted, filtered, places::Places, seen};
use crate::client::Client;
use crate::model::{Leaf, Violation};
use crate::plan::{Plan, WorldPlan};

/// What clients promised each other of what they do together on the nodes of a cluster.
#[derive(Default)]
pub struct Together {
    /// The query with which databases are made.
    pub(super) made_with: String,
    twin: Twin,
    brief: Twin,
    /// Documents whose purge was acknowledged.
    purged: BTreeSet<String>,
    /// Documents that are deleted and written again.
    pub(super) graves: Graves,
    /// Documents that say when they end.
    pub(super) mortals: Mortals,
    /// The leaves of each document as the replicas of the first node had them in the end.
    replicas: BTreeMap<String, BTreeSet<(String, bool, Option<u64>)>>,
    /// The rows of the twins there.
    rows: BTreeMap<&'static str, Option<Vec<String>>>,
    /// Where replicas are.
    pub(crate) places: Places,
    /// Who belongs to the cluster.
    pub(super) members: Members,
    /// The secrets of cookies.
    pub(super) secrets: Secrets,
    /// Databases that several make and delete, by their numbers.
    pub(super) common: BTreeMap<u32, Common>,
    /// Rules for documents.
    pub(super) rules: Rules,
    /// Nodes in maintenance.
    pub(super) maintained: Maintained,
}

/// A database that any client makes where there is none.
#[derive(Default)]
struct Twin {
    /// Documents that must be there.
    docs: BTreeSet<String>,
    /// Deletions that were sent.
    deletions: u64,
    /// Those after which every node knew: none of them does anything to what is written from then on.
    settled: u64,
}

impl Twin {
    /// The number of deletions, where all of them have done what they do.
    fn calm(&self) -> Option<u64> {
        (self.settled == self.deletions).then_some(self.deletions)
    }
}

impl Together {
    /// Of a cluster.
    pub fn of(world: &WorldPlan) -> Together {
        Together {
            made_with: format!("?q={}&n={}", world.q, world.n),
            places: Places::of(world),
            members: Members::of(world),
            ..Together::default()
        }
    }

    fn of_name(&mut self, brief: bool) -> &mut Twin {
        if brief { &mut self.brief } else { &mut self.twin }
    }
}

fn name(brief: bool) -> &'static str {
    if brief { "brief" } else { "twin" }
}

/// Makes the databases of a cluster, in peace: every node is to know of them soon.
///
/// # Errors
/// The request that was refused.
pub async fn set_up(client: &mut Client, plan: &Plan) -> Result<(), String> {
    let world = &plan.world;
    let made_with = Together::of(world).made_with;
    let request = |name| ("PUT", format!("/{name}{made_with}"), Value::Null);
    carry_out(client, [DB, PASSING].map(request), &[412]).await?;
    keep_purges(client, PASSING, world).await?;
    if plan.has_mortals() {
        carry_out(client, [mortals::set_up()], &[]).await?;
    }
    if plan.has_rules() {
        carry_out(client, [request(rules::RULED)], &[412]).await?;
    }
    if world.far.is_some() {
        between::set_up(client, plan).await?;
    }
    if plan.has_groups() {
        counted::set_up(client, &made_with, world.replicas()).await?;
    }
    if plan.has_filters() {
        filtered::set_up(client).await?;
    }
    if plan.has_views() {
        abreast::set_up(client, &made_with, world.searches).await?;
        seen::set_up(client, world.searches).await?;
    }
    Ok(())
}

/// Looks whether a node knows the databases that were made.
///
/// # Errors
/// What it answers instead.
pub async fn look_at_databases(client: &mut Client) -> Result<(), String> {
    for name in [DB, PASSING] {
        ask(client, &format!("/{name}")).await?;
    }
    Ok(())
}

impl Worker {
    pub(super) async fn twin_write(&mut self, v: u64, brief: bool) -> Result<(), Violation> {
        let (path, doc) = (format!("/{}", name(brief)), format!("t{v}"));
        let (made_with, before) = self.locked(|s| (s.together.made_with.clone(), s.together.of_name(brief).calm()));
        let document = format!("{path}/{doc}");
        let mut answer = self.call("PUT", &document, &json!({ "v": v })).await;
        if matches!(&answer, Ok(a) if a.status == 404) {
            let _ = self.call("PUT", &format!("{path}{made_with}"), &Value::Null).await;
            answer = self.call("PUT", &document, &json!({ "v": v })).await;
        }
        let Ok(answer) = answer else { return Ok(()) };
        if self.stays(&document, &answer)? {
            self.locked(|s| {
                let twin = s.together.of_name(brief);
                if before.is_some_and(|deletions| twin.deletions == deletions) {
                    twin.docs.insert(doc);
                }
            });
        }
        Ok(())
    }

    pub(super) async fn twin_delete(&mut self) -> Result<(), Violation> {
        self.locked(|s| {
            let Twin { deletions, settled, .. } = s.together.brief;
            s.together.brief = Twin { deletions: deletions + 1, settled, docs: BTreeSet::new() };
        });
        let answer = self.call("DELETE", &format!("/{}", name(true)), &Value::Null).await;
        // 404: it did nothing.
        if answer.is_ok_and(|answer| matches!(answer.status, 200 | 404)) {
            self.locked(|s| s.together.brief.settled += 1);
        }
        Ok(())
    }

    pub(super) async fn pass(&mut self, v: u64) -> Result<(), Violation> {
        let path = format!("/{PASSING}/p{v}");
        let Ok(answer) = self.call("PUT", &path, &json!({ "v": v })).await else { return Ok(()) };
        self.stays(&path, &answer)?;
        if let Some(rev) = answer.json()["rev"].as_str() {
            self.passing.push_back((v, rev.to_owned()));
        }
        Ok(())
    }

    /// Writes a passing document again: what is purged then has an ancestor.
    pub(super) async fn pass_on(&mut self) -> Result<(), Violation> {
        let Some(at) = self.passing.iter().position(|(_, rev)| rev.starts_with("1-")) else { return Ok(()) };
        let (v, before) = self.passing[at].clone();
        let path = format!("/{PASSING}/p{v}");
        let Ok(answer) = self.call("PUT", &path, &json!({ "_rev": before, "v": v + 1 })).await else {
            // Nobody knows which revision is the leaf.
            self.passing.remove(at);
            return Ok(());
        };
        self.stays(&path, &answer)?;
        match answer.json()["rev"].as_str() {
            Some(rev) => self.passing[at].1 = rev.to_owned(),
            None => drop(self.passing.remove(at)),
        }
        Ok(())
    }

    pub(super) async fn pass_away(&mut self) -> Result<(), Violation> {
        let Some((v, rev)) = self.passing.pop_front() else { return Ok(()) };
        let doc = format!("p{v}");
        let (sent, path) = (json!({ doc.as_str(): [rev] }), format!("/{PASSING}/_purge"));
        let loses = self.locked(|s| s.model.loses_disks);
        // By any node: purge and write come to the replicas on ways of their own.
        let Some(mut elsewhere) = self.one_of_cluster(v) else { return Ok(()) };
        let Ok(answer) = self.call_by(&mut elsewhere, "POST", &path, &sent).await else { return Ok(()) };
        let promised = answer.status == 201 || answer.status == 202 && !loses;
        if promised && answer.json()["purged"][&doc] == json!([rev]) {
            self.locked(|s| s.together.purged.insert(doc));
        }
        Ok(())
    }

    /// At the end: what this node's own replicas hold, where it has one, before any read of several repairs them.
    pub async fn check_alone(&mut self) -> Result<(), Violation> {
        for doc in self.locked(|s| s.model.documents()) {
            self.check_replica_of(&doc).await?;
        }
        for doc in self.locked(|s| s.together.purged.clone()) {
            let path = format!("/{PASSING}/{doc}?r=1");
            match self.call("GET", &path, &Value::Null).await {
                Ok(a) if a.status == 404 => {}
                Ok(a) if a.status == 200 => {
                    return broken("I7", format!("{doc}: purged, and there on {}: {}", self.name, a.json()));
                }
                other => return broken("I28", format!("{path}: {other:?} after all faults")),
            }
        }
        self.check_graves().await?;
        self.check_mortals().await?;
        for brief in [false, true] {
            self.check_twin(brief).await?;
        }
        self.check_common().await?;
        self.check_rules().await
    }

    /// Everything that was acknowledged, as this node's own replicas hold it.
    pub(crate) async fn check_replicas_here(&mut self) -> Result<(), Violation> {
        for doc in self.locked(|s| s.model.documents()) {
            let (before, leaves) = (self.locked(|s| s.model.lasting(&doc)), self.leaves_here(&doc).await?);
            self.locked(|s| s.model.saw_tree(&doc, &leaves, &before))?;
        }
        self.locked(|s| s.history.counts("replicas read while their node was cut off"));
        Ok(())
    }

    /// The leaves of a shared document as this node's own replica holds them, where it has one.
    pub(super) async fn leaves_here(&mut self, doc: &str) -> Result<Vec<Leaf>, Violation> {
        let path = format!("/{DB}/{doc}?open_revs=all&revs=true&r=1");
        match self.call("GET", &path, &Value::Null).await {
            Ok(a) if a.status == 200 => Ok(leaves(&a.json())),
            Ok(a) if a.status == 404 => Ok(Vec::new()),
            other => broken("I28", format!("{path}: {other:?} after all faults")),
        }
    }

    async fn check_replica_of(&mut self, doc: &str) -> Result<(), Violation> {
        let before = self.locked(|s| s.model.lasting(doc));
        let leaves = self.leaves_here(doc).await?;
        let (mine, lane) = (leaf_set(&leaves), self.name.clone());
        self.locked(|s| {
            s.shows_tree(doc, &lane, &leaves);
            s.model.saw_tree(doc, &leaves, &before)?;
            let first = s.together.replicas.entry(doc.to_owned()).or_insert_with(|| mine.clone());
            match *first == mine {
                true => Ok(()),
                false => broken("I4", format!("{doc}: {lane} sees {mine:?}, the first node {first:?}")),
            }
        })
    }

    /// A twin has the documents that it must have, and the same on every node.
    async fn check_twin(&mut self, brief: bool) -> Result<(), Violation> {
        let path = format!("/{}/_all_docs", name(brief));
        let rows = match self.call("GET", &path, &Value::Null).await {
            Ok(a) if a.status == 200 => {
                let rows = a.json()["rows"].as_array().cloned().unwrap_or_default();
                Some(rows.iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())).collect::<Vec<String>>())
            }
            Ok(a) if a.status == 404 => None,
            other => return broken("I28", format!("{path}: {other:?} after all faults")),
        };
        let lane = self.name.clone();
        self.locked(|s| {
            let docs = &s.together.of_name(brief).docs;
            let lost = docs.iter().find(|doc| !rows.iter().flatten().any(|row| row == *doc));
            if let Some(doc) = lost {
                return broken("I1", format!("{path}: {doc} is gone on {lane}; it holds {rows:?}"));
            }
            let first = s.together.rows.entry(name(brief)).or_insert_with(|| rows.clone());
            match *first == rows {
                true => Ok(()),
                false => broken("I4", format!("{path}: {lane} sees {rows:?}, the first node {first:?}")),
            }
        })
    }
}
