//! Merging small segments, so that a search reads few and each document is written a few times only.

use std::convert::Infallible;
use std::ops::Range;

use bytes::Bytes;

use super::SearchIndex;
use super::open::{Lost, Opened, Share, damaged};
use super::record::{Keys, SearchHeader, SegmentInfo};
use super::write::{put_pieces, remove_segment, stored};
use crate::index::IndexError;
use crate::limits;
use crate::storage::WriteView;
use crate::world::Pool;
use crate::world::buggify::{Mutation, mutated, sometimes};

/// Pieces that one commit of a merge stores.
const PIECES_PER_COMMIT: usize = 4;

/// Segments that should become one: such of about one size that follow each other, or one of which half counts no more.
fn chosen(segments: &[SegmentInfo]) -> Option<Range<usize>> {
    let is_full = |segment: &SegmentInfo| segment.bytes >= limits::SEARCH_SEGMENT_BYTES / 2;
    let half_gone = segments.iter().position(|segment| segment.deleted * 2 > segment.documents);
    if let Some(at) = half_gone {
        return Some(at..at + 1);
    }
    // From the end on: the last ones are the smallest, but for what was deleted.
    let mut most = limits::SEARCH_SMALL_SEGMENT_BYTES;
    loop {
        let mut start = segments.len();
        let mut bytes = 0;
        while start > 0 && segments[start - 1].bytes <= most && !is_full(&segments[start - 1]) {
            let more = bytes + segments[start - 1].bytes;
            if more > limits::SEARCH_SEGMENT_BYTES {
                break;
            }
            (start, bytes) = (start - 1, more);
        }
        if segments.len() - start >= limits::SEARCH_MERGE_SEGMENTS {
            return Some(start..segments.len());
        }
        if most >= limits::SEARCH_SEGMENT_BYTES {
            return None;
        }
        most *= limits::SEARCH_MERGE_SEGMENTS as u64;
    }
}

impl SearchIndex {
    /// Merges segments where there are too many of one size. The caller holds the writer's lock.
    pub(super) async fn merge_some(&self, mut header: SearchHeader) -> Result<SearchHeader, IndexError> {
        while let Some(which) = chosen(&header.segments) {
            match self.merge(&header, which).await {
                Ok(Some(merged)) => header = merged,
                // Somebody removed the index.
                Ok(None) | Err(Lost::Gone | Lost::TooLarge) => break,
                Err(Lost::Failed(error)) => return Err(error),
            }
        }
        Ok(header)
    }

    async fn merge(&self, header: &SearchHeader, which: Range<usize>) -> Result<Option<SearchHeader>, Lost> {
        // Until it is committed: its input and its output are in memory.
        let _turn = self.open.merge_turn().await;
        let state = self.state(Pool::Build).await?;
        if state.header != *header {
            return Ok(None);
        }
        let mut some: Vec<Opened> = state.segments[which.clone()].to_vec();
        if mutated(Mutation::MergeForgetsDeletions) {
            some.iter_mut().for_each(Opened::forget_deletions);
        }
        let merged = self.on_segments(Pool::Build, Share::Large, &some, settee_search::segment::merge).await?;
        let merged = merged.map_err(|error| Lost::from(damaged(error)))?;
        let infos: Vec<SegmentInfo> = some.iter().map(|opened| opened.info).collect();
        self.store(header, &merged).await?;
        let (from, index) = (header.clone(), self.clone());
        let keys = Keys(self.replica.id(), self.definition.signature);
        let committed = self.env.spawn_with(async move {
            let work = move |view: &mut WriteView<'_>| {
                if stored(view, keys)?.as_ref() != Some(&from) {
                    return Ok(Ok::<_, Infallible>(None));
                }
                let mut header = from;
                let sum = |pick: fn(&SegmentInfo) -> u64| infos.iter().map(pick).sum::<u64>();
                let one = SegmentInfo {
                    id: header.next,
                    first: infos.first().map_or(0, |info| info.first),
                    last: infos.last().map_or(0, |info| info.last),
                    documents: sum(|info| info.documents) - sum(|info| info.deleted),
                    deleted: 0,
                    bytes: merged.len() as u64,
                };
                infos.iter().for_each(|info| remove_segment(view, keys, info));
                header.segments.splice(which, [one]);
                header.next += 1;
                view.put(keys.header(), header.encode());
                Ok(Ok(Some(header)))
            };
            let written = index.replica.write_records(work).await;
            index.open.note_change(index.cache_key());
            written.map(|Ok(header)| header)
        });
        let header = committed.await.ok_or(IndexError::Stopped)??;
        if header.is_some() {
            sometimes("search: segments were merged");
        }
        Ok(header)
    }

    /// Stores the pieces of the next segment, some in each commit: without a header that names them they count for
    /// nothing.
    async fn store(&self, header: &SearchHeader, bytes: &Bytes) -> Result<(), IndexError> {
        let (keys, segment) = (Keys(self.replica.id(), self.definition.signature), header.next);
        let step = PIECES_PER_COMMIT * limits::SEARCH_PIECE_BYTES;
        for (n, start) in (0..).zip((0..bytes.len()).step_by(step)) {
            let some = bytes.slice(start..bytes.len().min(start + step));
            let work = move |view: &mut WriteView<'_>| {
                put_pieces(view, keys, segment, n * PIECES_PER_COMMIT as u32, &some);
                Ok(Ok::<_, Infallible>(()))
            };
            self.replica.write_records(work).await.map(|Ok(())| ())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(sizes: &[u64]) -> Vec<SegmentInfo> {
        let one = |bytes: &u64| SegmentInfo { bytes: *bytes, documents: 10, ..SegmentInfo::default() };
        sizes.iter().map(one).collect()
    }

    #[test]
    fn small_segments_are_merged_and_full_ones_stay() {
        let (small, full) = (1000, limits::SEARCH_SEGMENT_BYTES);
        assert_eq!(chosen(&segments(&[small; 7])), None);
        assert_eq!(chosen(&segments(&[small; 8])), Some(0..8));
        assert_eq!(chosen(&segments(&[full; 20])), None);
        let mixed: Vec<u64> = [&[full; 3][..], &[200_000; 7], &[small; 8]].concat();
        assert_eq!(chosen(&segments(&mixed)), Some(10..18), "the smallest first");
        let next: Vec<u64> = [&[full; 3][..], &[200_000; 8]].concat();
        assert_eq!(chosen(&segments(&next)), Some(3..11));
    }

    #[test]
    fn a_segment_of_which_half_is_deleted_is_written_anew() {
        let mut some = segments(&[1000, 1000, 1000]);
        some[1].deleted = 5;
        assert_eq!(chosen(&some), None);
        some[1].deleted = 6;
        assert_eq!(chosen(&some), Some(1..2));
    }

    #[test]
    fn merging_ends() {
        let mut sizes: Vec<u64> = Vec::new();
        for n in 0..5000 {
            sizes.push(20_000 + n % 3);
            let mut merges = 0;
            while let Some(which) = chosen(&segments(&sizes)) {
                let sum = sizes[which.clone()].iter().sum();
                sizes.splice(which, [sum]);
                merges += 1;
                assert!(merges < 10);
            }
        }
        assert!(sizes.len() < 60 && sizes.iter().all(|bytes| *bytes <= limits::SEARCH_SEGMENT_BYTES), "{sizes:?}");
    }
}
