//! What the documentation says is so: its links, the code and the log lines that it names, and its commands.

mod code;
mod commands;
mod defaults;
mod links;
mod log_lines;
mod markdown;
mod newcomers;
mod sources;
