//! The pages of this repository, and what the tests look at in them.
//!
//! Always holds: line numbers count from 1; a heading's anchor is the one that GitHub gives it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use e2e::binaries::repository;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Something on a page, with its line.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) what: T,
    pub(super) line: usize,
}

/// A fenced block.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// What stands behind the fence: a language, and perhaps more words.
    pub(super) info: String,
    pub(super) text: String,
}

impl Block {
    pub(super) fn language(&self) -> &str {
        self.info.split(' ').next().unwrap_or_default()
    }
}

/// A piece of code in the running text.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) text: String,
    /// The heading of its column, if it is in a table.
    pub(super) column: Option<String>,
}

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    /// From the repository's folder.
    pub(super) path: PathBuf,
    pub(super) anchors: Vec<String>,
    pub(super) links: Vec<Located<String>>,
    pub(super) blocks: Vec<Located<Block>>,
    pub(super) spans: Vec<Located<Span>>,
}

impl Page {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(repository().join(path))
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let mut page = Self {
            path: path.to_owned(),
            anchors: Vec::new(),
            links: Vec::new(),
            blocks: Vec::new(),
            spans: Vec::new(),
        };
        page.look_through(&text);
        page
    }

    /// The place of something, for messages.
    pub(super) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    pub(super) fn is(&self, path: &str) -> bool {
        self.path == Path::new(path)
    }

    fn look_through(&mut self, text: &str) {
        let mut heading: Option<String> = None;
        let mut block: Option<Located<Block>> = None;
        let mut table = Table::default();
        let mut seen = HashMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = text[..range.start].lines().count().max(1)
                + usize::from(text[..range.start].ends_with('\n'));
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let count = seen.entry(anchor.clone()).or_insert(0);
                    self.anchors.push(match count {
                        0 => anchor,
                        _ => format!("{anchor}-{count}"),
                    });
                    *count += 1;
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let what = dest_url.into_string();
                    self.links.push(Located { what, line });
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let (info, text) = (info.into_string(), String::new());
                    block = Some(Located {
                        what: Block { info, text },
                        line,
                    });
                }
                Event::End(TagEnd::CodeBlock) => self.blocks.extend(block.take()),
                Event::Text(part) => {
                    if let Some(block) = &mut block {
                        block.what.text.push_str(&part);
                    }
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                    table.text(&part);
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    let span = Span {
                        text: code.into_string(),
                        column: table.column().map(str::to_owned),
                    };
                    self.spans.push(Located { what: span, line });
                }
                event => table.follow(&event),
            }
        }
    }
}

/// Where in a table the parser is.
#[derive(Debug, Default)]
struct Table {
    headings: Vec<String>,
    in_head: bool,
    in_table: bool,
    cell: usize,
}

impl Table {
    fn follow(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Table(_)) => {
                *self = Self {
                    in_table: true,
                    ..Self::default()
                }
            }
            Event::End(TagEnd::Table) => self.in_table = false,
            Event::Start(Tag::TableHead) => self.in_head = true,
            Event::End(TagEnd::TableHead) => self.in_head = false,
            Event::Start(Tag::TableRow) => self.cell = 0,
            Event::Start(Tag::TableCell) if self.in_head => self.headings.push(String::new()),
            Event::End(TagEnd::TableCell) => self.cell += 1,
            _ => {}
        }
    }

    fn text(&mut self, part: &str) {
        if self.in_head
            && let Some(heading) = self.headings.last_mut()
        {
            heading.push_str(part);
        }
    }

    fn column(&self) -> Option<&str> {
        if !self.in_table || self.in_head {
            return None;
        }
        self.headings.get(self.cell).map(String::as_str)
    }
}

/// GitHub's anchor of a heading: small letters, spaces as hyphens, and of all other characters only letters, digits, hyphens
/// and underscores.
fn anchor(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .flat_map(char::to_lowercase)
        .collect()
}

/// Every page, the files of the top folder first.
pub(super) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ]
    .map(PathBuf::from)
    .to_vec();
    let docs = fs::read_dir(repository().join("docs")).expect("the folder docs");
    let mut pages: Vec<PathBuf> = docs
        .map(|entry| Path::new("docs").join(entry.expect("a file of docs").file_name()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    paths.extend(pages);
    paths.iter().map(|path| Page::read(path)).collect()
}

#[test]
fn a_page_is_read_as_github_shows_it() {
    assert_eq!(anchor("Keys of a `[[rule]]`"), "keys-of-a-rule");
    assert_eq!(
        anchor("What is promised, and what is not"),
        "what-is-promised-and-what-is-not"
    );
    let mut page = Page {
        path: PathBuf::new(),
        anchors: Vec::new(),
        links: Vec::new(),
        blocks: Vec::new(),
        spans: Vec::new(),
    };
    page.look_through(
        "# A\n\n## A\n[x](b.md#c) and `s`\n\n```sh run\nls\n```\n\n| a | counted |\n|---|---|\n| `p` | `q` |\n",
    );
    assert_eq!(page.anchors, ["a", "a-1"]);
    assert_eq!(
        (page.links[0].what.as_str(), page.links[0].line),
        ("b.md#c", 4)
    );
    let block = &page.blocks[0];
    assert_eq!((block.what.language(), block.line), ("sh", 6));
    assert_eq!(block.what.text, "ls\n");
    let columns: Vec<_> = page
        .spans
        .iter()
        .map(|span| span.what.column.as_deref())
        .collect();
    assert_eq!(columns, [None, Some("a"), Some("counted")]);
}
