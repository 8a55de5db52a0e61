//! What is known about one product: the cases that it fails, each with the reason.
//!
//! A profile turns an expected failure into a skip and reports a listed case that passes, so that the list stays true.

use std::collections::BTreeMap;
use std::path::Path;

use crate::json::Value;

/// A product's expected failures.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The product's name, empty without a profile.
    pub product: String,
    /// Case (`chapter/name`) and why it is expected to fail.
    pub expected: BTreeMap<String, String>,
}

impl Profile {
    /// Reads `{product, about, expected: [{reason, cases: [..]}]}`.
    pub fn read(value: &Value) -> Result<Profile, String> {
        let product = value.get("product").and_then(Value::as_str).ok_or("no product")?.to_owned();
        let mut expected = BTreeMap::new();
        for group in value.get("expected").and_then(Value::as_array).ok_or("no expected")? {
            let reason = group.get("reason").and_then(Value::as_str).filter(|r| !r.is_empty());
            let reason = reason.ok_or("a group without a reason")?;
            for case in group.get("cases").and_then(Value::as_array).ok_or("a group without cases")? {
                let id = case.as_str().ok_or("a case that is no string")?;
                if expected.insert(id.to_owned(), reason.to_owned()).is_some() {
                    return Err(format!("{id} is listed twice"));
                }
            }
        }
        Ok(Profile { product, expected })
    }

    /// Reads the profile `name` (a file name without `.json`) in `dir`.
    pub fn load(dir: &Path, name: &str) -> Result<Profile, String> {
        let path = dir.join(format!("{name}.json"));
        let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Value::parse(&text).and_then(|v| Profile::read(&v)).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Entries that name no case of `known`.
    pub fn strangers<'a>(&'a self, known: &[&str]) -> Vec<&'a str> {
        self.expected.keys().map(String::as_str).filter(|id| !known.contains(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Profile;
    use crate::json::Value;
    use crate::transcript::load;

    fn read(text: &str) -> Result<Profile, String> {
        Profile::read(&Value::parse(text.as_bytes()).expect("JSON"))
    }

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
    fn groups_are_read_and_checked() {
        let profile = read(r#"{"product":"p","expected":[{"reason":"r","cases":["a/b","a/c"]}]}"#).expect("a profile");
        assert_eq!(profile.expected["a/c"], "r");
        assert_eq!(profile.strangers(&["a/b"]), ["a/c"]);
        for bad in [
            r#"{"expected":[]}"#,
            r#"{"product":"p"}"#,
            r#"{"product":"p","expected":[{"cases":["a"]}]}"#,
            r#"{"product":"p","expected":[{"reason":"","cases":["a"]}]}"#,
            r#"{"product":"p","expected":[{"reason":"r","cases":["a","a"]}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
