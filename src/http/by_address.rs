//! How much the clients of each address hold of something that is shared.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Sums by address; an address that holds nothing takes no memory.
#[derive(Debug, Default)]
pub(super) struct ByAddress(BTreeMap<IpAddr, usize>);

impl ByAddress {
    pub fn held(&self, address: IpAddr) -> usize {
        self.0.get(&address).copied().unwrap_or_default()
    }

    pub fn add(&mut self, address: IpAddr, count: usize) {
        *self.0.entry(address).or_default() += count;
    }

    pub fn remove(&mut self, address: IpAddr, count: usize) {
        match self.held(address).saturating_sub(count) {
            0 => drop(self.0.remove(&address)),
            left => drop(self.0.insert(address, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_that_gave_all_back_is_not_kept() {
        let (mut sums, address) = (ByAddress::default(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        sums.add(address, 3);
        sums.add(address, 4);
        sums.remove(address, 5);
        assert_eq!(sums.held(address), 2);
        sums.remove(address, 9);
        assert!(sums.held(address) == 0 && sums.0.is_empty());
    }
}
