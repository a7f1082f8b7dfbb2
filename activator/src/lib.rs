//! The activator: proxies traffic, holds requests while a revision has no capacity, probes pods, reports concurrency.
