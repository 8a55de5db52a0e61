//! The requests of a conversation as shell commands, for a reader who wants to see an answer for himself.
//!
//! Names of databases and users are written out, what a step binds becomes a shell variable, which needs `jq` where it
//! comes from a JSON body. The address is the shell variable `URL`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::transcript::{Body, Step};

/// The longest body that is written into a command, bytes.
const BODY_MAX: usize = 4_000;

/// The commands for these steps, the first of which sets the address. The last one shows its whole answer: that is the
/// one that somebody wants to see.
pub fn commands(authority: &str, steps: &[Step]) -> Vec<String> {
    let mut out = vec![format!("URL=http://ADMIN:PASSWORD@{authority}")];
    let last = steps.len().saturating_sub(1);
    out.extend(steps.iter().enumerate().map(|(n, step)| command(authority, step, n == last)));
    out
}

/// The command of one step. One that binds a variable sets it, unless its answer is to be `shown`.
fn command(authority: &str, step: &Step, shown: bool) -> String {
    if !step.raw.is_empty() {
        let text = step.raw.concat().replace('\r', "\\r").replace('\n', "\\n").replace('%', "%%");
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "5984"));
        return format!("printf {} | nc {host} {port}", quoted(authority, &text));
    }
    let mut out = String::new();
    let url = match step.who.as_str() {
        "admin" => "\"$URL\"".to_owned(),
        _ => format!("http://{authority}"),
    };
    match step.method.as_str() {
        "HEAD" => out.push_str(" --head"),
        method => out.push_str(&format!(" -X {method}")),
    }
    if step.who != "admin" && step.who != "none" {
        out.push_str(&format!(" -u {}", quoted(authority, &step.who)));
    }
    let named = |name: &str| step.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !step.no_accept && !named("accept") {
        out.push_str(" -H 'Accept: application/json'");
    }
    if matches!(step.body, Some(Body::Json(_))) && !named("content-type") {
        out.push_str(" -H 'Content-Type: application/json'");
    }
    for (name, value) in &step.headers {
        let header = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
        out.push_str(&format!(" -H {}", quoted(authority, &header)));
    }
    let path = quoted(authority, &step.target);
    out.push_str(&format!(" --path-as-is -g {url}{path}"));
    let before = match &step.body {
        None => String::new(),
        Some(Body::Bytes(bytes)) => {
            out.push_str(" --data-binary @-");
            format!("printf %s {} | base64 -d | ", quoted(authority, &STANDARD.encode(bytes)))
        }
        Some(Body::Json(json)) => {
            out.push_str(&format!(" --data-binary {}", body(authority, &json.to_text(false))));
            String::new()
        }
        Some(Body::Text(text)) => {
            out.push_str(&format!(" --data-binary {}", body(authority, text)));
            String::new()
        }
    };
    if step.open {
        out.push_str(&format!(" --max-time {}", step.timeout.map_or(5, |t| t.as_secs().max(1))));
    }
    let bound = step.bind.first().filter(|_| !shown);
    let Some((name, place)) = bound else { return format!("{before}curl -si{out}") };
    match place.split_once(':') {
        Some(("header", header)) => {
            format!("{name}=$({before}curl -si{out} | sed -n 's/^{header}: //Ip' | tr -d '\\r')")
        }
        Some(("cookie", cookie)) => {
            format!("{name}=$({before}curl -si{out} | sed -n 's/.*{cookie}=\\([^;]*\\).*/\\1/p')")
        }
        _ => format!("{name}=$({before}curl -s{out} | jq -r '{}')", jq(place)),
    }
}

fn body(authority: &str, text: &str) -> String {
    match text.char_indices().nth(BODY_MAX) {
        None => quoted(authority, text),
        Some((at, _)) => format!("{}  # cut: {} bytes in all", quoted(authority, &text[..at]), text.len()),
    }
}

/// A JSON pointer as a path of `jq`.
fn jq(pointer: &str) -> String {
    let segments = pointer.split('/').skip(1).map(|segment| match segment.parse::<usize>() {
        Ok(number) => format!("[{number}]"),
        Err(_) => format!("[\"{}\"]", segment.replace("~1", "/").replace("~0", "~")),
    });
    format!(".{}", segments.collect::<String>())
}

/// Text in quotes for a shell: variables that are known beforehand are written out, the others stay variables.
fn quoted(authority: &str, text: &str) -> String {
    let mut out = String::from("'");
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at].replace('\'', "'\\''"));
        let name = rest[at + 2..].split('}').next().unwrap_or_default();
        match name {
            "db" | "db2" | "db3" | "db4" | "user" | "user2" => out.push_str(&format!("conformance-{name}")),
            "host" => out.push_str(authority),
            "base" => out.push_str(&format!("http://{authority}")),
            "authbase" => out.push_str("'\"$URL\"'"),
            "admin" | "password" => out.push_str(&name.to_uppercase()),
            name => out.push_str(&format!("'\"${name}\"'")),
        }
        rest = rest[at + 2 + name.len()..].strip_prefix('}').unwrap_or_default();
    }
    out.push_str(&rest.replace('\'', "'\\''"));
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::commands;
    use crate::json::Value;
    use crate::transcript::Case;

    #[test]
    fn steps_become_commands_of_a_shell() {
        let text = r#"{"title":"t","spec":"s","steps":[
            {"do":"PUT /${db}/it's","body":{"a":"${user}"},"bind":{"rev":"/rev"},"response":{"status":201}},
            {"do":"DELETE /${db}/it's?rev=${rev}","as":"a:b","response":{"status":200}},
            {"do":"HEAD /","as":"none","headers":{"Accept":""},"bind":{"e":"header:ETag"},"response":{"status":200}}]}"#;
        let case = Case::read("c", "n", &Value::parse(text.as_bytes()).expect("JSON")).expect("a case");
        let commands = commands("127.0.0.1:5984", &case.steps);
        assert_eq!(
            commands,
            [
                "URL=http://ADMIN:PASSWORD@127.0.0.1:5984",
                "rev=$(curl -s -X PUT -H 'Accept: application/json' -H 'Content-Type: application/json' --path-as-is -g \"$URL\"'/conformance-db/it'\\''s' --data-binary '{\"a\": \"conformance-user\"}' | jq -r '.[\"rev\"]')",
                "curl -si -X DELETE -u 'a:b' -H 'Accept: application/json' --path-as-is -g http://127.0.0.1:5984'/conformance-db/it'\\''s?rev='\"$rev\"''",
                "curl -si --head -H 'Accept;' --path-as-is -g http://127.0.0.1:5984'/'",
            ]
        );
    }
}
