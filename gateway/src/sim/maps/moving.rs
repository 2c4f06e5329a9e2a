//! Clients publish and are subscribed while one topic map after another comes into force: each message reaches each of its
//! subscribers once. Runs are seeded; a failing one names its seed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::seeds::run_all;
use super::super::trace::Trace;
use super::{Client, Got, Mapped, Sim};
use crate::log::memory::{Chances, HoldAt};

const TOPICS: usize = 6;
const SUBSCRIBERS: usize = 3;
const PUBLISHERS: usize = 2;
const STEPS: usize = 60;

fn topic(n: usize) -> String {
    format!("t/{n}")
}

/// A map that takes all topics; which goes where is up to chance.
fn random_map(random: &mut StdRng) -> String {
    let mut map = format!(
        "default_stream = 's'\ndefault_topic = 'rest_{}'\npartitions = {}\n",
        random.random_range(0..3),
        random.random_range(1..4),
    );
    for n in 0..TOPICS {
        let place = match random.random_range(0..4) {
            0 => continue,
            1 => "keyed'\npartition_key = '$1".to_owned(),
            2 => format!("keyed'\npartition_key = 'k{}", random.random_range(0..5)),
            _ => "dynamic_$1".to_owned(),
        };
        map += &format!("[[rule]]\nmqtt_topic = 't/({n})'\nstream = 's'\ntopic = '{place}'\n");
    }
    map
}

/// A subscriber that takes whatever comes.
struct Subscriber {
    topics: Vec<usize>,
    got: Arc<Mutex<Vec<(String, String)>>>,
    again: mpsc::UnboundedSender<String>,
}

impl Subscriber {
    async fn start(sim: &Sim, id: usize, random: &mut StdRng) -> Self {
        let mut client = sim.connect(&format!("subscriber {id}")).await;
        let topics: Vec<usize> = (0..TOPICS).filter(|_| random.random_bool(0.6)).collect();
        for n in &topics {
            client.subscribe(&topic(*n), 1).await;
        }
        let (got, (again, asked)) = (Arc::default(), mpsc::unbounded_channel());
        tokio::spawn(take_all(client, asked, Arc::clone(&got)));
        Self { topics, got, again }
    }
}

async fn take_all(
    mut client: Client,
    mut asked: mpsc::UnboundedReceiver<String>,
    all: Arc<Mutex<Vec<(String, String)>>>,
) {
    loop {
        let got = tokio::select! {
            got = client.try_next() => got,
            Some(topic) = asked.recv() => {
                client.send_subscribe(&topic, 1).await;
                continue;
            }
        };
        match got {
            None => return,
            Some(Got::Publish {
                id, topic, payload, ..
            }) => {
                if let Some(id) = id {
                    client.ack(id).await;
                }
                let text = String::from_utf8(payload).unwrap();
                all.lock().push((topic, text));
            }
            Some(Got::SubAck(_, codes)) => assert_eq!(codes, [1]),
            Some(other) => panic!("{other:?}"),
        }
    }
}

async fn run(seed: u64, trace: Trace) {
    let mut random = StdRng::seed_from_u64(seed);
    let mapped = Mapped::start(&random_map(&mut random)).await;
    let sim = &mapped.sim;
    sim.log.set_chances(Chances {
        delay: 0.2,
        longest_delay: Duration::from_millis(30),
        ..Chances::default()
    });
    let mut subscribers = Vec::new();
    for id in 0..SUBSCRIBERS {
        subscribers.push(Subscriber::start(sim, id, &mut random).await);
    }
    let mut publishers = Vec::new();
    for id in 0..PUBLISHERS {
        publishers.push((sim.connect(&format!("publisher {id}")).await, 0_u16, 0_u16));
    }
    let mut sent: HashMap<usize, usize> = HashMap::new();
    for step in 0..STEPS {
        let what = random.random_range(0..100);
        match what {
            0..50 => {
                for _ in 0..random.random_range(1..8) {
                    let at = random.random_range(0..PUBLISHERS);
                    let n = random.random_range(0..TOPICS);
                    let count = sent.entry(n).or_default();
                    let (client, published, _) = &mut publishers[at];
                    *published += 1;
                    let payload = format!("{n}:{count}");
                    client.publish(&topic(n), &payload, Some(*published)).await;
                    *count += 1;
                }
            }
            50..65 => {
                mapped.write(&random_map(&mut random));
                let reloaded = mapped.reload().await;
                assert_eq!(reloaded, Ok(()));
                trace.note("operator", format_args!("step {step}: another map"));
            }
            65..72 => {
                let one = &subscribers[random.random_range(0..SUBSCRIBERS)];
                if let Some(n) = one.topics.first() {
                    one.again.send(topic(*n)).unwrap();
                }
            }
            72..77 => sim.log.hold(match random.random_bool(0.5) {
                true => HoldAt::BeforeCommit,
                false => HoldAt::AfterCommit,
            }),
            77..85 => sim.log.release(),
            85..97 => sleep(Duration::from_millis(random.random_range(0..200))).await,
            // Old places are left.
            _ => sleep(Duration::from_secs(90)).await,
        }
    }
    sim.log.release();
    for (client, published, acknowledged) in &mut publishers {
        while acknowledged < published {
            *acknowledged += 1;
            assert_eq!(client.next().await, Got::PubAck(*acknowledged), "N3");
        }
    }
    // Longer than an old place is read.
    sleep(Duration::from_secs(120)).await;
    for (id, subscriber) in subscribers.iter().enumerate() {
        let mut got = subscriber.got.lock().clone();
        got.sort();
        let mut expected: Vec<_> = subscriber
            .topics
            .iter()
            .flat_map(|n| {
                let count = sent.get(n).copied().unwrap_or_default();
                (0..count).map(move |m| (topic(*n), format!("{n}:{m}")))
            })
            .collect();
        expected.sort();
        assert_eq!(got, expected, "subscriber {id}");
    }
    sim.assert_outcomes_add_up();
}

#[test]
fn d5_open_subscriptions_move_with_the_map_without_loss_or_duplicates_while_publishers_publish() {
    run_all(60, run);
}
