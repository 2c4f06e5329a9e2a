//! Tokens: what is accepted is signed by the key with the configured algorithm, has not ended, and names its user.
//!
//! The input is a header on the first line and claims after it, which are signed, and the whole of it is tried as a token.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use libfuzzer_sys::fuzz_target;
use mqtt_gateway::access::jwt::{JwtAlgorithm, JwtConfig, JwtKeys, LEEWAY, looks_like_token};
use serde_json::Value;

const SECRET: &[u8] = b"a shared key of at least 32 bytes";
const NOW: u64 = 1_800_000_000;

static KEYS: LazyLock<JwtKeys> = LazyLock::new(|| {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let path = std::env::temp_dir().join(format!("fuzz-jwt-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .expect("a key file");
    file.write_all(SECRET).expect("a key");
    let mut config = JwtConfig::new(JwtAlgorithm::Hs256, vec![path.clone()]);
    config.client_id_claim = Some("client".to_owned());
    let keys = JwtKeys::load(&config).expect("the key is good");
    std::fs::remove_file(path).expect("the key file is there");
    keys
});

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for digit in 0..=part.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

fuzz_target!(|data: &[u8]| {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    if KEYS.verify(data, now).is_ok() {
        assert!(looks_like_token(data));
    }
    let split = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (header, claims) = data.split_at(split);
    let claims = claims.get(1..).unwrap_or_default();
    let message = format!("{}.{}", base64url(header), base64url(claims));
    let key = EncodingKey::from_secret(SECRET).expect("a key");
    let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("signed");
    let token = format!("{message}.{signature}");
    let Ok(accepted) = KEYS.verify(token.as_bytes(), now) else {
        return;
    };
    assert!(looks_like_token(token.as_bytes()) || header.len() < 4 || !header.starts_with(b"{"));
    let header: Value = serde_json::from_slice(header).expect("the header was read");
    assert_eq!(header["alg"], "HS256");
    let claims: Value = serde_json::from_slice(claims).expect("the claims were read");
    assert_eq!(claims["sub"], accepted.user);
    assert!(!accepted.user.is_empty());
    assert_eq!(claims["client"], accepted.client_id.expect("the claim is configured"));
    assert!(claims["exp"].is_number());
    assert!(now < accepted.expires + LEEWAY);
    // A byte of the signature that is another.
    let mut forged = token.into_bytes();
    let last = forged.len() - 2;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    assert!(KEYS.verify(&forged, now).is_err());
});
