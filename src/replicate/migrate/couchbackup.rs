//! Files of the program couchbackup: one JSON array of documents a line, written into a database with their revisions.
//!
//! The first line may be an object that tells the version and the mode. `full` backups hold every leaf with its
//! history, `shallow` ones only winners. A backup that was killed and resumed has a line that is cut off and ends with
//! a marker; its documents follow again later. A checkpoint in a local document of the target tells how many bytes of
//! the file are there: a load that is killed goes on at that line.

use std::io::{self, BufRead, Read};
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, TryStreamExt as _};

use super::super::error::{ReplicateError, Result};
use super::super::peer::{ChangedDoc, Doc, Peer};
use super::database::{CHECKPOINT, run_of};
use super::server::Server;
use super::{Order, Report, Tell, Told, Verify, patience};
use crate::document::json::{self, Object, Value};
use crate::limits;
use crate::wire::hex;
use crate::world::{BoxFuture, Env, Pool};

/// What the line that a resumed backup begins with ends in.
const RESUMED: &[u8] = br#"{"marker":"@cloudant/couchbackup:resume"}"#;

/// A file of couchbackup that is read from its start.
pub type Backup = Box<dyn BufRead + Send>;

/// A line of a file.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    /// Documents.
    Documents(Vec<Object>),
    /// What the file tells of itself: its mode.
    Head(String),
    /// Nothing, or the marker of a resumed backup.
    Empty,
    /// Cut off by the end of a backup that was resumed.
    Torn,
}

/// Reads a line. `headed`: the file tells its version, and marks where it was resumed.
fn parse(line: &[u8], headed: bool) -> std::result::Result<Line, String> {
    if line.is_empty() || line == RESUMED {
        return Ok(Line::Empty);
    }
    let value = match json::parse(line) {
        Ok(value) => value,
        Err(_) if !headed || line.ends_with(RESUMED) => return Ok(Line::Torn),
        Err(_) => return Err("is no JSON".to_owned()),
    };
    match value {
        Value::Array(docs) => {
            let docs = docs.into_iter().map(|doc| match doc {
                Value::Object(doc) if doc.contains("_id") && doc.contains("_rev") => Ok(as_stored(doc)),
                _ => Err("holds something else than documents with _id and _rev".to_owned()),
            });
            Ok(Line::Documents(docs.collect::<std::result::Result<_, String>>()?))
        }
        Value::Object(head) if head.contains("mode") && head.contains("version") => {
            Ok(Line::Head(head.get("mode").and_then(Value::as_str).unwrap_or_default().to_owned()))
        }
        _ => Err("is no list of documents".to_owned()),
    }
}

/// A document as its database had it: couchbackup 2.10 and later write two members of attachments in another spelling.
fn as_stored(mut doc: Object) -> Object {
    if let Some(Value::Object(entries)) = doc.get_mut("_attachments") {
        let names: Vec<String> = entries.iter().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let Some(Value::Object(entry)) = entries.get_mut(&name) else { continue };
            for (written, stored) in [("contentType", "content_type"), ("encodedLength", "encoded_length")] {
                if let Some(value) = entry.remove(written) {
                    entry.insert(stored, value);
                }
            }
        }
    }
    doc
}

/// The name of an attachment whose bytes the file does not have.
fn lacks_bytes(doc: &Object) -> Option<&str> {
    let entries = doc.get("_attachments")?.as_object()?;
    let lacks = |entry: &Value| entry.as_object().is_some_and(|entry| !entry.contains("data"));
    entries.iter().find(|(_, entry)| lacks(entry)).map(|(name, _)| name)
}

/// The lines of a file, read on the pool.
struct Lines {
    env: Env,
    file: Option<Backup>,
    /// Bytes of the lines so far.
    offset: u64,
    number: u64,
    headed: bool,
}

impl Lines {
    fn new(env: &Env, file: Backup) -> Lines {
        Lines { env: env.clone(), file: Some(file), offset: 0, number: 0, headed: false }
    }

    fn failed(&self, why: impl std::fmt::Display) -> ReplicateError {
        ReplicateError::failed("bad_backup", format!("line {} {why}", self.number))
    }

