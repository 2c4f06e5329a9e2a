//! Permissions: which client may publish and subscribe to which topics.
//!
//! What always holds: the first rule in the order of the file that is for the client and matches the topic decides (A1);
//! what no rule matches is denied (A2); a file that is accepted never changes, and everything that is wrong with another is
//! reported at once.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::files::{self, FileError};
use crate::report::{Located, Report, Source, render};

mod file;
mod filter;
mod permissions;
mod problem;
mod reach;
mod who;

#[cfg(test)]
mod tests;

pub use permissions::{Action, Decision, Permissions};
pub use problem::AclProblem;
pub use who::Who;

use filter::Filter;
use who::{Clients, Index};

/// The largest file of permissions, in bytes.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// All that is wrong with a file of permissions.
pub type AclReport = Report<AclProblem>;

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Effect {
    /// Lets it pass.
    #[default]
    Allow,
    /// Refuses it.
    Deny,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

/// Why there are no permissions.
#[derive(Debug, thiserror::Error)]
pub enum AclError {
    /// The file is not read.
    #[error("permissions {0}")]
    File(#[from] FileError),
    /// The file is wrong.
    #[error("the permissions have {}:\n{}", .0.counted(), render::problems(.0, false))]
    Report(AclReport),
}

/// A file of permissions.
#[derive(Debug, Clone)]
pub struct Acl(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// In the order of the file.
    rules: Vec<Rule>,
    index: Index,
}

#[derive(Debug)]
struct Rule {
    /// Counted from 1.
    number: usize,
    /// Counted from 1.
    line: usize,
    effect: Effect,
    clients: Clients,
    publish: Box<[Filter]>,
    subscribe: Box<[Filter]>,
}

impl Rule {
    fn filters(&self, action: Action) -> &[Filter] {
        match action {
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
        }
    }
}

impl Rules {
    fn get(&self, at: u32) -> Option<&Rule> {
        self.rules.get(at as usize)
    }
}

impl Acl {
    /// Reads permissions from `text`; `file_name` is for messages.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, AclReport> {
        let source = Arc::new(Source {
            file: file_name.to_owned(),
            text: text.to_owned(),
        });
        let rules = file::read(&source).map_err(Report::new)?;
        let dead = reach::dead(&rules);
        if !dead.is_empty() {
            let problem = |dead: reach::Dead| {
                let mut key = format!("rule {}", dead.number);
                if let Some(action) = dead.action {
                    key += &format!(" {action}");
                }
                Located::new(&source, dead.span, key, dead.problem)
            };
            return Err(Report::new(dead.into_iter().map(problem).collect()));
        }
        Ok(Self::of(rules))
    }

    fn of(rules: Vec<reach::Placed>) -> Self {
        let rules: Vec<Rule> = rules.into_iter().map(|placed| placed.rule).collect();
        Self(Arc::new(Rules {
            index: Index::new(rules.iter().map(|rule| &rule.clients)),
            rules,
        }))
    }

    /// Reads the permissions in the file `path`, which others must not be able to change. Blocks on reading.
    ///
    /// # Errors
    /// Why there are none, with everything that is wrong in the file.
    pub fn load(path: &Path) -> Result<Self, AclError> {
        let bytes = files::read_public(path, MAX_FILE_BYTES)?;
        let text = files::text(path, bytes)?;
        Self::parse(&path.display().to_string(), &text).map_err(AclError::Report)
    }

    /// What a client may do, for as long as it is connected. The cost is that of the rules that name it, not of all.
    pub fn permissions(&self, who: &Who<'_>) -> Permissions {
        Permissions::new(&self.0, who)
    }

    /// How many rules there are; at least one.
    #[allow(clippy::len_without_is_empty)] // There is always one.
    pub fn len(&self) -> usize {
        self.0.rules.len()
    }
}
