//! An activator for suites in other languages: a process that reports its address, and on command removes and adds the
//! pod of its revision.
//!
//! The process reads one command per line, and prints `done` once the command is complete:
//!
//! | command | effect |
//! |---|---|
//! | `sleep` | removes the pod |
//! | `held` | waits until a request is held |
//! | `wake` | adds the pod again |
//! | `idle` | waits until no request runs or is held |

use crate::rig::Rig;
use anyhow::Context;
use common::backend::Protocol;
use std::net::SocketAddr;
use tokio::sync::mpsc;

/// Serves until the input ends. The revision has the host `app.ns` and the hosts in `hosts`.
pub async fn run(pod: SocketAddr, protocol: Protocol, hosts: Vec<String>) -> anyhow::Result<()> {
    let rig = Rig::start(|backend| backend.protocol = protocol).await?;
    rig.hosts(&hosts).await?;
    rig.serve(&[pod]).await?;
    println!("ready {}", rig.activator.http1);
    let (sender, mut commands) = mpsc::channel(1);
    // The thread ends with the input or with the process.
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|command| sender.blocking_send(command)));
    while let Some(command) = commands.recv().await.transpose()? {
        match command.trim() {
            "sleep" => rig.sleep().await?,
            "held" => rig.until("a request is held", |load| load.queued > 0).await?,
            "wake" => rig.wake(&[pod]).await?,
            "idle" => rig.until("nothing runs", |load| (load.queued, load.in_flight) == (0, 0)).await?,
            other => return Err(anyhow::anyhow!("{other}")).context("unknown command"),
        }
        println!("done");
    }
    Ok(())
}
