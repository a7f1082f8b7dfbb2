//! Objects at rest, in less than half of the memory that they take in use.
//!
//! Of the thousands of objects of a kind hardly any is looked at at a time: an object is read when something happens to
//! its revision. In memory it is a hundred small blocks, some 4 KiB. So it is held as JSON; taking one out costs some ten
//! microseconds.
//!
//! An object that cannot be read back is not packed. That is tried at once, so a packed object can always be unpacked.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// How the objects of one kind are packed.
#[derive(Debug)]
pub struct Packer<T> {
    write: fn(&T) -> Option<Vec<u8>>,
    read: fn(&[u8]) -> Option<T>,
}

/// An object at rest. Cheap to clone.
#[derive(Debug)]
pub enum Held<T> {
    /// As it is.
    Whole(Arc<T>),
    /// JSON text.
    Packed(Arc<[u8]>),
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(value) => Self::Whole(value.clone()),
            Self::Packed(json) => Self::Packed(json.clone()),
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
        Self { write: |value| serde_json::to_vec(value).ok(), read: |json| serde_json::from_slice(json).ok() }
    }
}

impl<T> Packer<T> {
    /// Lays an object to rest.
    pub fn pack(&self, value: Arc<T>) -> Held<T> {
        let json = (self.write)(&value).filter(|json| (self.read)(json).is_some());
        json.map_or(Held::Whole(value), |json| Held::Packed(json.into()))
    }

    /// The object in use.
    pub fn take_out(&self, held: &Held<T>) -> Option<Arc<T>> {
        match held {
            Held::Whole(value) => Some(value.clone()),
            Held::Packed(json) => (self.read)(json).map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every object comes back; what does not survive the way into JSON and back is kept as it is.
    #[test]
    fn everything_comes_back() {
        let packer = Packer::<f64>::new();
        for (value, is_packed) in [(0.5, true), (f64::INFINITY, false)] {
            let held = packer.pack(Arc::new(value));
            assert_eq!(packer.take_out(&held).as_deref(), Some(&value));
            assert_eq!(matches!(held, Held::Packed(_)), is_packed, "{value}");
        }
    }
}
