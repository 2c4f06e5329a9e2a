//! `completions`: the script that lets a shell complete this command line.

use std::io;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::Verdict;
use crate::args::Cli;
use crate::output::Output;

/// Prints the script for `shell`.
pub(crate) fn run(shell: Shell, output: &mut Output) -> io::Result<Verdict> {
    // In memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    generate(shell, &mut command, name, &mut script);
    output.bytes(&script)?;
    Ok(Verdict::Fine)
}
