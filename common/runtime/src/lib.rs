//! I/O that both planes need. One module for each thing; none knows a plane.

pub mod resolve;
