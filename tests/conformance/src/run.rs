//! Reads files, runs the selected cases, and prints the differences.
//!
//! A selection without a matching case fails, like an unknown kind: a misspelled name must not look like success. Files
//! packed with gzip are recognized by their first bytes.
//!
//! A case that panics or does not end fails and reports the expected values, and the next case runs. The summary lists
//! the cases that panicked, and those that did not end.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

use crate::Mismatch;
use crate::kinds::{self, VectorKind};
use crate::suite::Target;
use crate::worker::{CaseOutcome, Worker, expected_values};

/// First bytes of a file packed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Maximum duration of a call to a core. Normal calls take milliseconds.
const CORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Selection of kinds, and the server for API scenarios.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds to run. Empty selects all, and an unknown kind is a failure.
    pub kinds: Vec<String>,
    /// Server for API scenarios.
    pub target: Target,
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
/// or did not end, and the score as the last line. Fails only if `out` cannot be written. A file that cannot be read
/// counts as a failure.
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
        if !self.options.kinds.is_empty() && !self.options.kinds.iter().any(|kind| kind == name) {
            return Ok(());
        }
        self.selected_kinds.insert(name.to_owned());
        let place = [place, name, id].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        match kinds::kind(name) {
            Some(kind) => self.case(&place, kind, &case),
            None => self.fail(&place, &Mismatch::Broken("unknown kind".into()).to_string()),
        }
    }

    fn case(&mut self, place: &str, kind: &'static VectorKind, case: &Value) -> io::Result<()> {
        let why = match self.worker.check(kind, case, self.core_timeout) {
            CaseOutcome::Checked(Ok(())) => {
                self.score.passed += 1;
                return Ok(());
            }
            CaseOutcome::Checked(Err(mismatch)) => mismatch.to_string(),
            CaseOutcome::Panicked(message) => {
                self.panicked.push(place.to_owned());
                format!("panicked: {message}; wanted {}", expected_values(case))
            }
            CaseOutcome::TimedOut(within) => {
                self.timed_out.push(place.to_owned());
                format!("no end within {within:?}; wanted {}", expected_values(case))
            }
        };
        self.fail(place, &why)
    }

    fn fail(&mut self, place: &str, why: &str) -> io::Result<()> {
        self.score.failed += 1;
        writeln!(self.out, "{place}: {why}")
    }
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
    use crate::kinds::Check;
    use crate::suite::Suite;

    const GOOD: &str = r#"{"kind": "sample_size", "population": 10, "want": 7}"#;
    const BAD: &str = r#"{"kind": "sample_size", "population": 10, "want": 8}"#;
    const UNKNOWN: &str = r#"{"kind": "tea_leaves", "want": 7}"#;

    fn output(options: &Options, file: impl AsRef<[u8]> + 'static) -> (Score, String) {
        let mut out = Vec::new();
        let mut runner = Runner::new(options, &mut out);
        runner.lines("file", unpacked(io::Cursor::new(file)).expect("a buffer")).expect("a buffer");
        let score = runner.finish().expect("a buffer");
        (score, String::from_utf8(out).expect("text"))
    }

    fn kinds(names: &[&str]) -> Options {
        Options { kinds: names.iter().map(ToString::to_string).collect(), ..Options::default() }
    }

    #[test]
    fn each_failure_is_one_line_and_the_score_is_the_last_line() {
        let (score, text) = output(&Options::default(), [GOOD, "", BAD, "{", UNKNOWN].join("\n"));
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
        static KIND: VectorKind = VectorKind { name: "first", check: Check::Pure(check_first) };
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
    fn shared_state_is_replaced_after_a_panic() {
        fn open(_: &Target) -> anyhow::Result<Suite> {
            let mut turns = 0_i64;
            Ok(Box::new(move |case: &Value| {
                turns += 1;
                crate::compare::equal("turn", &case["turn"], &turns)?;
                check_first(case)
            }))
        }
        static KIND: VectorKind = VectorKind { name: "shared", check: Check::Suite(open) };
        let mut worker = Worker::new(None);
        for (does, turn) in [("", 1), ("", 2), ("panics", 3), ("", 1)] {
            let case = serde_json::json!({"does": does, "turn": turn, "id": ""});
            let outcome = worker.check(&KIND, &case, CORE_TIMEOUT);
            match does {
                "panics" => assert_eq!(outcome, CaseOutcome::Panicked("at \"\"".into())),
                _ => assert_eq!(outcome, CaseOutcome::Checked(Ok(())), "turn {turn}"),
            }
        }
    }

    #[test]
    fn only_selected_cases_run_and_a_selection_without_a_matching_case_fails() {
        let (score, _) = output(&kinds(&["sample_size"]), [GOOD, UNKNOWN].join("\n"));
        assert_eq!(score, Score { passed: 1, failed: 0 });
        let (score, text) = output(&kinds(&["tea_leaves", "window", "sample_size"]), GOOD);
        assert_eq!(score, Score { passed: 1, failed: 2 });
        assert!(text.contains("--kind tea_leaves: unknown kind"), "{text}");
        assert!(text.contains("--kind window: no such case"), "{text}");
    }

    #[test]
    fn a_packed_file_reads_like_a_plain_one_and_fails_if_truncated() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(GOOD.as_bytes()).expect("a buffer");
        let packed = packed.finish().expect("a buffer");
        let truncated = packed[..packed.len() - 4].to_vec();
        for (bytes, passed) in [(GOOD.as_bytes().to_vec(), 1), (packed, 1), (truncated, 0)] {
            assert_eq!(output(&Options::default(), bytes).0, Score { passed, failed: 1 - passed });
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_fails() {
        let mut out = Vec::new();
        let score = run(&Options::default(), &[PathBuf::from("/no/such/file")], &mut out).expect("a buffer");
        assert_eq!(score, Score { passed: 0, failed: 1 });
    }
}
