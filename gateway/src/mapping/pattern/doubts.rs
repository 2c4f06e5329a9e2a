//! What in a pattern compiles but may not be meant.
//!
//! What always holds: nothing of it is an error, and each doubt names the bytes of the text that it is about.

use std::ops::Range;

use regex_syntax::ast::{self, Ast};

use crate::mapping::problem::Warning;

/// What compiles but may not be meant.
pub(super) fn doubts(text: &str, ast: &Ast) -> Vec<(Range<usize>, Warning)> {
    let mut visitor = Doubts {
        ascii: false,
        found: Vec::new(),
    };
    let Ok(()) = ast::visit(ast, &mut visitor);
    let mut found = visitor.found;
    if visitor.ascii {
        found.clear();
    }
    let slashes = text
        .match_indices("/+")
        .map(|(at, part)| (at..at + part.len(), Warning::LooksLikeWildcard));
    found.extend(slashes);
    // "\b" between double quotes is a backspace: the pattern compiles, and matches no topic that anyone uses.
    let controls = text
        .match_indices(|c: char| c.is_control() && !c.is_whitespace())
        .map(|(at, part)| {
            let escaped = part.escape_default().to_string();
            (at..at + part.len(), Warning::ControlCharacter { escaped })
        });
    found.extend(controls);
    found
}

/// Collects `\d` and `\w`, and whether the flag `-u` is somewhere: then these may be ASCII only.
struct Doubts {
    ascii: bool,
    found: Vec<(Range<usize>, Warning)>,
}

impl Doubts {
    fn class(&mut self, class: &ast::ClassPerl) {
        let warning = match (&class.kind, class.negated) {
            (ast::ClassPerlKind::Digit, false) => Warning::UnicodeClass {
                class: r"\d",
                what: "digits",
                instead: "[0-9]",
            },
            (ast::ClassPerlKind::Word, false) => Warning::UnicodeClass {
                class: r"\w",
                what: "letters and digits",
                instead: "[0-9A-Za-z_]",
            },
            _ => return,
        };
        let span = class.span.start.offset..class.span.end.offset;
        self.found.push((span, warning));
    }

    fn flags(&mut self, flags: &ast::Flags) {
        self.ascii |= flags.flag_state(ast::Flag::Unicode) == Some(false);
    }
}

impl ast::Visitor for &mut Doubts {
    type Output = ();
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassPerl(class) => self.class(class),
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.flags(flags);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), Self::Err> {
        if let ast::ClassSetItem::Perl(class) = item {
            self.class(class);
        }
        Ok(())
    }
}
