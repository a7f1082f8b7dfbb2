//! Stores figures as JSON lines in the target directory, one line per measurement, appended as soon as it is complete.
//! The last line of a measurement counts, so rows can be measured separately and repeatedly.

use super::Figures;
use super::machine::Code;
use crate::settings::Settings;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Figures of one measurement.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredFigures {
    /// Plane of the measurement.
    pub(super) plane: String,
    /// Name of its first row.
    pub(super) first: String,
    /// Code under measurement.
    pub(super) code: Code,
    pub(super) repetitions: usize,
    pub(super) seconds: u64,
    /// Samples of each row, by its name.
    pub(super) rows: Vec<(String, Vec<f64>)>,
    /// Absolute figures.
    #[serde(rename = "beside")]
    pub(super) context: Vec<(String, Vec<f64>)>,
}

impl StoredFigures {
    /// Creates the record of a measurement whose first row is `first`.
    pub(super) fn new(plane: &str, first: &str, code: &Code, settings: &Settings, figures: Figures) -> Self {
        Self {
            plane: plane.to_owned(),
            first: first.to_owned(),
            code: code.clone(),
            repetitions: settings.repetitions,
            seconds: settings.span.as_secs(),
            rows: figures.samples.into_iter().map(|(name, samples)| (name.to_owned(), samples)).collect(),
            context: figures.context,
        }
    }

    /// Returns the samples of a row.
    pub(super) fn row(&self, name: &str) -> Option<&[f64]> {
        self.rows.iter().find_map(|(row, samples)| (row == name).then_some(samples.as_slice()))
    }
}

/// File with all records.
pub(super) struct Store {
    path: PathBuf,
    all: Vec<StoredFigures>,
}

impl Store {
    /// Opens the file with its records. Lines in an older format are ignored.
    pub(super) fn open() -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let target = own.parent().and_then(std::path::Path::parent).context("a target directory")?;
        let path = target.join("bench.jsonl");
        let text = if path.is_file() { std::fs::read_to_string(&path)? } else { String::new() };
        let all = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { path, all })
    }

    /// Appends a record.
    pub(super) fn add(&mut self, figures: StoredFigures) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(&figures)?;
        line.push(b'\n');
        OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&line)?;
        self.all.push(figures);
        Ok(())
    }

    /// Returns the latest record of a measurement, by the name of its first row.
    pub(super) fn latest(&self, plane: &str, first: &str) -> Option<&StoredFigures> {
        self.all.iter().rfind(|stored| stored.plane == plane && stored.first == first)
    }
}
