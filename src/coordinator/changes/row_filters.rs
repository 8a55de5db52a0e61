//! Filters of changes that look at documents: a function of a design document, a view's map, a selector.

use std::sync::Arc;

use crate::coordinator::changes::Feeds;
use crate::coordinator::changes::query::{Candidate, ChangesFilter, RowFilter};
use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::view::DatabaseView;
use crate::coordinator::replica::design::DesignLookupError;
use crate::coordinator::topology::error::{ChangesError, ReadError};
use crate::document::collate::{Collation, Collator};
use crate::document::id::DocId;
use crate::document::json::JsonError;
use crate::document::render::{RenderOptions, render};
use crate::document::rev_tree::RevPath;
use crate::document::selector::{Selector, StoredDocument};
use crate::index::{Definition, declared, declares};
use crate::script::{Program, ScriptError, Scripts};
use crate::world::{BoxFuture, Env, Pool};

/// Why there is no filter of that name.
#[derive(Debug)]
pub enum FilterLookupError {
    /// There is no such design document, or it cannot be read.
    Design(DesignLookupError),
    /// It has no such function.
    Function(ScriptError),
}

impl Feeds<'_> {
    /// What `filters.{name}` of a design document passes, a function or a declared selector; `place` is `ddoc/name`.
    /// `req`: the JSON text of what a function is told of the request.
    ///
    /// # Errors
    /// [`FilterLookupError`]
    pub async fn function_filter(self, place: &str, req: Arc<str>) -> Result<ChangesFilter, FilterLookupError> {
        let (program, name) = self.filter_program(place).await?;
        if let Some((_, selector)) = declared(program.body()).find(|(declared, _)| *declared == name) {
            return Ok(self.selector_filter(&Arc::new(selector)).await);
        }
        program.filter(name).map_err(FilterLookupError::Function)?;
        Ok(self.by_function(program.clone(), RowFunction::Function { name: name.to_owned(), req }))
    }

    /// What `views.{name}.map` of a design document emits something for; `place` is `ddoc/name`.
    ///
    /// # Errors
    /// [`FilterLookupError`]
    pub async fn view_filter(self, place: &str) -> Result<ChangesFilter, FilterLookupError> {
        let (program, name) = self.filter_program(place).await?;
        let source = program.map(name).map_err(FilterLookupError::Function)?.to_owned();
        Ok(self.by_function(program, RowFunction::Map { source }))
    }

    async fn filter_program(self, place: &str) -> Result<(Program, &str), FilterLookupError> {
        let (design, name) = place.split_once('/').unwrap_or((place, ""));
        let program = self.design_docs().program(&DocId::new(&format!("_design/{design}"))).await;
        Ok((program.map_err(FilterLookupError::Design)?, name))
    }

    /// What a selector matches. Where a design document declares it, its index says which changes to filter.
    pub async fn selector_filter(self, selector: &Arc<Selector>) -> ChangesFilter {
        let index = self.declared_index(selector).await.unwrap_or_else(|error| {
            tracing::debug!(database = self.name, ?error, "a feed does without the index of its selector");
            None
        });
        let (env, selector) = (self.context.env.clone(), Arc::clone(selector));
        let collator = self.context.indexes.collator(Collation::Unicode);
        ChangesFilter::Rows(Arc::new(BySelector { env, selector, collator, index }))
    }

    /// The index of a selector if it is declared.
    async fn declared_index(self, selector: &Arc<Selector>) -> Result<Option<DatabaseView>, ReadError> {
        let programs = self.design_docs().programs().await?;
        if !programs.iter().any(|program| declares(program.body())) {
            return Ok(None);
        }
        let selector = Arc::clone(selector);
        // In the pool: a large selector takes time, and those that are declared are read.
        let find = move || {
            let definition = Definition::selected(selector);
            let program = programs.iter().find(|program| definition.is_declared(program.body()))?;
            Some((program.clone(), definition))
        };
        let Some((program, definition)) = self.context.env.blocking(Pool::Foreground, find).await else {
            return Ok(None);
        };
        let view = self.queries().view_of(&program, Arc::new(definition));
        for index in view.own_indexes().await? {
            index.catch_up().await?;
        }
        Ok(Some(view))
    }

    fn by_function(self, program: Program, function: RowFunction) -> ChangesFilter {
        ChangesFilter::Rows(Arc::new(ByFunction { scripts: self.scripts().clone(), program, function }))
    }
}

struct ByFunction {
    scripts: Scripts,
    program: Program,
    function: RowFunction,
}

enum RowFunction {
    Function { name: String, req: Arc<str> },
    Map { source: String },
}

impl ByFunction {
    async fn passes(&self, page: &[Candidate]) -> Result<Vec<Vec<bool>>, ChangesError> {
        let text = |candidate: &Candidate, at: usize| {
            let leaf = &candidate.leaves[at];
            // CouchDB's filters see no more of the history than that.
            let own = RevPath::single(leaf.rev.clone());
            let conflicts = &candidate.conflicts;
            let options = RenderOptions { revisions: Some(&own), conflicts, ..RenderOptions::default() };
            String::from_utf8_lossy(&render(candidate.id.as_str(), leaf, &options)).into_owned()
        };
        let leaves = page.iter().flat_map(|c| (0..c.leaves.len()).map(move |at| text(c, at)));
        let docs: Vec<String> = leaves.collect();
        let passed = match &self.function {
            RowFunction::Function { name, req } => self.scripts.filter(&self.program, name, req, docs).await,
            RowFunction::Map { source } => self.scripts.emits(&self.program, source, docs).await,
        };
        let mut passed = passed.map_err(ChangesError::Script)?.into_iter();
        Ok(page.iter().map(|candidate| passed.by_ref().take(candidate.leaves.len()).collect()).collect())
    }
}

impl RowFilter for ByFunction {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>> {
        Box::pin(self.passes(page))
    }
}

/// Filters pages in the pool: a selector may hold expensive patterns, and reading a document takes time too.
struct BySelector {
    env: Env,
    selector: Arc<Selector>,
    collator: Collator,
    index: Option<DatabaseView>,
}

impl RowFilter for BySelector {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>> {
        let (selector, collator) = (Arc::clone(&self.selector), self.collator.clone());
        let page: Vec<Candidate> = page.to_vec();
        Box::pin(async move {
            let passed_rows = self.env.blocking(Pool::Foreground, move || matches(&selector, &collator, &page)).await;
            passed_rows.map_err(|JsonError| ChangesError::Filter {
                error: "internal_server_error".to_owned(),
                reason: "A stored document is damaged.".to_owned(),
            })
        })
    }

    fn index(&self) -> Option<&DatabaseView> {
        self.index.as_ref()
    }
}

fn matches(selector: &Selector, collator: &Collator, page: &[Candidate]) -> Result<Vec<Vec<bool>>, JsonError> {
    let leaves = |candidate: &Candidate| {
        let id = candidate.id.as_str();
        let seen = |leaf| StoredDocument::of(id, leaf).with_conflicts(&candidate.conflicts);
        let passed_rows = candidate.leaves.iter().map(|leaf| selector.matches_subject(&seen(leaf), collator));
        passed_rows.collect::<Result<Vec<bool>, JsonError>>()
    };
    page.iter().map(leaves).collect()
}
