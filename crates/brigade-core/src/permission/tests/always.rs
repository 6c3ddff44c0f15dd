//! Calls that the user permanently allows in a session.

use super::*;

fn shell(command: &str) -> Action<'_> {
    Action { tool: "shell", kind: ActionKind::Other, subject: Subject::Command(command) }
}

fn exact(permissions: &Permissions, action: &Action<'_>) -> Option<String> {
    permissions.exact_rule(action).map(|rule| rule.to_string())
}

#[test]
fn exact_rule_names_only_that_call() {
    let asks = permissions(Mode::Ask, &[], &["shell"], &["shell(rm)"]);
    let edit = |path| Action { tool: "edit_file", kind: ActionKind::Edit, subject: Subject::Path(path) };
    let nothing = Action { tool: "delegate", kind: ActionKind::Pure, subject: Subject::Nothing };
    let host = Action { tool: "web_fetch", kind: ActionKind::Other, subject: Subject::Host("example.com") };
    let rule = |action: Action<'_>| exact(&asks, &action);
    assert_eq!(rule(shell("cargo test --all")).as_deref(), Some("shell(cargo test --all)"));
    assert_eq!(rule(edit("src/a[1].rs")).as_deref(), Some(r"edit_file(src/a\[1\].rs)"));
    assert_eq!(rule(edit("build.rs")).as_deref(), Some("edit_file(./build.rs)"));
    for folder in [".", "./", "src/", "", "a/.."] {
        assert_eq!(rule(edit(folder)), None, "{folder}");
    }
    let below = Action { tool: "web_fetch", kind: ActionKind::Other, subject: Subject::Host("*.com") };
    assert_eq!(rule(below), None);
    assert_eq!(rule(nothing).as_deref(), Some("delegate"));
    assert_eq!(rule(host).as_deref(), Some("web_fetch(example.com)"));
    let long = format!("echo {}", "a".repeat(2000));
    let unsayable = [
        "ls *", "ls $HOME", "a | b", "a && b", "a > b", "echo `b`", "X=1 make", "rm -rf /", "echo 'a", &long,
    ];
    for command in unsayable {
        assert_eq!(rule(shell(command)), None, "{command}");
    }
}

#[test]
fn always_allowed_rules_override_ask_but_not_deny() {
    let lists = permissions(Mode::Edit, &[], &["shell"], &["shell(git push)"]);
    let check = |always: &[&str], command| lists.check_with(&rules(always), &shell(command));
    assert!(is_ask(check(&[], "git status")));
    assert!(is_allow(check(&["shell(git status)"], "git status")));
    assert!(is_ask(check(&["shell(git status)"], "git status -s")));
    assert!(is_allow(check(&["shell(git *)"], "git log")));
    assert!(is_deny(check(&["shell(git *)"], "git push")));
    let write = |path| {
        let action = Action { tool: "write_file", kind: ActionKind::Other, subject: Subject::Path(path) };
        lists.check_with(&rules(&["write_file(./build.rs)"]), &action)
    };
    assert!(is_allow(write("build.rs")) && is_allow(write("./build.rs")) && is_ask(write("vendor/build.rs")));
    // Whether this is a push is known only at run time.
    assert!(is_ask(check(&["shell"], "git $WHAT")));
    assert!(is_deny(permissions(Mode::Plan, &[], &[], &[]).check_with(&rules(&["shell"]), &shell("ls"))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exact_rule_covers_its_call_and_overrides_no_deny(
        lists in some_permissions(), call in some_call(),
    ) {
        let action = action(&call);
        if let Some(rule) = lists.exact_rule(&action) {
            let (before, after) = (lists.check(&action), lists.check_with(&[rule], &action));
            prop_assert_eq!(is_deny(before.clone()), is_deny(after.clone()));
            prop_assert!(is_deny(before) || is_allow(after));
        }
    }
}
