//! How it is written down who has which host: one ConfigMap of the system namespace for each namespace that has some.
//!
//! Whoever may write there administers the install, so what stands there is the autoscaler's word. One map for each
//! namespace: a namespace with more hosts than a map can hold (1 MiB, some ten thousand) stands in nobody's way but its
//! own.

use crate::host::HostPattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a map's name begins with; the namespace follows.
const NAME_PREFIX: &str = "hosts.";
/// The key of the data.
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

/// The name of a namespace's map.
pub fn map_name(namespace: &str) -> String {
    format!("{NAME_PREFIX}{namespace}")
}

/// The namespace that a map is about, if it is one of these.
pub fn namespace_of(map_name: &str) -> Option<&str> {
    map_name.strip_prefix(NAME_PREFIX)
}

/// A map's data.
pub fn data(grants: &Grants) -> BTreeMap<String, String> {
    let json = serde_json::to_string(grants).unwrap_or_default(); // Maps of strings always serialise.
    [(KEY.to_owned(), json)].into()
}

/// What a map's data say; nothing where there are none.
///
/// # Errors
/// They are not what [`data`] writes.
pub fn grants(data: Option<&BTreeMap<String, String>>) -> Result<Grants, serde_json::Error> {
    data.and_then(|data| data.get(KEY)).map_or(Ok(Grants::new()), |json| serde_json::from_str(json))
}

/// Each host, and the name of the workload that has it.
pub fn hosts(grants: &Grants) -> impl Iterator<Item = (HostPattern, &str)> {
    let hosts = grants.iter().flat_map(|(name, grant)| grant.hosts.iter().map(move |host| (host, name.as_str())));
    hosts.filter_map(|(host, name)| Some((HostPattern::parse(host)?, name)))
}
