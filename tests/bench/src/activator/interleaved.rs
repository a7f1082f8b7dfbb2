//! The same load on several targets, one after the other in each repetition.

use crate::load::Done;
use crate::proxy::Target;
use crate::report::Figures;
use crate::settings::Settings;

/// What one target did, repetition by repetition.
pub(super) struct Series {
    name: &'static str,
    /// CPU time of the target for each request, in microseconds; nothing for the backend itself.
    pub(super) cpu: Vec<f64>,
    /// Requests a second.
    pub(super) rate: Vec<f64>,
}

/// Loads every target once to warm up, and then all of them one after the other.
pub(super) async fn run(
    settings: &Settings,
    targets: &[Target],
    load: impl AsyncFn(&Target) -> anyhow::Result<Done>,
) -> anyhow::Result<Vec<Series>> {
    let series = |t: &Target| Series { name: t.name, cpu: Vec::new(), rate: Vec::new() };
    let mut all: Vec<Series> = targets.iter().map(series).collect();
    for target in targets {
        load(target).await?;
    }
    for _ in 0..settings.repetitions {
        for (target, series) in targets.iter().zip(&mut all) {
            let before = target.process().map(|process| process.cpu()).transpose()?;
            let done = load(target).await?;
            if let (Some(process), Some(before)) = (target.process(), before) {
                series.cpu.push((process.cpu()?.saturating_sub(before)).as_secs_f64() * 1e6 / done.requests);
            }
            series.rate.push(done.requests / done.took.as_secs_f64());
        }
    }
    Ok(all)
}

/// One series by its target's name.
pub(super) fn of<'a>(all: &'a [Series], name: &str) -> anyhow::Result<&'a Series> {
    all.iter().find(|series| series.name == name).ok_or_else(|| anyhow::anyhow!("{name} was not measured"))
}

/// Element by element: what stood in the same repetition.
pub(super) fn ratio(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

/// The absolute figures; `unit` is what was counted.
pub(super) fn beside(figures: &mut Figures, all: &[Series], unit: &str) {
    beside_as(figures, all, &format!("µs of CPU for a {unit}"), &format!("{unit}s/s"));
}

/// The same, in these words.
pub(super) fn beside_as(figures: &mut Figures, all: &[Series], cpu: &str, rate: &str) {
    for series in all.iter().filter(|series| !series.cpu.is_empty()) {
        figures.beside(format!("{}: {cpu}", series.name), series.cpu.clone());
    }
    for series in all {
        figures.beside(format!("{}: {rate}", series.name), series.rate.clone());
    }
}
