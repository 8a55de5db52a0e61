//! Differences between two servers that are known: each with patterns of what is asked and answered, and a reason.

use std::path::Path;

use regex_lite::Regex;
use serde::Deserialize;

/// One answer of two servers to the same request, as far as they differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The number of the step.
    pub step: usize,
    /// Method and target, with variables.
    pub action: String,
    /// What differs, in words.
    pub text: String,
    /// Status and body of the first server.
    pub first: String,
    /// Status and body of the second server.
    pub second: String,
}

/// A list of known differences.
#[derive(Debug, Default)]
pub struct Known {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    reason: String,
    action: Option<Regex>,
    difference: Option<Regex>,
    first: Option<Regex>,
    second: Option<Regex>,
    ends: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    known: Vec<WrittenRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    reason: String,
    action: Option<String>,
    difference: Option<String>,
    first: Option<String>,
    second: Option<String>,
    #[serde(default)]
    ends: bool,
}

impl Known {
    /// Reads groups `[[known]]` of a `reason` and patterns, all of which must be found: `action` (method and target),
    /// `difference` (its text), `first` and `second` (status and body). `ends`: what follows in the conversation does
    /// not count either, because the two servers hold other data from there on.
    ///
    /// # Errors
    /// When the text is no such list, or a pattern is no regular expression.
    pub fn read(text: &str) -> Result<Known, String> {
        let written: Written = toml::from_str(text).map_err(|e| e.to_string())?;
        let pattern = |text: Option<String>| text.map(|t| Regex::new(&t).map_err(|e| format!("{t}: {e}"))).transpose();
        let mut rules = Vec::new();
        for rule in written.known {
            if rule.action.is_none() && rule.difference.is_none() && rule.first.is_none() && rule.second.is_none() {
                return Err(format!("{:?} has no pattern", rule.reason));
            }
            rules.push(Rule {
                reason: rule.reason,
                action: pattern(rule.action)?,
                difference: pattern(rule.difference)?,
                first: pattern(rule.first)?,
                second: pattern(rule.second)?,
                ends: rule.ends,
            });
        }
        Ok(Known { rules })
    }

    /// Reads the list in a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(path: &Path) -> Result<Known, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Known::read(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The reason of the first rule that a difference meets, and whether it ends the comparison.
    pub fn reason(&self, found: &Difference) -> Option<(&str, bool)> {
        let fits = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|p| p.is_match(text));
        let met = |rule: &&Rule| {
            fits(&rule.action, &found.action)
                && fits(&rule.difference, &found.text)
                && fits(&rule.first, &found.first)
                && fits(&rule.second, &found.second)
        };
        self.rules.iter().find(met).map(|rule| (rule.reason.as_str(), rule.ends))
    }
}

#[cfg(test)]
mod tests {
    use super::{Difference, Known};

    #[test]
    fn a_rule_is_met_when_all_of_its_patterns_are_found() {
        let known =
            Known::read("[[known]]\nreason = \"r\"\naction = \"^GET\"\nfirst = \"^500\"\nends = true").expect("a list");
        let found = |action: &str, first: &str| Difference {
            step: 0,
            action: action.to_owned(),
            text: "t".to_owned(),
            first: first.to_owned(),
            second: "400 {}".to_owned(),
        };
        assert_eq!(known.reason(&found("GET /", "500 {}")), Some(("r", true)));
        assert_eq!(known.reason(&found("PUT /", "500 {}")), None);
        assert_eq!(known.reason(&found("GET /", "400 {}")), None);
        assert!(Known::read("[[known]]\nreason = \"r\"").is_err());
        assert!(Known::read("[[known]]\nreason = \"r\"\nfirst = \"(\"").is_err());
    }
}
