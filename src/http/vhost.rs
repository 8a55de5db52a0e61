//! Virtual hosts: the section `vhosts` says which path the requests of a host are for, as in CouchDB.
//!
//! A rule is `HOST = /PATH`; the host may have a port, and a path behind it that the request's must begin with and that
//! is dropped. A label of the host may be `:name`, the first one `*` for all labels that are left: the path then has
//! them in place of its segments `:name` and `*`. The rules are tried in descending order of their hosts: texts
//! before names, names before the asterisk.

use http::header::HeaderValue;
use http::request::Parts;
use http::uri::PathAndQuery;

use super::request::named_host;
use super::{Problem, Result};
use crate::config::Config;

/// Names what the client asked for where its host stands for a path, as in CouchDB.
pub const ASKED_PATH: &str = "x-couchdb-vhost-path";

/// What begins so is asked of the server, whatever the host.
const OF_THE_SERVER: [&str; 4] = ["_utils", "_uuids", "_session", "_users"];

/// A label of a host or a segment of a path; in the order in which rules are tried, from the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    All,
    Name(String),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    Number(u32),
    Any,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    labels: Vec<Piece>,
    port: Port,
    path: Vec<String>,
    target: Vec<Piece>,
}

/// The labels that names stand for, and those that an asterisk does; both from the last label on.
type Bound<'h> = (Vec<(String, &'h str)>, Vec<&'h str>);

/// Points a request to what its host stands for, if a rule is for that host.
///
/// # Errors
/// 400 where that is no path: the host does not stand for the server then.
pub fn apply(config: &Config, parts: &mut Parts) -> Result<()> {
    let sections = config.sections();
    let Some(section) = sections.get("vhosts") else { return Ok(()) };
    let Some(host) = named_host(&parts.headers) else { return Ok(()) };
    let mut rules: Vec<Rule> = section.iter().filter_map(|(host, target)| rule(host, target)).collect();
    rules.sort();
    let asked = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let Some((target, rest)) = rules.iter().rev().find_map(|rule| rule.bind(host, asked)) else {
        return Ok(());
    };
    let whole = if target == "/" && rest == "/" { target } else { target + &rest };
    let (Ok(target), Ok(asked)) = (whole.parse::<PathAndQuery>(), HeaderValue::from_str(&rest)) else {
        return Err(Problem::bad_request("The virtual host stands for what is no path."));
    };
    parts.uri = target.into();
    parts.headers.insert(ASKED_PATH, asked);
    Ok(())
}

fn rule(host: &str, target: &str) -> Option<Rule> {
    let (host, path) = host.split_once('/').unwrap_or((host, ""));
    let (labels, port) = labels(host);
    let labels: Vec<Piece> = labels.into_iter().map(piece).collect();
    let path = tokens(path, '/').map(str::to_owned).collect();
    (!labels.is_empty() && !target.is_empty()).then(|| Rule {
        labels,
        port,
        path,
        target: tokens(target, '/').map(piece).collect(),
    })
}

fn tokens(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).filter(|token| !token.is_empty())
}

fn piece(token: &str) -> Piece {
    match token.strip_prefix(':') {
        _ if token == "*" => Piece::All,
        Some(name) => Piece::Name(name.to_owned()),
        None => Piece::Text(token.to_owned()),
    }
}

/// The labels of a host and its port, if it names one.
fn labels(host: &str) -> (Vec<&str>, Port) {
    let (name, port) = match host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?))) {
        Some((name, port)) => (name, Port::Number(port)),
        None => (host, Port::Any),
    };
    (tokens(name, '.').collect(), port)
}

