//! Maps kinds to resources by the API server's discovery.
//!
//! A reference names a group and a kind; a path needs a resource and a version. The version in the reference is
//! ignored: the group's preferred version is used if it has the resource, or else the first version that has it. A kind
//! with several resources has several mappings, in discovery's order.
//!
//! Discovery of a group is cached for [`CACHED_FOR`]. It is repeated at once if it lacks a kind, so a new CRD is found.

use super::rest::{Rest, qualified, segment};
use super::wording::Failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which discovery of a group is cached.
const CACHED_FOR: Duration = Duration::from_secs(30);

/// Resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// API group; empty: core.
    pub group: String,
    /// Version to use.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
}

impl Mapping {
    /// Returns `RESOURCE.GROUP`, or `RESOURCE` in the core group.
    pub fn qualified(&self) -> String {
        qualified(&self.resource, &self.group)
    }

    /// Returns the path of an object in a namespace, even if the kind is not namespaced. A user with permissions in one
    /// namespace thus reaches nothing outside of it; the API server responds with 404.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let Self { group, version, resource } = self;
        let resource = segment(resource);
        format!("{}/namespaces/{}/{resource}/{}", version_path(group, version), segment(namespace), segment(name))
    }
}

fn version_path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{}/{}", segment(group), segment(version)),
    }
}

/// Finds the resources of kinds.
pub struct Mapper {
    rest: Rest,
    groups: Mutex<HashMap<String, CachedGroup>>,
}

/// Discovery of a group, with the time until which it is cached.
struct CachedGroup {
    until: Instant,
    kinds: Vec<(String, Mapping)>,
}

impl Mapper {
    /// Returns a mapper with an empty cache.
    pub fn new(client: Client) -> Self {
        Self { rest: Rest(client), groups: Mutex::default() }
    }

    /// Returns the resources of a kind; at least one. Fails with upstream's text if the kind is not served, or
    /// discovery failed.
    pub async fn mappings(&self, group: &str, kind: &str) -> Result<Vec<Mapping>, String> {
        let of_kind = |kinds: &[(String, Mapping)]| -> Vec<Mapping> {
            kinds.iter().filter(|(other, _)| other == kind).map(|(_, mapping)| mapping.clone()).collect()
        };
        let is_current = |known: &&CachedGroup| Instant::now() < known.until;
        let known = self.groups.lock().get(group).filter(is_current).map(|known| of_kind(&known.kinds));
        let mut found = known.unwrap_or_default();
        if found.is_empty() {
            let kinds = self.discover(group).await?;
            found = of_kind(&kinds);
            let mut groups = self.groups.lock();
            groups.retain(|_, known| is_current(&&*known));
            groups.insert(group.to_owned(), CachedGroup { until: Instant::now() + CACHED_FOR, kinds });
        }
        if found.is_empty() { Err(format!("no matches for kind {kind:?} in group {group:?}")) } else { Ok(found) }
    }

    /// Returns all kinds with their resources: those of the group's preferred version first, then those of its other
    /// versions in the server's order. The first version that has a resource counts.
    async fn discover(&self, group: &str) -> Result<Vec<(String, Mapping)>, Failure> {
        let versions = if group.is_empty() {
            vec!["v1".to_owned()]
        } else {
            match self.rest.get::<APIGroup>(&format!("/apis/{}", segment(group)), &[], "").await {
                Ok(group) => ordered_versions(group),
                Err(failure) if failure.is_absent() => return Ok(Vec::new()),
                Err(failure) => return Err(failure),
            }
        };
        let (mut kinds, mut has_responded, mut failed) = (Vec::<(String, Mapping)>::new(), false, None);
        for version in versions {
            match self.rest.get::<APIResourceList>(&version_path(group, &version), &[], "").await {
                Ok(list) => {
                    has_responded = true;
                    for resource in list.resources.into_iter().filter(|resource| !resource.name.contains('/')) {
                        let (kind, resource) = (resource.kind, resource.name);
                        if !kinds.iter().any(|(other, known)| *other == kind && known.resource == resource) {
                            let (group, version) = (group.to_owned(), version.clone());
                            kinds.push((kind, Mapping { group, version, resource }));
                        }
                    }
                }
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        // If another version has responded, a failed version hides only its own resources.
        match failed {
            Some(failure) if !has_responded => Err(failure),
            _ => Ok(kinds),
        }
    }
}

/// Returns the versions of a group, the preferred one first.
fn ordered_versions(group: APIGroup) -> Vec<String> {
    let APIGroup { mut versions, preferred_version, .. } = group;
    versions.sort_by_key(|version| Some(version) != preferred_version.as_ref()); // The others keep their order.
    versions.into_iter().map(|version| version.version).collect()
}
