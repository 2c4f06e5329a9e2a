//! RabbitMQ with its MQTT plugin. What it keeps for a client that is away stands in a durable queue, and its PUBACK waits
//! until that has the message; without such a client it stores nothing. There is no other flavour.
//!
//! Erlang's port mapper would stay behind as a daemon if RabbitMQ had to start it, so one is started for it, on a port of
//! its own, and ended with it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::compare::programs::{find_program, first_version};
use crate::compare::subject::{Class, Found, Kind, Launch, Search};
use crate::stack::process::Process;
use crate::stack::{StackError, ports, write};

pub(in crate::compare) fn find() -> Search {
    // Debian's program in PATH becomes another user, who may not write to the run's folder; this is the one behind it.
    let behind = "/usr/lib/rabbitmq/bin/rabbitmq-server";
    let program = find_program("RABBITMQ_SERVER_BIN", &[behind, "rabbitmq-server"])?;
    let version = installed_version(&program).unwrap_or_else(|| "unknown".to_owned());
    let found = Found {
        kind: Kind::RabbitMq,
        program,
        version: format!("RabbitMQ {version}"),
        flavours: vec![(Class::Durable, "durable queue")],
        start,
    };
    Ok((found, None))
}

/// The program cannot be asked without a node that runs, but its folders say it: `rabbitmq_server-3.10.8`.
fn installed_version(program: &Path) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    let prefix = "rabbitmq_server-";
    let named = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix(prefix)?;
        first_version(name)
    };
    if let Some(version) = program.ancestors().find_map(named) {
        return Some(version);
    }
    let libraries = program.parent()?.parent()?.join("lib");
    let mut entries = fs::read_dir(libraries).ok()?.flatten();
    entries.find_map(|entry| named(&entry.path()))
}

fn start(launch: &Launch<'_>) -> Result<Vec<Process>, StackError> {
    let (folder, epmd) = (launch.folder, ports::free_address()?);
    let (amqp, distribution) = (ports::free_address()?, ports::free_address()?);
    write(&folder.join("rabbitmq.conf"), &config(launch.address))?;
    write(&folder.join("enabled_plugins"), "[rabbitmq_mqtt].\n")?;
    write(&folder.join("environment"), "")?;
    let mapper_program = find_program("EPMD_BIN", &["epmd"]).unwrap_or_else(|_| "epmd".into());
    let mut mapper = Command::new(mapper_program);
    let port = epmd.port().to_string();
    mapper.args(["-port", &port, "-address", "127.0.0.1"]);
    let mapper = Process::start(
        "Erlang's port mapper (EPMD_BIN)",
        mapper,
        &folder.join("epmd.log"),
    )?;
    let mut command = Command::new(launch.program);
    command
        .current_dir(folder)
        .env("HOME", folder)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", port)
        .env(
            "RABBITMQ_NODENAME",
            format!("bench-{}@localhost", std::process::id()),
        )
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", amqp.port().to_string())
        .env("RABBITMQ_DIST_PORT", distribution.port().to_string())
        .env("RABBITMQ_CONF_ENV_FILE", folder.join("environment"))
        .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
        .env(
            "RABBITMQ_ENABLED_PLUGINS_FILE",
            folder.join("enabled_plugins"),
        )
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("log"))
        .env("RABBITMQ_LOGS", "-");
    let broker = Process::start("rabbitmq-server", command, &folder.join("rabbitmq.log"))?;
    Ok(vec![mapper, broker])
}

fn config(mqtt: SocketAddr) -> String {
    format!(
        "mqtt.listeners.tcp.default = {mqtt}\n\
         mqtt.allow_anonymous = true\n\
         # The default of 10 would make subscribers and the keeper wait.\n\
         mqtt.prefetch = 1000\n\
         mqtt.tcp_listen_options.nodelay = true\n\
         # For thousands of clients that come at once.\n\
         mqtt.tcp_listen_options.backlog = 4096\n\
         log.console.level = warning\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_mqtt_on_loopback_to_anybody() {
        let text = config(SocketAddr::from(([127, 0, 0, 1], 1_234)));
        assert!(text.starts_with("mqtt.listeners.tcp.default = 127.0.0.1:1234\n"));
        assert!(text.contains("\nmqtt.allow_anonymous = true\n"));
    }

    #[test]
    fn the_version_is_in_the_names_of_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let debian = folder.path().join("lib/rabbitmq_server-3.10.8");
        let generic = folder.path().join("rabbitmq_server-4.1.0/sbin");
        for path in [&debian, &generic, &folder.path().join("bin")] {
            fs::create_dir_all(path).unwrap();
        }
        for (program, version) in [("bin", "3.10.8"), ("rabbitmq_server-4.1.0/sbin", "4.1.0")] {
            let program = folder.path().join(program).join("rabbitmq-server");
            fs::write(&program, "").unwrap();
            assert_eq!(installed_version(&program).as_deref(), Some(version));
        }
    }
}
