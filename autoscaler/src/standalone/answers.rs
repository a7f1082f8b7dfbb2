//! What activators answer without a pod, with the texts that stand in ConfigMaps.
//!
//! Only ConfigMaps with a label of ours are read, of every namespace; what a ZeroScaler names is one of its own namespace.
//! A text that is not there, or too large, leaves an answer without it: the page is the activator's own then, any other
//! answer has no body; the condition `AnswersResolved` says so, and the workload is served as ever.
//!
//! # Bounds
//!
//! A text stands in the status of each ZeroScaler that names it, and in every plane: one ConfigMap that many name would
//! fill them all. So the texts of one object are bounded, and so are those of a namespace. What stands in the objects
//! themselves counts first and is always sent. Texts from ConfigMaps that do not fit then are left out: of an object
//! single ones, in their order; of a namespace all those of an object, by name. What comes after and fits is sent.
//! Every replica knows all objects, and decides alike.
//!
//! ConfigMaps are kept up to a bound of their namespace, the first by name, whoever names them; of a text that is too
//! large to be sent its size is. What had to be dropped is read again when there is room ([`Texts::fill`]).

use common::RevisionKey as Key;
use common::names;
use common_api::zeroscaler::answers::{BODY_BYTES_MAX, STATIC_BODY_BYTES_MAX};
use common_api::zeroscaler::{Answers, FixedResponse, TextSource, Wake};
use common_controller::changes::{self, Change};
use common_controller::key_of;
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// There is no such ConfigMap, or it lacks the label or the key.
const TEXT_NOT_FOUND: &str = "TextNotFound";
/// The text is larger than what is sent, or than what is left of a bound.
const TEXT_TOO_LARGE: &str = "TextTooLarge";

/// Most bytes of the texts of one ZeroScaler.
const OBJECT_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of the texts of all ZeroScalers of a namespace.
const NAMESPACE_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes that are kept of the ConfigMaps of a namespace.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a key of a ConfigMap takes besides its own bytes and those of its text.
const KEY_BYTES: usize = 64;
/// Longest time that a ConfigMap may take to be read again: no other change is taken in meanwhile.
const READ_MAX: Duration = Duration::from_secs(5);
/// How long after one that failed the next is tried.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// What is wrong: a word, and a sentence.
type Wrong = (&'static str, String);

/// ConfigMaps whose texts may be sent, and who asks for them.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    is_listed: bool,
    namespaces: HashMap<String, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    maps: Maps,
    /// ZeroScalers that ask for texts, by name.
    askers: BTreeMap<String, Asker>,
    /// What all of them ask for.
    bytes: usize,
    /// Whether that was more than there is room for.
    was_full: bool,
}

/// By name.
type Maps = BTreeMap<String, Map>;

/// What is kept of a ConfigMap.
#[derive(Debug)]
struct Map {
    /// What its texts take while they are kept.
    bytes: usize,
    /// None: there is no room for them.
    texts: Option<BTreeMap<String, Text>>,
}

#[derive(Debug)]
enum Text {
    Whole(Box<str>),
    /// More bytes than any that is sent.
    TooLarge(usize),
}

/// A ZeroScaler that asks for texts.
#[derive(Debug)]
struct Asker {
    /// What each version asks for that may be served.
    versions: Vec<Asked>,
    /// Most bytes that one of them gets, if the namespace has room.
    bytes: usize,
    /// Most bytes that stand in one of them.
    here: usize,
    /// The namespace has no room for what it names.
    is_left_out: bool,
}

/// The texts that a version of an object asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Bytes of those that stand in it.
    here: usize,
    /// Those in ConfigMaps, in their order.
    named: Vec<Named>,
}

#[derive(Debug, PartialEq, Eq)]
struct Named {
    place: Place,
    source: TextSource,
}

/// Where in the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Page,
    Placeholder,
    Static(usize),
}

/// Why a text is not sent.
#[derive(Debug)]
enum Lack {
    Map,
    Key,
    /// The ConfigMap is not kept.
    Unkept,
    /// It alone has so many bytes.
    TooLarge(usize),
    /// With so many bytes its object has too many.
    OfObject(usize),
}

/// Answers with their texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resolved {
    /// What activators are told.
    pub(crate) answers: Answers,
    /// The first thing that is wrong, if anything.
    pub(crate) wrong: Option<Wrong>,
}

