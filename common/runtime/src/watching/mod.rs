//! Watches that mend themselves: every change of one kind of object, for as long as somebody reads.
//!
//! A watch that cannot be established, or breaks, is taken up again with growing delays, of 10 s at most: a workload
//! that sleeps cannot be woken meanwhile. What was last known stays in force. Failures go to a [`FailureLog`], not to the
//! reader, who could do nothing about them. One that all requests share, or that is for want of a right, is logged by
//! [`crate::api_server`] alone.

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

/// Objects of one answer of a list. They are decoded together: few at a time keep the heap small, in which what is kept
/// of them lies scattered. kube's own figure is 500.
const PAGE: u32 = 100;

/// What happens to objects, and why nothing is heard of them at the moment.
pub type Attempts<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

/// Everything that happens to the objects of `reach` that `config` selects. Never ends.
pub fn watch<K>(reach: impl Into<Reach<K>>, config: watcher::Config) -> BoxStream<'static, watcher::Event<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    attempts(reach, config).filter_map(|event| std::future::ready(event.ok())).boxed()
}

/// As [`watch`], for a reader who shows elsewhere why nothing comes. The errors have been logged.
pub fn attempts<K>(reach: impl Into<Reach<K>>, config: watcher::Config) -> Attempts<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let Reach(mut apis) = reach.into();
    if apis.len() == 1
        && let Some(api) = apis.pop()
    {
        return of_one(api, config);
    }
    let mut several = Several::of(apis.len());
    let numbered = |(number, api)| of_one(api, config.clone()).map(move |event| (number, event)).boxed();
    let all = stream::select_all(apis.into_iter().enumerate().map(numbered));
    all.flat_map(move |(number, event)| stream::iter(several.take(number, event))).boxed()
}

fn of_one<K>(api: Api<K>, config: watcher::Config) -> Attempts<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut failures = FailureLog::of(format!("the watch of {}", kind(&api)));
    // kube tells of each list before it asks for it, and any event makes the next pause a short one: those of a list that
    // fails every time would not grow. So the beginning is told with what comes of the list first.
    let mut is_begun = false;
    let told = watch_of(api, config.page_size(PAGE)).flat_map(move |result| {
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
    told.backoff(Pace(DefaultBackoff::default()))
        .inspect(move |result| match result {
            Ok(_) => failures.recovered(),
            Err(error) if is_reported(error) => tracing::debug!(%error, "a watch failed; will be tried again"),
            Err(error) => failures.failed(error),
        })
        .boxed()
}

/// As [`watch`], for a reader who can do something about some errors: those that `passes_on` names reach it.
pub fn watch_unless<K>(
    reach: impl Into<Reach<K>>,
    config: watcher::Config,
    passes_on: impl Fn(&watcher::Error) -> bool + Send + 'static,
) -> Attempts<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let passes = move |result: &Result<_, _>| std::future::ready(result.as_ref().err().is_none_or(&passes_on));
    attempts(reach, config).filter(passes).boxed()
}

/// Kubernetes' own pauses, from 0.8 s on, up to [`PAUSE_MAX`].
struct Pace(DefaultBackoff);

impl Iterator for Pace {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(PAUSE_MAX))
    }
}

impl Backoff for Pace {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Whether the client of the API server logs it.
fn is_reported(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            api_server::is_reported(error) || matches!(error, kube::Error::Api(status) if status.code == 404)
        }
        watcher::Error::WatchFailed(error) => api_server::is_reported(error),
        _ => false,
    }
}

/// Whether a list is refused for want of a right.
pub(crate) fn is_denied(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

/// Plural of the kind, which ends the path of the watch.
fn kind<K: Resource>(api: &Api<K>) -> &str {
    api.resource_url().rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt};
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    /// Goal: a list that is refused is asked for ever more seldom, and yet soon after the right to it has come. Its
    /// reader is told of its beginning, its objects and its end.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_asked_for_ever_more_seldom() {
        const DENIED: Duration = Duration::from_secs(120);
        let (start, asked) = (Instant::now(), Arc::<AtomicUsize>::default());
        let counted = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let (code, body) = if start.elapsed() < DENIED {
                counted.fetch_add(1, Ordering::Relaxed);
                (403, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": "no"}))
            } else {
                let (metadata, map) = (json!({"resourceVersion": "1"}), json!({"metadata": {"name": "a"}}));
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": [map]}))
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.expect("a response")) }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "default"));
        let mut events = watch(api, watcher::Config::default());
        let first = events.next().await.expect("it does not end");
        let (took, asked) = (start.elapsed(), asked.load(Ordering::Relaxed));
        assert!(matches!(first, watcher::Event::Init), "{first:?}");
        assert!((DENIED..DENIED + PAUSE_MAX + Duration::from_secs(1)).contains(&took), "{took:?}");
        assert!((10..=30).contains(&asked), "{asked}");
        let second = events.next().await.expect("it does not end");
        assert!(matches!(&second, watcher::Event::InitApply(map) if map.name_any() == "a"), "{second:?}");
        let third = events.next().await.expect("it does not end");
        assert!(matches!(third, watcher::Event::InitDone), "{third:?}");
    }
}
