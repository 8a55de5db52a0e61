//! Plays a case against a server: fills in variables, sends the steps in order, reads the answers, tidies up.
//!
//! Every play works on names of its own, so that it may run on a server in use and beside other plays. The clean-up
//! runs after success and failure alike; what it is answered does not count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::oneshot;

use crate::client::{Answer, NoAnswer, Patience, Request, Target, Written, send, send_written};
use crate::compare::{HEADERS, Outcome, compare_answer, has_part};
use crate::json::{Value, object};
use crate::multipart;
use crate::transcript::{Body, Case, Reading, Requires, Step, Until};

/// Wait between two tries of a step that polls.
const POLL: Duration = Duration::from_millis(500);
/// Tries of a step that polls, at least: half a minute. A server on a busy machine takes longer than the recorded one.
const TRIES_MIN: usize = 60;
/// Wait after a step in the background, unless it names its own: the server should hold the request by then.
const HEAD_START: Duration = Duration::from_secs(2);
/// How much longer than its silence a step in the background may take in all.
const BACKGROUND_GRACE: Duration = Duration::from_secs(60);
/// The longest a case may take: a feed that only ever sends heartbeats would never end otherwise. The slowest case
/// against a healthy server takes 20 s, on a busy machine some times as long.
const CASE_MAX: Duration = Duration::from_secs(300);
/// Names of a play's databases, all of which are deleted at its end.
const DATABASES: [&str; 4] = ["db", "db2", "db3", "db4"];
/// Variables whose values are written back into answers, longer names before those they begin with.
const WRITTEN_BACK: [&str; 8] = ["db4", "db3", "db2", "db", "user2", "user", "host", "node"];

/// One step as it was played.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What was sent, as text without credentials.
    pub request: String,
    /// What came back.
    pub outcome: Outcome,
}

/// One play: its server, its variables.
#[derive(Clone)]
pub struct Player {
    target: Target,
    patience: Duration,
    variables: BTreeMap<String, String>,
    /// Whether the play goes on after a request without an answer.
    goes_on: bool,
}

impl Player {
    /// A play with fresh names. `patience`: how long the server may be silent where a step does not say.
    pub fn new(target: &Target, patience: Duration) -> Player {
        let tag = format!("{:08x}", target.ground.random());
        let (host, user, password) = (target.authority(), &target.user, &target.password);
        let mut variables = BTreeMap::new();
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
        for (name, number) in DATABASES.iter().zip(["", "2", "3", "4"]) {
            set(name, format!("g{tag}{number}"));
        }
        set("user", format!("u{tag}"));
        set("user2", format!("v{tag}"));
        set("base", format!("http://{host}"));
        set("authbase", format!("http://{user}:{password}@{host}"));
        set("admin", user.clone());
        set("password", password.clone());
        set("host", host);
        Player { target: target.clone(), patience, variables, goes_on: false }
    }

    /// What `case` requires and the server lacks, as a reason to skip it.
    pub async fn missing(&self, requires: &Requires) -> Result<Option<String>, String> {
        if requires.account {
            return Ok(Some("an account of what happened once, not to be played".to_owned()));
        }
        if !requires.handlers.is_empty() {
            let session = self.ask("GET", "/_session").await?;
            let have = listed(&session, "/info/authentication_handlers");
            let lacks: Vec<&str> = requires.handlers.iter().filter(|h| !have.contains(h)).map(String::as_str).collect();
            if !lacks.is_empty() {
                return Ok(Some(format!("the server lacks the authentication handlers {}", lacks.join(", "))));
            }
        }
        if requires.nodes > 0 || requires.alone {
            let nodes = listed(&self.ask("GET", "/_membership").await?, "/all_nodes").len();
            if nodes < requires.nodes {
                return Ok(Some(format!("the server has fewer than {} nodes", requires.nodes)));
            }
            if requires.alone && nodes > 1 {
                return Ok(Some("the server has several nodes".to_owned()));
            }
        }
        if !requires.with.is_empty() || !requires.without.is_empty() {
            let features = listed(&self.ask("GET", "/").await?, "/features");
            if let Some(lacking) = requires.with.iter().find(|f| !features.contains(f)) {
                return Ok(Some(format!("the server lacks the feature {lacking}")));
            }
            if let Some(present) = requires.without.iter().find(|f| features.contains(f)) {
                return Ok(Some(format!("the server has the feature {present}")));
            }
        }
        for path in &requires.answers {
            if self.asked("GET", path).await?.0 != 200 {
                return Ok(Some(format!("the server has nothing at {path}")));
            }
        }
        Ok(None)
    }

