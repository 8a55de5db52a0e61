//! Analyzers as Lucene 9 has them, by the names of the reference's second search service.
//!
//! `standard` has no stop words. All others are taken to make the tokens of Lucene 4.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Analyzer, Fields, Spec, UnknownAnalyzer, case, filter, named};
use crate::document::Scoring;

/// The names that are known. `portugese` is spelt as the reference spells it.
const NAMES: [&str; 39] = [
    "arabic",
    "armenian",
    "basque",
    "bulgarian",
    "catalan",
    "chinese",
    "cjk",
    "classic",
    "czech",
    "danish",
    "dutch",
    "email",
    "english",
    "finnish",
    "french",
    "galician",
    "german",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "japanese",
    "keyword",
    "latvian",
    "norwegian",
    "persian",
    "polish",
    "portugese",
    "romanian",
    "russian",
    "simple",
    "simple_asciifolding",
    "spanish",
    "standard",
    "swedish",
    "thai",
    "turkish",
    "whitespace",
];

/// How words of wildcards, ranges, fuzzy words and regular expressions are written: they are not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Normal {
    /// As they are.
    Kept,
    /// In lower case.
    Lower,
    /// In lower case, without accents.
    Folded,
    /// In the lower case of Turkish.
    Turkish,
    /// In the lower case of Irish.
    Irish,
}

impl Normal {
    fn of(name: &str) -> Normal {
        match name {
            "keyword" | "whitespace" => Normal::Kept,
            "simple_asciifolding" => Normal::Folded,
            "turkish" => Normal::Turkish,
            "irish" => Normal::Irish,
            _ => Normal::Lower,
        }
    }

    pub(super) fn apply(self, text: &str) -> String {
        let mut text = text.to_owned();
        match self {
            Normal::Kept => {}
            Normal::Lower => filter::to_lower(&mut text),
            Normal::Folded => {
                filter::to_lower(&mut text);
                case::fold(&mut text);
            }
            Normal::Turkish => case::turkish(&mut text),
            Normal::Irish => case::irish(&mut text),
        }
        text
    }
}

/// The analyzer of a name and how its words are written.
fn known(name: &str) -> Result<Spec, UnknownAnalyzer> {
    if !NAMES.contains(&name) {
        return Err(UnknownAnalyzer(name.to_owned()));
    }
    Ok(match name {
        "standard" => Spec::Named { name: name.to_owned(), stopwords: Some(Vec::new()) },
        "portugese" => Spec::Named { name: "portuguese".to_owned(), stopwords: None },
        name => Spec::Named { name: name.to_owned(), stopwords: None },
    })
}

impl Analyzer {
    /// The analyzer of Lucene 9 of this name, with others for some fields. Matches are scored by BM25.
    ///
    /// # Errors
    /// The first name that is not known.
    pub fn lucene9(default: &str, fields: &BTreeMap<String, String>) -> Result<Analyzer, UnknownAnalyzer> {
        let mut own = BTreeMap::new();
        let mut normal = (BTreeMap::new(), Normal::of(default));
        let pipeline = named(&known(default)?)?;
        for (field, name) in fields {
            own.insert(field.clone(), named(&known(name)?)?);
            normal.0.insert(field.clone(), Normal::of(name));
        }
        Ok(Analyzer(Arc::new(Fields { default: pipeline, named: own, scoring: Scoring::Bm25, normal })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(analyzer: &Analyzer, text: &str) -> Vec<String> {
        analyzer.tokens("f", text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn every_name_is_an_analyzer_and_no_other() {
        for name in NAMES {
            assert!(Analyzer::lucene9(name, &BTreeMap::new()).is_ok(), "{name}");
        }
        for name in ["portuguese", "brazilian", "greek", "perfield", "", "Standard"] {
            let refused = Analyzer::lucene9(name, &BTreeMap::new()).map(|_| ());
            assert_eq!(refused, Err(UnknownAnalyzer(name.to_owned())));
        }
        let fields = [("a".to_owned(), "nonsense".to_owned())].into();
        assert!(Analyzer::lucene9("standard", &fields).is_err());
    }

    #[test]
    fn standard_leaves_no_word_out_and_fields_have_their_own() {
        let fields = [("k".to_owned(), "keyword".to_owned())].into();
        let analyzer = Analyzer::lucene9("standard", &fields).unwrap();
        assert_eq!(words(&analyzer, "The Fox and I"), ["the", "fox", "and", "i"]);
        assert_eq!(analyzer.tokens("k", "The Fox")[0].text, "The Fox");
        assert_eq!((analyzer.normal("f", "FoX").as_str(), analyzer.normal("k", "FoX").as_str()), ("fox", "FoX"));
        let english = Analyzer::lucene9("english", &BTreeMap::new()).unwrap();
        assert_eq!(words(&english, "The foxes"), ["fox"]);
    }
}
