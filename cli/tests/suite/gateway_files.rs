//! `check` of gateway files and connectors' files, which name other files.

use crate::program::{Folder, SEED_MAP};

/// A connector's file as the runtime reads it.
fn connector(plugin_config: &str) -> String {
    format!("type = \"source\"\nkey = \"mqtt\"\nname = \"x\"\n[plugin_config]\n{plugin_config}\n")
}

#[test]
fn a_gateway_file_is_checked_with_the_map_that_it_names() {
    let folder = Folder::new()
        .file(
            "etc/gateway.toml",
            "topic_map = 'maps/map.toml'\niggy_password = 'pw'\n",
        )
        .file("etc/maps/map.toml", SEED_MAP.replace("$2", "$7"));
    folder.run(["check", "etc/gateway.toml"]).exits(1).prints([
        "room_$7",
        "etc/gateway.toml: gateway file: ok",
        "etc/maps/map.toml: topic map: 1 error",
        "1 error, 0 warnings in 2 files",
    ]);
}

#[test]
fn problems_of_the_gateway_file_do_not_keep_the_map_from_being_checked() {
    let folder = Folder::with_map(&SEED_MAP.replace("$2", "$7")).file(
        "gateway.toml",
        "listen = '127.0.0.1'\niggy_password = 'pw'\n",
    );
    folder.run(["check", "gateway.toml"]).exits(1).prints([
        "gateway.toml:1:10: listen: \"127.0.0.1\" is not IP:port",
        "room_$7",
        "2 errors, 0 warnings in 2 files",
    ]);
}

#[test]
fn a_map_that_is_not_there_is_a_problem_of_the_file_that_names_it() {
    let folder = Folder::new()
        .file(
            "gateway.toml",
            "iggy_password = 'pw'\ntopic_map = 'no.toml'\n",
        )
        .file("default.toml", "node = 'n'\niggy_password = 'pw'\n");
    folder.run(["check", "gateway.toml"]).exits(1).prints([
        "gateway.toml:2:13: topic_map: the topic map no.toml cannot be read: No such file",
    ]);
    folder
        .run(["check", "default.toml"])
        .exits(1)
        .prints(["default.toml: topic_map: the topic map topic-map.toml cannot be read"]);
}

#[test]
fn a_gateway_file_is_not_its_own_topic_map() {
    let text = "iggy_password = 'pw'\ntopic_map = './gateway.toml'\n";
    let folder = Folder::new().file("gateway.toml", text);
    folder.run(["check", "gateway.toml"]).exits(1).prints([
        "gateway.toml:2:13: topic_map: gateway.toml is a gateway file and no topic map",
        "1 error, 0 warnings in 1 file\n",
    ]);
}

#[test]
fn a_password_that_comes_from_elsewhere_is_a_note_and_no_problem() {
    let folder = Folder::with_map(SEED_MAP)
        .file("gateway.toml", "node = 'n'\n")
        .file(
            "secret.toml",
            "iggy_password_file = '/run/secrets/no-such-secret'\n",
        )
        .file("empty-secret", "\n")
        .file("empty.toml", "iggy_password_file = 'empty-secret'\n");
    folder.run(["check", "gateway.toml"]).exits(0).prints([
        "note: gateway.toml: iggy_password: no password for Iggy",
        "2 warnings in 2 files",
    ]);
    folder
        .run(["check", "secret.toml"])
        .exits(0)
        .prints(["note: secret.toml:1:22: iggy_password_file: cannot take the password"]);
    // The file is there, so what is wrong with it is known.
    folder
        .run(["check", "empty.toml"])
        .exits(1)
        .prints(["it is empty"]);
    let json = folder
        .run(["check", "--format", "json", "gateway.toml"])
        .exits(0)
        .json();
    assert_eq!(json["files"][0]["problems"][0]["level"], "note");
    assert_eq!(json["errors"], 0);
}

#[test]
fn the_environment_counts_only_when_it_is_asked_for() {
    let folder = || {
        Folder::with_map(SEED_MAP)
            .file("gateway.toml", "authentication = ['anonymous']\n")
            .file("other.toml", "node = '?'\n")
    };
    let broken = folder()
        .variable("MQTT_GATEWAY_LISTEN", "nowhere")
        .variable("MQTT_GATEWAY_CONFIG", "other.toml")
        .variable("MQTT_GATEWAY_IGGY_PASSWORD", "pw");
    broken.run(["check", "gateway.toml"]).exits(0);
    broken
        .run(["check", "--env", "gateway.toml"])
        .exits(1)
        .prints([
            "gateway.toml: MQTT_GATEWAY_LISTEN: \"nowhere\" is not IP:port",
            "1 error, 2 warnings",
        ]);
    // As at a start, a password is needed then.
    let without = folder();
    let ran = without.run(["check", "--env", "gateway.toml"]).exits(1);
    ran.prints(["error: gateway.toml: iggy_password: no password for Iggy"]);
    let with = folder().variable("MQTT_GATEWAY_IGGY_PASSWORD", "pw");
    with.run(["check", "--env", "gateway.toml"]).exits(0);
}

