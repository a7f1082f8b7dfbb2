//! Namespaces that a plane watches: all of them, or those in `ZEROSCALE_NAMESPACES`, in which Roles then grant all
//! necessary permissions.
//!
//! The planes' own namespace, with configuration and leases, is always watched.

use crate::environment::{EnvironmentError, Mode, optional};
use common::host;
use kube::core::{DynamicResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Name of the variable.
pub const VARIABLE: &str = "ZEROSCALE_NAMESPACES";

/// All namespaces (the default) or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(Option<Arc<BTreeSet<String>>>);

impl Namespaces {
    /// All namespaces.
    pub const ALL: Self = Self(None);

    /// Returns exactly these namespaces.
    pub fn only(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Some(Arc::new(names.into_iter().map(Into::into).collect())))
    }

    /// Parses `ZEROSCALE_NAMESPACES`: names separated by commas; missing or empty: all namespaces. Fails if a name is
    /// not a valid namespace, or in Knative's mode, which does not support it.
    pub fn from_env(mode: Mode, get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let Some(list) = optional(get, VARIABLE) else { return Ok(Self::default()) };
        if mode == Mode::Knative {
            return Err(EnvironmentError::new(VARIABLE, list, "is supported only with ZEROSCALE_MODE=standalone"));
        }
        let rule = "must be a comma-separated list of namespaces such as shop,shop-staging";
        let names: BTreeSet<_> = list.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !host::is_label(name) || name.contains('_')) {
            Some(name) => Err(EnvironmentError::new(VARIABLE, name, rule)),
            None => Ok(Self::only(names)),
        }
    }

    /// Returns the names, in order, or `None` for all namespaces.
    pub fn listed(&self) -> Option<&BTreeSet<String>> {
        self.0.as_deref()
    }

    /// Returns these namespaces and `other`.
    #[must_use]
    pub fn and(&self, other: &str) -> Self {
        match self.listed() {
            Some(names) if !names.contains(other) => Self::only(names.iter().map(String::as_str).chain([other])),
            _ => self.clone(),
        }
    }

    /// Returns the reach of a watch: all objects of a kind in these namespaces.
    pub fn reach<K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>>(
        &self,
        client: &Client,
    ) -> Reach<K> {
        match self.listed() {
            None => Api::all(client.clone()).into(),
            Some(names) => Reach(names.iter().map(|name| Api::namespaced(client.clone(), name)).collect()),
        }
    }

    /// Returns the same for a kind that is known only at run time.
    pub fn reach_of<K>(&self, client: &Client, kind: &K::DynamicType) -> Reach<K>
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        match self.listed() {
            None => Api::all_with(client.clone(), kind).into(),
            Some(names) => Reach(names.iter().map(|name| Api::namespaced_with(client.clone(), name, kind)).collect()),
        }
    }
}

/// Endpoints that one watch reads: one for all namespaces, or one for each of several.
#[derive(Clone, Debug)]
pub struct Reach<K>(pub(crate) Vec<Api<K>>);

impl<K> From<Api<K>> for Reach<K> {
    fn from(api: Api<K>) -> Self {
        Self(vec![api])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_namespaces_are_accepted_and_the_planes_own_may_be_added() {
        let read =
            |list: &str| Namespaces::from_env(Mode::Standalone, &|name| (name == VARIABLE).then(|| list.to_owned()));
        assert_eq!(read(""), Ok(Namespaces::default()));
        assert_eq!(read("shop, shop-2,shop"), Ok(Namespaces::only(["shop", "shop-2"])));
        for (list, bad) in [(",", ""), ("shop,", ""), ("Shop", "Shop"), ("a.b", "a.b"), ("-a", "-a"), ("a,*", "*")] {
            let error = read(list).expect_err(list);
            assert_eq!((&*error.variable, error.value.as_deref()), (VARIABLE, Some(bad)), "{list}");
        }
        let in_knative = |list: &str| Namespaces::from_env(Mode::Knative, &|_| Some(list.to_owned()));
        assert_eq!(in_knative(""), Ok(Namespaces::default()));
        assert!(in_knative("shop").is_err());
        assert_eq!(Namespaces::default().and("system"), Namespaces::default());
        assert_eq!(Namespaces::only(["a"]).and("a"), Namespaces::only(["a"]));
        assert_eq!(Namespaces::only(["a"]).and("system"), Namespaces::only(["a", "system"]));
    }
}
