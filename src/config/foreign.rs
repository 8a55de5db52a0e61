//! Options of CouchDB that have no effect here, each with the reason: the log says so where one is set.
//!
//! With [`schema`](super::schema) this is every key of the `default.ini` of CouchDB 3.5.0 and of versions after it
//! (`couchdb_options.txt`). The table in `docs/compatibility.md` is made from it; tests compare them.

/// A section, its keys, and why they have no effect.
pub type Row = (&'static str, &'static [&'static str], &'static str);

/// The options.
#[rustfmt::skip]
pub const FOREIGN: &[Row] = &[
    ("couchdb", &[
        "util_driver_dir", "plugin_dir", "max_dbs_open", "file_compression",
        "attachment_stream_buffer_size", "btree_chunk_size", "update_lru_on_read",
        "write_xxhash_checksums", "use_cfile", "cfile_skip_ioq", "compaction_log_level",
        "max_couch_server_shards", "upgrade_in_progress", "prohibit_downgrade",
    ], "engine of CouchDB's files; settee's storage has `[settee]` of its own"),
    ("couchdb", &["js_engine"], "the engine of JavaScript is QuickJS"),
    ("couchdb", &["database_dir", "view_index_dir"], "folders are those of `--data`"),
    ("couchdb", &["uri_file"], "no file tells the address; the log does"),
    ("couchdb", &["stem_interactive_updates"], "revisions beyond the limit go with each edit"),
    ("couchdb", &["changes_doc_ids_optimization_threshold"], "feeds by ids read the ids alone, however many"),
    ("couchdb", &["enable_database_recovery"], "deleted databases are gone; `settee restore` brings back backups"),
    ("couchdb", &["attachment_writer_timeout"], "an upload that stands still ends after the time limit of requests"),
    ("purge", &["max_document_id_number", "max_revisions_number", "index_lag_warn_seconds"], "requests to purge are bounded by their size"),
    ("bt_engine_cache", &[
        "max_size", "leave_percent", "db_btree_cache_depth", "view_btree_cache_depth",
    ], "engine of CouchDB's files; settee's storage has `[settee]` of its own"),
    ("couchdb", &["delete_after_rename"], "a deleted database's files go at once, each in one step"),
    ("couchdb", &["index_cleanup_delay_msec"], "indexes are cleaned up once their design documents are at rest for five minutes"),
    ("couchdb", &["time_seq_min_time"], "times of changes are told as the clock gave them"),
    ("couchdb_engines", &["couch"], "the only engine is settee's"),
    ("process_priority", &["couch_server"], "there is no such process"),
    ("cluster", &["seedlist", "reconnect_interval_sec"], "`[cluster] seeds` names nodes to join"),
    ("chttpd", &["server_options", "socket_options"], "sockets have their system's buffers and no delay"),
    ("httpd", &["server_options", "socket_options"], "sockets have their system's buffers and no delay"),
    ("chttpd", &["buffer_response"], "the first bytes of an answer are read before its status is sent, always"),
    ("chttpd", &["config_whitelist"], "an administrator of the server may change every section that requests may change"),
    ("chttpd", &["bulk_get_use_batches"], "documents of `_bulk_get` are always read in batches"),
    ("chttpd", &["disconnect_check_msec", "disconnect_check_jitter_msec"], "a client that is gone is noticed at once"),
    ("chttpd", &["scrub_json_request"], "functions never see credentials"),
    ("chttpd", &["peer_header"], "the address of a client is that of its connection"),
    ("httpd_design_handlers", &["_view"], "handlers are built in"),
    ("ioq", &["concurrency", "ratio"], "queues of the disk are bounded by `[settee]`"),
    ("ioq.bypass", &["os_process", "read", "write", "view_update", "shard_sync", "compaction"], "queues of the disk are bounded by `[settee]`"),
    ("chttpd_auth", &["password_scheme"], "new passwords are hashed with PBKDF2"),
    ("chttpd_auth_cache", &["max_lifetime", "max_objects", "max_size"], "`[chttpd_auth] auth_cache_size` bounds the cache"),
    ("mem3", &["nodes_db", "shards_db", "shard_cache_size", "sync_concurrency", "replicate_purges"], "`_nodes` and `_dbs` have their names"),
    ("fabric", &[
        "all_docs_concurrency", "changes_duration", "shard_timeout_factor", "shard_timeout_min_msec",
        "uuid_prefix_len", "request_timeout", "all_docs_timeout", "attachments_timeout", "view_timeout",
        "view_permsg_timeout", "partition_view_timeout", "search_timeout", "search_permsg_timeout",
        "nouveau_timeout", "nouveau_permsg_timeout", "all_docs_view_permsg_timeout", "serialize_worker_startup",
    ], "time limits between nodes are `docs/operations.md`'s"),
    ("rexi", &[
        "buffer_count", "stream_limit", "shard_split_timeout_msec", "shard_split_topoff_batch_size",
        "use_kill_all",
    ], "time limits between nodes are `docs/operations.md`'s"),
    ("global_changes", &["max_event_delay", "max_write_delay", "update_db"], "`_db_updates` needs no database"),
    ("view_updater", &[
        "min_writer_items", "min_writer_size", "queue_memory_cap", "queue_item_cap", "gc_interval_docs",
    ], "a build's batches follow the size of its rows"),
    ("ddoc_cache", &["max_size", "refresh_timeout"], "design documents are kept by the coordinator"),
    ("native_query_servers", &["enable_erlang_query_server"], "functions in Erlang are not run"),
    ("query_server_config", &[
        "commit_freq", "os_process_limit", "os_process_idle_limit", "os_process_soft_limit",
        "group_info_timeout", "db_tag",
    ], "runtimes of JavaScript are bounded by `docs/operations.md`'s limits"),
    ("query_server_config", &[
        "reduce_limit_threshold", "reduce_limit_ratio",
    ], "as CouchDB's defaults: 5000 bytes, and twice what was reduced"),
    ("quickjs", &["memory_limit_bytes"], "runtimes of JavaScript are bounded by `docs/operations.md`'s limits"),
    ("mango", &["index_all_disabled", "default_limit", "index_scan_warning_threshold"], "as CouchDB's defaults: 25 documents, a warning above ten documents read for each result"),
    ("indexers", &["couch_mrview"], "all kinds of indexes are built in"),
    ("replicator", &[
        "startup_jitter", "request_timeout", "socket_options", "valid_socket_options",
        "valid_endpoint_protocols_log", "valid_proxy_protocols_log", "verify_ssl_certificates_log",
        "password", "ssl_certificate_max_depth", "max_document_id_length", "missing_doc_retry_msec",
        "cluster_start_period", "cluster_quiet_period", "auth_plugins", "session_refresh_interval_sec",
        "usage_coeff", "priority_coeff", "stats_update_interval_sec",
    ], "`docs/compatibility.md`, `[replicator]`"),
    ("replicator", &["connect_to"], "the system's name resolution says where a host is"),
    ("replicator", &["cacert_reload_interval_hours"], "authorities are read when a replication starts"),
    ("replicator.shares", &["_replicator"], "turns are given in the order of asking"),
    ("log", &[
        "max_message_size", "strip_last_msg", "filter_fields", "writer", "file", "write_buffer",
        "write_delay", "syslog_host", "syslog_port", "syslog_appid", "syslog_facility",
        "syslog_enterprise_number", "report_level",
    ], "the log goes to standard error, a line for each event"),
    ("stats", &["interval"], "statistics are counted when they happen"),
    ("smoosh", &[
        "db_channels", "view_channels", "state_dir", "compaction_log_level", "persist",
    ], "compaction is `[settee] auto_compaction`"),
    ("smoosh.ratio_dbs", &["priority"], "compaction is `[settee] auto_compaction`"),
    ("smoosh.slack_dbs", &["priority"], "compaction is `[settee] auto_compaction`"),
    ("smoosh.ratio_views", &["priority", "min_priority", "min_size"], "views are compacted with their shard"),
    ("smoosh.slack_views", &["priority", "min_priority", "min_size"], "views are compacted with their shard"),
    ("dreyfus", &["name", "retry_limit", "limit", "limit_partitions", "max_limit", "max_limit_partitions"], "search is built in; its limits are `docs/search.md`'s"),
    ("nouveau", &["url", "ssl_key_file", "ssl_cert_file", "ssl_password", "ssl_cacert_file", "ssl_verify"], "indexes with types are built in: no service is asked"),
    ("reshard", &[
        "max_jobs", "max_history", "max_retries", "retry_interval_sec", "delete_source",
        "update_shard_map_timeout_sec", "source_close_timeout_sec", "require_node_param",
        "require_range_param", "index_max_retries", "index_retry_interval_sec",
    ], "splits have limits of their own"),
    ("prometheus", &["additional_port", "bind_address", "port", "interval"], "metrics are at `/_node/_local/_prometheus` of the only port"),
    ("view_upgrade", &["compact_on_collator_upgrade", "commit_on_header_upgrade"], "indexes of other collations are built anew"),
    ("custodian", &["use_cluster_n_as_expected_n"], "`_membership` and `_cluster` tell of replicas"),
    ("disk_monitor", &[
        "enable", "background_view_indexing_threshold", "interactive_view_indexing_threshold",
        "interactive_database_writes_threshold",
    ], "`[settee] disk_reserve_mb` keeps room free"),
    ("couch_passwords_cache", &["max_objects", "max_idle", "enable"], "`[chttpd_auth] auth_cache_size` bounds the cache"),
    ("couch_scanner", &[
        "interval_sec", "min_penalty_sec", "max_penalty_sec", "heal_threshold_sec", "db_rate_limit",
        "shard_rate_limit", "doc_rate_limit",
    ], "there is no scanner"),
    ("off_heap_mqd", &[
        "rexi_server", "couch_log_server", "couch_server", "couch_event_server", "ddoc_cache_lru",
        "mem3_shards", "nouveau_index_manager", "dreyfus_index_manager",
    ], "there are no queues of this kind"),
    ("couch_auto_purge_plugin", &[
        "min_batch_size", "max_batch_size", "deleted_document_ttl", "log_level", "dry_run",
    ], "`_auto_purge` of each database, and `[settee] tombstone_days`"),
    ("config", &["auto_reload_secs"], "`POST /_node/{node}/_config/_reload` reads the files again"),
    ("vendor", &["name"], "the name is settee's"),
];

/// Sections whose every key has no effect, because nothing of their kind runs.
const SECTIONS: &[(&str, &str)] = &[
    ("couch_scanner", "there is no scanner"),
    ("couch_quickjs_scanner", "there is no scanner"),
    ("nouveau_index_upgrader", "there is no scanner"),
    ("feature_flags", "every database of a user may have partitions"),
    ("hibernate_after", "there are no processes of this kind"),
];

/// Why an option of CouchDB has no effect; `None` where it has one, or is none of CouchDB's.
pub fn reason(section: &str, key: &str) -> Option<&'static str> {
    let row = FOREIGN.iter().find(|(of, keys, _)| *of == section && keys.contains(&key));
    let by_section = || SECTIONS.iter().find(|(prefix, _)| section.starts_with(prefix)).map(|(_, reason)| *reason);
    row.map(|(_, _, reason)| *reason).or_else(by_section)
}

