//! Records the owner of each port number in ConfigMaps of the system namespace, one for each block of numbers.
//!
//! ```yaml
//! kind: ConfigMap
//! metadata: {name: ports.20000, namespace: zeroscale-system, labels: {zeroscale.dev/ledger: ports}}
//! data:
//!   "20000": held default/hello 0b7d9a54-4f3e-4c5e-9d0b-6f3f5f0b8a11 80 http
//!   "20001": released:1795000000 default/gone 5a1e2f0c-1b2c-4d5e-8f90-a1b2c3d4e5f6 5432
//! ```
//!
//! A number is a key of exactly one map, so it has one line. A map is replaced only under the resource version that was
//! read (compare and set), so of two writers that want the same number one is rejected. The block of a number never
//! changes, whatever the configured range is: changing the range moves no line.
//!
//! A line consists of the state, NAMESPACE/NAME and uid of the ZeroScaler, and number and name (if any) of its
//! Service's port. Only administrators of the installation may write these maps.
//!
//! A line stays after its workload has released the number. It then records since when no slice names the number, in
//! seconds since 1970. The line is replaced when another workload gets the number. The same applies to a line
//! that was closed because the workload must no longer be reachable at that number.
//!
//! # Bounds
//!
//! A map has at most [`BLOCK`] lines of at most 450 bytes, which is the size with the longest possible names. That is
//! 230 KB, a quarter of the ConfigMap limit.

use crate::RevisionKey;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Port numbers per map.
pub const BLOCK: u16 = 500;
/// Time for which activators keep listening on a released number. It exceeds the lag of slice caches, clocks and
/// watches.
pub const OPEN_FOR: Duration = Duration::from_secs(7 * 60);
/// State of a line whose number is held by its workload.
const HELD: &str = "held";
/// State of a line whose number was released; `:` and the time follow.
const RELEASED: &str = "released";
/// State of a line whose number was taken away; `:` and the time follow.
const CLOSED: &str = "closed";
/// Prefix of a map's name; the first number of its block follows.
const NAME_PREFIX: &str = "ports.";

/// All entries of all maps, by number.
pub type Ledger = BTreeMap<u16, Entry>;

/// Block of numbers that share one map, identified by its first number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u16);

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// Name of the port; empty for the only port of a Service.
    pub name: String,
    /// Port number of the Service, which clients call.
    pub port: u16,
}

/// Owner of one port number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Held, released or closed.
    pub state: NumberState,
    /// Key of the ZeroScaler.
    pub key: RevisionKey,
    /// Uid of the ZeroScaler: another object of the same name is a different owner.
    pub uid: Arc<str>,
    /// The Service port behind the number.
    pub port: PortId,
}

/// Ownership state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberState {
    /// Activators listen on the number, and their addresses may be written into slices.
    Held,
    /// No slice has named the number since this time. Addresses are not written into slices any more; activators keep
    /// listening for [`OPEN_FOR`].
    Released(Timestamp),
    /// The number was taken away. The time is renewed while slices still name the number. Activators do not listen on
    /// it, because the workload's NetworkPolicies allow connections on guarded numbers only.
    Closed(Timestamp),
}

impl NumberState {
    /// Returns the time at which the number was released or taken away, or `None` if the workload has it.
    pub fn ended(self) -> Option<Timestamp> {
        match self {
            Self::Held => None,
            Self::Released(at) | Self::Closed(at) => Some(at),
        }
    }

    /// Reports whether activators listen on the number.
    pub fn is_open(self, now: Timestamp) -> bool {
        match self {
            Self::Held => true,
            Self::Released(at) => now < at + OPEN_FOR,
            Self::Closed(_) => false,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let Some((word, time)) = text.split_once(':') else { return (text == HELD).then_some(Self::Held) };
        let at = Timestamp::from_secs(time.parse().ok()?);
        match word {
            RELEASED => Some(Self::Released(at)),
            CLOSED => Some(Self::Closed(at)),
            _ => None,
        }
    }
}

/// Formats the state as a line begins.
impl fmt::Display for NumberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str(HELD),
            Self::Released(at) => write!(f, "{RELEASED}:{}", at.as_secs()),
            Self::Closed(at) => write!(f, "{CLOSED}:{}", at.as_secs()),
        }
    }
}

impl Block {
    /// Returns the block that contains a number.
    pub fn containing(number: u16) -> Self {
        Self(number - number % BLOCK)
    }

    /// Returns all blocks.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX).step_by(usize::from(BLOCK)).map(Self)
    }

    /// Returns the name of the block's map.
    pub fn map_name(self) -> String {
        format!("{NAME_PREFIX}{}", self.0)
    }

    /// Returns the block of a map by its name, or `None` for another kind of map.
    pub fn of_map(name: &str) -> Option<Self> {
        let first: u16 = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
        (first.is_multiple_of(BLOCK) && Self(first).map_name() == name).then_some(Self(first))
    }
}