    /// The next line with the offset behind it.
    async fn next(&mut self) -> Result<Option<(u64, Line)>> {
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let read = move || {
            let mut line = Vec::new();
            let result = (&mut file).take(limits::COUCHBACKUP_LINE_BYTES).read_until(b'\n', &mut line);
            (file, result.map(|_| line))
        };
        let (file, line) = self.env.blocking(Pool::Background, read).await;
        self.number += 1;
        let line = line.map_err(|error: io::Error| self.failed(format!("cannot be read: {error}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() as u64 == limits::COUCHBACKUP_LINE_BYTES {
            return Err(self.failed("is longer than is read at once"));
        }
        self.file = Some(file);
        self.offset += line.len() as u64;
        let text = line.trim_ascii();
        let parsed = parse(text, self.headed).map_err(|why| self.failed(why))?;
        self.headed |= matches!(parsed, Line::Head(_));
        Ok(Some((self.offset, parsed)))
    }
}

/// A load of one file.
struct Load<'l> {
    env: &'l Env,
    target: Arc<Peer>,
    database: &'l str,
    tell: Tell<'l>,
    /// The name of the checkpoint.
    checkpoint: String,
}

/// Loads a file into the database `name` of `order.target`. `open` opens the file at its start; it is opened again to
/// compare. `identity` tells the file from others.
///
/// # Errors
/// When the file is no backup, or the target cannot be used. The next run goes on behind the last checkpoint.
pub async fn load(
    env: &Env,
    order: &Order,
    (name, identity): (&str, &str),
    open: &(dyn Fn() -> io::Result<Backup> + Send + Sync),
    tell: Tell<'_>,
) -> Result<Report> {
    let server = Server::new(env, &order.target, patience(), order.trust.clone());
    let mut parameters = Vec::new();
    parameters.extend(order.q.map(|q| ("q", q.to_string())));
    parameters.extend(order.n.map(|n| ("n", n.to_string())));
    server.create(name, &parameters).await?;
    let run = run_of(env, order, name)?;
    let hash = blake3::hash(format!("{identity}\n{name}").as_bytes());
    let checkpoint = format!("{CHECKPOINT}{}", hex::encode(&hash.as_bytes()[..16]));
    let load = Load { env, target: Arc::clone(&run.target), database: name, tell, checkpoint };
    let file = |error: io::Error| ReplicateError::failed("bad_backup", error.to_string());
    let mut report = Report::default();
    load.write_all(Lines::new(env, open().map_err(file)?), &mut report).await?;
    if order.verify != Verify::None {
        load.compare(Lines::new(env, open().map_err(file)?), &mut report).await?;
    }
    if report.failed.is_empty() {
        report.databases = 1;
    }
    Ok(report)
}

impl Load<'_> {
    fn say(&self, line: String) {
        (self.tell)(Told::Line(format!("{}: {line}", self.database)));
    }

    /// Writes all documents; design documents last, because their validation functions would refuse older documents.
    async fn write_all(&self, lines: Lines, report: &mut Report) -> Result<()> {
        let found = self.target.local_get(&self.checkpoint).await?;
        let member = |name: &str| found.as_ref().and_then(|found| found.get(name).cloned());
        let from = member("offset").and_then(|offset| offset.as_u64()).unwrap_or(0);
        let mut rev = member("_rev").and_then(|rev| rev.as_str().map(str::to_owned));
        if from > 0 {
            self.say(format!("goes on behind {from} bytes of the file"));
        }
        let mut designs: Vec<Object> = Vec::new();
        let steps = stream::try_unfold(lines, |mut lines| async move {
            Ok(lines.next().await?.map(|(offset, line)| ((offset, line), lines)))
        });
        let steps = steps.map_ok(|(offset, line)| self.write_line(offset, line, from));
        let mut steps = pin!(steps.try_buffered(limits::COUCHBACKUP_LINES));
        let (mut recorded, mut done) = (self.env.now(), from);
        while let Some(step) = steps.try_next().await? {
            report.written += step.written;
            for refused in step.refused {
                self.say(refused.clone());
                report.failed.push((self.database.to_owned(), refused));
            }
            designs.extend(step.designs);
            done = step.offset.max(done);
            let is_due = self.env.now().since(recorded) >= limits::MIGRATION_CHECKPOINT;
            if is_due && done > from {
                rev = Some(self.record(rev, done).await?);
                recorded = self.env.now();
                (self.tell)(Told::Progress(format!("{} revisions, {done} bytes of the file", report.written)));
            }
        }
        self.record(rev, done).await?;
        for docs in designs.chunks(limits::MIGRATION_DESIGNS) {
            let docs = docs.iter().cloned().filter_map(Doc::from_body).collect::<Vec<_>>();
            let refused = self.target.write(&docs).await?;
            report.written += (docs.len() - refused.len()) as u64;
            let refused = refused.into_iter().map(|refusal| format!("{} {}", refusal.id, refusal.reason));
            report.failed.extend(refused.map(|why| (self.database.to_owned(), why)));
        }
        self.say(format!("{} revisions written", report.written));
        Ok(())
    }

