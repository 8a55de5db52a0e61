//! The options that the node knows, and which values each of them takes.
//!
//! A value that an option does not take is refused, at the start and in requests: the default in its place would be
//! another setting than the one that was meant, and for a switch such as `require_valid_user` an open door. An option
//! that the node does not know is kept, as CouchDB keeps it, and told in the log: it may be one of CouchDB's without a
//! meaning here, or a mistyped one.

use std::fmt;

use super::Sections;
use crate::limits;

/// Which values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `true` or `false`, exactly.
    Switch,
    /// A whole number that is not negative, or `infinity`.
    Number,
    /// A number that is not negative, fractions too.
    Fraction,
    /// A port: 0 to 65535.
    Port,
    /// A time of the day, `HH:MM`.
    Time,
    /// MB of the disk that are kept: 0, or enough to keep what is promised.
    DiskReserve,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Modules with levels of the log: `storage=debug, http=warn`.
    Levels,
    /// Texts divided by commas, not more than are accepted.
    Secrets,
    /// Anything.
    Text,
}

/// Names of levels of the log, as CouchDB has them.
pub const LEVELS: &[&str] = &[
    "debug",
    "info",
    "notice",
    "warning",
    "warn",
    "error",
    "err",
    "critical",
    "crit",
    "alert",
    "emergency",
    "emerg",
    "none",
];

use Kind::{DiskReserve, Fraction, Levels, Number, Port, Secrets, Switch, Text, Time, Word};

/// Sections whose keys are names.
const OPEN: &[&str] = &["admins", "jwt_keys", "query_servers", "vhosts"];

