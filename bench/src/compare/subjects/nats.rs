//! nats-server with JetStream and MQTT: by its defaults, and with every write flushed to stable storage.
//!
//! JetStream keeps MQTT's messages in files, which the operating system writes when it likes (by default they are flushed
//! every two minutes). From version 2.10 on `sync_interval: always` makes an acknowledgement wait for stable storage.

use std::path::Path;
use std::process::Command;

use crate::compare::programs::{find_program, version};
use crate::compare::subject::{Class, Found, Kind, Launch, Search};
use crate::stack::process::Process;
use crate::stack::{StackError, ports, write};

pub(in crate::compare) fn find() -> Search {
    let program = find_program("NATS_SERVER_BIN", &["nats-server"])?;
    let number = version(&program, "--version");
    let mut flavours = vec![(Class::Plain, "files, no fsync")];
    let note = if syncs(&number) {
        flavours.push((Class::Durable, "fsync always"));
        None
    } else {
        Some(format!(
            "without nats-durable: nats-server {number} has no `sync_interval: always`, 2.10 has"
        ))
    };
    let found = Found {
        kind: Kind::Nats,
        program,
        version: format!("nats-server {number}"),
        flavours,
        start,
    };
    Ok((found, note))
}

/// Whether a version can flush every write.
fn syncs(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= (2, 10),
        _ => false,
    }
}

fn start(launch: &Launch<'_>) -> Result<Vec<Process>, StackError> {
    let file = launch.folder.join("nats.conf");
    let nats = ports::free_address()?;
    let text = config(
        nats.port(),
        launch.address.port(),
        launch.class,
        launch.folder,
    );
    write(&file, &text)?;
    let mut command = Command::new(launch.program);
    command.arg("-c").arg(&file);
    let log = launch.folder.join("nats.log");
    Ok(vec![Process::start("nats-server", command, &log)?])
}

fn config(nats: u16, mqtt: u16, class: Class, folder: &Path) -> String {
    let sync = match class {
        Class::Plain => "",
        Class::Durable => "  sync_interval: always\n",
    };
    format!(
        "server_name: bench\n\
         listen: \"127.0.0.1:{nats}\"\n\
         max_connections: 100000\n\
         # Two seconds by default, after which it would close the connection of a subscriber that is late.\n\
         write_deadline: \"30s\"\n\
         jetstream {{\n\
         \x20 store_dir: \"{folder}\"\n\
         {sync}}}\n\
         mqtt {{\n\
         \x20 listen: \"127.0.0.1:{mqtt}\"\n\
         \x20 # The default of 1,024 would make subscribers wait under load. All filters of a client together may have\n\
         \x20 # 65,535, and one that ends in # counts twice.\n\
         \x20 max_ack_pending: 30000\n\
         }}\n",
        folder = folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_2_10_on_can_flush_every_write() {
        for (version, can) in [
            ("2.9.10", false),
            ("2.10.0", true),
            ("2.15.1", true),
            ("3.0", true),
            ("1.99.1", false),
            ("unknown", false),
        ] {
            assert_eq!(syncs(version), can, "{version}");
        }
    }

    #[test]
    fn only_the_durable_flavour_flushes_every_write() {
        let text = |class| config(1, 2, class, Path::new("/data"));
        assert!(
            text(Class::Durable)
                .contains("jetstream {\n  store_dir: \"/data\"\n  sync_interval: always\n}\n")
        );
        assert!(text(Class::Plain).contains("jetstream {\n  store_dir: \"/data\"\n}\n"));
        assert!(text(Class::Plain).contains("mqtt {\n  listen: \"127.0.0.1:2\"\n"));
    }
}
