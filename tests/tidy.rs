//! House rules that a machine can check: layer order, seams, sizes, orphans, words that must not be committed.
//!
//! Each rule is one test and lists every breach, with the rule's reason, so that one run shows all that is to mend.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers from top to bottom: a module may use those after it, never one before it (docs/architecture.md).
const LAYERS: &[&str] = &[
    "node",
    "http",
    "replicate",
    "auth",
    "coordinator",
    "cluster",
    "index",
    "shard",
    "storage",
    "script",
    "document",
    "config",
    "wire",
    "world",
];
/// Crates of their own, which use nothing of settee: `document` stands in the layers all the same.
const CRATES: &[&str] = &["src/document/", "src/search/"];
/// Modules that every layer may use.
const COMMON: &[&str] = &["limits", "observe"];

/// The rooms of `src/coordinator` from top to bottom, with the same rule (docs/architecture.md).
const ROOMS: &[&str] =
    &["node", "rebalance", "backup", "anti_entropy", "consensus", "changes", "write", "read", "replica", "topology"];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 60;
const COLUMNS_MAX: usize = 120;

/// What reaches around the `world` seam: real time, randomness, network, disk, threads and tasks.
const AROUND_THE_SEAM: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "tokio::spawn",
    "tokio::time",
    "tokio::fs",
    "tokio::net",
    "tokio::task",
    "JoinSet",
    "spawn_blocking",
    "rand::rng(",
    "thread_rng",
    "thread_local!",
    "static mut",
    "lazy_static",
    "OnceLock<",
    "axum::serve",
];

/// A source file: its path from the root, its lines, and for each line whether it belongs to tests.
struct Source {
    path: String,
    lines: Vec<String>,
    is_test: Vec<bool>,
}

impl Source {
    /// The lines outside tests with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().zip(&self.is_test).enumerate();
        lines.filter(|(_, (_, is_test))| !**is_test).map(|(n, (line, _))| (n + 1, line.as_str()))
    }
}

/// Which lines belong to items under `#[cfg(test)]`: each ends where rustfmt puts the closing bracket of its item.
fn test_lines(lines: &[String]) -> Vec<bool> {
    let mut marks = vec![false; lines.len()];
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut n = 0;
    while n < lines.len() {
        if !lines[n].trim_start().starts_with("#[cfg(test)]") {
            n += 1;
            continue;
        }
        let at = indent(&lines[n]);
        let is_last = |line: &String| {
            let text = line.trim_end();
            let ends = text.ends_with(';') || text.ends_with('}') || text.ends_with("},") || text.ends_with(',');
            indent(line) == at && ends && !text.trim_start().starts_with("#[")
        };
        let last = (n..lines.len()).find(|l| is_last(&lines[*l])).unwrap_or(lines.len() - 1);
        marks[n..=last].fill(true);
        n = last + 1;
    }
    marks
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut entries: Vec<_> = entries.map(|e| e.expect("a readable directory").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "node_modules", ".git"].contains(&name.as_str()) {
            walk(&path, out);
        } else if path.is_file() {
            out.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/")
}

fn sources(dirs: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for dir in dirs {
        walk(&root().join(dir), &mut paths);
    }
    let rust = paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs"));
    rust.map(|p| {
        let path = relative(&p);
        let lines: Vec<String> = fs::read_to_string(&p).expect("UTF-8 source").lines().map(str::to_owned).collect();
        let is_test = path.contains("/tests/")
            || path.starts_with("tests/")
            || ["tests.rs", "suite.rs"].iter().any(|t| path.ends_with(t));
        let is_test = if is_test { vec![true; lines.len()] } else { test_lines(&lines) };
        Source { path, lines, is_test }
    })
    .collect()
}

fn report(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}\n  {}", breaches.join("\n  "));
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The first path segment after each `crate::` of a line.
fn crate_uses(line: &str) -> Vec<String> {
    let after = |p: &str| p.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut out: Vec<String> = line.match_indices("crate::").map(|(at, m)| after(&line[at + m.len()..])).collect();
    // The codec lies in the crate below, and belongs to `wire`; limits are common.
    let shown = ["settee_document::codec;", "settee_document::limits::"];
    if line.contains("settee_document::") && !shown.iter().any(|shown| line.contains(shown)) {
        out.push("document".to_owned());
    }
    out
}

#[test]
fn no_layer_uses_one_above_it() {
    let rank = |module: &str| LAYERS.iter().position(|l| *l == module);
    let mut breaches = Vec::new();
    for source in sources(&["src"]) {
        let own = source.path["src/".len()..].split(['/', '.']).next().unwrap_or_default().to_owned();
        if ["lib", "main", "program", "cli", "build"].contains(&own.as_str()) || COMMON.contains(&own.as_str()) {
            continue;
        }
        if CRATES.iter().any(|folder| source.path.starts_with(folder)) {
            let above = source.code().filter(|(_, line)| !is_comment(line) && line.contains("settee::"));
            breaches.extend(above.map(|(n, _)| format!("{}:{n}: a crate below settee uses settee", source.path)));
            continue;
        }
        let Some(own_rank) = rank(&own) else {
            breaches.push(format!("{}: module `{own}` has no place in LAYERS", source.path));
            continue;
        };
        for (n, line) in source.code().filter(|(_, l)| !is_comment(l)) {
            for used in crate_uses(line) {
                if rank(&used).is_some_and(|r| r < own_rank) {
                    breaches.push(format!("{}:{n}: {own} uses {used}, a layer above it", source.path));
                }
            }
        }
    }
    report("layers: lower ones get what they need from above as traits or values", &breaches);
}

/// What a line names behind `crate::coordinator::`; of a list in braces, which rustfmt writes one or more to a line,
/// its members.
fn room_uses(line: &str) -> Vec<&str> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').count();
    let mut out = Vec::new();
    for (at, prefix) in line.match_indices("crate::coordinator::") {
        let rest = &line[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => out.extend(list.split(&[',', '}'][..]).map(|item| item.trim()).map(|i| &i[..name(i)])),
            None => out.push(&rest[..name(rest)]),
        }
    }
    out
}

