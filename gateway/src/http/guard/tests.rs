//! Who is answered, by what they show.

use super::*;
use crate::config::{Config, Method};
use crate::log::memory::MemoryLog;
use crate::sim::{Files, Sim};

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect()
}

#[test]
fn a_request_is_for_this_machine_by_number_or_as_localhost_only() {
    for (host, is_ours) in [
        ("127.0.0.1:9883", true),
        ("127.0.0.1", true),
        ("[::1]:9883", true),
        ("localhost:9883", true),
        ("LOCALHOST", true),
        ("gateway.example:9883", false),
        ("127.0.0.1.example", false),
        ("localhost.example:80", false),
        ("10.0.0.1:9883", false),
        ("", false),
    ] {
        assert_eq!(
            names_this_machine(&headers(&[("host", host)])),
            is_ours,
            "{host}"
        );
    }
    assert!(!names_this_machine(&HeaderMap::new()));
}

#[test]
fn a_browser_may_not_act_for_another_site() {
    let host = ("host", "127.0.0.1:9883");
    for (header, is_foreign) in [
        (("sec-fetch-site", "cross-site"), true),
        (("sec-fetch-site", "same-site"), true),
        (("sec-fetch-site", "same-origin"), false),
        (("sec-fetch-site", "none"), false),
        (("origin", "http://127.0.0.1:9883"), false),
        (("origin", "http://127.0.0.1:1"), true),
        (("origin", "https://example.org"), true),
        (("origin", "null"), true),
    ] {
        assert_eq!(
            is_cross_site(&headers(&[host, header])),
            is_foreign,
            "{header:?}"
        );
    }
    assert!(
        !is_cross_site(&headers(&[host])),
        "a program that is no browser"
    );
}

const TOKEN: &str = "a-token-for-operators";

/// A guard of a gateway that knows `anna` and `ben`, and is open to the users of `open_to` and to the token.
async fn guard(open_to: &[&str], token: Option<&str>, methods: &[Method]) -> (Sim, Guard) {
    let files = Files::new();
    let users = files.users(&[("anna", "right"), ("ben", "his")]);
    let sim = Sim::with(MemoryLog::new(), |config: &mut Config| {
        config.access.authentication = methods.iter().copied().collect();
        config.access.users_file = Some(users);
    })
    .await;
    let config = HttpConfig {
        listen: Vec::new(),
        token_file: None,
        users: open_to.iter().map(|user| (*user).to_owned()).collect(),
    };
    let files = Files::new();
    let token = token.map(|token| load_token(&files.write("token", token)).unwrap());
    let guard = Guard::new(&config, token, sim.gateway.context().clone());
    (sim, guard)
}

async fn admitted(guard: &Guard, authorization: Option<&str>) -> Result<(), Unwelcome> {
    let mut headers = headers(&[("host", "gateway.example:9883")]);
    if let Some(authorization) = authorization {
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
    }
    guard.admit(&axum::http::Method::GET, &headers).await
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[tokio::test(start_paused = true)]
async fn users_who_are_named_come_in_with_their_passwords_and_nobody_else() {
    let (_sim, guard) = guard(
        &["anna", "nobody"],
        None,
        &[Method::Users, Method::Anonymous],
    )
    .await;
    for (shown, is_welcome) in [
        (basic("anna", "right"), true),
        (basic("anna", "right").replace("Basic", "bAsIc"), true),
        (basic("anna", "wrong"), false),
        (basic("anna", ""), false),
        (basic("anna", TOKEN), false),
        // Known to devices' listeners, and not named here.
        (basic("ben", "his"), false),
        // Named here, and known to nobody: not even where devices come in without a name.
        (basic("nobody", "any"), false),
        (basic("", ""), false),
        (basic("token", TOKEN), false),
        (format!("Bearer {TOKEN}"), false),
        (format!("Digest {}", basic("anna", "right")), false),
        ("Basic".to_owned(), false),
        ("Basic !!!".to_owned(), false),
        (format!("Basic {}", STANDARD.encode("anna")), false),
        (
            format!("Basic {}", STANDARD.encode([0xff, b':', 0xff])),
            false,
        ),
    ] {
        let expected = if is_welcome {
            Ok(())
        } else {
            Err(Unwelcome::Unauthenticated)
        };
        assert_eq!(admitted(&guard, Some(&shown)).await, expected, "{shown}");
    }
    assert_eq!(
        admitted(&guard, None).await,
        Err(Unwelcome::Unauthenticated)
    );
}

#[tokio::test(start_paused = true)]
async fn the_token_is_taken_as_such_and_as_the_password_of_the_user_token_only() {
    let (_sim, guard) = guard(&["anna"], Some(TOKEN), &[Method::Users]).await;
    for (shown, is_welcome) in [
        (format!("Bearer {TOKEN}"), true),
        (format!("bearer  {TOKEN} "), true),
        (basic("token", TOKEN), true),
        (basic("anna", "right"), true),
        (basic("anna", TOKEN), false),
        (basic("ben", TOKEN), false),
        (format!("Bearer {TOKEN}x"), false),
        (format!("Bearer {}", &TOKEN[1..]), false),
        ("Bearer ".to_owned(), false),
        (TOKEN.to_owned(), false),
    ] {
        let is_admitted = admitted(&guard, Some(&shown)).await.is_ok();
        assert_eq!(is_admitted, is_welcome, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_nothing_configured_only_this_machine_is_answered_and_no_other_site_may_act() {
    let (_sim, guard) = guard(&[], None, &[Method::Anonymous]).await;
    let here = ("host", "127.0.0.1:9883");
    let of = |pairs: &[(&'static str, &'static str)]| headers(pairs);
    for (method, headers, expected) in [
        ("GET", of(&[here]), Ok(())),
        ("POST", of(&[here]), Ok(())),
        (
            "GET",
            of(&[("host", "gateway.example")]),
            Err(Unwelcome::WrongHost),
        ),
        (
            "POST",
            of(&[here, ("origin", "https://example.org")]),
            Err(Unwelcome::CrossSite),
        ),
    ] {
        let method: axum::http::Method = method.parse().unwrap();
        assert_eq!(guard.admit(&method, &headers).await, expected, "{method}");
    }
}
