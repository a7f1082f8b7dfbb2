//! Data of a stream coming in ([`Received`]) and going out ([`Sending`]), for connections that use `h2` directly.
//!
//! Connections to pods do ([`connection`]). hyper's client passes each request to a dispatcher, then to a task that
//! waits for its head, and the response back through a channel. That would be a seventh of the cost of an h2c request
//! here. Clients' connections use hyper: its server spawns one task per request, and bypassing it gained nothing.

pub(crate) mod connection;
mod exchange;
mod received;
mod sending;

pub(crate) use exchange::Failed;
pub(crate) use received::Received;
pub(crate) use sending::Sending;

use http::header::{CONTENT_LENGTH, HeaderMap};
use std::error::Error;

/// Returns the length of the body in a head, if there is a valid one.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the reset code for a stream that ends with `error`: the code of the other side if a stream error caused it.
fn reason_of(error: &(dyn Error + 'static)) -> h2::Reason {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(reason) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return reason;
        }
        next = error.source();
    }
    h2::Reason::INTERNAL_ERROR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the body broke off")]
    struct BodyFailure(#[source] h2::Error);

    #[test]
    fn the_reset_code_of_a_stream_error_is_kept() {
        let cancelled = || h2::Error::from(h2::Reason::CANCEL);
        assert_eq!(reason_of(&cancelled()), h2::Reason::CANCEL);
        assert_eq!(reason_of(&BodyFailure(cancelled())), h2::Reason::CANCEL);
        assert_eq!(reason_of(&std::fmt::Error), h2::Reason::INTERNAL_ERROR);
    }
}