#[test]
fn a_connectors_file_is_checked_with_the_files_that_it_names() {
    let folder = Folder::new()
        .file(
            "source.toml",
            connector("config = 'etc/gateway.toml'\nlisten = 'x'"),
        )
        .file("sink.toml", connector("config = 'etc/gateway.toml'"))
        .file("etc/gateway.toml", "nod = 'n'\n")
        .file("etc/topic-map.toml", SEED_MAP.replace("$2", "$7"));
    folder
        .run(["check", "source.toml", "sink.toml", "etc/gateway.toml"])
        .exits(1)
        .prints([
            "source.toml:6:10: plugin_config.listen: \"x\" is not IP:port",
            "etc/gateway.toml:1:1: nod: unknown key; did you mean `node`?",
            "room_$7",
            "source.toml: connector's file: 1 error",
            "sink.toml: connector's file: ok",
            "etc/gateway.toml: gateway file: 1 error\n",
            "etc/topic-map.toml: topic map: 1 error\n",
            "3 errors, 0 warnings in 4 files",
        ]);
}

#[test]
fn a_connectors_file_may_hold_the_whole_configuration() {
    let folder = Folder::with_map(SEED_MAP)
        .file("good.toml", connector("limits = { max_connections = 5 }"))
        .file("bad.toml", connector("limits = { max_connections = 0 }"))
        .file("secret.toml", connector("iggy_password = 'hush'"))
        .file("none.toml", "plugin_config = 3\n")
        .file("gone.toml", connector("config = 'gone'"));
    folder.run(["check", "good.toml"]).exits(0).prints([
        "note: good.toml: iggy_password: no password",
        "topic-map.toml: topic map: 2 warnings",
    ]);
    folder
        .run(["check", "bad.toml"])
        .exits(1)
        .prints(["bad.toml:5:30: plugin_config.limits.max_connections: 0 is out of range"]);
    let ran = folder.run(["check", "secret.toml"]).exits(1);
    let ran = ran.prints(["secret.toml:5:17: plugin_config.iggy_password: no password may stand"]);
    assert!(!ran.stdout.contains("hush"));
    folder
        .run(["check", "none.toml"])
        .exits(1)
        .prints(["a table is needed"]);
    folder
        .run(["check", "gone.toml"])
        .exits(1)
        .prints(["gone.toml:5:10: plugin_config.config: cannot read the gateway file gone"]);
}

#[test]
fn the_files_that_the_project_ships_have_no_errors() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime-config");
    let folder = Folder::new();
    for name in [
        "connectors/mqtt_source.toml",
        "connectors/mqtt_sink.toml",
        "gateway.toml",
        "topic-map.toml",
    ] {
        let path = folder.path().join("runtime-config").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(format!("{shipped}/{name}"), path).unwrap();
    }
    let connectors = [
        "check",
        "runtime-config/connectors/mqtt_source.toml",
        "runtime-config/connectors/mqtt_sink.toml",
    ];
    folder
        .run(connectors)
        .exits(0)
        .prints(["0 errors", "in 4 files"]);
}

/// Every way in which it does not fit, with the lines of the rules.
const NOT_FOR_THE_RUNTIME: &str = "\
default_stream = 's'
default_topic = 't'
[[rule]]
mqtt_topic = 'a/([^/]+)'
stream = 's'
topic = 't'
partition_key = '$1'
[[rule]]
mqtt_topic = 'b/([^/]+)'
stream = 's'
topic = 'u_$1'
[[rule]]
mqtt_topic = 'c'
stream = 's'
topic = 'v'
";

