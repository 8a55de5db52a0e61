//! Parameters of `_changes`, from the query string and the POST body. Pure.
//!
//! Names are case-insensitive; flags count only as the exact text `true`; of a POST body only what a filter takes from
//! it counts (CouchDB documentation, 'Changes feed', and as CouchDB 3.5 was measured to do).

use std::collections::BTreeSet;

use super::feed::Feed;
use super::selector::SelectorArgs;
use crate::coordinator::Since;
use crate::document::json::{self, Object, Value};
use crate::http::problem::Problem;
use crate::http::query::{self, Query};
use crate::limits;

/// Which documents a feed shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FilterArgs {
    /// All of them.
    #[default]
    None,
    /// `_doc_ids`: those with these ids.
    DocIds(BTreeSet<String>),
    /// `_design`: design documents.
    Design,
    /// `_selector`, with what the request's body asks for.
    Selector(SelectorArgs),
    /// `_view`, with `ddoc/view`.
    View(String),
    /// A filter function, as `ddoc/name`.
    Function(String),
}

/// All parameters of a feed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangesArgs {
    /// `feed`.
    pub feed: Feed,
    /// `since`, or the id of the last event seen.
    pub since: Since,
    /// `limit`; 0 acts as 1 (CouchDB documentation, 'Changes feed'), unless `[settee] follow` says otherwise.
    pub limit: Option<u64>,
    /// Newest first; `since` does not count then.
    pub descending: bool,
    /// Rows carry `doc`.
    pub include_docs: bool,
    /// Filters see `_conflicts`; with `include_docs` it is added.
    pub conflicts: bool,
    /// With `include_docs`: attachments with data.
    pub attachments: bool,
    /// With `include_docs`: encodings in attachment stubs.
    pub att_encoding_info: bool,
    /// `style=all_docs`: list every leaf.
    pub all_leaves: bool,
    /// `heartbeat`: how often a feed without changes shows that it is alive, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// `timeout` in milliseconds.
    pub timeout_ms: Option<u64>,
    /// `time_limit` in milliseconds: how long a feed that does not wait is read; its sequence tells how far that was.
    pub time_limit_ms: Option<u64>,
    /// Only every so many rows carry `seq`.
    pub seq_interval: Option<u64>,
    /// `filter`.
    pub filter: FilterArgs,
}

/// What a feed is asked for, of which `feed` and `since` count only when its filter was found.
#[derive(Debug)]
pub struct UnsettledArgs {
    /// All that can be told by now.
    pub args: ChangesArgs,
    /// What is wrong with `feed`, or else with `since`.
    wrong: Result<(), Problem>,
}

impl UnsettledArgs {
    /// All parameters.
    ///
    /// # Errors
    /// 400 for an unknown feed and for a malformed sequence.
    pub fn settle(self) -> Result<ChangesArgs, Problem> {
        self.wrong.map(|()| self.args)
    }
}

impl ChangesArgs {
    /// Reads a request: its query string, the `Last-Event-ID` header, and the body of a POST.
    ///
    /// # Errors
    /// 400 for values that cannot be read.
    pub fn read(query: &Query, last_event_id: Option<&str>, body: Option<&Object>) -> Result<UnsettledArgs, Problem> {
        let mut args = ChangesArgs::default();
        let (mut name_of_feed, mut since, mut filter) = ("normal", "0", "");
        // Of several values of these the first counts, as in CouchDB; of all others the last.
        let (view, doc_ids) = (query.get("view"), query.get("doc_ids"));
        for (name, value) in query.iter() {
            match name.to_ascii_lowercase().as_str() {
                "feed" => name_of_feed = value,
                "since" | "last-event-id" => since = value,
                "filter" => filter = value,
                lower => args.take(lower, value)?,
            }
        }
        args.filter = match (filter, body) {
            (name, _) if name.bytes().all(|byte| byte == b'/') => FilterArgs::None,
            ("_design", _) => FilterArgs::Design,
            ("_selector", body) => FilterArgs::Selector(SelectorArgs::read(body)?),
            ("_doc_ids", Some(body)) => FilterArgs::DocIds(ids(body.get("doc_ids"))?),
            ("_doc_ids", None) => {
                let value = json::parse(doc_ids.unwrap_or("null").as_bytes());
                FilterArgs::DocIds(ids(Some(&value.map_err(|_| Problem::bad_request("invalid UTF-8 JSON"))?))?)
            }
            ("_view", _) => match view.unwrap_or("") {
                "" => return Err(Problem::bad_request("`view` filter parameter is not provided.")),
                view => FilterArgs::View(designated(view, VIEW_FORM)?),
            },
            (name, _) if name.starts_with('_') => return Err(Problem::bad_request("unknown builtin filter name")),
            (name, _) => FilterArgs::Function(designated(name, FILTER_FORM)?),
        };
        let wrong = args.place(name_of_feed, since, last_event_id);
        Ok(UnsettledArgs { args, wrong })
    }

