//! Limits of declarative queries (`_find`).

/// Bytes up to which an offending value is printed in an error message.
pub const ERROR_TERM_BYTES: usize = 4096;
/// Regular expressions of one selector: each is compiled before anything is read, in up to some milliseconds.
pub const SELECTOR_PATTERNS: usize = 256;
/// Bytes of all paths of a selector together: a long name above many conditions is written once for each.
pub const SELECTOR_PATH_BYTES: usize = 16 << 20;
/// Bytes of one regular expression, as in the reference's library.
pub const REGEX_PATTERN_BYTES: usize = 64 << 10;
/// Bytes of a compiled regular expression, and of the states that searching adds.
pub const REGEX_PROGRAM_BYTES: usize = 2 << 20;
/// Searches abandoned within one document, after which its other patterns count as not found: bounds a document's time.
pub const SEARCHES_GIVEN_UP: usize = 2;
/// Steps back that one search may take, some 10 ms; then the text does not match.
pub const REGEX_STEPS: usize = 100_000;

/// Ranges of an index that one query reads, from `$in` and `$or`; with more, one range from the first to the last.
pub const FIND_RANGES_MAX: usize = 1000;
/// Documents that one step of a scan matches: bounds the time that it holds a thread, some milliseconds.
pub const FILTER_SCAN_DOCS: usize = 2000;
/// Documents matched together: where they were written together, their bodies are read as one range.
pub const FILTER_SCAN_GROUP: usize = 128;
/// Groups of one query with `group_by`: they are in memory together.
pub const FIND_GROUPS_MAX: usize = 10_000;
/// Documents that an index's rows lead to, read and matched together.
pub const FIND_DOCS_PER_FETCH: usize = 32;
