//! Who looks at the gateway while it works: a scraper of its metrics, or an open status page.
//!
//! Always holds: a watcher looks from before the first message until it is dropped or asked what it saw; it is one thread, and
//! what it costs itself is not the gateway's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Seen>>>,
}

impl Watcher {
    /// Begins to look at the gateway that answers operators at `address`.
    ///
    /// # Errors
    /// When the operating system refuses the thread.
    pub(super) fn start(watch: Watch, address: SocketAddr) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = match watch {
            Watch::Nobody => None,
            Watch::Scraper(interval) => Some(
                thread::Builder::new()
                    .name("scraper".to_owned())
                    .spawn(move || scrape(address, interval, &asked))?,
            ),
            Watch::Page => Some(
                thread::Builder::new()
                    .name("page".to_owned())
                    .spawn(move || follow(address, &asked))?,
            ),
        };
        Ok(Self { stop, thread })
    }

    /// Ends it, and says what it saw.
    ///
    /// # Errors
    /// When the gateway did not answer.
    pub(super) fn end(mut self) -> io::Result<Seen> {
        self.join()
    }

    fn join(&mut self) -> io::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(Seen::default()),
            Some(Ok(seen)) => seen,
            Some(Err(_)) => Err(io::Error::other("the watcher panicked")),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn scrape(address: SocketAddr, interval: Duration, stop: &AtomicBool) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
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
        seen.answers += 1;
        seen.bytes += reply.body.len() as u64;
    }
    Ok(seen)
}

fn follow(address: SocketAddr, stop: &AtomicBool) -> io::Result<Seen> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TICK))?;
    let request = format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut seen = Seen::default();
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        if seen.bytes == 0 && !read.starts_with(b"HTTP/1.1 200 ") {
            return Err(io::Error::other("GET /api/events: the status is not 200"));
        }
        seen.bytes += read.len() as u64;
        // An event ends with an empty line; so does the head of the answer, with other line ends.
        seen.answers += read.windows(2).filter(|pair| pair == b"\n\n").count() as u64;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that takes one request after the other and gives each the next of `answers`.
    fn server(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for (answer, stream) in answers.iter().zip(listener.incoming()) {
                let mut stream = stream.unwrap();
                let mut request = [0; 1_024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
                thread::sleep(Duration::from_millis(200));
            }
        });
        address
    }

    #[test]
    fn nobody_sees_nothing() {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let watcher = Watcher::start(Watch::Nobody, nowhere).unwrap();
        assert_eq!(watcher.end().unwrap(), Seen::default());
    }

    #[test]
    fn a_scraper_counts_answers_and_a_refusal_is_an_error() {
        let address = server(&["HTTP/1.1 200 OK\r\n\r\nabc"]);
        let hour = Watch::Scraper(Duration::from_secs(3_600));
        let watcher = Watcher::start(hour, address).unwrap();
        thread::sleep(Duration::from_millis(300));
        let seen = watcher.end().unwrap();
        assert_eq!((seen.answers, seen.bytes), (1, 3));
        let address = server(&["HTTP/1.1 401 Unauthorized\r\n\r\n"]);
        let watcher = Watcher::start(hour, address).unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(watcher.end().unwrap_err().to_string().contains("401"));
    }

    #[test]
    fn a_page_counts_events_and_its_end_is_an_error() {
        let address = server(&["HTTP/1.1 200 OK\r\n\r\ndata: 1\n\ndata: 2\n\n"]);
        let watcher = Watcher::start(Watch::Page, address).unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(watcher.end().unwrap().answers, 2);
        let address = server(&["HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n"]);
        let watcher = Watcher::start(Watch::Page, address).unwrap();
        thread::sleep(Duration::from_millis(400));
        watcher.end().unwrap_err();
    }
}
