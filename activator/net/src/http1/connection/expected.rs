//! An upload that waits for the pod's 100 (`Expect: 100-continue`; RFC 9110, 10.1.1).

use crate::body::RequestBody;
use http::header::EXPECT;
use http::request;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Maximum wait for the pod's 100, as upstream.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// Marker of a head that goes to another activator, which always sends a 100: the wait for it is unlimited. If the
/// exchange is dropped before the response, the connection is reset, because a plain close could be taken for a
/// half-close.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToActivator;

/// The wait for a 100, during which the body is held.
pub(super) struct Expected {
    /// `None`: the wait is unlimited.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Expected {
    /// Holds the body until a 100, if the head expects one.
    pub(super) fn from_head(head: &request::Parts, body: &mut RequestBody) -> Option<Self> {
        let expects = head.headers.get(EXPECT)?.as_bytes().eq_ignore_ascii_case(b"100-continue");
        if !expects || !body.set_held(true) {
            return None;
        }
        let is_certain = head.extensions.get::<ToActivator>().is_some();
        Some(Self { patience: (!is_certain).then(|| Box::pin(sleep(EXPECT_WAIT))) })
    }

    /// Reports whether the pod had enough time for a 100.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready())
    }
}
