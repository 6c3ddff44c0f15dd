//! Which addresses of the network may be connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Anybody can go there.
    Public,
    /// To this machine.
    Loopback,
    /// Somewhere that a page has no business to lead to; the words say where.
    Closed(&'static str),
}

const PRIVATE: Reach = Reach::Closed("in a private network");
const LOCAL: Reach = Reach::Closed("on the local link, where cloud machines keep their keys");
const RESERVED: Reach = Reach::Closed("in a range that is reserved");
const CLOUD: Reach = Reach::Closed("the address where cloud machines keep their keys");

/// Where an address leads. What is not known to be public is closed.
pub(super) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, d] = address.octets();
    match (a, b, c) {
        (127, ..) => Reach::Loopback,
        (169, 254, _) => LOCAL,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => PRIVATE,
        // Shared between the customers of a provider.
        (100, 64..=127, _) => PRIVATE,
        (168, 63, 129) if d == 16 => CLOUD,
        (0, ..) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => {
            RESERVED
        }
        (224.., ..) => Reach::Closed("a multicast or reserved address"),
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    if address == Ipv6Addr::LOCALHOST {
        return Reach::Loopback;
    }
    if let Some(inside) = address.to_ipv4_mapped() {
        return reach_v4(inside);
    }
    let parts = address.segments();
    let [first, second, ..] = parts;
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        // A gateway would not lead to this machine but to its own.
        match reach_v4(Ipv4Addr::new(a, b, c, d)) {
            Reach::Loopback => RESERVED,
            other => other,
        }
    };
    match parts {
        // A gateway translates these to the address inside: NAT64 and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return embedded(high, low),
        [0x2002, high, low, ..] => return embedded(high, low),
        // So does a host that speaks ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] if embedded(high, low) != Reach::Public => return PRIVATE,
        _ => {}
    }
    match (first, second) {
        (0xfc00..=0xfdff, _) => PRIVATE,
        (0xfe80..=0xfeff, _) => LOCAL,
        (0xff00.., _) => Reach::Closed("a multicast or reserved address"),
        // Protocols such as Teredo, and examples.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => RESERVED,
        (0x2000..=0x3fff, _) => Reach::Public,
        _ => RESERVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Reach {
        reach(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_public() {
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
            assert_eq!(of(text), Reach::Public, "{text}");
        }
    }

    #[test]
    fn this_machine_is_loopback() {
        for text in ["127.0.0.1", "127.255.1.2", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(text), Reach::Loopback, "{text}");
        }
    }

    #[test]
    fn everything_else_is_closed() {
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
            assert!(matches!(of(text), Reach::Closed(_)), "{text}: {:?}", of(text));
        }
    }
}
