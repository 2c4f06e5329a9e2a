//! What `status` and `top` show of a gateway: its status as tables of text.
//!
//! What always holds: the same for both; every cell is fit for a terminal, whatever devices have put into it.

use std::time::Duration;

use mqtt_gateway::status::{History, Status};

use crate::text::{counted, plain};

/// A table: the first row is its head.
pub(crate) struct Table {
    /// What it is about.
    pub(crate) title: String,
    /// Rows of cells.
    pub(crate) rows: Vec<Vec<String>>,
}

/// A curve.
pub(crate) struct Curve {
    /// What it is about, with its value now.
    pub(crate) title: String,
    /// Values, the newest last.
    pub(crate) values: Vec<f64>,
}

/// The gateway in one line.
pub(crate) fn headline(status: &Status) -> String {
    let roles = match status.roles.len() {
        0 => "no connector attached".to_owned(),
        _ => format!("{} attached", status.roles.join(" and ")),
    };
    format!(
        "gateway {} on {}, version {}, up {}, {roles}, {}",
        status.gateway,
        status.node,
        status.version,
        time(status.uptime_seconds),
        counted(status.clients, "client")
    )
}

/// Curves of the last minutes.
pub(crate) fn curves(history: &History) -> Vec<Curve> {
    let curve = |name: &str, values: &[f64], show: &dyn Fn(f64) -> String| Curve {
        title: format!(
            "{name} {}",
            show(values.last().copied().unwrap_or_default())
        ),
        values: values.to_vec(),
    };
    let rate = |value: f64| format!("{}/s", number(value));
    vec![
        curve("received", &history.received, &rate),
        curve("stored", &history.stored, &rate),
        curve("not stored", &history.not_stored, &rate),
        curve("delivered", &history.delivered, &rate),
        curve(
            "oldest unacknowledged",
            &history.oldest_unacknowledged,
            &time,
        ),
    ]
}

/// All tables, in the order in which an operator needs them.
pub(crate) fn tables(status: &Status) -> Vec<Table> {
    vec![
        outcomes(status),
        listeners(status),
        lanes(status),
        readers(status),
        subscribers(status),
        refusals(status),
    ]
}

/// With a head and a title that says how many there are if not all are shown.
fn table<const N: usize>(
    title: &str,
    total: u64,
    head: [&str; N],
    rows: Vec<[String; N]>,
) -> Table {
    let shown = rows.len() as u64;
    let title = match shown < total {
        true => format!("{title} ({shown} of {total})"),
        false => format!("{title} ({total})"),
    };
    let head = head.map(str::to_owned).to_vec();
    let rows = rows
        .into_iter()
        .map(|row| row.map(|cell| plain(&cell).into_owned()).to_vec());
    Table {
        title,
        rows: std::iter::once(head).chain(rows).collect(),
    }
}

fn outcomes(status: &Status) -> Table {
    let count = |name: &str| status.counters.get(name).copied().unwrap_or_default();
    let reasons = status.counters.iter().filter_map(|(name, count)| {
        let reason = name.strip_prefix("refused_").filter(|_| *count > 0)?;
        Some(format!("{reason} {count}"))
    });
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let names = [
        "received",
        "stored",
        "refused",
        "protocol_error",
        "shed",
        "failed",
    ];
    let rows = names.map(|name| {
        let why = if name == "refused" {
            reasons.clone()
        } else {
            String::new()
        };
        [
            name.replace('_', " "),
            count(&format!("publishes_{name}")).to_string(),
            why,
        ]
    });
    let mut made = table(
        "publishes",
        0,
        ["outcome", "since the start", ""],
        rows.to_vec(),
    );
    made.title = "publishes since the start".to_owned();
    made
}

fn listeners(status: &Status) -> Table {
    let rows = status.listeners.iter().map(|one| {
        [
            format!("{}://{}", one.scheme, one.address),
            one.state.clone(),
            one.connected.to_string(),
            one.handshaking.to_string(),
            one.accepted.to_string(),
        ]
    });
    let head = ["listener", "state", "connected", "not in yet", "accepted"];
    table(
        "listeners",
        status.listeners.len() as u64,
        head,
        rows.collect(),
    )
}

