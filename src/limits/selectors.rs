//! Limits of declarative queries (`_find`).

/// Documents that one step of a scan matches: bounds the time that it holds a thread, some milliseconds.
pub const FILTER_SCAN_DOCS: usize = 2000;
/// Documents matched together: where they were written together, their bodies are read as one range.
pub const FILTER_SCAN_GROUP: usize = 128;
/// Groups of one query with `group_by`: they are in memory together.
pub const FIND_GROUPS_MAX: usize = 10_000;
/// Documents that an index's rows lead to, read and matched together.
pub const FIND_DOCS_PER_FETCH: usize = 32;
