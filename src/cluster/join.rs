//! Joining a cluster by a token: a new node shows a token at the cluster port of a member and receives its
//! configuration.
//!
//! A token is derived from the cluster's secret, the name of the member that issued it and a time, so that nothing is
//! stored until it is used. It is valid for one node, at that member, for one hour. The new node and the member prove
//! to each other that they know the token, as in every handshake; what the member hands over is encrypted with it.
//! Where nodes speak TLS the proofs cover the channel binding (`handshake.rs`), so that the token alone authenticates
//! both sides.
//!
//! A new node joins at its start, or while it runs. A running node asks first ([`Cluster::ask_to_join`]), which changes
//! nothing in it, and then applies the answer ([`Cluster::complete_join`]).

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::api::NodeName;
use super::handshake::{self, HandshakeError, Identity, Session, veil};
use super::members::{Contact, Record, Records, prefix};
use super::peer::connect;
use super::{Cluster, MemberError, Port, StartError};
use crate::config::Config;
use crate::limits;
use crate::storage::{Direction, KeyRange, WriteView};
use crate::wire::hex;
use crate::world::Env;

const TOKEN: &str = "settee-join-";
/// Settings that a new node takes over; `None`: the whole section.
const SHARED: [(&str, Option<&str>); 8] = [
    ("admins", None),
    ("cluster", Some("secret")),
    ("cluster", Some("n")),
    ("cluster", Some("q")),
    ("cluster", Some("placement")),
    // What is accepted first: a cookie of a former secret holds at each moment.
    ("chttpd_auth", Some("accepted_secrets")),
    ("chttpd_auth", Some("secret")),
    ("couchdb", Some("uuid")),
];

/// What a member hands to a node that joins.
#[derive(Serialize, Deserialize)]
struct Welcome {
    settings: Vec<(String, String, String)>,
    records: BTreeMap<String, Record>,
}

/// The answer of the member that admitted this node, before this node applies it.
pub struct Admission {
    welcome: Welcome,
    /// The port that was opened for the request, if none was open: the member was told its address.
    port: Option<Port>,
}

/// The secret half of the token whose public half is `key`.
fn secret_half(cluster_secret: &str, node: &str, key: &str) -> Vec<u8> {
    // Invariant: HMAC takes keys of any length.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(cluster_secret.as_bytes()).expect("HMAC takes any key");
    for part in ["settee join token", node, key] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes()[..16].to_vec()
}

/// A new token of the member `node`.
pub fn make_token(env: &Env, cluster_secret: &str, node: &str) -> String {
    let until_s = env.wall().as_secs().saturating_add(limits::CLUSTER_TOKEN_S);
    let key = hex::encode(&[&env.random_bytes::<8>()[..], &until_s.to_be_bytes()].concat());
    let secret = hex::encode(&secret_half(cluster_secret, node, &key));
    format!("{TOKEN}{key}-{secret}")
}

/// The public and the secret half of a token.
pub(super) fn read_token(token: &str) -> Option<(String, Vec<u8>)> {
    let (key, secret) = token.trim().strip_prefix(TOKEN)?.split_once('-')?;
    (key.len() == 32).then_some(())?;
    hex::decode(key)?;
    Some((key.to_owned(), hex::decode(secret).filter(|s| s.len() == 16)?))
}

/// When the token of a public half ends, in seconds since 1970.
fn end_s(key: &str) -> Option<u64> {
    let bytes = hex::decode(key).filter(|bytes| bytes.len() == 16)?;
    let (_, end) = bytes.split_last_chunk::<8>()?;
    Some(u64::from_be_bytes(*end))
}

/// The secret that a greeting with a token must know.
pub(super) fn secret_of_key(cluster: &Cluster, key: &str) -> Result<Vec<u8>, String> {
    let now_s = cluster.0.env.wall().as_secs();
    let longest = now_s.saturating_add(limits::CLUSTER_TOKEN_S);
    match (cluster.secret(), end_s(key)) {
        (Some(secret), Some(end_s)) if now_s < end_s && end_s <= longest => {
            Ok(secret_half(&secret, cluster.0.name.as_str(), key))
        }
        (None, _) => Err("this node has no cluster secret".to_owned()),
        _ => Err("the join token has expired".to_owned()),
    }
}

/// Hands a node that showed a token what it needs, once.
pub(super) async fn admit(cluster: &Cluster, mut session: Session, key: &str) {
    let name = session.peer.clone();
    let answer = match admit_once(cluster, &name, session.address.clone(), key).await {
        Ok(welcome) => {
            tracing::info!("{name} joins by a token");
            // Invariant: texts and numbers always serialize.
            let mut bytes = serde_json::to_vec(&welcome).expect("a welcome serializes");
            veil(&session.vault, &mut bytes);
            [&[1][..], &bytes].concat()
        }
        Err(why) => {
            tracing::warn!("{name} may not join: {why}");
            [&[0][..], why.as_bytes()].concat()
        }
    };
    let patience = cluster.timing().suspect;
    if cluster.0.env.timeout(patience, session.wire.send(&answer)).await.is_err() {
        tracing::warn!("{name} did not take its welcome");
    }
}

