//! Tokens: which are accepted, and why each of the others is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use jsonwebtoken::{EncodingKey, Header, encode};
use proptest::prelude::*;
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    RsaKeySize,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const SECRET: &[u8] = b"a shared key of at least 32 bytes";
const NOW: u64 = 1_800_000_000;

fn now() -> SystemTime {
    at(NOW)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A folder with key files.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

fn shared(configure: impl FnOnce(&mut JwtConfig)) -> JwtKeys {
    let folder = Folder::new();
    let mut config = JwtConfig::new(JwtAlgorithm::Hs256, vec![folder.file("key", SECRET, 0o600)]);
    configure(&mut config);
    JwtKeys::load(&config).unwrap()
}

fn token(claims: &Value) -> Vec<u8> {
    signed(
        Algorithm::HS256,
        claims,
        &EncodingKey::from_secret(SECRET).unwrap(),
    )
}

fn signed(algorithm: Algorithm, claims: &Value, key: &EncodingKey) -> Vec<u8> {
    encode(&Header::new(algorithm), claims, key)
        .unwrap()
        .into_bytes()
}

fn key_problem(algorithm: JwtAlgorithm, content: impl AsRef<[u8]>) -> KeyProblem {
    let folder = Folder::new();
    let path = folder.file("key", content, 0o600);
    match JwtKeys::load(&JwtConfig::new(algorithm, vec![path.clone()])) {
        Err(JwtError::Key { path: named, what }) => {
            assert_eq!(named, path);
            what
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_token_gives_user_and_end() {
    let keys = shared(|_| {});
    let claims = keys
        .verify(&token(&json!({"sub": "anna", "exp": NOW + 60})), now())
        .unwrap();
    assert_eq!(
        claims,
        Claims {
            user: "anna".to_owned(),
            client_id: None,
            expires: at(NOW + 60)
        }
    );
}

#[test]
fn the_claims_with_user_and_client_id_are_those_that_are_configured_and_both_must_be_there() {
    let keys = shared(|config| {
        config.user_claim = "name".to_owned();
        config.client_id_claim = Some("device".to_owned());
    });
    let good = json!({"name": "anna", "device": "d1", "sub": "x", "exp": NOW + 60});
    let claims = keys.verify(&token(&good), now()).unwrap();
    assert_eq!(
        (claims.user.as_str(), claims.client_id.as_deref()),
        ("anna", Some("d1"))
    );
    for claim in ["name", "device"] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(claim);
        assert_eq!(keys.verify(&token(&bad), now()), Err(missing(claim)));
        for value in [
            json!(""),
            json!(1),
            json!(["a"]),
            json!("a\u{0}"),
            json!("x".repeat(256)),
        ] {
            let mut bad = good.clone();
            bad[claim] = value;
            let refusal = keys.verify(&token(&bad), now()).unwrap_err();
            assert_eq!(refusal.reason(), "claim_unusable", "{bad}");
        }
    }
}

#[test]
fn a_token_is_good_from_nbf_to_exp_with_the_leeway_on_both_sides() {
    let keys = shared(|_| {});
    let leeway = LEEWAY.as_secs();
    let bounded = token(&json!({"sub": "anna", "nbf": NOW, "exp": NOW + 60}));
    let verify = |seconds| keys.verify(&bounded, at(seconds)).map(|_| ());
    assert_eq!(verify(NOW - leeway - 1), Err(JwtRefusal::NotYet));
    assert_eq!(verify(NOW - leeway), Ok(()));
    assert_eq!(verify(NOW + 60 + leeway - 1), Ok(()));
    assert_eq!(verify(NOW + 60 + leeway), Err(JwtRefusal::Expired));
    // A fraction of a second, as some issuers write it.
    let fraction = token(&json!({"sub": "anna", "exp": NOW as f64 + 0.5}));
    let expires = keys.verify(&fraction, now()).unwrap().expires;
    assert_eq!(expires, now() + Duration::from_millis(500));
}

#[test]
fn a_token_without_a_usable_end_is_refused() {
    let keys = shared(|_| {});
    assert_eq!(
        keys.verify(&token(&json!({"sub": "anna"})), now()),
        Err(missing("exp"))
    );
    for bad in [
        json!("soon"),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(null),
    ] {
        for claims in [
            json!({"sub": "anna", "exp": bad}),
            json!({"sub": "anna", "exp": NOW + 60, "nbf": bad}),
        ] {
            let refusal = keys.verify(&token(&claims), now()).unwrap_err();
            assert_eq!(refusal.reason(), "claim_unusable", "{claims}");
        }
    }
    let list = token(&json!({"sub": "anna", "exp": [NOW + 60]}));
    assert!(keys.verify(&list, now()).is_err());
}

#[test]
fn issuer_and_audience_must_be_there_and_fit_if_they_are_configured() {
    let keys = shared(|config| {
        config.issuer = Some("https://issuer".to_owned());
        config.audience = Some("mqtt".to_owned());
    });
    let claims = |iss: Value, aud: Value| {
        let mut claims = json!({"sub": "anna", "exp": NOW + 60});
        for (claim, value) in [("iss", iss), ("aud", aud)] {
            if !value.is_null() {
                claims[claim] = value;
            }
        }
        keys.verify(&token(&claims), now())
            .map(|claims| claims.user)
    };
    let (iss, aud) = (json!("https://issuer"), json!("mqtt"));
    assert_eq!(claims(iss.clone(), aud.clone()).unwrap(), "anna");
    assert_eq!(
        claims(iss.clone(), json!(["other", "mqtt"])).unwrap(),
        "anna"
    );
    assert_eq!(
        claims(json!("https://issuer/"), aud.clone()),
        Err(JwtRefusal::Issuer)
    );
    assert_eq!(
        claims(iss.clone(), json!("MQTT")),
        Err(JwtRefusal::Audience)
    );
    assert_eq!(
        claims(iss.clone(), json!(["other"])),
        Err(JwtRefusal::Audience)
    );
    assert_eq!(claims(Value::Null, aud), Err(missing("iss")));
    assert_eq!(claims(iss, Value::Null), Err(missing("aud")));
    // Where no audience is configured, tokens may have one.
    let claims = json!({"sub": "anna", "exp": NOW + 60, "aud": "other", "iss": "other"});
    assert!(shared(|_| {}).verify(&token(&claims), now()).is_ok());
}

#[test]
fn every_key_of_a_rotation_verifies_and_no_other() {
    let folder = Folder::new();
    let old = folder.file("old", SECRET, 0o600);
    let new_key = b"another key of some 40 bytes ...........";
    let new = folder.file("new", new_key, 0o640);
    let keys = JwtKeys::load(&JwtConfig::new(JwtAlgorithm::Hs256, vec![old, new])).unwrap();
    let claims = json!({"sub": "anna", "exp": NOW + 60});
    for (key, good) in [(SECRET, true), (new_key.as_slice(), true), (b"x", false)] {
        let token = signed(
            Algorithm::HS256,
            &claims,
            &EncodingKey::from_secret(key).unwrap(),
        );
        match keys.verify(&token, now()) {
            Ok(_) => assert!(good),
            Err(refusal) => assert!(!good && refusal == JwtRefusal::Signature, "{refusal}"),
        }
    }
}

#[test]
fn the_algorithm_is_the_configured_one_whatever_the_header_says() {
    let keys = shared(|_| {});
    let claims = json!({"sub": "anna", "exp": NOW + 60});
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        let token = signed(
            algorithm,
            &claims,
            &EncodingKey::from_secret(SECRET).unwrap(),
        );
        assert_eq!(
            keys.verify(&token, now()),
            Err(JwtRefusal::Algorithm(JwtAlgorithm::Hs256))
        );
    }
    // {"alg":"none"}
    let good = token(&claims);
    let unsigned = String::from_utf8(good).unwrap();
    let payload = unsigned.split('.').nth(1).unwrap();
    for (header, signature) in [("eyJhbGciOiJub25lIn0", ""), ("eyJhbGciOiJub25lIn0", "e30")] {
        let token = format!("{header}.{payload}.{signature}");
        assert!(keys.verify(token.as_bytes(), now()).is_err());
    }
}

#[test]
fn a_public_key_of_the_issuer_verifies_rs256_and_es256() {
    let folder = Folder::new();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let ec = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let claims = json!({"sub": "anna", "exp": NOW + 60});
    for (algorithm, pair, signing) in [
        (
            JwtAlgorithm::Rs256,
            &rsa,
            EncodingKey::from_rsa_pem(rsa.serialize_pem().as_bytes()).unwrap(),
        ),
        (
            JwtAlgorithm::Es256,
            &ec,
            EncodingKey::from_ec_pem(ec.serialize_pem().as_bytes()).unwrap(),
        ),
    ] {
        // A public key is no secret, and text around it does no harm.
        let pem = format!("of the issuer\n{}", pair.public_key_pem());
        let path = folder.file(algorithm.word(), &pem, 0o644);
        let keys = JwtKeys::load(&JwtConfig::new(algorithm, vec![path])).unwrap();
        let token = signed(of_the_library(algorithm), &claims, &signing);
        assert_eq!(keys.verify(&token, now()).unwrap().user, "anna");
        let mut forged = token;
        let last = forged.len() - 10;
        forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
        assert_eq!(keys.verify(&forged, now()), Err(JwtRefusal::Signature));

        // Algorithm confusion: signed with the public key as if it were a shared one.
        let confused = signed(
            Algorithm::HS256,
            &claims,
            &EncodingKey::from_secret(pair.public_key_pem().as_bytes()).unwrap(),
        );
        assert_eq!(
            keys.verify(&confused, now()),
            Err(JwtRefusal::Algorithm(algorithm))
        );
        assert_eq!(
            key_problem(JwtAlgorithm::Hs256, &pem),
            KeyProblem::PemAsShared
        );
        // The key that only the issuer should have.
        for algorithm in [JwtAlgorithm::Rs256, JwtAlgorithm::Es256] {
            assert_eq!(
                key_problem(algorithm, pair.serialize_pem()),
                KeyProblem::Private
            );
        }
    }
    assert!(matches!(
        key_problem(JwtAlgorithm::Rs256, ec.public_key_pem()),
        KeyProblem::OtherAlgorithm {
            algorithm: JwtAlgorithm::Rs256,
            ..
        }
    ));
    assert!(matches!(
        key_problem(JwtAlgorithm::Es256, rsa.public_key_pem()),
        KeyProblem::OtherAlgorithm {
            algorithm: JwtAlgorithm::Es256,
            ..
        }
    ));
    let two = format!("{}{}", rsa.public_key_pem(), rsa.public_key_pem());
    assert_eq!(
        key_problem(JwtAlgorithm::Rs256, two),
        KeyProblem::Several { count: 2 }
    );
    let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&rsa).unwrap().pem();
    assert_eq!(
        key_problem(JwtAlgorithm::Rs256, certificate),
        KeyProblem::Certificate
    );
}

#[test]
fn a_key_on_another_curve_is_not_for_es256() {
    for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        assert!(matches!(
            key_problem(JwtAlgorithm::Es256, pair.public_key_pem()),
            KeyProblem::OtherAlgorithm { .. }
        ));
    }
}

