//! A whole server as one side of a migration: its list of databases, their settings, their local documents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::super::error::{ReplicateError, Result};
use super::super::remote;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::wire::client::{Call, Client, Patience};
use crate::wire::dial::Dialer;
use crate::wire::tls::{Connector, Trust};
use crate::wire::url::{Login, Url, encode};
use crate::world::Env;

/// The address of a server and the credentials for it.
#[derive(Clone, Debug)]
pub struct Address {
    url: Url,
    login: Option<Login>,
}

impl Address {
    /// Reads `http://name:password@host:port/prefix`. `login`: `name:password`, for an address without credentials.
    ///
    /// # Errors
    /// [`ReplicateError::BadRequest`] for anything else.
    pub fn parse(text: &str, login: Option<&str>) -> Result<Address> {
        let bad =
            |what: &str| ReplicateError::BadRequest(format!("{what}: expected http(s)://[NAME:PASSWORD@]HOST:PORT"));
        let shown = text.rsplit_once('@').map_or(text, |(_, address)| address);
        let (mut url, own) = Url::parse(text).map_err(|_| bad(shown))?;
        if url.query.is_some() {
            return Err(bad(shown));
        }
        url.path = url.path.trim_end_matches('/').to_owned();
        let given = login.and_then(|login| login.split_once(':'));
        let given = given.map(|(name, password)| Login { name: name.to_owned(), password: password.to_owned() });
        Ok(Address { url, login: own.or(given) })
    }

    /// The endpoint of a database as the body of `_replicate` names it.
    pub(super) fn endpoint(&self, database: &str) -> Value {
        let mut out = Object::new();
        out.push("url", format!("{}/{}", self.url, encode(database)));
        if let Some(login) = &self.login {
            let mut basic = Object::new();
            basic.push("username", login.name.as_str());
            basic.push("password", login.password.as_str());
            let mut auth = Object::new();
            auth.push("basic", basic);
            out.push("auth", auth);
        }
        Value::Object(out)
    }

    /// The address without credentials.
    pub fn shown(&self) -> String {
        self.url.to_string()
    }
}

/// A server that answers requests outside of the replication protocol.
pub(super) struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

/// What a server tells of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// Documents, deleted ones included.
    pub documents: u64,
    /// Whether documents are placed by the partition in their ids.
    pub partitioned: bool,
}

impl Info {
    fn of(info: &Object) -> Info {
        let count = |name: &str| info.get(name).and_then(Value::as_u64).unwrap_or(0);
        let props = info.get("props").and_then(Value::as_object);
        Info {
            documents: count("doc_count") + count("doc_del_count"),
            partitioned: props.and_then(|props| props.get("partitioned")?.as_bool()).unwrap_or(false),
        }
    }
}

/// The statuses of a server that does not have what is asked for.
const LACKING: [u16; 3] = [404, 405, 501];
/// The same where a server may take the name for that of a document, and refuse it.
const LACKING_OR_REFUSED: [u16; 4] = [400, 404, 405, 501];

impl Server {
    /// The server at an address. Nothing is sent yet.
    pub fn new(env: &Env, address: &Address, patience: Patience, trust: Trust) -> Server {
        let dialer = Dialer::new(env, Some(Connector::new(env, trust, None)));
        let client = Client::dialing(env, patience, dialer, limits::CLIENT_CONNECTIONS, None);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(Login { name, password }) = &address.login {
            let credential = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
            // Base64 text is always a header value.
            headers.extend(HeaderValue::from_str(&credential).ok().map(|value| (AUTHORIZATION, value)));
        }
        Server { client, url: address.url.clone(), headers }
    }

    /// Sends a request and reads the answer as JSON; an answer that is no JSON is null.
    pub async fn ask(&self, method: Method, below: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let mut url = self.url.clone();
        let (path, query) = below.split_once('?').map_or((below, None), |(path, query)| (path, Some(query)));
        url.path.push_str(path);
        url.query = query.map(str::to_owned);
        let mut headers = self.headers.clone();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.map(|body| Bytes::from(body.to_vec())).unwrap_or_default();
        let call = Call { method, url, headers, body };
        let (status, value, _) = remote::read(&self.client, &call, limits::REPLICATION_DOCUMENT_BYTES).await?;
        Ok((status, value))
    }

    /// [`Server::ask`] for requests of which only success is an answer.
    pub async fn must(&self, method: Method, below: &str, body: Option<&Value>) -> Result<Value> {
        let (status, answer) = self.ask(method.clone(), below, body).await?;
        if status.is_success() { Ok(answer) } else { Err(self.failure(&method, below, status, &answer)) }
    }

    fn failure(&self, method: &Method, below: &str, status: StatusCode, answer: &Value) -> ReplicateError {
        let (error, reason) = remote::error_of(answer);
        let path = below.split('?').next().unwrap_or_default();
        ReplicateError::failed(error, format!("{method} {}{path} answered {status}: {reason}", self.url))
    }

    /// The names of all databases.
    pub async fn databases(&self) -> Result<Vec<String>> {
        let answer = self.must(Method::GET, "/_all_dbs", None).await?;
        let names = answer.as_array().unwrap_or_default();
        Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }

