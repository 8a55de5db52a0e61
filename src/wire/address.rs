//! Addresses to listen on, as configurations write them. Pure.

use std::net::{IpAddr, Ipv4Addr};

/// The IP address of a text: `any` is every address, brackets may stand around one of IPv6, and IPv4 may leave out
/// zeros in its middle (`127.1`), as the C library reads it.
pub fn bind_ip(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if text == "any" {
        return Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    }
    text.trim_matches(['[', ']']).parse().ok().or_else(|| short(text).map(IpAddr::V4))
}

/// `a.d` and `a.b.d`.
fn short(text: &str) -> Option<Ipv4Addr> {
    let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
    match *parts? {
        [a, d] => Some(Ipv4Addr::new(a, 0, 0, d)),
        [a, b, d] => Some(Ipv4Addr::new(a, b, 0, d)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_addresses() {
        let ip = |text: &str| bind_ip(text).map(|ip| ip.to_string());
        assert_eq!(ip("any").as_deref(), Some("0.0.0.0"));
        assert_eq!(ip(" [::1] ").as_deref(), Some("::1"));
        assert_eq!(ip("127.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(ip("10.1.2").as_deref(), Some("10.1.0.2"));
        for bad in ["", "here", "1", "1.2.3.4.5", "1.256"] {
            assert_eq!(ip(bad), None, "{bad}");
        }
    }
}
