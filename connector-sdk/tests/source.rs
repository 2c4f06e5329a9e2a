//! The exported functions of a source, called as a host calls them: from plain threads, with pointers.

#![allow(unsafe_code)]
// Clippy takes only the `#[test]` functions themselves for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use common::{assert_one_error, errors_of, free_id, log};
use iggy_connector_sdk::connector_macro_support::SourceInstances;
use iggy_connector_sdk::source::SourceBatchResult;
use iggy_connector_sdk::{
    ConnectorState, Error, ProducedMessage, ProducedMessages, Schema, Source,
};
use serde::Deserialize;

/// A source whose configuration says how it behaves.
#[derive(Debug)]
struct Probe {
    id: u32,
    config: Config,
    state: Option<ConnectorState>,
    results: Arc<Mutex<Vec<SourceBatchResult>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    fail_open: bool,
    panic_in: String,
    wait_in_poll: bool,
    fail_close: bool,
}

/// Counts what is alive of `Probe`, by id: whoever is dropped says so.
static DROPPED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static CLOSED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static RESULTS: Mutex<Vec<(u32, SourceBatchResult)>> = Mutex::new(Vec::new());

impl Probe {
    fn new(id: u32, config: Config, state: Option<ConnectorState>) -> Self {
        assert_ne!(config.panic_in, "new", "as asked");
        // A plugin may start tasks as soon as it is built.
        tokio::spawn(async {});
        Self {
            id,
            config,
            state,
            results: Arc::default(),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // And end them when it is dropped.
        tokio::spawn(async {});
        DROPPED.lock().unwrap().push(self.id);
    }
}

#[async_trait]
impl Source for Probe {
    async fn open(&mut self) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_ne!(self.config.panic_in, "open", "as asked");
        if self.config.fail_open {
            return Err(Error::InitError(
                "port 1883 is in use\nchoose another".to_owned(),
            ));
        }
        Ok(())
    }

    async fn poll(&self) -> Result<ProducedMessages, Error> {
        assert_ne!(self.config.panic_in, "poll", "as asked");
        if self.config.wait_in_poll {
            std::future::pending::<()>().await;
        }
        let state = self.state.as_ref().map(|state| state.0.clone());
        Ok(ProducedMessages {
            schema: Schema::Raw,
            messages: vec![ProducedMessage {
                id: Some(u128::from(self.id)),
                checksum: None,
                timestamp: None,
                origin_timestamp: None,
                headers: None,
                payload: b"payload".to_vec(),
            }],
            state: state.map(ConnectorState),
        })
    }

    async fn on_batch_result(&self, result: SourceBatchResult) -> Result<(), Error> {
        self.results.lock().unwrap().push(result);
        RESULTS.lock().unwrap().push((self.id, result));
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        assert_ne!(self.config.panic_in, "close", "as asked");
        CLOSED.lock().unwrap().push(self.id);
        if self.config.fail_close {
            return Err(Error::CannotStoreData("the last offset".to_owned()));
        }
        Ok(())
    }
}

static SOURCES: SourceInstances<Probe> = SourceInstances::new();

fn open_with(id: u32, config: &[u8], state: Option<&[u8]>) -> i32 {
    let (state_ptr, state_len) = state.map_or((ptr::null(), 0), |s| (s.as_ptr(), s.len()));
    // SAFETY: the pointers are those of slices that live during the call.
    unsafe {
        SOURCES.open(
            id,
            config.as_ptr(),
            config.len(),
            state_ptr,
            state_len,
            Some(log),
            Probe::new,
        )
    }
}

fn open(id: u32, config: &str) -> i32 {
    open_with(id, config.as_bytes(), None)
}

fn is_dropped(id: u32) -> bool {
    DROPPED.lock().unwrap().contains(&id)
}

fn results_of(id: u32) -> Vec<SourceBatchResult> {
    let results = RESULTS.lock().unwrap();
    results
        .iter()
        .filter(|(of, _)| *of == id)
        .map(|(_, result)| *result)
        .collect()
}

type Batch = (u32, u64, Vec<u8>);

