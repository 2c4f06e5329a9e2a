//! What a client may do with a topic, and which rule of the permissions says so.
//!
//! What always holds: the verdict is that of [`Permissions::decide`], by which the gateway goes (A5).

use std::io;
use std::path::Path;

use mqtt_gateway::access::acl::{Acl, Action, Decision, Permissions, Who};
use mqtt_gateway::mqtt::TopicName;
use serde::Serialize;

use super::print::{heading, row};
use super::report::SAMPLE_CLIENT;
use super::{ExplainError, problems, read};
use crate::args::ExplainArgs;
use crate::file::{Kind, shown};
use crate::output::{ERROR, GOOD, Output};
use crate::text::plain;

/// A client and what it may do.
pub(super) struct Client {
    acl: String,
    client: ClientReport,
    permissions: Permissions,
}

/// The client as it was given.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ClientReport {
    user: Option<String>,
    client_id: String,
    certificate: Option<String>,
}

/// What a client may do with topics.
#[derive(Debug, Serialize)]
pub(super) struct TopicsReport {
    acl: String,
    client: ClientReport,
    topics: Vec<TopicAccess>,
}

/// What a client may do with one topic, beside another explanation.
#[derive(Debug, Serialize)]
pub(crate) struct AccessReport {
    acl: String,
    client: ClientReport,
    #[serde(flatten)]
    topic: TopicAccess,
}

/// What a client may do with one topic.
#[derive(Debug, Serialize)]
struct TopicAccess {
    topic: String,
    /// Why there is no verdict: it is no topic.
    message: Option<String>,
    publish: Option<Verdict>,
    subscribe: Option<Verdict>,
}

/// Whether, and why.
#[derive(Debug, Serialize)]
struct Verdict {
    allowed: bool,
    /// `None` if no rule matches.
    rule: Option<RuleReport>,
}

#[derive(Debug, Serialize)]
struct RuleReport {
    number: usize,
    line: usize,
    filter: String,
}

impl Client {
    /// Reads the permissions in the file `acl` for the client in the arguments.
    pub(super) fn load(acl: &Path, arguments: &ExplainArgs) -> Result<Self, ExplainError> {
        let text = read(acl)?;
        let file = shown(acl);
        let client = ClientReport {
            user: arguments.user.clone(),
            client_id: (arguments.client_id.clone()).unwrap_or_else(|| SAMPLE_CLIENT.to_owned()),
            certificate: arguments.certificate.clone(),
        };
        let permissions = Acl::parse(&file, &text)
            .map_err(|_| problems(acl, Kind::Acl))?
            .permissions(&Who {
                user: client.user.as_deref(),
                client_id: &client.client_id,
                certificate: client.certificate.as_deref(),
            });
        Ok(Self {
            acl: file,
            client,
            permissions,
        })
    }

    /// What it may do with each.
    pub(super) fn topics(&self, topics: &[String]) -> TopicsReport {
        TopicsReport {
            acl: self.acl.clone(),
            client: self.client.clone(),
            topics: topics.iter().map(|topic| self.topic(topic)).collect(),
        }
    }

    /// What it may do with `topic`.
    pub(super) fn access(self, topic: &str) -> AccessReport {
        AccessReport {
            topic: self.topic(topic),
            acl: self.acl,
            client: self.client,
        }
    }

    fn topic(&self, topic: &str) -> TopicAccess {
        let name = TopicName::new(topic);
        let verdict = |action| {
            let name = name.as_ref().ok()?;
            Some(Verdict::new(self.permissions.decide(action, name)))
        };
        TopicAccess {
            topic: topic.to_owned(),
            publish: verdict(Action::Publish),
            subscribe: verdict(Action::Subscribe),
            message: name.err().map(|error| error.to_string()),
        }
    }
}

impl Verdict {
    fn new(decision: Decision<'_>) -> Self {
        Self {
            allowed: decision.is_allowed(),
            rule: match decision {
                Decision::Rule {
                    number,
                    line,
                    filter,
                    ..
                } => Some(RuleReport {
                    number,
                    line,
                    filter: filter.to_owned(),
                }),
                Decision::Everything | Decision::NoRule => None,
            },
        }
    }
}

impl TopicAccess {
    fn is_refused(&self, subscribe: bool) -> bool {
        let verdict = if subscribe {
            &self.subscribe
        } else {
            &self.publish
        };
        !verdict.as_ref().is_some_and(|verdict| verdict.allowed)
    }
}

impl AccessReport {
    /// Whether publishing, or subscribing, is denied.
    pub(super) fn is_refused(&self, subscribe: bool) -> bool {
        self.topic.is_refused(subscribe)
    }
}

impl TopicsReport {
    /// Whether publishing, or subscribing, is denied for any of the topics.
    pub(super) fn is_refused(&self, subscribe: bool) -> bool {
        self.topics.iter().any(|topic| topic.is_refused(subscribe))
    }
}

/// Prints what there is to say beside another explanation.
pub(super) fn print(report: Option<&AccessReport>, output: &mut Output) -> io::Result<()> {
    let Some(report) = report else {
        return Ok(());
    };
    row("client", client(&report.client), output)?;
    print_topic(&report.topic, output)
}

/// Prints what a client may do with topics.
pub(super) fn print_topics(report: &TopicsReport, output: &mut Output) -> io::Result<()> {
    for (number, topic) in report.topics.iter().enumerate() {
        if number > 0 {
            output.line("")?;
        }
        heading(&topic.topic, output)?;
        row("client", client(&report.client), output)?;
        print_topic(topic, output)?;
    }
    Ok(())
}

fn client(client: &ClientReport) -> String {
    let user = match client.user.as_deref() {
        Some(user) if !user.is_empty() => format!("user {}", plain(user)),
        _ => "no user name".to_owned(),
    };
    let mut text = format!("{user}, client id {}", plain(&client.client_id));
    if let Some(certificate) = &client.certificate {
        text += &format!(", certificate {}", plain(certificate));
    }
    text
}

fn print_topic(topic: &TopicAccess, output: &mut Output) -> io::Result<()> {
    if let Some(message) = &topic.message {
        return row("invalid", output.paint(ERROR, plain(message)), output);
    }
    let verdicts = [("publish", &topic.publish), ("subscribe", &topic.subscribe)];
    for (label, verdict) in verdicts {
        let Some(verdict) = verdict else { continue };
        let (style, word) = match verdict.allowed {
            true => (GOOD, "allowed"),
            false => (ERROR, "denied"),
        };
        let why = match &verdict.rule {
            Some(rule) => format!(
                "by rule {} (line {}): {}",
                rule.number,
                rule.line,
                plain(&rule.filter)
            ),
            None => "because no rule matches".to_owned(),
        };
        row(label, output.paint(style, format!("{word} {why}")), output)?;
    }
    Ok(())
}
