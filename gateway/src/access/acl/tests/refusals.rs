//! Every refusal, with the place where it points and what it says.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// The problems of `text`, each as `line:column key` with what is wrong.
fn problems(text: &str) -> Vec<(String, AclProblem)> {
    let report = Acl::parse("acl.toml", text).unwrap_err();
    let at = |problem: &crate::report::Located<AclProblem>| {
        let place = format!("{}:{} {}", problem.line(), problem.column(), problem.key());
        (place, problem.what().clone())
    };
    report.problems().iter().map(at).collect()
}

/// The only problem of `text`.
fn problem(text: &str) -> (String, AclProblem) {
    let mut problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[test]
fn a_file_without_a_rule_is_refused() {
    for text in ["", "# nothing\n", "[groups]\ng = ['a']\n"] {
        assert_eq!(problem(text), ("1:1 ".to_owned(), AclProblem::NoRules));
    }
    assert_eq!(
        problem("rule = []"),
        ("1:8 rule".to_owned(), AclProblem::NoRules)
    );
}

#[test]
fn what_is_not_toml_is_refused_with_its_place() {
    let (place, problem) = problem("[[rule]]\npublish = [\n");
    assert!(
        place.starts_with("2:") || place.starts_with("3:"),
        "{place}"
    );
    assert!(matches!(problem, AclProblem::Syntax(_)));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_key() {
    for (text, expected_place, expected) in [
        (
            "[[rule]]\npublish = 'a'\n\n[group]\ng = 'a'\n",
            "4:2 group",
            Some("groups"),
        ),
        (
            "[[rule]]\npublish = 'a'\nusers = 'a'\n",
            "3:1 rule 1 users",
            Some("user"),
        ),
        (
            "[[rule]]\npublish = 'a'\nclientid = 'a'\n",
            "3:1 rule 1 clientid",
            Some("client_id"),
        ),
        (
            "[[rule]]\npublish = 'a'\nzzzzzzzzz = 'a'\n",
            "3:1 rule 1 zzzzzzzzz",
            None,
        ),
    ] {
        let (place, problem) = problem(text);
        assert_eq!(place, expected_place);
        assert!(
            matches!(problem, AclProblem::UnknownKey { nearest, .. } if nearest == expected),
            "{problem:?}"
        );
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    for (text, expected) in [
        ("rule = 1", "1:8 rule"),
        ("rule = [1]", "1:9 rule"),
        ("groups = 1\n[[rule]]\npublish = 'a'\n", "1:10 groups"),
        ("[groups]\ng = 1\n[[rule]]\npublish = 'a'\n", "2:5 groups g"),
        ("[[rule]]\npublish = 1\n", "2:11 rule 1 publish"),
        ("[[rule]]\nsubscribe = ['a', 1]\n", "2:19 rule 1 subscribe"),
        ("[[rule]]\npublish = 'a'\nuser = true\n", "3:8 rule 1 user"),
        (
            "[[rule]]\npublish = 'a'\neffect = ['deny']\n",
            "3:10 rule 1 effect",
        ),
    ] {
        let (place, problem) = problem(text);
        assert_eq!(place, expected, "{text}");
        assert!(
            matches!(problem, AclProblem::WrongType { .. }),
            "{problem:?}"
        );
    }
}

#[test]
fn an_unknown_effect_is_refused_with_the_nearest() {
    let (place, problem) = problem("[[rule]]\npublish = 'a'\neffect = \"denny\"\n");
    assert_eq!(place, "3:10 rule 1 effect");
    let expected = "\"denny\" means nothing here; did you mean deny?";
    assert_eq!(problem.to_string(), expected);
}

#[test]
fn empty_lists_and_names_and_misplaced_stars_are_refused() {
    for key in [
        "publish",
        "subscribe",
        "user",
        "client_id",
        "certificate",
        "group",
    ] {
        let other = if key == "publish" {
            "subscribe"
        } else {
            "publish"
        };
        let text = format!("[[rule]]\n{other} = 'a'\n{key} = []\n");
        let (place, problem) = problem(&text);
        assert!(place.starts_with("3:"), "{place}");
        assert_eq!(problem, AclProblem::EmptyList);
    }
    assert_eq!(
        problem("[[rule]]\npublish = 'a'\nuser = ['b', '']\n"),
        ("3:14 rule 1 user".to_owned(), AclProblem::EmptyName)
    );
    assert_eq!(
        problem("[[rule]]\npublish = 'a'\nclient_id = 'a*b'\n"),
        (
            "3:15 rule 1 client_id".to_owned(),
            AclProblem::MisplacedStar
        )
    );
    assert_eq!(
        problem("[groups]\ng = ['**']\n[[rule]]\npublish = 'a'\n"),
        ("2:7 groups g".to_owned(), AclProblem::MisplacedStar)
    );
    assert_eq!(
        problem("[groups]\ng = []\n[[rule]]\npublish = 'a'\n"),
        ("2:5 groups g".to_owned(), AclProblem::EmptyList)
    );
}

#[test]
fn an_unknown_group_is_refused_with_the_nearest_or_those_that_there_are() {
    let groups = "[groups]\noperators = 'a'\nauditors = 'b'\n[[rule]]\npublish = 'a'\n";
    let (place, what) = problem(&format!("{groups}group = 'operator'\n"));
    assert_eq!(place, "6:9 rule 1 group");
    assert_eq!(
        what.to_string(),
        "there is no group \"operator\"; did you mean \"operators\"?"
    );
    let (place, what) = problem(&format!("{groups}group = ['auditors', 'x']\n"));
    assert_eq!(place, "6:22 rule 1 group");
    assert!(
        what.to_string()
            .ends_with("where there are auditors, operators"),
        "{what}"
    );
    let (_, what) = problem("[[rule]]\npublish = 'a'\ngroup = 'x'\n");
    assert_eq!(
        what.to_string(),
        "there is no group \"x\"; add it under [groups]"
    );
}

#[test]
fn a_rule_about_nothing_is_refused() {
    let text = "[[rule]]\npublish = 'a'\n\n[[rule]]\nuser = 'a'\n";
    assert_eq!(
        problem(text),
        ("4:1 rule 2".to_owned(), AclProblem::NoFilters)
    );
}

#[test]
fn a_malformed_filter_is_refused() {
    for filter in ["a/#/b", "a#", "+a", "a/b+", "", "%u+", "#%c", "a\\u0000"] {
        let (place, problem) = problem(&format!("[[rule]]\npublish = ['ok', \"{filter}\"]\n"));
        assert_eq!(place, "2:18 rule 1 publish", "{filter}");
        assert!(matches!(problem, AclProblem::Illegal(_)), "{problem:?}");
    }
}

#[test]
fn an_unknown_placeholder_is_refused_with_its_column_and_what_there_is() {
    for (filter, column, found, advice) in [
        ("a/%U/b", 13, "%U", "did you mean %u?"),
        ("a/%C", 13, "%C", "did you mean %c?"),
        ("a/b%d", 14, "%d", "use %u for the user name"),
        ("100%", 14, "%", "%% for a percent sign"),
        ("%ü/x", 11, "%ü", "use %u"),
        ("%%%", 13, "%", "%% for a percent sign"),
    ] {
        let (place, problem) = problem(&format!("[[rule]]\npublish ='{filter}'\n"));
        assert_eq!(place, format!("2:{} rule 1 publish", column), "{filter}");
        let text = problem.to_string();
        assert!(
            text.starts_with(&format!("{found:?} is no placeholder")),
            "{text}"
        );
        assert!(text.contains(advice), "{text}");
    }
    assert_eq!(problems("[[rule]]\npublish = '%x/%y'\n").len(), 2);
}

#[test]
fn everything_is_reported_at_once_in_the_order_of_the_file() {
    let text = "[[rule]]\npublish = 'a#'\nusr = 'x'\n\n[[rule]]\nsubscribe = []\ngroup = 'g'\n";
    let places: Vec<String> = problems(text).into_iter().map(|(place, _)| place).collect();
    assert_eq!(
        places,
        [
            "2:11 rule 1 publish",
            "3:1 rule 1 usr",
            "6:13 rule 2 subscribe",
            "7:9 rule 2 group"
        ]
    );
    let shown = render::problems(&Acl::parse("acl.toml", text).unwrap_err(), false);
    assert!(shown.contains(" --> acl.toml:2:11\n"), "{shown}");
    assert!(shown.contains("publish = 'a#'"), "{shown}");
}

const NEVER: &str = "[[rule]]\n";

#[test]
fn a_rule_that_never_decides_is_refused() {
    for (first, second) in [
        ("publish = '#'", "publish = 'a/b'"),
        ("publish = '#'", "user = 'anna'\npublish = ['a', '+/x']"),
        ("publish = 'a/b'", "publish = 'a/b'"),
        ("user = '*'\npublish = 'a'", "user = 'anna'\npublish = 'a'"),
        (
            "user = 'an*'\npublish = 'a'",
            "user = ['anna', 'an-*']\npublish = 'a'",
        ),
        (
            "user = ['b', 'anna']\npublish = 'a'",
            "user = 'anna'\npublish = 'a'",
        ),
        (
            "user = 'anna'\npublish = 'a'",
            "user = 'anna'\nclient_id = 'c'\npublish = 'a'",
        ),
        ("client_id = '*'\npublish = 'a'", "publish = 'a'"),
        ("publish = 'd/%c'", "user = 'a'\npublish = 'd/%c'"),
        ("effect = 'deny'\npublish = 'd/%c'", "publish = 'd/%c'"),
        ("publish = '#'", "publish = '%u/x'"),
        ("group = 'g'\npublish = 'a'", "user = 'ben'\npublish = 'a'"),
        ("user = '*'\npublish = 'a'", "group = 'g'\npublish = 'a'"),
        (
            "publish = '#'\nsubscribe = 's'",
            "publish = 'a'\nsubscribe = 's'",
        ),
    ] {
        let text = format!("[groups]\ng = ['ben', 'carl']\n{NEVER}{first}\n{NEVER}{second}\n");
        let line = 4 + first.lines().count();
        let (place, problem) = problem(&text);
        assert_eq!(place, format!("{line}:1 rule 2"), "{text}");
        assert_eq!(problem, AclProblem::NeverReached { earlier: 1 }, "{text}");
    }
}

#[test]
fn a_filter_that_an_earlier_rule_contradicts_is_refused_though_others_of_its_rule_count() {
    let text = "[[rule]]\npublish = '#'\n\n[[rule]]\neffect = 'deny'\npublish = ['a', '$x/a']\nsubscribe = 's'\n";
    let (place, what) = problem(text);
    assert_eq!(place, "6:12 rule 2 publish");
    assert_eq!(
        what,
        AclProblem::Overruled {
            earlier: 1,
            effect: Effect::Allow
        }
    );
}

#[test]
fn a_rule_that_may_decide_for_someone_is_not_refused() {
    for (first, second) in [
        ("publish = '#'", "subscribe = 'a'"),
        // Topics that begin with $ are not matched by a wildcard.
        ("publish = '#'", "publish = '$SYS/a'"),
        ("publish = '#'", "effect = 'deny'\npublish = '%u/a'"),
        // An allow filter matches nothing for some values.
        ("publish = 'd/%c'", "effect = 'deny'\npublish = 'd/%c'"),
        ("publish = 'a/#'", "publish = 'a/b'"),
        ("user = 'anna'\npublish = '#'", "publish = '#'"),
        ("user = '*'\npublish = '#'", "publish = '#'"),
        (
            "user = 'anna'\npublish = '#'",
            "user = 'an*'\npublish = '#'",
        ),
        (
            "user = 'anna'\npublish = '#'",
            "client_id = 'anna'\npublish = '#'",
        ),
        ("certificate = '*'\npublish = '#'", "publish = '#'"),
        (
            "user = 'anna'\nclient_id = 'c'\npublish = 'a'",
            "user = 'anna'\npublish = 'a'",
        ),
        // The same effect: redundant for the one filter, but the rule does more.
        ("publish = 'a'", "user = 'anna'\npublish = ['a', 'b']"),
    ] {
        acl(&format!("{NEVER}{first}\n{NEVER}{second}\n"));
    }
}

#[test]
fn too_many_rules_are_refused() {
    let mut text = String::new();
    for number in 0..=file::MAX_RULES {
        text += &format!("[[rule]]\npublish='{number}'\n");
    }
    let (_, problem) = problem(&text);
    let (count, max) = (file::MAX_RULES + 1, file::MAX_RULES);
    assert_eq!(problem, AclProblem::TooMany { count, max });
}

#[test]
fn a_file_that_everybody_can_change_is_refused_and_one_that_is_wrong_is_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let chmod = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(file.path(), "[[rule]]\npublish = 'a'\n").unwrap();
    chmod(0o644);
    assert_eq!(Acl::load(file.path()).unwrap().len(), 1);
    chmod(0o646);
    let error = Acl::load(file.path()).unwrap_err();
    assert!(
        matches!(error, AclError::File(FileError::WritableByOthers { .. })),
        "{error}"
    );
    chmod(0o644);
    fs::write(file.path(), "[[rule]]\npublish = 'a#'\n").unwrap();
    let error = Acl::load(file.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("the permissions have an error:\n"),
        "{error}"
    );
    assert!(
        error.contains(&format!("{}:2:11", file.path().display())),
        "{error}"
    );
}
