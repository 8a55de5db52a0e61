//! Random conversations played against two servers: what differs, grouped by its kind, each kind in its shortest form.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::known::{Difference, Known};
use super::shrink::Shrinker;
use super::{Report, differences};
use crate::client::Target;
use crate::curl;
use crate::json::Value;
use crate::player::Player;
use crate::random;
use crate::record;

/// Conversations tried at most while one is made shorter.
const TRIES_MAX: usize = 60;
/// Characters of an answer that are shown.
const SHOWN_MAX: usize = 600;

/// What to compare.
#[derive(Debug)]
pub struct Plan {
    /// The first seed.
    pub from: u64,
    /// How many seeds, of each chapter.
    pub seeds: u64,
    /// The chapters.
    pub chapters: Vec<String>,
    /// What is known.
    pub known: Known,
    /// How many conversations run beside each other.
    pub jobs: usize,
    /// How long a server may be silent.
    pub patience: Duration,
    /// Whether hashes of revisions must be equal.
    pub own_revs: bool,
    /// Of how many kinds of differences the shortest conversation is looked for.
    pub shrink: usize,
    /// A folder for drafts of cases of the shortest conversations.
    pub write: Option<PathBuf>,
}

/// What one conversation showed.
#[derive(Debug, Default)]
struct Found {
    /// Differences that nothing explains.
    unknown: Vec<Difference>,
    /// How often each known reason was met.
    known: BTreeMap<String, usize>,
}

/// A kind of difference: where it was seen.
#[derive(Debug)]
struct Kind {
    chapter: String,
    seeds: Vec<u64>,
    found: Difference,
}

