//! Who is let in, and what it may: the whole way from CONNECT to the log, with files that change meanwhile.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::client::connect_as;
use super::files::Files;
use super::{Client, Got, Sim, device, payloads};
use crate::access::users;
use crate::config::{Config, JwtAlgorithm, Method, OnDenied};
use crate::gateway::Role;
use crate::log::memory::MemoryLog;
use crate::log::{Log, Name, Target};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn methods(config: &mut Config, methods: &[Method]) {
    config.access.authentication = methods.iter().copied().collect();
}

async fn knock(sim: &Sim, connect: &[u8]) -> (Client, u8) {
    let mut client = sim.dial(1 << 16);
    client.send(connect).await;
    match client.next().await {
        Got::ConnAck(code) => (client, code),
        other => panic!("{other:?}"),
    }
}

/// The code of the answer; a refused client also sees the end of its connection.
async fn code(sim: &Sim, connect: &[u8]) -> u8 {
    let (mut client, code) = knock(sim, connect).await;
    if code != 0 {
        assert!(client.rest().await.is_empty());
    }
    code
}

fn token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    encode(&Header::new(Algorithm::HS256), claims, &key).unwrap()
}

fn seconds_from_now(seconds: u64) -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        + seconds
}

#[tokio::test(start_paused = true)]
async fn b69_each_kind_of_wrong_credentials_has_its_exact_code() {
    let files = Files::new();
    let (users, key) = (
        files.users(&[("anna", "right")]),
        files.write("key", SECRET),
    );
    let sim = Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Users, Method::Jwt]);
        config.access.users_file = Some(users);
        config.access.jwt.algorithm = JwtAlgorithm::Hs256;
        config.access.jwt.key_files = vec![key];
        config.access.jwt.client_id_claim = Some("client".to_owned());
    })
    .await;
    let good = token(&json!({ "sub": "ben", "client": "b", "exp": seconds_from_now(600) }));
    let expired = token(&json!({ "sub": "ben", "client": "b", "exp": seconds_from_now(0) - 600 }));
    let cases: [(&str, Vec<u8>, u8); 9] = [
        ("right", connect_as("a", "anna", Some(b"right")), 0),
        ("wrong password", connect_as("a", "anna", Some(b"wrong")), 4),
        ("no password", connect_as("a", "anna", None), 4),
        ("empty password", connect_as("a", "anna", Some(b"")), 4),
        ("unknown user", connect_as("a", "nobody", Some(b"right")), 4),
        ("nothing", super::client::connect("a", 0), 5),
        (
            "token",
            connect_as("b", "whoever", Some(good.as_bytes())),
            0,
        ),
        (
            "token of another client",
            connect_as("x", "whoever", Some(good.as_bytes())),
            5,
        ),
        (
            "expired token",
            connect_as("b", "whoever", Some(expired.as_bytes())),
            4,
        ),
    ];
    for (what, connect, expected) in cases {
        assert_eq!(code(&sim, &connect).await, expected, "{what}");
    }
    assert_eq!(sim.count("connects_unauthenticated"), 7);
    assert_eq!(sim.count("connects_accepted"), 2);
}

