//! Captured log lines of all activators in this program, at WARN and above.

use parking_lot::Mutex;
use std::io;
use std::sync::Once;

static CAPTURED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Capture;

impl io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts to capture the log, for all tests.
pub(crate) fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false).with_writer(|| Capture).init();
    });
}

/// Returns the lines that contain `part`.
pub(crate) fn lines(part: &str) -> Vec<String> {
    let captured = CAPTURED.lock();
    String::from_utf8_lossy(&captured).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}
