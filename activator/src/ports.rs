//! Workloads' own ports: whoever connects there means the workload, whatever is said.
//!
//! HTTP passes the chain of layers, as on the shared ports but for the lookup; all else is held and connected
//! ([`crate::layers::connect`]).

use crate::layers::connect::{Connections, PortConnector};
use crate::layers::error_responder::ErrorResponder;
use crate::layers::hold::Hold;
use crate::layers::lookup::{Lookup, Port, PortProtocol};
use crate::layers::probe::Probe;
use crate::layers::report::Report;
use crate::layers::request_log::RequestLog;
use crate::layers::timeouts::Timeouts;
use crate::registry::ports::WorkloadPort;
use activator_core::contract::Contract;
use activator_net::{Carries, PortIdentity, PortListeners, Server};
use common_api::zeroscaler;
use common_api::zeroscaler::ports::WAKE_AFTER_DEFAULT;
use std::sync::Arc;

/// All layers.
pub(crate) type Layers = Probe<Lookup<RequestLog<Report<Timeouts<Hold>>>>>;

/// Serves such ports. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    server: Server<ErrorResponder>,
    layers: Layers,
    connections: Connections,
}

impl Ports {
    /// By these parts of an activator.
    pub(crate) fn new(server: Server<ErrorResponder>, layers: Layers, connections: Connections) -> Self {
        Self { server, layers, connections }
    }

    /// Serves what comes to `listeners`, each of which stands for a [`Port`], or for one that the registry knows, until the
    /// activator stops.
    pub fn listen(&self, listeners: &PortListeners) {
        let connections = self.connections.clone();
        self.server.listen_ports(listeners, self.layers.clone(), move |port| carries(port, &connections));
    }
}

/// What comes to a port.
fn carries(port: &PortIdentity, connections: &Connections) -> Carries<PortConnector> {
    if let Ok(port) = port.clone().downcast::<WorkloadPort>() {
        return carries_for(&port, connections);
    }
    let Some(port) = port.downcast_ref::<Port>() else { return Carries::Http };
    let connector = || connections.of(port.workload.clone(), port.pod_port);
    match port.protocol {
        PortProtocol::Http => Carries::Http,
        PortProtocol::Tcp { wake_after } => Carries::Tcp { wake_after, connector: connector() },
        PortProtocol::Auto => Carries::Auto { connector: connector() },
    }
}

/// What comes to a port that the registry knows; HTTP as long as its workload is not known, which is refused then.
fn carries_for(port: &Arc<WorkloadPort>, connections: &Connections) -> Carries<PortConnector> {
    let Some(spec) = connections.registry().spec_of(port) else { return Carries::Http };
    if spec.contract == Contract::QueueProxy {
        return Carries::Http; // It speaks nothing else.
    }
    let Some(said) = spec.ports.iter().find(|said| port.is(said)) else { return Carries::Http };
    let connector = || connections.known(Arc::new(spec.key.clone()), port.clone());
    match said.protocol {
        zeroscaler::PortProtocol::Http1 | zeroscaler::PortProtocol::H2c => Carries::Http,
        zeroscaler::PortProtocol::Auto => Carries::Auto { connector: connector() },
        zeroscaler::PortProtocol::Tcp => {
            Carries::Tcp { wake_after: said.wake_after.unwrap_or(WAKE_AFTER_DEFAULT), connector: connector() }
        }
    }
}
