//! Reads files, runs the selected cases, and prints the differences.
//!
//! A selection without a matching case fails, like an unknown kind: a misspelled name must not look like success. Files
//! packed with gzip are recognized by their first bytes.
//!
//! Every case ends in time. A case that panics or does not end fails and reports the expected values, and the next case
//! runs. The summary lists the cases that panicked, and those that did not end.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

use crate::kinds::{self, Check, VectorKind};
use crate::suite::Target;
use crate::worker::{CaseOutcome, Worker, expected_values};
use crate::{Mismatch, api};

/// Prefix of the ids of scenarios that prepare the server, and run whatever the selection.
const SETUP: &str = "setup/";

/// First bytes of a file packed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Maximum duration of a call to a core. Normal calls take milliseconds.
const CORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Selection of cases, and the server for API scenarios.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds to run. Empty selects all, and an unknown kind is a failure.
    pub kinds: Vec<String>,
    /// Prefix of the ids of the cases to run. Cases of `setup/` run too.
    pub id: Option<String>,
    /// Server for API scenarios.
    pub target: Target,
}

impl Options {
    /// Returns true if a case is selected.
    fn selects(&self, kind: &str, id: &str) -> bool {
        (self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind))
            && self.id.as_ref().is_none_or(|prefix| id.starts_with(prefix) || id.starts_with(SETUP))
    }
}

/// Numbers of passed and failed cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Cases that were reproduced.
    pub passed: usize,
    /// Cases that were not reproduced, lines that could not be read, and unknown kinds.
    pub failed: usize,
}

/// Runs the selected cases of `files` in order. Each failure is one line of `out`. Then follow the cases that panicked
/// or did not end, and the score as the last line.
///
/// # Errors
/// Only if `out` cannot be written. A file that cannot be read counts as a failure.
pub fn run(options: &Options, files: &[PathBuf], out: &mut impl Write) -> io::Result<Score> {
    let mut runner = Runner::new(options, out);
    for file in files {
        runner.file(file)?;
    }
    runner.finish()
}

struct Runner<'a, W> {
    options: &'a Options,
    worker: Worker,
    /// Maximum duration of a call to a core.
    core_timeout: Duration,
    /// Places of cases that panicked, and of cases that did not end.
    panicked: Vec<String>,
    timed_out: Vec<String>,
    /// Kinds with a selected case.
    selected_kinds: HashSet<String>,
    /// True if a case was selected by its id.
    id_matched: bool,
    score: Score,
    out: &'a mut W,
}

impl<'a, W: Write> Runner<'a, W> {
    fn new(options: &'a Options, out: &'a mut W) -> Self {
        Self {
            options,
            worker: Worker::new(options.target.clone()),
            core_timeout: CORE_TIMEOUT,
            panicked: Vec::new(),
            timed_out: Vec::new(),
            selected_kinds: HashSet::new(),
            id_matched: false,
            score: Score::default(),
            out,
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let name = path.display().to_string();
        match File::open(path).map(BufReader::new).and_then(unpacked) {
            Ok(lines) => self.lines(&name, lines),
            Err(e) => self.fail(&name, &e.to_string()),
        }
    }

    fn lines(&mut self, name: &str, lines: impl BufRead) -> io::Result<()> {
        for (number, line) in lines.lines().enumerate() {
            let place = format!("{name}:{}", number + 1);
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => self.line(&place, &line)?,
                Err(e) => return self.fail(&place, &e.to_string()),
            }
        }
        Ok(())
    }

    /// Counts selections without a matching case as failures, and prints the summary.
    fn finish(mut self) -> io::Result<Score> {
        let options = self.options;
        for name in options.kinds.iter().filter(|name| !self.selected_kinds.contains(*name)).collect::<Vec<_>>() {
            let why = if kinds::kind(name).is_some() { "no such case in the files" } else { "unknown kind" };
            self.fail(&format!("--kind {name}"), why)?;
        }
        if let Some(prefix) = options.id.as_ref().filter(|_| !self.id_matched) {
            self.fail(&format!("--id {prefix}"), "no such case in the files")?;
        }
        self.worker.close();
        for (how, places) in [("panicked", &self.panicked), ("did not end", &self.timed_out)] {
            if !places.is_empty() {
                writeln!(self.out, "{} {how}: {}", places.len(), places.join(", "))?;
            }
        }
        let Score { passed, failed } = self.score;
        writeln!(self.out, "{passed} passed, {failed} failed")?;
        Ok(self.score)
    }

