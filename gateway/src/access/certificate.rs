//! What a client's certificate says about the client. TLS has checked it before: its signature, its dates, its purpose.
//!
//! What always holds: a name that is empty, has control characters or is longer than any user name is no name.

use std::time::{Duration, SystemTime};

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::CertificateUser;

/// The longest name that is taken, in bytes; as of a client id.
const MAX_NAME_BYTES: usize = 255;

/// The names in a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerCertificate {
    /// The name that was chosen to be the user name; `None` if the certificate lacks it.
    pub user: Option<String>,
    /// The common name of its subject.
    pub common_name: Option<String>,
}

/// The names in the certificate; `user` says which one is the user name. None of a certificate that cannot be read.
pub fn names(certificate: &[u8], user: CertificateUser) -> PeerCertificate {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return PeerCertificate::default();
    };
    let mut common_names = certificate.subject().iter_common_name();
    let common_name = common_names.next().and_then(|name| name.as_str().ok());
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let mut alternatives = alternatives
        .iter()
        .flat_map(|names| names.value.general_names.iter());
    let user = match user {
        CertificateUser::CommonName => common_name,
        CertificateUser::Dns => alternatives.find_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        }),
        CertificateUser::Email => alternatives.find_map(|name| match name {
            GeneralName::RFC822Name(name) => Some(*name),
            _ => None,
        }),
        CertificateUser::Uri => alternatives.find_map(|name| match name {
            GeneralName::URI(name) => Some(*name),
            _ => None,
        }),
    };
    PeerCertificate {
        user: user.and_then(usable),
        common_name: common_name.and_then(usable),
    }
}

fn usable(name: &str) -> Option<String> {
    let legal = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    legal.then(|| name.to_owned())
}

/// When the certificate stops being valid.
pub fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common_name: Option<&str>) -> Vec<u8> {
        let mut params =
            CertificateParams::new(["first.example".to_owned(), "second.example".to_owned()])
                .unwrap();
        params.distinguished_name = Default::default();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params
            .subject_alt_names
            .push(SanType::Rfc822Name("a@example".try_into().unwrap()));
        params
            .subject_alt_names
            .push(SanType::URI("spiffe://x/device".try_into().unwrap()));
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_user_name_is_the_name_that_was_chosen() {
        let certificate = certificate(Some("sensor-1"));
        for (which, user) in [
            (CertificateUser::CommonName, "sensor-1"),
            (CertificateUser::Dns, "first.example"),
            (CertificateUser::Email, "a@example"),
            (CertificateUser::Uri, "spiffe://x/device"),
        ] {
            let names = names(&certificate, which);
            assert_eq!(names.user.as_deref(), Some(user));
            assert_eq!(names.common_name.as_deref(), Some("sensor-1"));
        }
    }

    #[test]
    fn what_no_user_name_can_be_is_none() {
        for name in [
            None,
            Some(""),
            Some("a\u{0}b"),
            Some("a\nb"),
            Some(&"x".repeat(256)),
        ] {
            let names = names(&certificate(name), CertificateUser::CommonName);
            assert_eq!(names, PeerCertificate::default(), "{name:?}");
        }
        assert_eq!(
            names(b"no certificate", CertificateUser::Dns),
            PeerCertificate::default()
        );
    }

    #[test]
    fn the_end_of_its_time_can_be_told() {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_927_843_200);
        assert_eq!(not_after(&certificate(None)), Some(end));
        assert_eq!(not_after(b"no certificate"), None);
    }
}
