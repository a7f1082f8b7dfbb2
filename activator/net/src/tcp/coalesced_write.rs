//! Coalesces small writes.
//!
//! A head and a short body arrive as two slices. For few bytes, copying them together and calling `send` is cheaper
//! than `writev`. For more bytes, the copy costs more than it saves.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Maximum number of bytes that are copied together: most heads with a short body.
const SMALL: usize = 1024;

/// Writes `slices` to `io`. Uses a plain write for a single slice or few bytes.
pub(crate) fn poll_write<W: AsyncWrite>(
    io: Pin<&mut W>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [one] = slices {
        return io.poll_write(cx, one);
    }
    let length: usize = slices.iter().map(|slice| slice.len()).sum();
    if length > SMALL {
        return io.poll_write_vectored(cx, slices);
    }
    let mut together = [0; SMALL];
    let mut filled = 0;
    for slice in slices {
        together[filled..filled + slice.len()].copy_from_slice(slice);
        filled += slice.len();
    }
    io.poll_write(cx, &together[..filled])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A writer that records its writes and supports vectored writes.
    #[derive(Default)]
    struct RecordedWrites(Vec<(&'static str, usize)>);

    impl AsyncWrite for RecordedWrites {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.push((if bytes.is_sorted() { "whole" } else { "mixed up" }, bytes.len()));
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let length = slices.iter().map(|slice| slice.len()).sum();
            self.0.push(("vector", length));
            Poll::Ready(Ok(length))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn small_writes_are_coalesced_and_large_ones_are_not_copied() {
        let (a, b, large) = ([1; 300], [2; 36], [3; SMALL]);
        type Row<'a> = (&'a [&'a [u8]], (&'static str, usize));
        let rows: [Row<'_>; 5] = [
            (&[&a], ("whole", 300)),
            (&[&large], ("whole", SMALL)),
            (&[&a, &b], ("whole", 336)),
            (&[&a, &large], ("vector", 300 + SMALL)),
            (&[], ("whole", 0)),
        ];
        for (slices, expected) in rows {
            let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            let mut recorded = RecordedWrites::default();
            let written = poll_write(Pin::new(&mut recorded), &mut Context::from_waker(Waker::noop()), &slices);
            assert!(matches!(written, Poll::Ready(Ok(n)) if n == expected.1), "{written:?}");
            assert_eq!(recorded.0, [expected]);
        }
    }
}
