//! The end-to-end suite: what a device, an operator and an Iggy user see.
//!
//! Always holds: a test reaches the parts under test over sockets, files and environment variables only, and has its own
//! deployment. One binary holds all tests, so that it is linked once.

mod access;
mod acknowledgement;
mod bad_input;
mod clients;
mod connection_life;
mod dead_letters;
mod documentation;
mod dollar_topics;
mod fair_share;
mod fan_out;
mod foreign;
mod headers;
mod idle;
mod killed;
mod mangled_replies;
mod missing_targets;
mod newcomer;
mod observability;
mod order;
mod outage;
mod outcomes;
mod overload;
mod packet_size;
mod plugin;
mod produce_runtime;
mod refused_connect;
mod refused_packets;
mod refused_publish;
mod refused_subscribe;
mod resumed;
mod roles;
mod secure_clients;
mod segments;
mod sent_again;
mod slow_subscribers;
mod status_page;
mod strangers;
mod subscriptions;
mod tls;
mod topic_map;
mod topic_settings;
mod topics;