impl Texts {
    /// What `wake` asks for in a namespace; none: it names texts, and these are not known yet.
    pub(crate) fn resolve(&self, namespace: &str, wake: &Wake) -> Option<Resolved> {
        let mut resolved = Resolved { answers: wake.answers().unwrap_or_default(), wrong: None };
        let asked = asked(&resolved.answers);
        let known = self.known.read();
        if !known.is_listed && !asked.named.is_empty() {
            return None;
        }
        let none = Maps::new();
        let maps = known.namespaces.get(namespace).map_or(&none, |of_namespace| &of_namespace.maps);
        for (named, granted) in asked.named.iter().zip(grants(maps, &asked)) {
            let text = granted.inspect_err(|lack| _ = resolved.wrong.get_or_insert_with(|| named.told(lack)));
            put(&mut resolved.answers, named.place, text.ok());
        }
        if let Some(page) = &mut resolved.answers.page {
            page.html = None;
        }
        responses(&mut resolved.answers).for_each(|response| response.body_from = None);
        Some(resolved)
    }

    /// The same of `wake` without the texts that it names, if its namespace has no room for them.
    pub(crate) fn bounded(&self, key: &Key, wake: &Wake, mut resolved: Resolved) -> Resolved {
        let is_left_out = {
            let known = self.known.read();
            let of_namespace = known.namespaces.get(key.namespace());
            of_namespace.and_then(|all| all.askers.get(key.name())).is_some_and(|asker| asker.is_left_out)
        };
        let answers = wake.answers().filter(|_| is_left_out);
        for named in answers.map(|answers| asked(&answers).named).unwrap_or_default() {
            put(&mut resolved.answers, named.place, None);
            resolved.wrong.get_or_insert_with(|| {
                let what = "with what stands in the ZeroScalers of its namespace, and the texts of those before it by \
                            name, its texts from ConfigMaps come to more than";
                let rule = "bytes, the most for a namespace: these are not sent";
                (TEXT_TOO_LARGE, format!("spec.wake: {what} {NAMESPACE_BYTES_MAX} {rule}"))
            });
        }
        resolved
    }

    /// Takes in the versions of a ZeroScaler that may be served; none: it is gone. Whether others of its namespace have
    /// texts now that had none, or the other way round.
    pub(crate) fn ask<'a>(&self, key: &Key, versions: impl Iterator<Item = &'a Wake>) -> bool {
        let versions = versions.filter_map(Wake::answers).map(|answers| asked(&answers));
        let versions: Vec<_> = versions.filter(|asked| *asked != Asked::default()).collect();
        let is_as_it_was = {
            let known = self.known.read();
            let before = known.namespaces.get(key.namespace());
            let before = before.and_then(|of_namespace| of_namespace.askers.get(key.name()));
            before.map_or(versions.is_empty(), |before| before.versions == versions)
        };
        !is_as_it_was && self.of_namespace(key.namespace(), |of_namespace| of_namespace.ask(key.name(), versions))
    }

    /// Takes in one as it is now; none: it is gone.
    pub(super) fn apply(&self, namespace: &str, name: &str, data: Option<BTreeMap<String, String>>) {
        let map = data.map(Map::of);
        self.of_namespace(namespace, |of_namespace| of_namespace.apply(name, map));
    }

    /// Changes what is known of a namespace.
    fn of_namespace<T>(&self, name: &str, change: impl FnOnce(&mut Namespace) -> T) -> T {
        let namespaces = &mut self.known.write().namespaces;
        let of_namespace = namespaces.entry(name.to_owned()).or_default();
        let changed = change(of_namespace);
        if of_namespace.maps.is_empty() && of_namespace.askers.is_empty() {
            namespaces.remove(name);
        }
        changed
    }

    /// The first ConfigMap of a namespace that is to be read again.
    fn unread(&self, namespace: &str) -> Option<String> {
        unread(&self.known.read().namespaces.get(namespace)?.maps).cloned()
    }

    /// Reads again what there is room for since others have gone. Whether that went well.
    async fn fill(&self, client: &Client, namespace: &str) -> bool {
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        while let Some(name) = self.unread(namespace) {
            let one = ListParams::default().labels(&selector()).fields(&format!("metadata.name={name}"));
            let read = timeout(READ_MAX, api.list(&one)).await;
            match read.map_or_else(|late| Err(late.to_string()), |read| read.map_err(|error| error.to_string())) {
                Ok(list) => {
                    let found = list.items.into_iter().find(|map| key_of(map).name() == name);
                    self.apply(namespace, &name, found.map(|map| map.data.unwrap_or_default()));
                }
                Err(error) => {
                    tracing::debug!(namespace, config_map = name, error, "could not be read again");
                    return false;
                }
            }
        }
        true
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
        let (texts, client, shutdown) = (self.clone(), client.clone(), shutdown.clone());
        let config = watcher::Config::default().labels(&selector());
        let mut changes = changes::watch(namespaces.reach::<ConfigMap>(&client), config);
        tokio::spawn(async move {
            // Namespaces of which one could not be read again, and when the first of them is tried.
            let (mut unread, mut next) = (VecDeque::<String>::new(), Instant::now());
            loop {
                let namespace = tokio::select! {
                    change = changes.next() => {
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
                        key.namespace().to_owned()
                    }
                    () = sleep_until(next), if !unread.is_empty() => unread.pop_front().unwrap_or_default(),
                    () = shutdown.cancelled() => return,
                };
                // One that failed waits for its turn, lest each change there waits for it.
                if !unread.contains(&namespace) {
                    let is_whole = tokio::select! {
                        is_whole = texts.fill(&client, &namespace) => is_whole,
                        () = shutdown.cancelled() => return,
                    };
                    if !is_whole {
                        unread.push_back(namespace.clone());
                        next = Instant::now() + READ_AGAIN;
                    }
                }
                concern(&namespace);
            }
        });
    }
}

