//! Reads the primitives of the protobuf wire format off the head of a message.

use super::DecodeError;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const LENGTH_DELIMITED: u8 = 2;
const START_GROUP: u8 = 3;
pub(super) const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// What is left of a message.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(DecodeError::UnexpectedEnd)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Eight bytes.
    pub(super) fn array(&mut self) -> Result<[u8; 8], DecodeError> {
        let taken = self.take(8)?;
        taken.try_into().map_err(|_| DecodeError::UnexpectedEnd)
    }

    /// Up to ten bytes; bits beyond the 64th fall off.
    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong)
    }

    /// A length, and so many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        if length.cast_signed() < 0 {
            return Err(DecodeError::NegativeLength);
        }
        self.take(usize::try_from(length).map_err(|_| DecodeError::UnexpectedEnd)?)
    }

    /// Skips a field and its tag; a group up to the end that matches its start in depth.
    pub(super) fn skip_field(&mut self) -> Result<(), DecodeError> {
        let mut depth = 0_usize;
        loop {
            match (self.varint()? & 7) as u8 {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.take(8)?),
                LENGTH_DELIMITED => drop(self.bytes()?),
                START_GROUP => depth += 1,
                END_GROUP => depth = depth.checked_sub(1).ok_or(DecodeError::EndGroup)?,
                FIXED32 => drop(self.take(4)?),
                other => return Err(DecodeError::UnknownWireType(other)),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
