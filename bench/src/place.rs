//! Where the programs and the files of a run are: what all commands that start something ask for in the same way.
//!
//! Always holds: what is not named is looked for next to this program, where Cargo puts it.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where the data of what is measured is while the run lasts. On a file system in memory durability costs nothing and
    /// means nothing.
    #[arg(long, value_name = "FOLDER", default_value_os_t = env::temp_dir())]
    pub(crate) data: PathBuf,
    /// The sandbox's program; by default the one that Cargo put next to this program.
    #[arg(long, value_name = "FILE")]
    sandbox: Option<PathBuf>,
    /// The plugin; by default the one that Cargo put next to this program.
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Where everything that was measured is written; by default bench-COMMAND.json next to this program.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Place {
    /// The sandbox's program.
    pub(crate) fn sandbox(&self) -> PathBuf {
        self.sandbox.clone().unwrap_or_else(|| beside("sandbox"))
    }

    /// The plugin.
    pub(crate) fn plugin(&self) -> PathBuf {
        let name = "libiggy_connector_mqtt_gateway.so";
        self.plugin.clone().unwrap_or_else(|| beside(name))
    }

    /// Where everything that `command` has measured is written.
    pub(crate) fn json(&self, command: &str) -> PathBuf {
        let name = format!("bench-{command}.json");
        self.json.clone().unwrap_or_else(|| beside(&name))
    }
}

/// A file that Cargo puts, or that is to be put, next to this program.
fn beside(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join(name)
}
