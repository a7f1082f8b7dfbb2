//! `config-network`, limited to the keys that either plane uses: the presence of a service mesh, and encryption of
//! internal traffic.
//!
//! Not here: ingresses, domains and their certificates.

use super::{ConfigError, Reader};
use std::collections::BTreeMap;

/// Mesh and encryption settings of `config-network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// `mesh-compatibility-mode`, default auto.
    pub mesh_mode: MeshMode,
    /// `enable-mesh-pod-addressability`: pods are reachable through the mesh by their address, default false.
    pub mesh_pod_addressability: bool,
    /// `system-internal-tls`, or its predecessor `internal-encryption`: TLS between ingress, activator and queue-proxy.
    pub system_internal_tls: bool,
}

/// Use of pod addresses under a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MeshMode {
    /// Try the address, then fall back to the Service.
    #[default]
    Auto,
    /// There is a mesh: always use the Service.
    Enabled,
    /// There is no mesh: always use addresses.
    Disabled,
}

impl NetworkConfig {
    /// Reads the map's data. An unknown mesh mode means the default, as upstream. Fails if
    /// `enable-mesh-pod-addressability` or `internal-encryption` is not a boolean, or if `system-internal-tls` is
    /// neither enabled nor disabled.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let read = Reader(data);
        let mesh_mode = match read.text("mesh-compatibility-mode", "auto").to_ascii_lowercase().as_str() {
            "enabled" => MeshMode::Enabled,
            "disabled" => MeshMode::Disabled,
            _ => MeshMode::Auto,
        };
        let tls = read.text("system-internal-tls", "");
        let system_internal_tls = match tls.to_ascii_lowercase().as_str() {
            "enabled" => true,
            "disabled" | "" => read.boolean("internal-encryption", false)?,
            _ => return Err(ConfigError::new("system-internal-tls", tls, "must be enabled or disabled")),
        };
        let mesh_pod_addressability = read.boolean("enable-mesh-pod-addressability", false)?;
        Ok(Self { mesh_mode, mesh_pod_addressability, system_internal_tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn the_former_key_counts_unless_the_new_one_enables_tls_and_unknown_mesh_modes_mean_auto() {
        use MeshMode::{Auto, Disabled, Enabled};
        for (text, mode) in [("auto", Auto), ("Enabled", Enabled), ("DISABLED", Disabled), ("x", Auto)] {
            let config = NetworkConfig::from_map(&map(&[("mesh-compatibility-mode", text)]));
            assert_eq!(config.map(|config| config.mesh_mode), Ok(mode), "{text}");
        }
        let (new, former) = ("system-internal-tls", "internal-encryption");
        for (pairs, expected) in [
            (&[][..], Some(false)),
            (&[(new, "Enabled")], Some(true)),
            (&[(new, "disabled")], Some(false)),
            (&[(new, "disabled"), (former, "true")], Some(true)),
            (&[(new, ""), (former, "true")], Some(true)),
            (&[(former, "true")], Some(true)),
            (&[(new, "on")], None),
            (&[(former, "yes")], None),
            (&[("enable-mesh-pod-addressability", "yes")], None),
        ] {
            let read = NetworkConfig::from_map(&map(pairs)).ok().map(|config| config.system_internal_tls);
            assert_eq!(read, expected, "{pairs:?}");
        }
    }
}
