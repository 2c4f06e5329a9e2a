//! Lending, with connections that are numbers and a server that is a struct, in Tokio's paused time.

mod outages;

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

/// Connects, or fails the test if there is neither a connection nor a reason.
async fn connect(pool: &Pool<Server>) -> Result<(), LogError> {
    timeout(CONNECT_TIMEOUT * 2, pool.connect())
        .await
        .expect("neither connected nor told why not")
}

/// Asks again and again until a connection is lent, and gives it back.
async fn until_lent(pool: &Pool<Server>) {
    while pool.lease().await.map(Lease::give_back).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Borrows a connection as soon as there is one, and finds it broken.
async fn until_broken(pool: &Pool<Server>) {
    loop {
        match pool.lease().await {
            Ok(lease) => return lease.broken(),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_made_when_first_asked_for_and_lent_again() {
    let (server, pool) = pool(2);
    tokio::time::sleep(WAIT).await;
    assert_eq!(server.attempts(), 0);
    connect(&pool).await.unwrap();
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
async fn a_request_that_was_given_up_does_not_make_the_others_suspect() {
    let (server, pool) = pool(2);
    connect(&pool).await.unwrap();
    drop(pool.lease().await.unwrap());
    pool.lease().await.unwrap().give_back();
    assert_eq!(server.checks.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_used_is_not_checked() {
    let (server, pool) = pool(1);
    for _ in 0..30 {
        pool.lease().await.unwrap().give_back();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(server.checks.load(Ordering::SeqCst), 0);
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
    assert!(is_unreachable(connect(&pool).await, "closed"));
    lease.give_back();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
    assert_eq!(server.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_connections_that_are_not_lent_at_once() {
    let (server, pool) = pool(2);
    let lease = pool.lease().await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    pool.close();
    assert_eq!(server.open.load(Ordering::SeqCst), 1);
    drop(lease);
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_pool_ends_its_tasks_and_connections() {
    let (server, pool) = pool(2);
    connect(&pool).await.unwrap();
    drop(pool);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
    assert_eq!(
        Arc::strong_count(&server),
        1,
        "a task still holds the server"
    );
}
