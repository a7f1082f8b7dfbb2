//! Ports of workloads: every connection to such a port belongs to its workload, regardless of its content.
//!
//! HTTP passes the layers, as on the shared ports but without a lookup. Other connections are held and connected
//! ([`crate::layers::connect`]).

use crate::layers::LayerParts;
use crate::layers::answers::Answering;
use crate::layers::connect::PortConnector;
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
use activator_net::{CarriedProtocol, PortIdentity};
use common_api::zeroscaler::PortProtocol;
use common_api::zeroscaler::ports::WAKE_AFTER_DEFAULT;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Layers = Probe<Lookup<Relay<RequestLog<Answering<Report<Timeouts<Hold>>>>>>>;

/// Share for ports without a workload.
const NO_WORKLOAD: u64 = 2;

/// Returns the share that the port's connections count to.
pub(crate) fn share_of(port: &PortIdentity) -> u64 {
    port.downcast_ref::<WorkloadPort>().map_or(NO_WORKLOAD, |port| share_number(port.workload()))
}

/// Returns the kind of connections on a port. If the workload is unknown, the port is HTTP, so that requests get an
/// error response. If the workload does not declare the port's protocol, the port is automatic: the declaration may
/// come later than the number. If pods were found to speak first, the port is TCP.
pub(crate) fn port_protocols(port: &PortIdentity, parts: &Arc<LayerParts>) -> CarriedProtocol<PortConnector> {
    let Ok(port) = port.clone().downcast::<WorkloadPort>() else { return CarriedProtocol::Http };
    let Some(spec) = parts.registry.spec_of(&port) else { return CarriedProtocol::Http };
    if spec.contract == Contract::QueueProxy {
        return CarriedProtocol::Http; // A queue-proxy speaks only HTTP.
    }
    let connector = || PortConnector { parts: parts.clone(), port: port.clone() };
    let auto = || CarriedProtocol::Auto { silent_after: WAKE_AFTER_DEFAULT, connector: connector() };
    let tcp = |wake_after: Option<Duration>| CarriedProtocol::Tcp {
        wake_after: wake_after.unwrap_or(WAKE_AFTER_DEFAULT),
        connector: connector(),
    };
    let Some(declared) = port.among(&spec.ports) else { return auto() };
    match declared.protocol {
        PortProtocol::Http1 | PortProtocol::H2c => CarriedProtocol::Http,
        PortProtocol::Auto if port.speaker.is_pod() => tcp(None),
        PortProtocol::Auto => auto(),
        PortProtocol::Tcp => tcp(declared.wake_after),
    }
}
