//! How a connection ends for a client that reads slowly: what it still gets are whole packets, in order, and none is made
//! of pieces of two.

use std::time::Duration;

use super::{Client, Got, Sim};
use crate::gateway::Role;
use crate::log::memory::MemoryLog;

/// What ends the connection.
#[derive(Debug, Clone, Copy)]
enum End {
    Takeover,
    GatewayStops,
    DeliveryEnds,
}

/// A payload that shows where it was cut.
fn payload(n: u16) -> String {
    format!("{n:04}").repeat(500)
}

/// Reads to the end, slowly; panics at what is no packet.
async fn read_slowly(mut client: Client) -> Vec<Got> {
    let mut got = Vec::new();
    while let Some(packet) = client.try_next().await {
        got.push(packet);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    got
}

async fn end(sim: &Sim, end: End) {
    match end {
        End::Takeover => {
            let newer = sim.connect("slow").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(newer);
        }
        End::GatewayStops => sim.gateway.stop().await,
        End::DeliveryEnds => sim.gateway.remove_role(Role::Delivery).await,
    }
}

#[tokio::test(start_paused = true)]
async fn d8_a_message_in_the_middle_of_being_written_when_its_connection_is_ended_is_not_mixed_with_others()
 {
    for how in [End::Takeover, End::GatewayStops, End::DeliveryEnds] {
        let sim = Sim::on(MemoryLog::new(), |limits| limits.send_window = 4).await;
        let mut slow = sim.dial(512);
        slow.connect("slow").await;
        slow.subscribe("d/1/x", 1).await;
        let mut publisher = sim.connect("publisher").await;
        for n in 1..=10 {
            publisher.publish("d/1/x", &payload(n), Some(n)).await;
            assert_eq!(publisher.next().await, Got::PubAck(n));
        }
        // PINGRESPs are to come between the messages, or after them, but not in them.
        for _ in 0..5 {
            slow.ping().await;
        }
        sim.until("messages are on their way", |sim| {
            sim.count("copies_queued") == 10
        })
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reading = tokio::spawn(read_slowly(slow));
        end(&sim, how).await;
        let got = reading.await.unwrap();
        let messages = got.iter().filter(|got| matches!(got, Got::Publish { .. }));
        for (n, message) in (1..).zip(messages) {
            assert!(
                message.text() == payload(n),
                "{how:?}: message {n} is mixed up"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn n3_pubacks_that_are_being_written_when_a_connection_is_taken_over_are_not_left_out() {
    let sim = Sim::new().await;
    // 16 PUBACKs fill it.
    let mut older = sim.dial(64);
    older.connect("a").await;
    for id in 1..=40 {
        older.publish("d/1/x", "x", Some(id)).await;
    }
    sim.until("stored", |sim| sim.count("publishes_stored") == 40)
        .await;
    let _newer = sim.connect("a").await;
    let got = older.rest().await;
    let expected: Vec<Got> = (1..=got.len() as u16).map(Got::PubAck).collect();
    assert_eq!(got, expected);
}
