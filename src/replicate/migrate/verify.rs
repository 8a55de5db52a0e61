//! The comparison at the end of a migration: every leaf of the source is looked for on the target.
//!
//! The target's feed is read into a table of digests, eight bytes of each id and eight of its leaves. The source's feed
//! is then held against it. A document whose leaves differ is asked for by `_revs_diff`: a leaf that the target has as
//! an ancestor was edited there since and is no loss. A leaf that is lacking is copied once more, and is a loss only
//! where it is still lacking after that. Documents of a large database are compared in several passes, each over those
//! whose digest falls into its part, so that the table has a bounded size.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use futures_util::TryStreamExt as _;

use super::super::error::{ReplicateError, Result};
use super::super::peer::{ChangedDoc, Doc, Peer, Want};
use super::Verify;
use super::database::Transfer;
use crate::document::json::{Object, Value};
use crate::limits;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Documents of the source.
    pub documents: u64,
    /// Leaves of the source, deleted ones included.
    pub leaves: u64,
    /// Documents of which the target has the same leaves.
    pub same: u64,
    /// Documents that the target has, with other leaves beside or above those of the source.
    pub newer: u64,
    /// Documents that only the target has.
    pub extra: u64,
    /// Leaves that were lacking at first and were copied once more.
    pub copied: u64,
    /// Leaves that the target lacks: `id rev`, the first ones.
    pub lacking: Vec<String>,
    /// How many leaves it lacks.
    pub lost: u64,
    /// Leaves whose content, history or attachments differ, the first ones.
    pub different: Vec<String>,
}

impl Compared {
    /// Whether the target has everything.
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.different.is_empty()
    }
}

/// Digests are their own hash.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

type Digests = HashMap<u64, u64, BuildHasherDefault<Same>>;

fn digest(text: &[u8]) -> u64 {
    let hash = blake3::hash(text);
    u64::from_be_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default())
}

/// A digest of the leaves of a document, whatever their order.
fn digest_of_leaves(revs: &[String]) -> u64 {
    let mut revs: Vec<&str> = revs.iter().map(String::as_str).collect();
    revs.sort_unstable();
    digest(revs.join(" ").as_bytes())
}

/// In how many passes so many documents are compared.
fn passes(documents: u64) -> u64 {
    documents.div_ceil(limits::MIGRATION_COMPARED_DOCS).max(1)
}