    fn line(&mut self, place: &str, line: &str) -> io::Result<()> {
        let case: Value = match serde_json::from_str(line) {
            Ok(case) => case,
            Err(e) => return self.fail(place, &format!("not JSON: {e}")),
        };
        let text = |field| case.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, id) = (text("kind"), text("id"));
        if !self.options.selects(name, id) {
            return Ok(());
        }
        self.selected_kinds.insert(name.to_owned());
        self.id_matched |= self.options.id.as_ref().is_some_and(|prefix| id.starts_with(prefix));
        let place = format!("{place}: {name}: {id}");
        match kinds::kind(name) {
            Some(kind) => self.case(&place, kind, &case),
            None => self.fail(&place, &Mismatch::Broken("unknown kind".into()).to_string()),
        }
    }

    fn case(&mut self, place: &str, kind: &'static VectorKind, case: &Value) -> io::Result<()> {
        let within = match kind.check {
            Check::Pure(_) => self.core_timeout,
            Check::Suite(_) => api::time_limit(case),
        };
        let why = match self.worker.check(kind, case, within) {
            CaseOutcome::Checked(Ok(())) => {
                self.score.passed += 1;
                return Ok(());
            }
            CaseOutcome::Checked(Err(mismatch)) => mismatch.to_string(),
            CaseOutcome::Panicked(message) => {
                self.panicked.push(without_separator(place).to_owned());
                format!("panicked: {message}; wanted {}", expected_values(kind, case))
            }
            CaseOutcome::TimedOut(within) => {
                self.timed_out.push(without_separator(place).to_owned());
                format!("no end within {within:?}; wanted {}", expected_values(kind, case))
            }
        };
        self.fail(place, &why)
    }

    fn fail(&mut self, place: &str, why: &str) -> io::Result<()> {
        self.score.failed += 1;
        writeln!(self.out, "{}: {why}", without_separator(place))
    }
}

/// Returns a place without the separator for a missing id.
fn without_separator(place: &str) -> &str {
    place.trim_end_matches([':', ' '])
}