#[tokio::test(start_paused = true)]
async fn who_shows_wrong_credentials_does_not_come_in_as_nobody() {
    let files = Files::new();
    let users = files.users(&[("anna", "right")]);
    let sim = Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Users, Method::Anonymous]);
        config.access.users_file = Some(users);
    })
    .await;
    assert_eq!(
        code(&sim, &connect_as("a", "anna", Some(b"wrong"))).await,
        4
    );
    assert_eq!(code(&sim, &connect_as("a", "nobody", None)).await, 4);
    assert_eq!(
        code(&sim, &connect_as("a", "anna", Some(b"right"))).await,
        0
    );
    assert_eq!(code(&sim, &super::client::connect("b", 0)).await, 0);
    // Where nobody looks at passwords, they do no harm.
    let open = Sim::new().await;
    assert_eq!(code(&open, &connect_as("a", "anna", Some(b"any"))).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_iggy_said_of_a_user_counts_for_login_cache_and_its_absence_is_not_a_wrong_password() {
    let log = MemoryLog::new();
    log.add_user("anna", "right");
    let sim = Sim::with(log, |config| {
        methods(config, &[Method::Iggy]);
        config.limits.login_cache = Duration::from_secs(30);
    })
    .await;
    let right = connect_as("a", "anna", Some(b"right"));
    assert_eq!(code(&sim, &right).await, 0);
    assert_eq!(
        code(&sim, &connect_as("a", "anna", Some(b"wrong"))).await,
        4
    );
    sim.log.add_user("anna", "another");
    assert_eq!(code(&sim, &right).await, 0, "remembered");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(code(&sim, &right).await, 4, "asked again");
    sim.log.set_outage(true);
    assert_eq!(
        code(&sim, &connect_as("a", "anna", Some(b"another"))).await,
        3
    );
    sim.log.set_outage(false);
    assert_eq!(
        code(&sim, &connect_as("a", "anna", Some(b"another"))).await,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_its_token_does() {
    let files = Files::new();
    let key = files.write("key", SECRET);
    let sim = Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Jwt]);
        config.access.jwt.algorithm = JwtAlgorithm::Hs256;
        config.access.jwt.key_files = vec![key];
    })
    .await;
    let short = token(&json!({ "sub": "ben", "exp": seconds_from_now(60) }));
    let (mut client, answer) = knock(&sim, &connect_as("b", "", Some(short.as_bytes()))).await;
    assert_eq!(answer, 0);
    assert!(client.is_quiet_for(Duration::from_secs(55)).await);
    assert!(client.rest().await.is_empty());
    assert_eq!(sim.count("connections_revoked"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_user_who_is_removed_or_gets_another_password_is_disconnected_and_the_others_stay() {
    let files = Files::new();
    let all = [("anna", "a"), ("ben", "b"), ("carl", "c")];
    let users = files.users(&all);
    let sim = Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Users]);
        config.access.users_file = Some(users.clone());
    })
    .await;
    let mut clients = Vec::new();
    for (name, password) in all {
        let (client, code) = knock(&sim, &connect_as(name, name, Some(password.as_bytes()))).await;
        assert_eq!(code, 0);
        clients.push(client);
    }
    let kept = fs::read_to_string(&users).unwrap();
    let kept = kept.lines().next().unwrap();
    let other = users::hash(b"other").unwrap();
    files.write("users", &format!("{kept}\nben:{other}\n"));
    assert!(
        clients.pop().unwrap().rest().await.is_empty(),
        "carl was removed"
    );
    assert!(
        clients.pop().unwrap().rest().await.is_empty(),
        "ben has another password"
    );
    let mut anna = clients.pop().unwrap();
    anna.ping().await;
    assert_eq!(anna.next().await, Got::PingResp);
    assert_eq!(
        code(&sim, &connect_as("ben", "ben", Some(b"b"))).await,
        4,
        "not remembered"
    );
    assert_eq!(
        code(&sim, &connect_as("ben", "ben", Some(b"other"))).await,
        0
    );
    assert_eq!(sim.count("connections_revoked"), 2);
}

#[tokio::test(start_paused = true)]
async fn b70_a_bad_file_changes_nothing_and_raises_an_alarm_until_it_is_mended() {
    let files = Files::new();
    let users = files.users(&[("anna", "a")]);
    let good = fs::read_to_string(&users).unwrap();
    let sim = Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Users]);
        config.access.users_file = Some(users);
    })
    .await;
    let (mut anna, _) = knock(&sim, &connect_as("a", "anna", Some(b"a"))).await;
    files.write("users", "anna:not-a-hash\n");
    sim.until("the alarm", |sim| sim.count("reloads_failed") == 1)
        .await;
    let alarms = || sim.gateway.context().alarms.standing();
    assert_eq!(alarms().len(), 1);
    let (name, alarm) = alarms().remove(0);
    assert_eq!(name, "users_file");
    assert!(alarm.text.contains("users:1"), "{}", alarm.text);
    anna.ping().await;
    assert_eq!(anna.next().await, Got::PingResp);
    assert_eq!(code(&sim, &connect_as("b", "anna", Some(b"a"))).await, 0);
    files.write("users", &good);
    sim.until("the end of the alarm", |sim| sim.count("reloads") == 1)
        .await;
    assert!(alarms().is_empty());
}

const ACL: &str = "
[[rule]]
user = 'anna'
publish = ['d/%c/#']
subscribe = ['d/%c/x', 'd/all/x']
";

async fn with_acl(files: &Files, text: &str, on_denied: OnDenied) -> Sim {
    let (users, acl) = (files.users(&[("anna", "a")]), files.write("acl", text));
    Sim::with(MemoryLog::new(), |config| {
        methods(config, &[Method::Users]);
        config.access.users_file = Some(users);
        config.access.acl_file = Some(acl);
        config.ingest.on_denied = on_denied;
        config.limits.reload_interval = Duration::from_millis(200);
    })
    .await
}

async fn anna(sim: &Sim) -> Client {
    let (client, code) = knock(sim, &connect_as("1", "anna", Some(b"a"))).await;
    assert_eq!(code, 0);
    client
}

