//! From signals to a drain: the first SIGINT or SIGTERM asks for it, the second ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT or SIGTERM cancels. A second signal exits with code 1.
///
/// # Errors
/// The handlers cannot be installed.
pub fn signal_token() -> std::io::Result<CancellationToken> {
    signal_token_with(|| {})
}

/// As [`signal_token`]. `before_exit` is called before a second signal ends the process, which drops nothing.
///
/// # Errors
/// The handlers cannot be installed.
pub fn signal_token_with(before_exit: impl Fn() + Send + 'static) -> std::io::Result<CancellationToken> {
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
                tracing::warn!(signal = name, "second signal, exiting at once");
                before_exit();
                std::process::exit(1);
            }
            tracing::info!(signal = name, "draining");
            drain.cancel();
        }
    });
    Ok(token)
}