    /// Plays all steps and tidies up. An error means that a request got no answer, or one that cannot be read.
    pub async fn play(mut self, case: &Case) -> Result<Vec<Exchange>, String> {
        let ground = Arc::clone(&self.target.ground);
        let played = ground.timeout(CASE_MAX, self.steps(case)).await;
        self.tidy(case).await;
        played.unwrap_or_else(|_| Err(format!("not done within {CASE_MAX:?}")))
    }

    /// The same where a request without an answer is no reason to stop: its outcome says so with the status 0.
    ///
    /// # Errors
    /// When the whole play takes too long.
    pub async fn play_on(mut self, case: &Case) -> Result<Vec<Exchange>, String> {
        self.goes_on = true;
        self.play(case).await
    }

    async fn steps(&mut self, case: &Case) -> Result<Vec<Exchange>, String> {
        let nodes = listed(&self.ask("GET", "/_membership").await?, "/all_nodes");
        if let Some(node) = nodes.into_iter().min() {
            self.variables.insert("node".to_owned(), node);
        }
        let mut outcomes: Vec<Result<Outcome, oneshot::Receiver<Outcome>>> = Vec::new();
        let mut requests = Vec::new();
        let mut doomed = false;
        for (n, step) in case.steps.iter().enumerate() {
            requests.push(self.shown(step));
            if step.background {
                let (player, step) = (self.clone(), step.clone());
                let pause = step.sleep.unwrap_or(HEAD_START);
                let (tell, told) = oneshot::channel();
                outcomes.push(Err(told));
                // Nobody waits for it any more when a step before it failed.
                self.target.ground.spawn(Box::pin(async move { drop(tell.send(player.unattended(&step).await)) }));
                self.target.ground.sleep(pause).await;
                continue;
            }
            let told = |e: String| format!("step {n} {} {}: {e}", step.method, step.target);
            // After a difference the outcome stands: polling on for what that step should have caused is lost time.
            let tries = if doomed || step.tries == 1 { 1 } else { step.tries.max(TRIES_MIN) };
            let (answer, kind, body) = match self.until(step, tries).await.map_err(told) {
                Err(e) if self.goes_on => {
                    outcomes.push(Ok(unanswered(e)));
                    continue;
                }
                asked => asked?,
            };
            for (name, place) in &step.bind {
                let value = bound(&answer, &body, place).unwrap_or_else(|| format!("unbound-{name}"));
                self.variables.insert(name.clone(), value);
            }
            if let Some(pause) = step.sleep {
                self.target.ground.sleep(pause).await;
            }
            let outcome = self.outcome(step, &answer, kind, &body);
            doomed = doomed || !compare_answer(&step.expect, &outcome, false).is_empty();
            outcomes.push(Ok(outcome));
        }
        let mut done = Vec::new();
        for outcome in outcomes {
            done.push(match outcome {
                Ok(outcome) => outcome,
                Err(running) => match self.target.ground.timeout(self.patience + BACKGROUND_GRACE, running).await {
                    Ok(Ok(outcome)) => outcome,
                    Ok(Err(e)) => unanswered(e.to_string()),
                    Err(_) => unanswered("still running at the end".to_owned()),
                },
            });
        }
        Ok(requests.into_iter().zip(done).map(|(request, outcome)| Exchange { request, outcome }).collect())
    }

    /// A step in the background: a failure is told as an outcome, for the other steps go on.
    async fn unattended(&self, step: &Step) -> Outcome {
        match self.once(step).await {
            Ok((answer, kind, body)) => self.outcome(step, &answer, kind, &body),
            Err(e) => unanswered(e.into()),
        }
    }

