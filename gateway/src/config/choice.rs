//! Keys whose value is one of a few words.
//!
//! What always holds: the words stand here and nowhere else; the first of each is the default.

/// A value that is one of a few words.
pub trait Choice: std::fmt::Debug {
    /// All words, the default first.
    fn words(&self) -> &'static [&'static str];
    /// Takes the value of `word`; says whether there is such a word.
    fn choose(&mut self, word: &str) -> bool;
    /// The word now.
    fn word(&self) -> &'static str;
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident = $first_word:literal, $($(#[$rest_doc:meta])* $rest:ident = $rest_word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$rest_doc])* $rest,)+
        }

        impl Choice for $name {
            fn words(&self) -> &'static [&'static str] {
                &[$first_word, $($rest_word),+]
            }

            fn choose(&mut self, word: &str) -> bool {
                *self = match word {
                    $first_word => Self::$first,
                    $($rest_word => Self::$rest,)+
                    _ => return false,
                };
                true
            }

            fn word(&self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $(Self::$rest => $rest_word,)+
                }
            }
        }
    };
}

choice! {
    /// Who appends what clients publish.
    Produce {
        /// The gateway's own Iggy client, wherever the topic map says.
        Client = "client",
        /// The connectors runtime, to the one topic that its `[[streams]]` entry names.
        Runtime = "runtime",
    }
}

choice! {
    /// What becomes of a legal message that can never be stored where it should.
    OnUnstorable {
        /// It goes to the dead-letter topic, and is acknowledged then.
        DeadLetter = "dead_letter",
        /// QoS 1 closes the connection, QoS 0 is dropped.
        Close = "close",
    }
}

choice! {
    /// What becomes of a message that its client may not publish.
    OnDenied {
        /// QoS 1 closes the connection, QoS 0 is dropped.
        Close = "close",
        /// It is acknowledged and stored nowhere (MQTT 3.1.1, 3.3.5 allows it).
        Acknowledge = "acknowledge",
    }
}

choice! {
    /// What becomes of a topic in Iggy that promises less than its rule asks for.
    OnWeakDurability {
        /// It is used, and told of.
        Warn = "warn",
        /// It is not used.
        Refuse = "refuse",
    }
}

choice! {
    /// What is spoken on a listener.
    Protocol {
        /// MQTT over TCP.
        Mqtt = "mqtt",
        /// MQTT over WebSocket (MQTT 3.1.1, section 6).
        WebSocket = "websocket",
    }
}

choice! {
    /// The oldest version of TLS that is spoken.
    MinimumTls {
        /// TLS 1.2 (RFC 5246), with ciphers that are still good.
        V12 = "1.2",
        /// TLS 1.3 (RFC 8446).
        V13 = "1.3",
    }
}

choice! {
    /// Whether a client must have a certificate.
    ClientCertificate {
        /// Without one the handshake fails.
        Required = "required",
        /// A client without one is heard; the other ways to authenticate decide.
        Optional = "optional",
    }
}

choice! {
    /// Which name in a client's certificate is its user name.
    CertificateUser {
        /// The common name of the subject.
        CommonName = "common_name",
        /// The first DNS name among the alternative names.
        Dns = "dns",
        /// The first e-mail address among them.
        Email = "email",
        /// The first URI among them.
        Uri = "uri",
    }
}

choice! {
    /// What a client's certificate says about its client id.
    CertificateClientId {
        /// Nothing.
        Any = "any",
        /// It is the user name.
        Equal = "equal",
        /// It begins with the user name.
        Prefix = "prefix",
    }
}

choice! {
    /// How JSON web tokens are signed (RFC 7518).
    JwtAlgorithm {
        /// ECDSA on P-256 with SHA-256.
        Es256 = "ES256",
        /// RSA with SHA-256.
        Rs256 = "RS256",
        /// HMAC with SHA-256, with a secret that the issuer has too.
        Hs256 = "HS256",
    }
}
