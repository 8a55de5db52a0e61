//! Whose index a build is of, as `_active_tasks` shows it.

use crate::observe::tasks::{Subject, TaskKind};

/// Whose index is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The database.
    pub database: String,
    /// The design document.
    pub design: String,
    /// The range of the replica, `00000000-1fffffff`.
    pub range: String,
    /// Whether it is a full-text index.
    pub is_search: bool,
}

impl Owner {
    /// What a build is about.
    pub(super) fn subject(&self) -> Subject {
        let kind = if self.is_search { TaskKind::SearchIndexer } else { TaskKind::Indexer };
        let subject = Subject::new(kind, &self.database).range(&self.range);
        Subject { design: self.design.clone(), ..subject }
    }
}
