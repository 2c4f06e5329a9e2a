//! Reports as people read them, and files that are no map at all.

use super::*;
use crate::mapping::render;

#[test]
fn each_problem_shows_its_line_with_the_offending_text_underlined() {
    let text = "default_straem = 's'\ndefault_topic = 't'\n[[rule]]\nmqtt_topic = 'ü/(b)'\nstream = 'é_$2'\ntopic = 't'\n";
    let report = TopicMap::compile("etc/map.toml", text).unwrap_err();
    let shown = render::problems(&report, false);
    let expected = "\
error: rule 1 stream: $2 names no group of mqtt_topic, which has one: $1; correct it, or add the group
 --> etc/map.toml:5:13
  |
5 | stream = 'é_$2'
  |             ^^";
    assert!(shown.contains(expected), "{shown}");
    assert_eq!(shown.matches("error: ").count(), report.problems().len());
    let styled = render::problems(&report, true);
    assert!(styled.contains('\u{1b}') && !shown.contains('\u{1b}'));
}

#[test]
fn warnings_are_shown_alike_and_a_flood_is_cut() {
    let map = compile(EXAMPLE);
    let shown = render::warnings(map.warnings(), false);
    assert_eq!(shown.matches("warning: ").count(), 2, "{shown}");
    assert!(shown.contains("--> map.toml:"), "{shown}");
    let flood: String = (0..500)
        .map(|number| format!("key{number} = 1\n"))
        .collect();
    let report = TopicMap::compile("map.toml", &flood).unwrap_err();
    let shown = render::problems(&report, false);
    let problems = report.problems().len();
    assert_eq!(shown.matches("error: ").count(), 100);
    assert!(shown.ends_with(&format!("… and {} more", problems - 100)));
}

#[test]
fn nothing_in_the_file_reaches_the_terminal_as_a_control_sequence() {
    let text = format!(
        "{DEFAULTS}\"\\u001b[31m\" = 1\n[[rule]]\nmqtt_topic = \"(\\u001b[2J\"\nstream = 's'\ntopic = 't'\n"
    );
    let report = TopicMap::compile("map.toml", &text).unwrap_err();
    assert!(!render::problems(&report, false).contains('\u{1b}'));
}

#[test]
fn a_broken_escape_between_double_quotes_says_to_use_single_quotes() {
    for pattern in [r"building/(\w+)/.*", r"a\.b", r"\$SYS", r"\d"] {
        let text =
            format!("{DEFAULTS}[[rule]]\nmqtt_topic = \"{pattern}\"\nstream = 's'\ntopic = 't'\n");
        let report = TopicMap::compile("map.toml", &text).unwrap_err();
        assert!(report.to_string().contains("single quotes"), "{report}");
        assert_eq!(report.problems()[0].line(), 4);
    }
    // \b is a backspace: TOML has nothing against it.
    let text = format!("{DEFAULTS}[[rule]]\nmqtt_topic = \"\\bword\"\nstream = 's'\ntopic = 't'\n");
    let warnings = compile(&text).warnings().to_vec();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("single quotes"));
}

#[test]
fn a_file_that_is_no_map_is_refused_with_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        load(&path).unwrap_err().to_string()
    };
    let not_text = refused("binary.toml", b"a = 1\n# \xc3\xbc\xff");
    assert!(
        not_text.contains("binary.toml:2:4: not UTF-8"),
        "{not_text}"
    );
    let large = refused("large.toml", &vec![b'#'; MAX_FILE_BYTES as usize + 1]);
    assert!(large.contains("larger than"), "{large}");
    let empty = refused("empty.toml", b"");
    assert!(
        empty.starts_with("the topic map has 2 errors:\nerror: default_stream: missing"),
        "{empty}"
    );
    let missing = load(&folder.path().join("none.toml")).unwrap_err();
    assert!(matches!(missing, LoadError::Unreadable { .. }), "{missing}");
    let directory = load(folder.path()).unwrap_err();
    assert!(
        matches!(directory, LoadError::Unreadable { .. }),
        "{directory}"
    );
    let endless = load("/dev/zero".as_ref()).unwrap_err();
    assert!(matches!(endless, LoadError::TooLarge { .. }), "{endless}");
}