impl Rule {
    /// The path that a host stands for, and what of the path and query that were asked is left behind it.
    fn bind(&self, host: &str, asked: &str) -> Option<(String, String)> {
        let (labels, port) = labels(host);
        if self.port != Port::Any && self.port != port {
            return None;
        }
        let (names, left) = self.bind_labels(&labels)?;
        let (path, query) = asked.find('?').map_or((asked, ""), |at| asked.split_at(at));
        let first = path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default();
        let segments: Vec<&str> = tokens(path, '/').collect();
        let is_below = segments.len() >= self.path.len() && segments.iter().zip(&self.path).all(|(a, b)| a == b);
        if !is_below || OF_THE_SERVER.contains(&first) {
            return None;
        }
        let rest = format!("/{}{query}", segments[self.path.len()..].join("/"));
        let mut target = Vec::new();
        for piece in &self.target {
            match piece {
                Piece::Text(text) => target.push(text.as_str()),
                Piece::Name(name) => {
                    target.push(names.iter().rev().find(|(n, _)| n == name).map_or("undefined", |(_, label)| *label));
                }
                Piece::All => {
                    target.extend(&left);
                    break;
                }
            }
        }
        Some((format!("/{}", target.join("/")), rest))
    }

    fn bind_labels<'h>(&self, labels: &[&'h str]) -> Option<Bound<'h>> {
        let mut names = Vec::new();
        let mut labels = labels.iter().rev().copied();
        for (at, piece) in self.labels.iter().enumerate().rev() {
            match piece {
                Piece::All if at == 0 => {
                    let left: Vec<&str> = labels.collect();
                    return (!left.is_empty()).then_some((names, left));
                }
                Piece::All => _ = labels.next()?,
                Piece::Name(name) => names.push((name.clone(), labels.next()?)),
                Piece::Text(text) => _ = labels.next().filter(|label| label == text)?,
            }
        }
        labels.next().is_none().then_some((names, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::rule;

    fn bound(host: &str, target: &str, asked: (&str, &str)) -> Option<String> {
        let (to, rest) = rule(host, target)?.bind(asked.0, asked.1)?;
        Some(format!("{to} {rest}"))
    }

    #[test]
    fn hosts_stand_for_paths() {
        let to = |host, target, asked| bound(host, target, asked).unwrap_or_default();
        assert_eq!(to("a.example", "/db", ("a.example", "/doc//x?y=1")), "/db /doc/x?y=1");
        assert_eq!(to("a.example", "/db", ("a.example:5984", "/")), "/db /");
        assert_eq!(to("a.example:80", "/db", ("a.example:80", "/")), "/db /");
        assert_eq!(to("a.example/in", "/db", ("a.example", "/in/doc")), "/db /doc");
        assert_eq!(to("*.example", "/*", ("b.a.example", "/doc")), "/a/b /doc");
        let named = (":ddoc.:db.example", "/:db/_design/:ddoc/:none");
        assert_eq!(to(named.0, named.1, ("d.x.example", "/")), "/x/_design/d/undefined /");
    }

    #[test]
    fn other_hosts_and_places_of_the_server_do_not() {
        for (host, asked) in [
            ("a.example", ("b.example", "/")),
            ("a.example", ("a.example.org", "/")),
            ("a.example:80", ("a.example", "/")),
            ("a.example:80", ("a.example:81", "/")),
            ("a.example/in", ("a.example", "/out/doc")),
            ("*.example", ("example", "/")),
            (":db.example", ("b.a.example", "/")),
            ("a.example", ("a.example", "/_utils/x")),
            ("a.example", ("a.example", "/_session?next=/")),
            ("/in", ("a.example", "/in")),
        ] {
            assert_eq!(bound(host, "/db", asked), None, "{host} {asked:?}");
        }
        assert_eq!(bound("a.example", "", ("a.example", "/")), None);
    }

    #[test]
    fn texts_come_before_names_and_names_before_the_asterisk() {
        let mut rules: Vec<_> =
            ["*.example", "a.example", ":db.example"].iter().filter_map(|h| rule(h, "/db")).collect();
        rules.sort();
        let first = |host: &str| rules.iter().rev().position(|rule| rule.bind(host, "/").is_some());
        assert_eq!((first("a.example"), first("b.example"), first("b.a.example")), (Some(0), Some(1), Some(2)));
    }
}