impl Transfer<'_> {
    /// Compares all leaves.
    pub(super) async fn compare(&self) -> Result<Compared> {
        let mut out = Compared::default();
        let count = passes(self.info.documents);
        for pass in 0..count {
            self.compare_part(&mut out, |id: u64| id % count == pass).await?;
        }
        Ok(out)
    }

    async fn compare_part(&self, out: &mut Compared, is_in: impl Fn(u64) -> bool + Send + Sync) -> Result<()> {
        let mut there = Digests::default();
        let mut pages = self.feed(&self.run.target, Value::Int(0), limits::MIGRATION_FEED_ROWS);
        while let Some(page) = pages.try_next().await? {
            for row in page.rows.iter().filter(|row| !self.is_own(&row.id)) {
                let id = digest(row.id.as_bytes());
                if is_in(id) {
                    there.insert(id, digest_of_leaves(&row.revs));
                }
            }
        }
        let source = &self.run.source.peer;
        let mut pages = self.feed(source, Value::Int(0), limits::MIGRATION_FEED_ROWS);
        while let Some(page) = pages.try_next().await? {
            let mut others = Vec::new();
            let mut equal = Vec::new();
            for row in page.rows.into_iter().filter(|row| !self.is_own(&row.id)) {
                let id = digest(row.id.as_bytes());
                if !is_in(id) {
                    continue;
                }
                out.documents += 1;
                out.leaves += row.revs.len() as u64;
                match there.remove(&id) {
                    Some(leaves) if leaves == digest_of_leaves(&row.revs) => equal.push(row),
                    _ => others.push(row),
                }
            }
            out.same += equal.len() as u64;
            self.look_closer(others, out).await?;
            if self.order.verify == Verify::Full {
                self.compare_contents(&equal, out).await?;
            }
        }
        out.extra += there.len() as u64;
        Ok(())
    }

    /// Asks the target which leaves of documents that differ it lacks, and copies those once more.
    async fn look_closer(&self, rows: Vec<ChangedDoc>, out: &mut Compared) -> Result<()> {
        for rows in rows.chunks(limits::MIGRATION_DESIGNS) {
            let lacking = self.lacking(rows).await?;
            let count: usize = lacking.iter().map(|row| row.revs.len()).sum();
            match self.run.copy_page(&lacking).await {
                // A leaf that the source does not have any more is not lost on the way.
                Ok(()) | Err(ReplicateError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
            let still = self.still_there(self.lacking(&lacking).await?).await?;
            let lost: usize = still.iter().map(|row| row.revs.len()).sum();
            out.copied += (count - lost) as u64;
            out.newer += (rows.len() - lacking.len()) as u64;
            out.same += lacking.len().saturating_sub(still.len()) as u64;
            out.lost += lost as u64;
            for row in &still {
                let names = row.revs.iter().map(|rev| format!("{} {rev}", row.id));
                let room = limits::MIGRATION_TOLD.saturating_sub(out.lacking.len());
                out.lacking.extend(names.take(room));
            }
        }
        Ok(())
    }

    async fn lacking(&self, rows: &[ChangedDoc]) -> Result<Vec<ChangedDoc>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let lacks = self.run.target.revs_diff(rows).await?;
        Ok(lacks.into_iter().map(|(id, lack)| ChangedDoc { id, revs: lack.missing }).collect())
    }

    /// Those leaves that the source still has: it may be written to meanwhile, and stem or purge.
    async fn still_there(&self, rows: Vec<ChangedDoc>) -> Result<Vec<ChangedDoc>> {
        if rows.is_empty() {
            return Ok(rows);
        }
        let gone = self.run.source.peer.revs_diff(&rows).await?;
        let has = |id: &str, rev: &String| gone.get(id).is_none_or(|lack| !lack.missing.contains(rev));
        let kept = |row: ChangedDoc| {
            let revs = row.revs.into_iter().filter(|rev| has(&row.id, rev)).collect();
            ChangedDoc { id: row.id, revs }
        };
        Ok(rows.into_iter().map(kept).filter(|row| !row.revs.is_empty()).collect())
    }

    /// Reads the leaves of documents on both sides and compares contents, histories and attachments.
    async fn compare_contents(&self, rows: &[ChangedDoc], out: &mut Compared) -> Result<()> {
        for rows in rows.chunks(limits::REPLICATION_FETCH_FIRST) {
            let want = |row: &ChangedDoc, rev: &String| Want {
                id: row.id.clone(),
                rev: rev.clone(),
                ancestors: Vec::new().into(),
            };
            let wants: Vec<Want> = rows.iter().flat_map(|row| row.revs.iter().map(|rev| want(row, rev))).collect();
            let ours = contents(&self.run.source.peer, &wants).await?;
            let mut theirs = contents(&self.run.target, &wants).await?;
            for (leaf, content) in ours {
                let is_same = theirs.remove(&leaf).is_some_and(|other| is_same(&content, &other));
                if !is_same && out.different.len() < limits::MIGRATION_TOLD {
                    out.different.push(format!("{} {}", leaf.0, leaf.1));
                }
            }
        }
        Ok(())
    }
}