#[test]
fn a_weak_rsa_key_is_refused() {
    // openssl genrsa 1024 | openssl rsa -pubout
    let weak = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDmRhTFlRZUl/GItykqXoSDv2gT
Rat07c3kM2s7daEx3gX0YvO3KCecf2RrvhocxOowpPmtqYILdSBuZdA4JedI9u88
1V/U0UPwJDGsFk4SvEihXqpCpfTxLuPak2R+KjBwevPgAN34qjRyK5uCmFgT2J8a
RoVfVyn8H7usBo7acwIDAQAB
-----END PUBLIC KEY-----
";
    let problem = key_problem(JwtAlgorithm::Rs256, weak);
    assert_eq!(problem, KeyProblem::WeakRsa { bits: 1024 });
}

#[test]
fn a_file_with_something_else_is_refused_by_what_it_is() {
    use JwtAlgorithm::{Es256, Hs256, Rs256};
    let jwk = r#"{"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#;
    for (algorithm, content, expected) in [
        (Hs256, "", KeyProblem::TooShort { bytes: 0 }),
        (Hs256, "short\n", KeyProblem::TooShort { bytes: 5 }),
        (Hs256, &"x".repeat(31), KeyProblem::TooShort { bytes: 31 }),
        (
            Hs256,
            &format!("{}\r\n\n", "x".repeat(31)),
            KeyProblem::TooShort { bytes: 31 },
        ),
        (Hs256, jwk, KeyProblem::Jwk),
        (Rs256, jwk, KeyProblem::Jwk),
        (Rs256, "", KeyProblem::NoPublicKey),
        (Es256, "ssh-rsa AAAA", KeyProblem::NoPublicKey),
        (
            Rs256,
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            KeyProblem::Damaged,
        ),
        (
            Es256,
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            KeyProblem::Damaged,
        ),
        (
            Rs256,
            "-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----\n",
            KeyProblem::Damaged,
        ),
    ] {
        assert_eq!(key_problem(algorithm, content), expected, "{content}");
    }
}

