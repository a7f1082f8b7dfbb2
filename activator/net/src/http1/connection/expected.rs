//! An upload that waits for the pod's word (`Expect: 100-continue`; RFC 9110, 10.1.1).

use crate::body::{Gate, RequestBody};
use http::header::EXPECT;
use http::request;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long the pod's 100 is waited for, as upstream.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// Marks a head that goes to another activator. Its 100 is waited for as long as it takes, since there will be one; and
/// where nobody waits for its answer any more, the connection is reset, which no half-closed one could be taken for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToActivator;

pub(super) struct Expected {
    gate: Arc<Gate>,
    /// None: it is waited for however long.
    patience: Option<Pin<Box<Sleep>>>,
    open: bool,
}

impl Expected {
    /// If a request with this head expects a 100: its body is closed until one comes.
    pub(super) fn of(head: &request::Parts, body: &mut RequestBody) -> Option<Self> {
        let expects = head.headers.get(EXPECT)?.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let gate = expects.then(|| body.hold_back()).flatten()?;
        let is_certain = head.extensions.get::<ToActivator>().is_some();
        let patience = (!is_certain).then(|| Box::pin(sleep(EXPECT_WAIT)));
        Some(Self { gate, patience, open: false })
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
        if self.is_waiting()
            && let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            self.open();
        }
    }
}