/// The keys of each section, by kind.
const OPTIONS: &[(&str, Kind, &[&str])] = &[
    ("admission", Number, &["documents", "queries", "feeds", "queue", "wait_ms"]),
    ("attachments", Number, &["compression_level"]),
    ("attachments", Text, &["compressible_types"]),
    ("chttpd", Port, &["port"]),
    (
        "chttpd",
        Number,
        &[
            "max_connections",
            "max_http_request_size",
            "max_uri_length",
            "rewrite_limit",
            "changes_timeout",
            "max_db_number_for_dbs_info_req",
        ],
    ),
    (
        "chttpd",
        Switch,
        &[
            "require_valid_user",
            "require_valid_user_except_for_up",
            "admin_only_all_dbs",
            "enable_cors",
            "enable_xframe_options",
        ],
    ),
    ("chttpd", Switch, &["allow_jsonp", "decode_plus_to_space", "secure_rewrites", "server_header_versions"]),
    (
        "chttpd",
        Text,
        &[
            "bind_address",
            "prefer_minimal",
            "authentication_handlers",
            "WWW-Authenticate",
            "x_forwarded_host",
            "x_forwarded_proto",
            "x_forwarded_ssl",
        ],
    ),
    ("chttpd_auth", Word(&["sha", "sha224", "sha256", "sha384", "sha512"]), &["pbkdf2_prf"]),
    ("chttpd_auth", Number, &["timeout", "iterations", "min_iterations", "max_iterations", "auth_cache_size"]),
    (
        "chttpd_auth",
        Switch,
        &["allow_persistent_cookies", "upgrade_hash_on_auth", "users_db_public", "proxy_use_secret"],
    ),
    (
        "chttpd_auth",
        Text,
        &[
            "secret",
            "cookie_domain",
            "same_site",
            "hash_algorithms",
            "password_regexp",
            "authentication_db",
            "public_fields",
            "x_auth_username",
            "x_auth_roles",
            "x_auth_token",
            "authentication_redirect",
        ],
    ),
    ("chttpd_auth", Secrets, &["accepted_secrets"]),
    ("chttpd_auth_lockout", Word(&["enforce", "warn", "off"]), &["mode"]),
    ("chttpd_auth_lockout", Number, &["threshold", "max_lifetime", "max_objects"]),
    ("cluster", Port, &["port"]),
    ("cluster", Number, &["q", "n", "heartbeat_ms", "suspect_ms"]),
    ("cluster", Switch, &["tls", "tls_optional", "session_reads", "strict_reads"]),
    (
        "cluster",
        Text,
        &[
            "bind_address",
            "address",
            "secret",
            "seeds",
            "join",
            "join_token",
            "placement",
            "tls_cert_file",
            "tls_key_file",
            "tls_ca_file",
        ],
    ),
    ("cors", Switch, &["credentials"]),
    ("cors", Number, &["max_age"]),
    ("cors", Text, &["origins", "methods", "headers", "exposed_headers"]),
    ("couch_peruser", Switch, &["enable", "delete_dbs"]),
    ("couch_peruser", Number, &["q"]),
    ("couch_peruser", Text, &["database_prefix"]),
    ("couchdb", Switch, &["single_node", "users_db_security_editable"]),
    ("couchdb", Word(&["admin_only", "admin_local", "everyone"]), &["default_security"]),
    (
        "couchdb",
        Number,
        &[
            "max_document_size",
            "max_attachment_size",
            "max_document_id_length",
            "os_process_timeout",
            "max_partition_size",
        ],
    ),
    // Of maintenance_mode the reference takes any text, and all but its words as false.
    ("couchdb", Text, &["uuid", "default_engine", "maintenance_mode"]),
    ("csp", Switch, &["utils_enable", "attachments_enable", "showlist_enable"]),
    ("csp", Text, &["utils_header_value", "attachments_header_value", "showlist_header_value"]),
    ("jwt_auth", Number, &["jwks_max_age"]),
    (
        "jwt_auth",
        Text,
        &["required_claims", "roles_claim_path", "roles_claim_name", "jwks_url", "jwks_trusted_certificates_file"],
    ),
    ("log", Word(LEVELS), &["level", "requests"]),
    ("log", Word(&["text", "json"]), &["format"]),
    ("log", Switch, &["audit"]),
    ("log", Levels, &["levels"]),
    ("log", Number, &["slow_ms", "slow_request_ms"]),
    ("nouveau", Switch, &["enable"]),
    ("query_server_config", Text, &["reduce_limit"]),
    ("query_server_config", Number, &["query_limit", "partition_query_limit"]),
    (
        "replicator",
        Number,
        &[
            "worker_batch_size",
            "worker_processes",
            "http_connections",
            "checkpoint_interval",
            "connection_timeout",
            "retries_per_request",
            "stall_timeout",
            "max_jobs",
            "interval",
            "max_churn",
            "min_backoff_penalty_sec",
            "max_backoff_penalty_sec",
            "health_threshold",
            "max_history",
        ],
    ),
    (
        "replicator",
        Switch,
        &["use_bulk_get", "use_checkpoints", "update_docs", "verify_ssl_certificates", "seal_credentials"],
    ),
    (
        "replicator",
        Text,
        &[
            "valid_endpoint_protocols",
            "valid_proxy_protocols",
            "ssl_trusted_certificates_file",
            "cert_file",
            "key_file",
        ],
    ),
    ("settee", Number, &["memory_mb", "compaction_mb_per_s"]),
    ("settee", DiskReserve, &["disk_reserve_mb"]),
    ("settee", Fraction, &["tombstone_days"]),
    ("settee", Switch, &["auto_compaction", "autoupdate"]),
    ("settee", Word(&["thread", "process"]), &["script_isolation"]),
    ("settee", Word(&["specification", "couchdb-3.5"]), &["follow"]),
    ("settee", Word(&["refuse", "rebuild", "refill"]), &["missing_files"]),
    ("settee", Text, &["node", "snapshot_dir", "index_swap", "utils_dir"]),
    ("smoosh", Text, &["cleanup_channels"]),
    ("smoosh.index_cleanup", Time, &["from", "to"]),
    ("smoosh.ratio_dbs", Fraction, &["min_priority", "min_size"]),
    ("smoosh.ratio_dbs", Time, &["from", "to"]),
    ("smoosh.ratio_dbs", Switch, &["strict_window"]),
    ("smoosh.slack_dbs", Fraction, &["min_priority", "min_size"]),
    ("smoosh.slack_dbs", Time, &["from", "to"]),
    ("smoosh.slack_dbs", Switch, &["strict_window"]),
    ("ssl", Port, &["port"]),
    ("ssl", Switch, &["enable", "verify_ssl_certificates", "fail_if_no_peer_cert", "hsts_include_subdomains"]),
    ("ssl", Number, &["hsts_max_age"]),
    ("ssl", Text, &["cert_file", "key_file", "cacert_file", "tls_versions"]),
    ("uuids", Text, &["algorithm", "utc_id_suffix"]),
    ("uuids", Word(&["base_16", "base_36", "rfc9562"]), &["format"]),
    ("uuids", Number, &["max_count"]),
    ("x_frame_options", Switch, &["same_origin"]),
    ("x_frame_options", Text, &["hosts"]),
];

