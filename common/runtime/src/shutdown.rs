//! Shutdown by signals: the first SIGINT or SIGTERM starts a drain, the second ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGINT or SIGTERM cancels. A second signal calls `before_exit`, then exits with code 1
/// without dropping anything. Fails if the handlers cannot be installed.
pub fn signal_token(before_exit: impl Fn() + Send + 'static) -> std::io::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let token = CancellationToken::new();
    let drain = token.clone();
    tokio::spawn(async move {
        for turn in 0.. {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            };
            if turn > 0 {
                tracing::warn!(signal = name, "the process received a second signal and exits at once");
                before_exit();
                std::process::exit(1);
            }
            tracing::info!(signal = name, "shutting down");
            drain.cancel();
        }
    });
    Ok(token)
}
