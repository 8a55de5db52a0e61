//! Random conversations: a seed and a chapter give a database with documents and a dozen requests of that chapter.
//!
//! A conversation is data in the form of a case. Nothing in it depends on time, load or other databases, so that two
//! servers that do the same answer the same: databases have one range (`q=1`), feeds end, revisions are bound from
//! answers.

pub mod dice;
pub mod draft;

mod attachments;
mod bulk;
mod changes;
mod database;
mod designs;
mod documents;
mod feeds;
mod find;
mod functions;
mod lists;
mod pages;
mod partitions;
mod reduces;
mod replication;
mod rights;
mod sample;
mod server;
mod trees;
mod views;

use crate::json::Value;
use dice::Dice;
use draft::Draft;

/// What is asked in a chapter.
type Ask = fn(&mut Draft);

/// The chapters: name, what comes first, what is asked again and again.
const CHAPTERS: &[(&str, Ask, Ask)] = &[
    ("documents", documents::begin, documents::ask),
    ("all_docs", lists::begin, lists::ask),
    ("views", views::begin, views::ask),
    ("find", find::begin, find::ask),
    ("index", find::begin_bare, find::ask_index),
    ("changes", changes::begin, changes::ask),
    ("attachments", attachments::begin, attachments::ask),
    ("bulk", bulk::begin, bulk::ask),
    ("database", database::begin, database::ask),
    ("partitions", partitions::begin, partitions::ask),
    ("functions", functions::begin, functions::ask),
    ("replication", replication::begin, replication::ask),
    ("server", server::begin, server::ask),
    ("pages", pages::begin, pages::ask),
    ("reduces", reduces::begin, reduces::ask),
    ("feeds", feeds::begin, feeds::ask),
    ("trees", trees::begin, trees::ask),
    ("designs", designs::begin, designs::ask),
    ("rights", rights::begin, rights::ask),
];

/// The names of all chapters.
pub fn chapters() -> Vec<&'static str> {
    CHAPTERS.iter().map(|(name, ..)| *name).collect()
}

/// The conversation of a seed, as steps of a case; `None` for a chapter that there is not.
pub fn conversation(chapter: &str, seed: u64) -> Option<Vec<Value>> {
    let (name, begin, ask) = CHAPTERS.iter().find(|(name, ..)| *name == chapter)?;
    let mut draft = Draft::new(Dice::new(seed, name));
    begin(&mut draft);
    for _ in 0..6 + draft.dice.below(10) {
        ask(&mut draft);
    }
    Some(draft.steps())
}

#[cfg(test)]
mod tests {
    use super::{chapters, conversation, draft};

    #[test]
    fn every_seed_of_every_chapter_is_a_case_and_the_same_each_time() {
        for chapter in chapters() {
            for seed in 1..60 {
                let steps = conversation(chapter, seed).expect("a conversation");
                assert!(draft::case("r", &steps).is_ok(), "{chapter} {seed}");
                assert_eq!(conversation(chapter, seed), Some(steps));
            }
        }
        assert_eq!(conversation("no such chapter", 1), None);
    }

    #[test]
    fn the_shapes_are_many() {
        let shape = |step: &crate::json::Value| {
            let action = step.get("do").and_then(crate::json::Value::as_str).unwrap_or_default().to_owned();
            let names: Vec<String> =
                action.split(['?', '&']).map(|p| p.split('=').next().unwrap_or_default().to_owned()).collect();
            names.join(" ")
        };
        let mut shapes = std::collections::BTreeSet::new();
        for chapter in chapters() {
            for seed in 1..100 {
                shapes.extend(conversation(chapter, seed).unwrap_or_default().iter().map(shape));
            }
        }
        assert!(shapes.len() > 500, "{} shapes", shapes.len());
    }
}
