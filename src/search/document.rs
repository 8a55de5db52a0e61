//! What an index function said about one document.

/// The field of a document's id: one token, stored, in every document.
pub const ID: &str = "_id";

/// One document as it is indexed.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its place in the order of indexing: ascending within a segment, never used twice in one index. Ties of scores
    /// and sort values stand in this order. The node takes the sequence of the document's last change.
    pub number: u64,
    /// Its id: a stored field `_id`, indexed as one token.
    pub id: String,
    /// Its fields in the order in which they were indexed; a name may stand several times.
    pub fields: Vec<Field>,
}

/// One call of `index(name, value, options)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What was indexed.
    pub value: Value,
    /// How.
    pub options: Options,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, which the field's analyzer cuts into tokens.
    Text(String),
    /// A finite number.
    Number(f64),
    /// A boolean, indexed as the words `true` and `false`, not analyzed.
    Bool(bool),
}

/// Options of a field, with the defaults of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Whether answers show the value.
    pub store: bool,
    /// Whether and how it is found.
    pub index: Indexed,
    /// Weight of its matches; of text only.
    pub boost: f32,
    /// Whether `counts`, `ranges` and `drilldown` know it.
    pub facet: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { store: false, index: Indexed::Analyzed, boost: 1.0, facet: false }
    }
}

/// How the matches of an index are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scoring {
    /// TF-IDF, as in Lucene 4.
    #[default]
    TfIdf,
    /// BM25, as in Lucene 9.
    Bm25,
}

/// How text is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// Not at all; a number is indexed all the same.
    No,
    /// Not at all, a number neither: shown only.
    Stored,
    /// Cut into tokens.
    Analyzed,
    /// Cut into tokens, its length counts for nothing.
    AnalyzedNoNorms,
    /// As one token.
    NotAnalyzed,
    /// As one token, its length counts for nothing.
    NotAnalyzedNoNorms,
}
