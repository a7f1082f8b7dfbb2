//! Signal handling of `local`: the first signal shuts down in order, the second one at once. Neither leaves anything
//! behind.

use crate::{node, up};
use common_runtime::shutdown;
use procfs::process::Process;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGINT, SIGTERM or SIGHUP cancels. A second SIGINT or SIGTERM kills all pods, removes
/// the folder and exits with code 1.
///
/// A closed terminal often sends SIGHUP twice, once from the kernel and once from the shell, so a second SIGHUP has no
/// effect. SIGHUP stays ignored if it was ignored at the start, as by `nohup`. Fails if the handlers cannot be
/// installed.
pub fn token() -> io::Result<CancellationToken> {
    let token = shutdown::signal_token(|| {
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

/// Reports whether SIGHUP is ignored. Bit n - 1 of the kernel's mask is signal n.
fn is_hangup_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}
