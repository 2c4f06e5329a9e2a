//! The topic map changes while clients publish and are subscribed.

use std::path::PathBuf;
use std::time::Duration;

use super::files::Files;
use super::{Client, Got, Sim, dead_letters, payloads, triple};
use crate::config::{Config, OnWeakDurability};
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};
use crate::log::{Durability, Log};
use crate::reload::Reloaded;

mod moving;

/// Everything in one topic of Iggy.
fn all_in(topic: &str) -> String {
    format!("default_stream = 's'\ndefault_topic = '{topic}'\n")
}

/// A gateway and the file of its map.
struct Mapped {
    sim: Sim,
    files: Files,
}

impl Mapped {
    async fn start(map: &str) -> Self {
        Self::with(map, MemoryLog::new(), |_| ()).await
    }

    async fn with(map: &str, log: MemoryLog, configure: impl FnOnce(&mut Config)) -> Self {
        let files = Files::new();
        let path = files.write("map.toml", map);
        let sim = Sim::with_map(map, log, |config| {
            config.topic_map = path;
            configure(config);
        })
        .await;
        Self { sim, files }
    }

    fn write(&self, map: &str) -> PathBuf {
        self.files.write("map.toml", map)
    }

    /// Puts `map` in force; panics if it is refused.
    async fn change(&self, map: &str) {
        self.write(map);
        assert_eq!(self.reload().await, Ok(()));
    }

    /// Reads all files anew; says what became of the map.
    async fn reload(&self) -> Result<(), String> {
        let mut reloaded = self.sim.gateway.reload().await;
        let map = reloaded.pop().unwrap();
        assert_eq!(map.name, "topic_map");
        map.outcome
    }

    fn alarm(&self) -> Option<String> {
        let standing = self.sim.gateway.context().alarms.standing();
        let map = standing.into_iter().find(|(name, _)| name == "topic_map");
        map.map(|(_, alarm)| alarm.text)
    }

    fn generation(&self) -> u64 {
        self.sim.gateway.context().map.generation()
    }

    fn stored(&self, topic: &str) -> Vec<String> {
        payloads(&self.sim.log.records(&triple(topic, 0)))
    }
}

