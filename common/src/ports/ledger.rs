//! How it is written down who has which number: ConfigMaps of the system namespace, one for each block of numbers.
//!
//! ```yaml
//! kind: ConfigMap
//! metadata: {name: ports.20000, namespace: zeroscale-system, labels: {zeroscale.dev/ledger: ports}}
//! data:
//!   "20000": held default/hello 0b7d9a54-4f3e-4c5e-9d0b-6f3f5f0b8a11 80 http
//!   "20001": released:1795000000 default/gone 5a1e2f0c-1b2c-4d5e-8f90-a1b2c3d4e5f6 5432
//! ```
//!
//! A number is a key of one map, so it has one line; and a map is only ever replaced under the resource version that
//! was read (compare and set), so of two that want a number one is refused. Which block a number belongs to never
//! changes, whatever the range is: edits of it move no line.
//!
//! A line: its state, NAMESPACE/NAME and uid of the ZeroScaler, number and name (if it has one) of its Service's port.
//! Only administrators of the install may write there.
//!
//! A line stays when its workload does not want the number any more. It then says since when no slice names the number,
//! in seconds since 1970, until another workload gets the number and the line is replaced.
//!
//! # Bounds
//!
//! [`BLOCK`] lines of at most 450 bytes, the longest names there are: 230 KB, a quarter of what a ConfigMap may hold.

use crate::RevisionKey;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Numbers of one map.
pub const BLOCK: u16 = 500;
/// Time for which activators go on listening on a released number: caches of slices, clocks and watches differ by less.
pub const OPEN_FOR: Duration = Duration::from_secs(7 * 60);
/// State of a line whose number its workload has.
const HELD: &str = "held";
/// State of a line whose number was given back; `:` and the time follow.
const RELEASED: &str = "released";
/// What a map's name begins with; the first number of its block follows.
const NAME_PREFIX: &str = "ports.";

/// Who has which number: what all maps say together.
pub type Ledger = BTreeMap<u16, Entry>;

/// The numbers of one map, by the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u16);

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// Its name; empty for the only port of a Service.
    pub name: String,
    /// Its own number, which clients call.
    pub port: u16,
}

/// A number that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether the workload still has it.
    pub state: State,
    /// The ZeroScaler.
    pub key: RevisionKey,
    /// Its uid: another object of the same name is somebody else.
    pub uid: Arc<str>,
    /// Which of its ports.
    pub port: PortId,
}

/// Whether a workload still has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Activators listen there, and their addresses may be written into slices.
    Held,
    /// No slice has named it since this time. No address is written into a slice any more; activators go on listening for
    /// [`OPEN_FOR`].
    Released(Timestamp),
}

impl State {
    /// Returns whether activators listen there.
    pub fn is_open(self, now: Timestamp) -> bool {
        match self {
            Self::Held => true,
            Self::Released(at) => now < at + OPEN_FOR,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => (text == HELD).then_some(Self::Held),
            Some((word, time)) if word == RELEASED => Some(Self::Released(Timestamp::from_secs(time.parse().ok()?))),
            Some(_) => None,
        }
    }
}

/// As a line begins.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str(HELD),
            Self::Released(at) => write!(f, "{RELEASED}:{}", at.as_secs()),
        }
    }
}

impl Block {
    /// The block of a number.
    pub fn of(number: u16) -> Self {
        Self(number - number % BLOCK)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX).step_by(usize::from(BLOCK)).map(Self)
    }

    /// The name of its map.
    pub fn map_name(self) -> String {
        format!("{NAME_PREFIX}{}", self.0)
    }

    /// The block of a map's name, if it is one of these.
    pub fn of_map(name: &str) -> Option<Self> {
        let first: u16 = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
        (first.is_multiple_of(BLOCK) && Self(first).map_name() == name).then_some(Self(first))
    }
}

