//! Servers that are away, hang, refuse or break connections.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_a_server_asking_fails_at_once_with_the_reason() {
    let (server, pool) = pool(2);
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    assert!(is_unreachable(connect(&pool).await, "refused"));
    let before = Instant::now();
    for _ in 0..100 {
        assert!(is_unreachable(pool.lease().await, "refused"));
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn attempts_go_on_for_ever_with_growing_pauses_up_to_the_longest() {
    let (server, pool) = pool(1);
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    assert!(connect(&pool).await.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let early = server.attempts();
    assert!((4..=8).contains(&early), "{early} attempts in two seconds");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let late = server.attempts() - early;
    assert!((720..=1440).contains(&late), "{late} attempts in an hour");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_any_length_requests_succeed_within_the_longest_pause() {
    let (server, pool) = pool(3);
    connect(&pool).await.unwrap();
    server.kill_all();
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    // The request in flight finds that the server is gone; the others are found out by their checks.
    pool.lease().await.unwrap().broken();
    assert!(is_unreachable(pool.lease().await, "refused"));
    for outage in [1, 60, 3600] {
        tokio::time::sleep(Duration::from_secs(outage)).await;
        assert!(is_unreachable(pool.lease().await, "refused"));
    }
    server.set(Mood::Accepts);
    let before = Instant::now();
    until_lent(&pool).await;
    assert!(
        before.elapsed() <= LONGEST_BACKOFF + Duration::from_millis(10),
        "{:?}",
        before.elapsed()
    );
    // One connection found the server back, and the others did not wait out their own pauses.
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_finds_the_server_back_wakes_the_other_pool() {
    let server = Arc::new(Server::default());
    let back = Arc::new(Notify::new());
    let (one, other) = (
        Pool::new(server.clone(), 1, WAIT, back.clone()),
        Pool::new(server.clone(), 1, WAIT, back),
    );
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    assert!(connect(&one).await.is_err() && connect(&other).await.is_err());
    tokio::time::sleep(Duration::from_secs(600)).await;
    server.set(Mood::Accepts);
    tokio::select! { () = until_lent(&one) => {}, () = until_lent(&other) => {} }
    let one_is_back = Instant::now();
    until_lent(&one).await;
    until_lent(&other).await;
    assert!(
        one_is_back.elapsed() < Duration::from_millis(50),
        "the other came {:?} later",
        one_is_back.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_makes_the_others_be_checked_before_they_are_lent() {
    let (server, pool) = pool(3);
    connect(&pool).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let lease = pool.lease().await.unwrap();
    server.kill_all();
    lease.broken();
    for _ in 0..10 {
        let lease = pool.lease().await.unwrap();
        assert!(
            server.alive(&lease.connection()),
            "a dead connection was lent"
        );
        lease.give_back();
    }
    // Two dead ones were checked, and what was made after the break needs no check.
    assert!(server.checks.load(Ordering::SeqCst) <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_connection_that_is_found_sound_is_checked_once() {
    let (server, pool) = pool(2);
    connect(&pool).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    pool.lease().await.unwrap().broken();
    for _ in 0..10 {
        pool.lease().await.unwrap().give_back();
    }
    assert_eq!(server.checks.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_checked_and_replaced_when_it_is_dead() {
    let (server, pool) = pool(2);
    connect(&pool).await.unwrap();
    tokio::time::sleep(CHECK_INTERVAL * 7 / 2).await;
    assert_eq!(server.checks.load(Ordering::SeqCst), 6);
    assert_eq!(server.attempts(), 2);
    server.kill_all();
    tokio::time::sleep(CHECK_INTERVAL * 2).await;
    assert_eq!(server.attempts(), 4);
    assert_eq!(server.open.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up_after_the_connect_timeout_and_later_after_a_moment() {
    let (server, pool) = pool(1);
    server.set(Mood::Hangs);
    let before = Instant::now();
    assert!(is_unreachable(connect(&pool).await, "does not answer"));
    assert_eq!(before.elapsed(), CONNECT_TIMEOUT);
    server.set(Mood::Accepts);
    until_lent(&pool).await;
    server.set(Mood::Hangs);
    tokio::time::sleep(PATIENCE).await;
    pool.lease().await.unwrap().broken();
    let before = Instant::now();
    assert!(is_unreachable(pool.lease().await, "does not answer"));
    assert_eq!(before.elapsed(), PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_at_once_again_and_again_is_made_at_a_bounded_rate() {
    let (server, pool) = pool(1);
    let before = Instant::now();
    while before.elapsed() < Duration::from_secs(1) && server.attempts() < 100 {
        until_broken(&pool).await;
    }
    assert!(
        server.attempts() <= 21,
        "{} attempts in a second",
        server.attempts()
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_permanent_at_first_and_transient_once_there_was_a_connection() {
    let (server, pool) = pool(1);
    server.set(Mood::Refuses(LogErrorKind::BadCredentials));
    assert_eq!(
        connect(&pool).await,
        Err(LogError::BadCredentials {
            username: "u".into()
        })
    );
    server.set(Mood::Accepts);
    tokio::time::sleep(LONGEST_BACKOFF).await;
    pool.lease().await.unwrap().broken();
    let _ = pool.lease().await.map(Lease::give_back);
    server.set(Mood::Refuses(LogErrorKind::BadCredentials));
    pool.lease().await.unwrap().broken();
    let error = connect(&pool).await.unwrap_err();
    assert_eq!(pool.lease().await.err(), Some(error.clone()));
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("refuses the user"), "{error}");
}
