//! Log lines of this program's activators at WARN and above.

use parking_lot::Mutex;
use std::io;
use std::sync::Once;

static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Said;

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        SAID.lock().extend_from_slice(bytes);
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
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false).with_writer(|| Said).init();
    });
}

/// Returns the lines that contain `part`.
pub(crate) fn lines(part: &str) -> Vec<String> {
    let said = SAID.lock();
    String::from_utf8_lossy(&said).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}