#[test]
fn produce_runtime_needs_a_map_that_stores_in_one_topic_without_keys() {
    let gateway = "iggy_password = 'pw'\nproduce = 'runtime'\n";
    let folder = Folder::with_map(NOT_FOR_THE_RUNTIME)
        .file("gateway.toml", gateway)
        .file("client.toml", gateway.replace("runtime", "client"))
        .file("source.toml", connector("config = 'gateway.toml'"));
    for file in ["gateway.toml", "source.toml"] {
        folder.run(["check", file]).exits(1).prints([
            "gateway.toml:2:11: produce: \"runtime\" does not fit the topic map topic-map.toml: rule 1 (line 3) has a partition_key",
            "gateway.toml:2:11: produce: \"runtime\" does not fit the topic map topic-map.toml: rule 2 (line 8) makes the name",
            "gateway.toml:2:11: produce: \"runtime\" does not fit the topic map topic-map.toml: rule 3 (line 12) leads to s/v, others lead to s/t",
            "3 errors",
        ]);
    }
    folder.run(["check", "client.toml"]).exits(0);
    folder.run(["check", "topic-map.toml"]).exits(0);
    let fits = Folder::with_map("default_stream = 's'\ndefault_topic = 't'\n")
        .file("gateway.toml", gateway);
    fits.run(["check", "gateway.toml"]).exits(0);
}

#[test]
fn produce_runtime_is_checked_also_when_the_environment_says_it() {
    let folder = Folder::with_map(NOT_FOR_THE_RUNTIME)
        .file(
            "gateway.toml",
            "iggy_password = 'pw'\nauthentication = ['anonymous']\n",
        )
        .variable("MQTT_GATEWAY_PRODUCE", "runtime");
    folder.run(["check", "gateway.toml"]).exits(0);
    folder
        .run(["check", "--env", "gateway.toml"])
        .exits(1)
        .prints([
            "gateway.toml: produce: \"runtime\" does not fit the topic map",
            "3 errors",
        ]);
}

const USERS: &str =
    "anna:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g\n";
const ACCESS: &str = "iggy_password = 'pw'\nauthentication = ['users']\nusers_file = 'users'\nacl_file = 'acl.toml'\n";
const ACL: &str = "[[rule]]\nuser = 'anna'\npublish = ['d/%c']\n";

#[test]
fn the_files_that_decide_who_may_come_in_are_checked_with_the_gateway_file_that_names_them() {
    let folder = || Folder::with_map(SEED_MAP).file("gateway.toml", ACCESS);
    let good = folder().secret("users", USERS).file("acl.toml", ACL);
    good.run(["check", "gateway.toml"]).exits(0);

    let bad = folder()
        .secret("users", "anna:plain-password\n")
        .file("acl.toml", "[[rule]]\npublish = ['d/%x']\n");
    let ran = bad.run(["check", "gateway.toml"]).exits(1);
    let ran = ran.prints(["error: users:1", "acl.toml:2", "%x"]);
    assert!(!format!("{ran:?}").contains("plain-password"));

    // They need not be on this machine.
    let elsewhere = folder().run(["check", "gateway.toml"]).exits(0);
    elsewhere.prints([
        "note: gateway.toml:3:14: users_file: users is not on this machine",
        "note: gateway.toml:4:12: acl_file: acl.toml is not on this machine",
    ]);
}

#[test]
fn the_files_of_a_listener_with_tls_are_checked_with_the_gateway_file_that_names_them() {
    let listener = "iggy_password = 'pw'\nauthentication = ['anonymous']\n[[listener]]\naddress = '127.0.0.1:8883'\ncertificate = 'c.pem'\nkey = 'c.key'\n";
    let folder = Folder::with_map(SEED_MAP).file("gateway.toml", listener);
    let elsewhere = folder.run(["check", "gateway.toml"]).exits(0);
    elsewhere.prints(["listener: c.pem is not on this machine"]);
    let folder = folder.file("c.pem", "nothing").secret("c.key", "nothing");
    let bad = folder.run(["check", "gateway.toml"]).exits(1);
    bad.prints(["listener: 127.0.0.1:8883: c.pem: there is no certificate in it"]);
}

#[test]
fn permissions_that_the_gateway_file_names_are_explained_with_the_topic() {
    let folder = Folder::with_map(SEED_MAP)
        .file("gateway.toml", ACCESS)
        .secret("users", USERS)
        .file("acl.toml", ACL);
    let explain = |client: &str| {
        folder.run([
            "explain",
            "--config",
            "gateway.toml",
            "--user",
            "anna",
            "--client-id",
            client,
            "d/1",
        ])
    };
    explain("1")
        .exits(0)
        .prints(["publish     allowed by rule 1 (line 1): d/%c"]);
    explain("2")
        .exits(1)
        .prints(["publish     denied because no rule matches"]);
}
