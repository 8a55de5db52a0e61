//! Tuning of a replication: values of its request, else of the section `[replicator]`, else CouchDB's defaults.

use std::sync::Arc;
use std::time::Duration;

use super::error::{ReplicateError, Result};
use super::request::{Endpoint, Replication, boolean, number};
use crate::config::Config;
use crate::document::json::Object;
use crate::limits;
use crate::wire::client::{Client, Moved, Patience};
use crate::wire::dial::{Dialer, Proxy};
use crate::wire::tls::Connector;
use crate::world::Env;

const SECTION: &str = "replicator";

/// What a request says of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    batch_rows: Option<u64>,
    workers: Option<u64>,
    connections: Option<u64>,
    silence_ms: Option<u64>,
    retries: Option<u64>,
    checkpoint_interval_ms: Option<u64>,
    use_checkpoints: Option<bool>,
    use_bulk_get: Option<bool>,
}

/// How a replication works.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Changes per batch.
    pub batch_rows: u64,
    /// Batches that are worked on at once.
    pub workers: usize,
    /// Connections to one peer at once, beside that of its changes.
    pub connections: usize,
    /// How long a peer may be silent, and how often a request is repeated.
    pub patience: Patience,
    /// How long nothing may move before it is begun anew.
    pub stall: Duration,
    /// How often it writes down how far it came.
    pub checkpoint_interval: Duration,
    /// Whether it does.
    pub use_checkpoints: bool,
    /// Whether documents are asked for by `_bulk_get`.
    pub use_bulk_get: bool,
}

impl Wishes {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// [`ReplicateError::BadRequest`] for values of the wrong type.
    pub fn parse(body: &Object) -> Result<Wishes> {
        Ok(Wishes {
            batch_rows: number(body, "worker_batch_size")?,
            workers: number(body, "worker_processes")?,
            connections: number(body, "http_connections")?,
            silence_ms: number(body, "connection_timeout")?,
            retries: number(body, "retries_per_request")?,
            checkpoint_interval_ms: number(body, "checkpoint_interval")?,
            use_checkpoints: boolean(body, "use_checkpoints")?,
            use_bulk_get: boolean(body, "use_bulk_get")?,
        })
    }

    /// With what the node says to what is not wished for, within the limits.
    pub fn settled(&self, config: &Config) -> Tuning {
        let batch = config.u64(SECTION, "worker_batch_size", limits::REPLICATION_BATCH_ROWS);
        let workers = config.u64(SECTION, "worker_processes", limits::REPLICATION_WORKERS);
        let connections = config.u64(SECTION, "http_connections", limits::REPLICATION_CONNECTIONS);
        let silence = config.u64(SECTION, "connection_timeout", limits::REPLICATION_SILENCE_MS);
        let retries = config.u64(SECTION, "retries_per_request", limits::REPLICATION_RETRIES);
        let interval = config.u64(SECTION, "checkpoint_interval", limits::REPLICATION_CHECKPOINT_MS);
        let use_checkpoints = config.bool(SECTION, "use_checkpoints", true);
        let use_bulk_get = config.bool(SECTION, "use_bulk_get", true);
        let stall = Duration::from_millis(config.u64(SECTION, "stall_timeout", limits::REPLICATION_STALL_MS));
        let silence = Duration::from_millis(self.silence_ms.filter(|ms| *ms > 0).unwrap_or(silence).max(1));
        let few = |wish: Option<u64>, set: u64, most: usize| {
            usize::try_from(wish.unwrap_or(set)).unwrap_or(usize::MAX).clamp(1, most)
        };
        let retries = self.retries.unwrap_or(retries).min(limits::REPLICATION_RETRIES_MAX);
        Tuning {
            batch_rows: few(self.batch_rows, batch, limits::REPLICATION_BATCH_ROWS_MAX) as u64,
            workers: few(self.workers, workers, limits::REPLICATION_WORKERS_MAX),
            connections: few(self.connections, connections, limits::REPLICATION_CONNECTIONS_MAX),
            patience: Patience { silence, retries: u32::try_from(retries).unwrap_or(u32::MAX) },
            stall: stall.max(silence.saturating_mul(limits::REPLICATION_STALL_SILENCES)),
            checkpoint_interval: Duration::from_millis(self.checkpoint_interval_ms.unwrap_or(interval).max(1)),
            use_checkpoints: self.use_checkpoints.unwrap_or(use_checkpoints),
            use_bulk_get: self.use_bulk_get.unwrap_or(use_bulk_get),
        }
    }
}

