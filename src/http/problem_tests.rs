//! The table from errors to answers as one snapshot: status, error, reason and headers of each error that a layer below
//! has. A new error gets its line here; a changed line is a change of the interface.

use super::problem::Problem;
use crate::auth::AuthError;
use crate::auth::users::UserError;
use crate::cluster::{CallError, NodeName};
use crate::coordinator::{
    ChangesError, DatabaseError, DesignLookupError, MapError, ReadError, SettingError, ShardError, StorageError,
    TokenError, ViewError, WriteError,
};
use crate::document::DocId;
use crate::document::draft::DraftError;
use crate::document::json::Value;
use crate::document::selector::{SelectorError, SelectorErrorKind};
use crate::replicate::ReplicateError;
use crate::script::{DesignError, ScriptError};

/// One line for each: `status error: reason`, with its further headers and the name of the error here.
fn table<E: std::fmt::Debug + Into<Problem>>(title: &str, errors: impl IntoIterator<Item = E>) -> String {
    let mut text = format!("{title}\n");
    for error in errors {
        let named = format!("{error:?}");
        let problem: Problem = error.into();
        let body = String::from_utf8_lossy(&problem.body()).trim_end().to_owned();
        text += &format!("  {named}\n    {} {body}\n", problem.status.as_u16());
        for (name, value) in &problem.headers {
            text += &format!("    {name}: {}\n", value.to_str().unwrap_or("not text"));
        }
    }
    text
}

fn name() -> String {
    "NAME".to_owned()
}

fn reason() -> String {
    "REASON".to_owned()
}

fn auth() -> String {
    use AuthError as E;
    let plain = [E::InvalidBase64, E::MalformedCookie, E::WrongCredentials, E::UserConflict, E::LockedOut];
    let counts = [E::TooFewIterations, E::TooManyIterations];
    let tokens = [
        E::BadToken("REASON".into()),
        E::UnfitToken("REASON"),
        E::TokenWithout(name()),
        E::TokenOfOtherShape,
        E::Misconfigured,
    ];
    let server = [E::Busy, E::Unavailable];
    let users = [UserError::Forbidden(reason()), UserError::BadPassword(reason()), UserError::NotFound];
    table("AuthError", plain.into_iter().chain(counts).chain(tokens).chain(server)) + &table("UserError", users)
}

fn below() -> [ShardError; 6] {
    let storage = |error| ShardError::Storage(error);
    [
        storage(StorageError::Io(reason())),
        storage(StorageError::Corrupt(reason())),
        storage(StorageError::NoFiles(reason())),
        storage(StorageError::NoRoom),
        ShardError::NoReplica { replicas: 3 },
        ShardError::Indeterminate(reason()),
    ]
}

fn databases() -> String {
    use DatabaseError as E;
    let databases = [
        E::Exists,
        E::IllegalName { name: name() },
        E::IllegalEngine,
        E::IllegalPlacement,
        E::IllegalNumber { parameter: "q" },
        E::NameTooLong { name: name() },
        E::NoNodesInZone,
        E::NotFound,
        E::Seeding,
    ];
    let maps = [
        MapError::Gone,
        MapError::Refused(reason()),
        MapError::NoMajority { answered: 1, members: 3 },
        MapError::Contended,
    ];
    table("DatabaseError", databases) + &table("MapError", maps) + &table("ShardError", below())
}

fn reads() -> String {
    let reads = [
        ReadError::DatabaseGone,
        ReadError::DamagedAttachment { name: name() },
        ReadError::TooFewReplicas { answered: 1, wanted: 2 },
    ];
    let designs = [DesignLookupError::NotFound { deleted: false }, DesignLookupError::NotFound { deleted: true }];
    let changes = [
        ChangesError::MalformedSince,
        ChangesError::MalformedTime,
        ChangesError::Filter { error: name(), reason: reason() },
        ChangesError::Script(thrown("forbidden")),
    ];
    let views = [
        ViewError::ImpossibleRange { descending: false },
        ViewError::NoView,
        ViewError::PartitionNeeded,
        ViewError::PartitionUnknown,
        ViewError::Script(thrown("forbidden")),
        ViewError::StateGone,
        ViewError::StatesFull,
        ViewError::Stopped,
    ];
    let selectors = [SelectorErrorKind::Refused, SelectorErrorKind::ModArgument].map(|kind| SelectorError {
        kind,
        name: "NAME",
        reason: reason(),
    });
    table("ReadError", reads)
        + &table("TokenError", [TokenError::Behind, TokenError::OtherDatabase])
        + &table("DesignLookupError", designs)
        + &table("ChangesError", changes)
        + &table("ViewError", views)
        + &table("SelectorError", selectors)
}

