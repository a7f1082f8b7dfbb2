//! An upload that waits for the pod's word (`Expect: 100-continue`; RFC 9110, 10.1.1).

use crate::body::{Gate, RequestBody};
use http::header::{EXPECT, HeaderMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long the pod's 100 is waited for, as upstream.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Expected {
    gate: Arc<Gate>,
    patience: Pin<Box<Sleep>>,
    open: bool,
}

impl Expected {
    /// If a request with these fields expects a 100: its body is closed until one comes.
    pub(super) fn of(headers: &HeaderMap, body: &mut RequestBody) -> Option<Self> {
        let expects = headers.get(EXPECT)?.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let gate = expects.then(|| body.hold_back()).flatten()?;
        Some(Self { gate, patience: Box::pin(sleep(EXPECT_WAIT)), open: false })
    }

    /// Whether nothing may be sent of it yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.open
    }

    /// The pod wants it, or has been asked for long enough.
    pub(super) fn open(&mut self) {
        self.open = true;
        self.gate.open();
    }

    /// Opens it when it has waited for long enough.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if self.is_waiting() && self.patience.as_mut().poll(cx).is_ready() {
            self.open();
        }
    }
}
