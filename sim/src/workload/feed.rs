//! Followers of the changes feed: every mode, cut off anywhere, resumed from the last sequence that was given.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use settee::wire::iso_time::iso_time;

use super::documents::id;
use super::final_state::Trees;
use super::seen::is_design;
use super::{DB, Worker, broken};
use crate::client::PATIENCE;
use crate::model::Violation;
use crate::plan::FeedMode;
use crate::world::SimWorld;

/// How long a feed that does not end by itself is listened to.
const LISTEN: Duration = Duration::from_secs(3);
/// The `timeout` of waiting feeds, in milliseconds.
const WAIT_MS: u64 = 1_500;
/// The same while the waiter writes: long enough for a slow write.
const TAIL_MS: u64 = 20_000;

/// How often pending rows are asked for that do not come. Each time another replica may have answered, which lacks them
/// still and got something else at that very moment; that is not so every time.
const INSISTS: u32 = 4;

/// Where a follower is.
pub(super) struct Position {
    since: String,
    /// The last that was told of each document: revision, deleted.
    told: BTreeMap<String, (String, bool)>,
    /// The edits of each document, and how many of them were open, before the request that told of it.
    edits: BTreeMap<String, (usize, usize)>,
    /// The same before the request under way.
    now: BTreeMap<String, (usize, usize)>,
    /// Whether this client wrote something since it last read the feed to its end.
    pub(super) owed: bool,
    /// Whether the last answer had no rows, and said that some are pending.
    withheld: bool,
}

impl Default for Position {
    fn default() -> Self {
        Position {
            since: "0".into(),
            told: BTreeMap::new(),
            edits: BTreeMap::new(),
            now: BTreeMap::new(),
            owed: false,
            withheld: false,
        }
    }
}

impl Position {
    /// Takes in a row of the request under way.
    fn take(&mut self, row: &Value) {
        let (Some(doc), Some(rev)) = (row["id"].as_str(), row["changes"][0]["rev"].as_str()) else { return };
        if is_design(doc) {
            return;
        }
        self.told.insert(doc.to_owned(), (rev.to_owned(), row["deleted"] == json!(true)));
        self.edits.insert(doc.to_owned(), self.now.get(doc).copied().unwrap_or_default());
    }

    /// Whether a row was told by an earlier answer, and nothing was sent to its document since before that. `after`:
    /// the edits when this answer has come.
    fn repeats(&self, row: &Value, after: &BTreeMap<String, (usize, usize)>) -> bool {
        let (Some(doc), Some(rev)) = (row["id"].as_str(), row["changes"][0]["rev"].as_str()) else { return false };
        let (sent, open) = after.get(doc).copied().unwrap_or_default();
        let told = self.told.get(doc).is_some_and(|(told, _)| told == rev);
        told && open == 0 && self.edits.get(doc) == Some(&(sent, open))
    }
}

impl Worker {
    /// Reads the feed to its end; whether an answer came.
    pub(super) async fn changes(&mut self) -> Result<bool, Violation> {
        let answered = self.page().await?;
        for _ in 0..INSISTS {
            if !self.feed.withheld || !self.page().await? {
                return Ok(answered);
            }
        }
        match self.feed.withheld {
            true => broken("I15", format!("pending after {}, again and again without rows", self.feed.since)),
            false => Ok(answered),
        }
    }

    /// Reads the feed on once; whether an answer came.
    async fn page(&mut self) -> Result<bool, Violation> {
        let path = format!("/{DB}/_changes?since={}", self.feed.since);
        self.feed_begins();
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        self.took(&body, None)?;
        Ok(true)
    }

    /// Takes in a whole answer of the normal kind.
    fn took(&mut self, body: &Value, limit: Option<u32>) -> Result<(), Violation> {
        let rows = body["results"].as_array().cloned().unwrap_or_default();
        if limit.is_some_and(|limit| rows.len() > limit as usize) {
            return broken("I16", format!("{} rows with limit {limit:?}", rows.len()));
        }
        let several = self.locked(|s| s.several);
        if rows.is_empty() && std::mem::take(&mut self.feed.owed) && !several {
            return broken("I13", format!("nothing after {}, though this client wrote since", self.feed.since));
        }
        self.took_rows(&rows)?;
        // A limit may have left it for later; then nothing is sure any more.
        self.feed.owed = false;
        let foreign = self.locked(|s| s.model.foreign);
        // Numbers for sequences, and nothing about what is pending, are right in their way, too.
        let since = sequence(&body["last_seq"]).filter(|_| foreign || body["last_seq"].is_string());
        match (since, body["pending"].as_u64().or(foreign.then_some(0))) {
            (Some(since), Some(pending)) => {
                self.feed.withheld = pending > 0 && rows.is_empty() && limit != Some(0);
                if self.feed.withheld && !several {
                    return broken("I15", format!("{pending} pending behind an answer without rows"));
                }
                let documents = self.locked(|s| s.model.documents().len() as u64 + s.designs);
                if pending > documents {
                    return broken("I15", format!("{pending} pending, of {documents} documents"));
                }
                self.feed.since = since;
                self.arrives();
                Ok(())
            }
            _ => broken("I13", format!("no last_seq or pending: {body}")),
        }
    }

