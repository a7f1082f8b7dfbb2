//! The same load on several targets, which take turns in each repetition.

use crate::load::LoadResult;
use crate::proxy::Target;
use crate::report::Figures;
use crate::settings::Settings;

/// Figures of one target, by repetition.
pub(super) struct Series {
    name: &'static str,
    /// CPU time of the target per counted event, in microseconds. Empty for the backend itself.
    pub(super) cpu: Vec<f64>,
    /// Counted events per second.
    pub(super) rate: Vec<f64>,
}

/// Applies the load to every target once to warm up, and then to all targets in turn for each repetition.
pub(super) async fn run(
    settings: &Settings,
    targets: &[Target],
    load: impl AsyncFn(&Target) -> anyhow::Result<LoadResult>,
) -> anyhow::Result<Vec<Series>> {
    let series = |t: &Target| Series { name: t.name, cpu: Vec::new(), rate: Vec::new() };
    let mut all: Vec<Series> = targets.iter().map(series).collect();
    for target in targets {
        load(target).await?;
    }
    for _ in 0..settings.repetitions {
        for (target, series) in targets.iter().zip(&mut all) {
            let before = target.process().map(|process| process.cpu()).transpose()?;
            let result = load(target).await?;
            if let (Some(process), Some(before)) = (target.process(), before) {
                series.cpu.push((process.cpu()?.saturating_sub(before)).as_secs_f64() * 1e6 / result.count);
            }
            series.rate.push(result.count / result.took.as_secs_f64());
        }
    }
    Ok(all)
}

/// Returns the series of the target with this name.
pub(super) fn series_named<'a>(all: &'a [Series], name: &str) -> anyhow::Result<&'a Series> {
    all.iter().find(|series| series.name == name).ok_or_else(|| anyhow::anyhow!("{name} was not measured"))
}

/// Returns the ratios of the figures of each repetition.
pub(super) fn ratio(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

/// Adds the absolute figures as context. `unit` names the counted event.
pub(super) fn add_context(figures: &mut Figures, all: &[Series], unit: &str) {
    add_context_as(figures, all, &format!("µs of CPU per {unit}"), &format!("{unit}s/s"));
}

/// Adds the absolute figures as context, with these descriptions.
pub(super) fn add_context_as(figures: &mut Figures, all: &[Series], cpu: &str, rate: &str) {
    for series in all.iter().filter(|series| !series.cpu.is_empty()) {
        figures.add_context(format!("{}: {cpu}", series.name), series.cpu.clone());
    }
    for series in all {
        figures.add_context(format!("{}: {rate}", series.name), series.rate.clone());
    }
}
