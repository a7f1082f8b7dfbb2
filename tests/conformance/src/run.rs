//! Reads files, runs what was chosen, prints what differed.
//!
//! A choice that chooses nothing fails, as an unknown kind does: a misspelled name must not look like success. Files
//! packed with gzip are known by their first bytes.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

use crate::Mismatch;
use crate::kinds::{self, Check, VectorKind};
use crate::suite::{Suite, Target};

/// Scenarios whose id begins so prepare the server, and run whatever was chosen.
const SETUP: &str = "setup/";

/// How a file that is packed with gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

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
    let mut runner = Runner::new(options, out);
    for file in files {
        runner.file(file)?;
    }
    runner.finish()
}

struct Runner<'a, W> {
    options: &'a Options,
    /// Opened at the first case of their kind.
    suites: HashMap<&'static str, Box<dyn Suite>>,
    /// Kinds of which a case was chosen.
    seen: HashSet<String>,
    /// Whether a case was chosen that only its id could choose.
    id_seen: bool,
    score: Score,
    out: &'a mut W,
}

impl<'a, W: Write> Runner<'a, W> {
    fn new(options: &'a Options, out: &'a mut W) -> Self {
        let (suites, seen) = (HashMap::new(), HashSet::new());
        Self { options, suites, seen, id_seen: false, score: Score::default(), out }
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let name = path.display().to_string();
        match File::open(path).map(BufReader::new).and_then(plain) {
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

    /// Counts choices that chose nothing, and prints the score.
    fn finish(mut self) -> io::Result<Score> {
        let options = self.options;
        for name in options.kinds.iter().filter(|name| !self.seen.contains(*name)).collect::<Vec<_>>() {
            let why = if kinds::kind(name).is_some() { "no such case in the files" } else { "unknown kind" };
            self.fail(&format!("--kind {name}"), why)?;
        }
        if let Some(prefix) = options.id.as_ref().filter(|_| !self.id_seen) {
            self.fail(&format!("--id {prefix}"), "no such case in the files")?;
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
        if !self.options.choose(name, id) {
            return Ok(());
        }
        self.seen.insert(name.to_owned());
        self.id_seen |= self.options.id.as_ref().is_some_and(|prefix| id.starts_with(prefix));
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

    fn check(&mut self, kind: &'static VectorKind, case: &Value) -> Result<(), Mismatch> {
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

/// A file's text, unpacked if need be.
fn plain(mut file: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
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
    const STRANGE: &str = r#"{"kind": "tea_leaves", "want": 7}"#;

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
    fn each_failure_is_a_line_and_the_score_is_the_last() {
        let (score, text) = output(&Options::default(), &[GOOD, "", BAD, "{", STRANGE]);
        assert_eq!(score, Score { passed: 1, failed: 3 });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "file:3: sample_size: want: wanted 8, got 7");
        assert!(lines[1].starts_with("file:4: not JSON: "), "{}", lines[1]);
        assert_eq!(lines[2..], ["file:5: tea_leaves: cannot run: unknown kind", "1 passed, 3 failed"]);
    }

    #[test]
    fn what_was_not_chosen_is_skipped() {
        let (score, _) = output(&kinds(&["sample_size"]), &[GOOD, STRANGE]);
        assert_eq!(score, Score { passed: 1, failed: 0 });
        let by_id = Options { id: Some("a/".into()), ..Options::default() };
        let with = |id| GOOD.replace("{", &format!(r#"{{"id": "{id}", "#));
        let (score, _) = output(&by_id, &[&with("a/one"), &with("b/one"), &with("setup/x"), GOOD]);
        assert_eq!(score, Score { passed: 2, failed: 0 }, "what prepares the server always runs");
    }

    #[test]
    fn a_choice_that_chooses_nothing_fails() {
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
    fn a_packed_file_reads_as_a_plain_one() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(GOOD.as_bytes()).expect("a buffer");
        for bytes in [GOOD.as_bytes().to_vec(), packed.finish().expect("a buffer")] {
            let lines: io::Result<Vec<_>> = plain(io::Cursor::new(bytes)).expect("a buffer").lines().collect();
            assert_eq!(lines.expect("text"), [GOOD]);
        }
    }

    #[test]
    fn a_packed_file_that_was_cut_off_fails() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(GOOD.as_bytes()).expect("a buffer");
        let mut bytes = packed.finish().expect("a buffer");
        bytes.truncate(bytes.len() - 4);
        let (mut out, options) = (Vec::new(), Options::default());
        let mut runner = Runner::new(&options, &mut out);
        runner.lines("file", plain(io::Cursor::new(bytes)).expect("a buffer")).expect("a buffer");
        assert_ne!(runner.finish().expect("a buffer").failed, 0);
    }

    #[test]
    fn a_file_that_cannot_be_read_fails() {
        let mut out = Vec::new();
        let score = run(&Options::default(), &[PathBuf::from("/no/such/file")], &mut out).expect("a buffer");
        assert_eq!(score, Score { passed: 0, failed: 1 });
    }
}
