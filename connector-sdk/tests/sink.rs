//! The exported functions of a sink, called as a host calls them: from plain threads, with pointers.

#![allow(unsafe_code)]
// Clippy takes only the `#[test]` functions themselves for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use std::{ptr, thread};

use async_trait::async_trait;
use common::{assert_one_error, errors_of, free_id, log};
use iggy_common::{HeaderKey, HeaderValue};
use iggy_connector_sdk::connector_macro_support::SinkInstances;
use iggy_connector_sdk::{
    ConsumedMessage, Error, MessagesMetadata, Payload, RawMessage, RawMessages, Schema, Sink,
    TopicMetadata,
};
use serde::Serialize;

#[derive(Debug)]
struct Probe {
    id: u32,
    mode: String,
}

struct Consumed {
    id: u32,
    topic: String,
    partition: u32,
    messages: Vec<ConsumedMessage>,
}

static CONSUMED: Mutex<Vec<Consumed>> = Mutex::new(Vec::new());
static CLOSED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// A `Probe` of mode "slow" says that it began, then waits for the gate.
static BEGUN: Mutex<Option<mpsc::Sender<()>>> = Mutex::new(None);
static GATE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

impl Probe {
    fn new(id: u32, mode: String) -> Self {
        Self { id, mode }
    }
}

#[async_trait]
impl Sink for Probe {
    async fn open(&mut self) -> Result<(), Error> {
        match self.mode.as_str() {
            "fail" => Err(Error::InvalidConfigValue("mode".to_owned())),
            "panic in open" => panic!("as asked"),
            _ => Ok(()),
        }
    }

