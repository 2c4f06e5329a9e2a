//! Who is connected: the state of one connection's session, and the list of all connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use iggy_binary_protocol::responses::clients::ClientResponse;
use parking_lot::Mutex;

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
    number: Option<u64>,
}

impl Session {
    /// The session's number, or `None` before the login.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number
    }
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
    logged_in: bool,
}

impl Sessions {
    /// Registers a connection from `client` to `server`. Pair with [`Sessions::close`].
    pub(crate) fn open(&self, client: SocketAddr, server: SocketAddr) -> Session {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connected.lock().insert(
            id,
            Connected {
                client,
                logged_in: false,
            },
        );
        Session {
            id,
            server,
            number: None,
        }
    }

    pub(crate) fn close(&self, session: &Session) {
        self.connected.lock().remove(&session.id);
    }

    /// Gives the session a new number, which is never 0.
    pub(crate) fn log_in(&self, session: &mut Session) -> u64 {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        session.number = Some(number);
        self.mark(session.id, true);
        number
    }

    pub(crate) fn log_out(&self, session: &mut Session) {
        session.number = None;
        self.mark(session.id, false);
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

    fn mark(&self, id: u32, logged_in: bool) {
        if let Some(connected) = self.connected.lock().get_mut(&id) {
            connected.logged_in = logged_in;
        }
    }
}

fn response(id: u32, connected: Connected) -> ClientResponse {
    ClientResponse {
        client_id: id,
        user_id: if connected.logged_in {
            USER_ID
        } else {
            NO_USER
        },
        transport: TRANSPORT_TCP,
        address: connected.client.to_string(),
        consumer_groups_count: 0,
    }
}
