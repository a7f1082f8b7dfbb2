//! Translates a ZeroScaler into the protocol of its pods and a plan for its metrics.

use autoscaler_core::engine::Plan;
use autoscaler_core::engine::plan::plan;
use common::backend::Protocol;
use common::field::FieldErrors;
use common_api::ZeroScaler;

/// Returns the protocol of the pods for requests on the shared ports. It is that of the first port that the ZeroScaler
/// names. Requests to another port use that port's protocol.
pub(crate) fn protocol(object: &ZeroScaler) -> Protocol {
    object.spec.ports.first().and_then(|port| port.protocol.http()).unwrap_or_default()
}

/// Returns the plan for the metrics, or `None` if only the load scales the workload.
///
/// # Errors
/// Returns every violation, with the path within the spec.
pub(crate) fn metrics(object: &ZeroScaler) -> Result<Option<Plan>, FieldErrors> {
    plan(object.spec.metrics.clone(), object.spec.behavior.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn scaler(spec: Value) -> ZeroScaler {
        serde_json::from_value(json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": {"name": "hello", "namespace": "ns"}, "spec": spec,
        }))
        .expect("a ZeroScaler")
    }

    #[test]
    fn the_first_port_determines_the_protocol_of_the_shared_ports() {
        let rows = [
            (json!([]), Protocol::Http1),
            (json!([{"name": "grpc", "protocol": "h2c"}, {"name": "web", "protocol": "http1"}]), Protocol::H2c),
            (json!([{"name": "web", "protocol": "http1"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
            (json!([{"name": "web"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
        ];
        for (ports, expected) in rows {
            let object = scaler(json!({"target": {"name": "web"}, "ports": ports}));
            assert_eq!(protocol(&object), expected, "{ports}");
        }
    }

    #[test]
    fn metrics_become_a_plan_and_faults_are_reported_with_their_path() {
        let cpu = json!([{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
        }}]);
        let read = metrics(&scaler(json!({"target": {"name": "a"}, "metrics": cpu}))).expect("valid");
        assert_eq!(read.map(|plan| plan.metrics.len()), Some(1));
        assert_eq!(metrics(&scaler(json!({"target": {"name": "a"}}))), Ok(None));
        let wrong = json!([{"type": "Resource"}]);
        let errors = metrics(&scaler(json!({"target": {"name": "a"}, "metrics": wrong}))).expect_err("no resource");
        assert!(errors.to_string().contains("spec.metrics[0]"), "{errors}");
    }
}
