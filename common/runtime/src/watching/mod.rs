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
    watch_of(api, config.page_size(PAGE))
        .backoff(Pace(DefaultBackoff::default()))
        .inspect(move |result| match result {
            // `Init` only says that a list will be asked for.
            Ok(watcher::Event::Init) => {}
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
