//! What comes in over the C interface, checked: pointers become slices, slices become values, panics become codes.

#![allow(unsafe_code)]

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use serde::de::DeserializeOwned;

/// The call succeeded.
pub(crate) const OK: i32 = 0;
/// The connector's own code returned an error.
pub(crate) const FAILED: i32 = 1;
/// The host called the function wrongly, or the call met a panic.
pub(crate) const MISUSE: i32 = -1;

/// Why something that the host passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("the host passed a null pointer for the {what}, with a length of {len} bytes")]
    NullPointer { what: &'static str, len: usize },
    #[error("the host passed an impossible length for the {what}: {len} bytes")]
    ImpossibleLength { what: &'static str, len: usize },
    #[error("plugin_config is not UTF-8: {0}; correct the connector's file")]
    ConfigNotUtf8(std::str::Utf8Error),
    #[error("plugin_config does not fit this connector: {0}; correct the connector's file")]
    ConfigNotJson(serde_json::Error),
    #[error(
        "the {what} cannot be decoded: {error}; is the runtime of a version that fits this plugin?"
    )]
    NotPostcard {
        what: &'static str,
        error: postcard::Error,
    },
}

/// The bytes at `ptr`. A null pointer stands for no bytes if the length says so too.
///
/// # Safety
/// If `ptr` is not null, `len` bytes must be readable there, and stay unchanged for `'a`.
pub(crate) unsafe fn bytes<'a>(
    what: &'static str,
    ptr: *const u8,
    len: usize,
) -> Result<&'a [u8], InputError> {
    if len == 0 {
        return Ok(&[]);
    }
    if ptr.is_null() {
        return Err(InputError::NullPointer { what, len });
    }
    if isize::try_from(len).is_err() {
        return Err(InputError::ImpossibleLength { what, len });
    }
    // SAFETY: the pointer is not null, the length is not above isize::MAX, bytes need no alignment, and the caller
    // promises that they are readable and unchanged for 'a.
    Ok(unsafe { std::slice::from_raw_parts(ptr, len) })
}

/// The connector's configuration, which always arrives as JSON.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn config<C: DeserializeOwned>(
    ptr: *const u8,
    len: usize,
) -> Result<C, InputError> {
    // SAFETY: the caller's promise is the one that `bytes` asks for; the slice does not leave this function.
    let config = unsafe { bytes("configuration", ptr, len) }?;
    let config = std::str::from_utf8(config).map_err(InputError::ConfigNotUtf8)?;
    serde_json::from_str(config).map_err(InputError::ConfigNotJson)
}

/// A value in postcard's encoding.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn decoded<T: DeserializeOwned>(
    what: &'static str,
    ptr: *const u8,
    len: usize,
) -> Result<T, InputError> {
    // SAFETY: the caller's promise is the one that `bytes` asks for; the slice does not leave this function.
    let encoded = unsafe { bytes(what, ptr, len) }?;
    postcard::from_bytes(encoded).map_err(|error| InputError::NotPostcard { what, error })
}

/// Runs the body of an exported function; a panic in it is logged and becomes [`MISUSE`].
pub(crate) fn guard(function: &'static str, id: u32, body: impl FnOnce() -> i32) -> i32 {
    // Whatever the body may leave half done is not used afterwards: an instance whose opening or closing panicked is no
    // longer in the registry, and consuming only reads.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(code) => code,
        Err(panic) => {
            tracing::error!(id, function, "connector panicked: {}", panic_text(&*panic));
            MISUSE
        }
    }
}

/// Drives a future whose panic must not end the task that awaits it; the error is the panic's text.
pub(crate) async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    std::future::poll_fn(move |cx| {
        // After a panic the future is not polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "(a panic without a text)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_pointer_is_no_bytes_only_if_the_length_is_zero() {
        // SAFETY: null pointers and impossible lengths are refused before anything is read.
        unsafe {
            assert_eq!(bytes("x", std::ptr::null(), 0).unwrap(), b"");
            assert!(matches!(
                bytes("x", std::ptr::null(), 1),
                Err(InputError::NullPointer { len: 1, .. })
            ));
            let one = 7_u8;
            assert!(matches!(
                bytes("x", &raw const one, usize::MAX),
                Err(InputError::ImpossibleLength { .. })
            ));
            assert_eq!(bytes("x", &raw const one, 1).unwrap(), [7]);
        }
    }

    #[test]
    fn a_panic_becomes_minus_one() {
        assert_eq!(guard("f", 1, || panic!("gone")), -1);
        assert_eq!(guard("f", 1, || 5), 5);
    }

    #[tokio::test]
    async fn a_panic_in_a_future_becomes_its_text() {
        let panicking = async {
            tokio::task::yield_now().await;
            panic!("gone {}", 7)
        };
        assert_eq!(
            catch_panic::<_>(panicking).await,
            Err::<(), _>("gone 7".to_owned())
        );
        assert_eq!(catch_panic(async { 5 }).await, Ok(5));
    }
}
