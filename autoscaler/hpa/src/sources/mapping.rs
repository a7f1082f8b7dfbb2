//! From a kind to its resources, as the API server's discovery tells it.
//!
//! A reference names a group and a kind; a path needs a resource and a version. The version in the reference is of no
//! interest: the group's preferred version is used where it has the resource, else the first that does. A kind that
//! several resources share has several mappings, in discovery's order.
//!
//! Discovery of a group is remembered for [`REMEMBERED`], and asked for again at once when it does not know a kind, so
//! a CRD that was created a moment ago is found.

use super::rest::{Rest, qualified, segment};
use super::wording::Failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long discovery of a group holds.
const REMEMBERED: Duration = Duration::from_secs(30);

/// A resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The API group; empty: core.
    pub group: String,
    /// The version to use.
    pub version: String,
    /// The plural.
    pub resource: String,
}

impl Mapping {
    /// `RESOURCE.GROUP`, or `RESOURCE` in the core group.
    pub fn qualified(&self) -> String {
        qualified(&self.resource, &self.group)
    }

    /// The path of an object of a namespace, also where the kind has none: whoever may write in a namespace reaches
    /// nothing outside of it, and the API server answers 404.
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

/// What discovery says of a group.
#[derive(Debug, Default)]
struct Group {
    /// The version that the server prefers, and then the others in its order, each with its resources.
    versions: Vec<(String, Vec<APIResource>)>,
}

impl Mapper {
    /// One that knows nothing yet.
    pub fn new(client: Client) -> Self {
        Self { rest: Rest::new(client), groups: Mutex::default() }
    }

    /// The resources of a kind; at least one.
    ///
    /// # Errors
    /// Nobody serves that kind, or discovery failed; in upstream's words.
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
        // A version that fails hides only itself, as long as another answers.
        match failed {
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(Group { versions: found }),
        }
    }
}

/// Versions of a group, the preferred one first.
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
