//! What of a picture needs somebody's attention, in sentences for people who do not know the code.
//!
//! What always holds: made from the picture alone; the most urgent comes first.

use super::{MOST_ROWS, ReaderStatus, Status};

/// Who holds an offset for less than this is slow, not stuck, seconds.
const STUCK: f64 = 2.0;

/// All of it; empty if nothing does.
pub(super) fn of(status: &Status) -> Vec<String> {
    let checks = status.readiness.checks.iter().filter(|check| !check.ok);
    let mut all: Vec<String> = checks
        .map(|check| {
            let reason = check.reason.as_deref().unwrap_or("no reason is known");
            match check.failing_for_seconds {
                Some(seconds) => format!(
                    "{} is not ready for {}: {reason}",
                    check.name,
                    time(seconds)
                ),
                None => format!("{} is not ready: {reason}", check.name),
            }
        })
        .collect();
    let alarms = status.alarms.iter();
    all.extend(alarms.map(|alarm| {
        let standing = time(alarm.standing_for_seconds);
        format!("alarm {}, for {standing}: {}", alarm.name, alarm.text)
    }));
    if status.ingest.is_none() {
        all.push(
            "no source connector is attached: nothing that devices publish is stored".to_owned(),
        );
    }
    if status.delivery.is_none() {
        all.push("no sink connector is attached: nobody can subscribe".to_owned());
    }
    all.extend(status.readiness.notes.iter().cloned());
    for lane in status.ingest.iter().flat_map(|ingest| &ingest.lanes) {
        let Some(failing) = lane.failing_for_seconds else {
            continue;
        };
        all.push(format!(
            "appending to {}/{}/{} has failed for {} and is tried again, {} messages wait: {}",
            lane.stream,
            lane.topic,
            lane.partition,
            time(failing),
            lane.queued + lane.in_flight,
            lane.error.as_deref().unwrap_or("no reason is known"),
        ));
    }
    if let Some(delivery) = &status.delivery {
        for reader in &delivery.readers {
            all.extend(failing(reader));
            all.extend(held(reader, delivery.ack_timeout_seconds));
        }
    }
    all.truncate(MOST_ROWS);
    all
}

fn failing(reader: &ReaderStatus) -> Option<String> {
    let seconds = reader.failing_for_seconds?;
    let reason = reader.error.as_deref().unwrap_or("no reason is known");
    Some(format!(
        "{}/{}/{} has not been readable for {}: {reason}",
        reader.stream,
        reader.topic,
        reader.partition,
        time(seconds)
    ))
}

fn held(reader: &ReaderStatus, ack_timeout: f64) -> Option<String> {
    let holder = reader
        .held_by
        .as_ref()
        .filter(|holder| holder.for_seconds >= STUCK)?;
    let waiting = reader.position.saturating_sub(holder.offset);
    Some(format!(
        "client {} at {} has not acknowledged offset {} of {}/{}/{} for {}: it holds back {waiting} records from being committed; it is closed when it has owed an acknowledgement for {}",
        holder.client,
        holder.peer,
        holder.offset,
        reader.stream,
        reader.topic,
        reader.partition,
        time(holder.for_seconds),
        time(ack_timeout),
    ))
}

/// Seconds, as people say them.
fn time(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::MOST_ROWS;
    use crate::sim::Sim;
    use crate::status::Observer;
    use tokio::time::{Duration, Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn one_stuck_subscriber_is_named_with_what_it_holds_and_until_when() {
        let sim = Sim::new().await;
        let observer = Observer::new(sim.gateway.context().clone());
        let mut stuck = sim.connect("press-42").await;
        stuck.subscribe("d/1/x", 1).await;
        let mut publisher = sim.connect("publisher").await;
        for id in 1..=3 {
            publisher.publish("d/1/x", "x", Some(id)).await;
        }
        sim.until("they are sent", |sim| sim.count("copies_sent") == 3)
            .await;
        let quiet = observer.picture().await.unwrap();
        assert_eq!(quiet.status.attention, Vec::<String>::new());
        sleep(Duration::from_secs(5)).await;
        let picture = observer.picture().await.unwrap();
        let [line] = &picture.status.attention[..] else {
            panic!("{:?}", picture.status.attention)
        };
        assert!(line.contains("client press-42 at 192.0.2.1:1"), "{line}");
        assert!(line.contains("offset 0 of s/"), "{line}");
        assert!(line.contains("holds back 3 records"), "{line}");
        assert!(line.contains("for 30 s"), "{line}");
        for id in 1..=3 {
            stuck.ack(id).await;
        }
        sleep(Duration::from_secs(1)).await;
        assert!(
            observer
                .picture()
                .await
                .unwrap()
                .status
                .attention
                .is_empty()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_subscribers_and_alarms_so_many_are_shown_and_those_that_matter_first() {
        const MANY: usize = MOST_ROWS + 30;
        let sim = Sim::new().await;
        let observer = Observer::new(sim.gateway.context().clone());
        let mut clients = Vec::new();
        for number in 0..MANY {
            let mut client = sim.connect(&format!("c{number}")).await;
            let topic = if number + 1 == MANY { "d/1/x" } else { "d/2/x" };
            client.subscribe(topic, 1).await;
            clients.push(client);
            let alarms = &sim.gateway.context().alarms;
            alarms.raise(
                &format!("alarm {number}"),
                "test".to_owned(),
                Instant::now(),
            );
        }
        let mut publisher = sim.connect("publisher").await;
        publisher.publish("d/1/x", "x", Some(1)).await;
        sleep(Duration::from_secs(5)).await;
        let picture = observer.picture().await.unwrap();
        let delivery = picture.status.delivery.as_ref().unwrap();
        assert_eq!(delivery.subscribers_total, MANY as u64);
        assert_eq!(delivery.subscribers.len(), MOST_ROWS);
        assert_eq!(delivery.subscribers[0].client, format!("c{}", MANY - 1));
        assert_eq!(picture.status.attention.len(), MOST_ROWS);
    }

    #[tokio::test(start_paused = true)]
    async fn iggy_that_is_away_is_told_with_what_fails_because_of_it() {
        let sim = Sim::new().await;
        let observer = Observer::new(sim.gateway.context().clone());
        let mut publisher = sim.connect("publisher").await;
        sim.log.set_outage(true);
        publisher.publish("d/1/x", "x", Some(1)).await;
        sleep(Duration::from_secs(5)).await;
        let picture = observer.picture().await.unwrap();
        let attention = &picture.status.attention;
        assert!(!picture.status.readiness.ready);
        assert!(
            attention[0].starts_with("iggy is not ready for"),
            "{attention:?}"
        );
        assert!(
            attention
                .iter()
                .any(|line| line.contains("has failed for") && line.contains("1 messages wait")),
            "{attention:?}"
        );
    }
}
