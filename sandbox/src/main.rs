//! The program `sandbox`: a log server that speaks Iggy's protocol, and a host for connectors, for trying and testing.

mod cli;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// How long threads of the program may go on after everything was closed.
const THREADS_END: Duration = Duration::from_secs(2);

/// What is logged unless RUST_LOG says otherwise. The SDK logs every step of every connection at INFO.
const LOG_DEFAULT: &str = "info,iggy=warn";

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Where a line cannot be written, nobody can be told so: a full disk must not end the program.
        .log_internal_errors(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(reason) => {
            cli::tell(&format!("error: no runtime: {reason}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(cli::execute(cli));
    runtime.shutdown_timeout(THREADS_END);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            cli::tell(&format!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}