    async fn consume(
        &self,
        topic: &TopicMetadata,
        metadata: MessagesMetadata,
        messages: Vec<ConsumedMessage>,
    ) -> Result<(), Error> {
        if self.mode == "slow" {
            let begun = BEGUN.lock().unwrap().take();
            begun.unwrap().send(()).unwrap();
            GATE.acquire().await.unwrap().forget();
        }
        CONSUMED.lock().unwrap().push(Consumed {
            id: self.id,
            topic: format!("{}/{}", topic.stream, topic.topic),
            partition: metadata.partition_id,
            messages,
        });
        match self.mode.as_str() {
            "fail to consume" => Err(Error::CannotStoreData("full".to_owned())),
            "panic in consume" => panic!("as asked"),
            _ => Ok(()),
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        CLOSED.lock().unwrap().push(self.id);
        Ok(())
    }
}

static SINKS: SinkInstances<Probe> = SinkInstances::new();

fn open(mode: &str) -> (u32, i32) {
    let id = free_id();
    let config = serde_json::to_vec(mode).unwrap();
    // SAFETY: the pointer is that of a slice that lives during the call.
    let code = unsafe { SINKS.open(id, config.as_ptr(), config.len(), Some(log), Probe::new) };
    (id, code)
}

fn topic() -> TopicMetadata {
    TopicMetadata {
        stream: "s".to_owned(),
        topic: "t".to_owned(),
    }
}

fn metadata(schema: Schema) -> MessagesMetadata {
    MessagesMetadata {
        partition_id: 3,
        current_offset: 9,
        schema,
    }
}

fn message(offset: u64, headers: Vec<u8>, payload: &[u8]) -> RawMessage {
    RawMessage {
        id: u128::from(offset) + 100,
        offset,
        checksum: 1,
        timestamp: 2,
        origin_timestamp: 3,
        headers,
        payload: payload.to_vec(),
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap()
}

fn consume_bytes(id: u32, topic: &[u8], metadata: &[u8], messages: &[u8]) -> i32 {
    // SAFETY: the pointers are those of slices that live during the call.
    unsafe {
        SINKS.consume(
            id,
            topic.as_ptr(),
            topic.len(),
            metadata.as_ptr(),
            metadata.len(),
            messages.as_ptr(),
            messages.len(),
        )
    }
}

fn consume(id: u32, schema: Schema, messages: Vec<RawMessage>) -> i32 {
    let messages = encode(&RawMessages { schema, messages });
    consume_bytes(id, &encode(&topic()), &encode(&metadata(schema)), &messages)
}

fn consumed_by(id: u32) -> Vec<Consumed> {
    let mut consumed = CONSUMED.lock().unwrap();
    let (mine, others) = consumed.drain(..).partition(|consumed| consumed.id == id);
    *consumed = others;
    mine
}

#[test]
fn a_sink_lives_from_open_over_batches_to_close() {
    let (id, code) = open("take");
    assert_eq!(code, 0);
    let headers = BTreeMap::from([(HeaderKey::try_from("qos").unwrap(), HeaderValue::from(1_u8))]);
    let messages = vec![
        message(4, encode(&headers), b"{\"t\":1}"),
        message(5, vec![], b"2"),
    ];
    assert_eq!(consume(id, Schema::Json, messages), 0);
    let consumed = consumed_by(id);
    assert_eq!(consumed.len(), 1);
    assert_eq!(
        (consumed[0].topic.as_str(), consumed[0].partition),
        ("s/t", 3)
    );
    let [first, second] = &consumed[0].messages[..] else {
        panic!("{:?}", consumed[0].messages)
    };
    assert_eq!((first.id, first.offset, first.checksum), (104, 4, 1));
    assert_eq!((first.timestamp, first.origin_timestamp), (2, 3));
    assert_eq!(first.headers, Some(headers));
    assert!(matches!(&first.payload, Payload::Json(json) if json["t"] == 1));
    assert_eq!((second.offset, &second.headers), (5, &None));
    assert_eq!(SINKS.close(id), 0);
    assert!(CLOSED.lock().unwrap().contains(&id));
    assert_eq!(SINKS.close(id), -1);
    assert_eq!(consume(id, Schema::Raw, vec![]), -1);
    assert_eq!(errors_of(id), Vec::<String>::new());
}

#[test]
fn a_message_that_cannot_be_decoded_is_left_out_and_the_others_are_handed_over() {
    let (id, _) = open("take");
    let messages = vec![
        message(1, vec![0xff], b"a"),
        message(2, vec![], &[0xff]),
        message(3, vec![], b"c"),
    ];
    assert_eq!(consume(id, Schema::Text, messages), 0);
    let consumed = consumed_by(id);
    let offsets: Vec<u64> = consumed[0]
        .messages
        .iter()
        .map(|message| message.offset)
        .collect();
    assert_eq!(offsets, [3]);
    let errors = errors_of(id);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("headers cannot be decoded") && errors[0].contains("offset=1"));
    assert!(errors[1].contains("2 messages of this batch are left out"));
    assert_eq!(SINKS.close(id), 0);
}

#[test]
fn errors_and_panics_of_the_sink_become_codes() {
    let (id, code) = open("fail");
    assert_eq!(code, 1);
    assert_one_error(id, &["cannot be opened", "invalid configuration: mode"]);
    assert_eq!(SINKS.close(id), -1, "nothing is left behind");

    let (id, code) = open("panic in open");
    assert_eq!(code, -1);
    assert_one_error(id, &["panicked", "as asked", "iggy_sink_open"]);

    let (id, _) = open("fail to consume");
    assert_eq!(consume(id, Schema::Raw, vec![]), 1);
    assert_one_error(id, &["cannot take a batch", "full", "stream=s", "topic=t"]);
    assert_eq!(SINKS.close(id), 0);

    let (id, _) = open("panic in consume");
    assert_eq!(consume(id, Schema::Raw, vec![]), -1);
    assert_one_error(id, &["panicked", "as asked", "iggy_sink_consume"]);
    assert_eq!(SINKS.close(id), 0, "a panic leaves no lock behind");
}

#[test]
fn bytes_that_cannot_be_decoded_are_refused_with_the_reason() {
    let (topic, metadata) = (encode(&topic()), encode(&metadata(Schema::Raw)));
    let messages = encode(&RawMessages {
        schema: Schema::Raw,
        messages: vec![message(1, vec![], b"a")],
    });
    for (topic, metadata, messages, reason) in [
        (&[][..], &metadata[..], &messages[..], "topic metadata"),
        (
            &topic[..],
            &metadata[..1],
            &messages[..],
            "messages metadata",
        ),
        (
            &topic[..],
            &metadata[..],
            &messages[..5],
            "the messages cannot be decoded",
        ),
    ] {
        let (id, _) = open("take");
        assert_eq!(consume_bytes(id, topic, metadata, messages), -1);
        assert_one_error(id, &["a batch is lost", reason]);
        assert!(consumed_by(id).is_empty());
        assert_eq!(SINKS.close(id), 0);
    }
}

#[test]
fn null_pointers_are_refused() {
    let (topic, metadata) = (encode(&topic()), encode(&metadata(Schema::Raw)));
    let (id, _) = open("take");
    // SAFETY: null pointers are refused before anything is read, and the others are those of slices.
    let code = unsafe {
        SINKS.consume(
            id,
            topic.as_ptr(),
            topic.len(),
            metadata.as_ptr(),
            metadata.len(),
            ptr::null(),
            8,
        )
    };
    assert_eq!(code, -1);
    assert_one_error(id, &["null pointer for the messages"]);
    assert_eq!(SINKS.close(id), 0);
    // SAFETY: as above.
    let code = unsafe { SINKS.open(id, ptr::null(), 8, Some(log), Probe::new) };
    assert_eq!(code, -1);
}

#[test]
fn closing_waits_for_a_batch_that_is_being_consumed() {
    let (id, _) = open("slow");
    let (begun, has_begun) = mpsc::channel();
    *BEGUN.lock().unwrap() = Some(begun);
    let consuming = thread::spawn(move || consume(id, Schema::Raw, vec![message(1, vec![], b"a")]));
    has_begun.recv_timeout(Duration::from_secs(20)).unwrap();
    let (sender, closed) = mpsc::channel();
    thread::spawn(move || sender.send(SINKS.close(id)).unwrap());
    let early = closed.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "closed beside a batch");
    assert!(!CLOSED.lock().unwrap().contains(&id));
    GATE.add_permits(1);
    assert_eq!(consuming.join().unwrap(), 0);
    assert_eq!(closed.recv_timeout(Duration::from_secs(20)).unwrap(), 0);
}

#[test]
fn calls_from_inside_the_runtime_of_the_library_are_refused() {
    let (id, _) = open("take");
    let codes = iggy_connector_sdk::get_runtime().block_on(async move {
        [
            consume(id, Schema::Raw, vec![]),
            SINKS.close(id),
            open("take").1,
        ]
    });
    assert_eq!(codes, [-1, -1, -1]);
    assert!(consumed_by(id).is_empty());
    assert_eq!(SINKS.close(id), 0);
}