async fn admit_once(cluster: &Cluster, name: &NodeName, address: String, key: &str) -> Result<Welcome, String> {
    if cluster.is_up(name) {
        return Err(format!("a node called {name} is connected"));
    }
    spend(cluster, key).await?;
    match cluster.0.table.put(name.as_str(), Default::default(), None).await {
        // A node that lost its disk comes back under its old name.
        Ok(_) | Err(MemberError::Conflict) => {}
        Err(error) => return Err(error.to_string()),
    }
    let contact = move |record: &mut Record| {
        record.contact = Contact { address, count: record.contact.count + 1 };
    };
    cluster.0.table.adjust(name, contact).await.map_err(|e| e.to_string())?;
    Ok(Welcome { settings: shared_settings(&cluster.0.config), records: Records::clone(&cluster.0.table.records()) })
}

fn shared_settings(config: &Config) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    for (section, key) in SHARED {
        for (name, value) in config.section(section) {
            if key.is_none_or(|key| key == name) {
                out.push((section.to_owned(), name, value));
            }
        }
    }
    out
}

/// Marks a token as used, durably; an error when it was.
async fn spend(cluster: &Cluster, key: &str) -> Result<(), String> {
    let storage = cluster.0.table.storage().ok_or("this node keeps nothing")?;
    let now_s = cluster.0.env.wall().as_secs();
    let place = [&prefix(b't')[..], key.as_bytes()].concat();
    let job = move |view: &mut WriteView<'_>| {
        use crate::storage::View;
        if view.get(&place)?.is_some() {
            return Ok(Err("the join token was used before".to_owned()));
        }
        let mut old = Vec::new();
        view.scan(&KeyRange::prefix(&prefix(b't')), Direction::Forward, &mut |spent, _| {
            let text = String::from_utf8_lossy(&spent[prefix(b't').len()..]).into_owned();
            if end_s(&text).is_none_or(|end_s| end_s < now_s) {
                old.push(spent.to_vec());
            }
            std::ops::ControlFlow::Continue(())
        })?;
        old.into_iter().for_each(|spent| view.delete(spent));
        view.put(place, Vec::new());
        Ok(Ok(()))
    };
    storage.committer().submit(job).await.map_err(|e| e.to_string())?
}

impl Cluster {
    /// A new join token of this node.
    ///
    /// # Errors
    /// When the node has no cluster secret: it is not part of a cluster yet.
    pub fn join_token(&self) -> Result<String, String> {
        let secret = self.secret().ok_or("this node is not set up for a cluster")?;
        Ok(make_token(&self.0.env, &secret, self.0.name.as_str()))
    }

    /// Joins the cluster of the member whose cluster port is at `address`, at the start of this node: takes over
    /// settings and members, durably.
    pub(super) async fn join(&self, address: &str, token: &str) -> Result<(), String> {
        let Welcome { settings, records } = self.request_welcome(address, token, self.identity()).await?;
        // Members come first: with the secret the node counts as one that has joined.
        self.0.table.merge(records).await.map_err(|e| e.to_string())?;
        self.take_over(settings).await
    }

    /// Asks the member whose cluster port is at `address` to admit this node, which runs. Changes nothing in this node:
    /// a port that is opened for the request closes when the answer is dropped.
    ///
    /// # Errors
    /// [`StartError::Join`] when the node belongs to another cluster already, or is not admitted;
    /// [`StartError::Listen`].
    pub async fn ask_to_join(&self, address: &str, token: &str) -> Result<Admission, StartError> {
        self.check_joins()?;
        read_token(token).ok_or_else(no_token).map_err(StartError::Join)?;
        let port = if self.address().is_none() { Some(self.listen().await?) } else { None };
        let at = port.as_ref().map_or_else(|| self.address(), |port| port.at);
        let me = Identity { name: self.0.name.clone(), address: self.contact_at(at) };
        let welcome = self.request_welcome(address, token, me).await.map_err(StartError::Join)?;
        Ok(Admission { welcome, port })
    }

    /// Makes this node a member of the cluster that admitted it: takes over settings and members, durably.
    ///
    /// # Errors
    /// When something could not be stored. The cluster knows the node as a member then; another token repeats the join.
    pub async fn complete_join(&self, admission: Admission) -> Result<(), StartError> {
        let Admission { welcome: Welcome { settings, records }, port } = admission;
        let _one = self.0.enabling.lock().await;
        if let Some(port) = port.filter(|_| self.address().is_none()) {
            *self.0.port.lock().unwrap_or_else(PoisonError::into_inner) = port;
        }
        // A node that runs calls members as soon as it knows them, and needs the secret for that. If it stops in
        // between, the member that admitted it calls it.
        self.take_over(settings).await.map_err(StartError::Storage)?;
        self.ensure_secret().await?;
        self.begin_accepting();
        self.0.table.merge(records).await.map_err(|e| StartError::Storage(e.to_string()))?;
        self.publish_contact().await;
        Ok(())
    }