/// Plays every seed of every chapter against both servers.
///
/// # Errors
/// When there is no such chapter, or a draft cannot be written.
pub async fn compare(servers: (Target, Target), plan: Plan) -> Result<Report, String> {
    for chapter in &plan.chapters {
        if !random::chapters().contains(&chapter.as_str()) {
            return Err(format!(
                "there is no chapter {chapter} of random requests, but {}",
                random::chapters().join(", ")
            ));
        }
    }
    // Before anything is played: a folder that cannot be made would cost the whole run.
    if let Some(folder) = &plan.write {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let (plan, servers) = (Arc::new(plan), Arc::new(servers));
    let gate = Arc::new(Semaphore::new(plan.jobs.max(1)));
    let mut tasks = JoinSet::new();
    for chapter in plan.chapters.clone() {
        for seed in plan.from..plan.from.saturating_add(plan.seeds) {
            let (plan, servers, gate, chapter) =
                (Arc::clone(&plan), Arc::clone(&servers), Arc::clone(&gate), chapter.clone());
            tasks.spawn(async move {
                let _turn = gate.acquire().await;
                let steps = random::conversation(&chapter, seed).unwrap_or_default();
                let found = play(&servers, &plan, &steps).await;
                (chapter, seed, found)
            });
        }
    }
    let mut rows = Vec::new();
    while let Some(row) = tasks.join_next().await {
        rows.push(row.map_err(|e| format!("a conversation's task: {e}"))?);
    }
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    report(&servers, &plan, rows).await
}

async fn report(
    servers: &(Target, Target),
    plan: &Plan,
    rows: Vec<(String, u64, Result<Found, String>)>,
) -> Result<Report, String> {
    let (mut text, mut same, mut differing) = (String::new(), 0, 0);
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for (chapter, seed, found) in rows {
        let found = found.map_err(|e| format!("{chapter} {seed}: {e}"))?;
        found.known.into_iter().for_each(|(reason, n)| *known.entry(reason).or_default() += n);
        if found.unknown.is_empty() {
            same += 1;
        } else {
            differing += 1;
        }
        // What follows a first difference may be its consequence: other data.
        if let Some(first) = found.unknown.into_iter().next() {
            let kind =
                kinds.entry(kind_of(&chapter, &first)).or_insert(Kind { chapter, seeds: Vec::new(), found: first });
            kind.seeds.push(seed);
        }
    }
    let mut kinds: Vec<(String, Kind)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.seeds.len()));
    for (n, (name, kind)) in kinds.iter().enumerate() {
        let steps = random::conversation(&kind.chapter, kind.seeds[0]).unwrap_or_default();
        let steps = steps[..=kind.found.step.min(steps.len().saturating_sub(1))].to_vec();
        let (steps, found) = if n < plan.shrink {
            shortest(servers, plan, name, kind, steps).await?
        } else {
            (steps, kind.found.clone())
        };
        show(&mut text, servers, kind, &steps, &found, n < plan.shrink)?;
        if let (Some(folder), true) = (&plan.write, n < plan.shrink) {
            let path = folder.join(format!("{}-{}.json", kind.chapter, kind.seeds[0]));
            let case = record::pretty(&random::draft::draft(&found.text, &steps), 0);
            std::fs::write(&path, case + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    for (reason, n) in known {
        let _ = writeln!(text, "KNOWN {n} times: {reason}");
    }
    let _ = writeln!(text, "{same} conversations the same, {differing} differ in {} ways", kinds.len());
    Ok(Report { text, differing })
}

/// The name of a kind: differences with one cause mostly share it.
fn kind_of(chapter: &str, found: &Difference) -> String {
    let path = found.action.split('?').next().unwrap_or_default();
    let special: Vec<&str> = path.split('/').filter(|part| part.starts_with('_')).take(3).collect();
    let statuses = (found.first.split(' ').next(), found.second.split(' ').next());
    let place = found.text.split(": ").next().unwrap_or_default();
    let place: String = place.chars().filter(|c| !c.is_ascii_digit()).take(40).collect();
    let method = path.split(' ').next().unwrap_or_default();
    let first_words: String =
        if statuses.0 == statuses.1 { String::new() } else { found.second.chars().skip(3).take(60).collect() };
    format!("{chapter} {method} {} {statuses:?} {place} {first_words}", special.join("/"))
}

async fn shortest(
    servers: &(Target, Target),
    plan: &Plan,
    name: &str,
    kind: &Kind,
    steps: Vec<Value>,
) -> Result<(Vec<Value>, Difference), String> {
    let mut best = kind.found.clone();
    let mut shrinker = Shrinker::new(steps);
    for _ in 0..TRIES_MAX {
        let Some(tried) = shrinker.next() else { break };
        let found = play(servers, plan, &tried).await?;
        let same = found.unknown.into_iter().find(|d| kind_of(&kind.chapter, d) == name);
        let still = same.is_some();
        best = same.unwrap_or(best);
        shrinker.told(tried, still);
    }
    Ok((shrinker.steps().to_vec(), best))
}

fn show(
    text: &mut String,
    servers: &(Target, Target),
    kind: &Kind,
    steps: &[Value],
    found: &Difference,
    shortened: bool,
) -> Result<(), String> {
    let cut = |answer: &str| match answer.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &answer[..at]),
        None => answer.to_owned(),
    };
    let others: Vec<String> = kind.seeds.iter().take(8).map(u64::to_string).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "DIFF {} in {} conversations, seeds {}", kind.chapter, kind.seeds.len(), others.join(" "));
    let _ = writeln!(text, "     {}", found.action);
    let _ = writeln!(text, "     {}", found.text);
    let _ = writeln!(text, "     first:  {}", cut(&found.first));
    let _ = writeln!(text, "     second: {}", cut(&found.second));
    if shortened {
        let case = random::draft::case("shown", steps)?;
        for line in curl::commands(&servers.1.authority(), &case.steps) {
            let _ = writeln!(text, "       {line}");
        }
    }
    text.push('\n');
    Ok(())
}

/// Plays one conversation against both servers. A server without an answer is an answer of its own kind.
async fn play(servers: &(Target, Target), plan: &Plan, steps: &[Value]) -> Result<Found, String> {
    let case = random::draft::case("random", steps)?;
    let (first, second) = tokio::join!(
        Player::new(&servers.0, plan.patience).play_on(&case),
        Player::new(&servers.1, plan.patience).play_on(&case)
    );
    let mut found = Found::default();
    for difference in differences(&case, &first?, &second?, plan.own_revs) {
        match plan.known.reason(&difference) {
            Some((reason, ends)) => {
                *found.known.entry(reason.to_owned()).or_default() += 1;
                if ends {
                    break;
                }
            }
            None => found.unknown.push(difference),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Difference, kind_of};

    #[test]
    fn kinds_do_not_depend_on_numbers_and_names() {
        let of = |action: &str, text: &str, first: &str, second: &str| {
            let texts = [action, text, first, second].map(str::to_owned);
            let [action, text, first, second] = texts;
            kind_of("c", &Difference { step: 1, action, text, first, second })
        };
        let one = of("GET /${db}/_all_docs?key=1", "/rows/0/id: \"a\" expected, got \"b\"", "200 {}", "200 {}");
        assert_eq!(one, of("GET /${db}/_all_docs?skip=1", "/rows/5/id: \"c\" expected, got \"b\"", "200 []", "200 {}"));
        assert_ne!(one, of("GET /${db}/_all_docs", "status 200 expected", "200 {}", "400 {}"));
    }
}
