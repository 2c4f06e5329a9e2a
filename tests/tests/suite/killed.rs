//! `kill -9` of Iggy and of the host at any moment, under load: what was acknowledged, and what is left of it.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::binaries;
use e2e::config::PARTITIONS;
use e2e::deployment::Deployment;
use e2e::device::{Device, Progress, all_publish};
use e2e::packet;
use e2e::promise;
use e2e::random::Random;
use e2e::raw::Answer;
use e2e::records::Record;

const TOPIC: &str = "device/7/x";
/// Acknowledged messages between two kills.
const BETWEEN: usize = 200;
/// The kill comes at a random moment of this time after them.
const MOMENT: Duration = Duration::from_millis(300);

/// What is killed, and started again.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Host,
    Iggy,
    IggyThenHost,
    /// The host comes back first, and waits for Iggy.
    HostThenIggy,
}

impl Victim {
    const ALL: [Self; 4] = [
        Self::Host,
        Self::Iggy,
        Self::IggyThenHost,
        Self::HostThenIggy,
    ];

    fn is_killed(self, deployment: &mut Deployment) {
        match self {
            Self::Host => {
                deployment.host.kill();
                deployment.host.start();
            }
            Self::Iggy => {
                deployment.iggy.kill();
                deployment.iggy.start_again();
            }
            Self::IggyThenHost => {
                deployment.iggy.kill();
                deployment.host.kill();
                deployment.iggy.start_again();
                deployment.host.start();
            }
            Self::HostThenIggy => {
                deployment.host.kill();
                deployment.iggy.kill();
                deployment.host.launch();
                deployment.iggy.start_again();
            }
        }
    }
}

fn devices(deployment: &Deployment) -> Vec<Device> {
    (0..6)
        .map(|n| {
            let own = format!("device/{n}/x");
            // With a key that others publish with too.
            let common = format!("device/common/{n}");
            Device::new(deployment.mqtt(), &format!("d{n}"), &[&own, &common])
        })
        .collect()
}

/// Kills each of `victims` at a random moment while `devices` publish.
fn kill_under_load(deployment: &mut Deployment, devices: &mut [Device], victims: &[Victim]) {
    let mut random = Random::new();
    all_publish(devices, |progress: &Progress| {
        for victim in victims {
            progress.wait_for_more(BETWEEN);
            std::thread::sleep(random.duration(MOMENT));
            println!("{victim:?}, with {} acknowledged", progress.acknowledged());
            victim.is_killed(deployment);
        }
        progress.wait_for_more(BETWEEN);
    });
}

#[test]
fn n1_no_acknowledged_message_is_missing_after_kills_of_iggy_and_host_at_any_moment() {
    let mut deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("kills of Iggy and host") {
        return;
    }
    let rounds = if binaries::long() { 5 } else { 1 };
    let mut random = Random::new();
    let victims: Vec<Victim> = (0..rounds)
        .flat_map(|_| random.shuffled(Victim::ALL.to_vec()))
        .collect();
    let mut devices = devices(&deployment);
    kill_under_load(&mut deployment, &mut devices, &victims);
    // What is on stable storage is also there after the last kill.
    deployment.host.kill();
    deployment.iggy.kill();
    deployment.iggy.start_again();
    promise::check_stored(&devices, &deployment.device_records());
}

#[test]
fn with_durability_commit_a_killed_host_loses_nothing_and_a_killed_iggy_only_what_was_newest() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let map = format!(
        "default_stream = '{stream}'\n\
         default_topic = 'rest'\n\
         partitions = {PARTITIONS}\n\
         durability = 'commit'\n\
         [[rule]]\n\
         mqtt_topic = 'device/([^/]+)/.*'\n\
         stream = '{stream}'\n\
         topic = 'devices'\n\
         partition_key = '$1'\n"
    );
    let mut deployment = builder.map(map).start();
    if !deployment.iggy.may_be_killed("durability = commit") {
        return;
    }
    let mut devices = devices(&deployment);
    let times = if binaries::long() { 5 } else { 1 };
    kill_under_load(&mut deployment, &mut devices, &vec![Victim::Host; times]);
    promise::check_stored(&devices, &deployment.device_records());

    kill_under_load(&mut deployment, &mut devices, &[Victim::Iggy]);
    let records = deployment.device_records();
    promise::check_order(&devices, &records);
    let mut lost = 0;
    let mut acknowledged = 0;
    for device in &devices {
        lost += check_one_gap(device, &records);
        acknowledged += device.acknowledged().len();
    }
    println!("durability = commit: {lost} of {acknowledged} acknowledged messages were lost");
}

/// What is missing of a topic are the newest messages before the one kill of Iggy. Gives how many are missing.
fn check_one_gap(device: &Device, records: &[Record]) -> usize {
    let missing = promise::missing(device, records);
    let mut topics: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for number in device.acknowledged() {
        topics
            .entry(device.topic(*number))
            .or_default()
            .push(*number);
    }
    for (topic, acknowledged) in topics {
        let is_missing: Vec<bool> = acknowledged
            .iter()
            .map(|number| missing.binary_search(number).is_ok())
            .collect();
        let gaps = is_missing.chunk_by(|one, other| one == other);
        let gaps = gaps.filter(|run| run.first() == Some(&true)).count();
        assert!(
            gaps <= 1,
            "{topic} of {}: the lost messages {missing:?} are not one gap",
            device.id()
        );
    }
    missing.len()
}

#[test]
fn a_host_that_is_asked_to_end_acknowledges_what_it_has_stored_and_ends() {
    let mut deployment = Deployment::start();
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "1");
    for id in 2..=50 {
        client.send(&packet::publish(TOPIC, id, id.to_string()));
    }
    let status = deployment.host.process().terminate(Duration::from_secs(60));
    assert!(status.success(), "the host ended with {status}");

    let mut acknowledged = 1;
    loop {
        match client.answer(Duration::from_secs(5)) {
            Answer::Packet(bytes) => {
                acknowledged += 1;
                assert_eq!(bytes, packet::puback(acknowledged));
            }
            Answer::Closed => break,
            Answer::Silence => panic!("the connection is still open"),
        }
    }
    let stored = deployment.device_records().len();
    assert!(
        stored >= usize::from(acknowledged),
        "{acknowledged} were acknowledged and {stored} stored"
    );
}