    async fn request_welcome(&self, address: &str, token: &str, me: Identity) -> Result<Welcome, String> {
        let (key, secret) = read_token(token).ok_or_else(no_token)?;
        let patience = Duration::from_millis(limits::CLUSTER_JOIN_MS);
        let welcome = self.0.env.timeout(patience, fetch(self, address, &me, (&key, &secret))).await;
        welcome.map_err(|_| "it does not answer".to_owned())?
    }

    /// Sets what the cluster's nodes share, and removes administrators and accepted secrets that the cluster lacks. The
    /// secret comes last, because with it the node counts as one that has joined.
    async fn take_over(&self, settings: Vec<(String, String, String)>) -> Result<(), String> {
        let is_secret = |section: &str, key: &str| (section, key) == ("cluster", "secret");
        for (section, key, value) in settings.iter().filter(|(section, key, _)| !is_secret(section, key)) {
            self.0.config.set((section, key), value, true).await.map_err(|e| e.to_string())?;
        }
        self.remove_own(&settings).await?;
        for (section, key, value) in settings.iter().filter(|(section, key, _)| is_secret(section, key)) {
            self.0.config.set((section, key), value, true).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Removes this node's own administrators and accepted secrets that `settings` of the cluster lack. Where the
    /// cluster has no administrator the node keeps its own, because nobody could log in otherwise.
    async fn remove_own(&self, settings: &[(String, String, String)]) -> Result<(), String> {
        let config = &self.0.config;
        let of_cluster = |section: &str, key: &str| settings.iter().any(|(s, k, _)| s == section && k == key);
        let accepted = ("chttpd_auth", "accepted_secrets");
        if !of_cluster(accepted.0, accepted.1) {
            config.delete(accepted, true).await.map_err(|e| e.to_string())?;
        }
        if !settings.iter().any(|(section, _, value)| section == "admins" && !value.is_empty()) {
            tracing::warn!("the cluster has no administrator: this node keeps its own");
            return Ok(());
        }
        for (name, value) in config.section("admins") {
            if !of_cluster("admins", &name) {
                config.delete(("admins", &name), true).await.map_err(|e| e.to_string())?;
                if !value.is_empty() {
                    tracing::info!(
                        "{name} is not an administrator any more: the cluster that this node joins lacks it"
                    );
                }
            }
        }
        Ok(())
    }
}

fn no_token() -> String {
    "that is no join token".to_owned()
}

async fn fetch(cluster: &Cluster, address: &str, me: &Identity, token: (&str, &[u8])) -> Result<Welcome, String> {
    let channel = connect(cluster, address).await?;
    let told = |error: HandshakeError| error.to_string();
    let mut session = handshake::initiate(&cluster.0.env, channel, me, token, "").await.map_err(told)?;
    session.wire.opener.allow(limits::CLUSTER_WELCOME_BYTES);
    let answer = session.wire.receive().await.map_err(told)?;
    match answer.split_first() {
        Some((1, hidden)) => {
            let mut bytes = hidden.to_vec();
            veil(&session.vault, &mut bytes);
            serde_json::from_slice(&bytes).map_err(|error| format!("its welcome makes no sense: {error}"))
        }
        Some((0, why)) => Err(String::from_utf8_lossy(why).into_owned()),
        _ => Err("its welcome makes no sense".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_read_back_and_belongs_to_its_node_and_time() {
        let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
        let token = make_token(&env, "s", "a@h");
        let (key, secret) = read_token(&token).unwrap();
        assert_eq!(secret, secret_half("s", "a@h", &key));
        assert_ne!(secret, secret_half("s", "b@h", &key));
        assert_ne!(secret, secret_half("t", "a@h", &key));
        let left_s = end_s(&key).unwrap() - env.wall().as_secs();
        assert!((limits::CLUSTER_TOKEN_S - 5..=limits::CLUSTER_TOKEN_S).contains(&left_s));
        for bad in ["", "settee-join-", "settee-join-00-11", &token[1..], &token[..token.len() - 1]] {
            assert!(read_token(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_join_replaces_administrators_and_accepted_secrets_but_leaves_an_administrator() {
        let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
        let cluster = Cluster::alone(&env, "a@h");
        let config = cluster.0.config.clone();
        let set = async |section: &str, key: &str| config.set((section, key), "own", true).await.map(|_| ()).unwrap();
        let setting = |section: &str, key: &str| (section.to_owned(), key.to_owned(), "shared".to_owned());
        let told = |section: &str, key: &str| config.get(section, key);
        set("admins", "own").await;
        set("chttpd_auth", "accepted_secrets").await;
        cluster.take_over(vec![setting("chttpd_auth", "secret")]).await.unwrap();
        assert_eq!(told("admins", "own").as_deref(), Some("own"), "the cluster has no administrator");
        assert_eq!(told("chttpd_auth", "accepted_secrets"), None);
        let welcome = vec![setting("admins", "theirs"), setting("chttpd_auth", "accepted_secrets")];
        cluster.take_over(welcome).await.unwrap();
        assert_eq!(config.section("admins").into_keys().collect::<Vec<_>>(), ["theirs"]);
        assert_eq!(told("chttpd_auth", "accepted_secrets").as_deref(), Some("shared"));
    }
}