/// The host's side of the batches; a batch is found by its plugin id.
static HOSTS: Mutex<Vec<(u32, mpsc::Sender<Batch>)>> = Mutex::new(Vec::new());

fn batches_of(id: u32) -> mpsc::Receiver<Batch> {
    let (sender, receiver) = mpsc::channel();
    HOSTS.lock().unwrap().push((id, sender));
    receiver
}

extern "C" fn take(id: u32, batch_id: u64, ptr: *const u8, len: usize) -> i32 {
    // SAFETY: the library passes pointer and length of a batch that lives during this call.
    let batch = unsafe { std::slice::from_raw_parts(ptr, len) }.to_vec();
    let hosts = HOSTS.lock().unwrap();
    let (_, sender) = hosts.iter().find(|(of, _)| *of == id).unwrap();
    i32::from(sender.send((id, batch_id, batch)).is_err())
}

extern "C" fn take_v1(id: u32, ptr: *const u8, len: usize) {
    take(id, 0, ptr, len);
}

fn next(batches: &mpsc::Receiver<Batch>) -> Batch {
    batches
        .recv_timeout(Duration::from_secs(20))
        .expect("no batch came")
}

#[test]
fn a_source_lives_from_open_over_batches_to_close() {
    let id = free_id();
    let batches = batches_of(id);
    assert_eq!(open_with(id, b"{}", Some(&[1, 2, 3])), 0);
    assert_eq!(SOURCES.handle(id, Some(take)), 0);

    let (_, batch_id, bytes) = next(&batches);
    assert_eq!(batch_id, 1);
    let batch: ProducedMessages = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(batch.messages[0].id, Some(u128::from(id)));
    assert_eq!(batch.messages[0].payload, b"payload");
    assert_eq!(batch.state.unwrap().0, [1, 2, 3]);

    assert_eq!(SOURCES.batch_result(id, 1, 0), 0);
    assert_eq!(
        results_of(id),
        [SourceBatchResult::Ack],
        "told before the call returned"
    );
    assert_eq!(next(&batches).1, 2);
    assert_eq!(SOURCES.batch_result(id, 2, 1), 0);
    assert_eq!(next(&batches).1, 3);
    // With the third in flight.
    assert_eq!(SOURCES.close(id), 0);
    use SourceBatchResult::{Ack, Nack};
    assert_eq!(results_of(id), [Ack, Nack, Nack]);
    assert!(CLOSED.lock().unwrap().contains(&id));
    assert!(is_dropped(id));
    assert_eq!(SOURCES.batch_result(id, 3, 0), -1);
    assert_eq!(errors_of(id), Vec::<String>::new());
}

