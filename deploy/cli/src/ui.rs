//! The `ui` command: opens the dashboard in a browser, through a local port.

use crate::cluster::ClusterArgs;
use anyhow::Context;
use clap::Args;
use std::io::Write;
use std::process::{Command, Stdio};

/// Commands that open a page in the user's browser, in the order of preference.
const OPENERS: [&[&str]; 4] = [&["xdg-open"], &["open"], &["wslview"], &["gio", "open"]];

/// Arguments of `ui`.
#[derive(Args, Clone, Debug)]
pub struct UiArgs {
    /// Print the address without opening a browser.
    #[arg(long)]
    pub no_open: bool,
}

/// Serves the dashboard's address until Ctrl-C. Fails if the dashboard cannot be reached.
pub async fn run(place: &ClusterArgs, args: &UiArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = place.cluster().await;
    let dashboard = place.dashboard(&cluster).await?;
    dashboard.list(None).await?; // Fail before a browser opens if the dashboard does not respond.
    writeln!(out, "{}/", dashboard.address.trim_end_matches('/'))?;
    out.flush()?;
    if !args.no_open && !open(&dashboard.address) {
        eprintln!(
            "no browser could be started ({}): open the address yourself",
            OPENERS.map(|words| words[0]).join(", ")
        );
    }
    eprintln!("press Ctrl-C to stop");
    tokio::signal::ctrl_c().await.context("Ctrl-C cannot be handled")
}

/// Reports whether a browser program was started.
fn open(address: &str) -> bool {
    OPENERS.iter().any(|words| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok_and(|mut child| {
            std::thread::spawn(move || child.wait()); // Some openers run as long as the browser.
            true
        })
    })
}
