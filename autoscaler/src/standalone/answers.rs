//! What activators answer without a pod, with the texts that stand in ConfigMaps.
//!
//! Only ConfigMaps with a label of ours are read, of every namespace; what a ZeroScaler names is one of its own namespace.
//! A text that is not there, or too large, leaves an answer without it: the page is the activator's own then, any other
//! answer has no body; the condition `AnswersResolved` says so, and the workload is served as ever.

use common::names;
use common_api::zeroscaler::answers::{BODY_BYTES_MAX, STATIC_BODY_BYTES_MAX};
use common_api::zeroscaler::{Answers, FixedResponse, TextSource, Wake};
use common_controller::changes::{self, Change};
use common_controller::key_of;
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::runtime::watcher;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// There is no such ConfigMap, or it lacks the label or the key.
const TEXT_NOT_FOUND: &str = "TextNotFound";
/// The text is larger than what is sent.
const TEXT_TOO_LARGE: &str = "TextTooLarge";

/// ConfigMaps whose texts may be sent.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    is_listed: bool,
    /// By namespace, then by name.
    maps: HashMap<String, BTreeMap<String, BTreeMap<String, String>>>,
}

/// Answers with their texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resolved {
    /// What activators are told.
    pub(crate) answers: Answers,
    /// The first thing that is wrong, if anything: a word, and a sentence.
    pub(crate) wrong: Option<(&'static str, String)>,
}

impl Texts {
    /// What `wake` asks for in a namespace; none: it names texts, and these are not known yet.
    pub(crate) fn resolve(&self, namespace: &str, wake: &Wake) -> Option<Resolved> {
        let mut resolved = Resolved { answers: wake.answers().unwrap_or_default(), wrong: None };
        let known = self.known.read();
        let mut text = |source: &TextSource, field: &str, most: usize| {
            let found = known.find(namespace, source, field, most);
            found.map_err(|wrong| _ = resolved.wrong.get_or_insert(wrong)).ok()
        };
        let mut is_named = false;
        let answers = &mut resolved.answers;
        if let Some(html) = answers.page.as_mut().and_then(|page| page.html.take()) {
            is_named = true;
            answers.page_html = text(&html, "page.html", BODY_BYTES_MAX);
        }
        let mut fill = |response: &mut FixedResponse, field: &str, most: usize| {
            if let Some(source) = response.body_from.take() {
                is_named = true;
                response.body = text(&source, field, most).unwrap_or_default();
            }
        };
        if let Some(placeholder) = &mut answers.placeholder {
            fill(&mut placeholder.response, "placeholder.response.bodyFrom", BODY_BYTES_MAX);
        }
        for (index, fixed) in answers.fixed.iter_mut().enumerate() {
            fill(&mut fixed.response, &format!("static[{index}].response.bodyFrom"), STATIC_BODY_BYTES_MAX);
        }
        (known.is_listed || !is_named).then_some(resolved)
    }

    /// Takes in one as it is now; none: it is gone.
    fn apply(&self, namespace: &str, name: &str, texts: Option<BTreeMap<String, String>>) {
        let maps = &mut self.known.write().maps;
        match texts {
            Some(texts) => _ = maps.entry(namespace.to_owned()).or_default().insert(name.to_owned(), texts),
            None => {
                if let Some(of_namespace) = maps.get_mut(namespace) {
                    of_namespace.remove(name);
                    if of_namespace.is_empty() {
                        maps.remove(namespace);
                    }
                }
            }
        }
    }

    /// Follows them until `shutdown`, in a task of its own, and tells `concern` of each namespace where one has changed,
    /// and `listed` once all are known.
    pub(crate) fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespaces: &Namespaces,
        shutdown: &CancellationToken,
        concern: impl Fn(&str) + Send + 'static,
        listed: impl Fn() + Send + 'static,
    ) {
        let (texts, shutdown) = (self.clone(), shutdown.clone());
        let config = watcher::Config::default().labels(&format!("{}=true", names::RESPONSE));
        let mut changes = changes::watch(namespaces.reach::<ConfigMap>(client), config);
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = shutdown.cancelled() => None,
                };
                let (key, data) = match change {
                    Some(Change::Applied(map)) => (key_of(&map), Some(map.data.unwrap_or_default())),
                    Some(Change::Gone(key)) => (key, None),
                    Some(Change::Listed) => {
                        texts.known.write().is_listed = true;
                        listed();
                        continue;
                    }
                    None => return,
                };
                texts.apply(key.namespace(), key.name(), data);
                concern(key.namespace());
            }
        });
    }
}

