//! `explain --subscribe`: which partitions a subscriber reads.

use serde_json::json;

use crate::program::{Folder, SEED_MAP};

#[test]
fn a_topic_with_a_key_is_read_from_the_partition_that_its_messages_are_stored_in() {
    let folder = Folder::with_map(SEED_MAP);
    let topic = "building/north/room/42/temp";
    let seven = ["--partitions", "7", "--format", "json"];
    let publish = folder
        .run(["explain", topic].iter().chain(&seven))
        .exits(0)
        .json();
    let subscribe = [&["explain", "--subscribe", topic], &seven[..]].concat();
    let report = folder.run(subscribe).exits(0).json();
    let read = &report["reads"][0];
    assert_eq!(report["outcome"], "read");
    assert_eq!(report["reads"].as_array().unwrap().len(), 1);
    assert_eq!(read["read"], json!([publish["target"]["partition"]]));
    assert_eq!(read["stream"], publish["target"]["stream"]);
    assert_eq!(read["topic"], publish["target"]["topic"]);
    assert_eq!(read["key"], "room_42");
    assert_eq!(read["partitions"], 7);
    assert_eq!(read["rule"]["number"], 1);
}

#[test]
fn a_topic_without_a_key_is_read_from_all_partitions() {
    let folder = Folder::with_map(SEED_MAP);
    let all = ["explain", "foo", "--subscribe", "--partitions", "7"];
    let ran = folder.run(all).exits(0);
    assert_eq!(
        ran.labelled("partitions"),
        "0 to 6 of 7 (as --partitions says)"
    );
    assert_eq!(ran.labelled("stream"), "sensors");
    let json = folder
        .run(all.iter().chain(&["--format", "json"]))
        .exits(0)
        .json();
    assert_eq!(json["reads"][0]["read"], json!([0, 1, 2, 3, 4, 5, 6]));
    let one = folder.run(["explain", "foo", "--subscribe"]).exits(0);
    assert!(
        one.labelled("partitions")
            .starts_with("0 of 1 (as the map says"),
        "{one:#?}"
    );
}

#[test]
fn a_filter_with_a_wildcard_is_told_to_be_not_served_yet() {
    let folder = Folder::with_map(SEED_MAP);
    for filter in ["foo/#", "+/bar", "#"] {
        let ran = folder.run(["explain", "--subscribe", filter]).exits(1);
        assert!(
            ran.labelled("refused").contains("not served yet"),
            "{ran:#?}"
        );
        let json = folder
            .run(["explain", "--subscribe", filter, "--format", "json"])
            .exits(1)
            .json();
        assert_eq!(
            (&json["outcome"], &json["reason"]),
            (&json!("refused"), &json!("wildcard"))
        );
    }
}

#[test]
fn an_invalid_filter_and_a_topic_without_a_place_are_told() {
    let folder = Folder::with_map(SEED_MAP);
    for (filter, label, why) in [
        ("a/#/b", "invalid", "last level"),
        ("a+", "invalid", "stand alone"),
        ("", "invalid", "at least one character"),
        ("$SYS/x", "refused", "begins with $"),
    ] {
        let ran = folder.run(["explain", "--subscribe", filter]).exits(1);
        assert!(ran.labelled(label).contains(why), "{ran:#?}");
    }
}

#[test]
fn topics_of_other_producers_are_read_where_those_write() {
    let map = SEED_MAP.to_owned()
        + "[[foreign]]\nstream = 'erp'\ntopic = 'orders'\nmqtt_topic = 'iggy/$stream/$topic'\n";
    let folder = Folder::with_map(&map);
    let json = folder
        .run([
            "explain",
            "--subscribe",
            "iggy/erp/orders",
            "--partitions",
            "2",
            "--format",
            "json",
        ])
        .exits(0)
        .json();
    let reads = json["reads"].as_array().unwrap().iter();
    let places: Vec<_> = reads
        .map(|read| {
            (
                read["rule"]["kind"].as_str(),
                read["stream"].as_str(),
                read["topic"].as_str(),
            )
        })
        .collect();
    let foreign = (Some("foreign"), Some("erp"), Some("orders"));
    let fallback = (Some("fallback"), Some("sensors"), Some("messages_default"));
    assert!(places.contains(&foreign), "{json:#}");
    assert!(places.contains(&fallback), "{json:#}");
    // Nobody says how many partitions the other producers' topic has.
    let ran = folder
        .run(["explain", "--subscribe", "iggy/erp/orders"])
        .exits(0);
    ran.prints([
        "foreign entry 1",
        "all, however many there are",
        "other producers make it",
    ]);
    folder
        .run(["explain", "iggy/erp/orders"])
        .exits(0)
        .prints(["the fallback"]);
}

#[test]
fn a_partition_that_the_topic_of_other_producers_names_is_the_one_that_is_read() {
    let map = SEED_MAP.to_owned()
        + "[[foreign]]\nstream = 'erp'\ntopic = 'orders'\nmqtt_topic = 'iggy/$partition'\n";
    let folder = Folder::with_map(&map);
    let ask = |more: &[&str]| {
        let arguments = [
            &["explain", "--subscribe", "iggy/5", "--format", "json"],
            more,
        ]
        .concat();
        let json = folder.run(arguments).exits(0).json();
        let mut reads = json["reads"].as_array().unwrap().clone();
        reads.retain(|read| read["rule"]["kind"] == "foreign");
        reads
    };
    let [read] = ask(&[]).try_into().unwrap();
    assert_eq!(
        (&read["read"], &read["partitions"]),
        (&json!([5]), &json!(null))
    );
    let [read] = ask(&["--partitions", "7"]).try_into().unwrap();
    assert_eq!(
        (&read["read"], &read["partitions"]),
        (&json!([5]), &json!(7))
    );
    let [read] = ask(&["--partitions", "3"]).try_into().unwrap();
    assert_eq!(read["read"], json!([]));
}

#[test]
fn a_list_of_topics_is_not_for_subscribers() {
    let folder = Folder::with_map(SEED_MAP);
    let both = ["explain", "--subscribe", "--file", "-"];
    folder.run(both).exits(2).complains(["cannot be used with"]);
}
