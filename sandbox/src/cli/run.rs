//! `sandbox` and `sandbox run`: the log server, and the connector host on it, in one process.
//!
//! Always holds: the host is closed before the server, so that the gateway can bring what it has been given to the log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use sandbox::host::config::RuntimeConfig;
use sandbox::host::environment::Environment;
use sandbox::host::{Host, Overrides};

use super::server::{Root, Running};
use super::signals::Stop;
use super::{Failure, PURPOSE, listen, tell};

/// Where the gateway listens when nothing says otherwise.
const MQTT_DEFAULT: &str = "127.0.0.1:1883";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder for the data.
    #[arg(long, default_value = "sandbox-data")]
    pub(super) data_dir: PathBuf,
    /// The runtime's configuration file.
    #[arg(long, default_value = "runtime-config/config.toml")]
    config: PathBuf,
    /// The plugin library; otherwise it is looked for beside this program, as the connector files say.
    #[arg(long)]
    plugin: Option<PathBuf>,
    /// Where to listen for Iggy's binary protocol; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8090")]
    address: SocketAddr,
    /// Where the gateway listens for MQTT, instead of `listen` in its file.
    #[arg(long)]
    mqtt_address: Option<SocketAddr>,
    /// Where the connector host's HTTP API listens, instead of `[http] address`.
    #[arg(long)]
    api_address: Option<SocketAddr>,
    #[command(flatten)]
    root: Root,
}

pub(super) async fn execute(arguments: Arguments) -> Result<(), Failure> {
    let environment = Environment::of_process();
    let mut config = RuntimeConfig::load(&arguments.config, &environment)?;
    let mut stop = Stop::catch()?;
    let server = Running::start(
        arguments.address,
        &arguments.data_dir.join("iggy"),
        &arguments.root,
    )
    .await?;
    let iggy = server.address;

    let (username, password) = arguments.root.login()?;
    config.iggy.address = iggy.to_string();
    config.iggy.username = username;
    config.iggy.password = password;
    config.state.path = arguments.data_dir.join("state").display().to_string();
    if let Some(address) = arguments.api_address {
        config.http.address = address.to_string();
    }
    let mut overrides = Overrides {
        library: arguments.plugin.clone(),
        ..Overrides::default()
    };
    let mut set = |key: &str, address: SocketAddr| {
        let value = Value::String(address.to_string());
        overrides.plugin_config.insert(key.to_owned(), value);
    };
    set("iggy_address", iggy);
    if let Some(address) = arguments.mqtt_address {
        set("listen", address);
    }

    let mut outcome = Ok(());
    let serving = async {
        let starting = Host::start(config, &environment, overrides);
        let Some(host) = stop.unless_came(starting).await else {
            return;
        };
        let host = match host {
            Ok(host) => host,
            Err(reason) => {
                outcome = Err(reason.into());
                return;
            }
        };
        let failed = host.failed();
        if failed.is_empty() {
            listen::announce("iggy", iggy);
            if let Some(address) = host.api_address() {
                listen::announce("api", address);
            }
            tell(welcome(&arguments, iggy, host.api_address()).trim_end());
            stop.came().await;
        } else {
            outcome = Err(failure(&failed).into());
        }
        // A second signal ends a shutdown that hangs.
        stop.unless_came(host.shutdown()).await;
    };
    // Boxed, because it holds the whole start of the host.
    let served = server.until(Box::pin(serving)).await;
    outcome.and(served)
}

fn failure(failed: &[String]) -> String {
    format!(
        "{}\n\
         The lines above say more. If the plugin is missing, build it: cargo build -p iggy_connector_mqtt_gateway",
        failed.join("\n")
    )
}

/// What to try, for a person.
fn welcome(arguments: &Arguments, iggy: SocketAddr, api: Option<SocketAddr>) -> String {
    let mqtt = match arguments.mqtt_address {
        Some(address) => address.to_string(),
        None => configured_listen(&arguments.config),
    };
    let (host, port) = mqtt.rsplit_once(':').unwrap_or((&mqtt, "1883"));
    let client = format!("-h {host} -p {port} -t building/north/room/42/temp -q 1");
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "sandbox".to_owned());
    let api = api.map_or_else(
        || "off".to_owned(),
        |address| format!("http://{address}/sources"),
    );
    let data = arguments.data_dir.display();
    format!(
        "\n\
         The sandbox is running.\n\
         \x20 MQTT          {mqtt}\n\
         \x20 Iggy          {iggy}\n\
         \x20 connectors    {api}\n\
         \x20 data          {data}\n\
         \n\
         Receive a message:\n\
         \x20 mosquitto_sub {client} -v\n\
         Send one, in another terminal:\n\
         \x20 mosquitto_pub {client} -m 21.5\n\
         Read what was stored:\n\
         \x20 {program} read building_north telemetry --address {iggy}\n\
         \n\
         Ctrl-C stops it. {PURPOSE}\n"
    )
}

/// Where the gateway listens according to the environment, or to the gateway file beside the runtime's configuration.
fn configured_listen(config: &Path) -> String {
    if let Ok(address) = std::env::var("MQTT_GATEWAY_LISTEN") {
        return address;
    }
    let file = config.with_file_name("gateway.toml");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let listen = match table.get("listen") {
        Some(toml::Value::Array(addresses)) => addresses.first().and_then(toml::Value::as_str),
        Some(address) => address.as_str(),
        None => None,
    };
    listen.unwrap_or(MQTT_DEFAULT).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_for_clients_is_the_one_in_the_gateway_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        assert_eq!(configured_listen(&config), MQTT_DEFAULT);
        let gateway = folder.path().join("gateway.toml");
        std::fs::write(&gateway, "listen = \"127.0.0.1:2883\"\n").unwrap();
        assert_eq!(configured_listen(&config), "127.0.0.1:2883");
        std::fs::write(&gateway, "listen = [\"127.0.0.1:3883\", \"[::1]:3883\"]\n").unwrap();
        assert_eq!(configured_listen(&config), "127.0.0.1:3883");
    }
}
