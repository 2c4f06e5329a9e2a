//! The command line: what can be asked of the program, and one module for each command.
//!
//! Always holds: what a script needs to know (addresses, stored messages, counters) goes to standard output, everything
//! else to standard error; no password can be given as an argument, where every user of the machine could read it.

mod credentials;
mod host;
mod listen;
mod read;
mod run;
mod server;
mod signals;

use std::io::Write;

use clap::{Parser, Subcommand};

/// An error that ends the program, with the line that says why.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The last line of every start.
const PURPOSE: &str = "The sandbox is for trying and testing only. For production use Apache Iggy.";

/// A local stand-in for Apache Iggy and its connectors runtime, for trying and testing. Production is Apache Iggy.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the log server, and the connector host with the MQTT gateway on it (this is the default).
    Run(run::Arguments),
    /// Start only the log server: it speaks Iggy's binary protocol over TCP.
    Server(server::Arguments),
    /// Start only the connector host, on the Iggy that its configuration names.
    Host(host::Arguments),
    /// Print the messages stored in a topic, of the sandbox or of a real Iggy.
    Read(read::Arguments),
}

/// Does what the command line says; returns when it is done.
pub(crate) async fn execute(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(arguments) => run::execute(arguments).await,
        Command::Server(arguments) => server::execute(arguments).await,
        Command::Host(arguments) => host::execute(arguments).await,
        Command::Read(arguments) => read::execute(arguments).await,
    }
}

/// Says something on standard error. Unlike `eprintln!` it goes on where that cannot be written.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_means_run() {
        let cli = Cli::try_parse_from(["sandbox", "--data-dir", "elsewhere"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.run.data_dir, std::path::Path::new("elsewhere"));
    }
}
