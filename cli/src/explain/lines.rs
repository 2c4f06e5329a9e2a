//! A list of topics, one a line, from a file or standard input.
//!
//! What always holds: memory is bounded whatever is read; a line that is no topic is given back as such, with its number.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use mqtt_gateway::mqtt::MAX_STRING_BYTES;

/// Stands for standard input.
pub(super) const STDIN: &str = "-";
/// What editors on some systems write before the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    line: u64,
}

/// A line with a sample topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What stands there, without the line's end; longer than a topic can be if it is longer than that.
    pub(super) text: Result<String, NotUtf8>,
}

/// A line that is not UTF-8, with what stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotUtf8(pub(super) String);

impl Lines {
    /// Opens the file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let input: Box<dyn BufRead> = if path.as_os_str() == STDIN {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Box::new(BufReader::with_capacity(1 << 16, file))
        };
        Ok(Self { input, line: 0 })
    }

    /// The next line that is neither blank nor a comment; a topic contains no `#`, so that nothing is lost.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if !self.read(&mut bytes)? {
                return Ok(None);
            }
            self.line += 1;
            if self.line == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            let is_blank = bytes.iter().all(|byte| matches!(byte, b' ' | b'\t'));
            if is_blank || bytes.starts_with(b"#") {
                continue;
            }
            let text = String::from_utf8(bytes)
                .map_err(|error| NotUtf8(String::from_utf8_lossy(error.as_bytes()).into_owned()));
            return Ok(Some(Line {
                number: self.line,
                text,
            }));
        }
    }

    /// Reads a line without its end, and of a long one not much more than makes it too long; false at the end.
    fn read(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        // So much that what is left without a byte order mark and a character that is cut through is still too long.
        const MOST: u64 = MAX_STRING_BYTES as u64 + 8;
        let read = (&mut self.input).take(MOST).read_until(b'\n', bytes)?;
        if read == 0 {
            return Ok(false);
        }
        if bytes.pop_if(|last| *last == b'\n').is_some() {
            bytes.pop_if(|last| *last == b'\r');
        } else if read as u64 == MOST {
            if let Err(error) = std::str::from_utf8(bytes)
                && error.error_len().is_none()
            {
                bytes.truncate(error.valid_up_to());
            }
            self.input.skip_until(b'\n')?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<Line> {
        let mut lines = Lines {
            input: Box::new(io::Cursor::new(input.to_vec())),
            line: 0,
        };
        std::iter::from_fn(|| lines.next_line().unwrap()).collect()
    }

    fn texts(input: &[u8]) -> Vec<(u64, String)> {
        let lines = lines(input).into_iter();
        lines
            .map(|line| (line.number, line.text.unwrap()))
            .collect()
    }

    #[test]
    fn blank_lines_and_comments_are_left_out_and_spaces_of_topics_stay() {
        let input = "\u{feff}a/b\r\n\r\n  \n# a comment\n#/no topic\n a \nc".as_bytes();
        let expected = [(1, "a/b"), (6, " a "), (7, "c")];
        let expected: Vec<_> = expected.map(|(at, text)| (at, text.to_owned())).into();
        assert_eq!(texts(input), expected);
    }

    #[test]
    fn a_line_that_never_ends_takes_bounded_memory_and_is_too_long() {
        for character in ["x", "ü", "東"] {
            let mut input = character.repeat(1 << 20).into_bytes();
            input.extend(b"\nnext\n");
            let found = texts(&input);
            assert_eq!(found.len(), 2);
            let long = found[0].1.len();
            assert!((65_536..65_600).contains(&long), "{long}");
            assert_eq!(found[1], (2, "next".to_owned()));
        }
        let longest = "x".repeat(65_535);
        assert_eq!(texts(format!("{longest}\r\ny").as_bytes())[0].1, longest);
    }

    #[test]
    fn a_line_that_is_not_utf8_does_not_end_the_list() {
        let found = lines(b"a\n\xffb\nc\n");
        assert_eq!(found[1].text, Err(NotUtf8("\u{fffd}b".to_owned())));
        assert_eq!(found[2].text, Ok("c".to_owned()));
    }
}
