//! Who a client is and what it may.

pub mod files;
