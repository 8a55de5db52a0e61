//! Validation of edits before they are decided: checks of design documents, and all `validate_doc_update` functions.
//!
//! As CouchDB 3.5 was measured (`conformance/cases/views`): an outdated edit is a conflict before any function runs;
//! design documents are checked and not validated; local documents are neither (they do not come here). The result of a
//! validation holds until the edit is stored: the parent that a client names cannot change, only cease to be a leaf,
//! which is a conflict; a document that begins anew is compared with nothing; the ancestor of a revision made elsewhere
//! goes along as [`Basis`], and the primary refuses the edit if it finds another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::write::Primary;
use crate::document::json::{self, Object, Value};
use crate::document::render::{RenderOptions, StoredRevision, render};
use crate::document::rev_tree::RevPath;
use crate::document::revision::{RevHash, Revision};
use crate::limits;
use crate::observe::metrics::{Counter, Histogram};
use crate::script::{Arguments, Program, Validation};
use crate::shard::{self, Basis, Conflict, Edit, EditAttachment, EditOp, Fetched, ShardError, ShardReplica, Want};
use crate::world::buggify::{Mutation, mutated};

type Checked = Result<Basis, WriteError>;

impl Primary<'_> {
    /// Checks edits against the replica that decides them: for each what its check rests on, or why it is refused.
    pub(in crate::coordinator) async fn validate(
        self,
        replica: &ShardReplica,
        edits: &[&Edit],
        caller: &Caller,
    ) -> Result<Vec<Checked>, ShardError> {
        if caller.is_unquestioned {
            return Ok(edits.iter().map(|_| Ok(Basis::Any)).collect());
        }
        let programs = self.design_docs().validators().await?;
        let skips = |edit: &Edit| mutated(Mutation::MergeUnvalidated) && matches!(edit.op, EditOp::Merge { .. });
        let asks = |edit: &Edit| !programs.is_empty() && !skips(edit);
        let concerned = |edit: &Edit| if edit.id.is_design() { !edit.deleted } else { asks(edit) };
        let concerned: Vec<usize> = (0..edits.len()).filter(|at| concerned(edits[*at])).collect();
        let mut out: Vec<Checked> = edits.iter().map(|_| Ok(Basis::Any)).collect();
        let full = self.full_partitions(replica, edits).await?;
        let concerned: Vec<usize> = concerned.into_iter().filter(|at| !full.contains_key(at)).collect();
        full.into_iter().for_each(|(at, error)| out[at] = Err(error));
        if concerned.is_empty() {
            return Ok(out);
        }
        let wants = concerned.iter().map(|at| (edits[*at].id.clone(), want(edits[*at]))).collect();
        let found = replica.fetch(wants).await?;
        let mut asked: Vec<(usize, Arc<Arguments>)> = Vec::new();
        for (at, fetched) in concerned.into_iter().zip(found) {
            let edit = edits[at];
            out[at] = match compare(replica, edit, fetched).await? {
                Compared::Conflict => Err(WriteError::Conflict),
                Compared::Known => Ok(Basis::Any),
                Compared::With { .. } if edit.id.is_design() => {
                    let body = parse_body(&edit.body.text);
                    let checked = self.scripts().check_design(self.instance(), &body, self.map().partitioned).await;
                    checked.map(|()| Basis::Any).map_err(WriteError::Design)
                }
                Compared::With { basis, old } => {
                    asked.push((at, Arc::new(self.arguments(edit, old, caller))));
                    Ok(basis)
                }
            };
        }
        self.ask(&programs, asked, &mut out).await;
        Ok(out)
    }

    /// Asks each validator about those that all before it accepted.
    async fn ask(self, programs: &[Program], mut asked: Vec<(usize, Arc<Arguments>)>, out: &mut [Checked]) {
        let env = &self.context.env;
        for program in programs {
            let begun = env.now();
            let edits: Vec<Arc<Arguments>> = asked.iter().map(|(_, arguments)| Arc::clone(arguments)).collect();
            let answers = match self.scripts().validate(program, edits).await {
                Ok(answers) => answers,
                Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
            };
            env.metrics().record_ms(Histogram::ValidationTime, env.now().since(begun));
            let mut refused = BTreeMap::new();
            for ((at, _), answer) in asked.iter().zip(answers) {
                let error = match answer {
                    Ok(Validation::Accepted) => continue,
                    Ok(Validation::Forbidden(reason)) => WriteError::Forbidden { reason },
                    Ok(Validation::Unauthorized(reason)) => WriteError::Unauthorized { reason },
                    Err(error) => WriteError::Script(error),
                };
                refused.insert(*at, error);
            }
            env.metrics().add(Counter::ValidationRejects, refused.len() as u64);
            asked.retain(|(at, _)| !refused.contains_key(at));
            refused.into_iter().for_each(|(at, error)| out[at] = Err(error));
        }
    }

    fn arguments(self, edit: &Edit, old: Option<(Option<RevPath>, StoredRevision)>, caller: &Caller) -> Arguments {
        let new = new_document(edit, old.as_ref().map(|(_, old)| old));
        let old = old.map_or_else(
            || b"null".to_vec(),
            |(path, old)| {
                let path = path.map(cut);
                let options = RenderOptions { revisions: path.as_ref(), ..RenderOptions::default() };
                render(edit.id.as_str(), &old, &options)
            },
        );
        Arguments::new(&new, &old, &user_context(&self.name, caller), &self.security())
    }
}

