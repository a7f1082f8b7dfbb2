//! Writes two pages: a short one for the manual with the figures that matter to users, and one with all rows, which CI
//! keeps as an artifact.

use super::store::StoredFigures;
use super::{BoundKind, Figures, Measurement, Report, Row, machine, plot, short, spread, verdict};
use crate::settings::quantile;
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// Name of either page, and prefix of the names of its plots.
const PAGE: &str = "performance.md";
const PLOT: &str = "performance-";
/// Rows of the short page.
const BRIEF: &str = "\
    http1-cpu-haproxy http1-rate h2c-cpu grpc-cpu p99-half-load tcp-rate held-8000-fresh release-5000 wake-20ms \
    fair-even fair-killed ports-ready idle-memory wake-request wake-ticking standalone-memory asleep-memory \
    scraped-memory scraped-cpu many-start many-takeover many-patch many-resync page-open";
/// Measurement whose absolute figures the short page plots next to those of peers, named by its first row.
const PEERS: &str = "http1-cpu-haproxy";

const BRIEF_TITLE: &str = "# Performance

`cargo run --profile dist -p bench -- report` writes this page. The CI workflow `bench` stores a page with all rows,
their spread and plots as the artifact `performance`.

A figure with ÷ is a ratio to a peer that did the same work on the same machine in the same run. Client, proxy and
backend share all cores. Such ratios also hold on other machines. Figures with a unit are for orientation. In a
release each row must meet its bound: with its median, or, if the repetitions are single events, with the worst value or
the 99th percentile.
";

const TITLE: &str = "# Performance: all rows

Most rows are ratios to a peer that did the same work on the same machine in the same run, in turns, so that other load
of the machine affected both. Client, proxy and backend share all cores. Rows with a unit depend on the machine.
*must* is the bound, *aim* the goal. The verdict applies to the median, unless another value is marked: the 99th
percentile or the worst. Context figures are absolute, for orientation. Each figure has minimum, median and maximum of
its repetitions.
";

/// Name of a plane, and its measurements.
pub(crate) type PlaneRows = (&'static str, &'static [Measurement]);

/// Writes the short page with its three plots, or the page of all rows, into `folder`. Replaces existing ones.
pub(super) fn write(folder: &Path, is_whole: bool, planes: &[PlaneRows], report: &Report) -> anyhow::Result<()> {
    clear(folder)?;
    let mut page = if is_whole { TITLE } else { BRIEF_TITLE }.to_owned();
    write_machine(&mut page)?;
    for (plane, measurements) in planes {
        writeln!(page, "\n## The {plane}\n")?;
        write_dots(&mut page, folder, plane, measurements, report)?;
        if !is_whole {
            write_brief_table(&mut page, plane, measurements, report)?;
        }
        for measurement in *measurements {
            let first = measurement.first_row();
            let stored = report.latest(plane, measurement);
            if is_whole {
                write_tables(&mut page, measurement.rows, stored.map(|stored| &stored.figures))?;
            }
            let Some(StoredFigures { figures, code, repetitions, seconds, .. }) = stored else { continue };
            let groups = peers(&figures.context);
            if !groups.is_empty() && (is_whole || first == PEERS) {
                let name = format!("{PLOT}{plane}-{first}.svg");
                std::fs::write(folder.join(&name), plot::bars(&groups))?;
                writeln!(page, "\n![The same in absolute figures, compared with other programs]({name})")?;
            }
            if is_whole {
                let of = format!("Of commit {} ({}), profile `{}`", code.commit, code.date, code.profile);
                writeln!(page, "\n{of}, {repetitions} repetitions of {seconds} s.")?;
            }
        }
    }
    Ok(std::fs::write(folder.join(PAGE), page)?)
}

fn write_brief_table(
    page: &mut String,
    plane: &str,
    measurements: &[Measurement],
    report: &Report,
) -> std::fmt::Result {
    writeln!(page, "\n| | median | worst | bound |\n|---|--:|--:|--:|")?;
    for (measurement, row) in measurements.iter().flat_map(|m| m.rows.iter().map(move |row| (m, row))) {
        let stored = report.latest(plane, measurement).and_then(|stored| stored.figures.samples(row.name));
        if let Some(samples) = stored.filter(|_| BRIEF.split(' ').any(|name| name == row.name)) {
            let [least, median, greatest] = spread(samples).map(short);
            let worst = if row.bound_kind == BoundKind::AtMost { greatest } else { least };
            writeln!(page, "| {} | {median} | {worst} | {} |", label(row), short(row.must))?;
        }
    }
    Ok(())
}

