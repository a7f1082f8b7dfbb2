//! Watches: streams of changes, read from the history of a table at the watcher's pace.
//!
//! A watcher is a cursor. It sleeps until its table changes, reads the changes after its cursor, and writes them out.
//! The connection's back-pressure is the only queue. A watcher that falls behind the history gets one `ERROR` event
//! with 410 and the end of the stream, and must list again. Changes are delivered as they happen, without polling.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::columns::represent;
use super::core::Api;
use super::list;
use super::media::{Body, Form, respond};
use super::query::Query;
use super::query::Selector;
use super::resource::Resource;
use super::status::{ApiError, Result};
use super::store::{Change, Object};

/// Number of changes read from the history at once.
const BATCH: usize = 256;

/// Interval of bookmarks for watchers that request them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Maximum duration of a watch in seconds: a year, since an instant cannot hold every number of seconds.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

struct Watcher {
    api: Arc<Api>,
    resource: Arc<Resource>,
    prefix: String,
    selector: Selector,
    form: Form,
    cursor: u64,
    changed: Receiver<()>,
    columns: bool,
    ready: VecDeque<Bytes>,
    /// Time of the next bookmark, if the watcher requested bookmarks.
    next_bookmark: Option<Instant>,
    deadline: Instant,
    ended: bool,
}

impl Api {
    pub(crate) fn watch(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        namespace: &str,
        selector: Selector,
        query: &Query,
        form: Form,
    ) -> Result<Response<Body>> {
        list::check_options(query, true)?;
        let version = list::version(query)?;
        let seconds = query.number::<u64>("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        // Watches without a timeout end at different times, so that their clients do not all return at once.
        let seconds = seconds.unwrap_or_else(|| rand::rng().random_range(1800..3600)).min(SECONDS_MAX);
        let now = Instant::now();
        let mut watcher = Watcher {
            api: self.clone(),
            resource: resource.clone(),
            prefix: resource.prefix(namespace),
            selector,
            form,
            cursor: version,
            changed: self.store.changed(&resource.table),
            columns: true,
            ready: VecDeque::new(),
            next_bookmark: bookmarks.then_some(now + BOOKMARK_EVERY),
            deadline: now + Duration::from_secs(seconds),
            ended: false,
        };
        match version {
            _ if query.flag("sendInitialEvents") => watcher.send_current(bookmarks),
            0 => watcher.send_current(false),
            version if version > self.store.version() => watcher.expire(),
            _ => {}
        }
        let stream = stream::unfold(watcher, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), watcher))
        });
        let mut response = respond(200, "application/json", Bytes::new());
        *response.body_mut() = StreamBody::new(stream).boxed_unsync();
        Ok(response)
    }
}

impl Watcher {
    /// Sends the current objects first, and a bookmark after them if `bookmark` is true.
    fn send_current(&mut self, bookmark: bool) {
        let (objects, version) = self.api.store.list(&self.resource.table, &self.prefix);
        self.cursor = version;
        for object in objects.iter().filter(|object| self.selector.matches(&object.value)) {
            let line = event("ADDED", &represent(&self.resource, object, self.form, std::mem::take(&mut self.columns)));
            self.ready.push_back(line);
        }
        if bookmark {
            let line = self.bookmark(json!({"k8s.io/initial-events-end": "true"}));
            self.ready.push_back(line);
        }
    }

    /// Returns the next line of the stream, or `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            self.changed.mark_unchanged();
            if self.read_changes() {
                continue;
            }
            let wake = self.next_bookmark.map_or(self.deadline, |at| at.min(self.deadline));
            tokio::select! {
                changed = self.changed.changed() => if changed.is_err() { self.expire() },
                () = self.api.shutdown.cancelled() => self.ended = true,
                () = tokio::time::sleep_until(wake) => {
                    if self.next_bookmark.is_some() {
                        let line = self.bookmark(Value::Null);
                        self.ready.push_back(line);
                        self.next_bookmark = Some(Instant::now() + BOOKMARK_EVERY);
                    }
                    self.ended = Instant::now() >= self.deadline;
                }
            }
        }
    }

    /// Reads changes from the history. Returns true if the stream may have a new line.
    fn read_changes(&mut self) -> bool {
        let Some((changes, reached)) = self.api.store.since(&self.resource.table, self.cursor, BATCH) else {
            self.expire();
            return true;
        };
        self.cursor = reached;
        for change in &changes {
            if change.key.starts_with(&self.prefix)
                && let Some(line) = self.event(change)
            {
                self.ready.push_back(line);
            }
        }
        !changes.is_empty()
    }

    /// Returns the event for this watcher. An object that starts to match the selector is added; one that stops
    /// matching is deleted.
    fn event(&mut self, change: &Change) -> Option<Bytes> {
        let before = change.previous.as_ref().is_some_and(|object| self.selector.matches(&object.value));
        let after = !change.deleted && self.selector.matches(&change.object.value);
        match (before, after, &change.previous) {
            (false, true, _) => Some(self.line("ADDED", &change.object)),
            (true, true, _) => Some(self.line("MODIFIED", &change.object)),
            (true, false, _) if change.deleted => Some(self.line("DELETED", &change.object)),
            (true, false, Some(previous)) => {
                let mut last = previous.value.clone();
                last["metadata"]["resourceVersion"] = change.object.version.to_string().into();
                Some(self.line("DELETED", &Object::new(last, change.object.version)))
            }
            _ => None,
        }
    }

    fn line(&mut self, kind: &str, object: &Object) -> Bytes {
        let columns = std::mem::take(&mut self.columns);
        event(kind, &represent(&self.resource, object, self.form, columns))
    }

    fn bookmark(&self, annotations: Value) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if !annotations.is_null() {
            metadata["annotations"] = annotations;
        }
        let (kind, version) = match self.form {
            Form::Plain => (self.resource.kind.clone(), self.resource.api_version()),
            Form::Partial => ("PartialObjectMetadata".into(), "meta.k8s.io/v1".into()),
            Form::Table(_) => ("Table".into(), "meta.k8s.io/v1".into()),
        };
        event("BOOKMARK", &json!({"kind": kind, "apiVersion": version, "metadata": metadata}))
    }

    /// Reports missed changes to the watcher, and ends the stream.
    fn expire(&mut self) {
        let error = ApiError::expired(format!("too old resource version: {}", self.cursor));
        self.ready.push_back(event("ERROR", &error.body));
        self.ended = true;
    }
}

fn event(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no number of seconds is too large for a watch.
    #[test]
    fn a_watch_accepts_any_number_of_seconds() {
        let api = Api::for_tests();
        let resource = api.registry.load().get("", "v1", "configmaps").expect("ConfigMaps");
        for seconds in [0, 1, i64::MAX.unsigned_abs(), u64::MAX] {
            let query = Query::parse(&format!("watch=1&timeoutSeconds={seconds}"));
            let all = Selector::parse(&resource, "", "").expect("a selector");
            let answer = api.watch(&resource, "", all, &query, Form::Plain);
            assert!(answer.is_ok(), "{seconds}");
        }
    }
}
