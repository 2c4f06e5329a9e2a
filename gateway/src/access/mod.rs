//! Who a client is and what it may: users with passwords, tokens, and the permissions of each.
//!
//! What always holds: nothing here does I/O but reading the operator's files, and nothing waits; the session asks and
//! decides what a client gets to see of the answer.

pub mod acl;
pub mod files;
pub mod jwt;
pub mod users;
pub mod verified;
