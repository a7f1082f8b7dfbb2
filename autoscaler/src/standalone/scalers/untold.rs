//! Events that could not be written, until they are: the status that they tell of did not wait for them.
//!
//! They are tried again with each pass over the status, and a pass that has left some comes back after some seconds. They
//! have their names since they were made, so one that was written after all is known to the API server.
//!
//! Their number is bounded: what is more is dropped, of one object the oldest. A process that ends drops all.

use common::RevisionKey as Key;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Event;

/// Most events of one object.
const EVENTS_MAX: usize = 4;
/// Most objects that have some.
const OBJECTS_MAX: usize = 1000;

/// Those of all objects.
#[derive(Debug, Default)]
pub(super) struct Untold {
    events: DashMap<Key, Vec<Event>>,
}

impl Untold {
    /// Those of one object, oldest first.
    pub(super) fn of(&self, key: &Key) -> Vec<Event> {
        self.events.get(key).map(|events| events.clone()).unwrap_or_default()
    }

    /// What is left of one object's now, oldest first.
    pub(super) fn keep(&self, key: &Key, mut left: Vec<Event>) {
        left.drain(..left.len().saturating_sub(EVENTS_MAX));
        let has_room = self.events.contains_key(key) || self.events.len() < OBJECTS_MAX;
        match left.is_empty() || !has_room {
            true => drop(self.events.remove(key)),
            false => drop(self.events.insert(key.clone(), left)),
        }
    }

    /// Forgets those of an object that is gone, or not led here.
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

    /// Goal: an API server that takes no events costs a bounded amount of memory; what is newest is kept.
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
