//! Rows of a single activator.

mod bodies;
mod breaker;
mod burst;
mod fair;
mod held;
mod http1;
mod http2;
mod interleaved;
mod latency;
mod ports;
mod tcp;
mod wake;

use crate::report::Measurement;

/// All measurements, in the order of the output.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    http1::MEASUREMENT,
    http2::H2C,
    http2::GRPC,
    latency::MEASUREMENT,
    bodies::HTTP1,
    bodies::H2C,
    tcp::MEASUREMENT,
    held::FEW,
    held::MANY,
    burst::MEASUREMENT,
    wake::MEASUREMENT,
    breaker::MEASUREMENT,
    fair::EVEN,
    fair::KILLED,
    crate::idle::ACTIVATOR,
    ports::MEASUREMENT,
];
