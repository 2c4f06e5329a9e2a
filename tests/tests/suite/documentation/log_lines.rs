//! The log lines and messages that the pages quote are those of the code.
//!
//! A block of the language `log` holds one a line: the message, then fields as `key=value`, with `…` for what differs. The
//! message has to be a text of the code with these fields beside it; a value that is not `…` has to be a text of the code.
//! Where a text ends with something that is filled in, another text of the code may stand in its place.

use super::markdown::pages;
use super::sources::{Text, texts};

const FOLDERS: [&str; 4] = ["gateway/src", "source/src", "sink/src", "connector-sdk/src"];

/// The fields of what `Recent::note` says, whose message and reason stand where it is called, beside a `Kind`.
const FIELDS_OF_NOTES: [&str; 7] = [
    "client",
    "peer",
    "listener",
    "connection",
    "mqtt_topic",
    "reason",
    "left_out",
];

/// Whether what `text` says has the field.
fn has_field(text: &Text, key: &str) -> bool {
    let is_note = text.words.contains("Kind") && FIELDS_OF_NOTES.contains(&key);
    is_note || text.words.contains(key)
}

/// The message, and its fields: key and value.
fn take_apart(line: &str) -> (&str, Vec<(&str, &str)>) {
    let mut begins = Vec::new();
    for (at, _) in line.match_indices(' ') {
        let rest = &line[at + 1..];
        let key = rest.split('=').next().unwrap_or_default();
        let is_key = !key.is_empty()
            && key
                .chars()
                .all(|one| one.is_ascii_lowercase() || one == '_');
        if is_key && rest.len() > key.len() {
            begins.push((at, key));
        }
    }
    let end = begins.first().map_or(line.len(), |(at, _)| *at);
    let fields = begins.iter().enumerate().map(|(number, (at, key))| {
        let value_at = at + 1 + key.len() + 1;
        let end = begins.get(number + 1).map_or(line.len(), |(next, _)| *next);
        (*key, &line[value_at..end])
    });
    (&line[..end], fields.collect())
}

/// Whether `quoted`, in which `…` stands for anything, is `text`.
fn is_form_of(quoted: &str, text: &str) -> bool {
    let mut parts = quoted.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether `quoted` is one of the texts, or one that ends with what is filled in, and another one in that place.
fn is_said(quoted: &str, texts: &[Text]) -> bool {
    if !quoted.chars().any(char::is_alphabetic) {
        return false;
    }
    texts.iter().any(|text| {
        if is_form_of(quoted, &text.text) {
            return true;
        }
        let Some(head) = text.text.strip_suffix('…').filter(|head| head.len() > 2) else {
            return false;
        };
        let ends = quoted.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
        ends.filter(|at| is_form_of(&quoted[..*at], head))
            .any(|at| {
                texts.iter().any(|inner| {
                    is_form_of(&quoted[at..], &inner.text) && quoted[at..].contains(' ')
                })
            })
    })
}

#[test]
fn every_log_line_and_message_that_is_quoted_is_one_of_the_code() {
    let texts = texts(&FOLDERS);
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for block in page
            .blocks
            .iter()
            .filter(|block| block.what.language() == "log")
        {
            for (number, line) in block.what.text.lines().enumerate() {
                count += 1;
                let (message, fields) = take_apart(line);
                let place = page.at(block.line + 1 + number);
                let is_message = match fields.is_empty() {
                    true => is_said(message, &texts),
                    false => texts.iter().any(|text| {
                        is_form_of(message, &text.text)
                            && fields.iter().all(|(key, _)| has_field(text, key))
                    }),
                };
                if !is_message {
                    wrong.push(format!("{place}: {message}"));
                }
                for (key, value) in fields {
                    if value != "…" && !is_said(value, &texts) {
                        wrong.push(format!("{place}: {key}={value}"));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "the code does not say this:\n{}",
        wrong.join("\n")
    );
    assert!(count > 50, "{count}");
}

#[test]
fn a_quoted_line_is_compared_part_by_part() {
    let (message, fields) =
        take_apart("closed client=… reason=a packet of … bytes = many left_out=…");
    assert_eq!(message, "closed");
    assert_eq!(
        fields,
        [
            ("client", "…"),
            ("reason", "a packet of … bytes = many"),
            ("left_out", "…")
        ]
    );
    assert!(is_form_of("a … c", "a b b c"));
    assert!(!is_form_of("a … c", "a b c d"));
    assert!(!is_form_of("b c", "a b c"));
}
