//! Addresses of Services: allocates each ClusterIP from a range.

use serde_json::{Value, json};

use super::causes::Causes;
use super::fields::{object, text};
use super::resource::Resource;
use crate::pool::{Allocation, Pool};

/// Table of Services.
pub(crate) const SERVICES: &str = "/services";

/// Assigns a ClusterIP to a Service, or restores its current one. Other resources do not change. The caller makes a new
/// allocation permanent once the write has succeeded.
pub(crate) fn assign(
    pool: &Pool,
    resource: &Resource,
    value: &mut Value,
    old: Option<&Value>,
    causes: &mut Causes,
) -> Option<Allocation> {
    if &*resource.table != SERVICES {
        return None;
    }
    let wanted = text(value, "/spec/clusterIP").to_string();
    let current = old.map(|old| text(old, "/spec/clusterIP").to_string()).unwrap_or_default();
    if text(value, "/spec/type") == "ExternalName" {
        if let Some(spec) = value.get_mut("spec").map(object) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        return None;
    }
    if !current.is_empty() {
        if !wanted.is_empty() && wanted != current {
            causes.invalid("spec.clusterIPs[0]", &wanted.into(), "may not change once set");
        }
        set(value, &current);
        return None;
    }
    let allocation = match wanted.as_str() {
        "" => pool.allocate(),
        "None" => {
            set(value, "None");
            return None;
        }
        text => text.parse().ok().and_then(|address| pool.allocate_exact(address)),
    };
    match &allocation {
        Some(allocation) => set(value, &allocation.address().to_string()),
        None => {
            let rule = "failed to allocate IP: the address is taken or not in the valid range";
            causes.invalid("spec.clusterIPs", &json!([wanted]), rule);
        }
    }
    allocation
}

fn set(value: &mut Value, address: &str) {
    value["spec"]["clusterIP"] = address.into();
    value["spec"]["clusterIPs"] = json!([address]);
}
