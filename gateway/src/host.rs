//! What counts as one host.

use std::net::{IpAddr, Ipv6Addr};

/// How many leading bits of an IPv6 address are a network; every host has all that follow for itself (RFC 4291, 2.5.4).
const NETWORK: u32 = 64;

/// An IPv4 address, or an IPv6 network of 64 bits. IPv4 addresses that are written as IPv6, as a listener on `[::]` gets
/// them, are IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Host(IpAddr);

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << (128 - NETWORK));
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> Host {
        Host::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn an_ipv4_address_is_a_host_also_when_it_is_written_as_ipv6() {
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("::ffff:192.0.2.1"), host("::ffff:192.0.2.2"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_a_host() {
        assert_eq!(
            host("2001:db8:1:2::1"),
            host("2001:db8:1:2:ffff:ffff:ffff:ffff")
        );
        assert_ne!(host("2001:db8:1:2::1"), host("2001:db8:1:3::1"));
        assert_ne!(host("::1"), host("127.0.0.1"));
    }
}
