//! Eclipse Mosquitto: in memory, and with its database written after every 1,000 changes.
//!
//! It has no setting that makes a PUBACK wait for stable storage; what is written every 1,000 changes is as much as it
//! promises, and each time it writes everything that it holds.

use std::path::Path;
use std::process::Command;

use crate::compare::programs::{find_program, version};
use crate::compare::subject::{Class, Found, Kind, Launch, Search};
use crate::stack::process::Process;
use crate::stack::{StackError, write};

pub(in crate::compare) fn find() -> Search {
    let program = find_program("MOSQUITTO_BIN", &["mosquitto"])?;
    let version = format!("mosquitto {}", version(&program, "-h"));
    let found = Found {
        kind: Kind::Mosquitto,
        program,
        version,
        flavours: vec![
            (Class::Plain, "memory"),
            (Class::Durable, "saves every 1,000"),
        ],
        start,
    };
    Ok((found, None))
}

fn start(launch: &Launch<'_>) -> Result<Vec<Process>, StackError> {
    let file = launch.folder.join("mosquitto.conf");
    let text = config(launch.address.port(), launch.class, launch.folder);
    write(&file, &text)?;
    let mut command = Command::new(launch.program);
    command.arg("-c").arg(&file);
    let log = launch.folder.join("mosquitto.log");
    Ok(vec![Process::start("mosquitto", command, &log)?])
}

fn config(port: u16, class: Class, folder: &Path) -> String {
    let persistence = match class {
        Class::Plain => "persistence false\n".to_owned(),
        Class::Durable => format!(
            "persistence true\n\
             persistence_location {}/\n\
             autosave_on_changes true\n\
             autosave_interval 1000\n",
            folder.display()
        ),
    };
    format!(
        "listener {port} 127.0.0.1\n\
         allow_anonymous true\n\
         # As root it would become a user that may not write here.\n\
         user root\n\
         log_dest stderr\n\
         log_type error\n\
         log_type warning\n\
         # Beyond these it would drop what is to be kept or delivered.\n\
         max_queued_messages 0\n\
         max_queued_bytes 0\n\
         # The default of 20 is for slow networks; it would make the keeper and the subscribers wait.\n\
         max_inflight_messages 1000\n\
         # Small packets at once, as everybody here.\n\
         set_tcp_nodelay true\n\
         {persistence}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_durable_flavour_has_a_database() {
        let plain = config(1_234, Class::Plain, Path::new("/data"));
        assert!(plain.starts_with("listener 1234 127.0.0.1\n"));
        assert!(plain.ends_with("persistence false\n"));
        let durable = config(1_234, Class::Durable, Path::new("/data"));
        assert!(durable.ends_with(
            "persistence true\n\
             persistence_location /data/\n\
             autosave_on_changes true\n\
             autosave_interval 1000\n"
        ));
        for text in [plain, durable] {
            assert!(text.contains("\nmax_queued_messages 0\n"));
        }
    }
}
