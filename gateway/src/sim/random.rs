//! Seeded runs with faults: publishers and subscribers of several kinds on a log that delays, fails and loses replies.
//! After each run the invariants are checked against what the log holds and what each client saw.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Client, Got, Sim, device};
use crate::log::memory::{Chances, MemoryLog};
use crate::mapping::envelope;
use crate::mqtt::QoS;

/// Seeds that are tried, from 0 on, unless `SIM_RUNS` gives another number or `SIM_SEED` one seed.
const RUNS: u64 = 80;
const DEVICES: u16 = 4;
const PER_DEVICE: u16 = 60;
const CONSUMER: &str = "mqtt-gateway.node-1";

/// What a publisher saw: the numbers that were acknowledged.
async fn publish_all(mut client: Client, name: u16, mut random: StdRng) -> Vec<u16> {
    let mut acknowledged = Vec::new();
    let mut waiting = 0;
    for n in 1..=PER_DEVICE {
        let qos_1 = random.random_bool(0.8);
        client
            .publish(&format!("d/{name}/x"), &n.to_string(), qos_1.then_some(n))
            .await;
        waiting += u16::from(qos_1);
        while waiting > random.random_range(0..20) {
            match client.next().await {
                Got::PubAck(id) => acknowledged.push(id),
                other => panic!("{other:?}"),
            }
            waiting -= 1;
        }
        if random.random_bool(0.1) {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..50))).await;
        }
    }
    while waiting > 0 {
        match client.next().await {
            Got::PubAck(id) => acknowledged.push(id),
            other => panic!("{other:?}"),
        }
        waiting -= 1;
    }
    acknowledged
}

/// What a subscriber saw, until nothing comes any more.
async fn read_all(mut client: Client, mut random: StdRng, slow: bool) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    let mut owed = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(20), client.next());
        let Ok(got) = next.await else { return seen };
        let Got::Publish {
            topic,
            payload,
            id,
            dup,
            ..
        } = got
        else {
            panic!("{got:?}")
        };
        assert!(!dup);
        seen.push((topic, String::from_utf8(payload).unwrap()));
        owed.extend(id);
        if slow {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
        }
        // Out of order, but never for long.
        while owed.len() > random.random_range(0..8) {
            let id = owed.swap_remove(random.random_range(0..owed.len()));
            client.ack(id).await;
        }
    }
}

async fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let chances = Chances {
        fail: random.random_range(0.0..0.3),
        lose_reply: random.random_range(0.0..0.2),
        done_later: random.random_range(0.0..0.1),
        delay: random.random_range(0.0..0.5),
        longest_delay: Duration::from_millis(200),
    };
    let sim = Sim::on(MemoryLog::seeded(seed, Chances::default()), |limits| {
        limits.max_packet_size = 2_048;
        limits.max_connect_size = 2_048;
        limits.outbox_bytes = 2_048;
        limits.max_poll_messages = 7;
        limits.max_batch_messages = 5;
        limits.commit_interval = Duration::from_millis(20);
    })
    .await;
    let mut subscribers = Vec::new();
    for n in 0..6_u16 {
        let mut client = sim.dial(if n % 2 == 0 { 128 } else { 8_192 });
        client.connect(&format!("s{n}")).await;
        let mut topics = Vec::new();
        for device in 0..DEVICES {
            if device == n % DEVICES || random.random_bool(0.3) {
                let topic = format!("d/{device}/x");
                client.subscribe(&topic, 1).await;
                topics.push(topic);
            }
        }
        let reading = tokio::spawn(read_all(
            client,
            StdRng::seed_from_u64(random.random()),
            n % 3 == 0,
        ));
        subscribers.push((topics, reading));
    }
    sim.log.set_chances(chances);
    let mut publishers = Vec::new();
    for name in 0..DEVICES {
        let client = sim.connect(&format!("p{name}")).await;
        publishers.push(tokio::spawn(publish_all(
            client,
            name,
            StdRng::seed_from_u64(random.random()),
        )));
    }
    let mut acknowledged = HashMap::new();
    for (name, publisher) in publishers.into_iter().enumerate() {
        acknowledged.insert(format!("d/{name}/x"), publisher.await.unwrap());
    }
    sim.until("all settled", |sim| {
        let settled: u64 = ["stored", "refused", "shed", "failed"]
            .iter()
            .map(|name| sim.count(&format!("publishes_{name}")))
            .sum();
        settled == u64::from(DEVICES * PER_DEVICE)
    })
    .await;
    sim.log.set_chances(Chances::default());
    sim.assert_outcomes_add_up();

    // N1, N2, N3: what was acknowledged is stored, in order, first occurrences.
    let mut stored: HashMap<String, Vec<u16>> = HashMap::new();
    let mut promised: HashMap<String, Vec<u16>> = HashMap::new();
    let partitions: HashSet<_> = (0..DEVICES).map(|name| device(&name.to_string())).collect();
    for partition in &partitions {
        for record in sim.log.records(partition) {
            let opened = envelope::open(&record).unwrap();
            let n = std::str::from_utf8(&opened.payload)
                .unwrap()
                .parse()
                .unwrap();
            let seen = stored.entry(opened.topic.as_str().to_owned()).or_default();
            if !seen.contains(&n) {
                seen.push(n);
                if opened.qos == QoS::AtLeastOnce {
                    promised
                        .entry(opened.topic.as_str().to_owned())
                        .or_default()
                        .push(n);
                }
            }
        }
    }
    for (topic, acknowledged) in &acknowledged {
        assert!(acknowledged.is_sorted(), "N3 {topic}");
        let stored = &stored[topic];
        assert!(stored.is_sorted(), "N2 {topic}: {stored:?}");
        assert!(
            acknowledged.iter().all(|n| stored.contains(n)),
            "N1 {topic}"
        );
    }
    // D2, D3, D5: every subscriber got every QoS 1 record of its topics, perhaps those of QoS 0, and no other, in order.
    for (topics, reading) in subscribers {
        let seen = reading.await.unwrap();
        for (topic, _) in &seen {
            assert!(topics.contains(topic), "D2");
        }
        for topic in topics {
            let mut firsts: Vec<u16> = Vec::new();
            for (_, payload) in seen.iter().filter(|(other, _)| *other == topic) {
                let n = payload.parse().unwrap();
                if !firsts.contains(&n) {
                    firsts.push(n);
                }
            }
            assert!(
                firsts.iter().all(|n| stored[&topic].contains(n)),
                "D2 {topic}"
            );
            // A QoS 0 copy may be dropped, and a second record of the same publish be delivered later.
            firsts.retain(|n| promised[&topic].contains(n));
            assert_eq!(firsts, promised[&topic], "D3, D5 {topic}");
        }
    }
    // D4: commits only grow, and never beyond the end.
    for partition in &partitions {
        let commits = sim.log.commits(partition, CONSUMER);
        assert!(commits.is_sorted(), "D4 {commits:?}");
        assert!(commits.last() < Some(&(sim.log.records(partition).len() as u64)));
    }
}

#[test]
fn n1_n2_n3_n7_d2_d3_d4_d5_hold_in_seeded_runs_with_faults() {
    let number = |name| -> Option<u64> { Some(std::env::var(name).ok()?.parse().unwrap()) };
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_RUNS").unwrap_or(RUNS),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed))));
        if let Err(panic) = result {
            eprintln!("failed with SIM_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
