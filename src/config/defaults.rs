//! The options of a node with their defaults and meanings, read from the tables of `docs/options.md`: the page that
//! users read is the one list of them. `tests/options.rs` holds it against the code and the schema.

use super::schema;

/// The page, as it was when the program was built.
const PAGE: &str = include_str!("../../docs/options.md");

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDefault {
    /// The section, without brackets.
    pub section: &'static str,
    /// The key; in capitals where any name may stand, as in `[admins]`.
    pub key: &'static str,
    /// What counts while it is unset, as the page has it; `None`: nothing.
    pub default: Option<&'static str>,
    /// Which values it takes.
    pub takes: String,
    /// What it is for, in Markdown. Options of one row of the page share it.
    pub meaning: &'static str,
}

/// All options, in the order of the page.
pub fn all() -> Vec<OptionDefault> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `["));
    rows.flat_map(of_row).collect()
}

/// The options of one row: the defaults stand in their order, the last one for all that follow.
fn of_row(row: &'static str) -> Vec<OptionDefault> {
    let mut cells = row.trim_matches(['|', ' ']).split(" | ");
    let (Some(keys), Some(default), Some(meaning)) = (cells.next(), cells.next(), cells.next()) else {
        return Vec::new();
    };
    let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
    let defaults: Vec<&str> = match keys.len() {
        1 => vec![default],
        count => default.splitn(count, ", ").collect(),
    };
    let mut section = "";
    let mut out = Vec::new();
    for (n, item) in keys.iter().enumerate() {
        let key = match item.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((name, key)) => {
                section = name;
                key
            }
            None => item,
        };
        let default = defaults.get(n).or(defaults.last()).map(|text| text.trim_matches('`'));
        let default = default.filter(|text| !text.starts_with("none"));
        let takes = schema::takes(section, key).unwrap_or_default();
        out.push(OptionDefault { section, key, default, takes, meaning });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn default_of(section: &str, key: &str) -> Option<&'static str> {
        all().iter().find(|option| (option.section, option.key) == (section, key)).and_then(|option| option.default)
    }

    #[test]
    fn rows_of_several_options_are_taken_apart() {
        assert!(all().len() > 100);
        let expected = [
            ("chttpd", "bind_address", Some(limits::BIND_ADDRESS)),
            ("chttpd", "port", Some(limits::PORT)),
            ("chttpd", "require_valid_user_except_for_up", Some("false")),
            ("chttpd_auth", "x_auth_token", Some("X-Auth-CouchDB-*")),
            ("chttpd_auth", "hash_algorithms", Some("sha256, sha")),
            ("cors", "max_age", Some("600")),
            ("admins", "NAME", None),
            ("settee", "snapshot_dir", None),
            ("log", "slow_ms", Some("500")),
        ];
        for (section, key, default) in expected {
            assert_eq!(default_of(section, key), default, "[{section}] {key}");
        }
    }

    /// A default that the option itself would refuse is a slip of the page.
    #[test]
    fn defaults_are_values_that_their_options_take() {
        let texts = |option: &OptionDefault| option.default.map(|text| (option.section, option.key, text));
        let refused: Vec<_> = all()
            .iter()
            .filter_map(texts)
            .filter_map(|(section, key, text)| schema::refusal(section, key, text))
            // Texts that say where the value comes from.
            .filter(|told| !told.contains("that of") && !told.contains("that of HTTP"))
            .collect();
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn numbers_of_the_page_are_those_of_the_limits() {
        let number = |section, key| default_of(section, key).and_then(|text| text.parse::<u64>().ok());
        assert_eq!(number("log", "slow_ms"), Some(limits::SLOW_REQUEST_MS));
        assert_eq!(number("settee", "memory_mb"), Some(limits::MEMORY_MB));
        assert_eq!(number("chttpd_auth", "timeout"), Some(limits::SESSION_TIMEOUT_S));
        assert_eq!(number("uuids", "max_count"), Some(limits::UUIDS_MAX));
    }
}
