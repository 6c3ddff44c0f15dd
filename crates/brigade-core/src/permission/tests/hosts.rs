//! Rules about hosts.

use super::*;

fn fetch(permissions: &Permissions, host: &str) -> Verdict {
    permissions.check(&Action { tool: "web_fetch", kind: ActionKind::Pure, subject: Subject::Host(host) })
}

#[test]
fn fetch_is_allowed_in_every_mode_without_a_rule() {
    for mode in [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto] {
        assert!(is_allow(fetch(&permissions(mode, &[], &[], &[]), "example.com")), "{mode}");
        assert!(is_ask(fetch(&permissions(mode, &[], &["web_fetch"], &[]), "example.com")), "{mode}");
        assert!(is_deny(fetch(&permissions(mode, &[], &[], &["web_fetch"]), "example.com")), "{mode}");
    }
}

#[test]
fn host_rule_matches_every_spelling_of_the_host_only() {
    let rules = permissions(Mode::Auto, &[], &[], &["web_fetch(Example.com)", "web_fetch([::1])"]);
    for host in ["example.com", "EXAMPLE.COM", "example.com.", "[::1]"] {
        assert!(is_deny(fetch(&rules, host)), "{host}");
    }
    for host in ["www.example.com", "notexample.com", "example.com.evil.net", "example.co", "", "."] {
        assert!(is_allow(fetch(&rules, host)), "{host}");
    }
}

#[test]
fn wildcard_host_rule_matches_subdomains() {
    let asks = permissions(Mode::Auto, &[], &["web_fetch(*.example.com)"], &[]);
    for host in ["a.example.com", "a.b.EXAMPLE.com", "example.com", "a.example.com."] {
        assert!(is_ask(fetch(&asks, host)), "{host}");
    }
    for host in ["notexample.com", "example.com.net", "com"] {
        assert!(is_allow(fetch(&asks, host)), "{host}");
    }
    // An allow rule is read narrowly. A pure call needs none, so the rule is tested with another kind of call.
    let allows = permissions(Mode::Ask, &["web_fetch(*.example.com)"], &[], &[]);
    let other = |host| {
        allows.check(&Action { tool: "web_fetch", kind: ActionKind::Other, subject: Subject::Host(host) })
    };
    assert!(is_allow(other("a.example.com")));
    for host in ["example.com", ".example.com", "notexample.com"] {
        assert!(is_ask(other(host)), "{host}");
    }
}

#[test]
fn host_rule_does_not_apply_to_files() {
    let rules = permissions(Mode::Auto, &[], &[], &["web_fetch(example.com)", "read_file(example.com)"]);
    assert!(is_allow(read(&rules, "other")));
    assert!(is_deny(read(&rules, "example.com")));
    let other = Action { tool: "fetcher", kind: ActionKind::Pure, subject: Subject::Host("example.com") };
    assert!(is_deny(rules.check(&other)), "another tool that reaches the host");
    let blind = Action { tool: "web_fetch", kind: ActionKind::Pure, subject: Subject::Nothing };
    assert!(is_ask(rules.check(&blind)), "a call that does not say where it goes");
}

#[test]
fn invalid_host_is_rejected() {
    for text in [
        "web_fetch(https://example.com)",
        "web_fetch(example.com/a)",
        "web_fetch(example.com:80)",
        "web_fetch(*)",
        "web_fetch(a.*.com)",
        "web_fetch(*example.com)",
        "web_fetch(a..b)",
        "web_fetch(user@example.com)",
        "web_fetch(bücher.example)",
        "web_fetch(*.[::1])",
        "web_search(rust)",
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(
            error.contains("Use a rule such as") || error.contains("does not take a specifier"),
            "{text}: {error}"
        );
    }
}

#[test]
fn host_of_a_rule_has_at_most_253_bytes() {
    let label = "a".repeat(60);
    let host = format!("{label}.{label}.{label}.{label}.{}", "a".repeat(9));
    assert_eq!(host.len(), 253);
    assert!(format!("web_fetch({host})").parse::<Rule>().is_ok());
    assert!(format!("web_fetch({host}a)").parse::<Rule>().is_err());
}
