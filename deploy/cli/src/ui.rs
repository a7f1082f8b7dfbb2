//! `ui`: the live page in a browser, through a port of this machine.

use crate::cluster::Where;
use anyhow::Context;
use clap::Args;
use std::io::Write;
use std::process::{Command, Stdio};

/// Programs that open a page in the user's browser, in the order in which they are tried.
const OPENERS: [&str; 4] = ["xdg-open", "open", "wslview", "gio"];

/// What is asked of `ui`.
#[derive(Args, Clone, Debug)]
pub struct UiArgs {
    /// Print the address alone.
    #[arg(long)]
    pub no_open: bool,
}

/// Leads to the page until it is interrupted.
///
/// # Errors
/// There is no way to it.
pub async fn run(place: &Where, args: &UiArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = place.cluster().await;
    let dashboard = place.dashboard(&cluster).await?;
    dashboard.list(None).await?; // Whoever opens it should see it.
    writeln!(out, "{}/", dashboard.address.trim_end_matches('/'))?;
    out.flush()?;
    if !args.no_open && !open(&dashboard.address) {
        eprintln!("no browser could be started ({}): open the address yourself", OPENERS.join(", "));
    }
    eprintln!("Ctrl-C ends it");
    tokio::signal::ctrl_c().await.context("Ctrl-C cannot be heard")
}

/// Whether something has been started that opens the page.
fn open(address: &str) -> bool {
    OPENERS.iter().any(|program| {
        let mut command = Command::new(program);
        if *program == "gio" {
            command.arg("open");
        }
        match command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(mut child) => {
                std::thread::spawn(move || child.wait()); // Some last as long as the browser.
                true
            }
            Err(_) => false,
        }
    })
}
