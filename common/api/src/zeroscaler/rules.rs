//! Rules about several fields of one object. Each is written once, as a [`Form`]. The CEL that the API server runs, its
//! message, and the owner's check are derived from it.
//!
//! Each rule is attached to the field that contains all fields that it reads. Its message contains their values,
//! because an API server prints only the type of an object.

use super::checks::DURATION;
use common::golang::{GoDuration, parse_duration};
use serde_json::Value;

/// Rule about several fields.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Field that contains all fields that the rule reads; `[]` stands for each item of a list.
    pub at: &'static str,
    /// Subfield that the user should change, as in CEL's `fieldPath`; empty: the whole field.
    pub field: &'static str,
    /// Condition that must hold.
    pub form: Form,
    /// Description of the rule for the manual.
    pub says: &'static str,
    /// Description of the violation, with the paths of values in braces.
    message: &'static str,
}

/// Condition on fields, which are given by their paths. A comparison holds if one of its fields is absent.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The first number is at most the second, unless the second is 0.
    NotAbove(&'static str, &'static str),
    /// The first duration is not longer than the second.
    NotLonger(&'static str, &'static str),
    /// The first duration is shorter than the second.
    Shorter(&'static str, &'static str),
    /// At most one of the two fields is present.
    NotBoth(&'static str, &'static str),
    /// At least one of the two fields is present.
    Either(&'static str, &'static str),
    /// At least one of the two lists has items.
    EitherHasItems(&'static str, &'static str),
    /// The first field is present only if the second one is this text.
    OnlyWith(&'static str, &'static str, &'static str),
    /// A metric has the source that its `type` names, and no other.
    ItsSourceAlone,
    /// The fallback is not one of the Services that clients call.
    AnotherService,
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        at: "spec.scale",
        field: ".min",
        form: Form::NotAbove("min", "max"),
        says: "`scale.min` is not above `scale.max`, unless that is 0",
        message: "min {min} is above max {max}",
    },
    Rule {
        at: "spec.scale",
        field: ".activation",
        form: Form::NotAbove("activation", "max"),
        says: "`scale.activation` is not above `scale.max`, unless that is 0",
        message: "activation {activation} is above max {max}",
    },
    Rule {
        at: "spec.scale.load",
        field: "",
        form: Form::NotBoth("concurrency", "rps"),
        says: "`scale.load` has `concurrency` or `rps`, not both",
        message: "concurrency {concurrency} and rps {rps} are two targets: say one",
    },
    Rule {
        at: "spec.scale",
        field: ".panic.window",
        form: Form::NotLonger("panic.window", "window"),
        says: "`scale.panic.window` is not longer than `scale.window`",
        message: "panic.window {panic.window} is longer than window {window}",
    },
    Rule {
        at: "spec",
        field: ".scale.load.concurrency",
        form: Form::NotAbove("scale.load.concurrency", "concurrency"),
        says: "`scale.load.concurrency` is not above `concurrency`, unless that is 0",
        message: "scale.load.concurrency {scale.load.concurrency} is above the hard limit, concurrency {concurrency}",
    },
    Rule {
        at: "spec.metrics[]",
        field: "",
        form: Form::ItsSourceAlone,
        says: "a metric has exactly the field that its type names",
        message: "a metric of type {type} has exactly the field of that name",
    },
    Rule {
        at: "spec.ports[]",
        field: ".wakeAfter",
        form: Form::OnlyWith("wakeAfter", "protocol", "tcp"),
        says: "`wakeAfter` stands only with protocol tcp",
        message: "wakeAfter {wakeAfter} is for protocol tcp, and port {name} has {protocol}",
    },
    Rule {
        at: "spec.wake.static[]",
        field: ".match",
        form: Form::EitherHasItems("match.paths", "match.headers"),
        says: "an entry of `static` names paths or headers: one for everything would never let the workload wake",
        message: "paths or headers are expected: a static answer to everything lets nobody wake the workload",
    },
    Rule {
        at: "spec",
        field: ".wake.fallback.service",
        form: Form::AnotherService,
        says: "`wake.fallback.service` is another Service than those that clients call",
        message: "wake.fallback.service {wake.fallback.service} is the Service that clients call: say another",
    },
    Rule {
        at: "spec.wake",
        field: ".fallback.after",
        form: Form::Shorter("fallback.after", "timeout"),
        says: "`wake.fallback.after` is shorter than `wake.timeout`",
        message: "fallback.after {fallback.after} is not shorter than timeout {timeout}",
    },
    Rule {
        at: "spec.schedules[]",
        field: "",
        form: Form::Either("min", "max"),
        says: "a schedule has `min` or `max`",
        message: "min or max is expected: schedule {cron} changes nothing",
    },
    Rule {
        at: "spec.schedules[]",
        field: ".min",
        form: Form::NotAbove("min", "max"),
        says: "its `min` is not above its `max`, unless that is 0",
        message: "min {min} is above max {max}",
    },
];

/// Types of metrics, with the fields of their sources.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

