//! How signals end `local`: in order by the first one, at once by the second, and without anything left behind by both.

use crate::{node, up};
use common_runtime::shutdown;
use procfs::process::Process;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT, SIGTERM or SIGHUP cancels. A second SIGINT or SIGTERM kills all pods, removes the
/// folder and exits with code 1.
///
/// SIGHUP comes when the terminal is closed, from the kernel and often from the shell as well, so a second one means
/// nothing. Where it is ignored, as by `nohup`, it stays so.
///
/// # Errors
/// The handlers cannot be installed.
pub fn token() -> io::Result<CancellationToken> {
    let token = shutdown::signal_token_with(|| {
        node::kill_all();
        up::remove_folders();
    })?;
    if !is_hangup_ignored() {
        let (mut hangup, drain) = (signal(SignalKind::hangup())?, token.clone());
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                drain.cancel();
            }
        });
    }
    Ok(token)
}

/// Whether SIGHUP is ignored, by the kernel's mask, whose bit n - 1 is signal n.
fn is_hangup_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}
