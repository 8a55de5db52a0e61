//! `/_session`: the caller's identity, login and logout by cookie; and the login page at `/_utils/session.html`.

use std::net::IpAddr;

use http::StatusCode;
use http::header::SET_COOKIE;
use serde_json::json;

use crate::auth::{AuthError, Login, cookie, options};
use crate::document::json::Value;
use crate::http::response::encode_segment;
use crate::http::{Context, Problem, Query, Reply, Request, Result, Verb};
use crate::limits;

/// `/_session`, every method.
pub async fn handle(ctx: &Context, request: Request) -> Result<Reply> {
    match request.verb {
        Verb::Get => show(ctx, &request),
        Verb::Delete => logout(ctx, &request),
        _ => login(ctx, request).await,
    }
}

fn show(ctx: &Context, request: &Request) -> Result<Reply> {
    let user = &request.user;
    if user.name.is_none() && request.query.flag("basic") {
        return Err(Problem::unauthorized("Please login."));
    }
    let handlers: Vec<&str> = ctx.authenticator.handlers().iter().map(|h| h.name()).collect();
    let mut info = json!({"authentication_handlers": handlers});
    if !ctx.config.follows_couchdb() || options::names_users_db(&ctx.config) {
        info["authentication_db"] = options::users_db(&ctx.config).into();
    }
    if let Some(handler) = user.handler {
        info["authenticated"] = handler.name().into();
    }
    let body = json!({"ok": true, "userCtx": {"name": user.name, "roles": user.roles}, "info": info});
    Ok(Reply::value(StatusCode::OK, &body))
}

/// Ends the session, for everybody: an empty cookie takes the place of the one there was.
fn logout(ctx: &Context, request: &Request) -> Result<Reply> {
    let to = redirect(request, "next")?;
    Ok(leading(to, with_cookie(ctx, request, Reply::ok(StatusCode::OK), "")))
}

async fn login(ctx: &Context, mut request: Request) -> Result<Reply> {
    let form = read_form(&mut request).await?;
    let name = form.user_name()?;
    // Where a login leads to is looked at when it is known which place counts.
    match checked(ctx, &form, name, request.peer.ip()).await {
        Ok((login, value)) => {
            let body = json!({"ok": true, "name": name, "roles": login.user.roles});
            let next = redirect(&request, "next")?;
            Ok(leading(next, with_cookie(ctx, &request, Reply::value(StatusCode::OK, &body), &value)))
        }
        Err(error @ AuthError::WrongCredentials) => {
            let fail = redirect(&request, "fail")?;
            Ok(leading(fail, with_cookie(ctx, &request, Reply::from(Problem::from(error)), "")))
        }
        Err(error) => Err(error.into()),
    }
}

async fn checked(
    ctx: &Context,
    form: &Form,
    name: &str,
    peer: IpAddr,
) -> std::result::Result<(Login, String), AuthError> {
    let password = form.get("password").unwrap_or_default();
    let login = ctx.authenticator.login((name, password.as_bytes()), Some(peer)).await?;
    let value = ctx.authenticator.open_session(&login, form.get("token").unwrap_or_default()).await?;
    Ok((login, value))
}

fn with_cookie(ctx: &Context, request: &Request, reply: Reply, value: &str) -> Reply {
    let secure = request.base_url().starts_with("https:");
    reply.header(SET_COOKIE, &cookie::set_cookie(&ctx.config, value, secure, ctx.env.wall()))
}

/// The URL that a parameter sends the client to: always on this host, so that a link to a login cannot lead elsewhere.
fn redirect(request: &Request, parameter: &str) -> Result<Option<String>> {
    match request.query.get(parameter) {
        None => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(format!("{}{path}", request.base_url()))),
        Some(_) => Err(Problem::bad_request("path must begin with a /.")),
    }
}

/// The same body, as a redirect if there is a place to go.
fn leading(to: Option<String>, reply: Reply) -> Reply {
    match to {
        Some(url) => {
            let reply = reply.status(StatusCode::FOUND).header(http::header::LOCATION, &url);
            reply.header(http::header::CACHE_CONTROL, "must-revalidate")
        }
        None => reply,
    }
}

/// The fields of a login that are texts.
struct Form(Vec<(String, String)>);

impl Form {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// `name`, or `username`; both must be the same.
    fn user_name(&self) -> Result<&str> {
        match (self.get("name"), self.get("username")) {
            (None, None) => Err(Problem::bad_request("request body must contain a username")),
            (Some(name), Some(other)) if name != other => {
                Err(Problem::bad_request("request body contains different usernames"))
            }
            (Some(name), _) | (None, Some(name)) => Ok(name),
        }
    }
}

async fn read_form(request: &mut Request) -> Result<Form> {
    let media_type = request.media_type();
    let is_json = match media_type.as_deref() {
        Some("application/json") => true,
        Some("application/x-www-form-urlencoded") => false,
        _ => {
            let reason = "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'";
            return Err(Problem::bad_content_type(reason));
        }
    };
    let bytes = request.body.bytes(limits::LOGIN_BYTES_MAX).await?;
    if !is_json {
        let query = Query::parse(&String::from_utf8_lossy(&bytes));
        return Ok(Form(query.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()));
    }
    let Value::Object(object) = crate::document::json::parse(&bytes)? else {
        return Err(Problem::bad_request("Request body must be a JSON object"));
    };
    let texts = object.into_iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, text)),
        _ => None,
    });
    Ok(Form(texts.collect()))
}

/// `/_utils/session.html`: where a browser that lacks credentials is sent. Without scripts; after the login it goes
/// back to `return`.
pub fn page(request: &Request) -> Reply {
    let back = request.query.get("return").filter(|path| path.starts_with('/')).unwrap_or("/");
    let reason = request.query.get("reason").unwrap_or_default();
    let (back, reason) = (encode_segment(back), escape(reason));
    let again = encode_segment("Name or password is incorrect.");
    let again = encode_segment(&format!("/_utils/session.html?return={back}&reason={again}"));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Log in</title>\n<h1>Log in</h1>\n\
         <p role=\"status\">{reason}</p>\n<form method=\"post\" action=\"/_session?next={back}&amp;fail={again}\">\n\
         <p><label>Name <input name=\"name\" autocomplete=\"username\" autofocus></label></p>\n\
         <p><label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\"></label></p>\n\
         <p><button>Log in</button></p>\n</form>\n</html>\n"
    );
    Reply::typed(StatusCode::OK, "text/html; charset=utf-8", html)
        .header(http::header::CONTENT_SECURITY_POLICY, "default-src 'none'; form-action 'self'")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Form, escape};

    #[test]
    fn the_name_may_stand_in_either_field() {
        let form = |fields: &[(&str, &str)]| Form(fields.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect());
        let name = |fields: &[(&str, &str)]| form(fields).user_name().map(str::to_owned).map_err(|p| p.reason);
        assert_eq!(name(&[("name", "a")]).as_deref(), Ok("a"));
        assert_eq!(name(&[("username", "a")]).as_deref(), Ok("a"));
        assert_eq!(name(&[("username", "a"), ("name", "a")]).as_deref(), Ok("a"));
        assert_eq!(name(&[("username", "a"), ("name", "b")]).unwrap_err(), "request body contains different usernames");
        assert_eq!(name(&[("user", "a")]).unwrap_err(), "request body must contain a username");
    }

    #[test]
    fn text_of_the_query_stays_text_in_the_page() {
        assert_eq!(escape("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }
}
