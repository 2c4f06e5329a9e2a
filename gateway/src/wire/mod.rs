//! MQTT 3.1.1 on the wire: bytes in, packets or a [`Violation`] out; packets in, bytes out.
//!
//! What always holds: a [`Packet`] that leaves this module obeys every rule of MQTT 3.1.1 that can be seen in one packet,
//! and uses only what the gateway serves (QoS 0 and 1, no QoS 2 handshake). How a stream is cut into portions changes
//! neither the packets nor the violation. A packet is refused at the first byte that is wrong in its fixed header, so the
//! body of an over-long packet is never waited for, and nothing is ever allocated by an announced length.
//!
//! What is left to others: reading and buffering ([`Decoder`] reserves nothing for a packet that is still on its way),
//! time (keep-alive, the connect timeout), and what depends on configuration or on earlier packets (credentials, whether
//! persistent sessions or Wills are served, which filters are granted).
//!
//! The way of a packet: `header` reads and checks the fixed header, `checks` looks at the raw body for what the codec
//! lets through, `codec` (the only file that names the codec crate) decodes it and builds the words of [`crate::mqtt`].

mod checks;
mod codec;
mod decoder;
pub mod encode;
mod header;
mod packet;
#[cfg(test)]
mod tests;
mod violation;

pub use decoder::{Decoder, MAX_FILTER_LIST_SIZE, WireLimits};
pub use packet::{
    Connect, ConnectReturnCode, Packet, Password, Publish, Subscribe, SubscribeReturnCode,
    Unsubscribe,
};
pub use violation::Violation;
