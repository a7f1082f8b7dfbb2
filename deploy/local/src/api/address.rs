//! Addresses of Services: each ClusterIP from a range, given once and taken back.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::causes::Causes;
use super::fields::{object, text};
use super::resource::Resource;
use crate::Range;

/// The table that holds Services.
pub(crate) const SERVICES: &str = "/services";

/// Which addresses of the range are in use.
#[derive(Debug)]
pub(crate) struct Addresses {
    range: Range,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    taken: HashSet<Ipv4Addr>,
    next: u32,
}

/// What a write that has not happened yet does to the addresses: one taken, which goes back on drop unless the write
/// happens, or one that is free once it has.
#[derive(Debug)]
pub(crate) struct Lease(Option<(Arc<Mutex<Used>>, Ipv4Addr, After)>);

/// What becomes of a leased address when the write happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It belongs to the Service.
    Kept,
    /// It no longer does.
    Free,
}

impl Lease {
    /// No address.
    pub(crate) fn none() -> Self {
        Lease(None)
    }

    /// The write happened.
    pub(crate) fn keep(mut self) {
        if let Some((used, address, After::Free)) = self.0.take() {
            used.lock().taken.remove(&address);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((used, address, After::Kept)) = self.0.take() {
            used.lock().taken.remove(&address);
        }
    }
}

impl Addresses {
    pub(crate) fn new(range: Range) -> Self {
        Addresses { range, used: Arc::default() }
    }

    /// Gives a Service its address, or keeps the one it has; other resources pass.
    pub(crate) fn assign(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        causes: &mut Causes,
    ) -> Lease {
        if &*resource.table != SERVICES {
            return Lease::none();
        }
        let (wanted, kind) = (text(value, "/spec/clusterIP").to_string(), text(value, "/spec/type").to_string());
        let kept = old.map(|old| text(old, "/spec/clusterIP").to_string()).unwrap_or_default();
        if kind == "ExternalName" {
            if let Some(spec) = value.get_mut("spec").map(object) {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            return Lease(kept.parse().ok().map(|kept| (self.used.clone(), kept, After::Free)));
        }
        if !kept.is_empty() {
            if !wanted.is_empty() && wanted != kept {
                causes.invalid("spec.clusterIPs[0]", &wanted.into(), "may not change once set");
            }
            set(value, &kept);
            return Lease::none();
        }
        let address = match wanted.as_str() {
            "" => self.take_any(),
            "None" => {
                set(value, "None");
                return Lease::none();
            }
            text => text.parse().ok().filter(|address| self.range.contains(*address) && self.take(*address)),
        };
        match address {
            Some(address) => {
                set(value, &address.to_string());
                Lease(Some((self.used.clone(), address, After::Kept)))
            }
            None => {
                let rule = "failed to allocate IP: the address is taken or not in the valid range";
                causes.invalid("spec.clusterIPs", &json!([wanted]), rule);
                Lease::none()
            }
        }
    }

    /// Takes an address back.
    pub(crate) fn release(&self, address: &str) {
        if let Ok(address) = address.parse() {
            self.used.lock().taken.remove(&address);
        }
    }

    fn take(&self, address: Ipv4Addr) -> bool {
        self.used.lock().taken.insert(address)
    }

    /// The next free address after the last one given, so that an address rests before it comes again.
    fn take_any(&self) -> Option<Ipv4Addr> {
        let mut used = self.used.lock();
        let usable = self.range.size() - 2; // Neither the first nor the last.
        for _ in 0..usable {
            let address = self.range.nth(1 + used.next);
            used.next = (used.next + 1) % usable;
            if used.taken.insert(address) {
                return Some(address);
            }
        }
        None
    }
}

fn set(value: &mut Value, address: &str) {
    value["spec"]["clusterIP"] = address.into();
    value["spec"]["clusterIPs"] = json!([address]);
}
