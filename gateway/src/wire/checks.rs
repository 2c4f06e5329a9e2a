//! What must be seen in the raw bytes of a body, because the codec hides it or lets it through.
//!
//! What always holds after a check passed: every field lies within the packet, and (CONNECT) the fields fill it. Text of
//! CONNECT is well-formed; the topics of other packets are judged when they become words of [`crate::mqtt`].

use crate::wire::Violation;

/// CONNECT (3.1), in this order: protocol, connect flags, form. A client that speaks another version is told so whatever
/// follows, since the rest of its packet has another form (3.1.2.2); malformed packets come before refusals with a code,
/// because they are closed without a word (3.1.4-1).
///
/// The codec answers a wrong name and an unknown level alike, takes `MQTT` with level 3, a password without a user name,
/// and bytes after the last field.
pub(super) fn connect(body: &[u8]) -> Result<(), Violation> {
    let mut fields = Fields(body);
    match (fields.binary()?, fields.byte()?) {
        (b"MQTT", 4) => {}
        (_, 4) => return Err(Violation::ProtocolName),
        (_, level) => return Err(Violation::ProtocolLevel { level }),
    }
    let flags = ConnectFlags(fields.byte()?);
    flags.check()?;
    fields.skip_u16()?; // Keep-alive: all values are legal.
    fields.text()?; // Client id.
    if flags.has(ConnectFlags::WILL) {
        fields.binary()?; // The topic becomes a `TopicName` and is judged there.
        fields.binary()?;
    }
    if flags.has(ConnectFlags::USER_NAME) {
        fields.text()?;
    }
    if flags.has(ConnectFlags::PASSWORD) {
        fields.binary()?;
    }
    fields.end()
}

/// SUBSCRIBE (3.8): the codec masks the reserved bits of the requested QoS.
pub(super) fn subscribe(body: &[u8]) -> Result<(), Violation> {
    let mut fields = Fields(body);
    fields.skip_u16()?;
    if fields.is_empty() {
        return Err(Violation::NoFilters {
            packet: "SUBSCRIBE",
            clause: "[MQTT-3.8.3-3]",
        });
    }
    while !fields.is_empty() {
        fields.binary()?;
        let byte = fields.byte()?;
        if byte > 2 {
            return Err(Violation::RequestedQos { byte });
        }
    }
    Ok(())
}

/// UNSUBSCRIBE (3.10): the codec takes a list without any filter.
pub(super) fn unsubscribe(body: &[u8]) -> Result<(), Violation> {
    let mut fields = Fields(body);
    fields.skip_u16()?;
    if fields.is_empty() {
        return Err(Violation::NoFilters {
            packet: "UNSUBSCRIBE",
            clause: "[MQTT-3.10.3-2]",
        });
    }
    Ok(())
}

/// 3.1.2.3
struct ConnectFlags(u8);

impl ConnectFlags {
    const RESERVED: u8 = 0b0000_0001;
    const WILL: u8 = 0b0000_0100;
    const WILL_QOS: u8 = 0b0001_1000;
    const WILL_RETAIN: u8 = 0b0010_0000;
    const PASSWORD: u8 = 0b0100_0000;
    const USER_NAME: u8 = 0b1000_0000;

    fn has(&self, any_of: u8) -> bool {
        self.0 & any_of != 0
    }

    fn check(&self) -> Result<(), Violation> {
        if self.has(Self::RESERVED) {
            Err(Violation::ReservedConnectFlag)
        } else if !self.has(Self::WILL) && self.has(Self::WILL_QOS | Self::WILL_RETAIN) {
            Err(Violation::WillFlags)
        } else if self.0 & Self::WILL_QOS == Self::WILL_QOS {
            Err(Violation::WillQos3)
        } else if self.has(Self::PASSWORD) && !self.has(Self::USER_NAME) {
            Err(Violation::PasswordWithoutUserName)
        } else {
            Ok(())
        }
    }
}

/// What is left of a body.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Result<u8, Violation> {
        let (&byte, rest) = self.0.split_first().ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(byte)
    }

    fn u16(&mut self) -> Result<u16, Violation> {
        let (&bytes, rest) = self.0.split_first_chunk().ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(bytes))
    }

    fn skip_u16(&mut self) -> Result<(), Violation> {
        self.u16().map(drop)
    }

    /// A field with two length bytes (1.5.3).
    fn binary(&mut self) -> Result<&'a [u8], Violation> {
        let length = usize::from(self.u16()?);
        let (field, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Violation::Truncated)?;
        self.0 = rest;
        Ok(field)
    }

    fn text(&mut self) -> Result<(), Violation> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Violation::InvalidUtf8)?;
        if text.contains('\0') {
            Err(Violation::Nul)
        } else {
            Ok(())
        }
    }

    fn end(&self) -> Result<(), Violation> {
        match self.0.len() {
            0 => Ok(()),
            count => Err(Violation::TrailingBytes { count }),
        }
    }
}
