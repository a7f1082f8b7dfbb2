//! Runs the soak test and prints a verdict on leaked resources: see [`e2e::soak`].
//!
//! ```console
//! $ cargo build --release -p activator -p autoscaler -p local -p e2e --bins --example soak
//! $ target/release/examples/soak [MINUTES]
//! ```

use e2e::soak::{self, Plan};
use std::process::ExitCode;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let minutes = std::env::args().nth(1).map(|text| text.parse()).transpose()?.unwrap_or(60.0);
    let figures = soak::run(Plan::minutes(minutes)).await?;
    print!("{figures}");
    let faults = figures.faults();
    for fault in &faults {
        println!("FAULT {fault}");
    }
    println!("{}", if faults.is_empty() { "nothing grows" } else { "something grows or fails" });
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
