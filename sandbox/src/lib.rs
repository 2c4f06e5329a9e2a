//! A local stand-in for a machine without Apache Iggy: a log server that speaks Iggy's binary protocol, and a host that
//! loads connectors as Iggy's connectors runtime does. For trying and testing; production is Apache Iggy.

pub mod host;
pub mod server;
