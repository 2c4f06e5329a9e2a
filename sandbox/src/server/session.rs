//! Who is connected: the state of one connection's session, and the list of all connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use iggy_binary_protocol::responses::clients::ClientResponse;
use parking_lot::Mutex;

use super::memory::Share;

/// The one user's id; Iggy counts users from 0.
pub(crate) const USER_ID: u32 = 0;

/// What Iggy reports as the user of a connection that has not logged in.
const NO_USER: u32 = u32::MAX;

/// Iggy's number for TCP.
const TRANSPORT_TCP: u8 = 1;

/// One connection, as its own task sees it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The number of the connection: also the client's id for `get_client` and its member id in consumer groups.
    pub(crate) id: u32,
    /// The address on which the client reached the server.
    pub(crate) server: SocketAddr,
    login: Option<Login>,
    /// Whose member this connection polls and commits as, if not as its own.
    attached: Option<u32>,
    /// The memory of the answer that is being sent.
    answer: Option<Share>,
}

impl Session {
    /// Keeps a share of the memory until the answer is sent.
    pub(crate) fn hold(&mut self, share: Share) {
        self.answer = Some(share);
    }

    /// Gives it back.
    pub(crate) fn release(&mut self) {
        self.answer = None;
    }

    /// The session, or `None` before the login.
    pub(crate) fn login(&self) -> Option<Login> {
        self.login
    }

    /// The member of consumer groups as which this connection polls and commits.
    pub(crate) fn member(&self) -> u32 {
        self.attached.unwrap_or(self.id)
    }

    /// Polls and commits as the member of another connection from now on.
    pub(crate) fn attach(&mut self, member: u32) {
        self.attached = Some(member);
    }
}

/// A session: the number that the client chose for itself and the number that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) client: u128,
    /// Never 0, never the same twice until the server restarts.
    pub(crate) number: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    next_connection: AtomicU32,
    last_number: AtomicU64,
    connected: Mutex<BTreeMap<u32, Connected>>,
}

#[derive(Debug, Clone, Copy)]
struct Connected {
    client: SocketAddr,
    login: Option<Login>,
}

impl Sessions {
    /// Registers a connection from `client` to `server`. Pair with [`Sessions::close`].
    pub(crate) fn open(&self, client: SocketAddr, server: SocketAddr) -> Session {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connected.lock().insert(
            id,
            Connected {
                client,
                login: None,
            },
        );
        Session {
            id,
            server,
            login: None,
            attached: None,
            answer: None,
        }
    }

    pub(crate) fn close(&self, session: &Session) {
        self.connected.lock().remove(&session.id);
    }

    /// Opens a session for a client that calls itself `client`.
    pub(crate) fn log_in(&self, session: &mut Session, client: u128) -> Login {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let login = Login { client, number };
        self.mark(session, Some(login));
        login
    }

    pub(crate) fn log_out(&self, session: &mut Session) {
        self.mark(session, None);
    }

    /// The connection whose session this is.
    pub(crate) fn find(&self, login: Login) -> Option<u32> {
        let connected = self.connected.lock();
        let found = connected
            .iter()
            .find(|(_, connected)| connected.login == Some(login));
        found.map(|(id, _)| *id)
    }

    /// All connections in order of id, without their consumer groups.
    pub(crate) fn list(&self) -> Vec<ClientResponse> {
        self.connected
            .lock()
            .iter()
            .map(|(id, connected)| response(*id, *connected))
            .collect()
    }

    /// One connection, without its consumer groups.
    pub(crate) fn get(&self, id: u32) -> Option<ClientResponse> {
        self.connected
            .lock()
            .get(&id)
            .map(|connected| response(id, *connected))
    }

    fn mark(&self, session: &mut Session, login: Option<Login>) {
        session.login = login;
        session.attached = None;
        if let Some(connected) = self.connected.lock().get_mut(&session.id) {
            connected.login = login;
        }
    }
}

fn response(id: u32, connected: Connected) -> ClientResponse {
    ClientResponse {
        client_id: id,
        user_id: connected.login.map_or(NO_USER, |_| USER_ID),
        transport: TRANSPORT_TCP,
        address: connected.client.to_string(),
        consumer_groups_count: 0,
    }
}