    /// What the server tells of some databases, in their order; `None` for one that is not there any more.
    pub async fn infos(&self, names: &[String]) -> Result<Vec<Option<Info>>> {
        let mut body = Object::new();
        body.push("keys", Value::Array(names.iter().map(|name| Value::from(name.as_str())).collect()));
        let (status, answer) = self.ask(Method::POST, "/_dbs_info", Some(&Value::Object(body))).await?;
        if let (true, Some(rows)) = (status.is_success(), answer.as_array()) {
            let row = |row: &Value| Some(Info::of(row.as_object()?.get("info")?.as_object()?));
            return Ok(rows.iter().map(row).collect());
        }
        // CouchDB before 2.2, and others.
        let mut out = Vec::new();
        for name in names {
            let (_, answer) = self.ask(Method::GET, &format!("/{}", encode(name)), None).await?;
            out.push(answer.as_object().filter(|info| info.contains("doc_count")).map(Info::of));
        }
        Ok(out)
    }

    /// Makes a database where it is not there.
    pub async fn create(&self, name: &str, parameters: &[(&str, String)]) -> Result<()> {
        let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let below = format!("/{}?{}", encode(name), query.join("&"));
        let (status, answer) = self.ask(Method::PUT, below.trim_end_matches('?'), None).await?;
        match status.as_u16() {
            200..=299 | 412 => Ok(()),
            _ => Err(self.failure(&Method::PUT, &below, status, &answer)),
        }
    }

    /// A value kept for a database, such as `_security`; `None` where the server has no such value.
    pub async fn setting(&self, database: &str, name: &str) -> Result<Option<Value>> {
        self.get_unless(&format!("/{}/{name}", encode(database)), &LACKING).await
    }

    /// What a GET answers; `None` where that is one of these statuses.
    async fn get_unless(&self, below: &str, lacking: &[u16]) -> Result<Option<Value>> {
        let (status, answer) = self.ask(Method::GET, below, None).await?;
        match status.is_success() {
            true => Ok(Some(answer)),
            false if lacking.contains(&status.as_u16()) => Ok(None),
            false => Err(self.failure(&Method::GET, below, status, &answer)),
        }
    }

    /// A value that only some servers have. Others take its name for that of a document, and answer 400 as well.
    pub async fn setting_of_some(&self, database: &str, name: &str) -> Result<Option<Value>> {
        self.get_unless(&format!("/{}/{name}", encode(database)), &LACKING_OR_REFUSED).await
    }

    /// Sets such a value.
    pub async fn set(&self, database: &str, name: &str, value: &Value) -> Result<()> {
        self.must(Method::PUT, &format!("/{}/{name}", encode(database)), Some(value)).await.map(|_| ())
    }

    /// The local documents after the id `after`, at most `limit`; `None` where the server does not list them.
    pub async fn local_documents(&self, database: &str, after: &str, limit: usize) -> Result<Option<Vec<Object>>> {
        let start = encode(&String::from_utf8_lossy(&Value::from(after).to_vec()));
        let query = if after.is_empty() { String::new() } else { format!("&startkey={start}") };
        let below = format!("/{}/_local_docs?include_docs=true&limit={}{query}", encode(database), limit + 1);
        let Some(answer) = self.get_unless(&below, &LACKING_OR_REFUSED).await? else { return Ok(None) };
        let rows = answer.as_object().and_then(|answer| answer.get("rows")?.as_array()).unwrap_or_default();
        let doc = |row: &Value| row.as_object()?.get("doc")?.as_object().cloned();
        let is_after = |doc: &Object| doc.get("_id").and_then(Value::as_str) != Some(after);
        Ok(Some(rows.iter().filter_map(doc).filter(is_after).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn an_address_has_no_database_and_may_have_a_prefix() {
        let address = Address::parse("https://adm:p%40ss@h:6984/couch/", None).unwrap();
        assert_eq!(address.shown(), "https://h:6984/couch");
        let endpoint = String::from_utf8(address.endpoint("a/b").to_vec()).unwrap();
        let expected = r#"{"url":"https://h:6984/couch/a%2Fb","auth":{"basic":{"username":"adm","password":"p@ss"}}}"#;
        assert_eq!(endpoint, expected);
        assert!(Address::parse("h:5984", None).is_err() && Address::parse("http://h/?x=1", None).is_err());
    }

    #[test]
    fn credentials_beside_the_address_count_where_it_has_none() {
        let name = |address: Address| address.login.map(|login| login.name);
        assert_eq!(name(Address::parse("http://h", Some("a:b")).unwrap()).as_deref(), Some("a"));
        assert_eq!(name(Address::parse("http://c:d@h", Some("a:b")).unwrap()).as_deref(), Some("c"));
        let refused = Address::parse("ftp://name:secret@h", None).unwrap_err().text();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn the_size_of_a_database_counts_deleted_documents() {
        let info = json::parse(br#"{"doc_count":3,"doc_del_count":2,"props":{"partitioned":true}}"#).unwrap();
        assert_eq!(Info::of(info.as_object().unwrap()), Info { documents: 5, partitioned: true });
    }
}