/// The room of each name that `src/coordinator/mod.rs` shows again.
fn shown_again() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("src/coordinator/mod.rs")).expect("the coordinator's head");
    let mut out = BTreeMap::new();
    for item in text.split("pub use ").skip(1) {
        let item = item.split(';').next().unwrap_or_default();
        let (room, names) = item.split_once("::").unwrap_or((item, ""));
        let names = names.rsplit("::").next().unwrap_or_default();
        for name in names.trim_matches(&['{', '}'][..]).split(',') {
            out.insert(name.trim().trim_matches(&['{', '}'][..]).to_owned(), room.to_owned());
        }
    }
    out
}

#[test]
fn no_room_of_the_coordinator_uses_one_above_it() {
    let rank = |room: &str| ROOMS.iter().position(|r| *r == room);
    let shown = shown_again();
    let mut breaches = Vec::new();
    for source in sources(&["src/coordinator"]) {
        let own = source.path["src/coordinator/".len()..].split('/').next().unwrap_or_default().to_owned();
        if ["mod.rs", "tests"].contains(&own.as_str()) {
            continue;
        }
        let Some(own_rank) = rank(&own) else {
            breaches.push(format!("{}: room `{own}` has no place in ROOMS", source.path));
            continue;
        };
        for (n, line) in source.code().filter(|(_, l)| !is_comment(l)) {
            for used in room_uses(line) {
                let room = rank(used).or_else(|| shown.get(used).and_then(|room| rank(room)));
                if room.is_some_and(|r| r < own_rank) {
                    breaches.push(format!("{}:{n}: {own} uses {used}, of a room above it", source.path));
                }
            }
        }
    }
    report("rooms: what two rooms share lies in the lower one", &breaches);
}

/// Types of the coordinator whose methods are still in several rooms.
const SPREAD: &[&str] = &["Coordinator"];
const METHODS_MAX: usize = 40;
/// From how many methods on a type is of one room: smaller types of several rooms may have the same name.
const METHODS_OF_ONE_ROOM: usize = 12;

