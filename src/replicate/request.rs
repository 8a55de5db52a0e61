//! The request of `POST /_replicate`: endpoints, options, and the identity that they make up. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest as _, Md5};

use super::error::{ReplicateError, Result};
use super::tuning::Wishes;
use crate::document::json::{Object, Value};
use crate::wire::dial::Proxy;
use crate::wire::hex;
use crate::wire::url::{Login, Url, decode};

/// A database on another server.
#[derive(Clone, Debug)]
pub struct RemoteEndpoint {
    /// Its address.
    pub url: Url,
    /// What every request carries, credentials included.
    pub headers: HeaderMap,
    /// The name of the credentials.
    pub user: Option<String>,
    /// By way of which server it is reached.
    pub proxy: Option<Proxy>,
}

/// One side of a replication.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A database of this server.
    Local(String),
    /// A database that is reached by HTTP.
    Remote(Box<RemoteEndpoint>),
}

impl Endpoint {
    fn parse(value: Option<&Value>, proxy: Option<Proxy>) -> Result<Endpoint> {
        let (text, members) = match value {
            None | Some(Value::Null) => return Err(ReplicateError::MissingEndpoint),
            Some(Value::String(text)) => (text.clone(), None),
            Some(Value::Object(members)) => match members.get("url").and_then(Value::as_str) {
                Some(url) => (url.to_owned(), Some(members)),
                None => return Err(ReplicateError::InvalidEndpoint),
            },
            Some(Value::Int(number)) => (number.to_string(), None),
            Some(_) => return Err(ReplicateError::InvalidEndpoint),
        };
        if !text.contains("://") {
            return Ok(Endpoint::Local(decode(text.trim_end_matches('/'))));
        }
        let (mut url, login) = Url::parse(&text).map_err(|_| ReplicateError::InvalidEndpoint)?;
        url.path = url.path.trim_end_matches('/').to_owned();
        let mut headers = HeaderMap::new();
        let mut user = None;
        let given = members.and_then(|members| members.get("auth")?.as_object()?.get("basic")?.as_object());
        let text = |basic: &Object, name: &str| basic.get(name).and_then(Value::as_str).map(str::to_owned);
        let given = given.map(|basic| Login {
            name: text(basic, "username").unwrap_or_default(),
            password: text(basic, "password").unwrap_or_default(),
        });
        if let Some(login) = given.or(login) {
            let credential = STANDARD.encode(format!("{}:{}", login.name, login.password));
            headers.insert(AUTHORIZATION, header_value(&format!("Basic {credential}"))?);
            user = Some(login.name);
        }
        for (name, value) in members.and_then(|m| m.get("headers")?.as_object()).into_iter().flat_map(Object::iter) {
            let name = HeaderName::try_from(name).map_err(|_| ReplicateError::InvalidEndpoint)?;
            headers.insert(name, header_value(value.as_str().unwrap_or_default())?);
        }
        let user = basic_name(&headers).or(user);
        Ok(Endpoint::Remote(Box::new(RemoteEndpoint { url, headers, user, proxy })))
    }

    /// The address without credentials, with a slash at its end; `base_url` is that of this server.
    pub fn shown(&self, base_url: &str) -> String {
        match self {
            // No database has this name, which is told when it is opened, as in CouchDB.
            Endpoint::Local(name) if name.is_empty() => format!("{base_url}/"),
            Endpoint::Local(name) => format!("{base_url}/{}/", crate::wire::url::encode(name)),
            Endpoint::Remote(remote) => format!("{}/", remote.url),
        }
    }

    /// The server by way of which it is reached, without credentials.
    pub fn proxy(&self) -> Option<String> {
        match self {
            Endpoint::Local(_) => None,
            Endpoint::Remote(remote) => remote.proxy.as_ref().map(Proxy::shown),
        }
    }

