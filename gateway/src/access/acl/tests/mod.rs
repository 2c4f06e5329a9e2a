//! Permissions: what is decided, against a model, and what is refused, with its line.

use std::sync::Arc;

use super::*;
use crate::mqtt::TopicName;

mod documents;
mod examples;
mod many;
mod model;
mod refusals;

/// The permissions of `text`, which are right.
fn acl(text: &str) -> Acl {
    Acl::parse("acl.toml", text).unwrap_or_else(|report| panic!("{report}"))
}

/// The permissions of `text` without the check for rules that never decide.
fn unchecked(text: &str) -> Acl {
    let source = Arc::new(Source {
        file: "acl.toml".to_owned(),
        text: text.to_owned(),
    });
    Acl::of(file::read(&source).unwrap_or_else(|problems| panic!("{problems:?}\n{text}")))
}

fn topic(text: &str) -> TopicName {
    TopicName::new(text.to_owned()).unwrap()
}

/// A client without a certificate.
fn client<'a>(user: impl Into<Option<&'a str>>, client_id: &'a str) -> Who<'a> {
    Who {
        user: user.into(),
        client_id,
        certificate: None,
    }
}

fn may_publish(acl: &Acl, who: &Who<'_>, name: &str) -> bool {
    acl.permissions(who).allows(Action::Publish, &topic(name))
}
