//! Pod selectors of all autoscalers, kept so that no two autoscalers act on the same pods.
//!
//! An autoscaler is registered when it first appears. It selects nothing until its own first reconcile has read its
//! scale. Its last selector counts until the autoscaler is removed, or another controller acts on it. If two
//! autoscalers select the same pod, both are blocked, not only the younger one.

use std::collections::{BTreeMap, BTreeSet};

use common::labels::{Labels, Selector};

/// Selectors of all autoscalers, by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors(BTreeMap<String, BTreeMap<String, Option<Selector>>>);

impl Selectors {
    /// Registers an autoscaler unless it is known. Returns whether it was new.
    pub fn register(&mut self, namespace: &str, name: &str) -> bool {
        let names = self.0.entry(namespace.to_owned()).or_default();
        let new = !names.contains_key(name);
        names.entry(name.to_owned()).or_default();
        new
    }

    /// Removes an autoscaler. Returns whether it was known.
    pub fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some(names) = self.0.get_mut(namespace) else { return false };
        let known = names.remove(name).is_some();
        if names.is_empty() {
            self.0.remove(namespace);
        }
        known
    }

    /// Sets the selector of an autoscaler, if it is known. With `None` the autoscaler selects nothing.
    pub fn put(&mut self, namespace: &str, name: &str, selector: Option<Selector>) {
        if let Some(current) = self.0.get_mut(namespace).and_then(|names| names.get_mut(name)) {
            *current = selector;
        }
    }

    /// Returns the sorted names of the autoscalers of a namespace that select pods with one of these label sets. Pods
    /// of one ReplicaSet have the same labels.
    pub fn selecting(&self, namespace: &str, pods: &BTreeSet<&Labels>) -> Vec<&str> {
        let names = self.0.get(namespace).into_iter().flatten();
        let selects = |selector: &Selector| pods.iter().any(|labels| selector.matches(labels));
        names.filter(|(_, selector)| selector.as_ref().is_some_and(selects)).map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registered_autoscalers_with_a_selector_select_pods() {
        let mut selectors = Selectors::default();
        let web: Labels = [("app".to_owned(), "web".to_owned())].into();
        let pods = BTreeSet::from([&web]);
        let selector = |text| Some(Selector::parse(text).expect(text));
        selectors.put("shop", "unknown", selector("app=web"));
        for name in ["b", "a", "quiet", "other"] {
            assert!(selectors.register("shop", name));
        }
        assert!(!selectors.register("shop", "a"));
        selectors.put("shop", "a", selector("app in (web,x)"));
        selectors.put("shop", "b", selector("app"));
        selectors.put("shop", "other", selector("app=other"));
        assert_eq!(selectors.selecting("shop", &pods), ["a", "b"]);
        assert!(selectors.selecting("elsewhere", &pods).is_empty());
        assert!(selectors.selecting("shop", &BTreeSet::new()).is_empty(), "there are no pods");
        assert!(selectors.remove("shop", "b") && !selectors.remove("shop", "b"));
        assert_eq!(selectors.selecting("shop", &pods), ["a"]);
        selectors.put("shop", "a", None);
        selectors.put("shop", "b", None);
        assert!(selectors.selecting("shop", &pods).is_empty(), "as before its first reconcile");
        assert!(!selectors.register("shop", "a") && selectors.register("shop", "b"), "put registers nothing");
    }
}
