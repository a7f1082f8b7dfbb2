//! The autoscaler: receives stats, decides for each revision, patches replicas, switches the path.