    /// What tells it from other endpoints: not its password.
    fn identity(&self) -> Value {
        match self {
            Endpoint::Local(name) => Value::from(name.as_str()),
            Endpoint::Remote(remote) => {
                let user = remote.user.as_deref().map_or(Value::Null, Value::from);
                let mut parts = vec![Value::from(remote.url.to_string()), user];
                // A source may show others other documents. Without headers the identity is that of earlier versions.
                parts.extend(other_headers(&remote.headers));
                Value::Array(parts)
            }
        }
    }
}

/// The headers that tell endpoints apart, by name: all but Basic credentials, whose name stands for them.
fn other_headers(headers: &HeaderMap) -> Option<Value> {
    let is_basic = |value: &[u8]| value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
    let others = headers.iter().filter(|(name, value)| *name != AUTHORIZATION || !is_basic(value.as_bytes()));
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    };
    let mut pairs: Vec<(String, String)> = others.map(pair).collect();
    pairs.sort();
    let pairs = pairs.into_iter().map(|(name, value)| Value::Array(vec![Value::from(name), Value::from(value)]));
    let pairs: Vec<Value> = pairs.collect();
    (!pairs.is_empty()).then_some(Value::Array(pairs))
}

/// The name in Basic credentials.
fn basic_name(headers: &HeaderMap) -> Option<String> {
    let (scheme, text) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let bytes = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(text.trim()).ok())??;
    Some(String::from_utf8_lossy(&bytes).split(':').next()?.to_owned())
}

fn header_value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| ReplicateError::InvalidEndpoint)
}

/// The filter that passes what a view emits something for.
pub(super) const VIEW_FILTER: &str = "_view";
/// The filter that passes design documents.
pub(super) const DESIGN_FILTER: &str = "_design";

/// Which changes are copied.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicationFilter {
    /// All.
    None,
    /// Those of these documents; sorted, each once.
    DocIds(Vec<String>),
    /// Those that a selector matches.
    Selector(Value),
    /// Those that a function of the source passes.
    Function {
        /// `design/name`, or the name of one that the source has itself, with a `_` in front.
        name: String,
        /// Parameters for the function.
        query: Object,
    },
}

/// A replication as asked for.
#[derive(Clone, Debug)]
pub struct Replication {
    /// Where from.
    pub source: Endpoint,
    /// Where to.
    pub target: Endpoint,
    /// Make the target if it is not there, with these parameters.
    pub create_target: Option<Vec<(String, String)>>,
    /// Go on when all is copied.
    pub continuous: bool,
    /// Which changes.
    pub filter: ReplicationFilter,
    /// Begin after this sequence of the source.
    pub since: Option<Value>,
    /// Leave losing leaves behind.
    pub winning_revs_only: bool,
    /// How it is to work.
    pub wishes: Wishes,
}

/// What a body of `POST /_replicate` asks for.
#[derive(Clone, Debug)]
pub enum Order {
    /// Run it.
    Start(Box<Replication>),
    /// End the replication of this id.
    CancelId(String),
    /// End the replication that was started by this.
    Cancel(Box<Replication>),
}

impl Order {
    /// Reads a body.
    ///
    /// # Errors
    /// As CouchDB 3.5 was measured to refuse (`conformance/cases/server`).
    pub fn parse(body: &Object) -> Result<Order> {
        let id = ["replication_id", "_local_id", "id"].iter().find_map(|name| body.get(name)?.as_str());
        let cancel = boolean(body, "cancel")?.unwrap_or(false);
        if let (true, Some(id)) = (cancel, id) {
            return Ok(Order::CancelId(id.to_owned()));
        }
        check_options(body)?;
        let asked = Box::new(Replication::parse(body)?);
        Ok(if cancel { Order::Cancel(asked) } else { Order::Start(asked) })
    }
}

