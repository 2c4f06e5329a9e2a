//! The program `mqtt-gateway`: tells operators what the running gateway would make of their files, by the same code, keeps
//! the users file, and shows what a running gateway does.
//!
//! What always holds: results go to standard output and everything else to standard error; a closed pipe ends the program
//! quietly; the exit codes are those of [`args`].

mod args;
mod check;
mod completions;
mod explain;
mod file;
mod output;
mod passwd;
mod settings;
mod status;
mod text;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use output::Output;

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// Nothing could be explained.
    #[error(transparent)]
    Explain(#[from] explain::ExplainError),
    /// The gateway was not asked, or did not answer.
    #[error(transparent)]
    Status(#[from] status::StatusError),
    /// The users file stays as it is.
    #[error(transparent)]
    Passwd(#[from] passwd::PasswdError),
}

/// What a command found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing wrong.
    Fine,
    /// Problems, or a topic that is refused.
    Problems,
    /// A file could not be read, or not be told.
    Unusable,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut output = Output::new(cli.color);
    let outcome = run(cli.command, &mut output).and_then(|verdict| {
        output.flush()?;
        Ok(verdict)
    });
    match outcome {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Problems) => ExitCode::from(args::PROBLEMS),
        Ok(Verdict::Unusable) => ExitCode::from(args::UNUSABLE),
        // Whoever read the output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            // When standard error is closed too, the exit code has to do.
            let _ = writeln!(io::stderr(), "error: {failure}");
            ExitCode::from(args::UNUSABLE)
        }
    }
}

fn run(command: Command, output: &mut Output) -> Result<Verdict, Failure> {
    Ok(match command {
        Command::Check(arguments) => check::run(&arguments, output)?,
        Command::Explain(arguments) => explain::run(&arguments, output)?,
        Command::Status(arguments) => status::run(&arguments, output)?,
        Command::Top(arguments) => top::run(&arguments)?,
        Command::Passwd(arguments) => passwd::run(&arguments, output)?,
        Command::Completions { shell } => completions::run(shell, output)?,
    })
}