fn lanes(status: &Status) -> Table {
    let ingest = status.ingest.as_ref();
    let rows = ingest
        .into_iter()
        .flat_map(|ingest| &ingest.lanes)
        .map(|lane| {
            [
                format!("{}/{}/{}", lane.stream, lane.topic, lane.partition),
                (lane.queued + lane.in_flight).to_string(),
                time(lane.oldest_seconds),
                lane.failing_for_seconds.map(time).unwrap_or_default(),
                lane.error.clone().unwrap_or_default(),
            ]
        });
    let total = ingest.map_or(0, |ingest| ingest.lanes_total);
    let head = ["lane", "messages", "oldest", "failing for", "why"];
    table("lanes, to Iggy", total, head, rows.collect())
}

fn readers(status: &Status) -> Table {
    let delivery = status.delivery.as_ref();
    let offset = |offset: Option<u64>| offset.map_or("-".to_owned(), |offset| offset.to_string());
    let rows = delivery
        .into_iter()
        .flat_map(|delivery| &delivery.readers)
        .map(|reader| {
            let held = reader.held_by.as_ref().map(|holder| {
                let since = time(holder.for_seconds);
                format!(
                    "{} ({}): offset {} for {since}",
                    holder.client, holder.peer, holder.offset
                )
            });
            [
                format!("{}/{}/{}", reader.stream, reader.topic, reader.partition),
                reader.position.to_string(),
                reader.lag.to_string(),
                offset(reader.safe),
                offset(reader.committed),
                reader.open_records.to_string(),
                reader.subscribers.to_string(),
                held.or_else(|| reader.error.clone()).unwrap_or_default(),
            ]
        });
    let total = delivery.map_or(0, |delivery| delivery.readers_total);
    let head = [
        "reader",
        "position",
        "lag",
        "safe",
        "committed",
        "open",
        "subscribers",
        "held by",
    ];
    table(
        "readers and ledgers, from Iggy",
        total,
        head,
        rows.collect(),
    )
}

fn subscribers(status: &Status) -> Table {
    let delivery = status.delivery.as_ref();
    let rows = delivery
        .into_iter()
        .flat_map(|delivery| &delivery.subscribers)
        .map(|one| {
            [
                one.client.clone(),
                one.peer.clone(),
                one.owes_for_seconds.map(time).unwrap_or_default(),
                one.unacknowledged.to_string(),
                one.queued.to_string(),
                one.lag.to_string(),
                one.dropped.to_string(),
            ]
        });
    let total = delivery.map_or(0, |delivery| delivery.subscribers_total);
    let head = [
        "subscriber",
        "from",
        "owes for",
        "unacknowledged",
        "queued",
        "behind",
        "dropped",
    ];
    table("subscribers", total, head, rows.collect())
}

fn refusals(status: &Status) -> Table {
    let rows = status.refusals.iter().map(|one| {
        let age = status.at_ms.saturating_sub(one.at_ms);
        let more = match one.left_out {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        [
            format!("{} ago", time(Duration::from_millis(age).as_secs_f64())),
            one.kind.clone(),
            one.client.clone().unwrap_or_default(),
            one.topic.clone().unwrap_or_default(),
            format!("{}{more}", one.reason),
        ]
    });
    let head = ["when", "what", "client", "topic", "why"];
    table(
        "refused or closed lately",
        status.refusals.len() as u64,
        head,
        rows.collect(),
    )
}

/// Seconds, as people say them.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        10.0..120.0 => format!("{seconds:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        7_200.0..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

fn number(value: f64) -> String {
    match value {
        ..100.0 if value.fract() > 0.05 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A status of a gateway with a stuck subscriber whose name is hostile.
    pub(crate) fn sample() -> Status {
        let text = include_str!("sample.json");
        serde_json::from_str(text).expect("a status")
    }

    #[test]
    fn nothing_that_a_device_chose_can_control_the_terminal() {
        let status = sample();
        let cells = tables(&status)
            .into_iter()
            .flat_map(|table| table.rows)
            .flatten();
        let cells: Vec<String> = cells.collect();
        assert!(cells.iter().any(|cell| cell.contains("press")), "{cells:?}");
        for cell in cells {
            assert!(!cell.chars().any(char::is_control), "{cell:?}");
        }
    }

    #[test]
    fn a_table_that_is_cut_says_of_how_many() {
        let mut status = sample();
        if let Some(delivery) = &mut status.delivery {
            delivery.subscribers_total = 12_345;
        }
        let titles: Vec<_> = tables(&status)
            .into_iter()
            .map(|table| table.title)
            .collect();
        assert!(
            titles.iter().any(|title| title.ends_with("of 12345)")),
            "{titles:?}"
        );
    }
}
