//! A query with the statistics of a shard: what it matches, and the weight of each part of it.
//!
//! Weights are those of Lucene's DefaultSimilarity, or of its BM25Similarity (`similarity.rs`), in their order of
//! operations on floats of 32 bits. The frequency of a word counts all documents of all segments, deleted ones too
//! until a merge leaves them out, as in Lucene; so do the shard's documents.

use std::collections::BTreeMap;

use super::SearchError;
use super::budget::Budget;
use super::intervals::Leaf;
use super::similarity::{Field, Lengths};
use super::words::{Nearest, places};
use crate::document::Scoring;
use crate::query::intervals::{Source, Word};
use crate::query::{Clause, Occur, Query};
use crate::segment::{Found, Kind, Part, WINDOW, Window, sortable};

/// A part of a query, ready to be matched.
pub(crate) enum Node {
    /// Nothing matches.
    Nothing,
    /// All matches score alike.
    Constant { query: Query, boost: f32, score: f32 },
    /// Matches score by their words.
    Words { words: Words, boost: f32, idf: f32, weight: f32, lengths: Option<Lengths> },
    Boolean {
        clauses: Vec<(Occur, Node)>,
        boost: f32,
        /// The factor of so many clauses that match.
        coord: Vec<f32>,
        /// How many of the optional clauses have to match.
        minimum: u32,
    },
}

/// Words that score, with their postings in each part.
pub(crate) enum Words {
    Term {
        field: String,
        found: Vec<Option<Found>>,
    },
    /// Documents of each part, ascending; one stands as often as it has the number.
    Number {
        docs: Vec<Vec<u32>>,
    },
    Phrase {
        field: String,
        slots: Vec<Slot>,
        slop: u32,
    },
    Intervals {
        field: String,
        /// Words are places in `words`.
        source: Source<usize>,
        words: Vec<Leaf>,
    },
}

/// One position of a phrase.
pub(crate) struct Slot {
    pub(crate) position: u32,
    pub(crate) words: Vec<String>,
    /// Postings of each word in each part.
    pub(crate) found: Vec<Vec<Option<Found>>>,
}

/// Makes the nodes of a query.
pub(crate) struct Planner<'a, 'b> {
    pub(crate) parts: &'a [Part],
    pub(crate) budget: &'a mut Budget<'b>,
    documents: u64,
    scoring: Scoring,
    /// What BM25 knows of fields.
    fields: BTreeMap<String, Field>,
}

impl<'a, 'b> Planner<'a, 'b> {
    pub(crate) fn new(parts: &'a [Part], budget: &'a mut Budget<'b>) -> Planner<'a, 'b> {
        let documents = parts.iter().map(|part| u64::from(part.segment.document_count())).sum();
        let scoring = parts.first().map_or(Scoring::TfIdf, |part| part.segment.scoring());
        Planner { parts, budget, documents, scoring, fields: BTreeMap::new() }
    }

    /// The whole query, weighed.
    pub(crate) fn plan(&mut self, query: &Query) -> Result<Node, SearchError> {
        let mut node = self.node(query, 1.0)?;
        if self.scoring == Scoring::Bm25 {
            node.weigh(1.0);
            return Ok(node);
        }
        let norm = (1.0 / f64::from(node.squares()).sqrt()) as f32;
        node.normalize(if norm.is_finite() { norm } else { 1.0 }, 1.0);
        Ok(node)
    }

    fn node(&mut self, query: &Query, boost: f32) -> Result<Node, SearchError> {
        self.budget.step()?;
        Ok(match query {
            Query::Nothing => Node::Nothing,
            Query::Boost { query, boost: own } => self.node(query, boost * own)?,
            Query::Boolean { clauses, has_coord } => self.boolean(clauses, *has_coord, boost)?,
            Query::Minimum { query, minimum } => self.minimum(query, *minimum, boost)?,
            Query::Fuzzy { field, text, edits } => self.fuzzy(query, field, text, *edits, boost)?,
            Query::Term { field, text } => self.term(field, text, boost)?,
            Query::Number { field, value } => self.number(field, *value, boost)?,
            Query::Phrase { field, words, slop } => self.phrase(field, words, *slop, boost)?,
            Query::Intervals { field, source } => self.intervals(field, source, boost)?,
            Query::All
            | Query::Range { .. }
            | Query::From { .. }
            | Query::NumberRange { .. }
            | Query::Prefix { .. }
            | Query::Wildcard { .. }
            | Query::Regexp { .. } => Node::Constant { query: query.clone(), boost, score: 0.0 },
        })
    }

    fn boolean(&mut self, clauses: &[Clause], has_coord: bool, boost: f32) -> Result<Node, SearchError> {
        if let [Clause { occur: Occur::Must | Occur::Should, query }] = clauses {
            return self.node(query, boost);
        }
        let nodes: Result<Vec<_>, SearchError> =
            clauses.iter().map(|clause| Ok((clause.occur, self.node(&clause.query, 1.0)?))).collect();
        Ok(Node::boolean(nodes?, has_coord, boost))
    }

