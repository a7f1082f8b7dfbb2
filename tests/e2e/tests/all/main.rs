//! The whole system, one scenario in each module. All are one program, so that it is linked once and waiting tests run
//! side by side.

mod answers;
mod control_plane;
mod endurance;
mod faults;
mod import;
mod install;
mod kill_points;
mod metrics;
mod neighbours;
mod overlap;
mod page;
mod policies;
mod ports;
mod processes;
mod protocols;
mod restoring;
mod scale;
mod self_heal;
mod services;
mod shared;
mod shared_pods;
mod sidecar;
mod soak;
mod streams;
mod takeover;
mod telemetry;
mod tenants;
mod zeroscaler;