    async fn record(&self, rev: Option<String>, offset: u64) -> Result<String> {
        self.target.ensure_full_commit().await?;
        let mut body = Object::new();
        body.push("offset", offset);
        match self.target.local_put(&self.checkpoint, rev.as_deref(), &body).await {
            Err(ReplicateError::Conflict) => {
                let there = self.target.local_get(&self.checkpoint).await?;
                let rev = there.as_ref().and_then(|there| there.get("_rev")?.as_str().map(str::to_owned));
                self.target.local_put(&self.checkpoint, rev.as_deref(), &body).await
            }
            outcome => outcome,
        }
    }

    /// Writes the documents of one line, unless an earlier run did. Its design documents wait in either case.
    fn write_line(&self, offset: u64, line: Line, from: u64) -> BoxFuture<'_, Result<Step>> {
        Box::pin(async move {
            let mut step = Step { offset, ..Step::default() };
            let docs = match line {
                Line::Documents(docs) => docs,
                Line::Head(mode) => {
                    if mode == "shallow" {
                        self.say("a shallow backup: no histories, conflicts or deletions".to_owned());
                    }
                    return Ok(step);
                }
                Line::Torn => {
                    self.say(format!("a torn line that ends at byte {offset} is left out, as after a resumed backup"));
                    return Ok(step);
                }
                Line::Empty => return Ok(step),
            };
            let is_design =
                |doc: &Object| doc.get("_id").and_then(Value::as_str).is_some_and(|id| id.starts_with("_design/"));
            let (designs, docs): (Vec<Object>, Vec<Object>) = docs.into_iter().partition(is_design);
            step.designs = designs;
            if offset <= from {
                return Ok(step);
            }
            let (stubs, docs): (Vec<Object>, Vec<Object>) =
                docs.into_iter().partition(|doc| lacks_bytes(doc).is_some());
            step.refused.extend(stubs.iter().map(|doc| {
                let id = doc.get("_id").and_then(Value::as_str).unwrap_or_default();
                let name = lacks_bytes(doc).unwrap_or_default();
                format!("refused: {id}: the file does not hold its attachment {name} (couchbackup --attachments)")
            }));
            for batch in batches(docs) {
                let docs: Vec<Doc> = batch.into_iter().filter_map(Doc::from_body).collect();
                let refused = self.target.write(&docs).await?;
                step.written += (docs.len() - refused.len()) as u64;
                step.refused
                    .extend(refused.into_iter().map(|r| format!("refused: {} {}: {}", r.id, r.error, r.reason)));
            }
            Ok(step)
        })
    }

    /// Reads the file once more and asks the target whether it has every revision in it.
    async fn compare(&self, mut lines: Lines, report: &mut Report) -> Result<()> {
        while let Some((_, line)) = lines.next().await? {
            let Line::Documents(docs) = line else { continue };
            let text = |doc: &Object, name: &str| doc.get(name).and_then(Value::as_str).map(str::to_owned);
            let row = |doc: &Object| Some(ChangedDoc { id: text(doc, "_id")?, revs: vec![text(doc, "_rev")?] });
            let mut rows: Vec<ChangedDoc> = Vec::new();
            for row in docs.iter().filter_map(row) {
                match rows.iter_mut().rev().find(|known| known.id == row.id) {
                    Some(known) => known.revs.extend(row.revs),
                    None => rows.push(row),
                }
            }
            report.compared.documents += rows.len() as u64;
            report.compared.leaves += docs.len() as u64;
            for rows in rows.chunks(limits::MIGRATION_DESIGNS) {
                for (id, lack) in self.target.revs_diff(rows).await? {
                    report.compared.lost += lack.missing.len() as u64;
                    lack.missing.iter().for_each(|rev| self.say(format!("lacking: {id} {rev}")));
                }
            }
        }
        let (leaves, lost) = (report.compared.leaves, report.compared.lost);
        report.compared.same = report.compared.documents - lost.min(report.compared.documents);
        self.say(format!("{leaves} leaves of the file compared, {lost} lacking"));
        if lost > 0 {
            report.failed.push((self.database.to_owned(), format!("{lost} leaves are lacking")));
        }
        Ok(())
    }
}

