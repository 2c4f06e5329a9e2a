//! What operators see: health, readiness, metrics, status.

use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::http;
use e2e::wait;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
/// By then a change has to be seen.
const SOON: Duration = Duration::from_secs(5);

fn ready(deployment: &Deployment) -> (u16, Value) {
    let reply = http::get(deployment.http(), "/ready").expect("an answer of /ready");
    (reply.status, reply.json())
}

#[test]
fn ready_turns_503_with_the_reason_within_5_s_of_the_death_of_iggy_and_back_within_5_s_of_its_return()
 {
    let mut deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("ready_turns_503") {
        return;
    }
    wait::until("it is ready", PATIENCE, || ready(&deployment).0 == 200);
    deployment.iggy.kill();
    let killed = Instant::now();
    wait::until("it is not ready", SOON, || ready(&deployment).0 == 503);
    let (_, body) = ready(&deployment);
    println!("503 after {:?}: {body}", killed.elapsed());
    let checks = body["checks"].as_array().expect("checks");
    let iggy = checks.iter().find(|check| check["name"] == "iggy");
    let iggy = iggy.expect("a check of Iggy");
    assert_eq!(iggy["ok"], false);
    assert!(
        iggy["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("Iggy")),
        "{body}"
    );
    let health = http::get(deployment.http(), "/health").expect("an answer of /health");
    assert_eq!(health.status, 200);
    deployment.iggy.start_again();
    let back = Instant::now();
    wait::until("it is ready again", SOON, || ready(&deployment).0 == 200);
    println!("200 after {:?}", back.elapsed());
}
