//! The cluster under test, as the user's file describes it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::client::{Patience, Request, Target, send};
use crate::json::Value;

/// How long a request may go unanswered before its outcome is unknown.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a command of the plan may take.
const COMMAND: Duration = Duration::from_secs(30);

/// What is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and started again.
    Kill,
    /// It stands still, and goes on.
    Pause,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Kill => "kill",
            Fault::Pause => "pause",
        })
    }
}

/// A node and the commands that change its state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// What reports call it.
    pub name: String,
    /// `http://name:password@host:port`
    pub url: String,
    /// Starts it; the command ends while the node runs on.
    pub start: Option<String>,
    /// Ends it at once.
    pub kill: Option<String>,
    /// Lets it stand still.
    pub pause: Option<String>,
    /// Lets it go on.
    pub resume: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    node: Vec<NodePlan>,
}

/// All nodes.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// As in the file.
    pub nodes: Arc<Vec<NodePlan>>,
    targets: Arc<Vec<Target>>,
}

/// An answer: its status, 0 where there was none, and its JSON.
pub type Answer = (u16, Value);

impl NodePlan {
    /// The faults that its commands allow.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.kill.is_some() && self.start.is_some() {
            faults.push(Fault::Kill);
        }
        if self.pause.is_some() && self.resume.is_some() {
            faults.push(Fault::Pause);
        }
        faults
    }

    /// Brings a fault about.
    ///
    /// # Errors
    /// When its command fails.
    pub async fn begin(&self, fault: Fault) -> Result<(), String> {
        self.shell(if fault == Fault::Kill { &self.kill } else { &self.pause }).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// When its command fails.
    pub async fn end(&self, fault: Fault) -> Result<(), String> {
        self.shell(if fault == Fault::Kill { &self.start } else { &self.resume }).await
    }

    async fn shell(&self, command: &Option<String>) -> Result<(), String> {
        let Some(command) = command.clone() else { return Ok(()) };
        let (shown, name) = (command.clone(), self.name.clone());
        let run = tokio::task::spawn_blocking(move || {
            std::process::Command::new("sh").arg("-c").arg(command).stdin(std::process::Stdio::null()).status()
        });
        match tokio::time::timeout(COMMAND, run).await {
            Ok(Ok(Ok(status))) if status.success() => Ok(()),
            Ok(Ok(Ok(status))) => Err(format!("node {name}: {shown}: {status}")),
            Ok(Ok(Err(e))) => Err(format!("node {name}: {shown}: {e}")),
            Ok(Err(e)) => Err(format!("node {name}: {shown}: {e}")),
            Err(_) => Err(format!("node {name}: {shown}: not done within {COMMAND:?}")),
        }
    }
}

impl Cluster {
    /// Reads `[[node]]` tables with `name`, `url` and the commands `start`, `kill`, `pause`, `resume`.
    ///
    /// # Errors
    /// When the text is no such list, or no fault is possible.
    pub fn read(text: &str) -> Result<Cluster, String> {
        let written: Written = toml::from_str(text).map_err(|e| e.to_string())?;
        if written.node.len() < 2 {
            return Err("two nodes at least".to_owned());
        }
        if let Some(node) = written.node.iter().find(|node| node.faults().is_empty()) {
            return Err(format!("node {} has neither start and kill nor pause and resume", node.name));
        }
        let targets = written.node.iter().map(|node| Target::parse(&node.url)).collect::<Result<Vec<_>, _>>()?;
        Ok(Cluster { nodes: Arc::new(written.node), targets: Arc::new(targets) })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`Cluster::read`].
    pub fn load(path: &Path) -> Result<Cluster, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Cluster::read(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Asks a node.
    pub async fn ask(&self, at: usize, method: &str, target: &str, body: Option<&Value>) -> Answer {
        let server = &self.targets[at % self.targets.len()];
        let credentials = STANDARD.encode(format!("{}:{}", server.user, server.password));
        let mut headers = vec![
            ("Accept".to_owned(), "application/json".to_owned()),
            ("Authorization".to_owned(), format!("Basic {credentials}")),
        ];
        if body.is_some() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        let body = body.map(|json| json.to_text(false).into_bytes());
        let request = Request { method: method.to_owned(), target: target.to_owned(), headers, body };
        let asked = send(server, &request, Patience { limit: PATIENCE, open: false });
        match tokio::time::timeout(PATIENCE * 2, asked).await {
            Ok(Ok(answer)) => (answer.status, Value::parse(&answer.body).unwrap_or(Value::Null)),
            Ok(Err(_)) | Err(_) => (0, Value::Null),
        }
    }

    /// Waits until every node says that it is up and sees all others.
    ///
    /// # Errors
    /// When one does not within `limit`.
    pub async fn wait_up(&self, limit: Duration) -> Result<(), String> {
        let begun = Instant::now();
        'again: loop {
            for at in 0..self.nodes.len() {
                let up = self.ask(at, "GET", "/_up", None).await.0 == 200;
                let members = self.ask(at, "GET", "/_membership", None).await.1;
                let seen = members.get("all_nodes").and_then(Value::as_array).map_or(0, <[Value]>::len);
                if up && seen >= self.nodes.len() {
                    continue;
                }
                if begun.elapsed() > limit {
                    let name = &self.nodes[at].name;
                    return Err(format!("node {name} is not up, or sees {seen} of {} nodes", self.nodes.len()));
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue 'again;
            }
            return Ok(());
        }
    }

    /// Makes the database of a round, with a replica on up to three nodes.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn make_database(&self, db: &str) -> Result<(), String> {
        let n = self.nodes.len().min(3);
        match self.ask(0, "PUT", &format!("/{db}?q=4&n={n}"), None).await {
            (201 | 202, _) => {}
            (status, body) => return Err(format!("PUT /{db}: {status} {}", body.to_text(false))),
        }
        let begun = Instant::now();
        for at in 0..self.nodes.len() {
            while self.ask(at, "GET", &format!("/{db}"), None).await.0 != 200 {
                if begun.elapsed() > Duration::from_secs(30) {
                    return Err(format!("node {} does not hear of a new database", self.nodes[at].name));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Removes it. What the answer is does not count.
    pub async fn drop_database(&self, db: &str) {
        let _ = self.ask(0, "DELETE", &format!("/{db}"), None).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Cluster, Fault};

    #[test]
    fn a_node_needs_commands_in_pairs() {
        let node = |rest: &str| format!("[[node]]\nname = \"a\"\nurl = \"http://a:b@127.0.0.1:1\"\n{rest}\n");
        let kill = node("start = \"true\"\nkill = \"true\"");
        let both = Cluster::read(&(kill.clone() + &node("pause = \"true\"\nresume = \"true\""))).expect("a cluster");
        assert_eq!(both.nodes[0].faults(), [Fault::Kill]);
        assert_eq!(both.nodes[1].faults(), [Fault::Pause]);
        assert!(Cluster::read(&kill).is_err(), "one node alone");
        assert!(Cluster::read(&(kill.clone() + &node("kill = \"true\""))).is_err());
        assert!(Cluster::read(&(kill + &node("colour = \"red\""))).is_err());
    }
}
