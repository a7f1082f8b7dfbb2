//! Tests of wakes that the API server refuses while requests wait, in paused time.

use super::fixture::{ApiRequest, condition};
use super::kpa_knative as knative;
use super::kpa_knative::{PATCH, SCALE, serverless, status};
use super::kpa_standalone::sleeping;
use common_controller::Priority;
use serde_json::json;
use std::time::Duration;

const QUOTA: &str = "admission webhook \"quota\" denied the request:\n  only 3 replicas\tare left";
const REPORTED: &str = "admission webhook \"quota\" denied the request: only 3 replicas are left";
const MINUTES: Duration = Duration::from_secs(600);

fn patches(requests: &[ApiRequest]) -> Vec<Duration> {
    requests.iter().filter(|(_, line, _)| line == PATCH).map(|(at, ..)| *at).collect()
}

fn refused() -> Option<(&'static str, u16, &'static str)> {
    Some((PATCH, 403, QUOTA))
}

/// Asserts that retries are frequent at first, and never more than five seconds apart.
fn assert_pace(times: &[Duration], until: Duration) {
    assert!(times.len() > 100, "{} attempts", times.len());
    assert!(times[4] < Duration::from_secs(1), "{times:?}");
    let last = times.last().copied().unwrap_or_default();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default().max(until - last);
    assert!(longest <= Duration::from_millis(5100), "{longest:?} between two attempts");
}

/// Goal: while requests wait, a refused wake is retried within five seconds, however often it was refused. The API
/// server's error is in the status and in the report to activators, on one line. All of that ends when the wake is
/// accepted.
#[tokio::test(start_paused = true)]
async fn a_rejected_wake_is_retried_while_requests_wait() {
    assert_eq!(PATCH, format!("PATCH {SCALE}"));
    let mut f = sleeping();
    f.decides(Some(1), -1);
    f.cx.stores.index.queue.add(f.key.clone(), Priority::Urgent);
    let requests = f.work_for(MINUTES, refused()).await;
    assert_pace(&patches(&requests), MINUTES);
    assert_eq!(condition(&f.status(), "Ready"), ("False".into(), "FailedUpdateScale".into(), REPORTED.into()));

    let backend = f.reported_backend().await;
    assert_eq!(backend.wake_refused.as_deref(), Some(REPORTED));

    let accepted = f.work_for(Duration::from_secs(6), None).await;
    assert_eq!(patches(&accepted).len(), 1, "{accepted:?}");
    assert_ne!(condition(&f.status(), "Ready").1, "FailedUpdateScale", "{accepted:?}");
    assert_eq!(f.reported_backend().await.wake_refused, None);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_wake_is_not_retried_once_no_request_waits() {
    let mut f = sleeping();
    f.decides(Some(1), -1);
    f.cx.stores.index.queue.add(f.key.clone(), Priority::Urgent);
    let requests = f.work_for(Duration::from_secs(60), refused()).await;
    assert!(patches(&requests).len() > 10);
    f.decides(Some(0), -1);
    let requests = f.work_for(Duration::from_secs(60), refused()).await;
    assert!(patches(&requests).is_empty(), "{requests:?}");
    assert_eq!(f.reported_backend().await.wake_refused, None);
}

/// Goal: in a Knative install the pace is the same, and objects contain nothing that Knative's do not.
#[tokio::test(start_paused = true)]
async fn a_knative_install_retries_at_the_same_pace_without_conditions_of_ours() {
    let asleep = status("False", "NoTraffic", 3600, 0, 0);
    let mut f = knative::settled(json!({}), asleep, serverless("Proxy", 2, "pa"), 0, 0, Some(1), -1);
    f.cx.stores.index.queue.add(f.key.clone(), Priority::Urgent);
    let requests = f.work_for(MINUTES, refused()).await;
    assert_pace(&patches(&requests), MINUTES);
    let mut statuses = requests.iter().filter(|(_, line, _)| line.ends_with("podautoscalers/hello/status"));
    assert!(statuses.all(|(_, _, body)| condition(body, "AbleToScale").0.is_empty()), "{requests:?}");
}
