//! The rows of a single activator.

mod breaker;
mod burst;
mod held;
mod http1;
mod http2;
mod idle;
mod interleaved;
mod latency;
mod ports;
mod tcp;
mod wake;

use crate::report::Measurement;

/// All of them, in the table's order.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    http1::MEASUREMENT,
    http2::H2C,
    http2::GRPC,
    latency::MEASUREMENT,
    tcp::MEASUREMENT,
    held::FEW,
    held::MANY,
    burst::MEASUREMENT,
    wake::MEASUREMENT,
    breaker::MEASUREMENT,
    idle::MEASUREMENT,
    ports::MEASUREMENT,
];
