//! How many files, and so connections, processes may have open.
//!
//! Always holds: only the soft limit is raised, to at most the hard one, and what is started later inherits it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what is allowed, and says what it is then; nothing when there is none.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}
