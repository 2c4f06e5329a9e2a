//! The password: asked for twice at a terminal, or one line of standard input.

use std::io::{self, BufRead, IsTerminal};

use mqtt_gateway::mqtt::MAX_STRING_BYTES;

use super::PasswdError;

/// Reads it; from standard input if `from_stdin`, or if that is no terminal.
pub(super) fn read(from_stdin: bool) -> Result<Vec<u8>, PasswdError> {
    let stdin = io::stdin();
    let password = if from_stdin || !stdin.is_terminal() {
        line(stdin.lock()).map_err(PasswdError::Unreadable)?
    } else {
        let ask = |prompt| rpassword::prompt_password(prompt).map_err(PasswdError::Unreadable);
        let password = ask("Password: ")?;
        if password != ask("The same again: ")? {
            return Err(PasswdError::Different);
        }
        password.into_bytes()
    };
    match password.len() {
        0 => Err(PasswdError::EmptyPassword),
        length if length > MAX_STRING_BYTES => Err(PasswdError::LongPassword {
            max: MAX_STRING_BYTES,
        }),
        _ => Ok(password),
    }
}

/// The first line, without its end; passwords are bytes, not text.
fn line(input: impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    // One more than a password can have, and the end of the line.
    input
        .take(MAX_STRING_BYTES as u64 + 3)
        .read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_without_its_end() {
        for (input, expected) in [
            (&b"secret\nmore\n"[..], &b"secret"[..]),
            (b"secret\r\n", b"secret"),
            (b"secret", b"secret"),
            (b" a b \n", b" a b "),
            (b"\xff\r\r\n", b"\xff\r"),
            (b"\n", b""),
            (b"", b""),
        ] {
            assert_eq!(line(input).unwrap(), expected);
        }
    }
}
