//! Logs: JSON lines on stderr in a cluster, readable text for people. The level may change while the process runs,
//! through [`LogControl`]. A change costs log statements nothing, since `tracing` then re-evaluates each of them.
//!
//! `RUST_LOG` overrides both the initial level and every later one.
//!
//! Text from other parties is escaped ([`printable_document`]).
//!
//! Unless the level is debug, the API client's own lines are dropped: at each attempt they repeat the errors that it
//! returns, which [`crate::api_server`] logs once.

use common::config::LogLevel;
use common::text::printable_document;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use tokio::sync::watch;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// Text for people.
    Text,
}

/// Changes the log level of the process.
#[derive(Clone)]
pub struct LogControl {
    /// `None` if `RUST_LOG` decides, or if another subscriber was installed before.
    filter: Option<reload::Handle<EnvFilter, Registry>>,
}

/// Sends logs to stderr, in colour if that is a terminal and `NO_COLOR` is not set. `RUST_LOG` overrides
/// `default_level`. A second call in one process changes nothing.
pub fn init_logs(format: Format, default_level: &str) -> LogControl {
    let fixed = EnvFilter::try_from_default_env().ok();
    let is_fixed = fixed.is_some();
    let (filter, handle) = reload::Layer::new(fixed.unwrap_or_else(|| directives(default_level)));
    let registry = tracing_subscriber::registry().with(filter);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_terminal = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let lines = fmt::layer().with_writer(|| Printable(io::stderr())).with_ansi(is_terminal && !no_colour);
    // An error means that a subscriber is already installed, which is kept.
    let installed = match format {
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        Format::Text => registry.with(lines.compact()).try_init(),
    };
    LogControl { filter: (installed.is_ok() && !is_fixed).then_some(handle) }
}

/// Writes lines without characters that reorder or hide text.
struct Printable<W>(W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(printable_document(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?, // A part of a line that was cut within a character.
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Filter of the API client's lines. Its warning that any certificate is trusted is kept.
const API_CLIENT: &str = "kube_client::client=off,kube_client::client::tls=warn,kube_runtime::watcher=off";

/// Returns the filter for a level.
fn directives(level: &str) -> EnvFilter {
    match level {
        "debug" | "trace" => EnvFilter::new(level),
        level => EnvFilter::new([level, API_CLIENT].join(",")),
    }
}

impl LogControl {
    /// Sets the level. Changes nothing if `RUST_LOG` decides.
    pub fn set(&self, level: LogLevel) {
        let Some(filter) = &self.filter else { return };
        if let Err(error) = filter.reload(directives(&level.to_string())) {
            tracing::error!(%level, %error, "the log level could not be changed");
        }
    }

    /// Follows `level` until its sender is dropped.
    pub fn follow(self, mut level: watch::Receiver<Arc<LogLevel>>) {
        if self.filter.is_none() {
            return;
        }
        tokio::spawn(async move {
            let mut current = LogLevel::default();
            loop {
                let next = **level.borrow_and_update();
                if next != current {
                    current = next;
                    self.set(next);
                    tracing::info!(level = %next, "the log level was changed by config-logging");
                }
                if level.changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Goal: a new level applies at once, and a name cannot make a log line look like another one. Method: a subscriber
    /// that is active only in the closure; the process's own is unchanged.
    #[test]
    fn a_new_level_applies_at_once_and_unprintable_characters_are_escaped() {
        let (filter, handle) = reload::Layer::new(EnvFilter::new("info"));
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().json().with_writer(move || Printable(writer.clone()));
        let control = LogControl { filter: Some(handle) };
        let log = |text: &str| tracing::debug!(name = "a\u{202e}b\u{1b}[2Kc", text);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(filter).with(layer), || {
            log("first");
            control.set(LogLevel::Debug);
            log("second");
            control.set(LogLevel::Warn);
            log("third");
        });
        let text = String::from_utf8(lines.0.lock().clone()).expect("text");
        assert!(!text.contains("first") && text.contains("second") && !text.contains("third"), "{text}");
        assert!(text.contains("a\\\\u{202e}b") && !text.contains(['\u{202e}', '\u{1b}']), "{text}");
    }
}
