//! A TCP proxy between the gateway and Iggy that can hold replies or requests, delay or lose replies, cut connections, and
//! refuse new ones.
//!
//! Always holds: bytes are forwarded unchanged and in order or not at all. What is held when connections are cut is lost,
//! as it would be with a broken network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// The proxy; it stops when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    hold_requests: bool,
    hold_replies: bool,
    /// How long each reply takes longer than it does by itself.
    delay: Duration,
    /// A connection is closed in place of the reply to a request with more bytes than this.
    lose_replies: Option<usize>,
    lost_replies: usize,
    refuse: bool,
    stopped: bool,
    /// Counts the cuts: a pump that was started under an earlier number must not forward any more.
    generation: u64,
    held_replies: usize,
    accepted: usize,
    sockets: Vec<TcpStream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

impl Proxy {
    /// Starts a proxy to `target` on a free port.
    ///
    /// # Panics
    /// When no port can be bound.
    pub fn start(target: SocketAddr) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the proxy needs a loopback port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            target,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { address, shared }
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing that Iggy answers gets through, until [`Proxy::release`].
    pub fn hold_replies(&self) {
        self.change(|state| state.hold_replies = true);
    }

    /// From now on nothing that is asked of Iggy gets through, until [`Proxy::release`].
    pub fn hold_requests(&self) {
        self.change(|state| state.hold_requests = true);
    }

    /// Lets everything through again, what was held first.
    pub fn release(&self) {
        self.change(|state| {
            state.hold_requests = false;
            state.hold_replies = false;
        });
    }

    /// From now on each reply comes so much later; one connection's replies one after the other.
    pub fn delay_replies(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// From now on a connection is closed in place of the reply to a request of more than so many bytes; `None` ends that.
    pub fn lose_replies(&self, to_more_than: Option<usize>) {
        self.change(|state| state.lose_replies = to_more_than);
    }

    /// How many connections were closed in place of a reply.
    pub fn lost_replies(&self) -> usize {
        self.shared.lock().lost_replies
    }

    /// Closes every connection; what was held is lost.
    pub fn cut(&self) {
        self.change(|state| {
            state.generation += 1;
            for socket in state.sockets.drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        });
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.change(|state| state.refuse = refuse);
    }

    /// How many replies wait at the gate now.
    pub fn held_replies(&self) -> usize {
        self.shared.lock().held_replies
    }

    /// How many connections were taken in so far, refused ones not counted.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| state.stopped = true);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.lock().stopped {
                return;
            }
            let Ok(client) = client else { continue };
            if self.lock().refuse {
                continue;
            }
            let Ok(server) = TcpStream::connect_timeout(&self.target, CONNECT_DEADLINE) else {
                continue;
            };
            self.join(client, server);
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        let generation = {
            let mut state = self.lock();
            state.accepted += 1;
            for socket in [&client, &server] {
                state.sockets.extend(socket.try_clone());
            }
            state.generation
        };
        let asked = Arc::new(AtomicUsize::new(0));
        for (direction, from, to) in [
            (Direction::Request, from_client, server),
            (Direction::Reply, from_server, client),
        ] {
            let (shared, asked) = (Arc::clone(self), Arc::clone(&asked));
            thread::spawn(move || shared.pump(direction, generation, from, to, &asked));
        }
    }

    /// `asked` is how many bytes the connection has sent since its last reply.
    fn pump(
        &self,
        direction: Direction,
        generation: u64,
        mut from: TcpStream,
        mut to: TcpStream,
        asked: &AtomicUsize,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if direction == Direction::Request {
                asked.fetch_add(length, Ordering::SeqCst);
            }
            if !self.pass(direction, generation) {
                break;
            }
            if direction == Direction::Reply && self.loses_reply(asked.swap(0, Ordering::SeqCst)) {
                break;
            }
            let Some(bytes) = buffer.get(..length) else {
                break;
            };
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn loses_reply(&self, asked: usize) -> bool {
        let mut state = self.lock();
        let loses = state.lose_replies.is_some_and(|most| asked > most);
        state.lost_replies += usize::from(loses);
        loses
    }

    /// Waits while `direction` is held; false when the connection was cut in the meantime.
    fn pass(&self, direction: Direction, generation: u64) -> bool {
        let mut state = self.lock();
        if direction == Direction::Reply {
            let delay = state.delay;
            drop(state);
            thread::sleep(delay);
            state = self.lock();
            state.held_replies += 1;
        }
        while state.generation == generation && state.holds(direction) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if direction == Direction::Reply {
            state.held_replies -= 1;
        }
        state.generation == generation
    }
}

impl State {
    fn holds(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.hold_requests,
            Direction::Reply => self.hold_replies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every byte with the same byte.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _ = std::io::copy(&mut from, &mut to);
                });
            }
        });
        address
    }

    fn client(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    fn read(stream: &mut TcpStream) -> Option<u8> {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn a_held_reply_arrives_after_the_release() {
        let proxy = Proxy::start(echo());
        let mut stream = client(&proxy);
        stream.write_all(b"a").unwrap();
        assert_eq!(read(&mut stream), Some(b'a'));
        proxy.hold_replies();
        stream.write_all(b"b").unwrap();
        crate::wait::until("the reply is held", Duration::from_secs(10), || {
            proxy.held_replies() == 1
        });
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        assert_eq!(read(&mut stream), None);
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        proxy.release();
        assert_eq!(read(&mut stream), Some(b'b'));
    }

    #[test]
    fn a_cut_loses_what_was_held_and_new_connections_work() {
        let proxy = Proxy::start(echo());
        let mut stream = client(&proxy);
        proxy.hold_replies();
        stream.write_all(b"a").unwrap();
        crate::wait::until("the reply is held", Duration::from_secs(10), || {
            proxy.held_replies() == 1
        });
        proxy.cut();
        proxy.release();
        assert_eq!(read(&mut stream), None);
        let mut again = client(&proxy);
        again.write_all(b"c").unwrap();
        assert_eq!(read(&mut again), Some(b'c'));
    }

    #[test]
    fn a_delayed_reply_comes_later() {
        let proxy = Proxy::start(echo());
        let mut stream = client(&proxy);
        proxy.delay_replies(Duration::from_millis(300));
        let sent = std::time::Instant::now();
        stream.write_all(b"a").unwrap();
        assert_eq!(read(&mut stream), Some(b'a'));
        assert!(sent.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn a_lost_reply_closes_its_connection_and_only_replies_to_large_requests_are_lost() {
        let proxy = Proxy::start(echo());
        proxy.lose_replies(Some(10));
        let mut stream = client(&proxy);
        for _ in 0..5 {
            stream.write_all(b"abcd").unwrap();
            for expected in b"abcd" {
                assert_eq!(read(&mut stream), Some(*expected));
            }
        }
        stream.write_all(&[b'x'; 20]).unwrap();
        assert_eq!(read(&mut stream), None);
        assert_eq!(proxy.lost_replies(), 1);
    }

    #[test]
    fn a_refused_connection_is_closed() {
        let proxy = Proxy::start(echo());
        proxy.refuse(true);
        let mut stream = client(&proxy);
        let _ = stream.write_all(b"a");
        assert_eq!(read(&mut stream), None);
        assert_eq!(proxy.accepted(), 0);
    }
}
