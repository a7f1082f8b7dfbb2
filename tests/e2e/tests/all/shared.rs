//! Waits that several scenarios share.

use common_api::ZeroScaler;
use e2e::TestEnv;
use e2e::test_env::SOON;

/// Waits until the ZeroScaler `name` exists and `holds` is true of it.
pub(crate) async fn until_scaler(
    env: &TestEnv,
    name: &str,
    what: &str,
    holds: impl Fn(ZeroScaler) -> bool,
) -> anyhow::Result<()> {
    let scalers = env.api::<ZeroScaler>();
    env.until(SOON, what, async || Ok(scalers.get_opt(name).await?.is_some_and(&holds))).await
}
