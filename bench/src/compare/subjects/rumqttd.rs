//! rumqttd, which holds everything in memory and has no other flavour.

use std::net::SocketAddr;
use std::process::Command;

use crate::compare::programs::{find_program, version};
use crate::compare::subject::{Class, Found, Kind, Launch, Search};
use crate::stack::process::Process;
use crate::stack::{StackError, write};

pub(in crate::compare) fn find() -> Search {
    let program = find_program("RUMQTTD_BIN", &["rumqttd"])?;
    let version = version(&program, "--version");
    let found = Found {
        kind: Kind::Rumqttd,
        program,
        version: format!("rumqttd {version}"),
        flavours: vec![(Class::Plain, "memory")],
        start,
    };
    Ok((found, None))
}

fn start(launch: &Launch<'_>) -> Result<Vec<Process>, StackError> {
    let file = launch.folder.join("rumqttd.toml");
    write(&file, &config(launch.address))?;
    let mut command = Command::new(launch.program);
    command.arg("--config").arg(&file);
    let log = launch.folder.join("rumqttd.log");
    Ok(vec![Process::start("rumqttd", command, &log)?])
}

fn config(mqtt: SocketAddr) -> String {
    format!(
        "id = 0\n\
         \n\
         [router]\n\
         id = 0\n\
         # One more than the idle clients, with some that are still leaving.\n\
         max_connections = 20000\n\
         max_outgoing_packet_count = 200\n\
         # As in the file that comes with it. What does not fit into all segments is dropped.\n\
         max_segment_size = 104857600\n\
         max_segment_count = 10\n\
         \n\
         [v4.1]\n\
         name = \"v4-1\"\n\
         listen = \"{mqtt}\"\n\
         # The file that comes with it waits 1 ms between two connections.\n\
         next_connection_delay_ms = 0\n\
         \n\
         [v4.1.connections]\n\
         connection_timeout_ms = 60000\n\
         max_payload_size = 1048576\n\
         # More than any client here has unacknowledged.\n\
         max_inflight_count = 1000\n\
         dynamic_filters = true\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_mqtt_3_1_1_on_loopback_and_nothing_else() {
        let text = config(SocketAddr::from(([127, 0, 0, 1], 1_234)));
        assert_eq!(text.matches("listen = ").count(), 1);
        assert!(text.contains("[v4.1]\nname = \"v4-1\"\nlisten = \"127.0.0.1:1234\"\n"));
    }
}
