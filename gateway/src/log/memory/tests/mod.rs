//! The memory log answers as Iggy does.

mod faults;

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::log::{Headers, Name};

fn target() -> Target {
    Target {
        stream: Name::new("plant").unwrap(),
        topic: Name::new("telemetry").unwrap(),
    }
}

fn triple() -> Triple {
    Triple {
        target: target(),
        partition: 0,
    }
}

fn record(id: u128) -> Record {
    Record {
        id,
        headers: Headers::default(),
        payload: Bytes::from(format!("payload {id}")),
    }
}

fn log() -> Arc<MemoryLog> {
    let log = MemoryLog::new();
    log.add_topic(&target(), 1, None);
    Arc::new(log)
}

fn ids(log: &MemoryLog) -> Vec<u128> {
    log.records(&triple())
        .iter()
        .map(|record| record.id)
        .collect()
}

fn broken() -> LogError {
    LogError::Busy("scripted".into())
}

#[tokio::test(start_paused = true)]
async fn appended_records_are_polled_in_order_from_any_offset() {
    let log = log();
    log.append(&triple(), &[record(1), record(2)])
        .await
        .unwrap();
    tokio::time::advance(Duration::from_millis(3)).await;
    log.append(&triple(), &[record(3)]).await.unwrap();
    let polled = log.poll(&triple(), 1, 10).await.unwrap();
    assert_eq!(polled.newest_offset, 2);
    assert_eq!(
        polled
            .records
            .iter()
            .map(|r| (r.offset, r.id))
            .collect::<Vec<_>>(),
        [(1, 2), (2, 3)]
    );
    assert_eq!(
        polled.records[1].timestamp_micros - polled.records[0].timestamp_micros,
        3_000
    );
    assert_eq!(log.poll(&triple(), 0, 1).await.unwrap().records.len(), 1);
    assert_eq!(
        log.poll(&triple(), 9, 1).await.unwrap(),
        Polled {
            records: vec![],
            newest_offset: 2
        }
    );
    assert_eq!(log.end(&triple()).await, Ok(3));
    assert_eq!(
        log.counts(&triple()),
        Counts {
            appends: 2,
            polls: 3,
            rereads: 0,
            commits: 0
        }
    );
}

#[tokio::test]
async fn an_append_with_one_bad_record_stores_none() {
    let log = log();
    let empty = Record {
        payload: Bytes::new(),
        ..record(2)
    };
    assert!(matches!(
        log.append(&triple(), &[record(1), empty]).await,
        Err(LogError::Refused(_))
    ));
    let huge = Record {
        payload: Bytes::from(vec![0; crate::log::MAX_PAYLOAD_BYTES + 1]),
        ..record(3)
    };
    assert!(matches!(
        log.append(&triple(), &[record(1), huge]).await,
        Err(LogError::TooLarge(_))
    ));
    assert!(ids(&log).is_empty());
}

#[tokio::test]
async fn a_missing_topic_or_partition_is_said_to_be_missing() {
    let log = log();
    let elsewhere = Triple {
        partition: 1,
        ..triple()
    };
    assert!(matches!(
        log.append(&elsewhere, &[record(1)]).await,
        Err(LogError::NoSuchTarget(_))
    ));
    assert_eq!(
        log.topic(&target())
            .await
            .map(|info| info.map(|info| (info.partitions, info.durability))),
        Ok(Some((1, None)))
    );
    log.delete_topic(&target());
    assert_eq!(log.topic(&target()).await, Ok(None));
    assert!(matches!(
        log.poll(&triple(), 0, 1).await,
        Err(LogError::NoSuchTarget(_))
    ));
}

