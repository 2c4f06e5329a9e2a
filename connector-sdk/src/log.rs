//! Forwards what the plugin logs with `tracing` to the host, as one line an event: the message, then every field as
//! ` key=value`. A line has a limited length and no control characters, so that what a peer sent cannot forge lines; a value
//! that could be taken for more than one is quoted, so that it cannot forge fields either.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

/// How the host takes a log line: level (0 trace, 1 debug, 2 info, 3 warn, 4 error), target, message; both texts UTF-8,
/// not NUL-terminated, valid during the call only.
pub type LogCallback = extern "C" fn(
    level: u8,
    target_ptr: *const u8,
    target_len: usize,
    message_ptr: *const u8,
    message_len: usize,
);

/// The longest message in bytes, without the mark that says it was cut. Enough for any line that someone reads.
const MAX_MESSAGE_LEN: usize = 8 * 1024;

const CUT: &str = " … (cut)";

/// The callback that the host passed last. The host passes the same to every connector.
static CALLBACK: RwLock<Option<LogCallback>> = RwLock::new(None);

/// Sends what the library logs from now on to `callback`. Filtered by `RUST_LOG`, as the runtime itself; info if unset.
pub(crate) fn install(callback: LogCallback) {
    *CALLBACK.write() = Some(callback);
    // Fails from the second time on, and where the process (a test) logs in a way of its own. Both are right.
    _ = Registry::default()
        .with(HostLayer)
        .with(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")))
        .try_init();
}

/// Forwards to the callback that was installed last.
struct HostLayer;

impl<S: Subscriber> Layer<S> for HostLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let callback = *CALLBACK.read();
        if let Some(callback) = callback {
            forward(callback, event);
        }
    }
}

/// A `tracing` layer that forwards events to a host's callback.
pub struct CallbackLayer {
    callback: LogCallback,
}

impl CallbackLayer {
    /// A layer for that callback.
    pub fn new(callback: LogCallback) -> Self {
        Self { callback }
    }
}

impl<S: Subscriber> Layer<S> for CallbackLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        forward(self.callback, event);
    }
}

fn forward(callback: LogCallback, event: &Event<'_>) {
    // A value's `Debug` is foreign code; if it panics, the line is kept as far as it got.
    let mut line = Line::default();
    let whole = catch_unwind(AssertUnwindSafe(|| event.record(&mut line)));
    let mut message = line.into_message();
    if whole.is_err() {
        message.push_str(" (a field panicked while it was written)");
    }
    let target = event.metadata().target();
    callback(
        level_code(*event.metadata().level()),
        target.as_ptr(),
        target.len(),
        message.as_ptr(),
        message.len(),
    );
}

fn level_code(level: Level) -> u8 {
    match level {
        Level::TRACE => 0,
        Level::DEBUG => 1,
        Level::INFO => 2,
        Level::WARN => 3,
        Level::ERROR => 4,
    }
}

/// The parts of an event's line. `tracing` may visit the message at any place; it comes first in the line.
#[derive(Default)]
struct Line {
    message: Part,
    fields: Part,
}

impl Line {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // A part that is full refuses to be written to and keeps that in mind; nothing else can fail here.
        if field.name() == "message" {
            _ = self.message.write_fmt(value);
        } else {
            _ = write!(self.fields, " {}={value}", field.name());
        }
    }

    fn into_message(self) -> String {
        let mut message = self.message;
        _ = message.append(&self.fields);
        let mut text = message.text;
        if message.full || self.fields.full {
            text.push_str(CUT);
        }
        // An event without a message begins with a field.
        if text.starts_with(' ') {
            text.remove(0);
        }
        text
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        let ambiguous = value.is_empty() || value.contains([' ', '"', '=']);
        if ambiguous && field.name() != "message" {
            self.write(field, format_args!("{value:?}"));
        } else {
            self.write(field, format_args!("{value}"));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            return self.write(field, format_args!("{value:?}"));
        }
        // Also what is shown by `Display` comes here, and may be what a peer sent. As far as it is written without a panic.
        let mut text = Part::default();
        let written = catch_unwind(AssertUnwindSafe(|| {
            text.write_raw(format_args!("{value:?}"))
        }));
        self.fields.full |= text.full;
        self.record_str(field, &text.text);
        if let Err(panic) = written {
            resume_unwind(panic);
        }
    }
}

/// Text of at most [`MAX_MESSAGE_LEN`] bytes whose control characters are escaped.
#[derive(Default)]
struct Part {
    text: String,
    full: bool,
}

impl Part {
    /// Appends a part that is escaped already.
    fn append(&mut self, other: &Part) -> fmt::Result {
        other.text.chars().try_for_each(|c| self.push(c))
    }

    /// Writes text that is not escaped yet; of more than there is room for, the beginning.
    fn write_raw(&mut self, text: fmt::Arguments<'_>) {
        struct Raw<'a>(&'a mut Part);
        impl fmt::Write for Raw<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.chars().try_for_each(|c| self.0.push(c))
            }
        }
        // Fails when it is full, which is kept in mind.
        _ = Raw(self).write_fmt(text);
    }

    fn push(&mut self, c: char) -> fmt::Result {
        if self.full || self.text.len() + c.len_utf8() > MAX_MESSAGE_LEN {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push(c);
        Ok(())
    }
}

