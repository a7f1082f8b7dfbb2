//! Renders the figures of one size.

use super::{Size, Traffic, changes, lease_writes, numbers, streams};
use common::config::PortRange;
use common::write_rate::Rate;
use std::fmt::Write;

/// Widest range that `config-ports` may name: above the activators' own ports.
const WIDEST: PortRange = PortRange { first: 9091, last: u16::MAX };

/// Returns the figures as a Markdown table.
pub fn table(size: &Size) -> String {
    let Size { workloads, busy, activators, autoscalers, .. } = *size;
    let mut text = format!(
        "{workloads} workloads, {busy} of them busy, {autoscalers} autoscalers, {activators} activators\n\n\
         | who to whom, each second | messages | stats | attestations | KiB | most on one link |\n\
         |---|---|---|---|---|---|\n"
    );
    let streams = streams(size);
    let mut row = |what: &str, all: Traffic, most: u64| {
        let Traffic { frames, stats, attestations, bytes } = all;
        let (kib, most) = (bytes as f64 / 1024.0, most as f64 / 1024.0);
        let _ = writeln!(text, "| {what} | {frames} | {stats} | {attestations} | {kib:.1} | {most:.1} KiB |");
    };
    let most = |bytes: &mut dyn Iterator<Item = u64>| bytes.max().unwrap_or(0);
    row(
        "an activator to the autoscaler that it is connected to",
        streams.up_all(),
        most(&mut streams.up.iter().map(|t| t.bytes)),
    );
    row("that one to the owners of buckets", streams.across_all(), most(&mut streams.across.values().map(|t| t.bytes)));
    let (leases, held) = lease_writes(autoscalers);
    let _ = writeln!(
        text,
        "\nLeases: {leases:.1} writes a second, each told to {autoscalers} watches; most leases of one: {held}.\n"
    );
    let _ = writeln!(
        text,
        "| of the slices of all {workloads} | writes | of them urgent | part of all | all written after |\n|---|---|---|---|---|"
    );
    for (what, changes) in ["one activator ends in order", "it comes back", "it dies"].into_iter().zip(changes(size)) {
        let part = 100.0 * changes.touched as f64 / workloads as f64;
        let after = changes.writes as f64 / autoscalers as f64 / Rate::WITH_CONTROLLER.qps;
        let _ = writeln!(text, "| {what} | {} | {} | {part:.1} % | {after:.0} s |", changes.writes, changes.urgent);
    }
    let _ = writeln!(
        text,
        "\n| numbers for {workloads} ports, from a range of | have one | have none | maps |\n|---|---|---|---|"
    );
    for range in [PortRange::default(), WIDEST] {
        let given = numbers(workloads, range);
        let _ = writeln!(text, "| {} ({range}) | {} | {} | {} |", range.len(), given.given, given.without, given.maps);
    }
    text
}
