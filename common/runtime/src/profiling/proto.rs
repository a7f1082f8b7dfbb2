//! `profile.proto` of github.com/google/pprof, as far as a CPU profile fills it: names in one table, functions and
//! locations by number from 1, and samples that list their locations from the innermost frame outwards.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Profile {
    /// What each value of a sample counts.
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    /// How often each stack was seen.
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    /// Places in the program.
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    /// Every text, the empty one first.
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    /// When it began.
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    /// How long it took.
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    /// What `period` counts.
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    /// Nanoseconds between two samples.
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
}

/// A kind of value and its unit, as places in the table.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) kind: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

/// A stack and its values.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) label: Vec<Label>,
}

/// What else is known of a sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub(super) key: i64,
    #[prost(int64, tag = "2")]
    pub(super) text: i64,
}

/// A place in the program: a function and those inlined into it, innermost first.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "3")]
    pub(super) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(super) line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}

/// Texts, functions and locations, each once.
#[derive(Default)]
struct Tables {
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    locations: HashMap<Vec<(u64, i64)>, u64>,
}

impl Profile {
    /// From what was sampled so many times a second.
    pub(super) fn of(report: &pprof::Report, frequency: i32, length: Duration) -> Self {
        let mut tables = Tables::default();
        tables.text("");
        let (samples, count) = (tables.text("samples"), tables.text("count"));
        let (cpu, nanoseconds) = (tables.text("cpu"), tables.text("nanoseconds"));
        let thread = tables.text("thread");
        let period = 1_000_000_000 / i64::from(frequency.max(1));
        for (frames, seen) in &report.data {
            let seen = i64::try_from(*seen).unwrap_or(i64::MAX);
            let location_id = frames.frames.iter().map(|symbols| tables.location(symbols)).collect();
            let label = vec![Label { key: thread, text: tables.text(&frames.thread_name) }];
            let value = vec![seen, seen.saturating_mul(period)];
            tables.profile.sample.push(Sample { location_id, value, label });
        }
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self {
            sample_type: vec![ValueType { kind: samples, unit: count }, ValueType { kind: cpu, unit: nanoseconds }],
            time_nanos: report.timing.start_time.duration_since(UNIX_EPOCH).map_or(0, nanos),
            duration_nanos: nanos(length),
            period_type: Some(ValueType { kind: cpu, unit: nanoseconds }),
            period,
            ..tables.profile
        }
    }
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(at) = self.texts.get(text) {
            return *at;
        }
        let at = i64::try_from(self.profile.string_table.len()).unwrap_or(0);
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), at);
        at
    }

    fn function(&mut self, symbol: &pprof::Symbol) -> u64 {
        let (name, file) = (self.text(&symbol.name()), self.text(&symbol.filename()));
        let system_name = self.text(&symbol.sys_name());
        let functions = &mut self.profile.function;
        *self.functions.entry((name, file)).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(Function { id, name, system_name, filename: file });
            id
        })
    }

    fn location(&mut self, symbols: &[pprof::Symbol]) -> u64 {
        let lines: Vec<(u64, i64)> =
            symbols.iter().map(|symbol| (self.function(symbol), i64::from(symbol.lineno()))).collect();
        let locations = &mut self.profile.location;
        *self.locations.entry(lines.clone()).or_insert_with(|| {
            let id = locations.len() as u64 + 1;
            let line =
                lines.iter().map(|(function_id, line)| Line { function_id: *function_id, line: *line }).collect();
            locations.push(Location { id, address: 0, line });
            id
        })
    }
}