    /// Sends a step at most `tries` times, until its condition holds. A server that is away (one that restarts) is
    /// asked again; silence is an error at once, or every case that a server cannot answer would take minutes.
    async fn until(&self, step: &Step, mut tries: usize) -> Result<(Answer, &'static str, Value), String> {
        loop {
            let asked = self.once(step).await;
            tries = tries.saturating_sub(1);
            let Some(until) = step.until.as_ref().filter(|_| tries > 0) else { return Ok(asked?) };
            match asked {
                Ok((answer, _, body)) if !self.holds(until, answer.status, &body) => {}
                Err(NoAnswer::Away(_)) => {}
                done => return Ok(done?),
            }
            self.target.ground.sleep(POLL).await;
        }
    }

    fn holds(&self, until: &Until, status: u16, body: &Value) -> bool {
        let filled = |v: &Value| v.map_strings(&|text| self.fill(text));
        until.status.is_none_or(|s| s == status)
            && until.contains.iter().all(|(at, parts)| parts.iter().all(|p| has_part(body, &self.fill(at), &filled(p))))
            && until.equals.iter().all(|(at, v)| body.pointer(&self.fill(at)).is_some_and(|got| got.same(&filled(v))))
    }

    async fn once(&self, step: &Step) -> Result<(Answer, &'static str, Value), NoAnswer> {
        let patience = Patience { limit: step.timeout.unwrap_or(self.patience), open: step.open };
        if step.raw.is_empty() {
            let answer = send(&self.target, &self.request(step), patience).await?;
            let (kind, body) = read_body(step, &answer)?;
            return Ok((answer, kind, body));
        }
        let parts = step.raw.iter().map(|part| self.fill(part).into_bytes()).collect();
        let bytes = Written { parts, pause: step.raw_pause };
        let answers = send_written(&self.target, &bytes, patience, step.answers, step.method == "HEAD").await?;
        Ok(several(step, answers)?)
    }

