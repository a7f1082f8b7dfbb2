//! Tests of whole reconciles against a scripted API server: requests, their order, and their content.

mod collection;
mod drift;
mod fixture;
mod handover;
mod hosts;
mod kpa_knative;
mod kpa_rows;
mod kpa_standalone;
mod manual_requests;
mod metrics;
mod numbers;
mod refusals;
mod retire;
mod scalers;
mod sks;
mod sks_rows;