async fn publish(client: &mut Client, topic: &str, payload: &str) {
    client.publish(topic, payload, Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
}

#[tokio::test(start_paused = true)]
async fn new_publishes_go_by_the_new_map_at_once_and_nobody_is_disconnected() {
    let mapped = Mapped::start(&all_in("old")).await;
    let mut client = mapped.sim.connect("a").await;
    publish(&mut client, "x", "1").await;
    publish(&mut client, "y", "2").await;
    let since = mapped.sim.gateway.context().map.loaded_at();
    mapped.change(&all_in("new")).await;
    // Topics that come for the first time, and such as the old map has said something of.
    publish(&mut client, "x", "3").await;
    publish(&mut client, "z", "4").await;
    assert_eq!(mapped.stored("old"), ["1", "2"]);
    assert_eq!(mapped.stored("new"), ["3", "4"]);
    assert_eq!(mapped.generation(), 2);
    assert!(mapped.sim.gateway.context().map.loaded_at() >= since);
    mapped.sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_map_that_changes_is_found_within_the_interval() {
    let mapped = Mapped::start(&all_in("old")).await;
    mapped.write(&all_in("new"));
    mapped
        .sim
        .until("it is read", |sim| sim.count("reloads") == 1)
        .await;
    let mut client = mapped.sim.connect("a").await;
    publish(&mut client, "x", "1").await;
    assert_eq!(mapped.stored("new"), ["1"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        mapped.generation(),
        2,
        "what has not changed is not read anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_map_changes_nothing_and_raises_an_alarm_that_ends_when_it_is_mended() {
    let mapped = Mapped::start(&all_in("old")).await;
    let mut client = mapped.sim.connect("a").await;
    client.subscribe("x", 1).await;
    mapped.write("default_stream = 's'\n[[rule]]\nmqtt_topic = '('\nstream = 's'\ntopic = 't'\n");
    mapped
        .sim
        .until("the alarm", |sim| sim.count("reloads_failed") == 1)
        .await;
    let alarm = mapped.alarm().unwrap();
    for part in ["map.toml:3", "default_topic", "stays in force"] {
        assert!(alarm.contains(part), "{part}: {alarm}");
    }
    let refused = mapped.reload().await.unwrap_err();
    assert!(alarm.starts_with(&refused), "{refused}");
    publish(&mut client, "x", "1").await;
    assert_eq!(client.take().await.text(), "1");
    assert_eq!(mapped.stored("old"), ["1"]);
    assert_eq!(mapped.generation(), 1);
    mapped.write(&all_in("new"));
    mapped
        .sim
        .until("it is mended", |sim| sim.count("reloads") == 1)
        .await;
    assert_eq!(mapped.alarm(), None);
    assert_eq!(mapped.generation(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_stays_where_it_was_resolved_and_reaches_its_subscribers() {
    let mapped = Mapped::start(&all_in("old")).await;
    let sim = &mapped.sim;
    let (mut client, mut reader) = (sim.connect("a").await, sim.connect("b").await);
    reader.subscribe("x", 1).await;
    sim.log.hold(HoldAt::BeforeCommit);
    for id in 1..=3 {
        client.publish("x", &id.to_string(), Some(id)).await;
    }
    sim.until("queued", |sim| sim.count("publishes_received") == 3)
        .await;
    mapped.change(&all_in("new")).await;
    client.publish("x", "4", Some(4)).await;
    sim.until("queued", |sim| sim.count("publishes_received") == 4)
        .await;
    sim.log.release();
    for id in 1..=4 {
        assert_eq!(client.next().await, Got::PubAck(id), "N3");
    }
    assert_eq!(mapped.stored("old"), ["1", "2", "3"]);
    assert_eq!(mapped.stored("new"), ["4"]);
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(reader.take().await.text().to_owned());
    }
    got.sort();
    assert_eq!(got, ["1", "2", "3", "4"]);
    assert!(reader.is_quiet_for(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn an_old_place_is_read_until_what_was_on_its_way_has_come_and_then_left() {
    let mapped = Mapped::start(&all_in("old")).await;
    let mut reader = mapped.sim.connect("a").await;
    reader.subscribe("x", 1).await;
    mapped.change(&all_in("new")).await;
    assert_eq!(mapped.sim.delivery().readers(), 2);
    // As another gateway stores it that has not read the new map yet.
    tokio::time::sleep(Duration::from_secs(50)).await;
    let late = super::record("x", "late", 1);
    mapped
        .sim
        .log
        .append(&triple("old", 0), &[late])
        .await
        .unwrap();
    assert_eq!(reader.take().await.text(), "late");
    mapped
        .sim
        .until("the old place is left", |sim| sim.delivery().readers() == 1)
        .await;
    let mut client = mapped.sim.connect("b").await;
    publish(&mut client, "x", "1").await;
    assert_eq!(reader.take().await.text(), "1");
}

#[tokio::test(start_paused = true)]
async fn an_old_place_is_not_left_while_something_is_still_on_its_way_there() {
    let mapped = Mapped::start(&all_in("old")).await;
    let sim = &mapped.sim;
    let (mut client, mut reader) = (sim.connect("a").await, sim.connect("b").await);
    reader.subscribe("x", 1).await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("x", "late", Some(1)).await;
    sim.until("queued", |sim| sim.count("publishes_received") == 1)
        .await;
    mapped.change(&all_in("new")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(reader.take().await.text(), "late");
    sim.until("the old place is left", |sim| sim.delivery().readers() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_subscribes_again_after_its_topic_has_moved_misses_nothing() {
    let mapped = Mapped::start(&all_in("old")).await;
    let sim = &mapped.sim;
    let (mut client, mut reader) = (sim.connect("a").await, sim.connect("b").await);
    reader.subscribe("x", 1).await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("x", "old", Some(1)).await;
    sim.until("queued", |sim| sim.count("publishes_received") == 1)
        .await;
    mapped.change(&all_in("new")).await;
    reader.subscribe("x", 1).await;
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(reader.take().await.text(), "old");
    publish(&mut client, "x", "new").await;
    assert_eq!(reader.take().await.text(), "new");
    // Its old place may be gone altogether.
    sim.log.delete_topic(&triple("old", 0).target);
    reader.subscribe("x", 0).await;
    publish(&mut client, "x", "newest").await;
    assert_eq!(reader.take().await.text(), "newest");
}

#[tokio::test(start_paused = true)]
async fn d5_a_subscription_that_is_under_way_while_the_map_changes_is_of_the_new_one() {
    let map = |topic: &str| {
        format!(
            "{}[[rule]]\nmqtt_topic = 'n/(.*)'\nstream = 's'\ntopic = '{topic}_$1'\n",
            all_in("rest")
        )
    };
    let mapped = Mapped::start(&map("old")).await;
    let sim = &mapped.sim;
    let (mut client, mut reader) = (sim.connect("a").await, sim.connect("b").await);
    let slow = Fault::Delay(Duration::from_secs(3));
    sim.log.script(Call::Topic, slow);
    reader.send_subscribe("n/1", 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    mapped.change(&map("new")).await;
    assert_eq!(reader.next().await, Got::SubAck(1, vec![1]));
    publish(&mut client, "n/1", "1").await;
    assert_eq!(mapped.stored("new_1"), ["1"]);
    assert_eq!(reader.take().await.text(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_the_map_has_no_place_for_what_it_has_subscribed_to() {
    let mapped = Mapped::start(&all_in("old")).await;
    let sim = &mapped.sim;
    let (mut loses, mut stays) = (sim.connect("loses").await, sim.connect("stays").await);
    loses.subscribe("a/1", 1).await;
    loses.subscribe("b/1", 1).await;
    stays.subscribe("b/1", 1).await;
    let map = "on_unmatched = 'refuse'\n[[rule]]\nmqtt_topic = 'b/.*'\nstream = 's'\ntopic = 'b'\n";
    mapped.change(map).await;
    assert!(loses.rest().await.is_empty());
    stays.ping().await;
    assert_eq!(stays.next().await, Got::PingResp);
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, "b/1", "1").await;
    assert_eq!(stays.take().await.text(), "1");
    // It is told when it comes again.
    let mut again = sim.connect("loses").await;
    again.send_subscribe("a/1", 1).await;
    assert_eq!(again.next().await, Got::SubAck(1, vec![0x80]));
    again.subscribe("b/1", 1).await;
    assert_eq!(sim.count("connections_revoked"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_map_whose_topics_iggy_has_to_make_waits_for_iggy() {
    let mapped = Mapped::start(&all_in("old")).await;
    let mut client = mapped.sim.connect("a").await;
    client.subscribe("x", 1).await;
    mapped.sim.log.set_outage(true);
    mapped.write(&all_in("new"));
    let waits = mapped.reload().await.unwrap_err();
    assert!(waits.contains("waits for Iggy"), "{waits}");
    assert!(
        mapped
            .alarm()
            .unwrap()
            .starts_with("the new topic map waits")
    );
    client.publish("x", "1", Some(1)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(mapped.generation(), 1);
    assert_eq!(mapped.sim.count("reloads_failed"), 1, "it is one failure");
    mapped.sim.log.set_outage(false);
    mapped
        .sim
        .until("the map is in force", |sim| sim.count("reloads") == 1)
        .await;
    assert_eq!(mapped.alarm(), None);
    let mut got = [client.next().await, client.next().await];
    got.sort_by_key(|got| *got != Got::PubAck(1));
    assert_eq!(got[1].text(), "1");
    assert_eq!(mapped.stored("old"), ["1"], "it was resolved before");
    client.publish("x", "2", Some(2)).await;
    let mut got = [client.next().await, client.next().await];
    got.sort_by_key(|got| *got != Got::PubAck(2));
    assert_eq!(got[1].text(), "2");
    assert_eq!(mapped.stored("new"), ["2"]);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_is_what_it_was_is_read_without_iggy_and_changes_nothing() {
    let mapped = Mapped::start(&all_in("old")).await;
    let mut client = mapped.sim.connect("a").await;
    client.subscribe("x", 1).await;
    mapped.sim.log.set_outage(true);
    mapped.write(&all_in("old"));
    assert_eq!(mapped.reload().await, Ok(()));
    assert_eq!((mapped.generation(), mapped.alarm()), (1, None));
    // Also if another one was tried in between.
    mapped.write(&all_in("new"));
    assert!(mapped.reload().await.is_err());
    mapped.write(&all_in("old"));
    mapped
        .sim
        .until("the alarm is over", |_| mapped.alarm().is_none())
        .await;
    mapped.sim.log.set_outage(false);
    publish(&mut client, "x", "1").await;
    assert_eq!(client.take().await.text(), "1");
    assert_eq!(mapped.stored("old"), ["1"]);
    assert_eq!(mapped.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_names_a_topic_that_must_not_be_made_is_refused_until_it_is_there() {
    let mapped = Mapped::start(&all_in("old")).await;
    let map = format!("auto_create = false\n{}", all_in("missing"));
    mapped.write(&map);
    let refused = mapped.reload().await.unwrap_err();
    assert!(refused.contains("s/missing does not exist"), "{refused}");
    assert_eq!(mapped.generation(), 1);
    let target = triple("missing", 0).target;
    mapped.sim.log.add_topic(&target, 1, None);
    assert_eq!(mapped.reload().await, Ok(()));
    assert_eq!(mapped.alarm(), None);
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_the_new_map_count_and_its_constant_topics_do_not() {
    let map = |max: u32, named: &str| {
        format!(
            "default_stream = 's'\ndefault_topic = 'rest'\nmax_topics = {max}\n\
             [[rule]]\nmqtt_topic = 'named'\nstream = 's'\ntopic = '{named}'\n\
             [[rule]]\nmqtt_topic = 'n/(.*)'\nstream = 's'\ntopic = 'n_$1'\n"
        )
    };
    let mapped = Mapped::start(&map(1, "one")).await;
    let mut client = mapped.sim.connect("a").await;
    publish(&mut client, "n/1", "1").await;
    publish(&mut client, "n/2", "2").await;
    assert_eq!(mapped.sim.count("refused_too_many_targets"), 1);
    mapped.change(&map(2, "two")).await;
    publish(&mut client, "n/1", "3").await;
    publish(&mut client, "n/2", "4").await;
    publish(&mut client, "named", "5").await;
    assert_eq!(mapped.sim.count("refused_too_many_targets"), 1);
    publish(&mut client, "n/3", "6").await;
    assert_eq!(mapped.sim.count("refused_too_many_targets"), 2);
    assert_eq!(mapped.stored("n_1"), ["1", "3"]);
    assert_eq!(mapped.stored("n_2"), ["4"]);
    assert_eq!(mapped.stored("two"), ["5"]);
    assert_eq!(mapped.sim.log.records(&dead_letters()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn n1_a_topic_in_use_is_refused_when_the_new_map_asks_more_of_it_than_it_promises() {
    let map = |durability: &str| {
        format!(
            "{}durability = '{durability}'\n[[rule]]\nmqtt_topic = 'n/(.*)'\nstream = 's'\ntopic = 'n_$1'\n",
            all_in("rest")
        )
    };
    let mapped = Mapped::with(&map("commit"), MemoryLog::new(), |config| {
        config.ingest.on_weak_durability = OnWeakDurability::Refuse;
    })
    .await;
    let sim = &mapped.sim;
    let mut client = sim.connect("a").await;
    let weak = triple("n_1", 0).target;
    sim.log.add_topic(&weak, 1, Some(Durability::Commit));
    publish(&mut client, "n/1", "1").await;
    // Its constant topic was made with the weaker promise, too.
    mapped.write(&map("persisted"));
    let refused = mapped.reload().await.unwrap_err();
    assert!(refused.contains("s/rest in Iggy is commit"), "{refused}");
    sim.log.delete_topic(&triple("rest", 0).target);
    let strong = Some(Durability::Persisted);
    sim.log.add_topic(&triple("rest", 0).target, 1, strong);
    sim.gateway
        .context()
        .targets
        .forget(&triple("rest", 0).target);
    assert_eq!(mapped.reload().await, Ok(()));
    publish(&mut client, "n/1", "2").await;
    assert_eq!(sim.count("refused_weak_durability"), 1);
    assert_eq!(mapped.stored("n_1"), ["1"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn records_of_other_producers_follow_the_new_map() {
    let map = |foreign: &str| {
        format!(
            "{}[[foreign]]\nstream = 's'\ntopic = 'orders'\nmqtt_topic = '{foreign}'\n",
            all_in("rest")
        )
    };
    let log = MemoryLog::new();
    log.add_topic(&triple("orders", 0).target, 1, None);
    let mapped = Mapped::with(&map("old/$partition"), log, |_| ()).await;
    let sim = &mapped.sim;
    let order = |payload: &'static str| async move {
        let mut record = super::record("unused", payload, 1);
        record.headers = Default::default();
        sim.log
            .append(&triple("orders", 0), &[record])
            .await
            .unwrap();
    };
    let (mut old, mut new) = (sim.connect("old").await, sim.connect("new").await);
    old.subscribe("old/0", 1).await;
    new.subscribe("new/0", 1).await;
    order("1").await;
    assert_eq!(old.take().await.text(), "1");
    mapped.change(&map("new/$partition")).await;
    order("2").await;
    assert_eq!(new.take().await.text(), "2");
    assert!(old.is_quiet_for(Duration::from_secs(5)).await);
    assert!(new.is_quiet_for(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn a_reload_says_what_became_of_everything_and_two_come_one_after_the_other() {
    let files = Files::new();
    let (users, map) = (files.users(&[("anna", "a")]), all_in("old"));
    let mapped = Mapped::with(&map, MemoryLog::new(), |config| {
        config.access.users_file = Some(users.clone());
    })
    .await;
    files.write("users", "anna:not-a-hash\n");
    let path = mapped.write(&all_in("new"));
    let (one, other) = tokio::join!(mapped.sim.gateway.reload(), mapped.sim.gateway.reload());
    assert_eq!(
        mapped.sim.count("reloads_failed"),
        2,
        "each has read everything"
    );
    assert_eq!(mapped.generation(), 2, "and the map was another once");
    for reloaded in [one, other] {
        let [of_users, of_map] = &reloaded[..] else {
            panic!("{reloaded:?}");
        };
        assert_eq!(
            (of_users.name.as_str(), &of_users.files),
            ("users_file", &vec![users.clone()])
        );
        let why = of_users.outcome.as_ref().unwrap_err();
        assert!(why.contains("users:1"), "{why}");
        let expected = Reloaded {
            name: "topic_map".to_owned(),
            files: vec![path.clone()],
            outcome: Ok(()),
        };
        assert_eq!(*of_map, expected);
    }
    mapped.sim.gateway.stop().await;
    assert!(mapped.sim.gateway.reload().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_produce_runtime_a_map_that_leads_elsewhere_is_refused() {
    let map = all_in("one");
    let files = Files::new();
    let path = files.write("map.toml", &map);
    let sim = super::runtime::start(&map, |config| config.topic_map = path)
        .await
        .unwrap();
    let mapped = Mapped { sim, files };
    mapped.write(&format!(
        "{map}[[rule]]\nmqtt_topic = 'a'\nstream = 's'\ntopic = 'one'\npartition_key = 'k'\n"
    ));
    let refused = mapped.reload().await.unwrap_err();
    assert!(refused.contains("produce = \"runtime\""), "{refused}");
    mapped.write(&all_in("two"));
    let refused = mapped.reload().await.unwrap_err();
    assert!(
        refused.contains("leads to s/two") && refused.contains("stores in s/one"),
        "{refused}"
    );
    assert_eq!(
        mapped
            .sim
            .log
            .topic(&triple("two", 0).target)
            .await
            .unwrap(),
        None
    );
    mapped
        .change(&format!(
            "{map}[[rule]]\nmqtt_topic = 'a'\nstream = 's'\ntopic = 'one'\n"
        ))
        .await;
}