/// Which ConfigMaps are read.
fn selector() -> String {
    format!("{}=true", names::RESPONSE)
}

impl Namespace {
    /// Takes in a ConfigMap; none: it is gone.
    fn apply(&mut self, name: &str, map: Option<Map>) {
        match map {
            Some(map) => _ = self.maps.insert(name.to_owned(), map),
            None => _ = self.maps.remove(name),
        }
        let mut changed = drop_beyond(&mut self.maps);
        changed.push(name.to_owned());
        for asker in self.askers.values_mut().filter(|asker| asker.names(&changed)) {
            self.bytes -= asker.bytes;
            asker.bytes = most_bytes(&self.maps, &asker.versions);
            self.bytes += asker.bytes;
        }
        self.settle(None);
    }

    /// Takes in what a ZeroScaler asks for. Whether that changes who else gets it.
    fn ask(&mut self, name: &str, versions: Vec<Asked>) -> bool {
        self.bytes -= self.askers.remove(name).map_or(0, |before| before.bytes);
        if !versions.is_empty() {
            let bytes = most_bytes(&self.maps, &versions);
            let here = versions.iter().map(|asked| asked.here).max().unwrap_or_default();
            self.bytes += bytes;
            self.askers.insert(name.to_owned(), Asker { versions, bytes, here, is_left_out: false });
        }
        self.settle(Some(name))
    }

    /// Finds out who is left out. Whether that has changed of anybody but `asking`.
    fn settle(&mut self, asking: Option<&str>) -> bool {
        let is_full = self.bytes > NAMESPACE_BYTES_MAX;
        if !mem::replace(&mut self.was_full, is_full) && !is_full {
            return false; // Mostly there is room, and nobody has to be counted.
        }
        let mut sum = self.askers.values().map(|asker| asker.here).sum::<usize>();
        let mut has_changed = false;
        for (name, asker) in &mut self.askers {
            let named = asker.bytes - asker.here;
            let is_left_out = named > 0 && sum + named > NAMESPACE_BYTES_MAX;
            sum += if is_left_out { 0 } else { named };
            let was_left_out = mem::replace(&mut asker.is_left_out, is_left_out);
            has_changed |= was_left_out != is_left_out && asking != Some(name.as_str());
        }
        has_changed
    }
}

/// The first ConfigMap for which there is no room.
fn first_unkept(maps: &Maps) -> Option<&String> {
    let mut sum = 0_usize;
    let found = maps.iter().find(|(_, map)| {
        sum += map.bytes;
        sum > KEPT_BYTES_MAX
    });
    found.map(|(name, _)| name)
}

/// The first that is not kept though there is room for it.
fn unread(maps: &Maps) -> Option<&String> {
    let (name, _) = maps.iter().find(|(_, map)| map.texts.is_none())?;
    first_unkept(maps).is_none_or(|first| name < first).then_some(name)
}