    /// The request of a step as text, for reports; credentials are left out.
    fn shown(&self, step: &Step) -> String {
        if !step.raw.is_empty() {
            return self.write_back(&step.raw.iter().map(|part| self.fill(part)).collect::<String>());
        }
        let request = self.request(step);
        let mut out = format!("{} {}\n", request.method, request.target);
        for (name, value) in request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization")) {
            out.push_str(&format!("{name}: {value}\n"));
        }
        match request.body.as_deref().map(std::str::from_utf8) {
            None => {}
            Some(Ok(text)) => out.push_str(&format!("\n{text}")),
            Some(Err(_)) => out.push_str("\n(bytes)"),
        }
        self.write_back(&out)
    }

    fn request(&self, step: &Step) -> Request {
        let mut headers: Vec<(String, String)> =
            step.headers.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect();
        let body = match &step.body {
            Some(Body::Json(json)) => {
                if !named(&headers, &["content-type"]) {
                    headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
                }
                Some(json.map_strings(&|text| self.fill(text)).to_text(false).into_bytes())
            }
            Some(Body::Text(text)) => Some(self.fill(text).into_bytes()),
            Some(Body::Bytes(bytes)) => Some(bytes.clone()),
            None => None,
        };
        if !step.no_accept && !named(&headers, &["accept"]) {
            headers.push(("Accept".to_owned(), "application/json".to_owned()));
        }
        let who = match self.fill(&step.who) {
            who if who == "admin" => format!("{}:{}", self.target.user, self.target.password),
            who => who,
        };
        if who != "none" && !named(&headers, &["authorization", "cookie"]) {
            headers.push(("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(who))));
        }
        Request { method: self.fill(&step.method), target: self.fill(&step.target), headers, body }
    }

    fn outcome(&self, step: &Step, answer: &Answer, kind: &'static str, body: &Value) -> Outcome {
        let mut headers: Vec<(String, Option<String>)> = Vec::new();
        for name in HEADERS.iter().filter(|name| answer.header(name).is_some()) {
            headers.push(((*name).to_owned(), answer.header(name).map(|v| self.write_back(&v))));
        }
        for name in &step.expect.also_headers {
            headers.retain(|(n, _)| n != name);
            headers.push((name.clone(), answer.header(name).map(|v| without_secrets(name, &self.write_back(&v)))));
        }
        Outcome { status: answer.status, headers, kind, body: body.map_strings(&|text| self.write_back(text)) }
    }

    /// `text` with `${name}` replaced by the variable's value; unknown names stay.
    fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let name = from[2..].split('}').next().filter(|n| from.len() > n.len() + 2);
            match name.and_then(|n| self.variables.get(n).map(|value| (n, value))) {
                Some((name, value)) => {
                    out.push_str(value);
                    rest = &from[name.len() + 3..];
                }
                None => {
                    out.push_str("${");
                    rest = &from[2..];
                }
            }
        }
        out + rest
    }

    /// `text` with this play's own names replaced by `${name}`, so that two plays give the same text.
    fn write_back(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in WRITTEN_BACK {
            if let Some(value) = self.variables.get(name).filter(|v| !v.is_empty() && text.contains(v.as_str())) {
                text = text.replace(value, &format!("${{{name}}}"));
            }
        }
        text
    }

    /// A plain request as administrator; the answer's JSON, or null when it is not a success.
    async fn ask(&self, method: &str, target: &str) -> Result<Value, String> {
        let (status, json) = self.asked(method, target).await?;
        Ok(json.filter(|_| status < 300).unwrap_or(Value::Null))
    }

    /// The same: the status, and the body where it is JSON.
    async fn asked(&self, method: &str, target: &str) -> Result<(u16, Option<Value>), String> {
        let credentials = STANDARD.encode(format!("{}:{}", self.target.user, self.target.password));
        let headers = vec![
            ("Accept".to_owned(), "application/json".to_owned()),
            ("Authorization".to_owned(), format!("Basic {credentials}")),
        ];
        let request = Request { method: method.to_owned(), target: target.to_owned(), headers, body: None };
        let answer = send(&self.target, &request, Patience { limit: self.patience, open: false }).await?;
        Ok((answer.status, Value::parse(&answer.body).ok()))
    }

    /// Name and version of the server, as `GET /` tells them.
    pub async fn product(&self) -> String {
        let told = self.ask("GET", "/").await.unwrap_or(Value::Null);
        let text = |pointer: &str| told.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let own = text("/vendor/version");
        let version = if own.is_empty() { text("/version") } else { own };
        format!("{} {version}", text("/vendor/name")).trim().to_owned()
    }

    /// Whether the suite can be played at all: the server answers and takes the name and the password for an
    /// administrator's. A server without `_session` is taken at its word.
    ///
    /// # Errors
    /// What stands against it, as a sentence.
    pub async fn ready(&self) -> Result<(), String> {
        let server = self.target.authority();
        let (status, told) = self.asked("GET", "/_session").await.map_err(|told| format!("{server}: {told}"))?;
        let told = told.unwrap_or(Value::Null);
        if status == 401 || status == 403 {
            let reason = told.get("reason").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
            return Err(format!("{server} does not take this name and password: {status}, {reason}"));
        }
        let Some(roles) = told.pointer("/userCtx/roles").and_then(Value::as_array) else { return Ok(()) };
        if roles.iter().any(|role| role.as_str() == Some("_admin")) {
            return Ok(());
        }
        Err(format!("{server}: not an administrator's name; give one: http://name:password@{server}"))
    }

    async fn tidy(&self, case: &Case) {
        // Nothing here is compared: what cannot be removed (any more) stays.
        for name in DATABASES {
            let _ = self.ask("DELETE", &format!("/{}", self.variables[name])).await;
        }
        if case.makes_users {
            for name in ["user", "user2"] {
                let path = format!("/_users/org.couchdb.user:{}", self.variables[name]);
                let found = self.ask("GET", &path).await.unwrap_or(Value::Null);
                if let Some(rev) = found.get("_rev").and_then(Value::as_str) {
                    let _ = self.ask("DELETE", &format!("{path}?rev={rev}")).await;
                }
            }
        }
        for step in &case.cleanup {
            let patience = Patience { limit: step.timeout.unwrap_or(self.patience), open: step.open };
            let _ = send(&self.target, &self.request(step), patience).await;
        }
    }
}

