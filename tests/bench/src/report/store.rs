//! Stores figures as JSON lines in the target directory, one line per measurement, appended as soon as it is complete.
//! The last line of a measurement counts, so rows can be measured separately and repeatedly.

use super::machine::Code;
use super::page::{self, PlaneRows};
use super::{Figures, Measurement};
use crate::settings::Settings;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Figures of one measurement.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredFigures {
    /// Plane of the measurement.
    plane: String,
    /// Name of its first row.
    first: String,
    /// Code under measurement.
    pub(super) code: Code,
    pub(super) repetitions: usize,
    pub(super) seconds: u64,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// Stored figures of all runs, for the pages.
pub(crate) struct Report {
    path: PathBuf,
    all: Vec<StoredFigures>,
    code: Code,
    only_missing: bool,
}

impl Report {
    /// Opens the stored figures. Lines in an older format are ignored. With `only_missing`, measurements with figures
    /// of exactly this code are skipped.
    pub(crate) fn open(only_missing: bool) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let target = own.parent().and_then(Path::parent).context("a target directory")?;
        let path = target.join("bench.jsonl");
        let text = if path.is_file() { std::fs::read_to_string(&path)? } else { String::new() };
        let all = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { path, all, code: Code::here(), only_missing })
    }

    /// Returns the latest figures of a measurement.
    pub(super) fn latest(&self, plane: &str, measurement: &Measurement) -> Option<&StoredFigures> {
        self.all.iter().rfind(|stored| stored.plane == plane && stored.first == measurement.first_row())
    }

    /// Reports whether a measurement is skipped.
    pub(crate) fn skips(&self, plane: &str, measurement: &Measurement) -> bool {
        self.only_missing && self.latest(plane, measurement).is_some_and(|stored| stored.code == self.code)
    }

    /// Stores the figures of a measurement.
    pub(crate) fn add(
        &mut self,
        plane: &str,
        measurement: &Measurement,
        settings: &Settings,
        figures: Figures,
    ) -> anyhow::Result<()> {
        let stored = StoredFigures {
            plane: plane.to_owned(),
            first: measurement.first_row().to_owned(),
            code: self.code.clone(),
            repetitions: settings.repetitions,
            seconds: settings.span.as_secs(),
            figures,
        };
        let mut line = serde_json::to_vec(&stored)?;
        line.push(b'\n');
        OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&line)?;
        self.all.push(stored);
        Ok(())
    }

    /// Writes the short page into `folder`, and the page of all rows into `whole`.
    pub(crate) fn write(&self, folder: &Path, whole: &Path, planes: &[PlaneRows]) -> anyhow::Result<()> {
        page::write(folder, false, planes, self)?;
        page::write(whole, true, planes, self)
    }
}
