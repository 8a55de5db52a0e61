//! What the fuzz targets of requests reach of the handlers' own readers.

use super::changes::query::{ChangesArgs, UnsettledArgs};
use super::document::range::{Wanted, wanted};
use super::document::read_options::{ReadOptions, replicas, revision_list};
use super::query::view_query::ViewArgs;
use crate::http::Query;

/// Reads parameters as all handlers do.
pub fn fuzz_parameters(query: &Query) {
    // Whether they are right is no matter here.
    let _ = ViewArgs::of_view(query).map(|args| args.grouping());
    let _ = ViewArgs::from_query(query);
    let _ = ViewArgs::of_databases(query);
    let _ = ChangesArgs::read(query, None, None).map(UnsettledArgs::settle);
    let _ = ReadOptions::from_query(query);
    for (_, value) in query.iter() {
        let _ = replicas(value);
        let _ = revision_list(value);
    }
}

/// Reads a `Range` header; what is wanted lies within the body.
pub fn fuzz_range(header: &str, total: u64) {
    let within = |first: u64, last: u64| assert!(first <= last && last < total, "{first}-{last} of {total}");
    match wanted(Some(header), total) {
        Wanted::One(range) => within(range.first, range.last),
        Wanted::Several(ranges) => ranges.iter().for_each(|range| within(range.first, range.last)),
        _ => {}
    }
}
