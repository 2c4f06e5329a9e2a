//! The invariants of the topic map as properties of generated maps and topics.
