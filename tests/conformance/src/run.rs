//! Reads files, runs what was chosen, prints what differed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Mismatch;
use crate::kinds::{self, Check, Kind, Suite, Target};

/// Scenarios whose id begins so prepare the server, and run whatever was chosen.
const SETUP: &str = "setup/";

/// Which cases run, and against what.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these kinds; empty: all, and an unknown one is a failure.
    pub kinds: Vec<String>,
    /// Only cases whose id begins so, and those that begin with `setup/`.
    pub id: Option<String>,
    /// Where API scenarios go.
    pub target: Target,
}

impl Options {
    /// Whether a case was chosen.
    fn choose(&self, kind: &str, id: &str) -> bool {
        (self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind))
            && self.id.as_ref().is_none_or(|prefix| id.starts_with(prefix) || id.starts_with(SETUP))
    }
}

/// How many cases passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Cases that were reproduced.
    pub passed: usize,
    /// Cases that were not, lines that could not be read, and kinds that are unknown.
    pub failed: usize,
}

/// Runs the chosen cases of `files`, in order. Each failure is one line of `out`, and the score is the last.
///
/// # Errors
/// Only when `out` cannot be written. A file that cannot be read counts as a failure.
pub fn run(options: &Options, files: &[PathBuf], out: &mut impl Write) -> io::Result<Score> {
    let mut runner = Runner { options, suites: HashMap::new(), score: Score::default(), out };
    for name in options.kinds.iter().filter(|name| kinds::kind(name).is_none()) {
        runner.fail(&format!("--kind {name}"), "unknown kind")?;
    }
    for file in files {
        runner.file(file)?;
    }
    let Score { passed, failed } = runner.score;
    writeln!(runner.out, "{passed} passed, {failed} failed")?;
    Ok(runner.score)
}

struct Runner<'a, W> {
    options: &'a Options,
    /// Opened at the first case of their kind.
    suites: HashMap<&'static str, Box<dyn Suite>>,
    score: Score,
    out: &'a mut W,
}

impl<W: Write> Runner<'_, W> {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let lines = match File::open(path) {
            Ok(file) => BufReader::new(file).lines(),
            Err(e) => return self.fail(&path.display().to_string(), &e.to_string()),
        };
        for (number, line) in lines.enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => self.line(&place, &line)?,
                Err(e) => return self.fail(&place, &e.to_string()),
            }
        }
        Ok(())
    }

    fn line(&mut self, place: &str, line: &str) -> io::Result<()> {
        let case: Value = match serde_json::from_str(line) {
            Ok(case) => case,
            Err(e) => return self.fail(place, &format!("not JSON: {e}")),
        };
        let text = |field| case.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, id) = (text("kind"), text("id"));
        if !self.options.choose(name, id) {
            return Ok(());
        }
        let result = match kinds::kind(name) {
            Some(kind) => self.check(kind, &case),
            None => Err(Mismatch::Broken("unknown kind".into())),
        };
        match result {
            Ok(()) => self.score.passed += 1,
            Err(mismatch) => self.fail(&format!("{place}: {name}: {id}"), &mismatch.to_string())?,
        }
        Ok(())
    }

    fn check(&mut self, kind: &'static Kind, case: &Value) -> Result<(), Mismatch> {
        let suite = match kind.check {
            Check::Pure(check) => return check(case),
            Check::Suite(_) if self.suites.contains_key(kind.name) => self.suites.get_mut(kind.name),
            Check::Suite(open) => {
                let suite = open(&self.options.target).map_err(|e| Mismatch::Broken(format!("{e:#}")))?;
                Some(self.suites.entry(kind.name).or_insert(suite))
            }
        };
        suite.map_or_else(|| Err(Mismatch::Broken("no suite".into())), |suite| suite.check(case))
    }

    fn fail(&mut self, place: &str, why: &str) -> io::Result<()> {
        self.score.failed += 1;
        writeln!(self.out, "{}: {why}", place.trim_end_matches([':', ' ']))
    }
}