impl Replication {
    /// Reads a body without looking at `cancel`, and less strictly than it is taken at first: what was once written
    /// to a document goes on to run, with options that are `null` for such as are not there.
    ///
    /// # Errors
    /// As [`Order::parse`].
    pub fn parse(body: &Object) -> Result<Replication> {
        let source = Endpoint::parse(body.get("source"), proxy_of(body, "source_proxy")?);
        let target = Endpoint::parse(body.get("target"), proxy_of(body, "target_proxy")?);
        // A missing side is told before what is wrong with the other.
        let missing = |side: &Result<Endpoint>| side.as_ref().is_err_and(|e| *e == ReplicateError::MissingEndpoint);
        if missing(&source) || missing(&target) {
            return Err(ReplicateError::MissingEndpoint);
        }
        let create = boolean(body, "create_target")?.unwrap_or(false);
        let parameters = create_parameters(body)?;
        Ok(Replication {
            source: source?,
            target: target?,
            create_target: create.then_some(parameters),
            continuous: boolean(body, "continuous")?.unwrap_or(false),
            filter: filter(body)?,
            since: body.get("since_seq").filter(|since| !since.is_null()).cloned(),
            winning_revs_only: boolean(body, "winning_revs_only")?.unwrap_or(false),
            wishes: Wishes::parse(body)?,
        })
    }

    /// The name of its checkpoints, 32 hexadecimal digits: the same for the same endpoints and filter on every node
    /// of the cluster `cluster_uuid`. `code`: the filter's text, as far as it is known; what another text left out is
    /// not yet copied.
    pub fn checkpoint_id(&self, cluster_uuid: &str, code: Option<&str>) -> String {
        let filter = match &self.filter {
            ReplicationFilter::None => Value::Null,
            ReplicationFilter::DocIds(ids) => Value::Array(ids.iter().map(|id| Value::from(id.as_str())).collect()),
            ReplicationFilter::Selector(selector) => selector.clone(),
            ReplicationFilter::Function { name, query } => {
                Value::Array(vec![Value::from(name.as_str()), Value::Object(query.clone())])
            }
        };
        let kind = match self.filter {
            ReplicationFilter::None => "all",
            ReplicationFilter::DocIds(_) => "doc_ids",
            ReplicationFilter::Selector(_) => "selector",
            ReplicationFilter::Function { .. } => "filter",
        };
        let mut parts = vec![
            Value::from(cluster_uuid),
            self.source.identity(),
            self.target.identity(),
            Value::from(kind),
            filter,
            Value::from(self.winning_revs_only),
        ];
        parts.extend(code.map(Value::from));
        hex::encode(&Md5::digest(Value::Array(parts).to_vec()))
    }

    /// The name of the job: the checkpoints', whatever the text of a filter, with what else tells jobs apart.
    pub fn job_id(&self, cluster_uuid: &str) -> String {
        let mut id = self.checkpoint_id(cluster_uuid, None);
        if self.continuous {
            id.push_str("+continuous");
        }
        if self.create_target.is_some() {
            id.push_str("+create_target");
        }
        id
    }
}

fn wrong(name: &str, kind: &str) -> ReplicateError {
    ReplicateError::BadRequest(format!("parameter `{name}` must be {kind}"))
}

/// Refuses options of the wrong type, the first in the order of the body, and those that exclude each other; `null` is
/// of the wrong type. CouchDB does so before it looks at the endpoints.
pub(super) fn check_options(body: &Object) -> Result<()> {
    for own in ["source_proxy", "target_proxy"] {
        if proxy(body, "proxy")?.is_some() && proxy(body, own)?.is_some() {
            return Err(ReplicateError::BadRequest(format!("`proxy` is mutually exclusive with `{own}`")));
        }
    }
    for (name, value) in body.iter() {
        let (is_right, kind) = match name {
            "cancel" | "create_target" | "winning_revs_only" | "continuous" | "use_bulk_get" => {
                (value.as_bool().is_some(), "a boolean")
            }
            "create_target_params" | "selector" => (value.as_object().is_some(), "a JSON object"),
            "query_params" => (value.as_object().is_some(), "an object"),
            "doc_ids" => (value.is_null() || value.as_array().is_some(), "an array"),
            _ => continue,
        };
        if !is_right {
            return Err(wrong(name, kind));
        }
    }
    let is_given = |name: &&str| body.get(name).is_some_and(|value| !value.is_null());
    match ["doc_ids", "filter", "selector"].iter().filter(|name| is_given(name)).count() {
        0 | 1 => Ok(()),
        _ => Err(exclusive()),
    }
}

