//! Where cases, profiles and tables come from: packed into the program, or a folder that the user names.

use std::path::PathBuf;

use crate::diff::known::Known;
use crate::json::Value;
use crate::level::Levels;
use crate::profile::Profile;
use crate::rows::Rows;
use crate::transcript::{self, Case};

mod packed {
    include!(concat!(env!("OUT_DIR"), "/packed.rs"));
}

/// The source of a run.
#[derive(Clone, Debug)]
pub enum Suite {
    /// What was packed when the program was built.
    Packed,
    /// A folder of chapters; profiles and tables stand beside it.
    Folder(PathBuf),
}

impl Suite {
    /// All cases, in the order of their names.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn cases(&self) -> Result<Vec<Case>, String> {
        let Suite::Packed = self else {
            let Suite::Folder(dir) = self else { return Ok(Vec::new()) };
            return transcript::load(dir);
        };
        let mut cases = Vec::new();
        for (path, text) in packed::FILES {
            let Some((chapter, file)) = path.strip_prefix("cases/").and_then(|rest| rest.split_once('/')) else {
                continue;
            };
            let name = file.strip_suffix(".json").unwrap_or(file);
            let told = |e: String| format!("{path}: {e}");
            let value = Value::parse(text.as_bytes()).map_err(told)?;
            cases.push(Case::read(chapter, name, &value).map_err(told)?);
        }
        Ok(cases)
    }

    /// A profile: the path of a file, or the name of one that comes with the suite.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn profile(&self, name: &str) -> Result<Profile, String> {
        let text = self.text("profiles", name)?;
        Profile::read(&text).map_err(|e| format!("profile {name}: {e}"))
    }

    /// A list of known differences, named as a profile.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn known(&self, name: &str) -> Result<Known, String> {
        let text = self.text("differences", name)?;
        Known::read(&text).map_err(|e| format!("differences {name}: {e}"))
    }

    /// The levels of `levels.toml`; none where there is no such file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn levels(&self) -> Result<Levels, String> {
        match self.table("levels.toml") {
            Some(text) => Levels::read(&text).map_err(|e| format!("levels.toml: {e}")),
            None => Ok(Levels::default()),
        }
    }

    /// The rows of the specification, `rows.toml`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn rows(&self) -> Result<Rows, String> {
        let text = self.table("rows.toml").ok_or("rows.toml: there is none")?;
        Rows::read(&text).map_err(|e| format!("rows.toml: {e}"))
    }

    fn text(&self, folder: &str, name: &str) -> Result<String, String> {
        let is_file = name.contains(['/', '\\', '.']) && std::path::Path::new(name).is_file();
        if is_file {
            return std::fs::read_to_string(name).map_err(|e| format!("{name}: {e}"));
        }
        let path = format!("{folder}/{name}.toml");
        self.table(&path).ok_or_else(|| format!("{name} is neither a file nor one of {folder}: {}", self.named(folder)))
    }

    fn table(&self, path: &str) -> Option<String> {
        match self {
            Suite::Packed => packed::FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned()),
            Suite::Folder(dir) => std::fs::read_to_string(dir.join("..").join(path)).ok(),
        }
    }

    fn named(&self, folder: &str) -> String {
        let prefix = format!("{folder}/");
        let names = packed::FILES.iter().filter_map(|(name, _)| name.strip_prefix(&prefix)?.strip_suffix(".toml"));
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Suite;
    use crate::home;

    #[test]
    fn the_packed_cases_are_those_of_the_folder() {
        let packed = Suite::Packed.cases().expect("cases");
        let folder = Suite::Folder(home().join("cases"));
        let read = folder.cases().expect("cases");
        assert_eq!(packed.len(), read.len());
        assert!(packed.iter().zip(&read).all(|(a, b)| a.id == b.id && a.steps.len() == b.steps.len()));
        for suite in [Suite::Packed, folder] {
            assert_eq!(suite.profile("couchdb-3.5").expect("a profile").product, "couchdb");
            assert!(!suite.levels().expect("levels").level.is_empty());
            assert!(suite.rows().is_ok());
            assert!(suite.profile("nobody").is_err_and(|e| e.contains("couchdb-3.5")));
        }
    }

    #[test]
    fn a_profile_may_be_any_file() {
        let path = home().join("profiles/couchdb-3.5.toml");
        assert_eq!(Suite::Packed.profile(&path.display().to_string()).expect("a profile").product, "couchdb");
    }
}
