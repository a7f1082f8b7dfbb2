//! Rows, their bounds, and how they are printed; what was found is kept ([`store`]), and makes a page ([`page`]).

mod machine;
mod page;
mod plot;
mod store;

use crate::settings::{Settings, quantile};
use futures::future::LocalBoxFuture;
use machine::Code;
pub(crate) use page::Plane;
use std::path::Path;
use store::{Found, Store};

pub(crate) struct Row {
    /// By which it is selected.
    pub(crate) name: &'static str,
    /// What is measured.
    pub(crate) what: &'static str,
    /// Of what; empty for a ratio.
    pub(crate) unit: &'static str,
    pub(crate) good: Good,
    /// Which of the repetitions is held against the bounds: [`MEDIAN`], [`P99`], [`LEAST`] or [`GREATEST`].
    pub(crate) judged: f64,
    /// What is demanded.
    pub(crate) must: f64,
    /// What is hoped for.
    pub(crate) aim: f64,
}

impl Row {
    /// Of which the smaller is the better, by the median; no `unit`: a ratio.
    pub(crate) const fn small(name: &'static str, what: &'static str, unit: &'static str, must: f64, aim: f64) -> Self {
        Self { name, what, unit, good: Good::Small, judged: MEDIAN, must, aim }
    }
}

/// Half of the repetitions are better.
pub(crate) const MEDIAN: f64 = 0.5;
/// For rows whose repetitions are single events.
pub(crate) const P99: f64 = 0.99;
/// For rows whose samples are all to keep to a bound.
pub(crate) const LEAST: f64 = 0.0;
pub(crate) const GREATEST: f64 = 1.0;

/// Which side of a bound is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Good {
    /// The smaller, the better.
    Small,
    /// The larger, the better.
    Large,
}

/// Rows that come out of one experiment.
pub(crate) struct Measurement {
    /// What it fills in.
    pub(crate) rows: &'static [Row],
    pub(crate) run: for<'a> fn(&'a Settings) -> LocalBoxFuture<'a, anyhow::Result<Figures>>,
}

/// What an experiment found.
#[derive(Default)]
pub(crate) struct Figures {
    samples: Vec<(&'static str, Vec<f64>)>,
    beside: Vec<(String, Vec<f64>)>,
}

impl Figures {
    pub(crate) fn row(&mut self, name: &'static str, samples: Vec<f64>) {
        self.samples.push((name, samples));
    }

    /// An absolute figure, for orientation.
    pub(crate) fn beside(&mut self, what: impl Into<String>, samples: Vec<f64>) {
        self.beside.push((what.into(), samples));
    }
}

/// What runs have found so far, of which a page is made.
pub(crate) struct Report {
    store: Store,
    code: Code,
    only_missing: bool,
}

impl Report {
    /// With what is there. `only_missing`: what was found of just this code is not measured again.
    pub(crate) fn open(only_missing: bool) -> anyhow::Result<Self> {
        Ok(Self { store: Store::open()?, code: Code::here(), only_missing })
    }

    /// Whether a measurement is not wanted.
    pub(crate) fn passes_over(&self, plane: &str, measurement: &Measurement) -> bool {
        let found = || self.store.latest(plane, page::first(measurement));
        self.only_missing && found().is_some_and(|found| found.code == self.code)
    }

    /// Keeps what was found.
    pub(crate) fn keep(
        &mut self,
        plane: &str,
        measurement: &Measurement,
        settings: &Settings,
        figures: Figures,
    ) -> anyhow::Result<()> {
        self.store.add(Found::new(plane, page::first(measurement), &self.code, settings, figures))
    }

    /// Writes the short page into `folder`, and the page of all rows into `whole`.
    pub(crate) fn write(&self, folder: &Path, whole: &Path, planes: &[Plane]) -> anyhow::Result<()> {
        page::write_brief(folder, planes, &self.store)?;
        page::write_whole(whole, planes, &self.store)
    }
}

pub(crate) fn print_title(settings: &Settings) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{cores} cores, {} repetitions of {:?} where there are repetitions\n",
        settings.repetitions, settings.span
    );
    println!("{:24} {:>8} {:>8} {:>8} {:>7} {:>7}  verdict", "row", "min", "median", "max", "must", "aim");
}

/// One experiment's rows, and what is good to know beside them.
pub(crate) fn print(measurement: &Measurement, figures: &Figures) {
    for row in measurement.rows {
        let Some((_, samples)) = figures.samples.iter().find(|(name, _)| *name == row.name) else {
            println!("{:24} not measured", row.name);
            continue;
        };
        let [min, median, max] = spread(samples);
        println!(
            "{:24} {:>8} {:>8} {:>8} {:>7} {:>7}  {:5} {} ({}n={})",
            row.name,
            short(min),
            short(median),
            short(max),
            short(row.must),
            short(row.aim),
            verdict(row, quantile(samples, row.judged)),
            row.what,
            if row.unit.is_empty() { String::new() } else { format!("{}, ", row.unit) },
            samples.len(),
        );
    }
    for (what, samples) in &figures.beside {
        let [min, median, max] = spread(samples);
        println!("{:24} {:>8} {:>8} {:>8} {:15}  {what}", "", short(min), short(median), short(max), "");
    }
    println!();
}

fn spread(samples: &[f64]) -> [f64; 3] {
    [0.0, 0.5, 1.0].map(|part| quantile(samples, part))
}

fn verdict(row: &Row, value: f64) -> &'static str {
    let meets = |bound: f64| match row.good {
        Good::Small => value <= bound,
        Good::Large => value >= bound,
    };
    match (meets(row.aim), meets(row.must)) {
        (true, _) => "aim",
        (false, true) => "must",
        (false, false) => "short",
    }
}

/// Three significant digits, or whole.
fn short(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_the_good_side() {
        let row = |good, must, aim| Row { name: "", what: "", unit: "", good, judged: MEDIAN, must, aim };
        let cost = row(Good::Small, 1.5, 1.2);
        assert_eq!([1.1, 1.2, 1.3, 1.6].map(|v| verdict(&cost, v)), ["aim", "aim", "must", "short"]);
        let rate = row(Good::Large, 0.8, 0.9);
        assert_eq!([0.95, 0.85, 0.7].map(|v| verdict(&rate, v)), ["aim", "must", "short"]);
    }
}
