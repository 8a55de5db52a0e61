//! Where the machines of a run are, and how its nodes are configured.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::plan::{Far, Plan, WorldPlan};
use crate::tokens::{self, TOKEN_KEY};
use crate::world::{AUTHORITY, CERTIFICATE, Hidden, KEY, Link};

pub(crate) const PORT: u16 = 5984;
/// Where nodes listen for TLS.
pub(crate) const TLS_PORT: u16 = 6984;

/// What nodes that speak TLS show nobody: a database that is made in every cluster, and the credentials of all clients.
/// The proxy, which reads what passes, is asked on the plain port, and asks there.
pub(crate) const HIDDEN: Hidden = Hidden { texts: &["passing", "YWRtOnBhc3M="], but_at: PORT };

thread_local! {
    /// Whether clients of this thread's run speak TLS.
    static SECURE: Cell<bool> = const { Cell::new(false) };
}

/// From now on clients of this thread's run speak TLS, or do not.
pub(crate) fn speak_tls(secure: bool) {
    SECURE.set(secure);
}

/// A salted SHA-1 of `pass`: cheap to check, as a run has no time for 600,000 rounds.
const ADMIN: &str = "admins/adm=-hashed-58dfc08c75be240db5082eddfbe23a6d5202e77f,00";
/// Tokens, cookies, a proxy that is believed, and passwords.
const HANDLERS: &str = "chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler}, \
                        {chttpd_auth, cookie_authentication_handler}, {chttpd_auth, proxy_authentication_handler}, \
                        {chttpd_auth, default_authentication_handler}";
/// By what the nodes of each cluster know each other.
const SECRETS: [&str; 2] = ["sesame", "barley"];
/// The administrator.
pub(crate) const USER: &str = "adm";
/// Its password.
pub(crate) const PASSWORD: &str = "pass";
/// The machine before the first node where replications come in.
pub(crate) const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));

/// The usual link between two machines of a plan.
pub(crate) fn link(world: &WorldPlan) -> Link {
    let latency = Duration::from_micros(world.latency_us);
    Link { latency: (latency / 2, latency * 2), loss: f64::from(world.loss_per_10k) / 10_000.0, ..Link::default() }
}

/// The way between two clusters, while it is another one than the usual.
pub(crate) fn far_link(world: &WorldPlan) -> Option<Link> {
    let Far { latency_us, loss_per_10k, .. } = world.far?;
    Some(link(&WorldPlan { latency_us, loss_per_10k, ..world.clone() }))
}

/// The address of a node for its clients.
pub(crate) fn address_of(node: u32) -> SocketAddr {
    SocketAddr::new(node_ip(node), if SECURE.get() { TLS_PORT } else { PORT })
}

/// The address of a node for who speaks no TLS: the proxy, which reads what passes.
pub(crate) fn plain_address_of(node: u32) -> SocketAddr {
    SocketAddr::new(node_ip(node), PORT)
}

/// The URL of a node with the administrator's credentials.
pub(crate) fn url_of(node: u32) -> String {
    url_at(address_of(node))
}

/// The same of the first node, by way of the proxy.
pub(crate) fn source_url() -> String {
    url_at(SocketAddr::new(PROXY, PORT))
}

/// The URL at which a node is read from: of the first one that of the proxy before it.
pub(crate) fn source_url_of(node: u32) -> String {
    if node == 0 { source_url() } else { url_of(node) }
}

fn url_at(address: SocketAddr) -> String {
    let scheme = if address.port() == TLS_PORT { "https" } else { "http" };
    format!("{scheme}://{USER}:{PASSWORD}@{address}")
}

pub(crate) fn node_ip(node: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8 + 1))
}

/// The name of a node in its cluster.
pub(crate) fn member_name(ip: IpAddr) -> String {
    format!("settee@{ip}")
}

/// Where a node listens for the others of its cluster.
pub(crate) fn cluster_address(node: u32) -> String {
    format!("{}:{}", node_ip(node), PORT + 1)
}

/// The name of a cluster's node by its number.
pub(crate) fn node_name(node: u32) -> String {
    member_name(node_ip(node))
}

pub(crate) fn client_ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, n + 1))
}

/// The configuration that every server has.
pub(crate) fn plain_settings() -> Vec<String> {
    vec![
        ADMIN.to_owned(),
        HANDLERS.to_owned(),
        "chttpd_auth/secret=sesame".to_owned(),
        "nouveau/enable=true".to_owned(),
    ]
}

/// The configuration of one server whose answers are checked, wherever it runs.
pub(crate) fn settings_outside() -> Vec<String> {
    let mut out = plain_settings();
    out.extend([
        format!("jwt_keys/hmac:_default={}", tokens::configured(TOKEN_KEY)),
        "jwt_auth/required_claims=exp, nbf".to_owned(),
        format!("chttpd_auth/timeout={}", tokens::SESSION_S),
    ]);
    out
}

/// The configuration of a plan's node, beside what all have.
pub(crate) fn settings_of(plan: &Plan, number: u32) -> Vec<String> {
    let world = &plan.world;
    let mut out = Vec::from([
        format!("couchdb/uuid={number:02}"),
        "chttpd/bind_address=any".to_owned(),
        format!("chttpd/port={PORT}"),
    ]);
    if plan.takes_snapshots() {
        out.push("settee/snapshot_dir=/snapshots".to_owned());
    }
    if let Some((document, attachment, request)) = world.caps() {
        out.extend([
            format!("couchdb/max_document_size={document}"),
            format!("couchdb/max_attachment_size={attachment}"),
            format!("chttpd/max_http_request_size={request}"),
        ]);
    }
    if world.tls {
        out.extend([
            "ssl/enable=true".to_owned(),
            format!("ssl/port={TLS_PORT}"),
            format!("ssl/cert_file={CERTIFICATE}"),
            format!("ssl/key_file={KEY}"),
            "replicator/verify_ssl_certificates=true".to_owned(),
            format!("replicator/ssl_trusted_certificates_file={AUTHORITY}"),
            "cluster/tls=true".to_owned(),
        ]);
        if !world.self_made {
            out.extend([
                format!("cluster/tls_cert_file={CERTIFICATE}"),
                format!("cluster/tls_key_file={KEY}"),
                format!("cluster/tls_ca_file={AUTHORITY}"),
            ]);
        }
    }
    if world.tombstone_ms > 0 {
        out.push(format!("settee/tombstone_days={}", f64::from(world.tombstone_ms) / 86_400_000.0));
    }
    if world.n > 0 {
        let seed = |n: u32| format!("{}={}", node_name(n), cluster_address(n));
        let own = SECRETS.into_iter().zip(world.clusters()).find(|(_, nodes)| nodes.contains(&number));
        // Who belongs to none at first knows nobody, and is known by nobody.
        let (secret, known) = own.unwrap_or((SECRETS[0], 0..0));
        let seeds: Vec<String> = known.map(seed).collect();
        out.extend([
            format!("settee/node={}", node_name(number)),
            format!("cluster/port={}", PORT + 1),
            "cluster/bind_address=any".to_owned(),
            format!("cluster/secret={secret}"),
            format!("cluster/n={}", world.n),
            format!("cluster/strict_reads={}", world.strict_reads),
            format!("cluster/seeds={}", seeds.join(",")),
        ]);
    }
    out
}