/// Drops the texts for which there is no room. Returns whose.
fn drop_beyond(maps: &mut Maps) -> Vec<String> {
    let Some(first) = first_unkept(maps).cloned() else { return Vec::new() };
    let beyond = maps.range_mut(first..);
    beyond.filter_map(|(name, map)| map.texts.take().map(|_| name.clone())).collect()
}

impl Map {
    fn of(data: BTreeMap<String, String>) -> Self {
        let texts: BTreeMap<_, _> = data.into_iter().map(|(key, text)| (key, Text::of(text))).collect();
        let bytes = texts.iter().map(|(key, text)| KEY_BYTES + key.len() + text.kept().len()).sum();
        Self { bytes, texts: Some(texts) }
    }
}

impl Text {
    fn of(text: String) -> Self {
        let bytes = text.len();
        if bytes > BODY_BYTES_MAX { Self::TooLarge(bytes) } else { Self::Whole(text.into_boxed_str()) }
    }

    /// What is kept of it.
    fn kept(&self) -> &str {
        match self {
            Self::Whole(text) => text,
            Self::TooLarge(_) => "",
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::TooLarge(bytes) => *bytes,
        }
    }
}

impl Asker {
    /// Whether it names one of these ConfigMaps.
    fn names(&self, maps: &[String]) -> bool {
        self.versions.iter().flat_map(|asked| &asked.named).any(|named| maps.contains(&named.source.config_map))
    }
}

/// The texts that answers ask for.
fn asked(answers: &Answers) -> Asked {
    let mut asked = Asked::default();
    if let Some(source) = answers.page.as_ref().and_then(|page| page.html.clone()) {
        asked.named.push(Named { place: Place::Page, source });
    }
    let placeholder = answers.placeholder.iter().map(|placeholder| (Place::Placeholder, &placeholder.response));
    let fixed = answers.fixed.iter().enumerate().map(|(index, fixed)| (Place::Static(index), &fixed.response));
    for (place, response) in placeholder.chain(fixed) {
        match response.body_from.clone() {
            Some(source) => asked.named.push(Named { place, source }),
            None => asked.here += response.body.len(),
        }
    }
    asked
}

/// What an object gets of the texts that it names, in their order.
fn grants<'a>(maps: &'a Maps, asked: &'a Asked) -> impl Iterator<Item = Result<&'a str, Lack>> {
    let mut sum = asked.here;
    asked.named.iter().map(move |named| {
        let text = named.find(maps)?;
        if sum + text.len() > OBJECT_BYTES_MAX {
            return Err(Lack::OfObject(text.len()));
        }
        sum += text.len();
        Ok(text)
    })
}

/// Most bytes that one of these versions gets.
fn most_bytes(maps: &Maps, versions: &[Asked]) -> usize {
    let bytes = |asked: &Asked| asked.here + grants(maps, asked).flatten().map(str::len).sum::<usize>();
    versions.iter().map(bytes).max().unwrap_or_default()
}

impl Named {
    /// It, if it may be sent.
    fn find<'a>(&self, maps: &'a Maps) -> Result<&'a str, Lack> {
        let map = maps.get(&self.source.config_map).ok_or(Lack::Map)?;
        let texts = map.texts.as_ref().ok_or(Lack::Unkept)?;
        let text = texts.get(&self.source.key).ok_or(Lack::Key)?;
        let bytes = text.bytes();
        if bytes > self.place.most() { Err(Lack::TooLarge(bytes)) } else { Ok(text.kept()) }
    }

    /// What is told of one that is not sent.
    fn told(&self, lack: &Lack) -> Wrong {
        let label = names::RESPONSE;
        let TextSource { config_map: map, key } = &self.source;
        let (reason, what) = match lack {
            Lack::Map => (TEXT_NOT_FOUND, format!("there is no ConfigMap {map:?} with the label {label}: \"true\"")),
            Lack::Key => (TEXT_NOT_FOUND, format!("ConfigMap {map:?} has no key {key:?}")),
            Lack::Unkept => {
                let what =
                    format!("with those of the label {label} before it by name ConfigMap {map:?} comes to more than");
                let rule =
                    format!("bytes, {KEY_BYTES} for each key included, the most for a namespace: it is not read");
                (TEXT_TOO_LARGE, format!("{what} {KEPT_BYTES_MAX} {rule}"))
            }
            Lack::TooLarge(bytes) => {
                let most = self.place.most();
                let what = format!("key {key:?} of ConfigMap {map:?} has {bytes} bytes");
                (TEXT_TOO_LARGE, format!("{what}, at most {most} are sent"))
            }
            Lack::OfObject(bytes) => {
                let what = format!("with its {bytes} bytes the texts of this ZeroScaler come to more than");
                (TEXT_TOO_LARGE, format!("{what} {OBJECT_BYTES_MAX} bytes, the most for one: it is not sent"))
            }
        };
        (reason, format!("spec.wake.{}: {what}", self.field()))
    }

    fn field(&self) -> String {
        match self.place {
            Place::Page => "page.html".to_owned(),
            Place::Placeholder => "placeholder.response.bodyFrom".to_owned(),
            Place::Static(index) => format!("static[{index}].response.bodyFrom"),
        }
    }
}

