use std::net::{IpAddr, SocketAddr};

use super::*;

fn list(patterns: &[&str]) -> HostList {
    patterns.iter().map(|pattern| HostPattern::parse(pattern).unwrap()).collect()
}

fn target(text: &str) -> Target {
    Target::parse(text, None).unwrap()
}

fn listing(patterns: &[&str], text: &str) -> Listing {
    list(patterns).listing(&target(text))
}

#[test]
fn hosts_have_one_form() {
    for (text, shown) in [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a-b.c1.example", "a-b.c1.example"),
        ("registry", "registry"),
        ("1password.com", "1password.com"),
        ("10.0.0.5", "10.0.0.5"),
        ("[FD00::1]", "[fd00::1]"),
        ("[0:0:0:0:0:0:0:1]", "[::1]"),
        ("[::ffff:7f00:1]", "[::ffff:127.0.0.1]"),
    ] {
        assert_eq!(Host::parse(text).unwrap().to_string(), shown, "{text}");
    }
}

/// Forms that programs read in different ways.
#[test]
fn ambiguous_hosts_are_refused() {
    for text in [
        "",
        ".",
        "..",
        "example.com..",
        ".example.com",
        "example..com",
        "-example.com",
        "example-.com",
        "exa_mple.com",
        "example.com/",
        "user@example.com",
        "ok.com@evil.com",
        "ok.com\0.evil.com",
        "evil\0.google.com",
        "evil.com\r\nHost: ok.com",
        "evil.com\n",
        "evil.com\r",
        "evil.com\t",
        " example.com",
        "example.com ",
        "evil.com%00.ok.com",
        "%65xample.com",
        "evil.com%2eok.com",
        "evil.com#.ok.com",
        "evil.com?.ok.com",
        "evil.com\\.ok.com",
        "evil.com;ok.com",
        "evil.com,ok.com",
        "*.example.com",
        "bücher.example",
        "example\u{3002}com",
        "ex\u{430}mple.com",
        "example.com\u{200b}",
        "\u{ff11}27.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "127.0.0.01",
        "127.0.0.0x1",
        "0x7f.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0X7F000001",
        "017700000001",
        "0177.0.0.1",
        "2130706433",
        "256.0.0.1",
        "1.2.3.4.5",
        "1.2.3",
        "example.0x",
        "example.123",
        "::1",
        "fd00::1",
        "[::1",
        "[::1]x",
        "[127.0.0.1]",
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[]",
        "[::1].example.com",
        "::ffff:127.0.0.1",
    ] {
        assert!(Host::parse(text).is_err(), "{text:?}");
        assert!(HostPattern::parse(text).is_err() || text == "*.example.com", "{text:?}");
    }
    assert!(Host::parse(&"a".repeat(64)).is_err());
    assert!(Host::parse(&["a".repeat(50).as_str(); 6].join(".")).is_err());
}

#[test]
fn ports_have_one_form() {
    for port in
        ["", "0", "65536", "-1", "+443", "0443", "4 43", "https", "443.", "\u{664}\u{664}\u{663}", "1e3"]
    {
        let text = format!("example.com:{port}");
        assert_eq!(Target::parse(&text, Some(80)), Err(HostError::Port), "{text}");
        assert!(HostPattern::parse(&text).is_err(), "{text}");
    }
    assert_eq!(Target::parse("example.com", None), Err(HostError::MissingPort));
    assert_eq!(Target::parse("[::1]", None), Err(HostError::MissingPort));
    assert_eq!(Target::parse("example.com", Some(80)).unwrap().to_string(), "example.com:80");
    assert_eq!(Target::parse("[::1]:65535", None).unwrap().to_string(), "[::1]:65535");
    assert!(Target::parse("example.com:443:80", None).is_err());
    assert!(Target::parse("user:password@example.com:443", None).is_err());
}