fn exclusive() -> ReplicateError {
    ReplicateError::BadRequest("`doc_ids`,`filter`,`selector` are mutually exclusive".to_owned())
}

/// A member that may be absent or null, but not of another type.
fn optional<'a, T>(
    body: &'a Object,
    name: &str,
    kind: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>> {
    match body.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| wrong(name, kind)),
    }
}

pub(super) fn boolean(body: &Object, name: &str) -> Result<Option<bool>> {
    optional(body, name, "a boolean", Value::as_bool)
}

/// Numbers may come as text, as CouchDB takes them.
pub(super) fn number(body: &Object, name: &str) -> Result<Option<u64>> {
    optional(body, name, "a non-negative integer", |v| v.as_u64().or_else(|| v.as_str()?.parse().ok()))
}

fn proxy(body: &Object, name: &str) -> Result<Option<Proxy>> {
    let text = optional(body, name, "a string", Value::as_str)?.filter(|text| !text.is_empty());
    text.map(|text| Proxy::parse(text).map_err(|_| wrong(name, "the URL of a proxy"))).transpose()
}

/// The proxy of one side: its own, else that of both.
fn proxy_of(body: &Object, own: &str) -> Result<Option<Proxy>> {
    Ok(proxy(body, own)?.or(proxy(body, "proxy")?))
}

fn create_parameters(body: &Object) -> Result<Vec<(String, String)>> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => String::from_utf8_lossy(&other.to_vec()).into_owned(),
    };
    let given = optional(body, "create_target_params", "a JSON object", Value::as_object)?;
    Ok(given.into_iter().flat_map(Object::iter).map(|(name, value)| (name.to_owned(), text(value))).collect())
}

fn filter(body: &Object) -> Result<ReplicationFilter> {
    let ids = optional(body, "doc_ids", "an array", Value::as_array)?;
    let selector = optional(body, "selector", "a JSON object", |v| v.as_object().map(|_| v))?;
    let name = optional(body, "filter", "a string", Value::as_str)?;
    let query = optional(body, "query_params", "an object", Value::as_object)?;
    match (ids, selector, name) {
        (None, None, None) => Ok(ReplicationFilter::None),
        (Some(ids), None, None) => {
            let one = |id: &Value| id.as_str().map(decode_id).ok_or_else(|| wrong("doc_ids", "an array of strings"));
            let mut ids = ids.iter().map(one).collect::<Result<Vec<String>>>()?;
            ids.sort();
            ids.dedup();
            Ok(ReplicationFilter::DocIds(ids))
        }
        (None, Some(selector), None) => Ok(ReplicationFilter::Selector(selector.clone())),
        (None, None, Some(name)) => {
            let query = query.cloned().unwrap_or_default();
            check_filter_name(name, &query)?;
            Ok(ReplicationFilter::Function { name: name.to_owned(), query })
        }
        _ => Err(exclusive()),
    }
}

/// The source's own filters have names with a `_` in front; others are `design/name`. Of the former, [`VIEW_FILTER`]
/// says in its query which view is meant.
fn check_filter_name(name: &str, query: &Object) -> Result<()> {
    if name == VIEW_FILTER {
        let view = query.get("view").and_then(Value::as_str).and_then(|view| view.split_once('/'));
        return match view {
            Some((_, view)) if !view.contains('/') => Ok(()),
            _ => Err(ReplicateError::BadRequest("Invalid `view` parameter.".to_owned())),
        };
    }
    if name.starts_with('_') || name.contains('/') { Ok(()) } else { Err(ReplicateError::BadFilterName) }
}

