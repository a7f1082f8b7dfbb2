//! Watches that mend themselves: every change of one kind of object, for as long as somebody reads.
//!
//! A watch that cannot be established, or breaks, is taken up again with growing delays; what was last known stays in
//! force meanwhile. That it fails is told as [`Trouble`], not to the reader, who could do nothing about it.

use crate::trouble::Trouble;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Everything that happens to the objects of `api` that `config` selects. Never ends.
pub fn watch<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watch_unless(api, config, |_| false).filter_map(|event| std::future::ready(event.ok())).boxed()
}

/// As [`watch`], for a reader who can do something about some errors: those that `tells` names are passed on, and
/// nothing is said of them.
pub fn watch_unless<K>(
    api: Api<K>,
    config: watcher::Config,
    tells: impl Fn(&watcher::Error) -> bool + Send + 'static,
) -> BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut trouble = Trouble::with(format!("the watch of {}", K::plural(&())));
    watcher(api, config)
        .default_backoff()
        .filter_map(move |result| {
            let event = match result {
                Ok(event) => {
                    // `Init` only says that a list will be asked for.
                    if !matches!(event, watcher::Event::Init) {
                        trouble.over();
                    }
                    Some(Ok(event))
                }
                Err(error) if tells(&error) => Some(Err(error)),
                Err(error) => {
                    trouble.failed(&error);
                    None
                }
            };
            std::future::ready(event)
        })
        .boxed()
}
