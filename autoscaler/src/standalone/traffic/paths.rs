//! Requested and actual paths of the traffic of ZeroScalers.
//!
//! Scale reconciles request a path. Reconciles of Services and EndpointSlices ([`super`]) follow it and
//! report.
//!
//! The paths are values of this process. Everything that must outlive the process is in the status of the ZeroScaler,
//! and in the Services and EndpointSlices; another owner requests the path anew.

use crate::engine::workload::Path;
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_api::zeroscaler::Target;
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// Requested path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathRequest {
    pub(crate) path: Path,
    /// Target whose pods receive the traffic.
    pub(crate) target: Target,
}

/// Requested path and the progress in following it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathProgress {
    /// Uid of the ZeroScaler.
    uid: String,
    pub(crate) request: PathRequest,
    /// Name of the first public Service that is served; empty if none is.
    pub(crate) service: String,
    /// Start of the time in which activators have all of the traffic, in whole seconds. `None`: they do not have all of
    /// it.
    pub(crate) in_path_since: Option<Timestamp>,
    /// Set once a reconcile of the Services has completed since the request changed.
    is_followed: bool,
}

impl PathProgress {
    /// Reports whether the pods have the traffic and should have it.
    pub(crate) fn leads_to_pods(&self) -> bool {
        self.is_followed && self.request.path.mode == PathMode::Serve && self.in_path_since.is_none()
    }
}

/// All paths. Each method that changes a path returns whether it changed.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    all: RwLock<BTreeMap<Key, PathProgress>>,
}

impl Paths {
    /// Returns the path of the ZeroScaler with this uid, or `None` if no reconcile has requested one.
    pub(crate) fn get(&self, key: &Key, uid: &str) -> Option<PathProgress> {
        self.all.read().get(key).filter(|followed| followed.uid == uid).cloned()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.all.read().keys().cloned().collect()
    }

    /// Requests a path. `served` is the public Service that a former process served; it is used if the path is new
    /// here.
    pub(crate) fn request(&self, key: &Key, uid: &str, request: PathRequest, served: &str) -> bool {
        let mut all = self.all.write();
        match all.get_mut(key).filter(|followed| followed.uid == uid) {
            Some(followed) if followed.request == request => false,
            Some(followed) => {
                (followed.request, followed.is_followed) = (request, false);
                true
            }
            None => {
                let (uid, service) = (uid.to_owned(), served.to_owned());
                let followed = PathProgress { uid, request, service, in_path_since: None, is_followed: false };
                all.insert(key.clone(), followed);
                true
            }
        }
    }

    /// Records how far the path in `read` is followed. `in_path`: activators have all of the traffic.
    pub(crate) fn report(&self, key: &Key, read: &PathProgress, service: &str, in_path: bool, now: Timestamp) -> bool {
        let mut all = self.all.write();
        let Some(followed) = all.get_mut(key).filter(|followed| followed.uid == read.uid) else { return false };
        let now = Timestamp::from_secs(now.as_secs());
        // A time in the future comes from a clock that was set back since.
        let since = followed.in_path_since.filter(|since| *since <= now).unwrap_or(now);
        let (service, in_path_since) = (service.to_owned(), in_path.then_some(since));
        let is_followed = followed.is_followed || followed.request == read.request;
        let next = PathProgress { service, in_path_since, is_followed, ..followed.clone() };
        let is_news = *followed != next;
        *followed = next;
        is_news
    }

    /// Forgets the path of a workload that was deleted, given back, or moved to another process.
    pub(crate) fn forget(&self, key: &Key) -> bool {
        self.all.write().remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the time in the path starts when activators get the traffic, whatever else is reported. A changed request
    /// is not followed before a reconcile has read it. Another object of the same name inherits nothing.
    #[test]
    fn a_path_is_followed_once_a_reconcile_has_read_the_request() {
        let (paths, key) = (Paths::default(), Key::new("ns", "hello"));
        let request = |mode| PathRequest { path: Path { mode, activators: 2 }, target: Target::default() };
        let at = Timestamp::from_secs;
        let read = || paths.get(&key, "u").expect("requested");
        assert!(paths.request(&key, "u", request(PathMode::Proxy), "web"));
        assert!(!paths.request(&key, "u", request(PathMode::Proxy), ""));
        let first = read();
        assert_eq!((first.service.as_str(), first.in_path_since), ("web", None));
        assert!(paths.report(&key, &first, "web", true, at(5)) && !paths.report(&key, &first, "web", true, at(9)));
        assert_eq!(read().in_path_since, Some(at(5)));
        assert!(paths.report(&key, &first, "web", true, at(3)), "the clock was set back");
        assert_eq!(read().in_path_since, Some(at(3)));

        let before = read();
        assert!(paths.request(&key, "u", request(PathMode::Serve), ""));
        paths.report(&key, &before, "web", false, at(10));
        assert!(!read().leads_to_pods(), "no pass has read the new request");
        paths.report(&key, &read(), "web", false, at(10));
        assert!(read().leads_to_pods());
        assert_eq!(paths.get(&key, "another"), None);
        assert!(paths.request(&key, "another", request(PathMode::Proxy), "") && paths.get(&key, "u").is_none());
        assert!(paths.forget(&key) && !paths.forget(&key) && paths.keys().is_empty());
    }
}
