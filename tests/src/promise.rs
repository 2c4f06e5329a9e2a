//! What a gateway promises a device, checked against what Iggy holds.
//!
//! Always holds: a check names the first thing that is wrong; messages that were not acknowledged may or may not be stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Device;
use crate::records::Record;

/// The messages of a device that were acknowledged and are not among `records`.
pub fn missing(device: &Device, records: &[Record]) -> Vec<u32> {
    let stored: BTreeSet<u32> = records
        .iter()
        .filter_map(|record| number_of(device, &record.payload_text()))
        .collect();
    let acknowledged = device.acknowledged();
    acknowledged.difference(&stored).copied().collect()
}

/// Everything that was acknowledged is stored (N1), and [`check_order`] holds.
///
/// # Panics
/// When not.
pub fn check_stored(devices: &[Device], records: &[Record]) {
    for device in devices {
        let missing = missing(device, records);
        assert!(
            missing.is_empty(),
            "{}: acknowledged but not stored: {missing:?}",
            device.id()
        );
    }
    check_order(devices, records);
}

/// Nothing is stored that no device has published; each topic of a device is in one partition, in which the first
/// occurrences of its messages are in the order of publishing (N2); and a message has at most one id for each connection
/// on which it can have been sent (N6).
///
/// # Panics
/// When not.
pub fn check_order(devices: &[Device], records: &[Record]) {
    let by_id: BTreeMap<&str, &Device> =
        devices.iter().map(|device| (device.id(), device)).collect();
    let mut partitions: BTreeMap<(&str, String), u32> = BTreeMap::new();
    let mut newest: BTreeMap<(&str, String), u32> = BTreeMap::new();
    let mut ids: BTreeMap<(&str, u32), BTreeSet<u128>> = BTreeMap::new();
    for record in records {
        let payload = record.payload_text();
        let id = payload.split(' ').next().unwrap_or_default();
        let device = by_id
            .get(id)
            .unwrap_or_else(|| panic!("nobody has published {record:?}"));
        let number = number_of(device, &payload)
            .unwrap_or_else(|| panic!("{id} has not published {record:?}"));
        let topic = device.topic(number);
        assert_eq!(record.text("mqtt.topic"), topic, "message {number} of {id}");
        let key = (device.id(), topic.to_owned());
        let partition = *partitions.entry(key.clone()).or_insert(record.partition);
        assert_eq!(record.partition, partition, "{topic} of {id}");
        let known = ids.entry((device.id(), number)).or_default();
        let is_first = known.is_empty();
        known.insert(record.id);
        assert!(
            known.len() <= device.connects() as usize,
            "message {number} of {id}, which was connected {} times, has the ids {known:?}",
            device.connects()
        );
        if is_first {
            let newest = newest.entry(key).or_default();
            assert!(
                number > *newest,
                "message {number} of {id} on {topic} comes after {newest}"
            );
            *newest = number;
        }
    }
}

/// The number of a message, if `payload` is that of one which the device has published.
pub fn number_of(device: &Device, payload: &str) -> Option<u32> {
    let number = payload.split(' ').nth(1)?.parse().ok()?;
    let published = (1..=device.published()).contains(&number);
    (published && payload == device.payload(number)).then_some(number)
}