#[test]
fn entries_match_whole_labels_and_their_ports() {
    for (entry, matching, other) in [
        ("example.com", "example.com:443", "www.example.com:443"),
        ("example.com", "EXAMPLE.com.:80", "example.com.evil.com:443"),
        ("example.com", "example.com:80", "evil-example.com:443"),
        ("example.com", "example.com:443", "example.com:22"),
        ("example.com:8443", "example.com:8443", "example.com:443"),
        ("Example.COM.", "example.com:443", "example.co:443"),
        ("*.example.com", "a.example.com:443", "example.com:443"),
        ("*.example.com", "a.b.example.com:80", "aexample.com:443"),
        ("*.example.com", "a.example.com:443", "evilexample.com:443"),
        ("*.example.com", "xn--a.example.com:443", "a.example.com.evil.com:443"),
        ("*.example.com:22", "git.example.com:22", "git.example.com:443"),
        ("10.0.0.5:5432", "10.0.0.5:5432", "10.0.0.5:443"),
        ("10.0.0.5:5432", "10.0.0.5:5432", "10.0.0.6:5432"),
        ("127.0.0.1:3000", "127.0.0.1:3000", "[::ffff:127.0.0.1]:3000"),
        ("[fd00::1]:8080", "[fd00:0::1]:8080", "[fd00::2]:8080"),
    ] {
        assert!(
            !matches!(listing(&[entry], matching), Listing::Unlisted | Listing::Blocked(_)),
            "{entry} {matching}"
        );
        assert!(
            matches!(listing(&[entry], other), Listing::Unlisted | Listing::Blocked(_)),
            "{entry} {other}"
        );
    }
    assert_eq!(listing(&["example.com"], "example.com:443"), Listing::Listed);
    assert_eq!(listing(&["example.com", "example.com:443"], "example.com:443"), Listing::ListedWithPort);
}

#[test]
fn entries_that_are_too_wide_or_useless_are_refused() {
    for (entry, problem) in [
        ("*", "matches too many hosts"),
        ("*:443", "matches too many hosts"),
        ("*.com", "matches too many hosts"),
        ("*.*.example.com", "`*.*.example.com` is not a host"),
        ("a.*.com", "is not a host"),
        ("**.example.com", "is not a host"),
        ("*.10.0.0.5:80", "is not a host"),
        ("https://example.com", "Use only the host"),
        ("example.com/path", "Use only the host"),
        ("user@example.com", "Use only the host"),
        ("10.0.0.5", "without a port. Add the port, such as `10.0.0.5:443`"),
        ("[fd00::1]", "without a port. Add the port, such as `[fd00::1]:443`"),
        ("localhost:3000", "use `127.0.0.1` and its port"),
        ("*.localhost", "use `127.0.0.1` and its port"),
        ("10.0.0.0/8", "Use only the host"),
        ("example.com:1-100", "the port must be a number"),
    ] {
        let error = HostPattern::parse(entry).unwrap_err().to_string();
        assert!(error.contains(problem), "{entry}: {error}");
    }
    let error = HostPattern::parse(&format!("\u{1b}[31m{}", "a!".repeat(400))).unwrap_err().to_string();
    assert!(error.len() < 300 && !error.contains('\u{1b}'), "{error}");
}

