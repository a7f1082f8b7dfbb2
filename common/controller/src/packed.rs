//! Objects at rest, in a fraction of the memory that they take in use.
//!
//! Of the thousands of objects of a kind hardly any is looked at at a time: an object is read when something happens to
//! its revision. In memory it is a hundred small blocks, some 4 KiB; as JSON less than half of that, most of which it
//! shares with every other object of its kind. So it is held as JSON, compressed (LZ4) against a dictionary, which is
//! another object of its kind: what is left of most are their names, uids and times. Taking one out costs some ten
//! microseconds.
//!
//! # Dictionaries
//!
//! The first object that is packed is the first dictionary. Objects change as they live, above all when they get a status:
//! one that is like none of the dictionaries becomes a further one, up to [`DICTIONARIES_MAX`].
//!
//! # Odd cases
//!
//! - What cannot be read back is not packed: it is tried at once, so whoever takes something out always gets it.
//! - Dictionaries that turn out to be unlike the others cost memory, nothing else.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};

/// Bytes of a dictionary at most; the format looks back no farther than 64 KiB.
const DICTIONARY_MAX: usize = 8 * 1024;

/// Dictionaries of a kind.
const DICTIONARIES_MAX: usize = 4;

/// An object that is packed into less than this part of its JSON is like the dictionary.
const LIKE: usize = 5;

/// How the objects of one kind are packed.
#[derive(Debug)]
pub struct Packer<T> {
    write: fn(&T) -> Option<Vec<u8>>,
    read: fn(&[u8]) -> Option<T>,
    dictionaries: [OnceLock<Box<[u8]>>; DICTIONARIES_MAX],
}

/// An object at rest. Cheap to clone.
#[derive(Debug)]
pub enum Held<T> {
    /// As it is.
    Whole(Arc<T>),
    /// Packed: the dictionary, the length of the JSON, and the compressed JSON.
    Packed(u8, u32, Arc<[u8]>),
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(value) => Self::Whole(value.clone()),
            Self::Packed(dictionary, length, bytes) => Self::Packed(*dictionary, *length, bytes.clone()),
        }
    }
}

impl<T: Serialize + DeserializeOwned> Default for Packer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Serialize + DeserializeOwned> Packer<T> {
    /// For objects that are the same again when they are read back from JSON.
    pub fn new() -> Self {
        let write = |value: &T| serde_json::to_vec(value).ok();
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).ok();
        Self { write, read, dictionaries: Default::default() }
    }
}

impl<T> Packer<T> {
    /// Lays an object to rest.
    pub fn pack(&self, value: Arc<T>) -> Held<T> {
        self.packed(&value).unwrap_or(Held::Whole(value))
    }

    fn packed(&self, value: &T) -> Option<Held<T>> {
        let json = (self.write)(value)?;
        let (dictionary, bytes) = self.compressed(&json)?;
        let packed = Held::Packed(dictionary, u32::try_from(json.len()).ok()?, bytes.into());
        self.taken_out(&packed).is_some().then_some(packed)
    }

    /// Compressed against the first dictionary that it is like, else against the best one. The latest come first.
    fn compressed(&self, json: &[u8]) -> Option<(u8, Vec<u8>)> {
        let known = self.dictionaries.iter().take_while(|dictionary| dictionary.get().is_some()).count();
        let mut best = None;
        for number in (0..known).rev() {
            let found = self.compressed_by(number, json)?;
            if found.1.len() * LIKE < json.len() {
                return Some(found);
            }
            best = best.filter(|best: &(u8, Vec<u8>)| best.1.len() <= found.1.len()).or(Some(found));
        }
        let Some(next) = self.dictionaries.get(known) else { return best };
        next.get_or_init(|| json[..json.len().min(DICTIONARY_MAX)].into());
        self.compressed_by(known, json)
    }

    fn compressed_by(&self, number: usize, json: &[u8]) -> Option<(u8, Vec<u8>)> {
        let dictionary = self.dictionaries.get(number)?.get()?;
        Some((u8::try_from(number).ok()?, lz4_flex::block::compress_with_dict(json, dictionary)))
    }

