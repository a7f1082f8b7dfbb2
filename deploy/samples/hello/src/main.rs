//! The sample workload.
fn main() {}
