//! Packs stored objects into less than half of the memory that unpacked ones take.
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

/// Stored object. Cheap to clone.
#[derive(Debug)]
pub(crate) enum Stored<T> {
    /// Unpacked object.
    Whole(Arc<T>),
    /// JSON text and the function that reads it.
    Packed(Arc<[u8]>, fn(&[u8]) -> Option<T>),
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(value) => Self::Whole(value.clone()),
            Self::Packed(json, read) => Self::Packed(json.clone(), *read),
        }
    }
}

impl<T> Stored<T> {
    pub(crate) fn pack(value: Arc<T>) -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        let read: fn(&[u8]) -> Option<T> = |json| serde_json::from_slice(json).ok();
        let json = serde_json::to_vec(&*value).ok().filter(|json| read(json).is_some());
        json.map_or(Self::Whole(value), |json| Self::Packed(json.into(), read))
    }

    pub(crate) fn unpack(&self) -> Option<Arc<T>> {
        match self {
            Self::Whole(value) => Some(value.clone()),
            Self::Packed(json, read) => read(json).map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an object that JSON cannot represent is stored unpacked.
    #[test]
    fn every_object_survives_packing() {
        for (value, is_packed) in [(0.5, true), (f64::INFINITY, false)] {
            let stored = Stored::<f64>::pack(Arc::new(value));
            assert_eq!(stored.unpack().as_deref(), Some(&value));
            assert_eq!(matches!(stored, Stored::Packed(..)), is_packed, "{value}");
        }
    }
}
