use std::collections::{BTreeSet, HashSet};

use super::*;

fn rule(text: &str) -> Rule {
    text.parse().unwrap()
}

#[test]
fn rule_is_shown_as_it_is_written() {
    let plain = rule(" shell ");
    assert_eq!((plain.tool(), plain.specifier(), plain.to_string().as_str()), ("shell", None, "shell"));
    let specific = rule("shell( git status )");
    assert_eq!((specific.tool(), specific.specifier()), ("shell", Some("git status")));
    assert_eq!(format!("{specific} {specific:?}"), "shell(git status) Rule(shell(git status))");
    assert_eq!(String::from(specific), "shell(git status)");
}

#[test]
fn rules_are_compared_by_their_text() {
    let (one, other) = (rule("shell(a)"), rule("shell(b)"));
    assert!(one == rule("shell( a )") && one != other && one < other && one != rule("shell"));
    assert_eq!(one.partial_cmp(&other), Some(Ordering::Less));
    let rules = || [one.clone(), other.clone(), rule("shell(a)"), rule("grep")];
    assert_eq!(rules().into_iter().collect::<HashSet<_>>().len(), 3);
    let sorted: Vec<String> = BTreeSet::from(rules()).iter().map(ToString::to_string).collect();
    assert_eq!(sorted, ["grep", "shell(a)", "shell(b)"]);
    use std::hash::BuildHasher;
    let hasher = std::hash::RandomState::new();
    assert_eq!(hasher.hash_one(&one), hasher.hash_one(rule("shell( a )")));
    assert_ne!(hasher.hash_one(&one), hasher.hash_one(&other));
}

#[test]
fn specifier_has_at_most_the_maximum_length() {
    let long = "a".repeat(MAX_SPECIFIER_BYTES);
    assert!(format!("read_file({long})").parse::<Rule>().is_ok());
    let error = format!("read_file({long}a)").parse::<Rule>().unwrap_err();
    assert_eq!(error, RuleError::TooLong { tool: "read_file".to_owned() });
}

#[test]
fn rule_of_another_program_is_translated() {
    let equivalent = |text: &str| rule(text).builtin_equivalent();
    assert_eq!(equivalent("bash").as_deref(), Some("`shell`"));
    assert_eq!(equivalent("shell"), None);
    assert_eq!(equivalent("teleport"), None);
    let instead = |text: &str| match text.parse::<Rule>() {
        Err(RuleError::Foreign { instead, .. }) => instead,
        other => panic!("{other:?}"),
    };
    assert_eq!(instead("Bash(git log:*)"), "`shell(git log *)`");
    assert_eq!(instead("WebFetch(domain:example.com)"), "`web_fetch(example.com)`");
    assert_eq!(instead("Read(src/**)"), "`read_file(src/**)`");
    assert!(matches!("Teleport".parse::<Rule>(), Err(RuleError::Name { .. })));
}

#[test]
fn tool_name_is_short_and_has_a_star_only_for_mcp() {
    assert!(rule("mcp__a__*").names("mcp__a__x") && !rule("mcp__a__*").names("mcp__b__x"));
    for wrong in ["mcp__*", "read_*", "*", "Ünï", "a b", &"a".repeat(MAX_TOOL_NAME_BYTES + 1)] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
    }
    assert!("a".repeat(MAX_TOOL_NAME_BYTES).parse::<Rule>().is_ok());
}