/// What an edit is compared with.
async fn compare(replica: &ShardReplica, edit: &Edit, fetched: Option<Fetched>) -> Result<Compared, ShardError> {
    let empty = || Fetched { tree: Default::default(), local_seq: 0, found: Vec::new() };
    let mut fetched = fetched.unwrap_or_else(empty);
    let stored = fetched.take_one();
    let tree = fetched.tree;
    let path = match &edit.op {
        EditOp::Interactive { parent } => {
            return Ok(match shard::parent_of(&tree, parent.as_ref(), edit.deleted) {
                Err(Conflict) => Compared::Conflict,
                Ok(_) => {
                    let old = stored.filter(|_| parent.is_some()).map(|old| (tree.path_to(&old.rev), old));
                    Compared::With { basis: Basis::Any, old }
                }
            });
        }
        EditOp::Merge { path } => path,
    };
    if tree.get(&path.head()).is_some_and(|data| data.is_some()) {
        return Ok(Compared::Known);
    }
    let ancestor = shard::ancestor_of(&tree, path);
    let mut old = None;
    if let Some(rev) = &ancestor {
        let fetched = replica.fetch(vec![(edit.id.clone(), Want::Revision(rev.clone()))]).await?.pop().flatten();
        old = fetched.and_then(|mut fetched| fetched.take_one()).map(|old| (tree.path_to(rev), old));
    }
    Ok(Compared::With { basis: Basis::Ancestor(ancestor), old })
}

enum Compared {
    /// The edit is outdated.
    Conflict,
    /// The revision is there already: nothing is written.
    Known,
    With {
        basis: Basis,
        /// With its history.
        old: Option<(Option<RevPath>, StoredRevision)>,
    },
}

fn want(edit: &Edit) -> Want {
    match &edit.op {
        EditOp::Interactive { parent: Some(parent) } => Want::Revision(parent.clone()),
        EditOp::Interactive { parent: None } | EditOp::Merge { .. } => Want::Tree,
    }
}

fn parse_body(text: &[u8]) -> Object {
    match json::parse(text) {
        Ok(Value::Object(body)) => body,
        // A prepared body is the text of an object.
        _ => Object::new(),
    }
}

/// The history that functions see is no longer than that.
fn cut(mut path: RevPath) -> RevPath {
    path.ids.truncate(limits::SCRIPT_REVISIONS);
    path
}

/// The new document: with the revision that it replaces, or with its own when it was made elsewhere.
fn new_document(edit: &Edit, old: Option<&StoredRevision>) -> Vec<u8> {
    let path = match &edit.op {
        EditOp::Interactive { parent } => parent.clone().map(RevPath::single),
        EditOp::Merge { path } => Some(path.clone()),
    };
    let attachments = edit.attachments.iter().filter_map(|attachment| match attachment {
        EditAttachment::New(new) => Some(new.clone()),
        EditAttachment::Stub { name, .. } => old?.attachments.iter().find(|a| a.name == *name).cloned(),
    });
    let unnamed = || Revision::new(0, RevHash::Text(String::new().into()));
    let stored = StoredRevision {
        rev: path.as_ref().map_or_else(unnamed, RevPath::head),
        deleted: edit.deleted,
        body: edit.body.text.clone(),
        attachments: attachments.collect(),
    };
    let path = path.map(cut);
    let text =
        render(edit.id.as_str(), &stored, &RenderOptions { revisions: path.as_ref(), ..RenderOptions::default() });
    if path.is_some() { text } else { without_rev(edit.id.as_str(), &stored.rev, &text) }
}

/// Leaves `_rev` out of a text that begins with `_id` and `_rev`.
fn without_rev(id: &str, rev: &Revision, text: &[u8]) -> Vec<u8> {
    let mut head = b"{\"_id\":".to_vec();
    json::write_string(id, &mut head);
    let mut named = b",\"_rev\":".to_vec();
    json::write_string(&rev.to_string(), &mut named);
    let rest = text.get(head.len() + named.len()..).unwrap_or_default();
    head.extend_from_slice(rest);
    head
}

/// `{"db":..,"name":..,"roles":[..]}`
fn user_context(db: &str, caller: &Caller) -> Vec<u8> {
    let mut user = Object::new();
    user.push("db", db);
    user.push("name", caller.name.as_deref().map_or(Value::Null, Value::from));
    user.push("roles", Value::Array(caller.roles.iter().map(|role| Value::from(role.as_str())).collect()));
    user.to_vec()
}
