//! What the documentation and the sample file say is what the code does.

use super::*;

const GUIDE: &str = include_str!("../../../../docs/topic-map.md");
const SAMPLE: &str = include_str!("../../../../runtime-config/topic-map.toml");

/// The text of the first code block in `language`.
fn block(language: &str) -> &'static str {
    let (_, after) = GUIDE.split_once(&format!("```{language}\n")).unwrap();
    after.split_once("```").unwrap().0
}

/// The cells of the rows below the table row that begins with `head`, without backticks.
fn rows(head: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_matches('|').split(" | ");
        let plain = |cell: &str| cell.trim().replace('`', "").replace(r"\|", "|");
        inner.map(plain).collect()
    };
    let from_head = GUIDE.lines().skip_while(|line| !line.starts_with(head));
    let table = from_head.take_while(|line| line.starts_with('|'));
    table.skip(2).map(cells).collect()
}

#[test]
fn each_pattern_of_the_guide_takes_what_it_should_and_not_what_it_should_not() {
    let rows = rows("| to take |");
    assert_eq!(rows.len(), 10);
    for row in rows {
        assert!(takes(&row[1], &row[2]), "{row:?}");
        assert!(!takes(&row[1], &row[3]), "{row:?}");
    }
}

#[test]
fn the_recipes_of_the_guide_compile_and_do_what_they_say() {
    let recipes: Vec<&str> = GUIDE
        .split("```text\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(recipe, _)| recipe)
        .collect();
    let map = |recipe: &str| compile(&format!("{DEFAULTS}[[rule]]\n{recipe}"));
    assert_eq!(
        resolved(&map(recipes[0]), "dev/7/hum"),
        "rule 1: devices/hum/7"
    );
    assert_eq!(
        resolved(&map(recipes[1]), "customer/acme-2/a/b"),
        "rule 1: customer_acme-2/events/customer/acme-2/a/b"
    );
    let foreign = compile(&format!("{DEFAULTS}{}", recipes[2]));
    assert_eq!(foreign.reads(&topic("iggy/shop/orders")).unwrap().len(), 2);
    assert_eq!(recipes.len(), 3);
}

#[test]
fn the_map_of_the_guide_and_the_sample_resolve_as_the_guide_says() {
    assert_eq!(block("toml").trim(), EXAMPLE.trim());
    let rows = rows("| published to |");
    assert_eq!(rows.len(), 4);
    for map in [compile(EXAMPLE), compile(SAMPLE)] {
        for row in &rows {
            let found = map.resolve(&topic(&row[0])).unwrap();
            let key = found.key.map_or("(none)".to_owned(), |key| key.to_string());
            let Target { stream, topic } = found.target;
            assert_eq!(
                [stream.as_str(), topic.as_str(), &key],
                [&row[1], &row[2], &row[3]]
            );
        }
    }
}

#[test]
fn the_report_of_the_guide_is_what_is_printed() {
    let text = EXAMPLE
        .trim_start()
        .replace("default_stream", "default_straem")
        .replace("building_$1", "building_$3")
        .replace("(\\d+)", "(\\d+)?");
    let report = TopicMap::compile("topic-map.toml", &text).unwrap_err();
    let shown = render::problems(&report, false);
    assert_eq!(format!("{shown}\n"), block("console"), "{shown}");
}

#[test]
fn the_keys_of_the_guide_are_the_keys_of_the_file_with_their_defaults() {
    let known = |text: &str| match problem(text).0 {
        Problem::UnknownKey { known, .. } => known.to_vec(),
        other => panic!("{other:?}"),
    };
    let of_file = known(&format!("{DEFAULTS}xyzzy = 1"));
    let of_rule = known(&(rule("a", "s") + "xyzzy = 1"));
    let of_foreign = known(&(DEFAULTS.to_owned() + FOREIGN + "xyzzy = 1"));
    let (_, reference) = GUIDE.split_once("### Keys of the file").unwrap();
    let (file, rules) = reference.split_once("### Keys of a `[[rule]]`").unwrap();
    let (rules, foreign) = rules.split_once("### Keys of a `[[foreign]]`").unwrap();
    let (foreign, _) = foreign.split_once("###").unwrap();
    let documented = |text: &str| -> Vec<String> {
        let first = |line: &str| line.split('|').nth(1).unwrap_or_default().replace('`', "");
        let keys = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(first);
        keys.flat_map(|keys| {
            keys.split(", ")
                .map(|key| key.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
    };
    let sorted = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };
    let as_text = |keys: Vec<&str>| {
        sorted(
            keys.into_iter()
                .filter(|key| !["rule", "foreign"].contains(key))
                .map(str::to_owned)
                .collect(),
        )
    };
    assert_eq!(sorted(documented(file)), as_text(of_file));
    assert_eq!(sorted(documented(rules)), as_text(of_rule));
    assert_eq!(sorted(documented(foreign)), as_text(of_foreign));

    // Writing every default changes nothing.
    let default_of = |key: &str| {
        let row = reference
            .lines()
            .find(|line| line.starts_with(&format!("| `{key}` |")))
            .unwrap();
        row.split('|').nth(2).unwrap().replace('`', "")
    };
    let lines = |keys: &[&str]| -> String {
        keys.iter()
            .map(|key| format!("{key} = {}\n", default_of(key)))
            .collect()
    };
    let settings = lines(&[
        "auto_create",
        "partitions",
        "message_expiry",
        "max_topic_size",
        "durability",
    ]);
    let explicit =
        lines(&["on_unmatched", "max_streams", "max_topics"]) + &rule("a", "s1") + &settings;
    let (explicit, implicit) = (compile(&explicit), compile(&rule("a", "s1")));
    assert_eq!(explicit.bounds(), implicit.bounds());
    assert!(explicit.constant_targets().eq(implicit.constant_targets()));
}
