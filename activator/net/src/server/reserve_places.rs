//! Who has which place of the reserve, and who loses one to a newcomer.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// So many places, and what those have given that they are taken by.
#[derive(Debug)]
pub(super) struct Places<T> {
    most: usize,
    next: u64,
    /// In order of arrival.
    taken: VecDeque<Taken<T>>,
}

#[derive(Debug)]
struct Taken<T> {
    number: u64,
    address: IpAddr,
    of: T,
}

impl<T> Places<T> {
    /// So many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, next: 0, taken: VecDeque::new() }
    }

    /// Gives a place to somebody from there: its number, and who has lost one by that.
    pub(super) fn enter(&mut self, address: IpAddr, of: T) -> (u64, Option<T>) {
        let number = self.next;
        self.next += 1;
        self.taken.push_back(Taken { number, address, of });
        let ended = (self.taken.len() > self.most).then(|| self.taken.remove(self.longest_of_most())).flatten();
        (number, ended.map(|taken| taken.of))
    }

    /// Takes it back, if it is not another's already.
    pub(super) fn leave(&mut self, number: u64) {
        if let Ok(at) = self.taken.binary_search_by_key(&number, |taken| taken.number) {
            self.taken.remove(at);
        }
    }

    /// Of the address that has most places the one that has been there for longest; where several have as many, theirs.
    fn longest_of_most(&self) -> usize {
        let mut of_address = HashMap::<IpAddr, usize>::new();
        self.taken.iter().for_each(|taken| *of_address.entry(taken.address).or_default() += 1);
        let count = |taken: &Taken<T>| of_address.get(&taken.address).copied();
        // Of equal ones, the last is found.
        let longest = self.taken.iter().enumerate().rev().max_by_key(|(_, taken)| count(taken));
        longest.map_or(0, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: where all places are taken, the address with most of them loses its oldest, be it the newcomer's or not.
    #[test]
    fn a_newcomer_takes_the_oldest_place_of_the_address_with_most() {
        // Of four places: from which address each comes, and which of them loses its own by that.
        type Row<'a> = (&'a str, &'a [(u8, Option<u32>)]);
        let rows: [Row<'_>; 4] = [
            ("room", &[(1, None), (1, None), (2, None), (3, None)]),
            ("its own", &[(1, None), (2, None), (1, None), (1, None), (1, Some(0)), (1, Some(2))]),
            ("the flood's", &[(9, None), (1, None), (1, None), (1, None), (8, Some(1)), (7, Some(2)), (1, Some(3))]),
            ("all alike", &[(1, None), (2, None), (3, None), (4, None), (5, Some(0)), (6, Some(1))]),
        ];
        for (case, comers) in rows {
            let mut places = Places::new(4);
            for (comer, (address, loses)) in (0_u32..).zip(comers) {
                let (_, lost) = places.enter([10, 0, 0, *address].into(), comer);
                assert_eq!(lost, *loses, "{case}: {comer}");
            }
        }
    }

    #[test]
    fn a_place_that_was_given_back_is_free() {
        let mut places = Places::new(2);
        let comes = |places: &mut Places<()>| places.enter([10, 0, 0, 1].into(), ());
        let (first, second) = (comes(&mut places).0, comes(&mut places).0);
        assert!(comes(&mut places).1.is_some(), "the first has lost its own");
        places.leave(first);
        assert!(comes(&mut places).1.is_some(), "it has none to give back");
        places.leave(second + 1);
        assert!(comes(&mut places).1.is_none());
        assert!(Places::new(0).enter([10, 0, 0, 1].into(), ()).1.is_some(), "none for anybody");
    }
}
