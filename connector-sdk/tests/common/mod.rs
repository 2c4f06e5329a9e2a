//! The log side of a host: keeps every line that the library logs, so that tests can look for theirs by its id.

use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

static LINES: Mutex<Vec<(u8, String)>> = Mutex::new(Vec::new());

/// An id that no other test in this process uses.
pub(crate) fn free_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The callback that a host passes to `open`.
pub(crate) extern "C" fn log(
    level: u8,
    _: *const u8,
    _: usize,
    message_ptr: *const u8,
    message_len: usize,
) {
    // SAFETY: the library passes pointer and length of a text that lives during this call.
    let message = unsafe { slice::from_raw_parts(message_ptr, message_len) };
    let message = String::from_utf8(message.to_vec()).unwrap();
    LINES.lock().unwrap().push((level, message));
}

/// The errors (level 4) that were logged for a connector.
pub(crate) fn errors_of(id: u32) -> Vec<String> {
    let mark = format!(" id={id}");
    let lines = LINES.lock().unwrap();
    let of_id = lines.iter().filter(|(level, line)| {
        *level == 4
            && line
                .match_indices(&mark)
                .any(|(at, _)| !line[at + mark.len()..].starts_with(|c: char| c.is_ascii_digit()))
    });
    of_id.map(|(_, line)| line.clone()).collect()
}

/// Exactly one error was logged for a connector, and it contains these texts.
#[track_caller]
pub(crate) fn assert_one_error(id: u32, contains: &[&str]) {
    let errors = errors_of(id);
    assert_eq!(errors.len(), 1, "{errors:?}");
    for text in contains {
        assert!(
            errors[0].contains(text),
            "{text:?} is not in {:?}",
            errors[0]
        );
    }
}
