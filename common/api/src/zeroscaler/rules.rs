//! Rules about several fields of one object, side by side in CEL and in Rust.
//!
//! Each stands at the field that holds all that it reads; its message names the values, since an API server shows of an
//! object only that it is one.

use super::{DurationText, PortProtocol, ZeroScalerSpec};
use common::golang::GoDuration;
use k8s_openapi::api::autoscaling::v2::MetricSpec;

/// A rule about several fields.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The field that holds all that it reads; `[]` stands for each item of a list.
    pub at: &'static str,
    /// The field of it that is to be changed, as CEL's `fieldPath` has it; empty: all of it.
    pub field: &'static str,
    /// Whether it holds, in CEL.
    pub cel: &'static str,
    /// What is asked, for the manual.
    pub says: &'static str,
    /// What is wrong, as a text in CEL.
    pub message: &'static str,
    /// What is wrong.
    pub broken: fn(&ZeroScalerSpec) -> Vec<Broken>,
}

/// Which item of a list breaks a rule, if it is about items, and what is wrong.
pub type Broken = (Option<usize>, String);

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        at: "spec.scale",
        field: ".min",
        cel: "!has(self.min) || !has(self.max) || self.max == 0 || self.min <= self.max",
        says: "`scale.min` is not above `scale.max`, unless that is 0",
        message: "'min %d is above max %d'.format([self.min, self.max])",
        broken: |spec| {
            let (min, max) = (spec.scale.min.unwrap_or(0), spec.scale.max.unwrap_or(0));
            one(max != 0 && min > max, || format!("min {min} is above max {max}"))
        },
    },
    Rule {
        at: "spec.scale",
        field: ".activation",
        cel: "!has(self.activation) || !has(self.max) || self.max == 0 || self.activation <= self.max",
        says: "`scale.activation` is not above `scale.max`, unless that is 0",
        message: "'activation %d is above max %d'.format([self.activation, self.max])",
        broken: |spec| {
            let (activation, max) = (spec.scale.activation.unwrap_or(0), spec.scale.max.unwrap_or(0));
            one(max != 0 && activation > max, || format!("activation {activation} is above max {max}"))
        },
    },
    Rule {
        at: "spec.scale.load",
        field: "",
        cel: "!has(self.concurrency) || !has(self.rps)",
        says: "`scale.load` has `concurrency` or `rps`, not both",
        message: "'concurrency %s and rps %s are two targets: say one'.format([self.concurrency, self.rps])",
        broken: |spec| match (spec.scale.load.concurrency, spec.scale.load.rps) {
            (Some(concurrency), Some(rps)) => {
                one(true, || format!("concurrency {concurrency} and rps {rps} are two targets: say one"))
            }
            _ => Vec::new(),
        },
    },
    Rule {
        at: "spec.scale",
        field: ".panic.window",
        cel: "!has(self.window) || !has(self.panic) || !has(self.panic.window) || \
              !self.window.matches('^(0|([0-9]{1,6}(s|m|h))+)$') || \
              !self.panic.window.matches('^(0|([0-9]{1,6}(s|m|h))+)$') || \
              duration(self.panic.window) <= duration(self.window)",
        says: "`scale.panic.window` is not longer than `scale.window`",
        message: "'panic.window ' + self.panic.window + ' is longer than window ' + self.window",
        broken: |spec| {
            let read = |text: &Option<DurationText>| text.as_ref().and_then(|text| text.parse().ok());
            let (short, long) = (read(&spec.scale.panic.window), read(&spec.scale.window));
            one(short.zip(long).is_some_and(|(short, long): (GoDuration, GoDuration)| short > long), || {
                let text = |text: &Option<DurationText>| text.clone().unwrap_or_default();
                let (short, long) = (text(&spec.scale.panic.window), text(&spec.scale.window));
                format!("panic.window {short} is longer than window {long}")
            })
        },
    },
    Rule {
        at: "spec",
        field: ".scale.load.concurrency",
        cel: "self.concurrency == 0 || !has(self.scale) || !has(self.scale.load) || !has(self.scale.load.concurrency) || \
              self.scale.load.concurrency <= double(self.concurrency)",
        says: "`scale.load.concurrency` is not above `concurrency`, unless that is 0",
        message: "'scale.load.concurrency %s is above the hard limit, concurrency %d'.format([self.scale.load.concurrency, \
                  self.concurrency])",
        broken: |spec| {
            let (limit, target) = (spec.concurrency, spec.scale.load.concurrency.unwrap_or(0.0));
            one(limit != 0 && target > f64::from(limit), || {
                format!("scale.load.concurrency {target} is above the hard limit, concurrency {limit}")
            })
        },
    },
    Rule {
        at: "spec.metrics[]",
        field: "",
        cel: "(self.type == 'ContainerResource') == has(self.containerResource) && \
              (self.type == 'External') == has(self.external) && (self.type == 'Object') == has(self.object) && \
              (self.type == 'Pods') == has(self.pods) && (self.type == 'Resource') == has(self.resource)",
        says: "a metric has exactly the field that its type names",
        message: "'a metric of type ' + self.type + ' has exactly the field of that name'",
        broken: |spec| {
            items(&spec.metrics, |metric| {
                let fits = has_its_field(metric);
                (!fits).then(|| format!("a metric of type {} has exactly the field of that name", metric.type_))
            })
        },
    },
    Rule {
        at: "spec.ports[]",
        field: ".wakeAfter",
        cel: "!has(self.wakeAfter) || self.protocol == 'tcp'",
        says: "`wakeAfter` stands only with protocol tcp",
        message: "'wakeAfter ' + self.wakeAfter + ' is for protocol tcp, and port ' + self.name + ' has ' + self.protocol",
        broken: |spec| {
            items(&spec.ports, |port| {
                let after = port.wake_after.as_ref().filter(|_| port.protocol != PortProtocol::Tcp)?;
                let (name, protocol) = (&port.name, port.protocol.as_str());
                Some(format!("wakeAfter {after} is for protocol tcp, and port {name} has {protocol}"))
            })
        },
    },
    Rule {
        at: "spec.wake.static[]",
        field: ".match",
        cel: "has(self.match) && ((has(self.match.paths) && size(self.match.paths) > 0) || \
              (has(self.match.headers) && size(self.match.headers) > 0))",
        says: "an entry of `static` names paths or headers: one for everything would never let the workload wake",
        message: "'paths or headers are expected: a static answer to everything lets nobody wake the workload'",
        broken: |spec| {
            items(&spec.wake.fixed, |fixed| {
                let names = !fixed.matching.paths.is_empty() || !fixed.matching.headers.is_empty();
                let wrong =
                    "paths or headers are expected: a static answer to everything lets nobody wake the workload";
                (!names).then(|| wrong.to_owned())
            })
        },
    },
    Rule {
        at: "spec",
        field: ".wake.fallback.service",
        cel: "!has(self.wake) || !has(self.wake.fallback) || !(has(self.services) && size(self.services) > 0 ? \
              self.services.exists(service, service.name == self.wake.fallback.service) : \
              self.target.name == self.wake.fallback.service)",
        says: "`wake.fallback.service` is another Service than those that clients call",
        message: "'wake.fallback.service ' + self.wake.fallback.service + ' is the Service that clients call: say another'",
        broken: |spec| {
            let fallback = spec.wake.fallback.as_ref().map_or("", |fallback| fallback.service.as_str());
            let is_own = spec.service_name() == fallback || spec.services.iter().any(|own| own.name == fallback);
            one(is_own && !fallback.is_empty(), || {
                format!("wake.fallback.service {fallback} is the Service that clients call: say another")
            })
        },
    },
    Rule {
        at: "spec.wake",
        field: ".fallback.after",
        cel: "!has(self.fallback) || !self.fallback.after.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ms|s|m|h))+)$') || \
              !self.timeout.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ms|s|m|h))+)$') || \
              duration(self.fallback.after) < duration(self.timeout)",
        says: "`wake.fallback.after` is shorter than `wake.timeout`",
        message: "'fallback.after ' + self.fallback.after + ' is not shorter than timeout ' + self.timeout",
        broken: |spec| {
            let Some(fallback) = &spec.wake.fallback else { return Vec::new() };
            let (after, timeout) = (&fallback.after, &spec.wake.timeout);
            let read = |text: &DurationText| text.parse().ok();
            let late = read(after).zip(read(timeout)).is_some_and(|(after, timeout): (GoDuration, _)| after >= timeout);
            one(late, || format!("fallback.after {after} is not shorter than timeout {timeout}"))
        },
    },
    Rule {
        at: "spec.schedules[]",
        field: "",
        cel: "has(self.min) || has(self.max)",
        says: "a schedule has `min` or `max`",
        message: "'min or max is expected: schedule ' + self.cron + ' changes nothing'",
        broken: |spec| {
            items(&spec.schedules, |schedule| {
                let changes = schedule.min.is_some() || schedule.max.is_some();
                (!changes).then(|| format!("min or max is expected: schedule {} changes nothing", schedule.cron))
            })
        },
    },
    Rule {
        at: "spec.schedules[]",
        field: ".min",
        cel: "!has(self.min) || !has(self.max) || self.max == 0 || self.min <= self.max",
        says: "its `min` is not above its `max`, unless that is 0",
        message: "'min %d is above max %d'.format([self.min, self.max])",
        broken: |spec| {
            items(&spec.schedules, |schedule| {
                let (min, max) = (schedule.min?, schedule.max?);
                (max != 0 && min > max).then(|| format!("min {min} is above max {max}"))
            })
        },
    },
];

fn has_its_field(metric: &MetricSpec) -> bool {
    let is = |kind: &str| metric.type_ == kind;
    is("ContainerResource") == metric.container_resource.is_some()
        && is("External") == metric.external.is_some()
        && is("Object") == metric.object.is_some()
        && is("Pods") == metric.pods.is_some()
        && is("Resource") == metric.resource.is_some()
}

fn one(broken: bool, message: impl FnOnce() -> String) -> Vec<Broken> {
    if broken { vec![(None, message())] } else { Vec::new() }
}

fn items<T>(list: &[T], broken: impl Fn(&T) -> Option<String>) -> Vec<Broken> {
    let all = list.iter().enumerate();
    all.filter_map(|(index, item)| Some((Some(index), broken(item)?))).collect()
}
