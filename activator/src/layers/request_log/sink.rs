//! Output of the request log: standard output, through a queue and a thread of its own.
//!
//! A slow or stopped reader must not delay requests. So lines that do not fit into the queue are dropped, and their
//! number is logged once there is room again.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Maximum number of queued lines: a second's worth at a rate that no terminal follows.
const QUEUE: usize = 8192;

/// Function that takes whole lines.
pub(crate) type Sink = Arc<dyn Fn(String) + Send + Sync>;

/// Returns a sink that writes to standard output, on its own thread, until the sink and its clones are dropped.
pub(crate) fn stdout() -> std::io::Result<Sink> {
    let (sender, lines) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = dropped.clone();
    std::thread::Builder::new().name("request-log".into()).spawn(move || write(&lines, &counted, std::io::stdout()))?;
    Ok(into_sink(sender, dropped))
}

fn into_sink(sender: SyncSender<String>, dropped: Arc<AtomicU64>) -> Sink {
    Arc::new(move |line| {
        if sender.try_send(line).is_err() {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn write(lines: &Receiver<String>, dropped: &AtomicU64, mut to: impl Write) {
    while let Ok(line) = lines.recv() {
        // Standard output may be closed; there is nowhere else to write to.
        let _ = to.write_all(line.as_bytes()).and_then(|()| to.flush());
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "request log lines dropped: standard output is too slow");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_lines_and_counts_them() {
        let (sender, lines) = sync_channel(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let sink = into_sink(sender, dropped.clone());
        for line in ["a\n", "b\n", "c\n"] {
            sink(line.to_owned());
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop(sink);
        let mut written = Vec::new();
        write(&lines, &dropped, &mut written);
        assert_eq!((written.as_slice(), dropped.load(Ordering::Relaxed)), (&b"a\nb\n"[..], 0));
    }
}
