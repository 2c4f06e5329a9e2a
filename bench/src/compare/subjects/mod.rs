//! How each subject is found and started.
//!
//! Always holds: a broker gets its own defaults, except for what would drop, refuse or delay what a measurement sends; each
//! of those lines says why it is there.

pub(super) mod iggy;
pub(super) mod mosquitto;
pub(super) mod nats;
pub(super) mod rabbitmq;
pub(super) mod rumqttd;
