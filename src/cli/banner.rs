//! What a node says when it is ready: where it listens, where its data are, who administers it, what is unsafe. Pure.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use crate::config::Config;
use crate::limits;

/// What is known of a node that has started.
pub struct Started<'s> {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where they connect by TLS.
    pub secure_address: Option<SocketAddr>,
    /// The data directory.
    pub data: &'s Path,
}

/// The lines; the first one tells programs that the node is ready.
pub fn text(config: &Config, started: &Started<'_>) -> String {
    let Started { address, secure_address, data } = started;
    let mut out = format!("settee {} is ready at http://{address}/\n", env!("CARGO_PKG_VERSION"));
    // Writing to a text does not fail.
    if let Some(secure) = secure_address {
        let _ = writeln!(out, "  and at https://{secure}/");
    }
    let _ = write!(out, "  data: {}", data.display());
    let options = config.written_file().map(|file| format!("; options: {}", file.display())).unwrap_or_default();
    let _ = writeln!(out, "{options}");
    let port = config.text("cluster", "port", "9100");
    let is_open = config.get("cluster", "secret").or(config.get("cluster", "port")).is_some();
    let others = if is_open { format!("other nodes connect to port {port}") } else { "no other nodes".to_owned() };
    let _ = writeln!(out, "  node {}; {others}", crate::node::name(config));
    let admins: Vec<String> = config.section("admins").into_keys().collect();
    let _ =
        writeln!(out, "  administrators: {}", if admins.is_empty() { "none".to_owned() } else { admins.join(", ") });
    for what in unsafe_settings(config, address) {
        let _ = writeln!(out, "  unsafe: {what}");
    }
    out
}

/// What others could use, in the words of an operator.
fn unsafe_settings(config: &Config, address: &SocketAddr) -> Vec<String> {
    let mut out = Vec::new();
    let is_reached = !address.ip().is_loopback();
    if is_reached && !config.bool("ssl", "enable", false) {
        out.push("other machines send their passwords without TLS ([ssl] enable)".to_owned());
    }
    let own = config.text("cluster", "bind_address", &config.text("chttpd", "bind_address", limits::BIND_ADDRESS));
    let is_local = crate::wire::address::bind_ip(&own).is_some_and(|ip| ip.is_loopback());
    if config.get("cluster", "secret").is_some() && !is_local {
        if !config.bool("cluster", "tls", false) {
            out.push("what nodes tell each other is not encrypted ([cluster] tls)".to_owned());
        } else if config.bool("cluster", "tls_optional", false) {
            out.push("what nodes tell each other may not be encrypted ([cluster] tls_optional)".to_owned());
        }
    }
    let is_open = config.text("couchdb", "default_security", "admin_only") == "everyone";
    if is_open && !config.bool("chttpd", "require_valid_user", false) {
        out.push("new databases are open to everybody ([couchdb] default_security)".to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::config::Setting;
    use crate::world::tokio_host;

    use super::*;

    fn told(settings: &[&str], address: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let settings = settings.iter().map(|text| Setting::parse(text).unwrap()).collect();
        let config = Config::in_memory(&tokio_host::env(runtime.handle().clone()), settings);
        let started = Started { address: address.parse().unwrap(), secure_address: None, data: Path::new("/d") };
        text(&config, &started)
    }

    #[test]
    fn a_node_on_its_own_says_where_it_is_and_who_administers_it() {
        let told = told(&["admins/adm=x", "admins/bob=y"], "127.0.0.1:5984");
        let first = format!("settee {} is ready at http://127.0.0.1:5984/\n", env!("CARGO_PKG_VERSION"));
        assert!(told.starts_with(&first), "{told}");
        assert!(told.contains("  data: /d") && told.contains("  administrators: adm, bob\n"), "{told}");
        assert!(told.contains("; no other nodes\n") && !told.contains("unsafe") && !told.contains('x'), "{told}");
    }

    #[test]
    fn what_is_unsafe_is_told() {
        let settings = ["chttpd/bind_address=any", "cluster/secret=abc", "couchdb/default_security=everyone"];
        let told = told(&settings, "0.0.0.0:5984");
        assert_eq!(told.matches("  unsafe: ").count(), 3, "{told}");
        assert!(!told.contains("abc"), "{told}");
    }
}
