//! The keys that verify tokens: from files, each for one algorithm.
//!
//! What always holds: a key is made for the configured algorithm or refused, so that a public key is never taken for a
//! shared one; nothing of a key is in a message.

use std::path::Path;

use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::{JwtAlgorithm, JwtError, MAX_KEY_FILE_BYTES, MIN_RSA_BITS, MIN_SHARED_KEY_BYTES};
use crate::access::files;
use crate::config::Choice;

/// What is wrong with the content of a key file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// A shared key that could be guessed.
    #[error(
        "{bytes} bytes, but an HS256 key has at least {MIN_SHARED_KEY_BYTES}; make one with: openssl rand -base64 48"
    )]
    TooShort {
        /// How many it has.
        bytes: usize,
    },
    /// A public key as a shared one: whoever has it could sign.
    #[error(
        "PEM, which is no HS256 key: everybody who knows a public key could sign tokens with it; set the algorithm to RS256 or ES256, or name a file with a shared key"
    )]
    PemAsShared,
    /// A JSON web key.
    #[error(
        "a JSON web key (JWK), which is not read; write the key itself into the file, or for RS256 and ES256 the public key as PEM"
    )]
    Jwk,
    /// The key that only the issuer should have.
    #[error(
        "a private key, which only the issuer of tokens should have; name a file with the public key: openssl pkey -in PRIVATE -pubout"
    )]
    Private,
    /// A certificate.
    #[error(
        "a certificate; name a file with its public key: openssl x509 -in CERTIFICATE -noout -pubkey"
    )]
    Certificate,
    /// No PEM with a public key.
    #[error(
        "no public key in PEM (-----BEGIN PUBLIC KEY-----); correct the path, or convert the key"
    )]
    NoPublicKey,
    /// Several in one file.
    #[error("{count} public keys; write each into a file of its own")]
    Several {
        /// How many.
        count: usize,
    },
    /// PEM around something else.
    #[error("the public key is damaged; export it again")]
    Damaged,
    /// The key of another algorithm.
    #[error("not a key for {}, which takes {expected}; set the algorithm to that of the key, or name another file", algorithm.word())]
    OtherAlgorithm {
        /// The configured algorithm.
        algorithm: JwtAlgorithm,
        /// What it takes.
        expected: &'static str,
    },
    /// An RSA key that could be broken.
    #[error("an RSA key of {bits} bits, but {MIN_RSA_BITS} are the fewest; make a longer one")]
    WeakRsa {
        /// How many it has.
        bits: usize,
    },
}

pub(super) fn load_key(algorithm: JwtAlgorithm, path: &Path) -> Result<DecodingKey, JwtError> {
    let key = match algorithm {
        JwtAlgorithm::Hs256 => shared_key(&files::read_secret(path, MAX_KEY_FILE_BYTES)?),
        _ => public_key(algorithm, &files::read_public(path, MAX_KEY_FILE_BYTES)?),
    };
    key.map_err(|what| JwtError::Key {
        path: path.to_owned(),
        what,
    })
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(bytes).is_ok()
}

fn shared_key(bytes: &[u8]) -> Result<DecodingKey, KeyProblem> {
    // Before its length is looked at: what is wrong with it is that it is public.
    if has(bytes, b"-----BEGIN ") {
        return Err(KeyProblem::PemAsShared);
    }
    if is_json(bytes) {
        return Err(KeyProblem::Jwk);
    }
    // What editors and `openssl rand -base64` put at the end of a text is not part of it; of bytes that are no text, all
    // are.
    let key = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim_end_matches(['\r', '\n']).as_bytes(),
        Err(_) => bytes,
    };
    if key.len() < MIN_SHARED_KEY_BYTES {
        return Err(KeyProblem::TooShort { bytes: key.len() });
    }
    DecodingKey::from_secret(key).map_err(|_| KeyProblem::Damaged)
}

fn public_key(algorithm: JwtAlgorithm, bytes: &[u8]) -> Result<DecodingKey, KeyProblem> {
    if is_json(bytes) {
        return Err(KeyProblem::Jwk);
    }
    // By its label alone, so that a damaged private key is one too.
    if has(bytes, b"PRIVATE KEY-----") {
        return Err(KeyProblem::Private);
    }
    let blocks = Pem::iter_from_buffer(bytes).collect::<Result<Vec<_>, _>>();
    let blocks = blocks.map_err(|_| KeyProblem::Damaged)?;
    let is_public = |block: &&Pem| matches!(&*block.label, "PUBLIC KEY" | "RSA PUBLIC KEY");
    let keys: Vec<&Pem> = blocks.iter().filter(is_public).collect();
    let key = match keys.as_slice() {
        [key] => key,
        [] if blocks.iter().any(|block| block.label == "CERTIFICATE") => {
            return Err(KeyProblem::Certificate);
        }
        [] => return Err(KeyProblem::NoPublicKey),
        several => {
            return Err(KeyProblem::Several {
                count: several.len(),
            });
        }
    };
    match algorithm {
        JwtAlgorithm::Rs256 => rsa_key(key),
        JwtAlgorithm::Es256 | JwtAlgorithm::Hs256 => p256_key(key),
    }
}

fn rsa_key(pem: &Pem) -> Result<DecodingKey, KeyProblem> {
    // The library wants the PKCS #1 structure, which is the whole of the one and inside of the other.
    let pkcs1 = match &*pem.label {
        "RSA PUBLIC KEY" => pem.contents.as_slice(),
        _ => {
            let (info, key) = subject_public_key(&pem.contents)?;
            if info.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
                return Err(KeyProblem::OtherAlgorithm {
                    algorithm: JwtAlgorithm::Rs256,
                    expected: "an RSA key",
                });
            }
            key
        }
    };
    let (_, key) =
        x509_parser::public_key::RSAPublicKey::from_der(pkcs1).map_err(|_| KeyProblem::Damaged)?;
    match key.key_size() {
        bits if bits < MIN_RSA_BITS => Err(KeyProblem::WeakRsa { bits }),
        _ => Ok(DecodingKey::from_rsa_der(pkcs1)),
    }
}

fn p256_key(pem: &Pem) -> Result<DecodingKey, KeyProblem> {
    let other = KeyProblem::OtherAlgorithm {
        algorithm: JwtAlgorithm::Es256,
        expected: "a key on the curve P-256",
    };
    if pem.label != "PUBLIC KEY" {
        return Err(other);
    }
    let (info, point) = subject_public_key(&pem.contents)?;
    let curve = info.algorithm.parameters.as_ref();
    let curve = curve.and_then(|parameters| parameters.as_oid().ok());
    if info.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
        return Err(other);
    }
    match info.parsed() {
        Ok(PublicKey::EC(_)) => Ok(DecodingKey::from_ec_der(point)),
        _ => Err(KeyProblem::Damaged),
    }
}

fn subject_public_key(der: &[u8]) -> Result<(SubjectPublicKeyInfo<'_>, &[u8]), KeyProblem> {
    let (rest, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyProblem::Damaged)?;
    let key = match &info.subject_public_key.data {
        std::borrow::Cow::Borrowed(key) if rest.is_empty() => *key,
        _ => return Err(KeyProblem::Damaged),
    };
    Ok((info, key))
}
