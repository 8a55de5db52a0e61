//! `docs/options.md` lists every option that the code reads, and none that it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, out);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            out.push(path);
        }
    }
}

/// Every file of the node's code without its tests, white space made single.
fn code() -> Vec<String> {
    let mut paths = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    let text = |path: PathBuf| {
        let text = fs::read_to_string(path).expect("text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    paths.into_iter().map(text).collect()
}

/// The options that the code names outright: `config.text("section", "key", ..)`, also with the section as a constant,
/// `options::text(config, "key", ..)`, whose section is `chttpd_auth`, and `config.http_u64("key", ..)`, `chttpd`.
fn read_by_code(code: &[String]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for text in code {
        let constants: BTreeMap<&str, &str> = text
            .split("const ")
            .skip(1)
            .filter_map(|rest| {
                let (name, rest) = rest.split_once(": &str = \"")?;
                Some((name, rest.split_once('"')?.0))
            })
            .collect();
        for method in [".get(", ".text(", ".bool(", ".u64(", ".list(", ".shuts("] {
            for (at, _) in text.match_indices(method) {
                if !text[..at].ends_with("config") {
                    continue;
                }
                let mut arguments = text[at + method.len()..].splitn(3, ", ");
                let (section, key) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
                let section = match quoted(section) {
                    Some(section) => Some(section),
                    None => constants.get(section.trim()).map(|section| (*section).to_owned()),
                };
                if let (Some(section), Some(key)) = (section, quoted(key)) {
                    found.insert((section, key));
                }
            }
        }
        for method in ["config.http_get(", "config.http_bool(", "config.http_u64("] {
            for (at, _) in text.match_indices(method) {
                if let Some(key) = quoted(&text[at + method.len()..]) {
                    found.insert(("chttpd".to_owned(), key));
                }
            }
        }
        for function in ["get(", "text(", "bool(", "u64(", "list("] {
            for (at, _) in text.match_indices(&format!("options::{function}")) {
                let mut arguments = text[at..].splitn(3, ", ");
                if let Some(key) = arguments.nth(1).and_then(quoted) {
                    found.insert(("chttpd_auth".to_owned(), key));
                }
            }
        }
    }
    found
}

/// The text of a literal that begins here.
fn quoted(text: &str) -> Option<String> {
    Some(text.trim().strip_prefix('"')?.split_once('"')?.0.to_owned())
}

/// The options of the tables: `[section] key` in the first column, the same section for what follows it.
fn documented() -> BTreeMap<(String, String), usize> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/options.md")).expect("the page");
    let mut found = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `[")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        assert!(cells.len() == 3 && !cells[1].trim().is_empty(), "key, default, meaning: {row}");
        let mut section = String::new();
        for item in cells[0].split('`').skip(1).step_by(2) {
            let key = match item.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
                Some((name, key)) => {
                    section = name.to_owned();
                    key
                }
                None => item,
            };
            *found.entry((section.clone(), key.to_owned())).or_default() += 1;
        }
    }
    found
}

#[test]
fn every_option_is_on_the_page_once_and_every_one_there_is_read() {
    let (code, page) = (code(), documented());
    let read = read_by_code(&code);
    assert!(read.len() > 60 && page.len() > 80, "the search finds too little: {} {}", read.len(), page.len());
    // Kept from start to start, or read as a whole section: no single key stands in the code.
    let whole = [("admins", "NAME"), ("jwt_keys", "family:kid"), ("query_servers", "LANGUAGE"), ("vhosts", "HOST")];
    let missing: Vec<String> = read
        .iter()
        .filter(|option| !page.contains_key(*option))
        .map(|(section, key)| format!("[{section}] {key}"))
        .collect();
    assert!(missing.is_empty(), "read by the code and not in docs/options.md: {missing:?}");
    let unread: Vec<String> = page
        .keys()
        .filter(|(section, key)| {
            let literal = format!("\"{key}\"");
            !whole.contains(&(section.as_str(), key.as_str())) && !code.iter().any(|text| text.contains(&literal))
        })
        .map(|(section, key)| format!("[{section}] {key}"))
        .collect();
    assert!(unread.is_empty(), "in docs/options.md and read by nothing: {unread:?}");
    let twice: Vec<_> = page.iter().filter(|(_, count)| **count > 1).map(|(option, _)| option).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// `log/level=bogus`, `memory_mb=-5`, `require_valid_user=yes` were taken without a word.
#[test]
fn every_option_on_the_page_has_its_values_in_the_schema() {
    use settee::config::schema;
    let names = ["NAME", "family:kid", "LANGUAGE", "HOST"];
    let lacking: Vec<_> = documented().into_keys().filter(|(section, key)| !schema::is_known(section, key)).collect();
    assert!(lacking.is_empty(), "in docs/options.md and not in config/schema.rs: {lacking:?}");
    for (section, key) in documented().into_keys().filter(|(_, key)| !names.contains(&key.as_str())) {
        assert_eq!(schema::refusal(&section, &key, ""), None, "an empty value stands for the default");
    }
}