/// An address that is not public needs an entry with exactly this address and port, also if a name leads there.
#[test]
fn addresses_that_are_not_public_need_an_exact_entry() {
    let entries =
        ["example.com", "*.example.com", "10.0.0.5:5432", "127.0.0.1:3000", "[fd00::1]:80", "8.8.8.8:53"];
    for address in [
        "127.0.0.1",
        "127.255.0.1",
        "0.0.0.0",
        "10.0.0.5",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.5",
        "::ffff:169.254.169.254",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:5::1",
        "fd00::1",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
    ] {
        let address: IpAddr = address.parse().unwrap();
        let at_443 = SocketAddr::new(address, 443);
        assert!(list(&entries).check_address(at_443).is_err(), "{address}");
        let target = Target { host: Host::Address(address), port: 443 };
        assert!(matches!(list(&entries).listing(&target), Listing::Blocked(_)), "{address}");
        let exact: HostList = [HostPattern::exactly(target.clone())].into_iter().collect();
        assert_eq!(exact.check_address(at_443), Ok(()), "{address}");
        assert_eq!(exact.listing(&target), Listing::ListedWithPort, "{address}");
    }
    let list = list(&entries);
    let check =
        |address: &str| list.check_address(address.parse().unwrap()).map_err(|blocked| blocked.to_string());
    assert_eq!(check("10.0.0.5:5432"), Ok(()));
    assert_eq!(check("10.0.0.5:5433"), Err("10.0.0.5 is in a private network".into()));
    assert_eq!(check("[::ffff:10.0.0.5]:5432"), Err("::ffff:10.0.0.5 is in a private network".into()));
    assert_eq!(check("93.184.216.34:443"), Ok(()));
    assert_eq!(list.listing(&target("1.1.1.1:443")), Listing::Unlisted);
    assert!(matches!(list.listing(&target("localhost:3000")), Listing::Blocked(_)));
    assert!(matches!(list.listing(&target("x.localhost:80")), Listing::Blocked(_)));
    assert!(list.names_ip("127.0.0.1".parse().unwrap()) && !list.names_ip("::1".parse().unwrap()));
}

#[test]
fn entries_keep_their_form() {
    for entry in ["example.com", "*.example.com:8443", "10.0.0.5:5432", "[fd00::1]:80"] {
        let pattern = HostPattern::parse(entry).unwrap();
        assert_eq!(pattern.to_string(), entry);
        assert_eq!(serde_json::to_value(&pattern).unwrap(), entry);
        assert_eq!(serde_json::from_value::<HostPattern>(entry.into()).unwrap(), pattern);
    }
}

/// Deterministic random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}

const PIECES: [&str; 28] = [
    "example",
    "com",
    ".",
    ".",
    "*.",
    ":",
    "443",
    "0",
    "[",
    "]",
    "::",
    "127",
    "1",
    "0x7f",
    "-",
    "@",
    "/",
    "%00",
    "\0",
    "\r\n",
    "xn--",
    "\u{430}",
    "_",
    "localhost",
    "ffff",
    " ",
    "#",
    "\\",
];

/// Mutated entries and hosts never panic, and what is accepted consists of plain characters and is read again as the same
/// host. `FUZZ=N` sets the number of cases.
#[test]
#[expect(clippy::disallowed_methods, reason = "only a long run by hand sets it")]
fn mutated_hosts_are_refused_or_plain() {
    let cases = std::env::var("FUZZ").map_or(50_000, |cases| cases.parse::<u64>().unwrap());
    let allowed = list(&["example.com", "*.example.com", "127.0.0.1:443"]);
    let mut accepted = 0;
    for case in 0..cases {
        let mut rng = Rng(case);
        let text: String = (0..rng.below(9)).map(|_| PIECES[rng.below(PIECES.len())]).collect();
        if let Ok(pattern) = HostPattern::parse(&text) {
            accepted += 1;
            assert_eq!(HostPattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern), "{text:?}");
        }
        let Ok(target) = Target::parse(&text, Some(443)) else { continue };
        accepted += 1;
        let shown = target.to_string();
        assert!(
            shown.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte)),
            "{text:?}"
        );
        assert_eq!(Target::parse(&shown, None).as_ref(), Ok(&target), "{text:?}");
        if !matches!(allowed.listing(&target), Listing::Unlisted | Listing::Blocked(_)) {
            let name = shown.rsplit_once(':').unwrap().0;
            assert!(
                name == "example.com" || name.ends_with(".example.com") || name == "127.0.0.1",
                "{text:?}"
            );
        }
    }
    assert!(cases < 10_000 || accepted > cases / 100, "{accepted} of {cases} cases were accepted");
}
