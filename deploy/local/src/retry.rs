//! Retries calls to an API server until it responds.
//!
//! A server that restarts, is overloaded or is unreachable for a while must not end the program. A rejected call does
//! end it, since the same call would be rejected again.

use common_runtime::failure_log::FailureLog;
use std::fmt::Display;
use std::time::Duration;

/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// Attempts at one operation, with growing pauses.
pub(crate) struct Attempts {
    failures: FailureLog,
    pause: Duration,
}

impl Attempts {
    /// Starts with no failure. `operation` is its name in the log, such as `the binding of pod default/a`.
    pub(crate) fn new(operation: impl Into<String>) -> Self {
        Self { failures: FailureLog::for_operation(operation), pause: PAUSE.0 }
    }

    /// Records a failure, and waits before the next attempt. Cancel safe.
    pub(crate) async fn failed(&mut self, error: &impl Display) {
        self.failures.failed(error);
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE.1);
        tokio::time::sleep(pause).await;
    }

    /// Records a success.
    pub(crate) fn succeeded(&mut self) {
        self.pause = PAUSE.0;
        self.failures.recovered();
    }
}

/// Calls `attempt` until it succeeds or is rejected. `operation` is its name in the log, such as `the creation of
/// accounts`. A failed attempt may have been carried out in part, so it must be safe to repeat. Returns the rejection,
/// or another error that is not about the connection.
pub(crate) async fn until_answered<T, F>(operation: &str, mut attempt: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut attempts = Attempts::new(operation);
    loop {
        match attempt().await {
            Err(error) if is_transient(&error) => attempts.failed(&format!("{error:#}")).await,
            outcome => {
                attempts.succeeded();
                return outcome;
            }
        }
    }
}

/// Reports whether an error is about the server or the connection, and not about the request.
fn is_transient(error: &anyhow::Error) -> bool {
    let is_transient = |error: &kube::Error| match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    };
    error.chain().any(|cause| cause.downcast_ref::<kube::Error>().is_some_and(is_transient))
}
