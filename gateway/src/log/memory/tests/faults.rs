//! The memory log breaks what it is told to break, and nothing else.

use super::*;

#[tokio::test]
async fn a_scripted_failure_stores_nothing_and_hits_one_call() {
    let log = log();
    log.script(Call::Append, Fault::Fail(broken()));
    assert_eq!(log.append(&triple(), &[record(1)]).await, Err(broken()));
    assert!(ids(&log).is_empty());
    log.append(&triple(), &[record(1)]).await.unwrap();
    assert_eq!(ids(&log), [1]);
}

#[tokio::test]
async fn a_lost_reply_stores_and_reports_a_failure() {
    let log = log();
    log.script(Call::Append, Fault::LoseReply(broken()));
    assert_eq!(log.append(&triple(), &[record(1)]).await, Err(broken()));
    assert_eq!(ids(&log), [1]);
    log.script(Call::Commit, Fault::LoseReply(broken()));
    assert_eq!(log.commit(&triple(), "a", 0).await, Err(broken()));
    assert_eq!(log.committed(&triple(), "a").await, Ok(Some(0)));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_was_given_up_can_be_stored_after_its_retry_and_what_followed() {
    let log = log();
    log.script(
        Call::Append,
        Fault::DoneLater(
            Duration::from_secs(5),
            LogError::Timeout(Duration::from_secs(1)),
        ),
    );
    assert!(log.append(&triple(), &[record(1)]).await.is_err());
    assert!(ids(&log).is_empty());
    log.append(&triple(), &[record(1)]).await.unwrap();
    log.append(&triple(), &[record(2)]).await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(ids(&log), [1, 2, 1]);
    assert_eq!(log.end(&triple()).await, Ok(3));
    assert_eq!(log.counts(&triple()).appends, 3);
}

#[tokio::test(start_paused = true)]
async fn appends_that_were_given_up_are_stored_when_their_times_come() {
    let log = log();
    for (id, seconds) in [(1, 5), (2, 3)] {
        log.script(
            Call::Append,
            Fault::DoneLater(Duration::from_secs(seconds), broken()),
        );
        assert!(log.append(&triple(), &[record(id)]).await.is_err());
    }
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(ids(&log), [2]);
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(ids(&log), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_its_time_and_a_dropped_call_is_not_done() {
    let log = log();
    log.script(Call::Append, Fault::Delay(Duration::from_secs(2)));
    let before = Instant::now();
    log.append(&triple(), &[record(1)]).await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 2);
    log.script(Call::Append, Fault::Delay(Duration::from_secs(2)));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), log.append(&triple(), &[record(2)]))
            .await
            .is_err()
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(ids(&log), [1]);
}

#[tokio::test(start_paused = true)]
async fn held_appends_wait_for_release_and_say_how_many_they_are() {
    for (at, stored_while_held) in [(HoldAt::BeforeCommit, 0), (HoldAt::AfterCommit, 1)] {
        let log = log();
        log.hold(at);
        let append = tokio::spawn({
            let log = log.clone();
            async move { log.append(&triple(), &[record(1)]).await }
        });
        log.wait_until("one append is held", |log| log.held() == 1)
            .await;
        assert_eq!(log.records(&triple()).len(), stored_while_held);
        assert!(!append.is_finished());
        log.release();
        append.await.unwrap().unwrap();
        assert_eq!(ids(&log), [1]);
        assert_eq!(log.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_fails_everything_at_once_also_what_is_held_and_ends() {
    let log = log();
    log.hold(HoldAt::BeforeCommit);
    let append = tokio::spawn({
        let log = log.clone();
        async move { log.append(&triple(), &[record(1)]).await }
    });
    log.wait_until("one append is held", |log| log.held() == 1)
        .await;
    log.set_outage(true);
    let outcome = tokio::time::timeout(DEADLINE, append)
        .await
        .expect("still held");
    assert!(matches!(
        outcome.unwrap(),
        Err(LogError::Unreachable { .. })
    ));
    assert!(matches!(
        log.ping().await,
        Err(LogError::Unreachable { .. })
    ));
    assert!(matches!(
        log.topic(&target()).await,
        Err(LogError::Unreachable { .. })
    ));
    assert!(matches!(
        log.poll(&triple(), 0, 1).await,
        Err(LogError::Unreachable { .. })
    ));
    log.release();
    log.set_outage(false);
    log.ping().await.unwrap();
    assert!(ids(&log).is_empty());
    log.close().await;
    log.set_outage(false);
    assert!(matches!(
        log.ping().await,
        Err(LogError::Unreachable { .. })
    ));
}

#[tokio::test]
async fn a_refused_target_is_refused_until_it_is_permitted_and_others_are_not() {
    let log = log();
    let other = Triple {
        target: Target {
            stream: Name::new("other").unwrap(),
            ..target()
        },
        partition: 0,
    };
    log.add_topic(&other.target, 1, None);
    log.refuse(&target(), Some(LogError::NotPermitted("append".into())));
    assert!(matches!(
        log.append(&triple(), &[record(1)]).await,
        Err(LogError::NotPermitted(_))
    ));
    assert!(matches!(
        log.topic(&target()).await,
        Err(LogError::NotPermitted(_))
    ));
    log.append(&other, &[record(1)]).await.unwrap();
    log.refuse(&target(), None);
    log.append(&triple(), &[record(1)]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_faults_and_another_seed_gives_others() {
    async fn run(seed: u64) -> (Vec<Result<(), LogError>>, Vec<u128>) {
        let longest_delay = Duration::from_millis(50);
        let chances = Chances {
            fail: 0.2,
            lose_reply: 0.2,
            done_later: 0.1,
            delay: 0.3,
            longest_delay,
        };
        let log = MemoryLog::seeded(seed, chances);
        log.add_topic(&target(), 1, None);
        let mut results = Vec::new();
        for id in 0..200 {
            results.push(log.append(&triple(), &[record(id)]).await);
        }
        tokio::time::advance(longest_delay).await;
        (results, ids(&log))
    }
    let first = run(1).await;
    assert_eq!(first, run(1).await);
    assert_ne!(first.0, run(2).await.0);
    let failed = first.0.iter().filter(|result| result.is_err()).count();
    assert!(failed > 50 && failed < 150, "{failed} of 200 failed");
    assert!(first.0.iter().all(
        |result| result.as_ref().is_ok() || result.as_ref().is_err_and(LogError::is_transient)
    ));
    // Replies were lost: more is stored than was confirmed.
    assert!(first.1.len() > 200 - failed);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited in vain for: a record")]
async fn waiting_in_vain_ends_and_says_for_what() {
    log()
        .wait_until("a record", |log| !log.records(&triple()).is_empty())
        .await;
}
