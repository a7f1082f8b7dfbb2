//! A short run of the soak test: every kind of client succeeds, and nothing leaks. Each phase contains each kind of
//! disruption but a rollout.

use e2e::soak::{self, Plan};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn everything_at_once_leaves_nothing_behind() -> anyhow::Result<()> {
    let seconds = Duration::from_secs;
    let plan = Plan { lasts: seconds(48), early: seconds(24), look: seconds(10), rest: seconds(8) };
    let figures = soak::run(plan).await?;
    println!("{figures}");
    assert_eq!(figures.faults(), Vec::<String>::new());
    Ok(())
}
