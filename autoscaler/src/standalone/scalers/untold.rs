//! Events that could not be written yet. Their status did not wait for them.
//!
//! Each reconcile of the status retries them. If some fail again, the next reconcile follows after some seconds. Each
//! event keeps its original name, so the API server recognizes an event that was written after all.
//!
//! Their number is bounded. Excess events are dropped, the oldest of an object first. All are dropped when the process
//! ends.

use common::RevisionKey as Key;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Event;

/// Maximum number of events of one object.
const EVENTS_MAX: usize = 4;
/// Maximum number of objects with events.
const OBJECTS_MAX: usize = 1000;

/// Pending events of all objects.
#[derive(Debug, Default)]
pub(super) struct Untold {
    events: DashMap<Key, Vec<Event>>,
}

impl Untold {
    /// Returns the events of one object, oldest first.
    pub(super) fn of(&self, key: &Key) -> Vec<Event> {
        self.events.get(key).map(|events| events.clone()).unwrap_or_default()
    }

    /// Replaces the events of one object, oldest first.
    pub(super) fn keep(&self, key: &Key, mut left: Vec<Event>) {
        left.drain(..left.len().saturating_sub(EVENTS_MAX));
        let has_room = self.events.contains_key(key) || self.events.len() < OBJECTS_MAX;
        match left.is_empty() || !has_room {
            true => drop(self.events.remove(key)),
            false => drop(self.events.insert(key.clone(), left)),
        }
    }

    /// Forgets the events of an object that is deleted, or not led here.
    pub(super) fn forget(&self, key: &Key) {
        self.events.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[String]) -> Vec<Event> {
        let event = |name: &String| {
            let mut event = Event::default();
            event.metadata.name = Some(name.clone());
            event
        };
        names.iter().map(event).collect()
    }

    /// Goal: an API server that accepts no events costs a bounded amount of memory, and the newest events are kept.
    #[test]
    fn what_is_kept_is_bounded() {
        let (untold, key) = (Untold::default(), Key::new("ns", "a"));
        let names: Vec<_> = (0..=EVENTS_MAX).map(|n| n.to_string()).collect();
        untold.keep(&key, named(&names));
        assert_eq!(untold.of(&key), named(&names[1..]));
        for n in 0..OBJECTS_MAX {
            untold.keep(&Key::new("more", n.to_string()), named(&names));
        }
        assert_eq!(untold.events.len(), OBJECTS_MAX);
        untold.keep(&key, named(&names[..1]));
        assert_eq!(untold.of(&key), named(&names[..1]), "who has some may have others");
        untold.keep(&key, vec![]);
        assert_eq!((untold.of(&key), untold.events.len()), (vec![], OBJECTS_MAX - 1));
    }
}
