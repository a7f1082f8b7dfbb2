//! Maps kinds to resources by the API server's discovery.
//!
//! A reference names a group and a kind; a path needs a resource and a version. The version in the reference is
//! ignored: the group's preferred version is used if it has the resource, or else the first version that has it. A kind
//! with several resources has several mappings, in discovery's order.
//!
//! Discovery of a group is cached for [`REMEMBERED`]. It is repeated at once if it lacks a kind, so a new CRD is found.

use super::rest::{Rest, qualified, segment};
use super::wording::Failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which discovery of a group is cached.
const REMEMBERED: Duration = Duration::from_secs(30);

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
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        format!("{base}/namespaces/{}/{}/{}", segment(namespace), segment(resource), segment(name))
    }
}

/// Finds the resources of kinds.
pub struct Mapper {
    rest: Rest,
    groups: Mutex<HashMap<String, Known>>,
}

struct Known {
    group: Arc<Group>,
    until: Instant,
}

/// Discovery of a group.
#[derive(Debug, Default)]
struct Group {
    /// Versions with their resources: the server's preferred version first, then the others in its order.
    versions: Vec<(String, Vec<APIResource>)>,
}

impl Mapper {
    /// Returns a mapper with an empty cache.
    pub fn new(client: Client) -> Self {
        Self { rest: Rest::new(client), groups: Mutex::default() }
    }

    /// Returns the resources of a kind; at least one.
    ///
    /// # Errors
    /// Returns upstream's text if the kind is not served, or discovery failed.
    pub async fn mappings(&self, group: &str, kind: &str) -> Result<Vec<Mapping>, String> {
        if let Some(known) = self.known(group) {
            let found = known.mappings(group, kind);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let asked = self.discover(group).await.map_err(|failure| failure.message)?;
        let found = asked.mappings(group, kind);
        let until = Instant::now() + REMEMBERED;
        self.groups.lock().insert(group.to_owned(), Known { group: Arc::new(asked), until });
        if found.is_empty() { Err(format!("no matches for kind {kind:?} in group {group:?}")) } else { Ok(found) }
    }

    fn known(&self, group: &str) -> Option<Arc<Group>> {
        let mut groups = self.groups.lock();
        groups.retain(|_, known| Instant::now() < known.until);
        groups.get(group).map(|known| known.group.clone())
    }

    async fn discover(&self, group: &str) -> Result<Group, Failure> {
        let versions = if group.is_empty() {
            vec!["v1".to_owned()]
        } else {
            match self.rest.get::<APIGroup>(&format!("/apis/{}", segment(group)), &[], ("", "")).await {
                Ok(answer) => in_order(answer),
                Err(failure) if failure.is_absent() => return Ok(Group::default()),
                Err(failure) => return Err(failure),
            }
        };
        let (mut found, mut failed) = (Vec::new(), None);
        for version in versions {
            let path = if group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{}/{}", segment(group), segment(&version))
            };
            match self.rest.get::<APIResourceList>(&path, &[], ("", "")).await {
                Ok(list) => found.push((version, list.resources)),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        // A failed version hides only itself, as long as another one responds.
        match failed {
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(Group { versions: found }),
        }
    }
}

/// Returns the versions of a group, the preferred one first.
fn in_order(group: APIGroup) -> Vec<String> {
    let mut versions: Vec<String> = group.preferred_version.into_iter().map(|v| v.version).collect();
    for version in group.versions.into_iter().map(|v| v.version) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    versions
}

impl Group {
    fn mappings(&self, group: &str, kind: &str) -> Vec<Mapping> {
        let mut found: Vec<Mapping> = Vec::new();
        for (version, resources) in &self.versions {
            for resource in resources.iter().filter(|r| r.kind == kind && !r.name.contains('/')) {
                if !found.iter().any(|mapping| mapping.resource == resource.name) {
                    found.push(Mapping {
                        group: group.to_owned(),
                        version: version.clone(),
                        resource: resource.name.clone(),
                    });
                }
            }
        }
        found
    }
}