/// Returns the description of a row with its unit.
fn label(row: &Row) -> String {
    if row.unit.is_empty() { row.what.to_owned() } else { format!("{}, {}", row.what, row.unit) }
}

/// Removes the plots of an earlier page.
fn clear(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PLOT) && name.ends_with(".svg") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn write_dots(
    page: &mut String,
    folder: &Path,
    plane: &str,
    measurements: &[Measurement],
    report: &Report,
) -> anyhow::Result<()> {
    let all = measurements.iter().map(|m| (m, report.latest(plane, m)));
    let rows = all.flat_map(|(m, stored)| m.rows.iter().map(move |row| (row, stored)));
    let dots = rows.filter_map(|(row, stored)| Some(plot::Dot::new(row, stored?.figures.samples(row.name)?)));
    let name = format!("{PLOT}{plane}.svg");
    std::fs::write(folder.join(&name), plot::dots(&dots.collect::<Vec<_>>()))?;
    Ok(writeln!(page, "![Rows of the {plane}, each with its bound]({name})")?)
}

fn write_machine(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n| | |\n|---|---|")?;
    for (name, value) in machine::facts() {
        writeln!(page, "| {name} | {value} |")?;
    }
    Ok(())
}

/// Writes the rows of a measurement and its context figures.
pub(super) fn write_tables(page: &mut String, rows: &[Row], figures: Option<&Figures>) -> std::fmt::Result {
    writeln!(page, "\n| row | | least | median | greatest | must | aim | |\n|---|---|--:|--:|--:|--:|--:|---|")?;
    for row in rows {
        let (name, what, must, aim) = (row.name, label(row), short(row.must), short(row.aim));
        let Some(samples) = figures.and_then(|figures| figures.samples(name)) else {
            writeln!(page, "| `{name}` | {what} | | | | {must} | {aim} | not measured |")?;
            continue;
        };
        let [least, median, greatest] = spread(samples).map(short);
        let judged = match row.judged {
            super::P99 => " (p99)",
            super::LEAST => " (least)",
            super::GREATEST => " (greatest)",
            _ => "",
        };
        let verdict = verdict(row, quantile(samples, row.judged));
        writeln!(
            page,
            "| `{name}` | {what} | {least} | **{median}** | {greatest} | {must} | {aim} | {verdict}{judged} |"
        )?;
    }
    let context = figures.map(|figures| figures.context.as_slice()).unwrap_or_default();
    for (n, (what, samples)) in context.iter().enumerate() {
        if n == 0 {
            writeln!(page, "\n| context | least | median | greatest |\n|---|--:|--:|--:|")?;
        }
        let [least, median, greatest] = spread(samples).map(short);
        writeln!(page, "| {what} | {least} | {median} | {greatest} |")?;
    }
    Ok(())
}

/// Returns figures of the same kind for several targets, from labels of the form `target: figure`.
fn peers(context: &[(String, Vec<f64>)]) -> Vec<plot::Group<'_>> {
    let mut groups: Vec<plot::Group<'_>> = Vec::new();
    for (label, samples) in context {
        let Some((target, what)) = label.split_once(": ") else { continue };
        let bar = plot::Bar { target, spread: spread(samples) };
        match groups.iter_mut().find(|group| group.what == what) {
            Some(group) => group.bars.push(bar),
            None => groups.push(plot::Group { what, bars: vec![bar] }),
        }
    }
    groups.retain(|group| group.bars.len() > 1);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_targets_are_grouped_by_kind() {
        let context = [("a: µs", 1.0), ("b: µs", 2.0), ("a: requests/s", 3.0), ("alone", 4.0)];
        let context: Vec<_> = context.map(|(label, value)| (label.to_owned(), vec![value])).into();
        let groups = peers(&context);
        assert_eq!(groups.iter().map(|group| (group.what, group.bars.len())).collect::<Vec<_>>(), [("µs", 2)]);
    }
}