/// `doc_ids` come URL-encoded, with `+` for a space (as CouchDB 3.5 was measured).
fn decode_id(id: &str) -> String {
    decode(&id.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn body(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn refused(text: &str) -> ReplicateError {
        Order::parse(&body(text)).unwrap_err()
    }

    fn started(text: &str) -> Replication {
        match Order::parse(&body(text)).unwrap() {
            Order::Start(replication) => *replication,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bad_bodies_are_refused_as_recorded() {
        let bad = |reason: &str| ReplicateError::BadRequest(reason.to_owned());
        for text in ["{}", r#"{"source":"a"}"#, r#"{"target":"a","source":null}"#] {
            assert_eq!(refused(text), ReplicateError::MissingEndpoint, "{text}");
        }
        assert_eq!(refused(r#"{"source":{"headers":{}},"target":"b"}"#), ReplicateError::InvalidEndpoint);
        let with = |more: &str| refused(&format!(r#"{{"source":"a","target":"b",{more}}}"#));
        assert_eq!(with(r#""continuous":"x""#), bad("parameter `continuous` must be a boolean"));
        assert_eq!(with(r#""doc_ids":"x""#), bad("parameter `doc_ids` must be an array"));
        let exclusive = "`doc_ids`,`filter`,`selector` are mutually exclusive";
        assert_eq!(with(r#""doc_ids":[],"selector":{}"#), bad(exclusive));
        assert_eq!(with(r#""filter":"x""#), ReplicateError::BadFilterName);
        for query in ["", r#","query_params":{"view":"v"}"#, r#","query_params":{"view":"f/v/w"}"#] {
            assert_eq!(with(&format!(r#""filter":"_view"{query}"#)), bad("Invalid `view` parameter."));
        }
        for value in [r#""x""#, "5"] {
            let more = format!(r#""create_target_params":{value}"#);
            assert_eq!(with(&more), bad("parameter `create_target_params` must be a JSON object"));
        }
    }

    #[test]
    fn options_count_before_endpoints_and_null_is_none_of_them() {
        let bad = |reason: &str| ReplicateError::BadRequest(reason.to_owned());
        let boolean = |name: &str| bad(&format!("parameter `{name}` must be a boolean"));
        assert_eq!(refused(r#"{"continuous":5}"#), boolean("continuous"));
        assert_eq!(refused(r#"{"winning_revs_only":1,"continuous":1,"source":"a"}"#), boolean("winning_revs_only"));
        assert_eq!(
            refused(r#"{"doc_ids":[],"selector":{}}"#),
            bad("`doc_ids`,`filter`,`selector` are mutually exclusive")
        );
        for name in ["cancel", "create_target", "winning_revs_only", "continuous", "use_bulk_get"] {
            let text = format!(r#"{{"source":"a","target":"b","{name}":null}}"#);
            assert_eq!(refused(&text), boolean(name), "{name}");
        }
        let with = |more: &str| refused(&format!(r#"{{"source":"a","target":"b",{more}}}"#));
        assert_eq!(with(r#""selector":null"#), bad("parameter `selector` must be a JSON object"));
        assert_eq!(with(r#""query_params":null"#), bad("parameter `query_params` must be an object"));
        assert_eq!(started(r#"{"source":"a","target":"b","doc_ids":null}"#).filter, ReplicationFilter::None);
        // Documents that were taken before such options were refused go on to run.
        let stored = body(r#"{"source":"a","target":"b","continuous":null,"selector":null}"#);
        assert_eq!(
            Replication::parse(&stored).map(|stored| (stored.continuous, stored.filter)),
            Ok((false, ReplicationFilter::None))
        );
    }

    #[test]
    fn endpoints_are_names_urls_or_objects() {
        let found = started(
            r#"{"source":{"url":"http://h:1/d%2Fs/","auth":{"basic":{"username":"u","password":"p"}},
                "headers":{"x-y":"z"}},"target":"b"}"#,
        );
        assert_eq!(found.source.shown(""), "http://h:1/d%2Fs/");
        assert_eq!(found.target.shown("http://here"), "http://here/b/");
        let Endpoint::Remote(remote) = &found.source else { panic!("a remote one") };
        assert_eq!(remote.headers.get(AUTHORIZATION).unwrap(), "Basic dTpw");
        assert_eq!(remote.headers.get("x-y").unwrap(), "z");
        assert_eq!(started(r#"{"source":5,"target":"b"}"#).source.shown("http://h"), "http://h/5/");
    }

    #[test]
    fn each_side_may_have_a_proxy() {
        let found = started(
            r#"{"source":"http://h/a","target":"http://h/b","source_proxy":"http://p:1","target_proxy":"socks5://q"}"#,
        );
        assert_eq!(found.source.proxy().as_deref(), Some("http://p:1"));
        assert_eq!(found.target.proxy().as_deref(), Some("socks5://q"));
        assert!(matches!(refused(r#"{"source":"a","target":"b","proxy":"p"}"#), ReplicateError::BadRequest(_)));
        let both = started(r#"{"source":"http://h/a","target":"http://h/b","proxy":"http://p:1"}"#);
        assert_eq!(
            [both.source.proxy(), both.target.proxy()],
            [Some("http://p:1".to_owned()), Some("http://p:1".to_owned())]
        );
        for own in ["source_proxy", "target_proxy"] {
            let text = format!(r#"{{"source":"a","target":"b","proxy":"http://p:1","{own}":"http://q:1"}}"#);
            let reason = format!("`proxy` is mutually exclusive with `{own}`");
            assert_eq!(refused(&text), ReplicateError::BadRequest(reason));
        }
    }

    #[test]
    fn ids_are_decoded_and_sorted() {
        let found = started(r#"{"source":"a","target":"b","doc_ids":["ü/1","a+b","a%2Bb","a b"]}"#);
        let expected = ["a b", "a+b", "ü/1"].map(str::to_owned).to_vec();
        assert_eq!(found.filter, ReplicationFilter::DocIds(expected));
    }

    #[test]
    fn the_identity_is_that_of_endpoints_and_filter() {
        let id = |text: &str| started(text).job_id("uuid");
        let plain = id(r#"{"source":"http://u:p@h/a","target":"b"}"#);
        assert_eq!(plain.len(), 32);
        assert_eq!(id(r#"{"source":"http://u:other@h/a/","target":"b","since_seq":3}"#), plain);
        let by_header =
            r#"{"source":{"url":"http://h/a","headers":{"Authorization":"Basic dTpvdGhlcg=="}},"target":"b"}"#;
        assert_eq!(id(by_header), plain, "the name in Basic credentials counts, not the password");
        let continuous = id(r#"{"source":"http://u:p@h/a","target":"b","continuous":true}"#);
        assert_eq!(continuous, format!("{plain}+continuous"));
        for other in [
            r#"{"source":"http://v:p@h/a","target":"b"}"#,
            r#"{"source":"http://u:p@h/a","target":"b","doc_ids":[]}"#,
            r#"{"source":"http://u:p@h/a","target":"b","winning_revs_only":true}"#,
            r#"{"source":{"url":"http://u:p@h/a","headers":{"X-A":"1"}},"target":"b"}"#,
            r#"{"source":{"url":"http://h/a","headers":{"Authorization":"Bearer dTpw"}},"target":"b"}"#,
        ] {
            assert_ne!(id(other), plain, "{other}");
        }
    }

    #[test]
    fn cancel_names_an_id_or_a_body() {
        assert!(
            matches!(Order::parse(&body(r#"{"cancel":true,"id":"nope"}"#)), Ok(Order::CancelId(id)) if id == "nope")
        );
        let cancel = Order::parse(&body(r#"{"cancel":true,"source":"a","target":"b"}"#));
        assert!(matches!(cancel, Ok(Order::Cancel(_))));
    }
}