impl fmt::Write for Part {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if c.is_control() {
                c.escape_default()
                    .try_for_each(|escaped| self.push(escaped))?;
            } else {
                self.push(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tracing::{debug, error, info, trace, warn};

    use super::*;

    thread_local! {
        static LINES: RefCell<Vec<(u8, String, String)>> = const { RefCell::new(Vec::new()) };
    }

    #[allow(unsafe_code)]
    extern "C" fn keep(
        level: u8,
        target_ptr: *const u8,
        target_len: usize,
        message_ptr: *const u8,
        message_len: usize,
    ) {
        let text = |ptr, len| {
            // SAFETY: the layer passes pointer and length of texts that live during this call.
            let bytes = unsafe { std::slice::from_raw_parts(ptr, len) };
            std::str::from_utf8(bytes).unwrap().to_owned()
        };
        let line = (
            level,
            text(target_ptr, target_len),
            text(message_ptr, message_len),
        );
        LINES.with_borrow_mut(|lines| lines.push(line));
    }

    fn logged(events: impl FnOnce()) -> Vec<(u8, String, String)> {
        let subscriber = Registry::default().with(CallbackLayer::new(keep));
        tracing::subscriber::with_default(subscriber, events);
        LINES.take()
    }

    fn message(events: impl FnOnce()) -> String {
        let lines = logged(events);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.into_iter().next().unwrap().2
    }

    #[test]
    fn levels_rise_from_trace_to_error() {
        let lines = logged(|| {
            trace!(target: "a", "1");
            debug!(target: "b", "2");
            info!(target: "c", "3");
            warn!(target: "d", "4");
            error!(target: "e::f", "5");
        });
        let expected = [
            (0, "a", "1"),
            (1, "b", "2"),
            (2, "c", "3"),
            (3, "d", "4"),
            (4, "e::f", "5"),
        ];
        let expected =
            expected.map(|(level, target, text)| (level, target.to_owned(), text.to_owned()));
        assert_eq!(lines, expected);
    }

    #[test]
    fn no_field_of_an_event_is_lost() {
        let reason = "connection refused";
        let text = message(|| {
            error!(
                stream = "building_north",
                partition = 3_u32,
                offset = -1_i64,
                ratio = 0.5,
                retry = true,
                big = u128::MAX,
                %reason,
                bytes = ?[1, 2],
                quoted = "two words",
                empty = "",
                "cannot append to {}",
                "telemetry"
            );
        });
        assert_eq!(
            text,
            "cannot append to telemetry stream=building_north partition=3 offset=-1 ratio=0.5 retry=true \
             big=340282366920938463463374607431768211455 reason=\"connection refused\" bytes=\"[1, 2]\" \
             quoted=\"two words\" empty=\"\""
        );
    }

    #[test]
    fn fields_that_are_not_there_leave_nothing_and_those_that_are_come_in_their_order() {
        let (client, nobody) = (Some("c"), None::<&str>);
        let text = message(|| {
            warn!(
                client = client.map(tracing::field::display),
                who = nobody.map(tracing::field::display),
                peer = %"192.0.2.1:5",
                mqtt_topic = Some("a b"),
                filter = nobody,
                left_out = 0_u64,
                "refused"
            );
        });
        assert_eq!(
            text,
            "refused client=c peer=192.0.2.1:5 mqtt_topic=\"a b\" left_out=0"
        );
    }

    #[test]
    fn what_a_peer_sent_cannot_forge_a_field() {
        for client in ["x connection=7", "x\" connection=7", "x\n connection=7", ""] {
            let text = message(|| info!(%client, other = 1, "connected"));
            let fields = text.strip_prefix("connected client=").unwrap();
            let quoted = fields.strip_suffix(" other=1").unwrap();
            assert_eq!(quoted, format!("{client:?}"), "{text}");
        }
    }

    #[test]
    fn an_event_without_a_message_is_its_fields() {
        assert_eq!(message(|| info!(a = 1, b = "x")), "a=1 b=x");
    }

    #[test]
    fn what_a_peer_sent_cannot_forge_a_line() {
        let client = "c\n2026-01-01 ERROR forged\u{1b}[31m\0";
        let text = message(|| info!(client, "connected {client}"));
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(
            text.starts_with(r"connected c\n2026-01-01 ERROR forged\u{1b}[31m\u{0} client="),
            "{text}"
        );
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_says_so() {
        for long in [
            "ä".repeat(MAX_MESSAGE_LEN),
            format!("x{}", "ä".repeat(MAX_MESSAGE_LEN)),
        ] {
            let in_message = message(|| info!("{long}"));
            let in_field = message(|| info!(long, "m"));
            for text in [in_message, in_field] {
                let kept = text.strip_suffix(CUT).expect("it says so");
                assert!(
                    (MAX_MESSAGE_LEN - 3..=MAX_MESSAGE_LEN).contains(&kept.len()),
                    "{}",
                    kept.len()
                );
            }
        }
        let exact = "x".repeat(MAX_MESSAGE_LEN);
        assert_eq!(message(|| info!("{exact}")), exact);
    }

    #[test]
    fn a_field_that_panics_costs_itself_only() {
        struct Bad;
        impl fmt::Debug for Bad {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("bad")
            }
        }
        let text = message(|| info!(good = 1, bad = ?Bad, "kept"));
        assert!(text.starts_with("kept good=1"), "{text}");
        assert!(
            text.ends_with("(a field panicked while it was written)"),
            "{text}"
        );
    }
}
