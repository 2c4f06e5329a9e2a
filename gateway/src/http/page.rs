//! The status page: one file without anything from elsewhere.
//!
//! What always holds: a browser runs the one script and applies the one style that are in the file, known by their hashes, and
//! nothing that might get in beside them.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash_of("style"),
        hash_of("script")
    );
    HeaderValue::from_str(&policy)
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

/// The text of the only element of that name, as a policy names it.
fn hash_of(element: &str) -> String {
    let rest = PAGE
        .split_once(&format!("<{element}>"))
        .map(|(_, rest)| rest);
    let text = rest.and_then(|rest| rest.split_once(&format!("</{element}>")));
    let hash = Sha256::digest(text.map_or("", |(text, _)| text));
    format!("'sha256-{}'", STANDARD.encode(hash))
}

/// The page.
pub(super) async fn page() -> Response {
    (
        [(header::CONTENT_SECURITY_POLICY, POLICY.clone())],
        Html(PAGE),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_style_and_one_script_and_nothing_from_elsewhere() {
        for element in ["style", "script"] {
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1, "{element}");
            assert_eq!(
                PAGE.matches(&format!("<{element}>")).count(),
                1,
                "{element}"
            );
        }
        for foreign in [
            "http://",
            "https://",
            "src=\"/",
            "@import",
            " style=\"",
            " onclick=",
        ] {
            let found = PAGE
                .lines()
                .find(|line| line.contains(foreign) && !line.contains("www.w3.org"));
            assert_eq!(found, None, "{foreign}");
        }
        assert!(POLICY.to_str().unwrap().contains("script-src 'sha256-"));
    }
}