    fn minimum(&mut self, query: &Query, least: u32, boost: f32) -> Result<Node, SearchError> {
        let mut node = self.node(query, boost)?;
        if let Node::Boolean { minimum, .. } = &mut node {
            *minimum = least;
        }
        Ok(node)
    }

    fn fuzzy(&mut self, query: &Query, field: &str, text: &str, edits: u8, boost: f32) -> Result<Node, SearchError> {
        let mut nearest = Nearest::new(text, edits);
        for part in self.parts {
            if let Some(field) = part.segment.field(Kind::Words, field) {
                nearest.look(field, &mut |_| self.budget.word(query))?;
            }
        }
        let mut nodes = Vec::new();
        if self.scoring == Scoring::Bm25 {
            return self.blended(field, nearest.words(), boost);
        }
        for (word, similarity) in nearest.words() {
            nodes.push((Occur::Should, self.term(field, &word, boost * similarity)?));
        }
        Ok(if nodes.len() == 1 { nodes.remove(0).1 } else { Node::boolean(nodes, false, 1.0) })
    }

    /// The postings of a word in each part, and how many documents have it.
    fn find(&mut self, field: &str, text: &str) -> Result<(Vec<Option<Found>>, u64), SearchError> {
        self.budget.step()?;
        let mut found = Vec::with_capacity(self.parts.len());
        let mut documents = 0;
        for part in self.parts {
            let word = match part.segment.field(Kind::Words, field) {
                Some(field) => part.segment.find(field, text.as_bytes())?,
                None => None,
            };
            documents += word.as_ref().map_or(0, |word| u64::from(word.documents));
            found.push(word);
        }
        Ok((found, documents))
    }

    /// Words that score as if each was in as many documents as the most frequent of them.
    fn blended(&mut self, field: &str, words: Vec<(String, f32)>, boost: f32) -> Result<Node, SearchError> {
        let mut all = Vec::with_capacity(words.len());
        let mut most = 0;
        for (word, similarity) in words {
            let (found, documents) = self.find(field, &word)?;
            most = most.max(documents);
            all.push((found, similarity));
        }
        let idf = self.idf(field, most);
        let lengths = self.lengths(field);
        let node = |(found, similarity): (Vec<Option<Found>>, f32)| {
            let words = Words::Term { field: field.to_owned(), found };
            let boost = boost * similarity;
            (Occur::Should, Node::Words { words, boost, idf, weight: 0.0, lengths: lengths.clone() })
        };
        let mut nodes: Vec<(Occur, Node)> = all.into_iter().map(node).collect();
        Ok(if nodes.len() == 1 { nodes.remove(0).1 } else { Node::boolean(nodes, false, 1.0) })
    }

    /// What BM25 knows of a field; `None` where it does not score.
    fn known(&mut self, field: &str) -> Option<&Field> {
        if self.scoring == Scoring::TfIdf {
            return None;
        }
        let parts = self.parts;
        Some(self.fields.entry(field.to_owned()).or_insert_with(|| Field::of(parts, field)))
    }

    fn lengths(&mut self, field: &str) -> Option<Lengths> {
        self.known(field).map(|field| field.lengths.clone())
    }

    fn idf(&mut self, field: &str, documents: u64) -> f32 {
        if let Some(field) = self.known(field) {
            return field.idf(documents);
        }
        ((self.documents as f64 / (documents + 1) as f64).ln() + 1.0) as f32
    }

    fn term(&mut self, field: &str, text: &str, boost: f32) -> Result<Node, SearchError> {
        let (found, documents) = self.find(field, text)?;
        let words = Words::Term { field: field.to_owned(), found };
        let (idf, lengths) = (self.idf(field, documents), self.lengths(field));
        Ok(Node::Words { words, boost, idf, weight: 0.0, lengths })
    }

    fn number(&mut self, field: &str, value: f64, boost: f32) -> Result<Node, SearchError> {
        let mut docs = Vec::new();
        let mut documents = 0;
        for part in self.parts {
            let of_part = match part.segment.field(Kind::Words, field) {
                Some(field) => part.segment.points(field, sortable(value), sortable(value))?,
                None => Vec::new(),
            };
            self.budget.hold_planned(of_part.len() * size_of::<u32>())?;
            documents += of_part.chunk_by(|a, b| a == b).count() as u64;
            docs.push(of_part);
        }
        let idf = self.idf(field, documents);
        Ok(Node::Words { words: Words::Number { docs }, boost, idf, weight: 0.0, lengths: None })
    }

