//! Limits of documents and selectors, each with its unit and reason.

/// Levels of arrays and objects within a JSON text. Deeper texts are refused: writing and dropping a value walk it
/// recursively, and this depth fits every stack that the node uses.
pub const JSON_DEPTH_MAX: usize = 1_000;
/// Bytes of memory for each comma, colon or opening bracket of a JSON text: an element of an array is one of them, a
/// member of an object two.
pub const JSON_TOKEN_BYTES: u64 = 40;
/// Bytes of memory of an array or object beside those of its tokens: room for four elements is taken at first.
pub const JSON_CONTAINER_BYTES: u64 = 160;
/// Bytes of a body's text from which the term of its revision is not kept beside it.
pub const TERM_OF_TEXT_BYTES: usize = 1 << 20;

/// Bytes up to which an offending value is printed in an error message.
pub const ERROR_TERM_BYTES: usize = 4096;
/// Terms and listed values of one selector: a document is compared with each, 100 ns apiece. CouchDB has no such limit.
pub const SELECTOR_TERMS_MAX: usize = 50_000;
/// Regular expressions of one selector: each is compiled before anything is read, in up to some milliseconds.
pub const SELECTOR_PATTERNS: usize = 256;
/// Bytes of all paths of a selector together: a long name above many conditions is written once for each.
pub const SELECTOR_PATH_BYTES: usize = 16 << 20;
/// Bytes of one regular expression, as in the reference's library.
pub const REGEX_PATTERN_BYTES: usize = 64 << 10;
/// Bytes of a compiled regular expression, and of the states that searching adds.
pub const REGEX_PROGRAM_BYTES: usize = 2 << 20;
/// Steps back that one search may take, some 10 ms; then the text does not match.
pub const REGEX_STEPS: usize = 100_000;
/// Searches abandoned within one document, after which its other patterns count as not found: bounds a document's time.
pub const SEARCHES_GIVEN_UP: usize = 2;
/// Ranges of an index that one query reads, from `$in` and `$or`; with more, one range from the first to the last.
pub const FIND_RANGES_MAX: usize = 1000;
