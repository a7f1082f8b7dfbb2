//! `config-network`, as far as either plane reads it: how a service mesh stands between them and the pods.
//!
//! Not here: everything about ingresses, domains and certificates.

use super::{ConfigError, Reader};
use std::collections::BTreeMap;

/// What `config-network` says about meshes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// `mesh-compatibility-mode`, default auto.
    pub mesh_mode: MeshMode,
    /// `enable-mesh-pod-addressability`: pods are reached through the mesh by their address, default false.
    pub mesh_pod_addressability: bool,
}

/// Whether pods may be reached by address in spite of a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MeshMode {
    /// Try the address, fall back to the Service.
    #[default]
    Auto,
    /// There is a mesh: only ever use the Service.
    Enabled,
    /// There is none: only ever use addresses.
    Disabled,
}

impl NetworkConfig {
    /// Reads the map's data. A mesh mode that does not exist means the default, as upstream has it.
    ///
    /// # Errors
    /// `enable-mesh-pod-addressability` is no boolean.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let read = Reader(data);
        let mesh_mode = match read.text("mesh-compatibility-mode", "auto").to_ascii_lowercase().as_str() {
            "enabled" => MeshMode::Enabled,
            "disabled" => MeshMode::Disabled,
            _ => MeshMode::Auto,
        };
        Ok(Self { mesh_mode, mesh_pod_addressability: read.boolean("enable-mesh-pod-addressability", false)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn unknown_mesh_modes_mean_auto() {
        for (text, mode) in [
            ("auto", MeshMode::Auto),
            ("Enabled", MeshMode::Enabled),
            ("DISABLED", MeshMode::Disabled),
            ("x", MeshMode::Auto),
        ] {
            let config = NetworkConfig::from_map(&map(&[("mesh-compatibility-mode", text)])).expect("never an error");
            assert_eq!(config.mesh_mode, mode, "{text}");
        }
        assert!(NetworkConfig::from_map(&map(&[("enable-mesh-pod-addressability", "yes")])).is_err());
    }
}
