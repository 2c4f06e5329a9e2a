//! The sample and the page about permissions are read as they are.

use super::*;

const PAGE: &str = include_str!("../../../../../docs/access.md");
const SAMPLE: &str = include_str!("../../../../../runtime-config/acl.toml");

#[test]
fn the_sample_is_right_and_does_what_it_says() {
    let acl = acl(SAMPLE);
    let device = client("sensor-7", "sensor-7");
    assert!(may_publish(&acl, &device, "devices/sensor-7/temperature"));
    assert!(!may_publish(&acl, &device, "devices/sensor-8/temperature"));
    let permissions = acl.permissions(&device);
    assert!(permissions.allows(Action::Subscribe, &topic("commands/sensor-7")));
    assert!(permissions.allows(Action::Subscribe, &topic("commands/all")));
    assert!(!permissions.allows(Action::Subscribe, &topic("commands/sensor-8")));
    assert!(may_publish(
        &acl,
        &client("anna", "laptop"),
        "commands/sensor-7"
    ));
    assert!(!may_publish(
        &acl,
        &client(None, "sensor-7"),
        "devices/sensor-7/temperature"
    ));
}

#[test]
fn every_file_of_permissions_on_the_page_is_right() {
    let mut count = 0;
    for block in PAGE.split("\n```toml\n").skip(1) {
        let block = block.split("\n```").next().unwrap();
        if block.contains("[[rule]]") {
            acl(block);
            count += 1;
        }
    }
    assert!(count >= 2, "{count}");
}