    /// Which feed it is, and where it begins.
    fn place(&mut self, name: &str, since: &str, last_event_id: Option<&str>) -> Result<(), Problem> {
        self.feed = feed(name)?;
        let last_event_id = last_event_id.filter(|_| self.feed == Feed::EventSource);
        self.since = Since::parse(last_event_id.unwrap_or(since))?;
        Ok(())
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match (name, value) {
            ("limit", number) => self.limit = Some(integer(number)?),
            ("timeout", number) => self.timeout_ms = Some(integer(number)?),
            ("stretch", number) => self.time_limit_ms = Some(integer(number)?),
            ("heartbeat", text) => self.heartbeat_ms = Some(heartbeat(text)?),
            ("seq_interval", number) => {
                let interval = integer(number).ok().filter(|n| *n > 0);
                self.seq_interval = Some(interval.ok_or_else(|| Problem::bad_request("invalid_seq_interval"))?);
            }
            ("style", "all_docs") => self.all_leaves = true,
            ("style", "main_only") => self.all_leaves = false,
            ("style", _) => return Err(Problem::bad_request("Supported `style` values: main_only, all_docs")),
            ("descending", "true") => self.descending = true,
            ("include_docs", "true") => self.include_docs = true,
            ("conflicts", "true") => self.conflicts = true,
            ("attachments", "true") => self.attachments = true,
            ("att_encoding_info", "true") => self.att_encoding_info = true,
            _ => {}
        }
        Ok(())
    }
}

const FILTER_FORM: &str = "`filter` must be of the form `designname/filtername`";
const VIEW_FORM: &str = "`view` must be of the form `designname/viewname`";

fn feed(name: &str) -> Result<Feed, Problem> {
    match name {
        "normal" => Ok(Feed::Normal),
        "longpoll" => Ok(Feed::LongPoll),
        "continuous" | "live" => Ok(Feed::Continuous),
        "eventsource" => Ok(Feed::EventSource),
        _ => Err(Problem::bad_request("Supported `feed` types: normal, continuous, live, longpoll, eventsource")),
    }
}

fn integer(text: &str) -> Result<u64, Problem> {
    let odd = || Problem::query_parse(format!("Invalid value for integer: \"{text}\""));
    query::positive(text).map_err(|_| odd())
}

fn heartbeat(text: &str) -> Result<u64, Problem> {
    match (text, query::integer(text)) {
        ("true", _) => Ok(limits::CHANGES_HEARTBEAT_MS),
        (_, Ok(ms)) if ms > 0 => Ok(ms.unsigned_abs()),
        (_, Ok(_)) => Err(Problem::bad_request("The heartbeat value should be a positive integer (in milliseconds).")),
        (_, Err(_)) => {
            Err(Problem::bad_request("Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."))
        }
    }
}

