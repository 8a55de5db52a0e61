//! Writing documents: checks before anything is written, then the edits, split over the ranges.

use crate::coordinator::attachment::Staged;
use crate::coordinator::database::Database;
use crate::coordinator::error::WriteError;
use crate::coordinator::quorum::Written;
use crate::document::draft::Draft;
use crate::document::id::DocId;
use crate::document::revision::Revision;

/// How the documents of one request are to be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// `false`: store the revisions as they are (`new_edits=false`).
    pub new_edits: bool,
    /// How many copies must hold it for [`Written::Quorum`]; `None`: the majority.
    pub w: Option<u32>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { new_edits: true, w: None }
    }
}

/// One document to be written.
#[derive(Debug)]
pub struct WriteRequest {
    /// Where to; the draft's own id is not looked at.
    pub id: DocId,
    /// What to write. Its `rev` is what body, query and `If-Match` agreed on.
    pub draft: Draft,
    /// The uploads for the draft's `follows` entries, in their order.
    pub follows: Vec<Staged>,
}

/// A document was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// The revision it has now; `0-N` for a local document.
    pub rev: Revision,
    /// How many copies hold it.
    pub written: Written,
}

impl Database {
    /// Writes documents in request order; ranges are written concurrently.
    ///
    /// The outer error refuses the whole request and nothing was written: sizes, stubs, partitions, digests, missing
    /// revisions with `new_edits=false`. The inner ones are per document. The same id several times: the first is
    /// written, the others are judged after it. Local documents are written beside the others.
    pub async fn write(
        &self,
        requests: Vec<WriteRequest>,
        options: WriteOptions,
    ) -> Result<Vec<Result<WriteDone, WriteError>>, WriteError> {
        let _ = (requests, options);
        todo!()
    }

    /// [`Database::write`] for one document.
    pub async fn write_one(&self, request: WriteRequest, options: WriteOptions) -> Result<WriteDone, WriteError> {
        let mut results = self.write(vec![request], options).await?;
        // Invariant: `write` answers once per request.
        results.pop().expect("one result")
    }

    /// Checks the document and queues it (`batch=ok`): conflicts and later failures are not reported.
    pub async fn write_later(&self, request: WriteRequest) -> Result<(), WriteError> {
        let _ = request;
        todo!()
    }

    /// Deletes a document. [`WriteError::NotFound`] when it is not there or deleted already, then the revision counts.
    pub async fn delete(
        &self,
        id: &DocId,
        rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let _ = (id, rev, options);
        todo!()
    }

    /// Copies a document with its attachments, also from and to local documents.
    ///
    /// `source_rev` picks a revision (a tombstone is copied as one), `target_rev` is the revision that is replaced.
    pub async fn copy(
        &self,
        source: &DocId,
        source_rev: Option<Revision>,
        target: &DocId,
        target_rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let _ = (source, source_rev, target, target_rev, options);
        todo!()
    }
}
