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
use activator_net::{Carries, PortIdentity, PortListeners, Server};

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

    /// Serves what comes to `listeners`, each of which stands for a [`Port`], until the activator stops.
    pub fn listen(&self, listeners: &PortListeners) {
        let connections = self.connections.clone();
        self.server.listen_ports(listeners, self.layers.clone(), move |port| carries(port, &connections));
    }
}

/// What comes to a port.
fn carries(port: &PortIdentity, connections: &Connections) -> Carries<PortConnector> {
    let Some(port) = port.downcast_ref::<Port>() else { return Carries::Http };
    let connector = || connections.of(port.workload.clone(), port.pod_port);
    match port.protocol {
        PortProtocol::Http => Carries::Http,
        PortProtocol::Tcp { wake_after } => Carries::Tcp { wake_after, connector: connector() },
        PortProtocol::Auto => Carries::Auto { connector: connector() },
    }
}
