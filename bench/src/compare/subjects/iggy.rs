//! The gateway before an Iggy server, and the server alone for Iggy's SDK.
//!
//! Always holds: there is one topic with one partition, of the durability that is measured; gateway and SDK meet the same
//! server with the same settings.

use std::net::SocketAddr;
use std::path::Path;

use tokio::runtime::Runtime;

use crate::compare::programs::version;
use crate::compare::subject::{Class, Kind, Subject, TOPIC};
use crate::stack::host::Host;
use crate::stack::server::Server;
use crate::stack::topics::Topic;
use crate::stack::{Programs, StackError, make_folder};

/// The gateway and the SDK, as far as there are programs for them.
pub(in crate::compare) fn subjects(own: &Programs) -> Vec<Subject> {
    let sandbox = Programs {
        iggy_server: None,
        iggy_connectors: None,
        ..own.clone()
    };
    let mut gateways = vec![(Kind::Sandbox, sandbox.describe(), sandbox.clone())];
    if let Some(server) = &own.iggy_server {
        let version = format!(
            "{}, server {}",
            own.describe(),
            version(server, "--version")
        );
        gateways.insert(0, (Kind::Gateway, version, own.clone()));
    }
    // The ceiling is that of the server that counts.
    let sdk = gateways.first().map(|(_, version, programs)| {
        (
            Kind::Sdk,
            format!("Iggy's SDK ({version})"),
            programs.clone(),
        )
    });
    let gateways: Vec<_> = gateways
        .into_iter()
        .map(|(kind, version, programs)| (kind, format!("gateway ({version})"), programs))
        .collect();
    gateways
        .into_iter()
        .chain(sdk)
        .flat_map(|(kind, version, programs)| {
            [(Class::Durable, "persisted"), (Class::Plain, "commit")].map(|(class, flavour)| {
                Subject::iggy(kind, class, flavour, version.clone(), programs.clone())
            })
        })
        .collect()
}

/// See the module. The host ends before its server.
#[derive(Debug)]
pub(in crate::compare) struct Iggy {
    host: Option<Host>,
    server: Server,
}

fn topics(class: Class) -> [Topic; 1] {
    [Topic {
        name: TOPIC.to_owned(),
        partitions: 1,
        persisted: class == Class::Durable,
    }]
}

impl Iggy {
    /// Starts a server, and a gateway before it if it is asked for.
    pub(in crate::compare) fn start(
        programs: &Programs,
        folder: &Path,
        class: Class,
        has_gateway: bool,
        runtime: &Runtime,
    ) -> Result<Self, StackError> {
        let place = folder.join("server");
        make_folder(&place)?;
        let server = Server::start(programs, &place, &topics(class), runtime)?;
        Self::with_host(programs, folder, class, has_gateway, server)
    }

    fn with_host(
        programs: &Programs,
        folder: &Path,
        class: Class,
        has_gateway: bool,
        server: Server,
    ) -> Result<Self, StackError> {
        let host = if has_gateway {
            let place = folder.join("host");
            make_folder(&place)?;
            let iggy = server.address();
            Some(Host::start(programs, &place, iggy, iggy, &topics(class))?)
        } else {
            None
        };
        Ok(Self { host, server })
    }

    /// Kills both at once and starts them again with the same folders.
    pub(in crate::compare) fn crash(
        self,
        programs: &Programs,
        folder: &Path,
        class: Class,
        runtime: &Runtime,
    ) -> Result<Self, StackError> {
        let has_gateway = self.host.is_some();
        drop(self);
        let server = Server::restart(programs, &folder.join("server"), runtime)?;
        Self::with_host(programs, folder, class, has_gateway, server)
    }

    pub(in crate::compare) fn mqtt(&self) -> Option<SocketAddr> {
        self.host.as_ref().map(Host::mqtt)
    }

    pub(in crate::compare) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(in crate::compare) fn host_pid(&self) -> Option<u32> {
        self.host.as_ref().map(Host::pid)
    }

    pub(in crate::compare) fn server_pid(&self) -> u32 {
        self.server.pid()
    }

    /// How many messages Iggy holds.
    pub(in crate::compare) fn messages(&self, runtime: &Runtime) -> Result<u64, StackError> {
        self.server.messages(TOPIC, runtime)
    }

    pub(in crate::compare) fn output_end(&self) -> String {
        match &self.host {
            Some(host) => host.output_end(),
            None => self.server.output_end(),
        }
    }
}
