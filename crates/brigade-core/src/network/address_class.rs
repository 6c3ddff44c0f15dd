//! Classification of IP addresses: which of them may be connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Network that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// Public network.
    Public,
    /// This machine.
    Loopback,
    /// Network that must not be connected to unless the user named the address. The description continues the sentence
    /// "The address is".
    Blocked(&'static str),
}

const PRIVATE: AddressClass = AddressClass::Blocked("in a private network");
const LINK_LOCAL: AddressClass =
    AddressClass::Blocked("a link-local address, where cloud metadata services listen");
const RESERVED: AddressClass = AddressClass::Blocked("in a reserved range");
const CLOUD_METADATA: AddressClass = AddressClass::Blocked("the address of a cloud metadata service");

/// Classifies an address. An address that is not known to be public is blocked.
pub fn address_class(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => address_class_v4(address),
        IpAddr::V6(address) => address_class_v6(address),
    }
}

fn address_class_v4(address: Ipv4Addr) -> AddressClass {
    let [a, b, c, d] = address.octets();
    match (a, b, c) {
        (127, ..) => AddressClass::Loopback,
        (169, 254, _) => LINK_LOCAL,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => PRIVATE,
        // Shared address space of carrier-grade NAT.
        (100, 64..=127, _) => PRIVATE,
        (168, 63, 129) if d == 16 => CLOUD_METADATA,
        (0, ..) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => {
            RESERVED
        }
        (224.., ..) => AddressClass::Blocked("a multicast or reserved address"),
        _ => AddressClass::Public,
    }
}

fn address_class_v6(address: Ipv6Addr) -> AddressClass {
    if address == Ipv6Addr::LOCALHOST {
        return AddressClass::Loopback;
    }
    if let Some(inside) = address.to_ipv4_mapped() {
        return address_class_v4(inside);
    }
    let parts = address.segments();
    let [first, second, ..] = parts;
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        // A gateway would reach its own loopback, not this machine's.
        match address_class_v4(Ipv4Addr::new(a, b, c, d)) {
            AddressClass::Loopback => RESERVED,
            other => other,
        }
    };
    match parts {
        // A gateway translates NAT64 and 6to4 addresses to the embedded address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return embedded(high, low),
        [0x2002, high, low, ..] => return embedded(high, low),
        // So does an ISATAP host.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] if embedded(high, low) != AddressClass::Public => {
            return PRIVATE;
        }
        _ => {}
    }
    match (first, second) {
        (0xfc00..=0xfdff, _) => PRIVATE,
        (0xfe80..=0xfeff, _) => LINK_LOCAL,
        (0xff00.., _) => AddressClass::Blocked("a multicast or reserved address"),
        // Protocols such as Teredo, and documentation addresses.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => RESERVED,
        (0x2000..=0x3fff, _) => AddressClass::Public,
        _ => RESERVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(text: &str) -> AddressClass {
        address_class(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_allowed() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "192.167.1.1",
            "11.0.0.1",
            "223.255.255.255",
            "198.17.0.1",
            "192.0.1.1",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "2606:4700::5efe:808:808",
        ] {
            assert_eq!(class_of(text), AddressClass::Public, "{text}");
        }
    }

    #[test]
    fn loopback_addresses_are_recognised() {
        for text in ["127.0.0.1", "127.255.1.2", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(class_of(text), AddressClass::Loopback, "{text}");
        }
    }

    #[test]
    fn private_and_reserved_addresses_are_blocked() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "169.254.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "192.88.99.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::127.0.0.1",
            "::10.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "2002:a00:1::1",
            "2002:7f00:1::",
            "2002:c0a8:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:0:a00:1::",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "2606:4700::5efe:a00:1",
            "2606:4700::200:5efe:a9fe:a9fe",
        ] {
            assert!(matches!(class_of(text), AddressClass::Blocked(_)), "{text}: {:?}", class_of(text));
        }
    }
}
