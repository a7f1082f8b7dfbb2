//! Records the granted hosts in the system namespace: one ConfigMap for each namespace that has hosts.
//!
//! Only administrators of the installation may write these maps, so their content is the autoscaler's own decision.
//! Each namespace has its own map, so a namespace with more hosts than a map can hold (1 MiB, about ten thousand)
//! affects only itself.

use crate::host::HostPattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Prefix of a map's name; the namespace follows.
const NAME_PREFIX: &str = "hosts.";
const KEY: &str = "hosts";

/// Hosts of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The object's uid.
    pub uid: String,
    /// Its hosts, exact or `*.` and a domain, lower case.
    pub hosts: Vec<String>,
}

/// Hosts of the workloads of one namespace, by their names.
pub type Grants = BTreeMap<String, Grant>;

/// Returns the name of a namespace's map.
pub fn map_name(namespace: &str) -> String {
    format!("{NAME_PREFIX}{namespace}")
}

/// Returns the namespace of a map by its name, or `None` for another kind of map.
pub fn namespace_of(map_name: &str) -> Option<&str> {
    map_name.strip_prefix(NAME_PREFIX)
}

/// Serializes grants as a map's data.
pub fn data(grants: &Grants) -> BTreeMap<String, String> {
    let json = serde_json::to_string(grants).unwrap_or_default(); // Maps of strings always serialize.
    [(KEY.to_owned(), json)].into()
}

/// Parses a map's data; absent data means no grants. Fails if the data is not what [`data`] writes.
pub fn grants(data: Option<&BTreeMap<String, String>>) -> Result<Grants, serde_json::Error> {
    data.and_then(|data| data.get(KEY)).map_or(Ok(Grants::new()), |json| serde_json::from_str(json))
}

/// Returns each host and the name of the workload that has it.
pub fn hosts(grants: &Grants) -> impl Iterator<Item = (HostPattern, &str)> {
    let hosts = grants.iter().flat_map(|(name, grant)| grant.hosts.iter().map(move |host| (host, name.as_str())));
    hosts.filter_map(|(host, name)| Some((HostPattern::parse(host)?, name)))
}