impl Known {
    fn find(
        &self,
        namespace: &str,
        source: &TextSource,
        field: &str,
        most: usize,
    ) -> Result<String, (&'static str, String)> {
        let TextSource { config_map, key } = source;
        let map = self.maps.get(namespace).and_then(|maps| maps.get(config_map));
        let missing = |what: String| (TEXT_NOT_FOUND, format!("spec.wake.{field}: {what}"));
        let label = names::RESPONSE;
        let map = map
            .ok_or_else(|| missing(format!("there is no ConfigMap {config_map:?} with the label {label}: \"true\"")))?;
        let text = map.get(key).ok_or_else(|| missing(format!("ConfigMap {config_map:?} has no key {key:?}")))?;
        let size = text.len();
        if size > most {
            let wrong = format!("spec.wake.{field}: key {key:?} of ConfigMap {config_map:?} has {size} bytes");
            return Err((TEXT_TOO_LARGE, format!("{wrong}, at most {most} are sent")));
        }
        Ok(text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(yaml: &str) -> Wake {
        serde_yaml_ng::from_str(yaml).expect(yaml)
    }

    const WAKE: &str = "{page: {html: {configMap: pages, key: wake.html}}, \
                         placeholder: {response: {bodyFrom: {configMap: pages, key: hold}}}, \
                         static: [{match: {paths: [/a]}, response: {body: inline}}, \
                                  {match: {paths: [/b]}, response: {bodyFrom: {configMap: pages, key: b}}}]}";

    /// Goal: texts come from the object's own namespace, and what is missing or too large is said and leaves the rest.
    #[test]
    fn texts_stand_in_config_maps_and_what_is_wrong_is_said() {
        let texts = Texts::default();
        assert_eq!(texts.resolve("ns", &wake(WAKE)), None, "not known yet");
        let inline = texts.resolve("ns", &wake("{page: {}}")).expect("needs none");
        assert_eq!((inline.answers.page_html, inline.wrong), (None, None));
        texts.known.write().is_listed = true;
        let map = |html: &str| {
            let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            Some([text("wake.html", html), text("hold", "wait"), text("b", "B")].into())
        };
        texts.apply("other", "pages", map("foreign"));
        let (reason, message) = texts.resolve("ns", &wake(WAKE)).and_then(|resolved| resolved.wrong).expect("wrong");
        assert_eq!(reason, TEXT_NOT_FOUND);
        assert!(
            message.starts_with("spec.wake.page.html: there is no ConfigMap \"pages\" with the label"),
            "{message}"
        );

        texts.apply("ns", "pages", map("<p>"));
        let Resolved { answers, wrong } = texts.resolve("ns", &wake(WAKE)).expect("known");
        assert_eq!((answers.page_html.as_deref(), wrong), (Some("<p>"), None));
        assert_eq!(answers.placeholder.expect("one").response.body, "wait");
        let bodies: Vec<_> = answers.fixed.iter().map(|fixed| fixed.response.body.as_str()).collect();
        assert_eq!(bodies, ["inline", "B"]);
        assert!(answers.fixed.iter().all(|fixed| fixed.response.body_from.is_none()));

        texts.apply("ns", "pages", map(&"x".repeat(BODY_BYTES_MAX)));
        assert_eq!(texts.resolve("ns", &wake(WAKE)).expect("known").wrong, None, "as large as may be");
        texts.apply("ns", "pages", map(&"x".repeat(BODY_BYTES_MAX + 1)));
        let Resolved { answers, wrong } = texts.resolve("ns", &wake(WAKE)).expect("known");
        let (reason, message) = wrong.expect("too large");
        assert_eq!((answers.page_html, reason), (None, TEXT_TOO_LARGE));
        assert!(message.ends_with("has 32769 bytes, at most 32768 are sent"), "{message}");
        assert_eq!(answers.fixed[1].response.body, "B", "the rest is as it was");
        texts.apply("ns", "pages", None);
        assert!(texts.resolve("ns", &wake(WAKE)).expect("known").wrong.is_some());
    }
}