    /// Notes where it is, for people.
    fn arrives(&self) {
        self.locked(|s| {
            let now = s.now_ms();
            s.sights.position(&self.name, now, &self.feed.since);
        });
    }

    /// A request for the feed is about to be sent.
    fn feed_begins(&mut self) {
        self.feed.now = self.locked(|s| s.model.edit_counts());
    }

    fn took_rows(&mut self, rows: &[Value]) -> Result<(), Violation> {
        // Replicas are in sync now and then only.
        if !self.locked(|s| s.several) {
            self.repeats_nothing(rows)?;
        }
        rows.iter().for_each(|row| self.feed.take(row));
        Ok(())
    }

    fn repeats_nothing(&self, rows: &[Value]) -> Result<(), Violation> {
        let after = self.locked(|s| s.model.edit_counts());
        match rows.iter().find(|row| self.feed.repeats(row, &after)) {
            Some(row) => broken("I14", format!("{} was told before, and nothing was sent to it since", row["id"])),
            None => Ok(()),
        }
    }

    /// Reads the feed on at another node. Its replicas have long been in sync with those that told all before: they
    /// tell nothing of that again.
    pub(super) async fn follow_at(&mut self, node: u32) -> Result<(), Violation> {
        let path = format!("/{DB}/_changes?since={}", self.feed.since);
        let mut other = self.another_node(node);
        self.feed_begins();
        let answer = self.call_by(&mut other, "GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(()) };
        self.repeats_nothing(body["results"].as_array().map_or(&[], Vec::as_slice))?;
        self.took(&body, None)
    }

    /// Reads the feed on in some mode.
    pub(super) async fn follow(&mut self, mode: FeedMode, limit: Option<u32>) -> Result<(), Violation> {
        let kind = match mode {
            FeedMode::Normal => "normal",
            FeedMode::Longpoll => "longpoll",
            FeedMode::Continuous => "continuous",
            FeedMode::EventSource => "eventsource",
        };
        let limits = limit.map(|n| format!("&limit={n}")).unwrap_or_default();
        let path = format!("/{DB}/_changes?feed={kind}&timeout={WAIT_MS}&since={}{limits}", self.feed.since);
        self.feed_begins();
        match mode {
            FeedMode::Normal | FeedMode::Longpoll => {
                let answer = self.call("GET", &path, &Value::Null).await;
                let Some(answer) = answer.ok().filter(|a| a.status == 200) else { return Ok(()) };
                self.took(&answer.json(), limit)?;
                // What it called pending must come.
                if self.feed.withheld { self.changes().await.map(drop) } else { Ok(()) }
            }
            FeedMode::Continuous | FeedMode::EventSource => {
                self.sends();
                let part = self.client.listen(&path, LISTEN).await;
                self.count("GET", &path, part.as_ref().map_or(0, |p| p.status));
                let Some(part) = part.ok().filter(|p| p.status == 200) else { return Ok(()) };
                let rows = self.took_lines(&part.body, mode == FeedMode::EventSource);
                self.arrives();
                self.took_rows(&rows)
            }
        }
    }

    /// The rows of an endless answer, of whole lines only.
    fn took_lines(&mut self, body: &[u8], events: bool) -> Vec<Value> {
        self.feed.owed = false;
        let (rows, since) = lines_of(body, events);
        if let Some(since) = since {
            self.feed.since = since;
        }
        rows
    }

    /// Waits at the end of the feed while it writes: an acknowledged write must wake the waiter. In a cluster that is
    /// checked in peace: else the replica that is waited at may be one that the write did not reach.
    pub(super) async fn tail(&mut self, doc: u32, v: u64) -> Result<(), Violation> {
        let mut ear = self.client.another();
        let path = format!("/{DB}/_changes?feed=longpoll&since=now&timeout={TAIL_MS}");
        let env = self.client.env().clone();
        let began = env.now();
        let waiting = async {
            let answer = ear.get(&path).await;
            (answer, env.now())
        };
        let mut written = Ok(None);
        let writing = async {
            // The waiter is at the end first: both go different ways.
            env.sleep(Duration::from_secs(2)).await;
            let parent = self.newest(doc);
            let before = self.feed.owed;
            self.feed.owed = false;
            let sent = env.now();
            written = self.put(doc, parent, v).await.map(|()| self.feed.owed.then(|| (sent, env.now())));
            self.feed.owed |= before;
        };
        let ((answer, answered), ()) = futures_util::join!(waiting, writing);
        self.count("GET", &path, answer.as_ref().map_or(0, |a| a.status));
        let (Some((sent, written)), Ok(answer)) = (written?, answer) else { return Ok(()) };
        let rows = answer.json()["results"].as_array().map_or(0, Vec::len);
        // It waited from the moment when it reached the node: one that a partition held back came after the write.
        let was_first = answered.since(sent) < Duration::from_millis(TAIL_MS);
        // Else a node that stops ended it; then nothing tells when it reached that node.
        let ran_out = answered.since(began) >= Duration::from_millis(TAIL_MS);
        let must = self.locked(|s| !s.several || s.together.places.in_peace);
        if must && answer.status == 200 && rows == 0 && was_first && ran_out && answered.since(written) > PATIENCE / 10
        {
            return broken("I16", format!("a waiting feed was not told of {}, which was written meanwhile", id(doc)));
        }
        Ok(())
    }

    /// At the end: the feed that was followed all the time has told every document's winner. Of a document whose winner
    /// was lost with the disk of its only replica it told what is in no tree any more.
    pub(super) async fn check_feed(
        &mut self,
        trees: &Trees,
        winners: &BTreeMap<String, (String, bool)>,
    ) -> Result<(), Violation> {
        if !self.page().await? {
            return broken("I28", "the feed does not answer after all faults".into());
        }
        if self.feed.withheld {
            return broken("I15", format!("pending after {} in peace, and no rows come", self.feed.since));
        }
        let loses = self.locked(|s| s.asked.loses);
        let told = &self.feed.told;
        let is_there = |doc: &String, rev: &String| {
            trees.get(doc).is_some_and(|leaves| leaves.iter().any(|leaf| leaf.path.contains(rev)))
        };
        let lasts = |(doc, _): &(&String, _)| !loses || told.get(*doc).is_none_or(|(rev, _)| is_there(doc, rev));
        if !told.iter().filter(lasts).eq(winners.iter().filter(lasts)) {
            return broken("I13", format!("a resumed feed ends with {told:?}, trees {winners:?}"));
        }
        self.check_feed_since_begin(winners).await
    }

    /// A feed since the time when the world began tells of every document, whatever each replica has noted of times.
    async fn check_feed_since_begin(&mut self, winners: &BTreeMap<String, (String, bool)>) -> Result<(), Violation> {
        let began = self.locked(|s| s.world.as_ref().filter(|_| s.right_clocks).map(SimWorld::epoch));
        let Some(began) = began else { return Ok(()) };
        let path = format!("/{DB}/_changes?since={}", iso_time(began));
        let body = self.must("GET", &path).await?.json();
        let rows = body["results"].as_array().map_or(&[][..], Vec::as_slice);
        let told: BTreeMap<&str, &Value> =
            rows.iter().filter_map(|row| Some((row["id"].as_str()?, &row["changes"][0]["rev"]))).collect();
        match winners.iter().find(|(doc, (rev, _))| told.get(doc.as_str()).is_none_or(|told| *told != &json!(rev))) {
            Some(lost) => broken("I13", format!("a feed since the begin ({path}) does not tell of {lost:?}: {told:?}")),
            None => Ok(()),
        }
    }
}

/// The rows of an endless answer, of whole lines only, and the sequence of the last one.
pub(super) fn lines_of(body: &[u8], events: bool) -> (Vec<Value>, Option<String>) {
    let (mut rows, mut since) = (Vec::new(), None);
    let text = String::from_utf8_lossy(body);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut pending: Option<Value> = None;
    for line in whole.lines() {
        match (events, line.strip_prefix("data: "), line.strip_prefix("id: ")) {
            (false, _, _) => {
                let row: Value = serde_json::from_str(line).unwrap_or(Value::Null);
                let seq = row["seq"].as_str().or_else(|| row["last_seq"].as_str());
                since = seq.map(str::to_owned).or(since);
                rows.push(row);
            }
            (true, Some(data), _) => pending = serde_json::from_str(data).ok(),
            (true, _, Some(seq)) => {
                // A row counts when the line with its sequence came, too.
                if let Some(row) = pending.take() {
                    rows.push(row);
                    since = Some(seq.trim_matches('"').to_owned());
                }
            }
            (true, None, None) => {}
        }
    }
    (rows, since)
}

/// A sequence as text.
fn sequence(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
