//! Packs stored objects into less than half of the memory that they take in use.
//!
//! Of the thousands of objects of a kind, few are in use at any time: an object is read when something happens to its
//! revision. In memory it consists of a hundred small blocks, some 4 KiB. So it is stored as JSON, and unpacking one
//! takes some ten microseconds.
//!
//! An object that cannot be read back is not packed. Packing verifies this at once, so a packed object can always be
//! unpacked.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Packing functions for the objects of one kind.
#[derive(Debug)]
pub struct Packer<T> {
    write: fn(&T) -> Option<Vec<u8>>,
    read: fn(&[u8]) -> Option<T>,
}

/// Stored object. Cheap to clone.
#[derive(Debug)]
pub enum Held<T> {
    /// Unpacked object.
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
    /// Creates a packer for objects that survive a round trip through JSON unchanged.
    pub fn new() -> Self {
        Self { write: |value| serde_json::to_vec(value).ok(), read: |json| serde_json::from_slice(json).ok() }
    }
}

impl<T> Packer<T> {
    /// Packs an object.
    pub fn pack(&self, value: Arc<T>) -> Held<T> {
        let json = (self.write)(&value).filter(|json| (self.read)(json).is_some());
        json.map_or(Held::Whole(value), |json| Held::Packed(json.into()))
    }

    /// Unpacks an object.
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

    /// Goal: every object comes back; one that does not survive JSON is stored unpacked.
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
