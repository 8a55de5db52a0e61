//! Security headers for browsers: `[csp]`, `X-Frame-Options`, `Strict-Transport-Security`.

use http::HeaderMap;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use super::response::Reply;
use crate::config::Config;

/// The page loads from this node alone, runs no inline script and no text as code, and is shown in no frame. Pictures
/// and other attachments are shown from `blob:` addresses, which hold what the page has read.
const PAGE: &str = "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Fauxton makes functions of texts and has inline styles.
const OTHER_PAGES: &str = "default-src 'self'; child-src 'self' data: blob:; img-src 'self' data:; \
    script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; frame-ancestors 'self'";

/// What kind of content a policy is for. The keys of `[csp]` begin with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The administration page at `/_utils`.
    Utils,
    /// Pages of a folder in its place (`settee/utils_dir`).
    OtherUtils,
    /// Attachments: whatever was stored.
    Attachments,
    /// What functions of design documents answer.
    ShowList,
}

impl Content {
    /// The two options and the policy while they are unset: for other pages than the own one as in CouchDB.
    fn options(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Content::Utils => ("utils_enable", "utils_header_value", PAGE),
            Content::OtherUtils => ("utils_enable", "utils_header_value", OTHER_PAGES),
            Content::Attachments => ("attachments_enable", "attachments_header_value", "sandbox"),
            Content::ShowList => ("showlist_enable", "showlist_header_value", "sandbox"),
        }
    }
}

/// Adds the content security policy that the configuration has for this kind of content, unless the answer has its own.
pub fn guard(config: &Config, content: Content, mut reply: Reply) -> Reply {
    let (enable, key, default) = content.options();
    if config.bool("csp", enable, true)
        && let Ok(policy) = HeaderValue::from_str(&config.text("csp", key, default))
    {
        reply.headers.entry(CONTENT_SECURITY_POLICY).or_insert(policy);
    }
    if matches!(content, Content::Utils | Content::OtherUtils) {
        reply.headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    reply
}

/// Who may show an answer in a frame: nobody, pages of the same origin, or those of the host that was asked when
/// `x_frame_options/hosts` lists it, or is an asterisk.
fn frames(config: &Config, base: &str) -> HeaderValue {
    if config.bool("x_frame_options", "same_origin", false) {
        return HeaderValue::from_static("SAMEORIGIN");
    }
    let hosts = config.list("x_frame_options", "hosts", "");
    let listed = hosts == ["*"] || hosts.iter().any(|host| host == base);
    let allowed = listed.then(|| HeaderValue::from_str(&format!("ALLOW-FROM {base}")).ok()).flatten();
    allowed.unwrap_or(HeaderValue::from_static("DENY"))
}

/// Adds what answers of every kind may have. `base`: scheme and host as the client named them.
pub fn harden(config: &Config, base: &str, headers: &mut HeaderMap) {
    if config.http_bool("enable_xframe_options", false) {
        headers.insert(X_FRAME_OPTIONS, frames(config, base));
    }
    let max_age_s = config.u64("ssl", "hsts_max_age", 0);
    if base.starts_with("https:") && max_age_s > 0 {
        let mut text = format!("max-age={max_age_s}");
        if config.bool("ssl", "hsts_include_subdomains", false) {
            text.push_str("; includeSubDomains");
        }
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(STRICT_TRANSPORT_SECURITY, value);
        }
    }
}
