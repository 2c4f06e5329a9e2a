//! What the documentation says is so: its links, the code and the log lines that it names, its commands, and the list of what is used.

mod code;
mod commands;
mod defaults;
mod dependencies;
mod links;
mod log_lines;
mod markdown;
mod newcomers;
mod sources;