impl Rule {
    /// Returns the message as a CEL expression. Texts are concatenated and numbers are formatted: an API server regards
    /// the length of `string()` as unbounded, and rejects a definition whose messages may cost that much.
    pub(super) fn cel_message(&self) -> String {
        if !matches!(self.form, Form::NotAbove(..) | Form::NotBoth(..)) {
            let parts = self.parts().map(|part| match part {
                Part::Text(text) => format!("'{text}'"),
                Part::Field(path) => format!("self.{path}"),
            });
            return parts.collect::<Vec<_>>().join(" + ");
        }
        let (mut text, mut numbers) = (String::new(), Vec::new());
        for part in self.parts() {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Field(path) => {
                    text.push_str("%s");
                    numbers.push(format!("self.{path}"));
                }
            }
        }
        format!("'{text}'.format([{}])", numbers.join(", "))
    }

    /// Returns the message if the rule does not hold for `value`, which is the value at [`Rule::at`].
    pub(super) fn broken(&self, value: &Value) -> Option<String> {
        let say = |part| match part {
            Part::Text(text) => text.to_owned(),
            Part::Field(path) => get(value, path).map(super::validation::display_value).unwrap_or_default(),
        };
        (!self.form.holds(value)).then(|| self.parts().map(say).collect())
    }

    fn parts(&self) -> impl Iterator<Item = Part> {
        let parts = self.message.split(['{', '}']).enumerate();
        parts
            .map(|(n, text)| if n % 2 == 0 { Part::Text(text) } else { Part::Field(text) })
            .filter(|part| !part.is_empty())
    }
}

/// Part of a message.
enum Part {
    Text(&'static str),
    Field(&'static str),
}

impl Part {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Text(""))
    }
}

impl Form {
    /// Returns the condition in CEL, with `self` as the value.
    pub(super) fn cel(self) -> String {
        let unless_absent = |a: &str, b: &str, rule: String| format!("!({} && {}) || {rule}", has(a), has(b));
        let durations = |a: &str, sign: &str, b: &str| {
            let readable = |path: &str| format!("self.{path}.matches('{}')", DURATION.expression);
            let compared = format!("duration(self.{a}) {sign} duration(self.{b})");
            unless_absent(a, b, format!("!{} || !{} || {compared}", readable(a), readable(b)))
        };
        match self {
            Self::NotAbove(low, high) => {
                unless_absent(low, high, format!("self.{high} == 0 || double(self.{low}) <= double(self.{high})"))
            }
            Self::NotLonger(short, long) => durations(short, "<=", long),
            Self::Shorter(short, long) => durations(short, "<", long),
            Self::NotBoth(a, b) => format!("!({} && {})", has(a), has(b)),
            Self::Either(a, b) => format!("{} || {}", has(a), has(b)),
            Self::EitherHasItems(a, b) => {
                let filled = |path: &str| format!("({} && size(self.{path}) > 0)", has(path));
                format!("{} || {}", filled(a), filled(b))
            }
            Self::OnlyWith(field, tag, text) => format!("!{} || self.{tag} == '{text}'", has(field)),
            Self::ItsSourceAlone => {
                let one = |(kind, field)| format!("(self.type == '{kind}') == has(self.{field})");
                SOURCES.map(one).join(" && ")
            }
            Self::AnotherService => {
                let fallback = "wake.fallback.service";
                let own = "(has(self.services) && size(self.services) > 0 ? self.services.exists(service, service.name == \
                           self.wake.fallback.service) : self.target.name == self.wake.fallback.service)";
                format!("!({}) || !{own}", has(fallback))
            }
        }
    }

    /// Reports whether the condition holds for a value. The schema handles values of a wrong type.
    fn holds(self, value: &Value) -> bool {
        let number = |path| get(value, path).and_then(Value::as_f64);
        let duration = |path| {
            let text = get(value, path).and_then(Value::as_str).filter(|text| DURATION.matches(text));
            text.and_then(|text| parse_duration(text).ok())
        };
        let durations = |a, b, fits: fn(&GoDuration, &GoDuration) -> bool| {
            duration(a).zip(duration(b)).is_none_or(|(a, b)| fits(&a, &b))
        };
        let is_there = |path| get(value, path).is_some();
        let has_items = |path| get(value, path).and_then(Value::as_array).is_some_and(|items| !items.is_empty());
        match self {
            Self::NotAbove(low, high) => {
                number(low).zip(number(high)).is_none_or(|(low, high)| high == 0.0 || low <= high)
            }
            Self::NotLonger(short, long) => durations(short, long, |short, long| short <= long),
            Self::Shorter(short, long) => durations(short, long, |short, long| short < long),
            Self::NotBoth(a, b) => !is_there(a) || !is_there(b),
            Self::Either(a, b) => is_there(a) || is_there(b),
            Self::EitherHasItems(a, b) => has_items(a) || has_items(b),
            Self::OnlyWith(field, tag, text) => !is_there(field) || value[tag] == text,
            Self::ItsSourceAlone => SOURCES.iter().all(|(kind, field)| (value["type"] == *kind) == is_there(field)),
            Self::AnotherService => {
                let Some(fallback) = get(value, "wake.fallback.service") else { return true };
                match value["services"].as_array().filter(|services| !services.is_empty()) {
                    Some(services) => services.iter().all(|service| service["name"] != *fallback),
                    None => value["target"]["name"] != *fallback,
                }
            }
        }
    }
}

/// Returns a CEL test for the presence of a field: of each step of its path.
fn has(path: &str) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| format!("has(self.{})", &path[..end])).collect::<Vec<_>>().join(" && ")
}

/// Returns the value at a path, if present.
fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null())
}
