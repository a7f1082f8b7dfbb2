//! The activator's rules, without I/O: breaker, throttler, load balancing, subsetting, accounting, probe schedule.
