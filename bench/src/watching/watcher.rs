//! Who looks at the gateway while it works: a scraper of its metrics, or an open status page.
//!
//! Always holds: a watcher looks from before the first message until it is dropped or asked what it saw; it is one thread, and
//! what it costs itself is not the gateway's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::stack::http;

/// How often a watcher looks whether it is to end.
const TICK: Duration = Duration::from_millis(20);

/// Which watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// None.
    Nobody,
    /// One that asks for `/metrics` in this interval.
    Scraper(Duration),
    /// One that reads `/api/events`, as an open status page does.
    Page,
}

/// What a watcher got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    /// Answers, or events.
    pub(super) answers: u64,
    /// Bytes of them.
    pub(super) bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What the thread shares with whoever ends it.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn got(&self, answers: usize, bytes: usize) {
        self.answers.fetch_add(answers as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Watcher {
    /// Begins to look at the gateway that answers operators at `address`.
    ///
    /// # Errors
    /// When the operating system refuses the thread.
    pub(super) fn start(watch: Watch, address: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let thread = match watch {
            Watch::Nobody => None,
            Watch::Scraper(interval) => Some(
                thread::Builder::new()
                    .name("scraper".to_owned())
                    .spawn(move || scrape(address, interval, &seen))?,
            ),
            Watch::Page => Some(
                thread::Builder::new()
                    .name("page".to_owned())
                    .spawn(move || follow(address, &seen))?,
            ),
        };
        Ok(Self { shared, thread })
    }

    /// Ends it, and says what it saw.
    ///
    /// # Errors
    /// When the gateway did not answer.
    pub(super) fn end(mut self) -> io::Result<Seen> {
        self.join()?;
        Ok(self.seen())
    }

    fn seen(&self) -> Seen {
        Seen {
            answers: self.shared.answers.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    fn join(&mut self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(io::Error::other("the watcher panicked")),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn scrape(address: SocketAddr, interval: Duration, seen: &Shared) -> io::Result<()> {
    let mut due = Instant::now();
    while !seen.is_over() {
        let now = Instant::now();
        if now < due {
            thread::sleep(TICK.min(due - now));
            continue;
        }
        due += interval;
        let reply = http::request(address, "GET", "/metrics", None, None)?;
        if reply.status != 200 {
            return Err(io::Error::other(format!(
                "GET /metrics: status {}",
                reply.status
            )));
        }
        seen.got(1, reply.body.len());
    }
    Ok(())
}

fn follow(address: SocketAddr, seen: &Shared) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TICK))?;
    let request = format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut is_first = true;
    let mut buffer = vec![0; 64 * 1024];
    while !seen.is_over() {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        if std::mem::take(&mut is_first) && !read.starts_with(b"HTTP/1.1 200 ") {
            return Err(io::Error::other("GET /api/events: the status is not 200"));
        }
        // An event ends with an empty line; so does the head of the answer, with other line ends.
        let events = read.windows(2).filter(|pair| pair == b"\n\n").count();
        seen.got(events, read.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::{self, Receiver};

    use super::*;

    /// A server that answers one request, and closes when the other end of the channel is dropped.
    fn server(answer: &'static str, until: Receiver<()>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
            let _ = until.recv();
        });
        address
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < end, "it takes too long");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_ended(watcher: &Watcher) -> bool {
        watcher.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    const HOUR: Watch = Watch::Scraper(Duration::from_secs(3_600));

    #[test]
    fn nobody_sees_nothing() {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let watcher = Watcher::start(Watch::Nobody, nowhere).unwrap();
        assert_eq!(watcher.end().unwrap(), Seen::default());
    }

    #[test]
    fn a_scraper_counts_answers_and_a_refusal_is_an_error() {
        let (close, until) = mpsc::channel();
        let address = server("HTTP/1.1 200 OK\r\n\r\nabc", until);
        drop(close);
        let watcher = Watcher::start(HOUR, address).unwrap();
        wait_until(|| watcher.seen().answers == 1);
        assert_eq!(watcher.end().unwrap().bytes, 3);
        let (close, until) = mpsc::channel();
        let address = server("HTTP/1.1 401 Unauthorized\r\n\r\n", until);
        drop(close);
        let watcher = Watcher::start(HOUR, address).unwrap();
        wait_until(|| has_ended(&watcher));
        assert!(watcher.end().unwrap_err().to_string().contains("401"));
    }

    #[test]
    fn a_page_counts_events_and_its_end_is_an_error() {
        let answer = "HTTP/1.1 200 OK\r\n\r\ndata: 1\n\ndata: 2\n\n";
        for closes in [false, true] {
            let (close, until) = mpsc::channel();
            let address = server(answer, until);
            let watcher = Watcher::start(Watch::Page, address).unwrap();
            wait_until(|| watcher.seen().answers == 2);
            if closes {
                drop(close);
                wait_until(|| has_ended(&watcher));
                watcher.end().unwrap_err();
            } else {
                assert_eq!(watcher.end().unwrap().answers, 2);
            }
        }
    }
}