fn unanswered(told: String) -> Outcome {
    Outcome { status: 0, headers: Vec::new(), kind: "text", body: Value::String(told) }
}

fn named(headers: &[(String, String)], names: &[&str]) -> bool {
    headers.iter().any(|(name, _)| names.iter().any(|n| name.eq_ignore_ascii_case(n)))
}

fn listed(body: &Value, pointer: &str) -> Vec<String> {
    let items = body.pointer(pointer).and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn bound(answer: &Answer, body: &Value, place: &str) -> Option<String> {
    if let Some(name) = place.strip_prefix("header:") {
        return Some(answer.header(name).unwrap_or_default());
    }
    if let Some(name) = place.strip_prefix("cookie:") {
        let cookies = answer.header("Set-Cookie").unwrap_or_default();
        let value = cookies.split_once(&format!("{name}=")).map(|(_, rest)| rest);
        return Some(value.and_then(|v| v.split(';').next()).unwrap_or_default().to_owned());
    }
    Some(match body.pointer(place)? {
        Value::String(text) => text.clone(),
        other => other.to_text(false),
    })
}

/// The answers of one connection: one alone is read as any answer, more as a list of status and body.
fn several(step: &Step, mut answers: Vec<Answer>) -> Result<(Answer, &'static str, Value), String> {
    if answers.len() == 1
        && let Some(answer) = answers.pop()
    {
        let (kind, body) = read_body(step, &answer)?;
        return Ok((answer, kind, body));
    }
    let mut list = Vec::new();
    for answer in &answers {
        let (_, body) = read_body(step, answer)?;
        list.push(object([("status", Value::from(usize::from(answer.status))), ("body", body)]));
    }
    let first = answers.into_iter().next().ok_or("no answer")?;
    Ok((first, "answers", Value::Array(list)))
}

/// A `Set-Cookie` value without the parts that differ at every call.
fn without_secrets(name: &str, value: &str) -> String {
    if !name.eq_ignore_ascii_case("set-cookie") {
        return value.to_owned();
    }
    let mut value = value.to_owned();
    for (pattern, by) in [("AuthSession=[^;]+", "AuthSession=*"), ("(?i)expires=[^;]+", "Expires=*")] {
        if let Ok(regex) = regex_lite::Regex::new(pattern) {
            value = regex.replace_all(&value, by).into_owned();
        }
    }
    value
}

fn read_body(step: &Step, answer: &Answer) -> Result<(&'static str, Value), String> {
    let bytes = &answer.body;
    let content_type = answer.header("Content-Type").unwrap_or_default();
    if step.method == "HEAD" {
        return Ok(("none", Value::Null));
    }
    if content_type.contains("multipart/") {
        return Ok(("parts", multipart::parts(&content_type, bytes)));
    }
    match step.reading {
        Reading::Lines => {
            let lines = bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            let values: Result<Vec<Value>, String> = lines.map(Value::parse).collect();
            return Ok(("lines", Value::Array(values.map_err(|e| format!("a line of the feed: {e}"))?)));
        }
        Reading::Events => return Ok(("events", multipart::events(bytes))),
        Reading::Plain | Reading::NumberText => {}
    }
    Ok(match (Value::parse(bytes), std::str::from_utf8(bytes)) {
        (Ok(json), _) if step.reading == Reading::NumberText => ("json", json.numbers_as_text()),
        (Ok(json), _) => ("json", json),
        (Err(_), Ok(text)) => ("text", Value::from(text)),
        (Err(_), Err(_)) => ("base64", Value::String(STANDARD.encode(bytes))),
    })
}

#[cfg(test)]
mod tests;
