//! `/_utils`: the administration page, or the folder that `[settee] utils_dir` names in its place.
//!
//! Promises: a path reaches no file outside the page or the folder; what is served may not be shown in a frame, loads
//! nothing from elsewhere and, for the page itself, runs no inline script. Without its final slash the path redirects,
//! so that relative links work.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, VARY,
};

use super::session;
use crate::http::assets::{self, Form};
use crate::http::handle::accept::names_gzip;
use crate::http::policy::{self, Content};
use crate::http::response::state_etag;
use crate::http::{Context, Reply, Request, Result};
use crate::limits;
use crate::world::{self, Disk, Pool};

/// The worker in which the page tries functions that a user types. Only there may text become code, and nothing of it
/// reaches the page, the network or the cookie.
const TRIAL_WORKER: &str = "js/trial_worker.js";
const TRIAL_POLICY: &str = "default-src 'none'; script-src 'unsafe-eval'; frame-ancestors 'none'";

/// Browsers ask each time whether a file is as it was: an upgrade of the node counts with the next click.
const FRESH: &str = "private, max-age=0, must-revalidate";

/// `below`: the decoded path behind `/_utils/`; `None` without the slash.
pub async fn utils(ctx: &Context, request: &Request, below: Option<&str>) -> Result<Reply> {
    let Some(below) = below else {
        let to = format!("{}/_utils/", request.base_url());
        return Ok(Reply::redirect(StatusCode::MOVED_PERMANENTLY, &to).header(LOCATION, &to));
    };
    if below == "session.html" {
        return Ok(policy::guard(&ctx.config, Content::Utils, session::page(request)));
    }
    let path = if below.is_empty() { "index.html" } else { below };
    let folder = ctx.config.text("settee", "utils_dir", "");
    let (form, content) = match folder.is_empty() {
        true => (own(ctx, request, path), Content::Utils),
        false => (of_folder(ctx, folder.into(), path).await, Content::OtherUtils),
    };
    let reply = match form {
        Some(form) => served(request, path, &form),
        None => Reply::typed(StatusCode::NOT_FOUND, "text/plain", "Not found."),
    };
    let reply = match path {
        TRIAL_WORKER => reply.header(CONTENT_SECURITY_POLICY, TRIAL_POLICY),
        _ => reply,
    };
    let reply = reply.header(CACHE_CONTROL, FRESH).header(REFERRER_POLICY, "same-origin");
    Ok(policy::guard(&ctx.config, content, reply))
}

/// A file of the page that is part of the binary.
fn own(ctx: &Context, request: &Request, path: &str) -> Option<Form> {
    let file = assets::find(path)?;
    Some(ctx.assets.get(file, names_gzip(request.header(ACCEPT_ENCODING.as_str()))))
}

fn served(request: &Request, path: &str, form: &Form) -> Reply {
    let reply = request
        .unless_current(&form.etag, || Reply::typed(StatusCode::OK, assets::content_type(path), form.bytes.clone()));
    let reply = reply.header(VARY, "Accept-Encoding");
    match form.is_gzip && reply.status == StatusCode::OK {
        true => reply.header(CONTENT_ENCODING, "gzip"),
        false => reply,
    }
}

/// A file of a folder; none where the path leads out of it, or to what is no file.
async fn of_folder(ctx: &Context, folder: PathBuf, path: &str) -> Option<Form> {
    let path = within(path)?;
    let disk = ctx.env.disk();
    let read = move || read(&*disk, &folder, &path);
    let bytes: Bytes = match ctx.env.blocking(Pool::Foreground, read).await {
        Ok(bytes) => bytes?.into(),
        Err(error) => {
            tracing::debug!(%error, "a file of settee/utils_dir was not read");
            return None;
        }
    };
    Some(Form { etag: state_etag(&[&bytes]), bytes, is_gzip: false })
}

/// The path as names one below the other; none where one of them could lead elsewhere.
fn within(path: &str) -> Option<PathBuf> {
    let is_name =
        |part: &str| !matches!(part, "" | "." | "..") && !part.starts_with('.') && !part.contains(['\\', '\0', ':']);
    let fits = path.len() <= limits::UTILS_PATH_CHARS && path.split('/').all(is_name);
    fits.then(|| path.split('/').collect())
}

/// Reads a file whose real place, symbolic links followed, is in the folder.
fn read(disk: &dyn Disk, folder: &Path, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (folder, file) = (disk.follow(folder)?, disk.follow(&folder.join(path))?);
    if !file.starts_with(&folder) || !disk.exists(&file)? {
        return Ok(None);
    }
    world::read_whole(disk, &file, limits::UTILS_FILE_BYTES).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_folder() {
        assert_eq!(within("js/app.js"), Some("js/app.js".into()));
        for path in ["../x", "a/../x", "a//x", "/etc/passwd", "a/", ".", ".git/config", "a\\..\\x", "c:x", "a\0b", ""] {
            assert_eq!(within(path), None, "{path:?}");
        }
        assert_eq!(within(&"a/".repeat(1000)), None);
    }
}
