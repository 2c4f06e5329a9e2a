//! `sandbox host`: the connector host alone.

use std::path::PathBuf;

use clap::Args;

use sandbox::host::config::{CONFIG_PATH_VARIABLE, RuntimeConfig};
use sandbox::host::environment::Environment;
use sandbox::host::{Host, Overrides};

use super::signals::Stop;
use super::{Failure, PURPOSE, listen, tell};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The runtime's configuration file.
    #[arg(long, env = CONFIG_PATH_VARIABLE, default_value = "runtime-config/config.toml")]
    config: PathBuf,
    /// The plugin library of every connector, instead of the `path` in its file.
    #[arg(long)]
    plugin: Option<PathBuf>,
}

pub(super) async fn execute(arguments: Arguments) -> Result<(), Failure> {
    let environment = Environment::of_process();
    let config = RuntimeConfig::load(&arguments.config, &environment)?;
    let overrides = Overrides {
        library: arguments.plugin,
        ..Overrides::default()
    };
    let mut stop = Stop::catch()?;
    let starting = Host::start(config, &environment, overrides);
    let Some(host) = stop.unless_came(starting).await else {
        return Ok(());
    };
    let host = host?;
    if let Some(address) = host.api_address() {
        listen::announce("api", address);
    }
    for reason in host.failed() {
        tell(&format!("a connector failed: {reason}"));
    }
    tell(PURPOSE);
    stop.came().await;
    // A second signal ends a shutdown that hangs.
    stop.unless_came(host.shutdown()).await;
    Ok(())
}
