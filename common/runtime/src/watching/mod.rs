//! Self-healing watches: every change of the objects of one kind, for as long as the stream is read.
//!
//! A watch that cannot be established, or breaks, is retried with growing delays of at most 10 s, because no workload
//! can be woken meanwhile. The last known state stays in force. Failures go to a [`FailureLog`], not to the reader,
//! which could do nothing about them. Failures that affect all requests, and missing permissions, are logged only by
//! [`crate::api_server`].

mod several;

use crate::api_server;
use crate::failure_log::FailureLog;
use crate::namespaces::Reach;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff};
use kube::runtime::{WatchStreamExt, watcher as watch_of};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use several::Several;
use std::fmt::Debug;
use std::time::Duration;

/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Objects per page of a list. A page is decoded as a whole: small pages keep the heap small, in which the retained
/// data is scattered. kube's default is 500.
const PAGE: u32 = 100;

/// Events of objects, and errors that currently prevent them.
pub type Attempts<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

/// Kind of objects that can be watched.
pub trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + 'static {}

impl<K: Resource + Clone + Debug + DeserializeOwned + Send + 'static> Watched for K {}

/// Streams all events of the objects of `reach` that `config` selects. Never ends.
pub fn watch<K: Watched>(reach: impl Into<Reach<K>>, config: watcher::Config) -> BoxStream<'static, watcher::Event<K>> {
    attempts(reach, config).filter_map(|event| std::future::ready(event.ok())).boxed()
}

/// Streams the same as [`watch`], plus errors, for a reader that reports them elsewhere. They have already been logged.
pub fn attempts<K: Watched>(reach: impl Into<Reach<K>>, config: watcher::Config) -> Attempts<K> {
    let Reach(mut apis) = reach.into();
    if apis.len() == 1
        && let Some(api) = apis.pop()
    {
        return watch_one(api, config);
    }
    let mut several = Several::with_parts(apis.len());
    let numbered = |(number, api)| watch_one(api, config.clone()).map(move |event| (number, event)).boxed();
    let all = stream::select_all(apis.into_iter().enumerate().map(numbered));
    all.flat_map(move |(number, event)| stream::iter(several.take(number, event))).boxed()
}

fn watch_one<K: Watched>(api: Api<K>, config: watcher::Config) -> Attempts<K> {
    let mut failures = FailureLog::for_operation(format!("the watch of {}", kind(&api)));
    // kube announces each list before it requests it, and any event resets the back-off. So the pauses of a list that
    // always fails would not grow. Therefore the announcement is delayed until the list's first result.
    let mut is_begun = false;
    let events = watch_of(api, config.page_size(PAGE)).flat_map(move |result| {
        let events = match result {
            Ok(watcher::Event::Init) => {
                is_begun = true;
                [None, None]
            }
            Ok(event) if std::mem::take(&mut is_begun) => [Some(Ok(watcher::Event::Init)), Some(Ok(event))],
            result => [None, Some(result)],
        };
        stream::iter(events.into_iter().flatten())
    });
    events
        .backoff(CappedBackoff(DefaultBackoff::default()))
        .inspect(move |result| match result {
            Ok(_) => failures.recovered(),
            Err(error) if is_reported(error) => tracing::debug!(%error, "a watch failed and will be repeated"),
            Err(error) => failures.failed(error),
        })
        .boxed()
}

/// Kubernetes' own pauses, from 0.8 s up to [`PAUSE_MAX`].
struct CappedBackoff(DefaultBackoff);

impl Iterator for CappedBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(PAUSE_MAX))
    }
}

impl Backoff for CappedBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Reports whether the client of the API server logs the error.
fn is_reported(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            api_server::is_reported(error) || matches!(error, kube::Error::Api(status) if status.code == 404)
        }
        watcher::Error::WatchFailed(error) => api_server::is_reported(error),
        _ => false,
    }
}

/// Reports whether a list is rejected for a missing permission.
pub(crate) fn is_denied(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

/// Returns the plural of the kind, which is the last part of the watch's path.
fn kind<K: Resource>(api: &Api<K>) -> &str {
    api.resource_url().rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{failure, mock_api};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    /// Goal: a rejected list is retried at growing intervals, and yet soon after the permission is granted. The reader
    /// gets the list's beginning, objects and end.
    #[tokio::test(start_paused = true)]
    async fn a_rejected_list_is_retried_at_growing_intervals() {
        const DENIED: Duration = Duration::from_secs(120);
        let (start, requests) = (Instant::now(), Arc::<AtomicUsize>::default());
        let counted = requests.clone();
        let client = mock_api(move |_| {
            if start.elapsed() < DENIED {
                counted.fetch_add(1, Ordering::Relaxed);
                return failure(403);
            }
            let (metadata, map) = (json!({"resourceVersion": "1"}), json!({"metadata": {"name": "a"}}));
            Some((200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": [map]})))
        });
        let api: Api<ConfigMap> = Api::all(client);
        let mut events = watch(api, watcher::Config::default());
        let first = events.next().await.expect("it does not end");
        let (took, requests) = (start.elapsed(), requests.load(Ordering::Relaxed));
        assert!(matches!(first, watcher::Event::Init), "{first:?}");
        assert!((DENIED..DENIED + PAUSE_MAX + Duration::from_secs(1)).contains(&took), "{took:?}");
        assert!((10..=30).contains(&requests), "{requests}");
        let second = events.next().await.expect("it does not end");
        assert!(matches!(&second, watcher::Event::InitApply(map) if map.name_any() == "a"), "{second:?}");
        let third = events.next().await.expect("it does not end");
        assert!(matches!(third, watcher::Event::InitDone), "{third:?}");
    }
}
