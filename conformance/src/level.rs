//! Levels: what a server may claim. A case counts for the level of its section, unless it names one itself.
//!
//! `levels.toml` beside the cases lists, in order, `[[level]]` tables with a `name`, a sentence `about`, and the
//! `chapters`, `specs` (sections) and `cases` that belong to it; the first that fits has the case.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::report::Row;
use crate::transcript::Case;

/// One level.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Its name, as badges show it.
    pub name: String,
    /// Who needs it.
    pub about: String,
    /// Beginnings of case names (`chapter/name`).
    #[serde(default)]
    pub cases: Vec<String>,
    /// Sections of the specification.
    #[serde(default)]
    pub specs: Vec<String>,
    /// Chapters.
    #[serde(default)]
    pub chapters: Vec<String>,
}

/// All levels in the order in which they are tried.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// The levels.
    #[serde(default)]
    pub level: Vec<Level>,
}

/// Whether an entry of a table means a case: it is the case's name, or its chapter with a `/` behind.
pub(crate) fn is_named(entry: &str, case: &str) -> bool {
    entry == case || entry.ends_with('/') && case.starts_with(entry)
}

impl Levels {
    /// Reads the text of `levels.toml`.
    ///
    /// # Errors
    /// When it is no such table.
    pub fn read(text: &str) -> Result<Levels, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// The level of a case; empty when none fits.
    pub fn of(&self, case: &Case) -> String {
        if let Some(own) = &case.level {
            return own.clone();
        }
        let by_name = self.level.iter().find(|l| l.cases.iter().any(|c| is_named(c, &case.id)));
        let by_spec = || self.level.iter().find(|l| l.specs.contains(&case.spec));
        let by_chapter = || self.level.iter().find(|l| l.chapters.contains(&case.chapter));
        by_name.or_else(by_spec).or_else(by_chapter).map(|l| l.name.clone()).unwrap_or_default()
    }

    /// The rows of each level, in the order of the levels.
    pub fn split<'r>(&self, rows: &'r [Row]) -> Vec<(&Level, Vec<&'r Row>)> {
        let mut of: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        rows.iter().for_each(|row| of.entry(&row.level).or_default().push(row));
        self.level.iter().filter_map(|l| of.remove(l.name.as_str()).map(|rows| (l, rows))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Levels;
    use crate::transcript::load;

    #[test]
    fn every_case_of_the_suite_has_a_level_and_every_level_has_cases() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("levels.toml")).expect("a file");
        let levels = Levels::read(&text).expect("levels");
        let cases = load(&root.join("cases")).expect("cases");
        let names: Vec<&str> = levels.level.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["core", "query", "cluster", "admin"]);
        for case in &cases {
            let level = levels.of(case);
            assert!(names.contains(&level.as_str()), "{} ({}) has level {level:?}", case.id, case.spec);
        }
        for name in names {
            assert!(cases.iter().filter(|c| levels.of(c) == name).count() > 10, "{name}");
        }
    }
}
