//! How signals end `local`: in order by the first one, at once by the second, and without anything left behind by both.

use crate::{node, up};
use common_runtime::shutdown;
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
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_hangup_ignored(&status) {
        let (mut hangup, drain) = (signal(SignalKind::hangup())?, token.clone());
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                drain.cancel();
            }
        });
    }
    Ok(token)
}

/// Whether SIGHUP is ignored, by what /proc says of a process: a mask in hexadecimal, whose bit n - 1 is signal n.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_seen() {
        let rows = [("0000000000000001", true), ("0000000000001001", true), ("0000000000001000", false)];
        for (mask, is_ignored) in rows {
            let status =
                format!("Name:\tlocal\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
            assert_eq!(is_hangup_ignored(&status), is_ignored, "{mask}");
        }
        assert!(!is_hangup_ignored(""));
    }
}
