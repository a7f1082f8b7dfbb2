//! Workloads' own ports: whoever connects there means the workload, whatever is said.
//!
//! HTTP passes the chain of layers, as on the shared ports but for the lookup; all else is held and connected
//! ([`crate::layers::connect`]).

use crate::layers::answers::Answering;
use crate::layers::connect::{Connections, PortConnector};
use crate::layers::error_responder::ErrorResponder;
use crate::layers::hold::Hold;
use crate::layers::lookup::Lookup;
use crate::layers::probe::Probe;
use crate::layers::relay::Relay;
use crate::layers::report::Report;
use crate::layers::request_log::RequestLog;
use crate::layers::timeouts::Timeouts;
use crate::registry::ports::WorkloadPort;
use crate::registry::revision::share_number;
use activator_core::contract::Contract;
use activator_net::{Carries, PortIdentity, PortListeners, Server};
use common_api::zeroscaler::PortProtocol;
use common_api::zeroscaler::ports::WAKE_AFTER_DEFAULT;
use std::time::Duration;

/// All layers.
pub(crate) type Layers = Probe<Lookup<Relay<RequestLog<Answering<Report<Timeouts<Hold>>>>>>>;

/// Serves what comes to `listeners`, until the server drains. Each stands for a [`WorkloadPort`].
pub(crate) fn listen(
    server: &Server<ErrorResponder>,
    listeners: &PortListeners,
    layers: Layers,
    connections: Connections,
) {
    server.listen_ports(listeners, layers, share_of, move |port| carries(port, &connections));
}

/// The share of ports that stand for nothing.
const OF_NOBODY: u64 = 2;

/// Whose share of connections they are counted to.
fn share_of(port: &PortIdentity) -> u64 {
    port.downcast_ref::<WorkloadPort>().map_or(OF_NOBODY, |port| share_number(port.workload()))
}

/// What comes to a port; HTTP as long as its workload is not known, which is refused then. Either, as long as the workload
/// does not say what this port of it is: what it says may come after its number. Bytes, where pods were found to speak first.
fn carries(port: &PortIdentity, connections: &Connections) -> Carries<PortConnector> {
    let Ok(port) = port.clone().downcast::<WorkloadPort>() else { return Carries::Http };
    let Some(spec) = connections.registry().spec_of(&port) else { return Carries::Http };
    if spec.contract == Contract::QueueProxy {
        return Carries::Http; // It speaks nothing else.
    }
    let connector = || connections.of(port.clone());
    let auto = || Carries::Auto { silent_after: WAKE_AFTER_DEFAULT, connector: connector() };
    let tcp = |wake_after: Option<Duration>| Carries::Tcp {
        wake_after: wake_after.unwrap_or(WAKE_AFTER_DEFAULT),
        connector: connector(),
    };
    let Some(said) = port.among(&spec.ports) else { return auto() };
    match said.protocol {
        PortProtocol::Http1 | PortProtocol::H2c => Carries::Http,
        PortProtocol::Auto if port.speaker.is_pod() => tcp(None),
        PortProtocol::Auto => auto(),
        PortProtocol::Tcp => tcp(said.wake_after),
    }
}