#[tokio::test(start_paused = true)]
async fn what_is_not_allowed_is_neither_stored_nor_does_it_reach_iggy() {
    let files = Files::new();
    let sim = with_acl(&files, ACL, OnDenied::Acknowledge).await;
    let mut client = anna(&sim).await;
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("d/2/x", "2", Some(2)).await;
    client.publish("dynamic/new", "3", Some(3)).await;
    client.publish("d/1/x", "4", None).await;
    client.publish("d/1/x", "5", Some(4)).await;
    for id in 1..=4 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "4", "5"]);
    assert!(sim.log.records(&device("2")).is_empty());
    assert_eq!(sim.count("refused_not_allowed"), 2);
    // The topic of the denied publish was not even made.
    let target = Target {
        stream: Name::new("s").unwrap(),
        topic: Name::new("dynamic_new").unwrap(),
    };
    assert_eq!(sim.log.topic(&target).await.unwrap(), None);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_allowed_closes_the_connection_if_it_shall() {
    let files = Files::new();
    let sim = with_acl(&files, ACL, OnDenied::Close).await;
    let mut client = anna(&sim).await;
    client.publish("d/2/x", "dropped", None).await;
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("d/2/x", "2", Some(2)).await;
    assert_eq!(client.rest().await, [Got::PubAck(1)]);
    assert_eq!(sim.count("refused_not_allowed"), 2);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn b78_each_filter_has_its_own_answer_and_only_what_is_allowed_comes() {
    let files = Files::new();
    let sim = with_acl(&files, ACL, OnDenied::Acknowledge).await;
    let mut client = anna(&sim).await;
    client
        .send(&super::client::subscribe_all(&[
            ("d/1/x", 1),
            ("d/2/x", 1),
            ("d/all/x", 2),
            ("d/+/x", 0),
        ]))
        .await;
    assert_eq!(client.next().await, Got::SubAck(1, vec![1, 0x80, 1, 0x80]));
    client.publish("d/1/x", "mine", Some(7)).await;
    let mut got = vec![client.next().await, client.next().await];
    got.retain(|got| *got != Got::PubAck(7));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].text(), "mine");
}

#[tokio::test(start_paused = true)]
async fn permissions_that_are_taken_back_count_for_publishes_and_for_open_subscriptions() {
    let files = Files::new();
    let sim = with_acl(&files, ACL, OnDenied::Acknowledge).await;
    let (mut client, mut subscriber) = (anna(&sim).await, {
        let (mut other, _) = knock(&sim, &connect_as("2", "anna", Some(b"a"))).await;
        other.subscribe("d/all/x", 1).await;
        other
    });
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    client.subscribe("d/1/x", 1).await;
    files.write("acl", "[[rule]]\nuser = 'anna'\nsubscribe = ['d/%c/x']\n");
    assert!(
        subscriber.rest().await.is_empty(),
        "what it had is not allowed any more"
    );
    client.publish("d/1/x", "2", Some(2)).await;
    assert_eq!(client.next().await, Got::PubAck(2));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1"]);
    // It may keep what it has.
    client.ping().await;
    assert_eq!(client.next().await, Got::PingResp);
    assert_eq!(sim.count("connections_revoked"), 1);
    let (mut again, _) = knock(&sim, &connect_as("2", "anna", Some(b"a"))).await;
    again.send_subscribe("d/all/x", 1).await;
    assert_eq!(again.next().await, Got::SubAck(1, vec![0x80]));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_was_allowed_before_the_permissions_changed_and_comes_after_does_not_stay()
 {
    let files = Files::new();
    let sim = with_acl(&files, ACL, OnDenied::Acknowledge).await;
    let mut client = anna(&sim).await;
    // A SUBSCRIBE waits at its first filter, which is allowed, for the role that serves it.
    sim.gateway.remove_role(Role::Delivery).await;
    client
        .send(&super::client::subscribe_all(&[
            ("d/1/x", 1),
            ("d/all/x", 1),
        ]))
        .await;
    assert!(client.is_quiet_for(Duration::from_millis(100)).await);
    files.write("acl", "[[rule]]\nuser = 'anna'\nsubscribe = ['d/all/x']\n");
    sim.until("the new permissions", |sim| sim.count("reloads") == 1)
        .await;
    assert!(sim.gateway.add_role(Role::Delivery));
    assert_eq!(client.next().await, Got::SubAck(1, vec![1, 1]));
    assert!(client.rest().await.is_empty());
    assert_eq!(sim.count("connections_revoked"), 1);
}

#[tokio::test(start_paused = true)]
async fn b70_a_file_that_changes_while_the_start_waits_for_iggy_is_read_anew() {
    let files = Files::new();
    let users = files.users(&[("anna", "old")]);
    let log = Arc::new(MemoryLog::new());
    log.set_outage(true);
    let map = "default_stream = 's'\ndefault_topic = 't'\n";
    let starting = Sim::start(map, log.clone(), log.clone(), |config| {
        methods(config, &[Method::Users]);
        config.access.users_file = Some(users);
    });
    let changing = async {
        // The files are read first, and the clock stands still meanwhile.
        tokio::time::sleep(Duration::from_secs(1)).await;
        files.users(&[("anna", "new")]);
        log.set_outage(false);
    };
    let (sim, ()) = tokio::join!(starting, changing);
    sim.until("the file is read anew", |sim| sim.count("reloads") == 1)
        .await;
    assert_eq!(code(&sim, &connect_as("a", "anna", Some(b"new"))).await, 0);
    assert_eq!(code(&sim, &connect_as("a", "anna", Some(b"old"))).await, 4);
}