/// The room of a file of the coordinator.
fn room(path: &str) -> Option<&str> {
    let (room, _) = path.strip_prefix("src/coordinator/")?.split_once('/')?;
    ROOMS.contains(&room).then_some(room)
}

#[test]
fn a_type_of_the_coordinator_is_of_one_room_and_has_few_methods() {
    let mut methods: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    let sources = sources(&["src/coordinator"]);
    for source in &sources {
        let Some(room) = room(&source.path) else { continue };
        let mut of = None;
        for (_, line) in source.code() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.trim_start_matches(|c: char| c != ' ').trim_start();
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                of = (!line.contains(" for ")).then_some(name);
            } else if line.starts_with('}') {
                of = None;
            } else if let Some(of) = &of
                && line.starts_with("    ")
                && !line.starts_with("     ")
                && line.contains(" fn ")
                && !is_comment(line)
            {
                *methods.entry(of.clone()).or_default().entry(room).or_default() += 1;
            }
        }
    }
    let mut breaches = Vec::new();
    for (of, rooms) in methods.iter().filter(|(of, _)| !SPREAD.contains(&of.as_str())) {
        let count: usize = rooms.values().sum();
        if count > METHODS_MAX {
            breaches.push(format!("{of} has {count} methods"));
        }
        if rooms.len() > 1 && count >= METHODS_OF_ONE_ROOM {
            breaches.push(format!("{of} has methods in {:?}", rooms.keys()));
        }
    }
    report("types: what a room does is a type of that room", &breaches);
}

#[test]
fn nothing_reaches_around_the_world_seam() {
    let mut breaches = Vec::new();
    for source in sources(&["src"]) {
        // The program's commands read and write files that their user names.
        let is_program = source.path == "src/program.rs" || source.path.starts_with("src/cli/");
        if source.path.starts_with("src/world/") || is_program || is_build_script(&source) {
            continue;
        }
        // What its thread knows lasts for one call in which nothing waits, so that nothing depends on the thread.
        let is_within_a_call = |word: &str| source.path == "src/document/shared.rs" && word == "thread_local!";
        for (n, line) in source.code().filter(|(_, l)| !is_comment(l)) {
            for word in AROUND_THE_SEAM.iter().filter(|w| line.contains(**w) && !is_within_a_call(w)) {
                breaches.push(format!("{}:{n}: {word}", source.path));
            }
            if line.contains("select! {") && line.contains("tokio") && !source.lines[n].contains("biased") {
                breaches.push(format!("{}:{n}: select! must be biased: its fairness is not seeded", source.path));
            }
        }
    }
    report("seam: time, randomness, network, disk and tasks go through world::Env", &breaches);
}

#[test]
fn files_functions_and_lines_fit_a_reader() {
    let mut breaches = Vec::new();
    for source in sources(&["src", "sim", "conformance/src", "tests"]) {
        if source.lines.len() > FILE_LINES_MAX {
            breaches.push(format!("{}: {} lines, at most {FILE_LINES_MAX}", source.path, source.lines.len()));
        }
        for (n, line) in source.lines.iter().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !line.contains("\"") {
                breaches.push(format!("{}:{}: {columns} columns", source.path, n + 1));
            }
        }
        breaches.extend(long_functions(&source));
    }
    report("sizes: a file is read in one sitting, a function on one screen", &breaches);
}

/// Functions (outside tests) whose body is longer than a screen, found by rustfmt's indentation.
fn long_functions(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (n, line) in source.code() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        let starts = words.contains(&"fn") && !is_comment(line) && !line.trim_end().ends_with(';');
        if open.is_none() && starts {
            open = Some((n, indent, line.trim().to_owned()));
        }
        if let Some((from, at, name)) = &open {
            let closes = indent == *at && (line.trim_start().starts_with('}') || (*from == n && line.ends_with('}')));
            if closes {
                // A table of one-line arms is looked up, not followed.
                let arms = source.lines[*from..n].iter().filter(|line| line.contains(" => ")).count();
                if n - from > FUNCTION_LINES_MAX && arms * 10 < (n - from) * 9 {
                    out.push(format!("{}:{from}: {} lines: {name}", source.path, n - from));
                }
                open = None;
            }
        }
    }
    out
}