    fn phrase(
        &mut self,
        field: &str,
        words: &[(u32, Vec<String>)],
        slop: u32,
        boost: f32,
    ) -> Result<Node, SearchError> {
        let mut slots = Vec::with_capacity(words.len());
        let mut idf = 0.0;
        for (position, choices) in words {
            let mut found = Vec::with_capacity(choices.len());
            for word in choices {
                let (of_word, documents) = self.find(field, word)?;
                idf += self.idf(field, documents);
                found.push(of_word);
            }
            slots.push(Slot { position: *position, words: choices.clone(), found });
        }
        let words = Words::Phrase { field: field.to_owned(), slots, slop };
        let lengths = self.lengths(field);
        Ok(Node::Words { words, boost, idf, weight: 0.0, lengths })
    }

    /// Intervals score by how many and how short they are; how rare their words are counts for nothing.
    fn intervals(&mut self, field: &str, source: &Source<Word>, boost: f32) -> Result<Node, SearchError> {
        let mut known: Vec<Word> = Vec::new();
        let mut place = |word: &Word| match known.iter().position(|other| other == word) {
            Some(place) => place,
            None => {
                known.push(word.clone());
                known.len() - 1
            }
        };
        let source = source.map(&mut place);
        let mut words = Vec::with_capacity(known.len());
        for word in known {
            words.push(match word {
                Word::Text(text) => Leaf::Word(self.find(field, &text)?.0),
                Word::Pattern { query, most } => Leaf::Pattern(query, most),
            });
        }
        let words = Words::Intervals { field: field.to_owned(), source, words };
        Ok(Node::Words { words, boost, idf: 1.0, weight: 0.0, lengths: None })
    }
}

impl Node {
    fn boolean(clauses: Vec<(Occur, Node)>, has_coord: bool, boost: f32) -> Node {
        let most = clauses.iter().filter(|(occur, _)| *occur != Occur::MustNot).count();
        let factor = |count: usize| if has_coord && most > 1 { count as f32 / most as f32 } else { 1.0 };
        let coord = (0..=most).map(factor).collect();
        Node::Boolean { clauses, boost, coord, minimum: 0 }
    }

    /// Weighs it for BM25 within a query of the weight `top`.
    fn weigh(&mut self, top: f32) {
        match self {
            Node::Nothing => {}
            Node::Constant { boost, score, .. } => *score = *boost * top,
            Node::Words { boost, idf, weight, .. } => *weight = *boost * top * *idf,
            Node::Boolean { clauses, boost, coord, .. } => {
                coord.clear();
                clauses.iter_mut().for_each(|(_, node)| node.weigh(top * *boost));
            }
        }
    }

    /// The sum of the squares of the weights.
    fn squares(&self) -> f32 {
        match self {
            Node::Nothing => 0.0,
            Node::Constant { boost, .. } => boost * boost,
            Node::Words { boost, idf, .. } => (idf * boost) * (idf * boost),
            Node::Boolean { clauses, boost, .. } => {
                let scoring = clauses.iter().filter(|(occur, _)| *occur != Occur::MustNot);
                scoring.map(|(_, node)| node.squares()).sum::<f32>() * (boost * boost)
            }
        }
    }

    fn normalize(&mut self, norm: f32, top: f32) {
        match self {
            Node::Nothing => {}
            Node::Constant { boost, score, .. } => *score = *boost * (norm * top),
            Node::Words { boost, idf, weight, .. } => *weight = *idf * *boost * (norm * top) * *idf,
            Node::Boolean { clauses, boost, .. } => {
                for (_, node) in clauses {
                    node.normalize(norm, top * *boost);
                }
            }
        }
    }
}

/// The documents of a part that a query without scores matches, as bits.
pub(crate) fn documents(query: &Query, part: &Part, budget: &mut Budget<'_>) -> Result<super::bits::Bits, SearchError> {
    let segment = &part.segment;
    budget.hold(segment.document_count() as usize / 8)?;
    let mut bits = super::bits::Bits::new(segment.document_count());
    let name = match query {
        Query::All => {
            bits.fill();
            return Ok(bits);
        }
        Query::Range { field, .. }
        | Query::From { field, .. }
        | Query::NumberRange { field, .. }
        | Query::Prefix { field, .. }
        | Query::Wildcard { field, .. }
        | Query::Regexp { field, .. } => field,
        _ => return Ok(bits),
    };
    let Some(field) = segment.field(Kind::Words, name) else { return Ok(bits) };
    if let Query::NumberRange { lower, upper, has_lower, has_upper, .. } = query {
        if let Some((low, high)) = crate::segment::bounds(*lower, *upper, *has_lower, *has_upper) {
            for doc in segment.points(field, low, high)? {
                bits.set(doc);
            }
        }
        return Ok(bits);
    }
    let mut window = Window::new(WINDOW);
    places(field, query, &mut |place| {
        budget.word(query)?;
        let found = segment.found(field, place, &mut window)?;
        let mut docs = segment.docs(&found, &mut window)?;
        while let Some((doc, _)) = docs.next()? {
            budget.step()?;
            bits.set(doc);
        }
        Ok(())
    })?;
    Ok(bits)
}
