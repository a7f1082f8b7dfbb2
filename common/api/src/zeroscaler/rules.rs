//! Rules about several fields of one object, in CEL. The API server runs them, and so does the autoscaler
//! ([`super::validation`]).
//!
//! Each rule is attached to the field that contains all fields that it reads. Its message contains their values, because
//! an API server prints only the type of an object. Messages concatenate texts and format numbers: an API server regards
//! the length of `string()` as unbounded, and rejects a definition whose messages may cost that much.

use super::checks::DURATION;

/// Rule about several fields.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Field that contains all fields that the rule reads; `[]` stands for each item of a list.
    pub at: &'static str,
    /// Subfield that the user should change, as in CEL's `fieldPath`; empty: the whole field.
    pub field: &'static str,
    /// Condition that must hold, with `self` as the value at [`Rule::at`].
    pub(super) cel: String,
    /// Expression for the description of a violation.
    pub(super) message: &'static str,
    /// Description of the rule for the manual.
    pub description: &'static str,
}

/// Returns all rules. Comparisons hold if one of their fields is absent.
pub fn rules() -> Vec<Rule> {
    scale_rules().into_iter().chain(entry_and_wake_rules()).collect()
}

/// Returns the rules about the scale.
fn scale_rules() -> [Rule; 5] {
    [
        Rule {
            at: "spec.scale",
            field: ".min",
            cel: not_above("min", "max"),
            message: "'min %s is above max %s'.format([self.min, self.max])",
            description: "`scale.min` is not above `scale.max`, unless that is 0",
        },
        Rule {
            at: "spec.scale",
            field: ".activation",
            cel: not_above("activation", "max"),
            message: "'activation %s is above max %s'.format([self.activation, self.max])",
            description: "`scale.activation` is not above `scale.max`, unless that is 0",
        },
        Rule {
            at: "spec.scale.load",
            field: "",
            cel: "!(has(self.concurrency) && has(self.rps))".to_owned(),
            message: "'concurrency %s and rps %s exclude each other: set one'.format([self.concurrency, self.rps])",
            description: "`scale.load` has `concurrency` or `rps`, not both",
        },
        Rule {
            at: "spec.scale",
            field: ".panic.window",
            cel: durations_compare("panic.window", "<=", "window"),
            message: "'panic.window ' + self.panic.window + ' is longer than window ' + self.window",
            description: "`scale.panic.window` is not longer than `scale.window`",
        },
        Rule {
            at: "spec",
            field: ".scale.load.concurrency",
            cel: not_above("scale.load.concurrency", "concurrency"),
            message: "'scale.load.concurrency %s is above the hard limit, concurrency %s'\
                      .format([self.scale.load.concurrency, self.concurrency])",
            description: "`scale.load.concurrency` is not above `concurrency`, unless that is 0",
        },
    ]
}

/// Returns the rules about entries of lists (metrics, ports, static responses, schedules) and about fallbacks.
fn entry_and_wake_rules() -> [Rule; 7] {
    [
        Rule {
            at: "spec.metrics[]",
            field: "",
            cel: only_its_source(),
            message: "'a metric of type ' + self.type + ' must have exactly the field of that name'",
            description: "a metric has exactly the field that its type names",
        },
        Rule {
            at: "spec.ports[]",
            field: ".wakeAfter",
            cel: "!has(self.wakeAfter) || self.protocol == 'tcp'".to_owned(),
            message: "'wakeAfter ' + self.wakeAfter + ' requires protocol tcp, but port ' + self.name + ' has ' \
                      + self.protocol",
            description: "`wakeAfter` requires protocol tcp",
        },
        Rule {
            at: "spec.wake.static[]",
            field: ".match",
            cel: format!("{} || {}", has_items("match.paths"), has_items("match.headers")),
            message: "'paths or headers are expected: a static response to every request would keep the workload \
                      asleep'",
            description: "an entry of `static` has paths or headers: a response to every request would keep the \
                          workload asleep",
        },
        Rule {
            at: "spec",
            field: ".wake.fallback.service",
            cel: fallback_is_another_service(),
            message: "'wake.fallback.service ' + self.wake.fallback.service + ' is a Service of this workload: name \
                      another one'",
            description: "`wake.fallback.service` is not a Service of this workload",
        },
        Rule {
            at: "spec.wake",
            field: ".fallback.after",
            cel: durations_compare("fallback.after", "<", "timeout"),
            message: "'fallback.after ' + self.fallback.after + ' is not shorter than timeout ' + self.timeout",
            description: "`wake.fallback.after` is shorter than `wake.timeout`",
        },
        Rule {
            at: "spec.schedules[]",
            field: "",
            cel: "has(self.min) || has(self.max)".to_owned(),
            message: "'min or max is expected: schedule ' + self.cron + ' changes nothing'",
            description: "a schedule has `min` or `max`",
        },
        Rule {
            at: "spec.schedules[]",
            field: ".min",
            cel: not_above("min", "max"),
            message: "'min %s is above max %s'.format([self.min, self.max])",
            description: "its `min` is not above its `max`, unless that is 0",
        },
    ]
}

/// Returns the condition that a number is at most another one, unless that is 0.
fn not_above(low: &str, high: &str) -> String {
    let both = format!("{} && {}", has(low), has(high));
    format!("!({both}) || self.{high} == 0 || double(self.{low}) <= double(self.{high})")
}

/// Returns the condition that two durations compare like this. It holds if one of them is malformed.
fn durations_compare(a: &str, sign: &str, b: &str) -> String {
    let malformed = |path: &str| format!("!self.{path}.matches('{}')", DURATION.expression);
    let compared = format!("duration(self.{a}) {sign} duration(self.{b})");
    format!("!({} && {}) || {} || {} || {compared}", has(a), has(b), malformed(a), malformed(b))
}

/// Returns the condition that a metric has the source that its type names, and no other.
fn only_its_source() -> String {
    let sources = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let one = |kind: &str| format!("(self.type == '{kind}') == has(self.{}{})", kind[..1].to_lowercase(), &kind[1..]);
    sources.map(one).join(" && ")
}

/// Returns the condition that the fallback is not one of the Services that clients call.
fn fallback_is_another_service() -> String {
    let own = "(has(self.services) && size(self.services) > 0 ? self.services.exists(service, service.name == \
               self.wake.fallback.service) : self.target.name == self.wake.fallback.service)";
    format!("!({}) || !{own}", has("wake.fallback.service"))
}

/// Returns the condition that a list has items.
fn has_items(path: &str) -> String {
    format!("({} && size(self.{path}) > 0)", has(path))
}

/// Returns the condition that each field of a path is present.
fn has(path: &str) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| format!("has(self.{})", &path[..end])).collect::<Vec<_>>().join(" && ")
}
