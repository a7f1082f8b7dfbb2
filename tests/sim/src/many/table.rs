//! Renders the figures of one size.

use super::{Allocation, Size, Traffic, allocate, changes, lease_writes, streams};
use common::config::PortRange;
use common::write_rate::Rate;
use std::fmt::Write;

/// Widest range that `config-ports` may contain: above the activators' own ports.
const WIDEST: PortRange = PortRange { first: 9091, last: u16::MAX };

/// Returns the figures as a Markdown table.
pub fn table(size: &Size) -> String {
    let Size { workloads, busy, activators, autoscalers, .. } = *size;
    let mut text = format!(
        "{workloads} workloads, {busy} of them busy, {autoscalers} autoscalers, {activators} activators\n\n\
         | links, each second | messages | stats | attestations | KiB | most on one link |\n\
         |---|---|---|---|---|---|\n"
    );
    let streams = streams(size);
    let most = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / 1024.0;
    for (links, all, most) in [
        ("activators to autoscalers", streams.up_all(), most(streams.up.iter().map(|link| link.bytes).max())),
        ("autoscalers to owners", streams.across_all(), most(streams.across.values().map(|link| link.bytes).max())),
    ] {
        let Traffic { frames, stats, attestations, bytes } = all;
        let kib = bytes as f64 / 1024.0;
        let _ = writeln!(text, "| {links} | {frames} | {stats} | {attestations} | {kib:.1} | {most:.1} KiB |");
    }
    let (leases, held) = lease_writes(autoscalers);
    let _ = write!(
        text,
        "\nLeases: {leases:.1} writes a second, each sent to {autoscalers} watches; at most {held} per autoscaler.\n\n\
         | slices of {workloads} workloads | writes | urgent | changed slices | all written after |\n\
         |---|---|---|---|---|\n"
    );
    for (what, changes) in ["one activator shuts down", "it returns", "it dies"].into_iter().zip(changes(size)) {
        let part = 100.0 * changes.touched as f64 / workloads as f64;
        let after = changes.writes as f64 / autoscalers as f64 / Rate::WITH_CONTROLLER.qps;
        let _ = writeln!(text, "| {what} | {} | {} | {part:.1} % | {after:.0} s |", changes.writes, changes.urgent);
    }
    let _ = writeln!(text, "\n| range for {workloads} ports | allocated | without | maps |\n|---|---|---|---|");
    for range in [PortRange::default(), WIDEST] {
        let Allocation { allocated, exhausted, maps, .. } = allocate(workloads, range);
        let _ = writeln!(text, "| {} ({range}) | {allocated} | {exhausted} | {maps} |", range.len());
    }
    text
}