impl Entry {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let state = State::parse(words.next()?)?;
        let (namespace, name) = words.next()?.split_once('/')?;
        let (uid, port) = (words.next()?.into(), words.next()?.parse().ok().filter(|port| *port > 0)?);
        let port = PortId { name: words.next().unwrap_or_default().to_owned(), port };
        words.next().is_none().then(|| Self { state, key: RevisionKey::new(namespace, name), uid, port })
    }
}

/// As [`Entry::parse`] reads it.
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

/// What one map says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its lines.
    pub entries: Ledger,
    /// Numbers whose line cannot be read, and the line. Nobody has them, and nobody is given them.
    pub unreadable: BTreeMap<u16, String>,
}

/// Reads a map's data. Keys that are no numbers of this block say nothing: their numbers have a map of their own.
pub fn read(block: Block, data: Option<&BTreeMap<String, String>>) -> Page {
    let mut page = Page::default();
    for (key, line) in data.into_iter().flatten() {
        let Some(number) = key.parse().ok().filter(|number| *number > 0 && Block::of(*number) == block) else {
            continue;
        };
        // `020000` would be a second key of one number.
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

/// Writes one line; other lines stay as they are, unreadable ones too.
pub fn write(data: &mut BTreeMap<String, String>, number: u16, entry: &Entry) {
    data.insert(number.to_string(), entry.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(state: State, name: &str) -> Entry {
        let port = PortId { name: name.to_owned(), port: 80 };
        Entry { state, key: RevisionKey::new("default", "hello"), uid: "0b7d".into(), port }
    }

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let rows = [
            (entry(State::Held, "http"), "held default/hello 0b7d 80 http"),
            (entry(State::Released(Timestamp::from_secs(1_795)), ""), "released:1795 default/hello 0b7d 80"),
        ];
        for (entry, line) in rows {
            assert_eq!((entry.to_string(), Entry::parse(line)), (line.to_owned(), Some(entry)));
        }
        for line in [
            "",
            "held",
            "held hello 0b7d 80",
            "open a/b u 80",
            "released a/b u 80",
            "held a/b u 0",
            "held a/b u 80 c d",
        ] {
            assert_eq!(Entry::parse(line), None, "{line:?}");
        }
    }

    /// Goal: a number is a key of one map, and of that map once.
    #[test]
    fn a_map_speaks_of_the_numbers_of_its_block_alone() {
        let block = Block::of(20_499);
        assert_eq!((block.map_name().as_str(), Block::of(20_500).map_name().as_str()), ("ports.20000", "ports.20500"));
        for (name, known) in
            [("ports.20000", true), ("ports.20001", false), ("ports.020000", false), ("hosts.a", false)]
        {
            assert_eq!(Block::of_map(name).is_some(), known, "{name}");
        }
        let line = entry(State::Held, "http").to_string();
        let keys = ["20000", "20500", "020001", "20001", "x", "20002", "-1"];
        let mut data: BTreeMap<String, String> = keys.map(|key| (key.to_owned(), line.clone())).into();
        data.insert("20002".to_owned(), "held".to_owned());
        let page = read(block, Some(&data));
        assert_eq!(page.entries.keys().copied().collect::<Vec<_>>(), [20_000]);
        assert_eq!(
            page.unreadable.keys().copied().collect::<Vec<_>>(),
            [20_001, 20_002],
            "a number of two lines is none's"
        );
        write(&mut data, 20_000, &entry(State::Held, ""));
        assert_eq!(read(block, Some(&data)).unreadable, page.unreadable, "what cannot be read stays");
    }

    proptest! {
        #[test]
        fn every_number_has_one_block(number in 1u16..) {
            let block = Block::of(number);
            prop_assert_eq!(Block::of_map(&block.map_name()), Some(block));
            prop_assert!(Block::all().any(|one| one == block));
            let mut data = BTreeMap::new();
            write(&mut data, number, &entry(State::Held, "a"));
            prop_assert_eq!(read(block, Some(&data)).entries.into_keys().collect::<Vec<_>>(), vec![number]);
        }
    }
}
