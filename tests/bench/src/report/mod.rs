//! Rows, their bounds, and their output. Figures are stored ([`store`]) and written to pages ([`page`]).

mod machine;
mod page;
mod plot;
mod store;

use crate::settings::{Settings, quantile};
use futures::future::LocalBoxFuture;
pub(crate) use page::PlaneRows;
use serde::{Deserialize, Serialize};
pub(crate) use store::Report;

pub(crate) struct Row {
    /// Name by which the row is selected.
    pub(crate) name: &'static str,
    /// Description of the measured value.
    pub(crate) what: &'static str,
    /// Unit; empty for a ratio.
    pub(crate) unit: &'static str,
    pub(crate) bound_kind: BoundKind,
    /// Quantile of the repetitions that the bounds apply to: [`MEDIAN`], [`P99`], [`LEAST`] or [`GREATEST`].
    pub(crate) judged: f64,
    /// Required bound.
    pub(crate) must: f64,
    /// Desired bound.
    pub(crate) aim: f64,
}

impl Row {
    /// Creates a row whose smaller values are better, judged by the median. An empty `unit` means a ratio.
    pub(crate) const fn at_most(
        name: &'static str,
        what: &'static str,
        unit: &'static str,
        must: f64,
        aim: f64,
    ) -> Self {
        Self { name, what, unit, bound_kind: BoundKind::AtMost, judged: MEDIAN, must, aim }
    }

    /// Creates a row whose larger values are better, otherwise like [`Row::at_most`].
    pub(crate) const fn at_least(
        name: &'static str,
        what: &'static str,
        unit: &'static str,
        must: f64,
        aim: f64,
    ) -> Self {
        Self { bound_kind: BoundKind::AtLeast, ..Self::at_most(name, what, unit, must, aim) }
    }

    /// Returns this row with its bounds on another quantile of the repetitions.
    pub(crate) const fn judged_by(self, judged: f64) -> Self {
        Self { judged, ..self }
    }
}

/// Median of the repetitions.
pub(crate) const MEDIAN: f64 = 0.5;
/// 99th percentile, for rows whose repetitions are single events.
pub(crate) const P99: f64 = 0.99;
/// Minimum and maximum, for rows whose samples must all keep to a bound.
pub(crate) const LEAST: f64 = 0.0;
pub(crate) const GREATEST: f64 = 1.0;

/// Side of a bound on which values are good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoundKind {
    /// Smaller is better.
    AtMost,
    /// Larger is better.
    AtLeast,
}

/// An experiment, and the rows that it fills in.
pub(crate) struct Measurement {
    pub(crate) rows: &'static [Row],
    pub(crate) run: for<'a> fn(&'a Settings) -> LocalBoxFuture<'a, anyhow::Result<Figures>>,
}

impl Measurement {
    /// Returns the name of the first row, which identifies the measurement.
    fn first_row(&self) -> &'static str {
        self.rows.first().map_or("", |row| row.name)
    }
}

/// Result of an experiment.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Samples of each row, by its name.
    rows: Vec<(String, Vec<f64>)>,
    /// Absolute figures.
    #[serde(rename = "beside")]
    context: Vec<(String, Vec<f64>)>,
}

impl Figures {
    pub(crate) fn row(&mut self, name: &str, samples: Vec<f64>) {
        self.rows.push((name.to_owned(), samples));
    }

    /// Adds an absolute figure as context.
    pub(crate) fn add_context(&mut self, what: impl Into<String>, samples: Vec<f64>) {
        self.context.push((what.into(), samples));
    }

    /// Returns the samples of a row.
    fn samples(&self, name: &str) -> Option<&[f64]> {
        self.rows.iter().find_map(|(row, samples)| (row == name).then_some(samples.as_slice()))
    }
}

pub(crate) fn print_title(settings: &Settings) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; rows with repetitions have {} of {:?}", settings.repetitions, settings.span);
}

/// Prints the rows of one experiment, and its context figures.
pub(crate) fn print(measurement: &Measurement, figures: &Figures) -> anyhow::Result<()> {
    let mut tables = String::new();
    page::write_tables(&mut tables, measurement.rows, Some(figures))?;
    println!("{tables}");
    Ok(())
}

fn spread(samples: &[f64]) -> [f64; 3] {
    [0.0, 0.5, 1.0].map(|part| quantile(samples, part))
}

fn verdict(row: &Row, value: f64) -> &'static str {
    let meets = |bound: f64| match row.bound_kind {
        BoundKind::AtMost => value <= bound,
        BoundKind::AtLeast => value >= bound,
    };
    match (meets(row.aim), meets(row.must)) {
        (true, _) => "aim",
        (false, true) => "must",
        (false, false) => "short",
    }
}

/// Formats a value with three significant digits, or as a whole number if it is larger.
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
    fn a_verdict_names_the_stricter_bound_that_is_met() {
        let cost = Row::at_most("", "", "", 1.5, 1.2);
        assert_eq!([1.1, 1.2, 1.3, 1.6].map(|v| verdict(&cost, v)), ["aim", "aim", "must", "short"]);
        let rate = Row::at_least("", "", "", 0.8, 0.9);
        assert_eq!([0.95, 0.85, 0.7].map(|v| verdict(&rate, v)), ["aim", "must", "short"]);
    }
}
