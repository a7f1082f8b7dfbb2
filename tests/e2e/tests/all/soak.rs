//! A short run of the soak test: every kind of client succeeds, and nothing leaks. Each phase contains each kind of
//! disruption but a rollout.

use e2e::soak::{self, Plan};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_short_soak_run_finds_no_leak_and_no_failure() -> anyhow::Result<()> {
    let [duration, first_rest_after, rest] = [48, 24, 8].map(Duration::from_secs);
    let figures = soak::run(Plan { duration, first_rest_after, rest }).await?;
    println!("{figures}");
    assert_eq!(figures.faults(), Vec::<String>::new());
    Ok(())
}
