//! In place of Knative Serving's own autoscaler.

pub mod bucket_services;
