//! Configuration files of CouchDB as a configuration file of settee: what settee knows is taken over, what it does not
//! know or would refuse is left out and told. Pure.

use crate::config::{Sections, ini, schema};

/// A configuration file for settee, and what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The text of the file.
    pub text: String,
    /// How many options it sets.
    pub kept: usize,
    /// `[section] key` and the reason, for each option that was left out. Values are never told: some are secrets.
    pub left_out: Vec<(String, String)>,
}

/// Options that another part of settee stands for. A key of `*` is every key of the section.
const REPLACED: &[(&str, &str, &str)] = &[
    ("couchdb", "uuid", "every server has its own identity; this one would be taken for the old one"),
    ("couchdb", "database_dir", "the flag --data names the directory"),
    ("couchdb", "view_index_dir", "the flag --data names the directory"),
    ("couchdb", "index_dir", "the flag --data names the directory"),
    ("couchdb", "attachment_stream_buffer_size", "settee sizes its buffers itself"),
    ("couchdb", "max_dbs_open", "settee opens at most 64 files, whatever the number of databases"),
    ("couchdb", "file_compression", "store files are not compressed by an option"),
    ("couchdb", "delayed_commits", "every write is on disk before it is answered"),
    ("log", "file", "lines go to standard error"),
    ("log", "writer", "lines go to standard error"),
    ("cluster", "seedlist", "[cluster] seeds has the form name@host=host:port"),
    ("admin", "*", "not a section of CouchDB"),
    ("daemons", "*", "there are no daemons to choose"),
    ("compactions", "*", "[settee] auto_compaction and the sections smoosh.* stand for it"),
    ("compaction_daemon", "*", "[settee] auto_compaction and the sections smoosh.* stand for it"),
    ("native_query_servers", "*", "JavaScript is the only language of functions"),
    ("query_servers", "*", "settee runs JavaScript in its own process"),
    ("ioq", "*", "settee schedules its disk operations itself"),
    ("ken", "*", "[settee] autoupdate stands for it"),
    ("dreyfus", "*", "full-text search is part of the program"),
    ("view_compaction", "*", "views are compacted with their store files"),
    ("vendor", "*", "the vendor is settee"),
];

/// Translates files, given in the order in which CouchDB reads them: later ones win.
pub fn translate(texts: &[String]) -> Translation {
    let mut merged = Sections::new();
    for text in texts {
        for (section, keys) in ini::settings(text) {
            let known = merged.entry(section).or_default();
            for (key, value) in keys {
                match value.is_empty() {
                    true => known.remove(&key),
                    false => known.insert(key, value),
                };
            }
        }
    }
    let mut out = Translation::default();
    for (section, keys) in &merged {
        let mut kept = Vec::new();
        for (key, value) in keys {
            match reason(section, key, value) {
                Some(reason) => out.left_out.push((format!("[{section}] {key}"), reason)),
                None => kept.push(format!("{key} = {value}\n")),
            }
        }
        if !kept.is_empty() {
            out.kept += kept.len();
            let gap = if out.text.is_empty() { "" } else { "\n" };
            out.text.push_str(&format!("{gap}[{section}]\n{}", kept.concat()));
        }
    }
    out
}

/// Why an option is left out.
fn reason(section: &str, key: &str, value: &str) -> Option<String> {
    let replaced = REPLACED.iter().find(|(of, name, _)| *of == section && (*name == "*" || *name == key));
    if let Some((_, _, why)) = replaced {
        return Some((*why).to_owned());
    }
    if !schema::is_known(section, key) {
        return Some("settee does not know it".to_owned());
    }
    // What comes before the colon repeats the value.
    let refused = schema::refusal(section, key, value)?;
    Some(format!("its value is refused: {}", refused.rsplit(": ").next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "; CouchDB\n[couchdb]\nuuid = 85fb71bf700c17267fef77535820e371\nsingle_node = true\n\n\
        [chttpd]\nport = 5985\nbind_address = 0.0.0.0\nrequire_valid_user = yes\n\n[httpd]\nenable_cors = true\n\n\
        [admins]\nadm = -pbkdf2-aa,bb,10\n\n[couch_httpd_auth]\nsecret = 0123\n\n[compactions]\n_default = x\n\n\
        [ioq]\nconcurrency = 10\n\n[nonsense]\na = b\n";

    #[test]
    fn known_options_are_taken_over_and_all_others_are_told() {
        let done = translate(&[LOCAL.to_owned()]);
        let expected = "[admins]\nadm = -pbkdf2-aa,bb,10\n\n[chttpd]\nbind_address = 0.0.0.0\nport = 5985\n\n\
            [couch_httpd_auth]\nsecret = 0123\n\n[couchdb]\nsingle_node = true\n\n[httpd]\nenable_cors = true\n";
        assert_eq!(done.text, expected);
        assert_eq!(done.kept, 6);
        let told: Vec<&str> = done.left_out.iter().map(|(option, _)| option.as_str()).collect();
        let left = ["[chttpd] require_valid_user", "[compactions] _default", "[couchdb] uuid", "[ioq] concurrency"];
        assert_eq!(told, [left.as_slice(), &["[nonsense] a"]].concat());
        assert_eq!(done.left_out[0].1, "its value is refused: expected true or false");
    }

    #[test]
    fn later_files_win_and_an_empty_value_deletes() {
        let done = translate(&[
            "[chttpd]\nport = 1\n[log]\nlevel = debug\n".to_owned(),
            "[chttpd]\nport = 2\n[log]\nlevel =\n".to_owned(),
        ]);
        assert_eq!(done.text, "[chttpd]\nport = 2\n");
    }
}