impl Entry {
    /// Parses a line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let state = NumberState::parse(words.next()?)?;
        let (namespace, name) = words.next()?.split_once('/')?;
        let (uid, port) = (words.next()?.into(), words.next()?.parse().ok().filter(|port| *port > 0)?);
        let port = PortId { name: words.next().unwrap_or_default().to_owned(), port };
        words.next().is_none().then(|| Self { state, key: RevisionKey::new(namespace, name), uid, port })
    }
}

/// Formats the line that [`Entry::parse`] reads.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, key, uid, port } = self;
        write!(f, "{state} {key} {uid} {}", port.port)?;
        if port.name.is_empty() { Ok(()) } else { write!(f, " {}", port.name) }
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "{}", self.port) } else { write!(f, "{} ({})", self.name, self.port) }
    }
}

/// Content of one map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Parsed lines.
    pub entries: Ledger,
    /// Numbers whose line cannot be parsed, with that line. They have no owner and are not allocated.
    pub unreadable: BTreeMap<u16, String>,
}

/// Parses a map's data. Keys outside this block are ignored, because their numbers belong to another map.
pub fn read(block: Block, data: Option<&BTreeMap<String, String>>) -> Page {
    let mut page = Page::default();
    for (key, line) in data.into_iter().flatten() {
        let Some(number) = key.parse().ok().filter(|number| *number > 0 && Block::containing(*number) == block) else {
            continue;
        };
        // `020000` would be a second key for the number 20000.
        match Entry::parse(line).filter(|_| number.to_string() == *key) {
            Some(entry) if !page.unreadable.contains_key(&number) => _ = page.entries.insert(number, entry),
            _ => {
                page.entries.remove(&number);
                page.unreadable.insert(number, line.clone());
            }
        }
    }
    page
}

/// Writes one line. All other lines are left unchanged, even unreadable ones.
pub fn write(data: &mut BTreeMap<String, String>, number: u16, entry: &Entry) {
    data.insert(number.to_string(), entry.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(state: NumberState, name: &str) -> Entry {
        let port = PortId { name: name.to_owned(), port: 80 };
        Entry { state, key: RevisionKey::new("default", "hello"), uid: "0b7d".into(), port }
    }

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let rows = [
            (entry(NumberState::Held, "http"), "held default/hello 0b7d 80 http"),
            (entry(NumberState::Released(Timestamp::from_secs(1_795)), ""), "released:1795 default/hello 0b7d 80"),
            (entry(NumberState::Closed(Timestamp::from_secs(1_795)), ""), "closed:1795 default/hello 0b7d 80"),
        ];
        for (entry, line) in rows {
            assert_eq!((entry.to_string(), Entry::parse(line)), (line.to_owned(), Some(entry)));
        }
        let wrong = "|held|held hello 0b7d 80|open a/b u 80|open:1795 a/b u 80|released a/b u 80|held a/b u 0|\
            held a/b u 80 c d";
        for line in wrong.split('|') {
            assert_eq!(Entry::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_map_has_one_line_for_each_number_of_its_block_only() {
        let block = Block::containing(20_499);
        assert_eq!([block, Block::containing(20_500)].map(Block::map_name), ["ports.20000", "ports.20500"]);
        let names = [("ports.20000", true), ("ports.20001", false), ("ports.020000", false), ("hosts.a", false)];
        for (name, known) in names {
            assert_eq!(Block::of_map(name).is_some(), known, "{name}");
        }
        let line = entry(NumberState::Held, "http").to_string();
        let keys = ["20000", "20500", "020001", "20001", "x", "20002", "-1"];
        let mut data: BTreeMap<String, String> = keys.map(|key| (key.to_owned(), line.clone())).into();
        data.insert("20002".to_owned(), "held".to_owned());
        let page = read(block, Some(&data));
        assert_eq!(page.entries.keys().copied().collect::<Vec<_>>(), [20_000]);
        let unreadable: Vec<_> = page.unreadable.keys().copied().collect();
        assert_eq!(unreadable, [20_001, 20_002], "a number with two lines has no owner");
        write(&mut data, 20_000, &entry(NumberState::Held, ""));
        assert_eq!(read(block, Some(&data)).unreadable, page.unreadable, "unreadable lines stay");
    }

    proptest! {
        #[test]
        fn every_number_has_one_block(number in 1u16..) {
            let block = Block::containing(number);
            prop_assert_eq!(Block::of_map(&block.map_name()), Some(block));
            prop_assert!(Block::all().any(|one| one == block));
            let mut data = BTreeMap::new();
            write(&mut data, number, &entry(NumberState::Held, "a"));
            prop_assert_eq!(read(block, Some(&data)).entries.into_keys().collect::<Vec<_>>(), vec![number]);
        }
    }
}