fn writes() -> String {
    use WriteError as E;
    let id = || DocId::new("ID");
    let writes = [
        E::AttachmentTooLarge { name: name() },
        E::Conflict,
        E::DatabaseGone,
        E::DigestMismatch { name: name() },
        E::DocumentTooLarge { id: name() },
        E::Forbidden { reason: Value::from("REASON") },
        E::Forbidden { reason: Value::Null },
        E::MissingAttachment,
        E::MissingRev,
        E::MissingStub { id: id(), name: name() },
        E::NotFound { deleted: false },
        E::NotFound { deleted: true },
        E::PartitionOverflow { id: id() },
        E::RevisionRequired,
        E::Unauthorized { reason: Value::from("REASON") },
        E::TooFewReplicas { answered: 1, wanted: 2 },
        E::UploadGone { name: name() },
        E::Unknown,
    ];
    let settings = [
        SettingError::IllegalPeriod,
        SettingError::IllegalMember,
        SettingError::IllegalLimit,
        SettingError::IllegalSecurity { reason: "REASON" },
        SettingError::NoMajority { answered: 1, replicas: 3 },
        SettingError::Undecided { answered: 1, replicas: 3 },
        SettingError::TooManyDocuments,
        SettingError::TooManyRevisions,
        SettingError::DatabaseGone,
    ];
    table("WriteError", writes) + &table("DraftError", drafts()) + &table("SettingError", settings)
}

fn drafts() -> Vec<DraftError> {
    use crate::document::draft::DraftErrorKind as K;
    [K::BadRequest, K::DocValidation, K::IllegalDocId, K::IllegalPartition]
        .map(|kind| DraftError { kind, reason: reason() })
        .into()
}

fn thrown(error: &str) -> ScriptError {
    ScriptError::Thrown { error: error.to_owned(), reason: Value::from("REASON") }
}

fn scripts() -> String {
    let names = [
        "bad_request",
        "conflict",
        "doc_validation",
        "forbidden",
        "illegal_docid",
        "method_not_allowed",
        "missing_stub",
        "not_acceptable",
        "not_found",
        "query_parse_error",
        "unauthorized",
        "anything else",
    ];
    let scripts = [
        ScriptError::Busy,
        ScriptError::Compilation { reason: reason() },
        ScriptError::Engine { reason: reason() },
        ScriptError::MissingKey { name: name() },
        ScriptError::Timeout,
        ScriptError::UnknownLanguage { language: name() },
    ];
    let designs = [
        DesignError::Compilation { reason: reason() },
        DesignError::Invalid { reason: reason() },
        DesignError::MissingFunction,
    ];
    table("ScriptError", scripts.into_iter().chain(names.map(thrown))) + &table("DesignError", designs)
}

fn replications() -> String {
    use ReplicateError as E;
    let url = || "URL".to_owned();
    let errors = [
        E::BadRequest(reason()),
        E::InvalidEndpoint,
        E::MissingEndpoint,
        E::BadFilterName,
        E::DatabaseMissing { url: url() },
        E::Unauthorized { url: url() },
        E::Forbidden { url: url() },
        E::NoFilter(reason()),
        E::WrongCredentials { origin: url(), user: name() },
        E::NotFound(reason()),
        E::NotYours,
        E::NotYoursToCancel,
        E::Cancelled,
        E::NotAvailable(reason()),
        E::TooMany,
        E::Conflict,
        E::Recreated { url: url() },
        E::Gone { url: url(), what: name() },
        E::WrongLength { name: name() },
        E::MissingStub,
        E::TooLarge,
        E::RequestTooLarge,
        E::Failed { error: name(), reason: reason() },
    ];
    table("ReplicateError", errors)
}

/// What handlers say themselves, and what comes of calls to other nodes.
fn own() -> String {
    let node = NodeName::from("settee@127.0.0.1");
    let calls = [CallError::Down, CallError::Refused(reason()), CallError::Unknown(reason())];
    let problems = [
        Problem::query_parse("REASON"),
        Problem::invalid_json(),
        Problem::unread_json(b"[1"),
        Problem::unread_json(&vec![b'['; crate::limits::JSON_DEPTH_MAX + 1]),
        Problem::missing(),
        Problem::no_database(),
        Problem::method_not_allowed("GET,HEAD"),
        Problem::body_too_large(),
        Problem::bad_content_type("REASON"),
        Problem::too_many_requests(),
        Problem::not_implemented("REASON"),
        Problem::internal("REASON"),
        Problem::damaged(),
        Problem::unavailable("REASON").retry_later(),
    ];
    table("Problem", problems) + &table("CallError", calls.map(|error| Problem::of_call(&node, error)))
}

#[test]
fn every_error_has_its_answer() {
    let text = [auth(), databases(), reads(), writes(), scripts(), replications(), own()].concat();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("errors", text);
    });
}