#[cfg(test)]
mod tests {
    use super::{FOREIGN, reason};
    use crate::config::schema;

    #[test]
    fn an_option_has_an_effect_or_a_reason_why_not() {
        for (section, keys, why) in FOREIGN {
            for key in *keys {
                assert!(!schema::is_known(section, key), "[{section}] {key}");
                assert!(!why.is_empty());
            }
        }
        assert!(reason("couchdb", "max_dbs_open").is_some() && reason("couchdb", "max_document_size").is_none());
        assert!(reason("couch_scanner_plugin_find", "debug").is_some() && reason("chttpd", "mistyped").is_none());
    }

    #[test]
    fn every_option_of_couchdb_has_an_effect_or_a_reason_why_not() {
        let mut section = "";
        let mut missing = Vec::new();
        let names = include_str!("couchdb_options.txt").lines().filter(|line| !line.starts_with('#'));
        for word in names.flat_map(str::split_whitespace) {
            match word.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
                Some(name) => section = name,
                None if schema::is_known(section, word) || reason(section, word).is_some() => {}
                None => missing.push(format!("[{section}] {word}")),
            }
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn the_page_on_compatibility_lists_them() {
        let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
        for (section, keys, why) in FOREIGN {
            let named = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let named = format!("`[{section}]` {named}");
            match rows.iter_mut().find(|(of, _)| of == why) {
                Some((_, of_reason)) => of_reason.push(named),
                None => rows.push((why, vec![named])),
            }
        }
        let rows: String = rows.iter().map(|(why, named)| format!("| {} | {why} |\n", named.join("; "))).collect();
        let page = include_str!("../../docs/compatibility.md");
        let table = page.split("| options | why they have no effect |\n|---|---|\n").nth(1).expect("a table");
        assert_eq!(table.split("\n\n").next().map(|t| format!("{t}\n")), Some(rows), "docs/compatibility.md");
    }
}