/// The section that counts where an option has an old one; that of one host has the keys of the one of all.
fn present_name(section: &str) -> &str {
    match section {
        "httpd" => "chttpd",
        "couch_httpd_auth" => "chttpd_auth",
        host if host.starts_with("cors:") => "cors",
        other => other,
    }
}

fn kind_of(section: &str, key: &str) -> Option<Kind> {
    let section = present_name(section);
    if OPEN.contains(&section) {
        return Some(Text);
    }
    OPTIONS.iter().find(|(of, _, keys)| *of == section && keys.contains(&key)).map(|(_, kind, _)| *kind)
}

impl Kind {
    fn takes(self, value: &str) -> bool {
        match self {
            Switch => matches!(value, "true" | "false"),
            Number => value == "infinity" || is_digits(value) && value.parse::<u64>().is_ok(),
            Fraction => value == "infinity" || value.parse::<f64>().is_ok_and(|n| n >= 0.0 && n.is_finite()),
            Port => is_digits(value) && value.parse::<u16>().is_ok(),
            Time => super::minutes_of_day(value).is_some(),
            DiskReserve => {
                let mb = value.parse().ok().filter(|_| is_digits(value));
                mb.is_some_and(|mb: u64| mb == 0 || mb >= limits::DISK_RESERVE_MB_MIN)
            }
            Word(words) => words.contains(&value),
            Levels => value.split(',').all(|pair| {
                let is_module =
                    |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b"_:".contains(&b));
                pair.split_once('=')
                    .is_some_and(|(module, level)| is_module(module.trim()) && LEVELS.contains(&level.trim()))
            }),
            Secrets => super::words(value).count() <= limits::ACCEPTED_SECRETS_MAX,
            Text => true,
        }
    }
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Switch => f.write_str("true or false"),
            Number => f.write_str("a whole number that is not negative, or infinity"),
            Fraction => f.write_str("a number that is not negative"),
            Port => f.write_str("a port number"),
            Time => f.write_str("a time of the day, HH:MM"),
            DiskReserve => write!(f, "0 or a number of at least {}", limits::DISK_RESERVE_MB_MIN),
            Word(words) => f.write_str(&words.join(", ")),
            Levels => f.write_str("MODULE=LEVEL, .., each level one of debug, info, warning, error, none"),
            Secrets => write!(f, "at most {} texts, divided by commas", limits::ACCEPTED_SECRETS_MAX),
            Text => f.write_str("a text"),
        }
    }
}

/// Why a value is not taken by an option; `None` where it is, and for an empty one, which stands for the default.
pub fn refusal(section: &str, key: &str, value: &str) -> Option<String> {
    let kind = kind_of(section, key)?;
    // Secrets are not shown; of any other option that refuses a value the value is none.
    let shown = if kind == Secrets { "(hidden)" } else { value };
    (!value.is_empty() && !kind.takes(value)).then(|| format!("[{section}] {key} = {shown}: expected {kind}"))
}