/// What became of one line.
#[derive(Default)]
struct Step {
    offset: u64,
    written: u64,
    designs: Vec<Object>,
    refused: Vec<String>,
}

/// Documents in batches of about [`limits::COUCHBACKUP_BATCH_BYTES`].
fn batches(docs: Vec<Object>) -> Vec<Vec<Object>> {
    let mut out: Vec<Vec<Object>> = Vec::new();
    let mut room = 0;
    for doc in docs {
        let bytes = doc.to_vec().len();
        match out.last_mut() {
            Some(last) if bytes <= room => last.push(doc),
            _ => {
                room = limits::COUCHBACKUP_BATCH_BYTES;
                out.push(vec![doc]);
            }
        }
        room = room.saturating_sub(bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_documents_heads_and_markers() {
        let head = br#"{"name":"@cloudant/couchbackup","version":"2.11.12","mode":"full","attachments":true}"#;
        assert_eq!(parse(head, false), Ok(Line::Head("full".to_owned())));
        assert_eq!(parse(RESUMED, true), Ok(Line::Empty));
        let Ok(Line::Documents(docs)) = parse(br#"[{"_id":"a","_rev":"1-b"},{"_id":"c","_rev":"1-d"}]"#, true) else {
            panic!("documents")
        };
        assert_eq!(docs.len(), 2);
    }

    #[test]
    fn attachments_are_read_as_the_program_spells_them() {
        let line = br#"[{"_id":"a","_rev":"1-b","_attachments":{"f":{"contentType":"a/b","revpos":1,"data":"eA=="},
            "g":{"content_type":"c/d","stub":true}}}]"#;
        let Ok(Line::Documents(docs)) = parse(line, true) else { panic!("documents") };
        let text = String::from_utf8(docs[0].to_vec()).unwrap();
        assert!(text.contains(r#""content_type":"a/b""#) && text.contains(r#""content_type":"c/d""#), "{text}");
        assert!(!text.contains("contentType") && lacks_bytes(&docs[0]) == Some("g"), "{text}");
    }

    #[test]
    fn a_line_that_was_cut_off_counts_only_where_the_backup_was_resumed() {
        let torn = [br#"[{"_id":"a","_re"#, RESUMED].concat();
        assert_eq!(parse(&torn, true), Ok(Line::Torn));
        assert!(parse(br#"[{"_id":"a","_re"#, true).is_err());
        // Versions that wrote no head wrote no marker.
        assert_eq!(parse(br#"[{"_id":"a","_re"#, false), Ok(Line::Torn));
    }

    #[test]
    fn what_is_no_backup_is_refused() {
        assert!(parse(br#"[{"_id":"a"}]"#, false).is_err());
        assert!(parse(br#"{"rows":[]}"#, false).is_err());
        assert!(parse(b"5", false).is_err());
    }

    #[test]
    fn large_documents_go_in_batches_of_their_own() {
        let doc = |bytes: usize| {
            let mut doc = Object::new();
            doc.push("x", "y".repeat(bytes));
            doc
        };
        let sizes = |docs: Vec<Object>| batches(docs).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..10).map(|_| doc(10)).collect()), [10]);
        assert_eq!(sizes(vec![doc(10), doc(limits::COUCHBACKUP_BATCH_BYTES), doc(10)]), [1, 1, 1]);
        assert!(sizes(Vec::new()).is_empty());
    }
}
