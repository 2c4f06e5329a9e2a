//! `explain --file`: a table for many topics, and what they have in common.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Folder, SEED_MAP};

fn json_of(folder: &Folder, input: &str, arguments: &[&str]) -> Value {
    let all = ["explain", "--file", "-", "--format", "json"]
        .iter()
        .chain(arguments);
    folder.run_with(all, input).json()
}

#[test]
fn each_topic_has_a_row_and_comments_and_blank_lines_have_none() {
    let topics = "# a comment\nbuilding/north/room/42/temp\n\n#x\nsensors/dev-7/data\r\nfoo/bar\n";
    let folder = Folder::with_map(SEED_MAP).file("topics.txt", topics);
    let ran = folder.run(["explain", "--file", "topics.txt"]).exits(0);
    let table: Vec<&str> = ran
        .stdout
        .lines()
        .take_while(|line| !line.is_empty())
        .collect();
    assert_eq!(
        table,
        [
            "MQTT TOPIC                   RULE      STREAM          TOPIC             KEY           PARTITION",
            "building/north/room/42/temp  1         building_north  telemetry         room_42       0",
            "sensors/dev-7/data           2         sensors         sensor_data       sensor_dev-7  0",
            "foo/bar                      fallback  sensors         messages_default  -             0",
        ]
    );
    ran.prints([
        "3 topics: 2 by rules, 1 on the fallback, 0 not stored",
        "Every rule was hit.",
    ]);
    let json = json_of(&folder, topics, &[]);
    let lines: Vec<u64> = json["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [2, 5, 6]);
}

#[test]
fn the_summary_names_rules_that_are_never_hit_and_topics_that_are_not_stored() {
    let folder = Folder::with_map(SEED_MAP);
    let input = "foo\na/+\n$SYS/x\nsensors/1/data\n$SYS/y\n";
    let ran = folder.run_with(["explain", "--file", "-"], input).exits(1);
    ran.prints([
        "5 topics: 1 by rules, 1 on the fallback, 3 not stored",
        "Not stored: dollar_topic 2, invalid_topic 1",
        "line 2: a/+: a topic name must not contain the wildcards",
        "line 3: $SYS/x: ",
        "Rules never hit\n  rule 1 (line 4): building/",
    ]);
    let summary = json_of(&folder, input, &[])["summary"].take();
    assert_eq!(summary["topics"], 5);
    assert_eq!(summary["stored"], 2);
    assert_eq!(summary["fallback"], 1);
    assert_eq!(
        summary["not_stored"],
        json!({"dollar_topic": 2, "invalid_topic": 1})
    );
    assert_eq!(summary["rules_never_hit"][0]["number"], 1);
    assert_eq!(summary["rules_hit"][0]["number"], 2);
    assert_eq!(summary["rules_hit"][0]["topics"], 1);
}

#[test]
fn the_balance_counts_the_rows_of_each_partition() {
    let folder = Folder::with_map(SEED_MAP);
    let mut input = String::new();
    for number in 0..500 {
        writeln!(input, "sensors/{number}/data\nfoo/{number}").unwrap();
    }
    let report = json_of(&folder, &input, &["--partitions", "7"]);
    let mut counted = [0_u64; 7];
    for row in report["topics"].as_array().unwrap() {
        if let Some(partition) = row["target"]["partition"].as_u64() {
            counted[partition as usize] += 1;
        }
    }
    let targets = report["summary"]["targets"].as_array().unwrap();
    let keyed = targets
        .iter()
        .find(|target| target["topic"] == "sensor_data")
        .unwrap();
    for (partition, count) in counted.iter().enumerate() {
        assert_eq!(keyed["by_partition"][partition.to_string()], *count);
    }
    assert_eq!(keyed["smallest"], *counted.iter().min().unwrap());
    assert_eq!(keyed["largest"], *counted.iter().max().unwrap());
    assert_eq!(counted.iter().sum::<u64>(), 500);
    let keyless = targets
        .iter()
        .find(|target| target["topic"] == "messages_default")
        .unwrap();
    assert_eq!(
        (&keyless["in_turn"], &keyless["topics"]),
        (&json!(500), &json!(500))
    );
    let ran = folder
        .run_with(["explain", "--file", "-", "--partitions", "7"], input)
        .exits(0);
    let each = counted.map(|count| count.to_string()).join(" ");
    ran.prints([&each]);
}

#[test]
fn a_partition_that_gets_nothing_is_the_smallest() {
    let folder = Folder::with_map(SEED_MAP);
    let report = json_of(
        &folder,
        "sensors/1/data\nsensors/1/data\n",
        &["--partitions", "3"],
    );
    let target = &report["summary"]["targets"][0];
    assert_eq!(
        (&target["smallest"], &target["largest"]),
        (&json!(0), &json!(2))
    );
}

#[test]
fn more_names_than_the_bounds_allow_are_told() {
    let map = format!("max_streams = 2\nmax_topics = 3\n{SEED_MAP}");
    let folder = Folder::with_map(&map);
    let topics = |count: usize| -> String {
        (0..count)
            .map(|number| format!("building/b{number}/room/1/x\n"))
            .collect()
    };
    let of = |count| {
        folder
            .run_with(["explain", "--file", "-"], topics(count))
            .exits(0)
    };
    assert!(!of(2).stdout.contains("max_"), "{:#?}", of(2));
    assert!(
        of(3)
            .stdout
            .contains("3 streams with names from MQTT topics, but max_streams = 2")
    );
    assert!(!of(3).stdout.contains("max_topics"));
    assert!(
        of(4)
            .stdout
            .contains("4 Iggy topics with names from MQTT topics, but max_topics = 3")
    );
}

#[test]
fn a_new_topic_in_a_stream_that_the_map_names_is_no_new_stream() {
    let map = "max_streams = 1\ndefault_stream = 's'\ndefault_topic = 't'\n[[rule]]\nmqtt_topic = 'a/(.+)'\nstream = 's'\ntopic = '$1'\n[[rule]]\nmqtt_topic = 'b/(.+)'\nstream = '$1'\ntopic = 't'\n";
    let folder = Folder::with_map(map);
    let names =
        json_of(&folder, "a/1\na/2\nb/1\nfoo\n", &[])["summary"]["names_from_topics"].take();
    let expected = json!({"streams": 1, "max_streams": 1, "topics": 3, "max_topics": 1000});
    assert_eq!(names, expected);
}

#[test]
fn long_lists_in_the_summary_are_cut_and_say_so() {
    let mut map = SEED_MAP.to_owned();
    for number in 0..100 {
        write!(
            map,
            "[[rule]]\nmqtt_topic = 'r/{number}'\nstream = 's'\ntopic = 't'\n"
        )
        .unwrap();
    }
    let folder = Folder::with_map(&map);
    let ran = folder
        .run_with(["explain", "--file", "-"], "foo\n")
        .exits(0);
    ran.prints(["… and 82 more"]);
}

#[test]
fn any_number_of_topics_is_streamed() {
    const TOPICS: usize = 30_000;
    let folder = Folder::with_map(SEED_MAP);
    let mut input = String::new();
    for number in 0..TOPICS {
        writeln!(input, "sensors/{number}/data").unwrap();
    }
    let ran = folder
        .run_with(["explain", "--file", "-", "--partitions", "4"], input)
        .exits(0);
    let rows = ran
        .stdout
        .lines()
        .filter(|line| line.starts_with("sensors/"))
        .count();
    assert_eq!(rows, TOPICS);
    ran.prints(["30000 topics: 30000 by rules"]);
}

#[test]
fn the_first_rows_come_before_the_input_ends() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    let folder = Folder::with_map(SEED_MAP);
    let mut command = folder.command(["explain", "--file", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let (seen, until_seen) = std::sync::mpsc::channel::<()>();
    let writing = std::thread::spawn(move || {
        stdin
            .write_all("sensors/1/data\n".repeat(5_000).as_bytes())
            .unwrap();
        // The input ends when this returns.
        until_seen.recv_timeout(Duration::from_secs(30)).is_ok()
    });
    assert!(stdout.next().unwrap().unwrap().starts_with("MQTT TOPIC"));
    assert!(
        stdout
            .next()
            .unwrap()
            .unwrap()
            .starts_with("sensors/1/data")
    );
    let _ = seen.send(());
    let rest = stdout
        .map(Result::unwrap)
        .filter(|line| line.ends_with("not stored"))
        .count();
    assert_eq!(rest, 1);
    assert!(
        writing.join().unwrap(),
        "rows came only when the input had ended"
    );
    assert!(child.wait().unwrap().success());
}

#[test]
fn no_topics_at_all_are_no_problem() {
    let folder = Folder::with_map(SEED_MAP);
    let ran = folder.run_with(["explain", "--file", "-"], "").exits(0);
    ran.prints([
        "MQTT TOPIC  RULE",
        "0 topics: 0 by rules, 0 on the fallback, 0 not stored",
    ]);
    assert_eq!(json_of(&folder, "# none\n", &[])["topics"], json!([]));
}

#[test]
fn a_list_that_cannot_be_read_is_told() {
    let folder = Folder::with_map(SEED_MAP).file("sub/x", "");
    folder
        .run(["explain", "--file", "absent.txt"])
        .exits(2)
        .complains(["absent.txt", "No such file"]);
    folder
        .run(["explain", "--file", "sub"])
        .exits(2)
        .complains(["sub"]);
    folder
        .run(["explain", "a", "--file", "x"])
        .exits(2)
        .complains(["cannot be used with"]);
}