#[test]
fn the_line_end_of_a_text_is_no_part_of_a_shared_key_and_every_byte_of_a_binary_one_is() {
    let folder = Folder::new();
    let claims = json!({"sub": "anna", "exp": NOW + 60});
    let mut binary = vec![0xff; 31];
    binary.push(b'\n');
    let text = format!("{}\n", "x".repeat(32));
    for (content, key) in [
        (text.as_bytes(), "x".repeat(32).into_bytes()),
        (&binary, binary.clone()),
    ] {
        let path = folder.file("key", content, 0o600);
        let keys = JwtKeys::load(&JwtConfig::new(JwtAlgorithm::Hs256, vec![path])).unwrap();
        let token = signed(
            Algorithm::HS256,
            &claims,
            &EncodingKey::from_secret(&key).unwrap(),
        );
        assert!(keys.verify(&token, now()).is_ok());
    }
}

#[test]
fn a_shared_key_that_everybody_can_read_is_refused_and_a_public_key_is_not() {
    let folder = Folder::new();
    let path = folder.file("key", SECRET, 0o644);
    let error = JwtKeys::load(&JwtConfig::new(JwtAlgorithm::Hs256, vec![path])).unwrap_err();
    assert!(
        matches!(error, JwtError::File(FileError::ReadableByOthers { .. })),
        "{error}"
    );
}

