//! What the process uses, under Prometheus's names for it, and which build it is.
//!
//! The kernel is asked when somebody reads. In one that is more than one plane each of them shows the whole process.

use super::otlp::Who;
use super::{FamilyText, Instrument, Metrics, catalog};
use prometheus_client::encoding::NoLabelSet;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident: u64,
    size: u64,
    open: u64,
    /// None: as many as it likes.
    open_max: Option<u64>,
    /// Since 1970.
    started_seconds: f64,
}

/// Shows them.
pub(crate) fn show(metrics: &Metrics, who: &Who) {
    let component = who.service;
    metrics.collect(move || {
        let labels = [
            ("component", component),
            ("version", env!("CARGO_PKG_VERSION")),
            ("architecture", std::env::consts::ARCH),
        ];
        let mut families = vec![FamilyText::new(catalog::BUILD, [labels], |labels, encoder| {
            encoder.encode_family(&labels)?.encode_gauge(&1)
        })];
        let Some(usage) = Usage::now() else { return families };
        families.push(FamilyText::new(catalog::PROCESS_CPU, [usage.cpu_seconds], |seconds, encoder| {
            encoder.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
        }));
        let gauge = |instrument: Instrument, value: f64| {
            FamilyText::new(instrument, [value], |value, encoder| encoder.encode_gauge(&value))
        };
        families.extend([
            gauge(catalog::PROCESS_RESIDENT, usage.resident as f64),
            gauge(catalog::PROCESS_VIRTUAL, usage.size as f64),
            gauge(catalog::PROCESS_OPEN, usage.open as f64),
            gauge(catalog::PROCESS_STARTED, usage.started_seconds),
        ]);
        families.extend(usage.open_max.map(|most| gauge(catalog::PROCESS_OPEN_MAX, most as f64)));
        families
    });
}

impl Usage {
    /// None where there is no `/proc`, or it is not Linux's.
    fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let booted = boot.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
        // The folder that is read is open, too.
        let open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        let units = (rustix::param::clock_ticks_per_second(), rustix::param::page_size());
        Some(Self { open: open as u64, open_max: getrlimit(Resource::Nofile).current, ..parse(&stat, booted, units)? })
    }
}

/// Of a line of `/proc/PID/stat`. `units`: clock ticks in a second, bytes in a page.
fn parse(stat: &str, booted: u64, units: (u64, usize)) -> Option<Usage> {
    // The name is in parentheses, and may hold some.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field behind the name is the third one of proc(5).
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let seconds = |ticks: u64| ticks as f64 / units.0 as f64;
    Some(Usage {
        cpu_seconds: seconds(field(14)? + field(15)?),
        started_seconds: booted as f64 + seconds(field(22)?),
        size: field(23)?,
        resident: field(24)? * units.1 as u64,
        open: 0,
        open_max: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_line_of_the_kernels_comes_apart() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 4 0 6000 8192 3 18446744073709551615 1";
        let usage = parse(stat, 1000, (100, 4096)).expect("a line");
        assert_eq!((usage.cpu_seconds, usage.started_seconds), (2.0, 1060.0));
        assert_eq!((usage.size, usage.resident), (8192, 3 * 4096));
        assert_eq!(parse("7 (a) S 1", 0, (100, 4096)), None);
    }

    /// Goal: the numbers are those of this process, and all of them are listed.
    #[test]
    fn this_process_is_shown() {
        let metrics = Metrics::default();
        show(&metrics, &Who { service: "activator", namespace: String::new(), pod: String::new() });
        let text = metrics.encode().expect("text");
        assert_eq!(catalog::strangers(&text), <[String; 0]>::default());
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_cpu_seconds_total") >= 0.0);
        assert!((1.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        let now = fs::metadata("/proc/self").and_then(|meta| meta.modified()).expect("a time");
        let now = now.duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        assert!((0.0..86_400.0 * 365.0).contains(&(now + 5.0 - value("process_start_time_seconds"))), "{text}");
        let build = "zeroscale_build_info{component=\"activator\",version=";
        assert!(text.contains(build), "{text}");
    }
}