/// The members of some leaves by id and revision. One that grew meanwhile stands under its new revision.
async fn contents(peer: &Peer, wants: &[Want]) -> Result<HashMap<(String, String), Object>> {
    let mut out = HashMap::new();
    let docs = match peer.fetch(wants, limits::REPLICATION_DOCUMENT_BYTES).await {
        Err(ReplicateError::TooLarge) if wants.len() > 1 => {
            let (left, right) = wants.split_at(wants.len() / 2);
            out.extend(Box::pin(contents(peer, left)).await?);
            out.extend(Box::pin(contents(peer, right)).await?);
            return Ok(out);
        }
        fetched => fetched?.docs,
    };
    for doc in docs {
        let members = Doc::members(&doc)?;
        out.insert((doc.id, doc.rev), members);
    }
    Ok(out)
}

/// Whether two leaves of one revision are the same: members, the history as far as both have it, and of attachments
/// names, types, lengths and digests.
fn is_same(ours: &Object, theirs: &Object) -> bool {
    let members = |doc: &Object| {
        let plain = doc.iter().filter(|(name, _)| !matches!(*name, "_revisions" | "_attachments"));
        let mut plain: Vec<(String, Value)> = plain.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        plain.sort_by(|(a, _), (b, _)| a.cmp(b));
        plain
    };
    let history =
        |doc: &Object| doc.get("_revisions").and_then(|r| r.as_object()?.get("ids")?.as_array().map(<[_]>::to_vec));
    let (a, b) = (history(ours).unwrap_or_default(), history(theirs).unwrap_or_default());
    let common = a.len().min(b.len());
    members(ours) == members(theirs) && a[..common] == b[..common] && attachments(ours) == attachments(theirs)
}

fn attachments(doc: &Object) -> Vec<(String, Option<Value>, Option<Value>)> {
    let entries = doc.get("_attachments").and_then(Value::as_object);
    let entry = |(name, entry): (&str, &Value)| {
        let member = |member: &str| entry.as_object().and_then(|entry| entry.get(member).cloned());
        (name.to_owned(), member("content_type"), member("digest"))
    };
    let mut out: Vec<_> = entries.into_iter().flat_map(Object::iter).map(entry).collect();
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn object(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    #[test]
    fn the_order_of_leaves_does_not_count() {
        let revs = |revs: &[&str]| revs.iter().map(|rev| (*rev).to_owned()).collect::<Vec<_>>();
        assert_eq!(digest_of_leaves(&revs(&["2-b", "1-a"])), digest_of_leaves(&revs(&["1-a", "2-b"])));
        assert_ne!(digest_of_leaves(&revs(&["2-b", "1-a"])), digest_of_leaves(&revs(&["2-b"])));
    }

    #[test]
    fn large_databases_are_compared_in_passes() {
        assert_eq!(
            [0, 1, limits::MIGRATION_COMPARED_DOCS, limits::MIGRATION_COMPARED_DOCS + 1].map(passes),
            [1, 1, 1, 2]
        );
    }

    #[test]
    fn contents_are_compared_with_histories_and_attachments() {
        let doc = object(r#"{"_id":"a","_rev":"2-b","x":[1],"_revisions":{"start":2,"ids":["b","a"]}}"#);
        let reordered = object(r#"{"x":[1],"_id":"a","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]}}"#);
        let shorter = object(r#"{"_id":"a","_rev":"2-b","x":[1],"_revisions":{"start":2,"ids":["b"]}}"#);
        let other_history = object(r#"{"_id":"a","_rev":"2-b","x":[1],"_revisions":{"start":2,"ids":["b","c"]}}"#);
        let other_content = object(r#"{"_id":"a","_rev":"2-b","x":[2],"_revisions":{"start":2,"ids":["b","a"]}}"#);
        assert!(is_same(&doc, &reordered) && is_same(&doc, &shorter));
        assert!(!is_same(&doc, &other_history) && !is_same(&doc, &other_content));
        let with = |digest: &str| {
            object(&format!(r#"{{"_attachments":{{"f":{{"content_type":"a/b","digest":"{digest}"}}}}}}"#))
        };
        assert!(is_same(&with("md5-x"), &with("md5-x")) && !is_same(&with("md5-x"), &with("md5-y")));
    }
}
