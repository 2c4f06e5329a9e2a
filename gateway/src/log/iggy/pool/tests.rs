//! The pool with connections that are numbers and a server that is a struct, in Tokio's paused time.

use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::*;

/// A server whose behaviour a test sets. Connections are numbered in the order in which they were made.
#[derive(Default)]
struct Server {
    made: AtomicU32,
    attempts: AtomicU32,
    checks: AtomicU32,
    most_open: AtomicUsize,
    open: Arc<AtomicUsize>,
    mood: Mutex<Mood>,
    /// Connections up to this number are dead.
    dead: AtomicU32,
}

#[derive(Default, Clone)]
enum Mood {
    #[default]
    Accepts,
    Refuses(LogErrorKind),
    Hangs,
}

#[derive(Default, Clone, Copy)]
enum LogErrorKind {
    #[default]
    Unreachable,
    BadCredentials,
}

struct Connection {
    number: u32,
    open: Arc<AtomicUsize>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn kill_all(&self) {
        self.dead
            .store(self.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::SeqCst)
    }

    fn alive(&self, connection: &Connection) -> bool {
        connection.number > self.dead.load(Ordering::SeqCst)
    }
}

impl Dial for Server {
    type Connection = Connection;

    async fn dial(&self, _: u32) -> Result<Connection, LogError> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let mood = self.mood.lock().clone();
        match mood {
            Mood::Accepts => {}
            Mood::Refuses(LogErrorKind::Unreachable) => return Err(self.unreachable("refused")),
            Mood::Refuses(LogErrorKind::BadCredentials) => {
                return Err(LogError::BadCredentials {
                    username: "u".into(),
                });
            }
            Mood::Hangs => std::future::pending().await,
        }
        let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        Ok(Connection {
            number,
            open: self.open.clone(),
        })
    }

    async fn check(&self, connection: &Connection) -> bool {
        self.checks.fetch_add(1, Ordering::SeqCst);
        self.alive(connection)
    }

    fn unreachable(&self, reason: &str) -> LogError {
        LogError::Unreachable {
            address: "test".into(),
            reason: reason.into(),
        }
    }
}

const WAIT: Duration = Duration::from_secs(10);

fn pool(size: usize) -> (Arc<Server>, Arc<Pool<Server>>) {
    let server = Arc::new(Server::default());
    let pool = Pool::new(server.clone(), size, WAIT, Arc::default());
    (server, Arc::new(pool))
}

fn is_unreachable<T>(result: Result<T, LogError>, because: &str) -> bool {
    matches!(result, Err(LogError::Unreachable { reason, .. }) if reason.contains(because))
}

/// Asks again and again until a connection is lent, and gives it back.
async fn until_lent(pool: &Pool<Server>) {
    while pool.lease().await.map(Lease::give_back).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_made_when_first_asked_for_and_lent_again() {
    let (server, pool) = pool(2);
    tokio::time::sleep(WAIT).await;
    assert_eq!(server.attempts(), 0);
    pool.connect().await.unwrap();
    for _ in 0..10 {
        pool.lease().await.unwrap().give_back();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_lent_to_one_at_a_time_in_the_order_of_asking() {
    let (server, pool) = pool(1);
    let first = pool.lease().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..5 {
        let (pool, order) = (pool.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let lease = pool.lease().await.unwrap();
            order.lock().push(n);
            tokio::time::sleep(Duration::from_millis(10)).await;
            lease.give_back();
        }));
        tokio::task::yield_now().await;
    }
    first.give_back();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    assert_eq!(server.most_open.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_too_long_for_a_turn_is_told_that_all_are_in_use() {
    let (_server, pool) = pool(1);
    let lease = pool.lease().await.unwrap();
    let before = Instant::now();
    assert!(matches!(pool.lease().await, Err(LogError::Busy(_))));
    assert_eq!(before.elapsed(), WAIT);
    lease.give_back();
    pool.lease().await.unwrap().give_back();
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_borrower_went_away_is_replaced() {
    let (server, pool) = pool(1);
    let lease = pool.lease().await.unwrap();
    assert_eq!(lease.connection().number, 1);
    drop(lease);
    assert_eq!(
        server.open.load(Ordering::SeqCst),
        0,
        "the old connection is still open"
    );
    assert_eq!(pool.lease().await.unwrap().connection().number, 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_server_asking_fails_at_once_with_the_reason() {
    let (server, pool) = pool(2);
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    assert!(is_unreachable(pool.connect().await, "refused"));
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
    assert!(pool.connect().await.is_err());
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
    pool.connect().await.unwrap();
    server.kill_all();
    server.set(Mood::Refuses(LogErrorKind::Unreachable));
    // The request in flight finds that the server is gone; the others are found out by their checks.
    pool.lease().await.unwrap().broken();
    assert!(is_unreachable(pool.lease().await, "refused"));
    for outage in [1, 60, 86_400] {
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
    assert!(one.connect().await.is_err() && other.connect().await.is_err());
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
    pool.connect().await.unwrap();
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
async fn a_request_that_was_given_up_does_not_make_the_others_suspect() {
    let (server, pool) = pool(2);
    pool.connect().await.unwrap();
    drop(pool.lease().await.unwrap());
    pool.lease().await.unwrap().give_back();
    assert_eq!(server.checks.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_checked_and_replaced_when_it_is_dead() {
    let (server, pool) = pool(2);
    pool.connect().await.unwrap();
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
    assert!(is_unreachable(pool.connect().await, "does not answer"));
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
    while before.elapsed() < Duration::from_secs(1) {
        match pool.lease().await {
            Ok(lease) => lease.broken(),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
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
        pool.connect().await,
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
    let error = pool.lease().await.err().unwrap();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("refuses the user"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn closing_fails_all_that_wait_and_closes_every_connection() {
    let (server, pool) = pool(1);
    let lease = pool.lease().await.unwrap();
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.lease().await.map(drop) }
    });
    tokio::task::yield_now().await;
    pool.close();
    assert!(is_unreachable(waiting.await.unwrap(), "closed"));
    assert!(is_unreachable(pool.lease().await, "closed"));
    assert!(is_unreachable(pool.connect().await, "closed"));
    lease.give_back();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
    assert_eq!(server.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_pool_ends_its_tasks_and_connections() {
    let (server, pool) = pool(2);
    pool.connect().await.unwrap();
    drop(pool);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
    assert_eq!(
        Arc::strong_count(&server),
        1,
        "a task still holds the server"
    );
}