#[test]
fn every_module_says_what_it_is() {
    let heads = |s: &Source| s.lines.first().is_some_and(|l| l.starts_with("//!"));
    let breaches: Vec<String> = sources(&["src", "sim", "conformance/src", "tests"])
        .iter()
        .filter(|s| !heads(s))
        .map(|s| s.path.clone())
        .collect();
    report("module heads: the first line of a file is `//!`", &breaches);
}

#[test]
fn no_unfinished_or_unguarded_code() {
    let unfinished = ["todo!(", "unimplemented!(", "FIXME", "XXX", "dbg!(", "#[ignore", "allow(dead_code"];
    let mut breaches = Vec::new();
    for source in sources(&["src", "sim/src", "conformance/src"]) {
        for (n, line) in source.code() {
            for word in unfinished.iter().filter(|w| line.contains(**w)) {
                breaches.push(format!("{}:{n}: {word}", source.path));
            }
            let unguarded = (line.contains(".unwrap()") || line.contains(".expect(")) && !is_comment(line);
            let from = n.saturating_sub(4);
            let excused = source.lines[from..n].iter().any(|l| l.contains("Invariant:"));
            if source.path.starts_with("src/") && unguarded && !excused {
                breaches.push(format!("{}:{n}: unwrap or expect without `// Invariant:`", source.path));
            }
        }
    }
    report("finished: no placeholder stays, no panic without its reason", &breaches);
}

fn is_build_script(source: &Source) -> bool {
    source.path == "src/build.rs" || of_crate(source, "build.rs")
}

/// Whether a file is this part of one of the crates within `src`.
fn of_crate(source: &Source, part: &str) -> bool {
    CRATES.iter().any(|folder| source.path.starts_with(&format!("{folder}{part}")))
}

#[test]
fn every_rust_file_is_part_of_a_crate() {
    let mut breaches = Vec::new();
    for (dir, roots) in
        [("src", ["lib.rs", "main.rs"]), ("sim/src", ["lib.rs", "main.rs"]), ("conformance/src", ["lib.rs", "main.rs"])]
    {
        for source in sources(&[dir]) {
            let within = &source.path[dir.len() + 1..];
            let is_of_crate =
                ["lib.rs", "tests/"].iter().any(|part| of_crate(&source, part)) || is_build_script(&source);
            if roots.contains(&within) || within.starts_with("bin/") || is_of_crate {
                continue;
            }
            let path = Path::new(&source.path);
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let folder = path.parent().unwrap_or(Path::new(""));
            let (name, home) = if stem == "mod" {
                (
                    folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                    folder.parent().unwrap_or(folder),
                )
            } else {
                (stem, folder)
            };
            let parents = [home.join("mod.rs"), home.join("lib.rs"), home.join("main.rs"), home.with_extension("rs")];
            let declared = parents.iter().any(|p| {
                let text = fs::read_to_string(root().join(p)).unwrap_or_default();
                text.lines()
                    .any(|l| l.trim_end().ends_with(&format!("mod {name};")) || l.contains(&format!("{within}\"")))
            });
            if !declared {
                breaches.push(source.path.clone());
            }
        }
    }
    report("orphans: a Rust file that no `mod` names is dead", &breaches);
}

