//! Deadline of a request's head, or of a header block of HTTP/2. It runs from the first byte that was read, not from the
//! end of the previous request: a client would lose a request that crosses the close of its idle connection on the wire.
//!
//! hyper's own timeout starts as soon as it waits for a head, so it is not used. The first byte of a connection has its
//! own deadline ([`crate::server::connection`]).

use crate::limits::HEAD_TIMEOUT;
use std::io;
use std::pin::Pin;
use std::task::Context;
use tokio::time::{Sleep, sleep};

/// Timer of an unfinished head.
#[derive(Debug, Default)]
pub(crate) struct HeadDeadline(Option<Pin<Box<Sleep>>>);

impl HeadDeadline {
    /// Checks the deadline of a head that `is_unfinished`. The task is woken when it passes.
    ///
    /// # Errors
    /// The head has been unfinished since the first of these calls, for too long.
    pub(crate) fn check(&mut self, cx: &mut Context<'_>, is_unfinished: bool) -> io::Result<()> {
        if !is_unfinished {
            self.0 = None;
            return Ok(());
        }
        match self.0.get_or_insert_with(|| Box::pin(sleep(HEAD_TIMEOUT))).as_mut().poll(cx).is_ready() {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "a head did not end within 60 s")),
            false => Ok(()),
        }
    }
}
