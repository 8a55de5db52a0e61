//! What is known about one product: the cases that it fails, each with the reason.
//!
//! A profile turns an expected failure into a skip and reports a listed case that passes, so that the list stays true.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::transcript::Case;

/// A product's expected failures.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The product's name, empty without a profile.
    pub product: String,
    /// Case (`chapter/name`) and why it is expected to fail.
    pub expected: BTreeMap<String, String>,
    /// Headers that are not compared in any case, and why: what a product does differently everywhere is told once.
    pub ignored_headers: Vec<(String, String)>,
}

/// A profile as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    product: String,
    /// The version that it was found with: for readers.
    #[serde(rename = "version")]
    _version: String,
    #[serde(default)]
    everywhere: Vec<Everywhere>,
    #[serde(default)]
    expected: Vec<Group>,
}

/// What is different in every answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Everywhere {
    reason: String,
    ignore_headers: Vec<String>,
}

/// Cases that fail for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    reason: String,
    cases: Vec<String>,
}

impl Profile {
    /// Reads `product`, `version`, the groups `[[expected]]` of `reason` and `cases`, and `[[everywhere]]` of `reason`
    /// and `ignore_headers`.
    pub fn read(text: &str) -> Result<Profile, String> {
        let written: Written = toml::from_str(text).map_err(|e| e.to_string())?;
        let mut expected = BTreeMap::new();
        for group in written.expected {
            if group.reason.is_empty() {
                return Err("a group without a reason".to_owned());
            }
            for id in group.cases {
                if expected.insert(id.clone(), group.reason.clone()).is_some() {
                    return Err(format!("{id} is listed twice"));
                }
            }
        }
        let everywhere = written.everywhere.into_iter();
        let ignored_headers =
            everywhere.flat_map(|all| all.ignore_headers.into_iter().map(move |h| (h, all.reason.clone()))).collect();
        Ok(Profile { product: written.product, expected, ignored_headers })
    }

    /// Reads the profile `name` (a file name without `.toml`) in `dir`.
    pub fn load(dir: &Path, name: &str) -> Result<Profile, String> {
        let path = dir.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Profile::read(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Takes what is different everywhere out of what a case expects.
    pub fn relax(&self, case: &mut Case) {
        for step in &mut case.steps {
            step.expect.ignore_headers.extend(self.ignored_headers.iter().map(|(name, _)| name.clone()));
        }
    }

    /// Entries that name no case of `known`.
    pub fn strangers<'a>(&'a self, known: &[&str]) -> Vec<&'a str> {
        self.expected.keys().map(String::as_str).filter(|id| !known.contains(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Group, Profile, Written};
    use crate::transcript::load;

    #[test]
    fn every_entry_of_every_profile_names_a_case() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cases = load(&root.join("cases")).expect("cases");
        let known: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
        let mut profiles = 0;
        for entry in std::fs::read_dir(root.join("profiles")).expect("a folder of profiles") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let profile = Profile::load(&root.join("profiles"), &name).expect("a readable profile");
            assert_eq!(profile.strangers(&known), Vec::<&str>::new(), "{name}");
            profiles += 1;
        }
        assert!(profiles > 0);
    }

    #[test]
    fn the_page_on_compatibility_has_the_table_of_the_reference_s_profile() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a readable file");
        let profile: Written = toml::from_str(&read("profiles/couchdb-3.5.toml")).expect("a profile");
        let row = |group: &Group| {
            let cases: Vec<String> = group.cases.iter().map(|id| format!("`{id}`")).collect();
            format!("| {} | {} |\n", group.reason, cases.join(", "))
        };
        let rows: String = profile.expected.iter().map(row).collect();
        let page = read("../docs/compatibility.md");
        let section = page.split("## Cases that CouchDB 3.5.0 does not pass").nth(1).expect("a section");
        let table = section.split("|---|---|\n").nth(1).and_then(|t| t.split("\n\n").next()).expect("a table");
        assert_eq!(format!("{table}\n"), rows, "docs/compatibility.md, made from the profile");
    }

    #[test]
    fn groups_are_read_and_checked() {
        let head = "product = \"p\"\nversion = \"1\"\n";
        let group = |rest: &str| Profile::read(&format!("{head}[[expected]]\n{rest}"));
        let profile = group("reason = \"r\"\ncases = [\"a/b\", \"a/c\"]").expect("a profile");
        assert_eq!(profile.expected["a/c"], "r");
        assert_eq!(profile.strangers(&["a/b"]), ["a/c"]);
        assert!(Profile::read("version = \"1\"").is_err());
        for bad in ["cases = [\"a\"]", "reason = \"\"\ncases = [\"a\"]", "reason = \"r\"\ncases = [\"a\", \"a\"]"] {
            assert!(group(bad).is_err(), "{bad}");
        }
    }
}
