//! Stemmers: what several forms of a word have in common.

pub mod arabic;
pub mod brazilian;
pub mod galician;
pub mod greek;
pub mod indic;
pub mod indonesian;
pub mod light;
pub mod porter;
pub mod slavic;

use std::ops::{Deref, DerefMut};

/// A word as stemmers see it: characters.
#[derive(Clone, Debug, Default)]
pub struct Word(Vec<char>);

impl Deref for Word {
    type Target = Vec<char>;

    fn deref(&self) -> &Vec<char> {
        &self.0
    }
}

impl DerefMut for Word {
    fn deref_mut(&mut self) -> &mut Vec<char> {
        &mut self.0
    }
}

impl Word {
    /// Takes the characters of `text` in the place of its own.
    pub fn set(&mut self, text: &str) {
        self.0.clear();
        self.0.extend(text.chars());
    }

    /// Writes its characters to `text`, in the place of what is there.
    pub fn write(&self, text: &mut String) {
        text.clear();
        text.extend(self.0.iter());
    }

    /// Whether it has this ending.
    pub fn ends(&self, ending: &str) -> bool {
        let mut at = self.0.len();
        for c in ending.chars().rev() {
            if at == 0 || self.0[at - 1] != c {
                return false;
            }
            at -= 1;
        }
        true
    }

    /// Whether it begins so.
    pub fn starts(&self, beginning: &str) -> bool {
        let mut own = self.0.iter();
        beginning.chars().all(|c| own.next() == Some(&c))
    }

    /// What is before an ending.
    pub fn before(&self, ending: &str) -> &[char] {
        &self.0[..self.0.len().saturating_sub(ending.chars().count())]
    }

    /// Takes the last characters off.
    pub fn cut(&mut self, count: usize) {
        let left = self.0.len().saturating_sub(count);
        self.0.truncate(left);
    }

    /// Puts another ending in the place of one that it has.
    pub fn replace(&mut self, ending: &str, by: &str) {
        self.cut(ending.chars().count());
        self.0.extend(by.chars());
    }

    /// The first of the endings that it has.
    pub fn ending<'a>(&self, endings: &[&'a str]) -> Option<&'a str> {
        endings.iter().find(|ending| self.ends(ending)).copied()
    }

    /// The character `back` places from the end (1: the last); NUL if there is none.
    pub fn nth_last(&self, back: usize) -> char {
        self.0.len().checked_sub(back).and_then(|at| self.0.get(at)).copied().unwrap_or('\0')
    }
}
