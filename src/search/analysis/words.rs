//! Words that analyzers leave out. Each list names its source and licence at its head.

use std::collections::HashSet;
use std::sync::Arc;

/// A set of words.
pub type Words = Arc<HashSet<Box<str>>>;

/// The words of a list: one or more a line, `#` begins a comment.
pub fn parse(list: &str) -> Words {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or(""));
    Arc::new(lines.flat_map(str::split_whitespace).map(Box::from).collect())
}
