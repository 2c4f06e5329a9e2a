//! The ways to authenticate, and the list of them in which they are tried.
//!
//! What always holds: no way is in a list twice.

use std::fmt;

/// A way to find out who a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Nobody is asked: a client without a user name comes in without one.
    Anonymous,
    /// The client's certificate, which TLS has checked.
    Certificate,
    /// User name and password are looked up in `users_file`.
    Users,
    /// The password is a JSON web token.
    Jwt,
    /// Iggy is asked whether it knows user name and password.
    Iggy,
}

impl Method {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("anonymous", Self::Anonymous),
        ("certificate", Self::Certificate),
        ("users", Self::Users),
        ("jwt", Self::Jwt),
        ("iggy", Self::Iggy),
    ];

    /// Its name in the configuration and in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Certificate => "certificate",
            Self::Users => "users",
            Self::Jwt => "jwt",
            Self::Iggy => "iggy",
        }
    }

    /// Whether it looks at a password, or at what stands in its place.
    pub fn takes_password(self) -> bool {
        matches!(self, Self::Users | Self::Jwt | Self::Iggy)
    }
}

/// The ways to authenticate of a listener; tried in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Methods(Vec<Method>);

impl Methods {
    /// Adds the way of that name at the end. Says what is wrong otherwise.
    pub(super) fn add(&mut self, name: &str) -> Result<(), NotAdded> {
        let known = Method::ALL.into_iter().find(|(known, _)| *known == name);
        let (_, method) = known.ok_or(NotAdded::Unknown)?;
        if self.has(method) {
            return Err(NotAdded::Twice);
        }
        self.0.push(method);
        Ok(())
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = Method> {
        self.0.iter().copied()
    }

    /// Whether it is among them.
    pub fn has(&self, method: Method) -> bool {
        self.0.contains(&method)
    }

    /// Whether there are none: nobody has said yet who may come in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them looks at passwords.
    pub fn take_passwords(&self) -> bool {
        self.iter().any(Method::takes_password)
    }
}

impl FromIterator<Method> for Methods {
    /// One that comes again is left out.
    fn from_iter<I: IntoIterator<Item = Method>>(methods: I) -> Self {
        let mut list = Self::default();
        for method in methods {
            if !list.has(method) {
                list.0.push(method);
            }
        }
        list
    }
}

/// Why a way is not added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdded {
    Unknown,
    Twice,
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Method::name).collect();
        f.write_str(&names.join(","))
    }
}