/// Returns the text of a file, unpacked if necessary.
fn unpacked(mut file: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    let packed = file.fill_buf()?.starts_with(&GZIP);
    Ok(if packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const GOOD: &str = r#"{"kind": "sample_size", "population": 10, "want": 7}"#;
    const BAD: &str = r#"{"kind": "sample_size", "population": 10, "want": 8}"#;
    const UNKNOWN: &str = r#"{"kind": "tea_leaves", "want": 7}"#;

    fn output(options: &Options, lines: &[&str]) -> (Score, String) {
        let mut out = Vec::new();
        let mut runner = Runner::new(options, &mut out);
        runner.lines("file", lines.join("\n").as_bytes()).expect("a buffer");
        let score = runner.finish().expect("a buffer");
        (score, String::from_utf8(out).expect("text"))
    }

    fn kinds(names: &[&str]) -> Options {
        Options { kinds: names.iter().map(ToString::to_string).collect(), ..Options::default() }
    }

    #[test]
    fn each_failure_is_one_line_and_the_score_is_the_last_line() {
        let (score, text) = output(&Options::default(), &[GOOD, "", BAD, "{", UNKNOWN]);
        assert_eq!(score, Score { passed: 1, failed: 3 });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "file:3: sample_size: want: wanted 8, got 7");
        assert!(lines[1].starts_with("file:4: not JSON: "), "{}", lines[1]);
        assert_eq!(lines[2..], ["file:5: tea_leaves: cannot run: unknown kind", "1 passed, 3 failed"]);
    }

    fn check_first(case: &Value) -> Result<(), Mismatch> {
        match case["does"].as_str() {
            // Skip the panic hook, which may take long to write a backtrace.
            Some("panics") => std::panic::resume_unwind(Box::new(format!("at {}", case["id"]))),
            Some("hangs") => loop {
                std::thread::park();
            },
            _ => Ok(()),
        }
    }

    /// Goal: a case whose core panics or hangs fails in time, reports the expected values, and is in the summary. The
    /// cases after it run.
    #[test]
    fn a_case_that_panics_or_hangs_fails_and_the_run_continues() {
        static KIND: VectorKind = VectorKind { name: "first", expected: &["want"], check: Check::Pure(check_first) };
        let (mut out, options) = (Vec::new(), Options::default());
        let mut runner = Runner { core_timeout: Duration::from_millis(200), ..Runner::new(&options, &mut out) };
        for (id, does) in [("a", ""), ("b", "panics"), ("c", "hangs"), ("d", ""), ("e", "hangs"), ("f", "")] {
            let case = serde_json::json!({"id": id, "does": does, "steps": [{"want": {"pods": 7}}]});
            runner.case(&format!("file: first: {id}"), &KIND, &case).expect("a buffer");
        }
        let score = runner.finish().expect("a buffer");
        assert_eq!(score, Score { passed: 3, failed: 3 });
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "file: first: b: panicked: at \"b\"; wanted {\"pods\":7}",
                "file: first: c: no end within 200ms; wanted {\"pods\":7}",
                "file: first: e: no end within 200ms; wanted {\"pods\":7}",
                "1 panicked: file: first: b",
                "2 did not end: file: first: c, file: first: e",
                "3 passed, 3 failed",
            ]
        );
    }

    #[test]
    fn shared_state_is_replaced_after_a_panic_or_a_hang() {
        struct SharedTurns(usize);
        impl crate::suite::Suite for SharedTurns {
            fn check(&mut self, case: &Value) -> Result<(), Mismatch> {
                self.0 += 1;
                crate::compare::equal("turn", &case["turn"].as_u64().unwrap_or(0), &(self.0 as u64))?;
                check_first(case)
            }
        }
        static KIND: VectorKind =
            VectorKind { name: "shared", expected: &["want"], check: Check::Suite(|_| Ok(Box::new(SharedTurns(0)))) };
        let mut worker = Worker::new(Target::Embedded);
        let within = Duration::from_millis(200);
        let mut run = |does: &str, turn: u64| {
            worker.check(&KIND, &serde_json::json!({"does": does, "turn": turn, "id": ""}), within)
        };
        assert_eq!(run("", 1), CaseOutcome::Checked(Ok(())));
        assert_eq!(run("", 2), CaseOutcome::Checked(Ok(())));
        assert_eq!(run("panics", 3), CaseOutcome::Panicked("at \"\"".into()));
        assert_eq!(run("", 1), CaseOutcome::Checked(Ok(())), "a new suite");
        assert_eq!(run("hangs", 2), CaseOutcome::TimedOut(within));
        assert_eq!(run("", 1), CaseOutcome::Checked(Ok(())), "a new suite");
        worker.close();
    }

    #[test]
    fn cases_that_are_not_selected_are_skipped() {
        let (score, _) = output(&kinds(&["sample_size"]), &[GOOD, UNKNOWN]);
        assert_eq!(score, Score { passed: 1, failed: 0 });
        let by_id = Options { id: Some("a/".into()), ..Options::default() };
        let with = |id| GOOD.replace("{", &format!(r#"{{"id": "{id}", "#));
        let (score, _) = output(&by_id, &[&with("a/one"), &with("b/one"), &with("setup/x"), GOOD]);
        assert_eq!(score, Score { passed: 2, failed: 0 }, "scenarios that prepare the server always run");
    }

    #[test]
    fn a_selection_without_a_matching_case_fails() {
        let (score, text) = output(&kinds(&["tea_leaves", "window", "sample_size"]), &[GOOD]);
        assert_eq!(score, Score { passed: 1, failed: 2 });
        assert!(
            text.contains("--kind tea_leaves: unknown kind") && text.contains("--kind window: no such case"),
            "{text}"
        );
        let by_id = Options { id: Some("a/".into()), ..Options::default() };
        assert_eq!(output(&by_id, &[GOOD]).0, Score { passed: 0, failed: 1 });
    }

    #[test]
    fn a_packed_file_reads_like_a_plain_one_and_fails_if_truncated() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(GOOD.as_bytes()).expect("a buffer");
        let packed = packed.finish().expect("a buffer");
        let truncated = packed[..packed.len() - 4].to_vec();
        for (bytes, passed) in [(GOOD.as_bytes().to_vec(), 1), (packed, 1), (truncated, 0)] {
            let (mut out, options) = (Vec::new(), Options::default());
            let mut runner = Runner::new(&options, &mut out);
            runner.lines("file", unpacked(io::Cursor::new(bytes)).expect("a buffer")).expect("a buffer");
            assert_eq!(runner.finish().expect("a buffer"), Score { passed, failed: 1 - passed });
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_fails() {
        let mut out = Vec::new();
        let score = run(&Options::default(), &[PathBuf::from("/no/such/file")], &mut out).expect("a buffer");
        assert_eq!(score, Score { passed: 0, failed: 1 });
    }
}
