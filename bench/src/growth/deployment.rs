//! An Iggy server with a gateway for each point of a dimension before it.
//!
//! Always holds: all gateways stay until the last round, so that each keeps what it has learned, and only one of them has
//! work at a time. A topic that is published to is empty when a measurement begins, so all begin alike.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::point::{Load, Point};
use super::report::Sample;
use super::{GrowthError, Settings};
use crate::driver::{Crowd, DriverError, FanOut, Limit, Publishers, QoS, Workload};
use crate::outcome::Outcome;
use crate::process_usage::processor_time;
use crate::stack::Programs;
use crate::stack::host::{Files, Host};
use crate::stack::server::Server;
use crate::stack::topics::Topic;

/// See the module. Its parts end in the order of the fields.
#[derive(Debug)]
pub(super) struct Deployment<'a> {
    settings: &'a Settings,
    runtime: &'a Runtime,
    stations: Vec<Station>,
    server: Server,
    _folder: TempDir,
}

/// A point and its gateway.
#[derive(Debug)]
struct Station {
    point: Point,
    host: Host,
}

impl<'a> Deployment<'a> {
    /// Starts everything in `folder`.
    pub(super) fn start(
        settings: &'a Settings,
        programs: &Programs,
        points: &[Point],
        folder: TempDir,
        runtime: &'a Runtime,
    ) -> Result<Self, GrowthError> {
        let topics: Vec<Topic> = points.iter().map(|point| point.topic()).collect();
        let place = folder.path().join("server");
        fs::create_dir(&place)?;
        let server = Server::start(programs, &place, &topics, runtime)?;
        let stations = points
            .iter()
            .map(|&point| station(settings, programs, folder.path(), &server, point))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            settings,
            runtime,
            stations,
            server,
            _folder: folder,
        })
    }

    /// Measures the point at this place.
    pub(super) fn measure(&self, at: usize) -> Result<Sample, GrowthError> {
        let Some(station) = self.stations.get(at) else {
            unreachable!("there is a station for each point");
        };
        let point = station.point;
        let load = point.load(self.settings.on_the_way);
        let (outcome, processor) = match load {
            Load::Publish {
                clients,
                window,
                topics,
            } => {
                let workload = Workload {
                    address: station.host.mqtt(),
                    topic: point.name(),
                    topics,
                    qos: QoS::AtLeastOnce,
                    clients,
                    window,
                    payload: self.settings.payload,
                    rate: None,
                    limit: self.limit(),
                };
                let mut publishers =
                    Publishers::connect(&workload).map_err(|error| station.failed(error))?;
                let measured = station.measure(|| publishers.run(workload.limit))?;
                publishers.disconnect();
                self.check_stored(point, measured.0.messages)?;
                measured
            }
            Load::Deliver {
                subscribers,
                window,
            } => {
                let crowd = Crowd::gather(FanOut {
                    address: station.host.mqtt(),
                    topic: format!("{}/x", point.name()),
                    qos: QoS::AtLeastOnce,
                    subscribers,
                    stuck: 0,
                    window,
                    payload: self.settings.payload,
                    rate: None,
                    limit: self.limit(),
                });
                let crowd = crowd.map_err(|error| station.failed(error))?;
                station.measure(|| crowd.run(|| ()))?
            }
        };
        let sample = Sample::new(point, &outcome, processor);
        eprintln!(
            "{}: {:.0}/s, {:.2} µs of processor each, p50 {:.0} µs, p99 {:.0} µs",
            point.name(),
            sample.rate,
            sample.cpu_us,
            sample.latency_us.p50,
            sample.latency_us.p99,
        );
        Ok(sample)
    }

    fn limit(&self) -> Limit {
        Limit {
            messages: self.settings.messages,
            duration: Duration::from_secs_f64(self.settings.seconds),
        }
    }

    /// Makes sure that all that was confirmed is stored, and empties the topic for the next measurement.
    fn check_stored(&self, point: Point, confirmed: u64) -> Result<(), GrowthError> {
        let name = point.name();
        let stored = self.server.empty(&name, self.runtime)?;
        if stored >= confirmed {
            return Ok(());
        }
        Err(GrowthError::Lost {
            point: name,
            confirmed,
            stored,
        })
    }
}

impl Station {
    /// What `work` gave, and how much processor time the gateway took for it.
    fn measure(
        &self,
        work: impl FnOnce() -> Result<Outcome, DriverError>,
    ) -> Result<(Outcome, Duration), GrowthError> {
        let used = || {
            processor_time(self.host.pid()).ok_or_else(|| GrowthError::NoProcessorTime {
                point: self.point.name(),
                output: self.host.output_end(),
            })
        };
        let before = used()?;
        let outcome = work().map_err(|error| self.failed(error))?;
        Ok((outcome, used()?.saturating_sub(before)))
    }

    fn failed(&self, source: DriverError) -> GrowthError {
        GrowthError::Driver {
            point: self.point.name(),
            source,
            output: self.host.output_end(),
        }
    }
}

fn station(
    settings: &Settings,
    programs: &Programs,
    folder: &Path,
    server: &Server,
    point: Point,
) -> Result<Station, GrowthError> {
    let name = point.name();
    let place = folder.join(&name);
    fs::create_dir(&place)?;
    let iggy = server.address();
    // One publisher may have on the way what many may have together.
    let limits = format!("receive_window = {}\n", settings.on_the_way.published);
    let files = Files {
        entry: &name,
        topic_map: &point.topic_map(),
        limits: &limits,
    };
    let host = Host::start_with(programs, &place, iggy, iggy, &files)?;
    Ok(Station { point, host })
}
