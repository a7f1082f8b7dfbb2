//! Resource usage of the process, under Prometheus's names, and its build.
//!
//! The kernel is read at each scrape. If a process runs several planes, each of them reports the whole process.

use super::otlp::ProcessIdentity;
use super::{FamilyText, Instrument, Metrics, catalog};
use procfs::ProcResult;
use procfs::process::{LimitValue, Process};
use prometheus_client::encoding::NoLabelSet;
use std::env::consts::ARCH;

pub(crate) fn register(metrics: &Metrics, identity: &ProcessIdentity) {
    let component = identity.service;
    metrics.collect(move || {
        let labels = [("component", component), ("version", env!("CARGO_PKG_VERSION")), ("architecture", ARCH)];
        let mut families = vec![FamilyText::new(catalog::BUILD, [labels], |labels, encoder| {
            encoder.encode_family(&labels)?.encode_gauge(&1)
        })];
        // Without Linux's `/proc` there are no others.
        families.extend(usage().into_iter().flatten());
        families
    });
}

/// Reads the resource usage of this process from the kernel.
fn usage() -> ProcResult<Vec<FamilyText>> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let gauge = |instrument: Instrument, value: f64| {
        FamilyText::new(instrument, [value], |value, encoder| encoder.encode_gauge(&value))
    };
    let cpu = FamilyText::new(catalog::PROCESS_CPU, [seconds(stat.utime + stat.stime)], |seconds, encoder| {
        encoder.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
    });
    let mut families = vec![
        cpu,
        gauge(catalog::PROCESS_RESIDENT, (stat.rss * procfs::page_size()) as f64),
        gauge(catalog::PROCESS_VIRTUAL, stat.vsize as f64),
        gauge(catalog::PROCESS_OPEN, process.fd_count()? as f64),
        gauge(catalog::PROCESS_STARTED, procfs::boot_time_secs()? as f64 + seconds(stat.starttime)),
    ];
    if let LimitValue::Value(most) = process.limits()?.max_open_files.soft_limit {
        families.push(gauge(catalog::PROCESS_OPEN_MAX, most as f64));
    }
    Ok(families)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::UNIX_EPOCH;

    /// Goal: the numbers are those of this process, and all of them are listed.
    #[test]
    fn the_metrics_of_this_process_are_exported() {
        let metrics = Metrics::default();
        register(&metrics, &ProcessIdentity { service: "activator", namespace: String::new(), pod: String::new() });
        let text = metrics.encode().expect("text");
        assert_eq!(catalog::differences(&text), <[String; 0]>::default());
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
