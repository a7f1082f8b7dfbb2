//! An upload that waits for the pod's 100 (`Expect: 100-continue`; RFC 9110, 10.1.1).

use crate::body::{Gate, RequestBody};
use http::header::EXPECT;
use http::request;
use std::pin::Pin;
use std::sync::Arc;
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

pub(super) struct Expected {
    gate: Arc<Gate>,
    /// `None`: the wait is unlimited.
    patience: Option<Pin<Box<Sleep>>>,
    open: bool,
}

impl Expected {
    /// Closes the body until a 100, if the head expects one.
    pub(super) fn from_head(head: &request::Parts, body: &mut RequestBody) -> Option<Self> {
        let expects = head.headers.get(EXPECT)?.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let gate = expects.then(|| body.hold_back()).flatten()?;
        let is_certain = head.extensions.get::<ToActivator>().is_some();
        let patience = (!is_certain).then(|| Box::pin(sleep(EXPECT_WAIT)));
        Some(Self { gate, patience, open: false })
    }

    /// Reports whether the body must not be sent yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.open
    }

    /// Opens the body: the pod asked for it, or the wait is over.
    pub(super) fn open(&mut self) {
        self.open = true;
        self.gate.open();
    }

    /// Opens the body when the wait is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if self.is_waiting()
            && let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            self.open();
        }
    }
}