/// Which values an option takes, in words; `None` where the node does not know it.
pub fn takes(section: &str, key: &str) -> Option<String> {
    kind_of(section, key).map(|kind| kind.to_string())
}

/// Whether the node knows an option.
pub fn is_known(section: &str, key: &str) -> bool {
    kind_of(section, key).is_some()
}

/// All values that are not taken, one line for each.
pub(super) fn refusals(sections: &Sections) -> Vec<String> {
    each(sections).filter_map(|(section, key, value)| refusal(section, key, value)).collect()
}

/// The options that the node does not know: those of CouchDB with the reason why they have no effect, and all others,
/// each in the form `[section] key`.
pub(super) fn unknown(sections: &Sections) -> (Vec<String>, Vec<String>) {
    let (mut foreign, mut others) = (Vec::new(), Vec::new());
    for (section, key, _) in each(sections).filter(|(section, key, _)| !is_known(section, key)) {
        match super::foreign::reason(section, key) {
            Some(reason) => foreign.push(format!("[{section}] {key}: {reason}")),
            None => others.push(format!("[{section}] {key}")),
        }
    }
    (foreign, others)
}

fn each(sections: &Sections) -> impl Iterator<Item = (&str, &str, &str)> {
    sections.iter().flat_map(|(section, keys)| {
        keys.iter().map(move |(key, value)| (section.as_str(), key.as_str(), value.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_an_option_does_not_take_are_refused_with_what_it_takes() {
        for (section, key, value) in [
            ("log", "level", "bogus"),
            ("log", "levels", "storage"),
            ("log", "levels", "storage=loud"),
            ("log", "levels", "storage=debug,"),
            ("settee", "memory_mb", "-5"),
            ("settee", "memory_mb", "+5"),
            ("settee", "disk_reserve_mb", "8"),
            ("settee", "tombstone_days", "NaN"),
            ("couchdb", "max_document_size", "banana"),
            ("chttpd", "require_valid_user", "True"),
            ("chttpd", "require_valid_user", "yes"),
            ("httpd", "enable_cors", "1"),
            ("couch_httpd_auth", "timeout", "ten"),
            ("chttpd", "port", "65536"),
            ("cluster", "tls", "on"),
            ("cors:app.example", "credentials", "yes"),
            ("smoosh.ratio_dbs", "from", "24:00"),
            ("smoosh.slack_dbs", "to", "6"),
        ] {
            assert!(refusal(section, key, value).is_some(), "[{section}] {key} = {value}");
        }
        let told = refusal("chttpd", "require_valid_user", "yes").unwrap();
        assert_eq!(told, "[chttpd] require_valid_user = yes: expected true or false");
        assert_eq!(refusal("chttpd_auth", "accepted_secrets", "a, b,c,,d"), None);
        let told = refusal("chttpd_auth", "accepted_secrets", "a,b,c,d,e").unwrap();
        assert_eq!(told, "[chttpd_auth] accepted_secrets = (hidden): expected at most 4 texts, divided by commas");
    }

    #[test]
    fn values_that_are_meant_are_taken_and_unknown_options_are_kept() {
        for (section, key, value) in [
            ("log", "level", "notice"),
            ("log", "levels", "storage=debug, coordinator::write = warn,request=info"),
            ("couchdb", "max_document_size", "infinity"),
            ("couchdb", "maintenance_mode", "nolb"),
            ("settee", "tombstone_days", "0.5"),
            ("smoosh.ratio_dbs", "min_priority", "2.0"),
            ("smoosh.slack_dbs", "from", "4:30"),
            ("chttpd", "max_uri_length", ""),
            ("admins", "anybody", "-pbkdf2-.."),
            ("ioq", "concurrency", "many"),
        ] {
            assert_eq!(refusal(section, key, value), None, "[{section}] {key} = {value}");
        }
        assert!(is_known("admins", "x") && !is_known("settee", "memory") && !is_known("ioq", "concurrency"));
    }
}
