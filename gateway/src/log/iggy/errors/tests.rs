//! The table of errors.

use super::*;

fn of_code(code: u32) -> Class {
    class(&IggyError::from_code(code))
}

#[test]
fn every_code_is_of_the_class_that_the_table_names() {
    let table: [(Class, &[std::ops::RangeInclusive<u32>]); 6] = [
        (
            Class::Broken,
            &[
                8..=9,
                30..=31,
                40..=40,
                61..=61,
                63..=63,
                206..=206,
                304..=304,
                14000..=14001,
            ],
        ),
        (
            Class::Busy,
            &[
                1..=1,
                3..=3,
                57..=59,
                82..=82,
                10..=19,
                21..=21,
                1000..=1008,
                1015..=1015,
                2000..=2009,
                2017..=2017,
                2020..=2020,
                3000..=3006,
                3009..=3012,
                3020..=3020,
                3023..=3023,
                4000..=4008,
                4010..=4016,
                4020..=4021,
                4026..=4027,
                4039..=4039,
                4050..=4057,
                4102..=4102,
                6000..=7004,
                9000..=12001,
                13000..=13000,
            ],
        ),
        (Class::Credentials, &[42..=45, 47..=47, 53..=54]),
        (Class::Permission, &[41..=41]),
        (
            Class::Missing,
            &[20..=20, 1009..=1011, 2010..=2011, 3007..=3008],
        ),
        (
            Class::TooLarge,
            &[
                4017..=4017,
                4022..=4023,
                4025..=4025,
                4028..=4028,
                4043..=4043,
            ],
        ),
    ];
    let mut known = 0;
    for code in 1..20_000 {
        let is_known = IggyError::from_code(code).as_code() == code;
        known += u32::from(is_known);
        let expected = table
            .iter()
            .find(|(_, ranges)| ranges.iter().any(|range| range.contains(&code)));
        let expected = match expected {
            Some((class, _)) => *class,
            None if is_known => Class::Refused,
            None => Class::Busy,
        };
        if is_known || !matches!(expected, Class::Busy) {
            assert_eq!(
                of_code(code),
                if is_known { expected } else { Class::Busy },
                "code {code}"
            );
        }
    }
    assert!(known > 200, "the SDK knows {known} codes");
}

#[test]
fn an_unknown_code_is_transient() {
    let context = Context {
        address: "iggy:8090",
        username: "gateway",
        about: "plant/telemetry/0",
    };
    assert!(
        context
            .explain(&IggyError::from_code(19_999))
            .is_transient()
    );
}

#[test]
fn what_the_caller_is_told_names_the_target_the_user_or_the_address() {
    let context = Context {
        address: "iggy:8090",
        username: "gateway",
        about: "plant/telemetry/0",
    };
    let explain = |code| context.explain(&IggyError::from_code(code));
    assert_eq!(
        explain(2010),
        LogError::NoSuchTarget("plant/telemetry/0".into())
    );
    assert_eq!(
        explain(42),
        LogError::BadCredentials {
            username: "gateway".into()
        }
    );
    assert_eq!(
        explain(41),
        LogError::NotPermitted("plant/telemetry/0".into())
    );
    let LogError::Unreachable { address, reason } = explain(8) else {
        panic!("{:?}", explain(8))
    };
    assert_eq!(
        (address.as_str(), reason.as_str()),
        ("iggy:8090", "disconnected (Iggy error 8)")
    );
    assert_eq!(
        explain(4100),
        LogError::Refused("plant/telemetry/0: invalid offset (Iggy error 4100)".into())
    );
    for (code, transient) in [
        (57, true),
        (58, true),
        (8, true),
        (13000, true),
        (4022, false),
        (5, false),
        (2010, false),
    ] {
        assert_eq!(explain(code).is_transient(), transient, "code {code}");
    }
}