#[tokio::test]
async fn a_topic_that_is_made_again_starts_over_and_create_keeps_one_that_exists() {
    let log = log();
    log.append(&triple(), &[record(1)]).await.unwrap();
    log.commit(&triple(), "gateway", 0).await.unwrap();
    let spec = TopicSpec {
        partitions: 3,
        ..TopicSpec::default()
    };
    let first = log.create(&target(), &spec).await.unwrap();
    assert_eq!(first.partitions, 1);
    assert_eq!(ids(&log), [1]);
    log.delete_topic(&target());
    let made = log.create(&target(), &spec).await.unwrap();
    assert_eq!(made.partitions, 3);
    assert_eq!(made.durability, Some(Durability::Persisted));
    assert!(made.created_micros > first.created_micros);
    assert_eq!(log.end(&triple()).await, Ok(0));
    assert_eq!(log.committed(&triple(), "gateway").await, Ok(None));
}

#[tokio::test]
async fn commits_are_kept_per_consumer_with_their_history() {
    let log = log();
    log.append(&triple(), &(1..=8).map(record).collect::<Vec<_>>())
        .await
        .unwrap();
    for offset in [3, 7, 5] {
        log.commit(&triple(), "a", offset).await.unwrap();
    }
    log.commit(&triple(), "b", 1).await.unwrap();
    assert_eq!(log.committed(&triple(), "a").await, Ok(Some(5)));
    assert_eq!(log.commits(&triple(), "a"), [3, 7, 5]);
    assert_eq!(log.commits(&triple(), "b"), [1]);
    assert_eq!(log.committed(&triple(), "c").await, Ok(None));
    log.delete_topic(&target());
    assert_eq!(log.committed(&triple(), "a").await, Ok(None));
    assert_eq!(log.commits(&triple(), "a"), [3, 7, 5]);
}

#[tokio::test]
async fn an_offset_that_no_record_has_yet_cannot_be_committed() {
    let log = log();
    assert!(matches!(
        log.commit(&triple(), "a", 0).await,
        Err(LogError::Refused(_))
    ));
    log.append(&triple(), &[record(1)]).await.unwrap();
    assert!(matches!(
        log.commit(&triple(), "a", 1).await,
        Err(LogError::Refused(_))
    ));
    log.commit(&triple(), "a", 0).await.unwrap();
    log.truncate(&triple(), 0);
    assert_eq!(log.committed(&triple(), "a").await, Ok(Some(0)));
}

#[tokio::test]
async fn a_truncated_log_gives_its_offsets_out_again() {
    let log = log();
    log.append(&triple(), &[record(1), record(2), record(3)])
        .await
        .unwrap();
    log.truncate(&triple(), 1);
    assert_eq!(log.end(&triple()).await, Ok(1));
    log.append(&triple(), &[record(4)]).await.unwrap();
    assert_eq!(
        log.records(&triple())
            .iter()
            .map(|r| (r.offset, r.id))
            .collect::<Vec<_>>(),
        [(0, 1), (1, 4)]
    );
}

#[tokio::test]
async fn a_log_can_lose_more_than_retention_has_left() {
    let log = log();
    log.append(&triple(), &[record(1), record(2), record(3)])
        .await
        .unwrap();
    log.expire(&triple(), 2);
    log.truncate(&triple(), 1);
    assert_eq!(log.end(&triple()).await, Ok(1));
    log.append(&triple(), &[record(4)]).await.unwrap();
    assert_eq!(log.records(&triple())[0].offset, 1);
}

#[tokio::test]
async fn an_expired_beginning_leaves_a_gap_and_the_rest() {
    let log = log();
    log.append(&triple(), &[record(1), record(2), record(3)])
        .await
        .unwrap();
    log.expire(&triple(), 2);
    let polled = log.poll(&triple(), 0, 10).await.unwrap();
    assert_eq!(
        polled.records.iter().map(|r| r.offset).collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(log.end(&triple()).await, Ok(3));
    log.expire(&triple(), 3);
    assert_eq!(
        log.poll(&triple(), 0, 10).await.unwrap(),
        Polled {
            records: vec![],
            newest_offset: 2
        }
    );
    assert_eq!(log.end(&triple()).await, Ok(3));
}
