//! The program as operators and scripts run it: arguments in, text or JSON and an exit code out.

#![allow(clippy::unwrap_used)] // In the helpers of tests as in the tests.

mod access;
mod agreement;
mod check;
mod colours;
mod documents;
mod explain;
mod gateway_files;
mod hostile;
mod passwd;
mod program;
mod samples;
mod subscribe;