    /// The object in use.
    pub fn take_out(&self, held: &Held<T>) -> Option<Arc<T>> {
        match held {
            Held::Whole(value) => Some(value.clone()),
            Held::Packed(..) => self.taken_out(held).map(Arc::new),
        }
    }

    fn taken_out(&self, held: &Held<T>) -> Option<T> {
        let Held::Packed(dictionary, length, bytes) = held else { return None };
        let (dictionary, length) = (self.dictionaries.get(usize::from(*dictionary))?, usize::try_from(*length).ok()?);
        let json = lz4_flex::block::decompress_with_dict(bytes, length, dictionary.get()?).ok()?;
        (self.read)(&json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::PodAutoscaler;
    use proptest::prelude::*;
    use serde_json::json;

    fn autoscaler(n: u32) -> PodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("revision-{n:05}"), "namespace": "ns", "uid": format!("7f3c1c1e-6c0e-4a57-8d5b-{n:012x}"),
                "creationTimestamp": "2026-08-01T00:00:10Z",
                "labels": {"serving.knative.dev/revision": format!("revision-{n:05}"), "serving.knative.dev/service": "a"},
                "annotations": {"autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev"},
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("d-{n:05}")},
                "protocolType": "http1",
            },
            "status": {"serviceName": "a", "metricsServiceName": "a-private", "desiredScale": n,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-08-01T00:00:10Z"}]},
        }))
        .expect("a PodAutoscaler")
    }

    #[test]
    fn an_object_is_the_same_again_and_small_between() {
        let packer = Packer::new();
        for n in 0..100 {
            let object = Arc::new(autoscaler(n * 7919));
            let held = packer.pack(object.clone());
            assert_eq!(packer.take_out(&held).as_ref(), Some(&object));
            let Held::Packed(_, length, bytes) = held else { panic!("not packed") };
            assert!(n == 0 || bytes.len() * 4 < length as usize, "{} bytes of {length}", bytes.len());
        }
    }

    /// Goal: objects that have got a status since are as small as those that are all alike, whatever came between.
    #[test]
    fn objects_that_have_changed_in_kind_have_a_dictionary_of_their_own() {
        let packer = Packer::new();
        let without = |n: u32| PodAutoscaler { status: None, ..autoscaler(n) };
        let sizes = |make: &dyn Fn(u32) -> PodAutoscaler| -> Vec<usize> {
            let each = (1000..1100).map(|n| {
                let object = Arc::new(make(n));
                let held = packer.pack(object.clone());
                assert_eq!(packer.take_out(&held).as_ref(), Some(&object));
                let Held::Packed(_, _, bytes) = held else { panic!("not packed") };
                bytes.len()
            });
            each.skip(1).collect() // The first may become the dictionary.
        };
        sizes(&without);
        packer.pack(Arc::new(PodAutoscaler { metadata: Default::default(), ..autoscaler(1) }));
        let grown = sizes(&autoscaler);
        let alone = Packer::new();
        alone.pack(Arc::new(autoscaler(999)));
        let Held::Packed(_, _, best) = alone.pack(Arc::new(autoscaler(1001))) else { panic!("not packed") };
        assert!(grown.iter().all(|size| *size <= best.len() + 8), "{grown:?}, alone {}", best.len());
    }

    /// Goal: what does not survive the way into JSON and back is kept as it is.
    #[test]
    fn what_cannot_be_read_back_stays_whole() {
        let packer = Packer::<f64>::new();
        assert!(matches!(packer.pack(Arc::new(0.5)), Held::Packed(..)));
        let held = packer.pack(Arc::new(f64::INFINITY));
        assert_eq!(packer.take_out(&held).as_deref(), Some(&f64::INFINITY));
    }

    proptest! {
        /// Goal: whatever the dictionary was, every object comes back.
        #[test]
        fn everything_comes_back(values in proptest::collection::vec(".{0,200}", 1..20)) {
            let packer = Packer::new();
            for value in values {
                let value = Arc::new(value);
                prop_assert_eq!(packer.take_out(&packer.pack(value.clone())), Some(value));
            }
        }
    }
}