impl Tuning {
    /// The clients of a peer: that of its changes, which may wait long, and that of all else. `moved`: hears of all
    /// that comes from it and goes to it.
    pub(super) fn clients(&self, env: &Env, tls: &Connector, proxy: Option<&Proxy>, moved: &Moved) -> [Client; 2] {
        let dialer = || Dialer::new(env, Some(tls.clone())).through(proxy.cloned());
        let client = |connections| Client::dialing(env, self.patience, dialer(), connections, Some(Arc::clone(moved)));
        [1, self.connections].map(client)
    }
}

/// Refuses endpoints and proxies of protocols that the node is not to speak.
///
/// # Errors
/// [`ReplicateError::BadRequest`]
pub(super) fn check_protocols(asked: &Replication, config: &Config) -> Result<()> {
    let endpoints = config.text(SECTION, "valid_endpoint_protocols", "http,https");
    let proxies = config.text(SECTION, "valid_proxy_protocols", "http,https,socks5");
    let named = |list: &str, scheme: &str| list.split(',').any(|one| one.trim().eq_ignore_ascii_case(scheme));
    for endpoint in [&asked.source, &asked.target] {
        let Endpoint::Remote(remote) = endpoint else { continue };
        let scheme = if remote.url.https { "https" } else { "http" };
        if !named(&endpoints, scheme) {
            return Err(ReplicateError::BadRequest(format!("`{scheme}` is not a valid protocol of an endpoint")));
        }
        if let Some(proxy) = remote.proxy.as_ref().filter(|proxy| !named(&proxies, proxy.scheme())) {
            return Err(ReplicateError::BadRequest(format!("`{}` is not a valid protocol of a proxy", proxy.scheme())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::document::json;
    use crate::world::tokio_host;

    fn body(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn node(settings: &[&str]) -> Config {
        let settings = settings.iter().map(|setting| Setting::parse(setting).unwrap()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Config::in_memory(&tokio_host::env(runtime.handle().clone()), settings)
    }

    #[test]
    fn a_request_comes_before_the_node_and_the_node_before_the_defaults() {
        let config = node(&["replicator/worker_batch_size=70", "replicator/retries_per_request=2"]);
        let wishes = Wishes::parse(&body(r#"{"retries_per_request":"9","worker_processes":0}"#)).unwrap();
        let tuning = wishes.settled(&config);
        assert_eq!((tuning.batch_rows, tuning.workers, tuning.patience.retries), (70, 1, 9));
        assert_eq!((tuning.connections, tuning.use_checkpoints), (20, true));
        assert_eq!((tuning.checkpoint_interval, tuning.stall), (Duration::from_secs(30), Duration::from_secs(300)));
        assert!(Wishes::parse(&body(r#"{"use_bulk_get":1}"#)).is_err());
    }

    #[test]
    fn a_peer_may_be_silent_for_as_long_as_it_was_allowed_without_being_taken_for_stalled() {
        let patient = Wishes::parse(&body(r#"{"connection_timeout":600000}"#)).unwrap();
        assert_eq!(patient.settled(&node(&[])).stall, Duration::from_secs(1200));
        let hasty = node(&["replicator/stall_timeout=1000", "replicator/connection_timeout=500"]);
        assert_eq!(Wishes::default().settled(&hasty).stall, Duration::from_secs(1));
    }

    #[test]
    fn protocols_may_be_ruled_out() {
        let asked = |text: &str| Replication::parse(&body(text)).unwrap();
        let plain = asked(r#"{"source":"http://h/a","target":"b","source_proxy":"socks5://p"}"#);
        assert_eq!(check_protocols(&plain, &node(&[])), Ok(()));
        assert!(check_protocols(&plain, &node(&["replicator/valid_endpoint_protocols=https"])).is_err());
        assert!(check_protocols(&plain, &node(&["replicator/valid_proxy_protocols=http, https"])).is_err());
    }
}
