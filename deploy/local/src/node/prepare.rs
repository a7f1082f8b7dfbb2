//! From a container's manifest to what one run of it needs: program, environment, probes.
//!
//! Done anew for each run, so that a ConfigMap or a program that was missing is found once it is there.

use super::container::Container;
use super::environment::{ConfigError, Sources, command_line, environment, port_of, sources_needed};
use super::probe::check::Handler;
use super::probe::{self, PERIOD_ANNOTATION, Purpose, Spec};
use super::process::Launch;
use super::program;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, ResourceExt};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What one run needs.
pub(super) struct Prepared {
    pub(super) launch: Launch,
    pub(super) told: SocketAddr,
    pub(super) probes: Vec<(Spec, Handler)>,
}

/// Why a container is not running. Reason and message of its status.
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Container {
    /// Prepares one run.
    pub(super) async fn prepare(&self) -> Result<Prepared, Refusal> {
        let config = |message: String| Refusal { reason: "CreateContainerConfigError", message };
        let sources = self.sources().await.map_err(config)?;
        let env = environment(&self.pod, &self.spec, &self.place, &sources, |name| std::env::var(name).ok())
            .map_err(|error: ConfigError| config(error.to_string()))?;
        let mut words = command_line(&self.spec, &env).map_err(|e| config(e.to_string()))?.into_iter();
        let name = words.next().unwrap_or_default();
        let dir = self.spec.working_dir.clone().filter(|d| !d.is_empty()).map(PathBuf::from);
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone()).unwrap_or_default();
        let find = |name: &str| program::find(name, dir.as_deref(), self.node.beside.as_deref(), &path);
        let program = find(&name).map_err(|message| Refusal { reason: "CreateContainerError", message })?;
        let launch = Launch { program, args: words.collect(), env, dir: dir.clone() };
        let probes = self.probes(&launch, find).map_err(config)?;
        let told = SocketAddr::new(self.place.pod_ip, port_of(&self.pod, &self.spec.name));
        Ok(Prepared { launch, told, probes })
    }

    /// The ConfigMaps and Secrets that the environment needs; those that do not exist are left out.
    async fn sources(&self) -> Result<Sources, String> {
        let (config_maps, secrets) = sources_needed(&self.spec);
        let namespace = self.pod.namespace().unwrap_or_default();
        let mut sources = Sources::default();
        for name in config_maps {
            let api: Api<ConfigMap> = Api::namespaced(self.node.client.clone(), &namespace);
            if let Some(map) = api.get_opt(&name).await.map_err(|e| format!("configmap {name:?}: {e}"))? {
                sources.config_maps.insert(name, map.data.unwrap_or_default());
            }
        }
        for name in secrets {
            let api: Api<Secret> = Api::namespaced(self.node.client.clone(), &namespace);
            if let Some(secret) = api.get_opt(&name).await.map_err(|e| format!("secret {name:?}: {e}"))? {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(&value.0)));
                sources.secrets.insert(name, data.collect());
            }
        }
        Ok(sources)
    }

    fn probes(
        &self,
        launch: &Launch,
        find: impl Fn(&str) -> Result<PathBuf, String>,
    ) -> Result<Vec<(Spec, Handler)>, String> {
        let period = probe::period(self.pod.annotations().get(PERIOD_ANNOTATION).map(String::as_str))?;
        let ports = self.spec.ports.as_deref().unwrap_or_default();
        let declared = [
            (Purpose::Startup, &self.spec.startup_probe),
            (Purpose::Readiness, &self.spec.readiness_probe),
            (Purpose::Liveness, &self.spec.liveness_probe),
        ];
        declared
            .into_iter()
            .filter_map(|(purpose, probe)| Some((purpose, probe.as_ref()?)))
            .map(|(purpose, probe)| {
                let handler = Handler::new(probe, self.place.pod_ip, ports, launch, &find)
                    .map_err(|error| format!("container {:?}: {error}", self.spec.name))?;
                Ok((Spec::new(purpose, probe, period), handler))
            })
            .collect()
    }
}