#[test]
fn scripts_and_docs_are_named_somewhere() {
    let mut paths = Vec::new();
    for dir in ["scripts", "docs"] {
        walk(&root().join(dir), &mut paths);
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut all = vec![root().join("README.md"), root().join(".ci/run")];
    for dir in ["docs", "scripts", "tests", "src", "sim", "conformance/src"] {
        walk(&root().join(dir), &mut all);
    }
    for path in all {
        if let Ok(text) = fs::read_to_string(&path) {
            texts.insert(relative(&path), text);
        }
    }
    let mut breaches = Vec::new();
    for path in paths {
        let own = relative(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !texts.iter().any(|(other, text)| *other != own && text.contains(&name)) {
            breaches.push(own);
        }
    }
    report("orphans: a script or page that nothing mentions will not be found", &breaches);
}

/// Words that this project gave up for the field's (docs/glossary.md), as parts of identifiers and in comments.
const RETIRED: &[&str] = &[
    "judge",
    "judged",
    "judges",
    "verdict",
    "heir",
    "heirs",
    "sift",
    "sifted",
    "skim",
    "shelf",
    "poured",
    "ledger",
    "put_back",
    "stands aside",
    "whoever",
    "regardless of who",
    "those who vote",
    "shardcopy",
    "rangecopy",
    "owncopy",
    "remotecopy",
];

/// The words of a line as identifiers and prose have them: `judge_own` has the word `judge`.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric());
    let mut found = line.match_indices(word);
    found.any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next()))
}

#[test]
fn no_retired_word_comes_back() {
    let mut breaches = Vec::new();
    for source in sources(&["src", "sim/src", "conformance/src"]) {
        for (n, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.contains("serde(rename")) {
            let line = line.to_lowercase();
            for word in RETIRED.iter().filter(|word| has_word(&line, word)) {
                breaches.push(format!("{}:{}: {word}", source.path, n + 1));
            }
        }
    }
    report("words: one concept has one word, that of the field (docs/glossary.md)", &breaches);
}

#[test]
fn no_path_of_a_machine_and_no_registry_host() {
    // Put together here, so that this file does not hold the words itself.
    let words = [
        format!("..{}shared", "/"),
        format!("/work{}", "/"),
        format!("registry.{}", "npmjs"),
        format!("crates{}io/", "."),
        format!("pypi{}org", "."),
        format!("deb{}debian.org", "."),
    ];
    let mut paths = Vec::new();
    for dir in ["src", "sim", "conformance", "scripts", "tests", "docs", ".ci", ".cargo"] {
        walk(&root().join(dir), &mut paths);
    }
    paths.extend([root().join("README.md"), root().join("Cargo.toml")]);
    let mut breaches = Vec::new();
    for path in paths {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for word in words.iter().filter(|w| text.contains(w.as_str())) {
            breaches.push(format!("{}: {word}", relative(&path)));
        }
    }
    report("stands alone: nothing committed needs a place outside the repository", &breaches);
}

#[test]
fn pages_name_sources_that_are_there() {
    let mut sources = Vec::new();
    for dir in ["src", "sim", "conformance", "scripts", "tests", "examples"] {
        walk(&root().join(dir), &mut sources);
    }
    let sources: Vec<String> = sources.iter().map(|path| format!("/{}", relative(path))).collect();
    let mut pages = Vec::new();
    walk(&root().join("docs"), &mut pages);
    pages.extend([root().join("README.md"), root().join("conformance/README.md")]);
    let mut breaches = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(page).expect("a page");
        // Between the first backtick and the second there is code, and so on.
        for span in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let is_path = span.ends_with(".rs") && span.contains('/') && !span.contains(['*', '{', ' ', ':']);
            if is_path && !sources.iter().any(|source| source.ends_with(&format!("/{span}"))) {
                breaches.push(format!("{}: {span}", relative(page)));
            }
        }
    }
    report("pages: a source that a page names is there", &breaches);
}

/// The anchor that a heading of a page has, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// What the links of a Markdown text name, but for addresses.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

#[test]
fn links_of_pages_lead_to_files_and_headings() {
    let mut files = Vec::new();
    ["docs", "conformance", "scripts", "sim"].iter().for_each(|dir| walk(&root().join(dir), &mut files));
    files.push(root().join("README.md"));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let (mut breaches, mut count) = (Vec::new(), 0);
    for path in &files {
        let text = fs::read_to_string(path).expect("a readable page");
        for link in links(&text) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            let has_heading = |text: String| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            let leads = target.exists() && (heading.is_empty() || fs::read_to_string(&target).is_ok_and(has_heading));
            if !leads {
                breaches.push(format!("{}: {link}", relative(path)));
            }
        }
    }
    report("Links lead to files and headings.", &breaches);
    assert!(count > 100, "{count}");
}