#[test]
fn keys_and_claims_must_be_named() {
    let load = |config: &JwtConfig| JwtKeys::load(config).unwrap_err();
    let none = JwtConfig::new(JwtAlgorithm::Hs256, Vec::new());
    assert!(matches!(load(&none), JwtError::NoKeys));
    let many = JwtConfig::new(JwtAlgorithm::Hs256, vec![PathBuf::from("k"); MAX_KEYS + 1]);
    assert!(matches!(load(&many), JwtError::TooManyKeys { count: 17 }));
    for (user, client_id) in [("", None), ("sub", Some(String::new()))] {
        let mut config = none.clone();
        config.user_claim = user.to_owned();
        config.client_id_claim = client_id;
        assert!(matches!(load(&config), JwtError::EmptyClaim));
    }
}

#[test]
fn no_message_shows_a_token_or_what_is_in_it() {
    let keys = shared(|config| config.issuer = Some("issuer".to_owned()));
    for claims in [
        json!({"sub": "hunter2", "exp": NOW + 60}),
        json!({"sub": "hunter2", "exp": NOW - 60, "iss": "issuer"}),
        json!({"sub": "hunter2", "exp": NOW + 60, "iss": "hunter2"}),
        json!({"sub": ["hunter2"], "exp": NOW + 60, "iss": "issuer"}),
    ] {
        let refusal = keys.verify(&token(&claims), now()).unwrap_err();
        assert!(!format!("{refusal} {refusal:?}").contains("hunter2"));
    }
    assert_eq!(
        format!("{keys:?}"),
        "JwtKeys { algorithm: Hs256, keys: 1, .. }"
    );
}

#[test]
fn what_looks_like_a_token_is_one_and_passwords_do_not() {
    assert!(looks_like_token(&token(
        &json!({"sub": "anna", "exp": NOW})
    )));
    assert!(looks_like_token(b"eyJhbGciOiJub25lIn0.e30."));
    for password in [
        "",
        "secret",
        "a.b.c",
        "..",
        "eyJhbGci.e30",
        "eyJhbGci.e30.x.y",
        "eyJhbGci..x",
        "eyJhbGci.e30.x y",
        "eyJhbGci.e30.x+y",
        "XyJhbGci.e30.xy",
        "e.e30.xy",
        "eyJhbG\u{e9}.e30.xy",
    ] {
        assert!(!looks_like_token(password.as_bytes()), "{password}");
    }
}

proptest! {
    #[test]
    fn no_change_of_a_good_token_is_accepted(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let keys = shared(|_| {});
        let good = token(&json!({"sub": "anna", "exp": NOW + 60}));
        let mut changed = good.clone();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok(claims) = keys.verify(&changed, now()) {
            prop_assert_eq!(changed, good);
            prop_assert_eq!(claims.user, "anna");
        }
    }

    #[test]
    fn nothing_but_a_token_is_accepted_and_everything_has_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let keys = shared(|_| {});
        prop_assert!(keys.verify(&bytes, now()).is_err());
        looks_like_token(&bytes);
    }
}
