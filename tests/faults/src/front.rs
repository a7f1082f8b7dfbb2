//! An activator for suites that are not written in Rust: a process that says where it listens, and lets its revision
//! fall asleep and wake at their word.
//!
//! It reads a word a line, and says `done` when it is so:
//!
//! | word | what it does |
//! |---|---|
//! | `sleep` | takes the pod away |
//! | `held` | waits until a request is held |
//! | `wake` | brings the pod back |
//! | `idle` | waits until no request runs or is held |

use crate::rig::Rig;
use anyhow::Context;
use common::backend::Protocol;
use std::net::SocketAddr;
use tokio::sync::mpsc;

/// Serves until its input ends. The revision has the host `app.ns` and those of `hosts`.
///
/// # Errors
/// The pod does not answer, a word is none of the above, or what it says does not become so.
pub async fn run(pod: SocketAddr, protocol: Protocol, hosts: Vec<String>) -> anyhow::Result<()> {
    let rig = Rig::start(|backend| backend.protocol = protocol).await?;
    rig.hosts(&hosts).await?;
    rig.serve(&[pod]).await?;
    println!("ready {}", rig.activator.http1);
    let (sender, mut words) = mpsc::channel(1);
    // It ends with the input, or with the process.
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|word| sender.blocking_send(word)));
    while let Some(word) = words.recv().await.transpose()? {
        match word.trim() {
            "sleep" => rig.sleep().await?,
            "held" => rig.until("a request is held", |load| load.queued > 0).await?,
            "wake" => rig.wake(&[pod]).await?,
            "idle" => rig.until("nothing runs", |load| (load.queued, load.in_flight) == (0, 0)).await?,
            other => return Err(anyhow::anyhow!("{other}")).context("no such word"),
        }
        println!("done");
    }
    Ok(())
}