impl Place {
    /// Most bytes of a ConfigMap's text there.
    fn most(self) -> usize {
        match self {
            Self::Page | Self::Placeholder => BODY_BYTES_MAX,
            Self::Static(_) => STATIC_BODY_BYTES_MAX,
        }
    }
}

/// Puts a text into its place; none: it is not sent.
fn put(answers: &mut Answers, place: Place, text: Option<&str>) {
    let response = match place {
        Place::Page => {
            answers.page_html = text.map(str::to_owned);
            return;
        }
        Place::Placeholder => answers.placeholder.as_mut().map(|placeholder| &mut placeholder.response),
        Place::Static(index) => answers.fixed.get_mut(index).map(|fixed| &mut fixed.response),
    };
    if let Some(response) = response {
        response.body = text.unwrap_or_default().to_owned();
    }
}

/// All that have a body.
fn responses(answers: &mut Answers) -> impl Iterator<Item = &mut FixedResponse> {
    let placeholder = answers.placeholder.as_mut().map(|placeholder| &mut placeholder.response);
    placeholder.into_iter().chain(answers.fixed.iter_mut().map(|fixed| &mut fixed.response))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::zeroscaler::StaticAnswer;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// A ConfigMap of texts that come to what one object may have, and who names them all.
    fn full() -> (Texts, Wake) {
        let texts = Texts::default();
        texts.known.write().is_listed = true;
        let data = [("page", BODY_BYTES_MAX), ("body", STATIC_BODY_BYTES_MAX)];
        texts.apply("ns", "pages", Some(data.map(|(key, bytes)| (key.to_owned(), "x".repeat(bytes))).into()));
        let one = "{match: {paths: [/a]}, response: {bodyFrom: {configMap: pages, key: body}}}";
        let all = [one; 6].join(", ");
        (texts, wake(&format!("{{page: {{html: {{configMap: pages, key: page}}}}, static: [{all}]}}")))
    }

    /// Goal: the texts of one object come to a bound, in their order, and the first beyond it is named.
    #[test]
    fn texts_of_one_object_are_bounded_together() {
        let (texts, mut wake) = full();
        assert_eq!(texts.resolve("ns", &wake).expect("known").wrong, None, "as many as may be");
        wake.fixed.push(wake.fixed[0].clone());
        wake.fixed.insert(0, StaticAnswer::default());
        wake.fixed[0].response.body = "inline".to_owned();
        let Resolved { answers, wrong } = texts.resolve("ns", &wake).expect("known");
        let bodies: Vec<_> = answers.fixed.iter().map(|fixed| fixed.response.body.len()).collect();
        let whole = STATIC_BODY_BYTES_MAX;
        assert_eq!(bodies, [6, whole, whole, whole, whole, whole, 0, 0], "what stands there counts as well");
        let (reason, message) = wrong.expect("too many");
        assert_eq!(reason, TEXT_TOO_LARGE);
        let says = "spec.wake.static[6].response.bodyFrom: with its 16384 bytes the texts of this ZeroScaler come to \
                    more than 131072 bytes";
        assert!(message.starts_with(says), "{message}");

        wake.fixed.rotate_left(1);
        wake.fixed[7].response.body = "x".repeat(OBJECT_BYTES_MAX + 1);
        let Resolved { answers, wrong } = texts.resolve("ns", &wake).expect("known");
        let bodies: Vec<_> = answers.fixed.iter().map(|fixed| fixed.response.body.len()).collect();
        let expected = (None, [0, 0, 0, 0, 0, 0, 0, OBJECT_BYTES_MAX + 1].to_vec());
        assert_eq!((answers.page_html, bodies), expected, "what stands there stays, and counts first");
        let message = wrong.expect("too many").1;
        assert!(message.starts_with("spec.wake.page.html: with its 32768 bytes "), "{message}");
    }

    /// Goal: as many ZeroScalers have their texts, by name, as the bound of their namespace has room for, whoever came
    /// first; it is news when that changes, and then alone.
    #[test]
    fn texts_of_a_namespace_go_to_the_first_by_name() {
        let (texts, wake) = full();
        let key = |name: &str| Key::new("ns", name);
        let asks = |name: &str| texts.ask(&key(name), std::iter::once(&wake));
        let goes = |name: &str| texts.ask(&key(name), std::iter::empty());
        let wrong = |key: &Key| {
            let Resolved { answers, wrong } = texts.bounded(key, &wake, texts.resolve("ns", &wake).expect("known"));
            let bodies = answers.fixed.iter().map(|fixed| fixed.response.body.len());
            let bytes = bodies.chain(answers.page_html.map(|html| html.len())).sum::<usize>();
            assert_eq!(bytes, if wrong.is_some() { 0 } else { OBJECT_BYTES_MAX }, "{key}");
            wrong
        };
        // Eight have room.
        let news = ["i", "a", "c", "b", "h", "d", "g", "e", "f"].map(asks);
        assert_eq!(news, [false, false, false, false, false, false, false, false, true]);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            assert_eq!(wrong(&key(name)), None, "{name}");
        }
        let (reason, message) = wrong(&key("i")).expect("no room");
        assert_eq!(reason, TEXT_TOO_LARGE);
        assert!(message.starts_with("spec.wake: ") && message.contains("more than 1048576 bytes"), "{message}");
        assert_eq!(wrong(&Key::new("other", "z")), None, "another namespace");
        let plain = texts.resolve("ns", &Wake::default()).expect("needs none");
        assert_eq!(texts.bounded(&key("i"), &Wake::default(), plain.clone()), plain, "it has none");

        assert!(!asks("c"), "as it was");
        assert!(goes("c"));
        assert_eq!(wrong(&key("i")), None);
        assert!(!goes("c"), "it has gone before");
        assert!(asks("c"));
        assert!(wrong(&key("i")).is_some());
        // Of a former version that is served the larger counts.
        assert!(texts.ask(&key("c"), [&Wake::default()].into_iter()));
        assert!(texts.ask(&key("c"), [&Wake::default(), &wake].into_iter()));
        texts.apply("ns", "pages", None);
        let nobody = texts.known.read().namespaces["ns"].askers.values().all(|asker| !asker.is_left_out);
        assert!(nobody, "nothing is left of it");
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            goes(name);
        }
        assert!(texts.known.read().namespaces.is_empty());
    }

    /// Goal: who does not fit into a namespace is skipped alone, and keeps what stands in the object itself, which
    /// counts before all that is named.
    #[test]
    fn whoever_does_not_fit_into_a_namespace_is_skipped_alone() {
        let (texts, large) = full();
        let inline = |bytes: usize| {
            let mut wake = Wake::default();
            wake.fixed.push(StaticAnswer::default());
            wake.fixed[0].response.body = "x".repeat(bytes);
            wake
        };
        let mut small = inline(6);
        small.fixed.push(large.fixed[0].clone());
        let asks = |name: &str, wake: &Wake| texts.ask(&Key::new("ns", name), std::iter::once(wake));
        let bodies = |name: &str, wake: &Wake| {
            let resolved = texts.resolve("ns", wake).expect("known");
            let answers = texts.bounded(&Key::new("ns", name), wake, resolved).answers;
            let bodies = answers.fixed.iter().map(|fixed| fixed.response.body.len()).collect::<Vec<_>>();
            (answers.page_html.is_some(), bodies)
        };
        let whole = STATIC_BODY_BYTES_MAX;
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            assert!(!asks(name, &large));
        }
        assert!(!asks("i", &small));
        assert!(!asks("h", &large), "nobody else is concerned");
        assert_eq!(bodies("g", &large), (true, vec![whole; 6]));
        assert_eq!(bodies("h", &large), (false, vec![0; 6]));
        assert_eq!(bodies("i", &small), (false, vec![6, whole]), "after one that is too large");

        let all = inline(NAMESPACE_BYTES_MAX + 1);
        assert!(asks("z", &all));
        assert_eq!(bodies("z", &all), (false, vec![NAMESPACE_BYTES_MAX + 1]));
        assert_eq!(bodies("a", &large), (false, vec![0; 6]));
        assert_eq!(bodies("i", &small), (false, vec![6, 0]), "what stands there stays");
    }

    /// Goal: a ConfigMap that could not be read again is tried once more after a time, without any other change, and
    /// whoever follows hears of it.
    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_repeated() {
        let texts = Arc::<Texts>::default();
        for name in ["a", "b", "c", "d", "e"] {
            let data = (0..31).map(|key| (key.to_string(), "x".repeat(BODY_BYTES_MAX))).collect();
            texts.apply("ns", name, Some(data));
        }
        texts.apply("ns", "a", None);
        assert_eq!(texts.unread("ns").as_deref(), Some("e"));
        let reads = Arc::<AtomicUsize>::default();
        let asked = reads.clone();
        let client = Client::new(
            tower::service_fn(move |request: http::Request<Body>| {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let is_read = query.contains("fieldSelector");
                // The first read is never answered, as no watch is.
                let hangs = query.contains("watch=true") || (is_read && asked.fetch_add(1, Ordering::Relaxed) == 0);
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    let (name, text) = if is_read { ("e", "read") } else { ("f", "listed") };
                    let map = json!({"metadata": {"name": name, "namespace": "ns"}, "data": {"key": text}});
                    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [map]});
                    Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string().into_bytes())))
                }
            }),
            "default",
        );
        let (told, mut concerned) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |namespace: &str| drop(told.send(namespace.to_owned()));
        let (shutdown, start) = (CancellationToken::new(), Instant::now());
        texts.follow(&client, &Namespaces::default(), &shutdown, tell, || {});
        assert_eq!(concerned.recv().await.as_deref(), Some("ns"), "another has changed");
        assert_eq!((texts.unread("ns").as_deref(), start.elapsed() >= READ_MAX), (Some("e"), true));
        assert_eq!(concerned.recv().await.as_deref(), Some("ns"), "the turn of the other");
        assert!(start.elapsed() >= READ_MAX + READ_AGAIN);
        assert_eq!((texts.unread("ns"), reads.load(Ordering::Relaxed)), (None, 2));
        shutdown.cancel();
    }

    /// Goal: ConfigMaps cost no more than the bound of their namespace, named by anybody or not: the first by name are
    /// kept, and what was dropped is read again when there is room.
    #[test]
    fn config_maps_of_a_namespace_are_kept_up_to_a_bound() {
        let texts = Texts::default();
        texts.known.write().is_listed = true;
        let data =
            |keys: usize, bytes: usize| Some((0..keys).map(|key| (key.to_string(), "x".repeat(bytes))).collect());
        let kept = || {
            let known = texts.known.read();
            let maps = known.namespaces["ns"].maps.iter().filter(|(_, map)| map.texts.is_some());
            maps.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
        };
        for name in ["d", "b", "e", "c", "a"] {
            texts.apply("ns", name, data(31, BODY_BYTES_MAX)); // Some 1 MiB.
        }
        assert_eq!(kept(), "a b c d");
        assert_eq!(texts.unread("ns"), None);
        let named = |map: &str| {
            let wake = wake(&format!("{{page: {{html: {{configMap: {map}, key: \"7\"}}}}}}"));
            texts.resolve("ns", &wake).expect("known").wrong
        };
        assert_eq!(named("d"), None);
        let (reason, message) = named("e").expect("not kept");
        assert_eq!(reason, TEXT_TOO_LARGE);
        assert!(
            message.starts_with("spec.wake.page.html: ") && message.contains("more than 4194304 bytes"),
            "{message}"
        );

        texts.apply("ns", "b", None);
        assert_eq!(texts.unread("ns").as_deref(), Some("e"));
        texts.apply("ns", "e", data(31, BODY_BYTES_MAX));
        assert_eq!((kept().as_str(), texts.unread("ns")), ("a c d e", None));
        texts.apply("ns", "0", data(70_000, 0));
        assert_eq!((kept().as_str(), texts.unread("ns")), ("", None), "keys cost as well");
        texts.apply("ns", "0", None);
        assert_eq!(texts.unread("ns").as_deref(), Some("a"));

        texts.apply("large", "one", data(1, 1 << 20));
        let bytes = texts.known.read().namespaces["large"].maps["one"].bytes;
        assert!(bytes < 100, "{bytes}: of a text that nobody is sent its size is kept");
    }
}
