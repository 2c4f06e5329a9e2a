//! The command line: what can be asked of the program, as the operator writes it.
//!
//! What always holds: what is wrong with the arguments alone is found here, before anything is done.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args, ColorChoice, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mqtt_gateway::log::MAX_PARTITIONS;

use crate::file::Kind;

/// Exit code: problems were found, or a topic is refused.
pub(crate) const PROBLEMS: u8 = 1;
/// Exit code: the arguments, or a file, could not be used. The same as clap's.
pub(crate) const UNUSABLE: u8 = 2;

const EXIT_CODES: &str = "\
Exit codes: 0 fine; 1 problems were found, a topic is refused, or a gateway needs attention; 2 the arguments or a file cannot be
used, or the gateway does not answer.";

/// Checks the files of the MQTT gateway, explains what its topic map and permissions do, by the code of the running gateway,
/// keeps its users file, and shows what a running gateway does.
#[derive(Debug, Parser)]
#[command(name = "mqtt-gateway", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// When to use colours; by default on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check files and report everything that is wrong with them at once.
    ///
    /// Topic maps, permissions, users files, gateway files and connectors' files are told apart by what is in them. A gateway
    /// file or a connector's file is checked together with the files that it names.
    Check(CheckArgs),
    /// Explain where the messages of a topic are stored and why, what a subscriber of it reads, or who may do so.
    Explain(ExplainArgs),
    /// Print what a running gateway does, what needs attention first.
    ///
    /// The exit code is 1 if it is not ready, or something needs attention.
    Status(StatusArgs),
    /// Show what a running gateway does, live in the terminal.
    Top(TopArgs),
    /// Add a user to a users file, change a password, or remove a user.
    ///
    /// The password is asked for twice at a terminal; otherwise it is the first line of standard input. The file is made if
    /// it is not there, and is replaced in one step.
    Passwd(PasswdArgs),
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: one JSON object.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What all the files are, instead of telling by what is in them.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Let warnings count as problems, for the exit code.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Take the environment variables MQTT_GATEWAY_… into account, as the gateway does when it starts.
    #[arg(long)]
    pub(crate) env: bool,
    /// The form of the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

impl CheckArgs {
    /// The variables that count.
    pub(crate) fn environment(&self) -> Option<Vec<(OsString, OsString)>> {
        self.env.then(|| std::env::vars_os().collect())
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("topics").required(true).args(["topic", "file"]))]
#[command(group = ArgGroup::new("permissions").multiple(true).args(["acl", "config"]))]
pub(crate) struct ExplainArgs {
    /// The MQTT topic; with --subscribe, the topic filter; with --acl and without a topic map, any number of topics.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
    /// Explain the topics in this file, one a line; `-` is standard input. Blank lines and lines that begin with # do not
    /// count.
    #[arg(long, value_name = "TOPICS", conflicts_with_all = ["subscribe", "acl"])]
    pub(crate) file: Option<PathBuf>,
    /// The topic map [default: topic-map.toml in the working directory].
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) map: Option<PathBuf>,
    /// The gateway file, or a connector's file, that names the topic map and says which headers are written.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Explain what a subscriber reads, instead of where a publisher's messages are stored.
    #[arg(long)]
    pub(crate) subscribe: bool,
    /// The file of permissions: explain whether a client may publish and subscribe; the topic map counts only if --map or
    /// --config names it [default: the one that --config names].
    #[arg(long, value_name = "FILE")]
    pub(crate) acl: Option<PathBuf>,
    /// The user name of the client; without it, an anonymous client.
    #[arg(long, value_name = "NAME", requires = "permissions")]
    pub(crate) user: Option<String>,
    /// The client id of the client.
    #[arg(long, value_name = "ID", requires = "permissions", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) client_id: Option<String>,
    /// The common name in the certificate of the client; without it, a client without a certificate.
    #[arg(long, value_name = "NAME", requires = "permissions")]
    pub(crate) certificate: Option<String>,
    /// How many partitions the Iggy topic has [default: as many as it gets when the gateway makes it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PARTITIONS)))]
    pub(crate) partitions: Option<u32>,
    /// The form of the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

/// Which gateway is asked.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Its HTTP address (http_listen).
    #[arg(
        long,
        env = "MQTT_GATEWAY_HTTP_URL",
        default_value = "http://127.0.0.1:9883"
    )]
    pub(crate) url: String,
    /// A file with the token that opens it (http_token_file).
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The form of the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PasswdArgs {
    /// The users file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The user's name.
    #[arg(value_name = "USER")]
    pub(crate) user: String,
    /// Read the password from standard input, one line, even at a terminal.
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Remove the user.
    #[arg(long, conflicts_with = "stdin")]
    pub(crate) remove: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