#[test]
fn closing_stops_a_poll_that_waits() {
    let id = free_id();
    assert_eq!(open(id, r#"{"wait_in_poll": true}"#), 0);
    assert_eq!(SOURCES.handle(id, Some(take)), 0);
    assert_eq!(SOURCES.close(id), 0);
    assert!(is_dropped(id));
    assert_eq!(
        errors_of(id),
        Vec::<String>::new(),
        "it was not given up after a time"
    );
}

#[test]
fn a_source_that_was_never_started_is_closed() {
    let id = free_id();
    assert_eq!(open(id, r#"{"fail_close": true}"#), 0);
    assert_eq!(SOURCES.close(id), 0);
    assert!(is_dropped(id));
    assert_one_error(id, &["closed with an error", "the last offset"]);
    assert_eq!(SOURCES.close(id), -1);
}

#[test]
fn an_open_that_fails_says_why_and_leaves_the_id_free() {
    let id = free_id();
    assert_eq!(open(id, r#"{"fail_open": true}"#), 1);
    assert_one_error(
        id,
        &["cannot be opened", r"port 1883 is in use\nchoose another"],
    );
    assert!(is_dropped(id));
    assert!(!CLOSED.lock().unwrap().contains(&id));
    assert_eq!(SOURCES.handle(id, Some(take)), -1);
    assert_eq!(SOURCES.close(id), -1);
    assert_eq!(open(id, "{}"), 0);
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn an_id_that_is_open_is_not_opened_again() {
    let id = free_id();
    assert_eq!(open(id, "{}"), 0);
    assert_eq!(open(id, "{}"), -1);
    assert_one_error(id, &["open already"]);
    assert!(!is_dropped(id));
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused_with_the_reason() {
    for (config, reason) in [
        (b"".as_slice(), "EOF while parsing"),
        (b"{", "EOF while parsing"),
        (b"{\"listen\": 1883}", "unknown field `listen`"),
        (b"{\"fail_open\": 7}", "invalid type: integer `7`"),
        (b"{\"fail_open\": \xff}", "not UTF-8"),
    ] {
        let id = free_id();
        assert_eq!(open_with(id, config, None), -1);
        assert_one_error(
            id,
            &["plugin_config", reason, "correct the connector's file"],
        );
        assert_eq!(open(id, "{}"), 0, "the id is free");
        assert_eq!(SOURCES.close(id), 0);
    }
}

#[test]
fn null_pointers_are_refused() {
    let (config, state) = (b"{}", [0_u8; 4]);
    let open = |id, config: (*const u8, usize), state: (*const u8, usize)| {
        // SAFETY: null, or the pointer of an array of at least that length, or a length that is never read.
        unsafe {
            SOURCES.open(
                id,
                config.0,
                config.1,
                state.0,
                state.1,
                Some(log),
                Probe::new,
            )
        }
    };
    let good_config = (config.as_ptr(), config.len());
    let good_state = (state.as_ptr(), state.len());
    for (config, state, reason) in [
        (
            (ptr::null(), 2),
            good_state,
            "null pointer for the configuration",
        ),
        ((ptr::null(), 0), good_state, "EOF while parsing"),
        (good_config, (ptr::null(), 4), "null pointer for the state"),
        (
            (config.as_ptr(), usize::MAX),
            good_state,
            "impossible length for the configuration",
        ),
    ] {
        let id = free_id();
        assert_eq!(open(id, config, state), -1);
        assert_one_error(id, &[reason]);
    }
    let id = free_id();
    assert_eq!(open(id, good_config, (ptr::null(), 0)), 0);
    assert_eq!(SOURCES.handle(id, None), -1);
    assert_one_error(id, &["no callback"]);
    assert_eq!(SOURCES.handle_v1(id, None), -1);
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn a_panic_becomes_minus_one_and_an_error_line() {
    for place in ["new", "open"] {
        let id = free_id();
        assert_eq!(open(id, &format!(r#"{{"panic_in": "{place}"}}"#)), -1);
        assert_one_error(id, &["panicked", "as asked", "iggy_source_open"]);
        assert_eq!(open(id, "{}"), 0, "the id is free");
        assert_eq!(SOURCES.close(id), 0);
    }
    let id = free_id();
    assert_eq!(open(id, r#"{"panic_in": "close"}"#), 0);
    assert_eq!(SOURCES.close(id), -1);
    assert_one_error(id, &["panicked", "as asked", "iggy_source_close"]);
    assert!(is_dropped(id));
    assert_eq!(open(id, "{}"), 0, "the id is free");
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn a_panic_in_poll_is_logged_and_the_source_can_be_closed() {
    let id = free_id();
    assert_eq!(open(id, r#"{"panic_in": "poll"}"#), 0);
    assert_eq!(SOURCES.handle(id, Some(take)), 0);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while errors_of(id).is_empty() {
        assert!(std::time::Instant::now() < deadline, "nothing was logged");
        thread::yield_now();
    }
    assert_one_error(
        id,
        &["panicked in poll", "as asked", "until it is restarted"],
    );
    assert_eq!(SOURCES.close(id), 0);
    assert!(is_dropped(id));
}

#[test]
fn a_source_is_started_once() {
    let id = free_id();
    assert_eq!(open(id, r#"{"wait_in_poll": true}"#), 0);
    assert_eq!(SOURCES.handle(id, Some(take)), 0);
    assert_eq!(SOURCES.handle(id, Some(take)), -1);
    assert_one_error(id, &["started already"]);
    assert_eq!(SOURCES.handle_v1(id, Some(take_v1)), -1);
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn calls_for_an_id_that_is_not_open_are_refused() {
    let id = free_id();
    assert_eq!(SOURCES.handle(id, Some(take)), -1);
    assert_eq!(SOURCES.handle_v1(id, Some(take_v1)), -1);
    assert_eq!(SOURCES.batch_result(id, 1, 0), -1);
    assert_eq!(SOURCES.close(id), -1);
}

#[test]
fn a_batch_result_that_fits_nothing_is_refused() {
    let id = free_id();
    let batches = batches_of(id);
    assert_eq!(open(id, "{}"), 0);
    assert_eq!(SOURCES.batch_result(id, 1, 0), -1, "not started");
    assert_eq!(SOURCES.handle(id, Some(take)), 0);
    assert_eq!(next(&batches).1, 1);
    assert_eq!(SOURCES.batch_result(id, 2, 0), -1, "another batch");
    assert_eq!(results_of(id), []);
    // An unknown code must not count as delivered.
    assert_eq!(SOURCES.batch_result(id, 1, 2), -1);
    assert_eq!(results_of(id), [SourceBatchResult::Nack]);
    assert_eq!(SOURCES.close(id), 0);
}

#[test]
fn a_host_of_runtime_0_4_takes_batches_without_results() {
    let id = free_id();
    let batches = batches_of(id);
    assert_eq!(open(id, "{}"), 0);
    assert_eq!(SOURCES.handle_v1(id, Some(take_v1)), 0);
    let (_, _, bytes) = next(&batches);
    let batch: ProducedMessages = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(batch.messages.len(), 1);
    next(&batches);
    assert_eq!(results_of(id)[0], SourceBatchResult::Ack);
    assert_eq!(SOURCES.close(id), 0);
    assert!(!results_of(id).contains(&SourceBatchResult::Nack));
}

#[test]
fn results_and_closing_at_the_same_time_do_not_wait_for_each_other() {
    for _ in 0..50 {
        let id = free_id();
        let batches = batches_of(id);
        assert_eq!(open(id, "{}"), 0);
        assert_eq!(SOURCES.handle(id, Some(take)), 0);
        let (_, batch_id, _) = next(&batches);
        let answering = thread::spawn(move || SOURCES.batch_result(id, batch_id, 0));
        let closing = thread::spawn(move || SOURCES.close(id));
        assert!([0, -1].contains(&answering.join().unwrap()));
        assert_eq!(closing.join().unwrap(), 0);
        assert!(is_dropped(id));
        // Whoever was first: the batch has one outcome, and one more may have been in flight.
        assert!(
            (1..=2).contains(&results_of(id).len()),
            "{:?}",
            results_of(id)
        );
    }
}

#[test]
fn calls_from_inside_the_runtime_of_the_library_are_refused() {
    static CODES: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    static BATCHES: AtomicUsize = AtomicUsize::new(0);
    /// A host that answers from inside the callback, on the library's own thread.
    extern "C" fn answer_at_once(id: u32, batch_id: u64, _: *const u8, _: usize) -> i32 {
        if BATCHES.fetch_add(1, Ordering::SeqCst) == 0 {
            let mut codes = CODES.lock().unwrap();
            codes.push(SOURCES.batch_result(id, batch_id, 0));
            codes.push(SOURCES.close(id));
            codes.push(open(free_id(), "{}"));
        }
        0
    }
    let id = free_id();
    assert_eq!(open(id, "{}"), 0);
    assert_eq!(SOURCES.handle(id, Some(answer_at_once)), 0);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while CODES.lock().unwrap().len() < 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            CODES.lock().unwrap()
        );
        thread::yield_now();
    }
    assert_eq!(*CODES.lock().unwrap(), [-1, -1, -1]);
    assert!(
        errors_of(id)
            .iter()
            .all(|line| line.contains("inside the plugin's own Tokio runtime"))
    );
    assert_eq!(errors_of(id).len(), 2);
    // From a thread of the host's own it goes on as if nothing had been.
    assert_eq!(SOURCES.batch_result(id, 1, 0), 0);
    assert_eq!(SOURCES.close(id), 0);
}