fn ids(value: Option<&Value>) -> Result<BTreeSet<String>, Problem> {
    let wrong = || Problem::bad_request("`doc_ids` filter parameter is not a list of doc ids.");
    let items = value.and_then(Value::as_array).ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

/// A name of the form `ddoc/name`; further slashes about it are no matter.
fn designated(text: &str, reason: &'static str) -> Result<String, Problem> {
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.len() == 2 { Ok(parts.join("/")) } else { Err(Problem::bad_request(reason)) }
}

#[cfg(test)]
mod tests {
    use super::{ChangesArgs, Feed, FilterArgs, Query, Since, UnsettledArgs};
    use crate::document::json::{self, Value};

    fn read(pairs: &[(&str, &str)]) -> Result<ChangesArgs, String> {
        let pairs = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let asked = ChangesArgs::read(&Query::from_pairs(pairs), Some("0"), None);
        asked.and_then(UnsettledArgs::settle).map_err(|p| p.reason.into_owned())
    }

    #[test]
    fn names_are_case_insensitive_and_flags_exact() {
        let args = read(&[("FEED", "live"), ("Include_Docs", "true"), ("descending", "1"), ("limit", "0")]).unwrap();
        assert_eq!(
            (args.feed, args.include_docs, args.descending, args.limit),
            (Feed::Continuous, true, false, Some(0))
        );
    }

    #[test]
    fn the_last_event_id_header_counts_for_events_only() {
        assert_eq!(read(&[("since", "now")]).unwrap().since, Since::Now);
        assert_eq!(read(&[("since", "x"), ("feed", "eventsource")]).unwrap().since, Since::Beginning);
        assert_eq!(read(&[("last-event-id", "now")]).unwrap().since, Since::Now);
    }

    #[test]
    fn wrong_values_are_refused() {
        for (name, value, reason) in [
            ("since", "", "Malformed sequence supplied in 'since' parameter."),
            ("since", "x", "Malformed sequence supplied in 'since' parameter."),
            ("feed", "", "Supported `feed` types: normal, continuous, live, longpoll, eventsource"),
            ("heartbeat", "0", "The heartbeat value should be a positive integer (in milliseconds)."),
            ("heartbeat", "x", "Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."),
            ("seq_interval", "0", "invalid_seq_interval"),
            ("stretch", "x", "Invalid value for integer: \"x\""),
            ("filter", "_odd", "unknown builtin filter name"),
            ("filter", "nofunction", "`filter` must be of the form `designname/filtername`"),
            ("filter", "_view", "`view` filter parameter is not provided."),
            ("filter", "_doc_ids", "`doc_ids` filter parameter is not a list of doc ids."),
        ] {
            assert_eq!(read(&[(name, value)]), Err(reason.to_owned()), "{name}={value}");
        }
        let filter_first = read(&[("feed", "x"), ("since", "x"), ("filter", "_odd")]);
        assert_eq!(filter_first, Err("unknown builtin filter name".to_owned()));
        let nameless = read(&[("filter", "_view"), ("view", "/")]);
        assert_eq!(nameless, Err("`view` must be of the form `designname/viewname`".to_owned()));
        assert_eq!(read(&[("heartbeat", "true")]).unwrap().heartbeat_ms, Some(60_000));
    }

    #[test]
    fn ids_come_from_the_body_of_a_post_and_from_the_query_of_a_get() {
        let args = read(&[("filter", "_doc_ids"), ("doc_ids", r#"["b","a"]"#)]).unwrap();
        let FilterArgs::DocIds(ids) = args.filter else { panic!("ids") };
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let Ok(Value::Object(body)) = json::parse(br#"{"doc_ids":["z"],"limit":1}"#) else { panic!("object") };
        let query = Query::parse("filter=_doc_ids");
        let args = ChangesArgs::read(&query, None, Some(&body)).unwrap().args;
        assert_eq!((args.filter, args.limit), (FilterArgs::DocIds(["z".to_owned()].into()), None));
        assert_eq!(read(&[("doc_ids", "[]")]).unwrap().filter, FilterArgs::None);
    }
}
