//! Tests of permission checks: modes, rules, paths and the properties of all verdicts.

mod always;
mod commands;
mod fuzz;
mod hosts;
mod mentions;
mod protected;

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn permissions(mode: Mode, allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
    Permissions { mode, allow: rules(allow), ask: rules(ask), deny: rules(deny) }
}

fn run(permissions: &Permissions, command: &str) -> Verdict {
    permissions.check(&Action { tool: "shell", kind: ActionKind::Other, subject: Subject::Command(command) })
}

fn on_path(permissions: &Permissions, tool: &str, kind: ActionKind, path: &str) -> Verdict {
    permissions.check(&Action { tool, kind, subject: Subject::Path(path) })
}

fn read(permissions: &Permissions, path: &str) -> Verdict {
    on_path(permissions, "read_file", ActionKind::Pure, path)
}

fn width(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Deny { .. } => 0,
        Verdict::Ask { .. } => 1,
        Verdict::Allow => 2,
    }
}

fn is_deny(verdict: Verdict) -> bool {
    width(&verdict) == 0
}

fn is_ask(verdict: Verdict) -> bool {
    width(&verdict) == 1
}

fn is_allow(verdict: Verdict) -> bool {
    width(&verdict) == 2
}

#[test]
fn lower_case_name_of_another_program_has_a_builtin_equivalent() {
    let equivalent = |text: &str| text.parse::<Rule>().unwrap().builtin_equivalent();
    assert_eq!(equivalent("bash(git push:*)").as_deref(), Some("`shell(git push *)`"));
    assert_eq!(equivalent("web").as_deref(), Some("`web_fetch`, `web_search`"));
    for other in ["shell", "grep(src/**)", "mcp__files__read", "shel"] {
        assert_eq!(equivalent(other), None, "{other}");
    }
}

#[test]
fn rules_of_other_programs_name_the_rule_to_write() {
    for (rule, instead) in [
        ("Bash(npm test:*)", "Use `shell(npm test *)`"),
        ("Bash(npm test)", "Use `shell(npm test)`"),
        ("Bash", "Use `shell`"),
        ("Read(./.env)", "Use `read_file(./.env)`"),
        ("WebFetch(domain:example.com)", "Use `web_fetch(example.com)`"),
        ("Read-Only", "Use `read_file`, `list_dir`, `grep`, `glob`"),
    ] {
        let error = rule.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(instead), "{rule}: {error}");
    }
    // A rule that would be refused as well is not suggested.
    for rule in ["Bash(a; b)", "WebSearch(x)", "Teleport", "Bash("] {
        let error = rule.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains("is not a valid tool name. Use 1 to 64"), "{rule}: {error}");
    }
}

#[test]
fn mode_decides_calls_without_a_rule() {
    for (mode, pure, edit, other) in
        [(Mode::Plan, 2, 0, 0), (Mode::Ask, 2, 1, 1), (Mode::Edit, 2, 2, 1), (Mode::Auto, 2, 2, 2)]
    {
        let permissions = permissions(mode, &[], &[], &[]);
        assert_eq!(width(&read(&permissions, "a")), pure, "{mode}");
        assert_eq!(width(&on_path(&permissions, "write_file", ActionKind::Edit, "a")), edit, "{mode}");
        assert_eq!(width(&run(&permissions, "ls")), other, "{mode}");
    }
}

#[test]
fn plan_mode_is_never_widened() {
    let permissions = permissions(Mode::Plan, &["shell", "write_file"], &["shell", "read_file"], &[]);
    let Verdict::Deny { reason } = run(&permissions, "ls") else { panic!("not denied") };
    assert!(reason.contains("plan mode") && reason.contains("--mode"), "{reason}");
    assert!(is_deny(on_path(&permissions, "write_file", ActionKind::Edit, "a")));
    assert_eq!(
        read(&permissions, "a"),
        Verdict::Ask { reason: AskReason::Rule("read_file".parse().unwrap()) }
    );
}

#[test]
fn edits_outside_the_workspace_are_not_freed_by_edit_mode() {
    let permissions = permissions(Mode::Edit, &["write_file(**/*.rs)", "write_file(/srv/**)"], &[], &[]);
    for (path, free) in [("a/b", true), ("/etc/x.rs", false), ("../x.rs", false), ("a/../../x.rs", false)] {
        assert_eq!(is_allow(on_path(&permissions, "write_file", ActionKind::Edit, path)), free, "{path}");
    }
    assert!(is_allow(on_path(&permissions, "write_file", ActionKind::Edit, "/srv/a/b")));
}

#[test]
fn mode_and_permissions_read_and_write() {
    for mode in [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto] {
        assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
    }
    assert!("Plan".parse::<Mode>().unwrap_err().to_string().contains("`auto`"));
    assert_eq!(serde_json::from_str::<Permissions>("{}").unwrap(), Permissions::default());
    assert_eq!(Permissions::default().mode, Mode::Plan);
    let text = r#"{"mode":"edit","allow":["shell(git log *)"],"ask":[],"deny":["read_file(**/.env*)"]}"#;
    let permissions: Permissions = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&permissions).unwrap(), text);
    assert!(serde_json::from_str::<Permissions>(r#"{"denied":[]}"#).is_err());
    assert!(serde_json::from_str::<Permissions>(r#"{"deny":["shell("]}"#).is_err());
}

#[test]
fn rule_errors_say_what_is_wrong_and_show_an_example() {
    let long = format!("read_file({})", "a".repeat(2000));
    let long_name = "a".repeat(65);
    for text in [
        "",
        "  ",
        "shell(",
        "shell)",
        "Shell()",
        "Shell",
        "shell()",
        "shell( )",
        "shell(a)b",
        "(a)",
        "sh ell",
        "é",
        "*",
        "read_*",
        "mcp__*",
        "mcp__a__*(x)",
        "mcp__a__b(x)",
        "shell(a && b)",
        "shell(a;)",
        "shell(a > b)",
        "shell(a 'b)",
        "shell(git:*)",
        "shell(git * x)",
        "shell(git*)",
        "shell($(x))",
        "shell(a\u{a0}b)",
        "shell(A=b c)",
        "shell(! a)",
        "shell(a\nb)",
        "read_file([)",
        "read_file({a)",
        "read_file(!a)",
        "read_file(a[!b]c)",
        "read_file(a[+-9]c)",
        "read_file(a/../b)",
        "read_file(a\tb)",
        &long,
        &long_name,
    ] {
        let message = text.parse::<Rule>().unwrap_err().to_string();
        let example = [
            "`shell(git log *)`",
            "`read_file`",
            "`read_file(**/.env*)`",
            "`mcp__server__tool`",
            "Use `shell`",
        ];
        assert!(example.iter().any(|example| message.contains(example)), "{text}: {message}");
    }
}

#[test]
fn rules_round_trip() {
    for text in
        ["shell", "mcp__git__*", "shell(git log *)", "shell(*)", "shell(echo '(a) *')", "read_file(a b/**)"]
    {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string(), text);
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
    assert_eq!(" shell( ls ) ".parse::<Rule>().unwrap().to_string(), "shell(ls)");
}

#[test]
fn bare_rules_name_one_tool_and_stars_one_server() {
    let permissions = permissions(Mode::Auto, &[], &["mcp__a__*"], &["read_file", "write_file"]);
    assert!(is_deny(read(&permissions, "x")));
    assert!(is_allow(on_path(&permissions, "grep", ActionKind::Pure, "x")));
    assert!(is_allow(on_path(&permissions, "edit_file", ActionKind::Edit, "x")));
    assert!(permissions.may_read("x"));
    let call = |tool| permissions.check(&Action { tool, kind: ActionKind::Other, subject: Subject::Nothing });
    assert!(is_ask(call("mcp__a__b")));
    assert!(is_allow(call("mcp__ab__c")));
}

#[test]
fn only_bare_rules_deny_a_whole_tool() {
    let permissions = permissions(Mode::Auto, &[], &[], &["shell(rm *)", "web_fetch"]);
    assert!(permissions.denies("web_fetch") && !permissions.denies("shell"));
}

#[test]
fn specifier_of_an_own_tool_needs_one_valid_form() {
    // Not a path, because a brace is open; a command, but not a host.
    let rule = "deploy(echo {a)".parse::<Rule>();
    assert!(rule.is_ok(), "{rule:?}");
    assert!("read_file(echo {a)".parse::<Rule>().is_err());
}

#[test]
fn rules_on_edits_do_not_hide_files() {
    let permissions = permissions(Mode::Auto, &[], &["write_file(b)"], &["edit_file(a)"]);
    assert!(is_deny(on_path(&permissions, "edit_file", ActionKind::Edit, "a")));
    assert!(permissions.may_read("a") && permissions.may_read("b"));
}

#[test]
fn rules_with_a_path_on_edits_protect_files() {
    let permissions =
        permissions(Mode::Auto, &[], &["write_file(b)"], &["edit_file(a)", "read_file(c)", "edit_file"]);
    assert!(!permissions.may_edit("a") && !permissions.may_edit("b"));
    assert!(permissions.may_edit("c") && permissions.may_edit("d"));
}

#[test]
fn command_in_a_sandbox_is_free_from_edit_mode_on() {
    let verdict = |mode, kind, always: &[Rule]| {
        let permissions = permissions(mode, &["shell(cargo *)"], &[], &["shell(rm *)"]);
        let check = |command| {
            let action = Action { tool: "shell", kind, subject: Subject::Command(command) };
            permissions.check_with(always, &action)
        };
        [check("ls"), check("cargo test"), check("rm x")]
    };
    let ask = Verdict::Ask { reason: AskReason::Mode };
    for (mode, expected) in [(Mode::Ask, &ask), (Mode::Edit, &Verdict::Allow), (Mode::Auto, &Verdict::Allow)]
    {
        let [other, allowed, denied] = verdict(mode, ActionKind::Confined, &[]);
        assert_eq!((&other, &allowed), (expected, &Verdict::Allow), "{mode}");
        assert!(is_deny(denied));
    }
    let always: Rule = "shell".parse().unwrap();
    for mode in [Mode::Ask, Mode::Edit, Mode::Auto] {
        let [other, allowed, denied] = verdict(mode, ActionKind::Unconfined, std::slice::from_ref(&always));
        let access = Verdict::Ask { reason: AskReason::Access };
        assert_eq!((&other, &allowed), (&access, &access), "{mode}");
        assert!(is_deny(denied));
    }
    for kind in [ActionKind::Confined, ActionKind::Unconfined] {
        assert!(verdict(Mode::Plan, kind, &[]).into_iter().all(is_deny));
    }
    let permissions = permissions(Mode::Edit, &[], &[], &[]);
    let rule =
        |kind| permissions.exact_rule(&Action { tool: "shell", kind, subject: Subject::Command("ls") });
    assert_eq!(rule(ActionKind::Other), Some("shell(ls)".parse().unwrap()));
    assert_eq!(rule(ActionKind::Unconfined), None);
}

#[test]
fn plan_mode_permits_a_command_whose_changes_are_discarded_unless_a_rule_forbids_it() {
    let permissions = permissions(Mode::Plan, &[], &["shell(git push *)"], &["shell(rm *)"]);
    let check = |kind, command| {
        permissions.check(&Action { tool: "shell", kind, subject: Subject::Command(command) })
    };
    assert!(is_allow(check(ActionKind::Discarded, "cargo check")));
    assert!(is_ask(check(ActionKind::Discarded, "git push origin")));
    assert!(is_deny(check(ActionKind::Discarded, "rm x")));
    for kind in [ActionKind::Confined, ActionKind::Unconfined, ActionKind::Other, ActionKind::Edit] {
        assert!(is_deny(check(kind, "cargo check")), "{kind:?}");
    }
}

#[test]
fn env_files_are_hidden_from_every_tool() {
    let permissions = permissions(Mode::Auto, &["read_file"], &[], &["read_file(**/.env*)"]);
    for path in [
        ".env",
        "a/.env.local",
        "./x/../.env",
        "A/.ENV",
        "a//.env",
        "/srv/w/.env",
        "../w/.env",
        ".\u{395}/../.Env",
        ".env.d/../.envrc",
    ] {
        for (tool, kind) in [
            ("read_file", ActionKind::Pure),
            ("grep", ActionKind::Pure),
            ("glob", ActionKind::Pure),
            ("list_dir", ActionKind::Pure),
            ("edit_file", ActionKind::Edit),
            ("write_file", ActionKind::Edit),
        ] {
            assert!(is_deny(on_path(&permissions, tool, kind, path)), "{tool} {path}");
        }
        assert!(!permissions.may_read(path), "{path}");
    }
    for path in ["env", "a.env", "src/main.rs", "", "."] {
        assert!(is_allow(read(&permissions, path)) && permissions.may_read(path), "{path}");
    }
    let Verdict::Deny { reason } = read(&permissions, ".env") else { panic!("not denied") };
    assert_eq!(reason, "the rule `read_file(**/.env*)` in `permissions.deny` forbids it");
}

#[test]
fn path_patterns() {
    for (pattern, path, allows, binds) in [
        ("src/*", "src/a", true, true),
        ("src/*", "src/a/b", false, false),
        ("src/**", "src/a/b", true, true),
        ("src/**", "src", false, true),
        ("*.rs", "a/b.rs", true, true),
        ("*.rs", "a/b.RS", false, true),
        (".ssh", "x/.ssh/id", false, true),
        ("./a//b", "a/b", true, true),
        ("key/", "key/a", true, true),
        ("key/", "x/key/a", false, true),
        ("/key/a", "key/a", false, true),
        ("/key/a", "/key/a", true, true),
        ("key/a", "/w/key/a", false, true),
        ("stra\u{df}e", "STRASSE", false, true),
        (".ssh/**", ".\u{17f}sh/id", false, true),
        ("caf\u{e9}", "cafe\u{301}", false, true),
        (".", "a/b", true, true),
        ("{a,b}/c", "b/c", true, true),
        ("a[bc]/d", "ac/d", true, true),
    ] {
        let rule = format!("read_file({pattern})");
        let free = permissions(Mode::Ask, &[&rule], &[], &[]);
        let target = PreparedSubject::of(Subject::Path(path));
        let Some(Matcher::Path(glob)) = free.allow.first().map(|rule| rule.matcher(&target)) else {
            panic!("no glob")
        };
        assert_eq!(glob.allows(&path::NormalizedPath::new(path)), allows, "allow {pattern} {path}");
        assert_eq!(
            glob.binds(&path::NormalizedPath::new(path)) == Match::Yes,
            binds,
            "deny {pattern} {path}"
        );
    }
}

#[test]
fn subject_decides_what_the_specifier_of_a_custom_tool_means() {
    let permissions =
        permissions(Mode::Ask, &["deploy(make *)"], &[], &["deploy(make clean)", "deploy(a.example)"]);
    let check = |subject| permissions.check(&Action { tool: "deploy", kind: ActionKind::Other, subject });
    assert!(is_allow(check(Subject::Command("make 'all'"))));
    assert!(is_deny(check(Subject::Command("make clean -k"))));
    assert!(is_ask(check(Subject::Command("rm -r a"))));
    assert!(is_allow(check(Subject::Path("make b"))));
    assert!(is_deny(check(Subject::Host("a.example"))));
    assert!(is_ask(check(Subject::Nothing)));
    // The rules of one tool do not apply to another.
    let shell = Action { tool: "shell", kind: ActionKind::Other, subject: Subject::Command("make clean") };
    assert!(is_ask(permissions.check(&shell)));
    let exact =
        permissions.exact_rule(&Action { subject: Subject::Command("ls -l"), tool: "deploy", ..shell });
    assert_eq!(exact.map(|rule| rule.to_string()).as_deref(), Some("deploy(ls -l)"));
}

#[test]
fn specifier_of_a_custom_tool_must_have_some_meaning() {
    assert!("deploy(make all; make clean)".parse::<Rule>().is_ok());
    assert!(matches!("deploy(a[; b)".parse::<Rule>(), Err(RuleError::Path { .. })));
    assert!(matches!("shell(make all; make clean)".parse::<Rule>(), Err(RuleError::Command { .. })));
}

#[test]
fn write_rules_bind_each_other_but_not_reads() {
    let permissions = permissions(Mode::Ask, &["write_file(docs/**)"], &[], &["write_file(src/**)"]);
    assert!(is_deny(on_path(&permissions, "edit_file", ActionKind::Edit, "src/a")));
    assert!(is_deny(on_path(&permissions, "write_file", ActionKind::Edit, "src/a")));
    assert!(is_allow(on_path(&permissions, "grep", ActionKind::Pure, "src/a")));
    assert!(is_allow(on_path(&permissions, "write_file", ActionKind::Edit, "docs/a")));
    assert!(is_ask(on_path(&permissions, "edit_file", ActionKind::Edit, "docs/a")));
}

#[test]
fn rule_without_a_visible_subject_asks() {
    let permissions =
        permissions(Mode::Auto, &["shell", "read_file"], &[], &["shell(rm)", "read_file(.env)"]);
    for tool in ["shell", "read_file"] {
        assert!(is_ask(permissions.check(&Action {
            tool,
            kind: ActionKind::Pure,
            subject: Subject::Nothing
        })));
    }
    assert!(is_ask(read(&permissions, "a\0b")));
    assert!(is_ask(read(&permissions, &"a/".repeat(9000))));
    assert!(!permissions.may_read("a\0b"));
}

#[test]
fn ask_outweighs_allow_and_deny_outweighs_ask() {
    let both = permissions(
        Mode::Auto,
        &["shell(ls)", "read_file"],
        &["shell(ls)", "read_file(a)"],
        &["shell(ls -x)"],
    );
    assert_eq!(run(&both, "ls"), Verdict::Ask { reason: AskReason::Rule("shell(ls)".parse().unwrap()) });
    assert!(is_deny(run(&both, "ls -x")));
    assert!(is_ask(read(&both, "a")) && !both.may_read("a") && is_allow(read(&both, "b")));
}

/// Compiled once, because a pattern takes longer to compile than to match.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules(&[
        "shell",
        "shell(git clean)",
        "shell(git *)",
        "shell(git log *)",
        "shell(*)",
        "shell(echo a)",
        "read_file",
        "read_file(**/.env*)",
        "read_file(src/**)",
        "write_file",
        "write_file(src/*)",
        "edit_file(*.rs)",
        "grep",
        "grep(a)",
        "mcp__a__*",
        "mcp__a__b",
        "read_file(/etc/**)",
        "shell(rm -rf)",
    ])
});

fn some_rules() -> impl Strategy<Value = Vec<Rule>> {
    proptest::collection::vec(select(RULES.clone()), 0..5)
}

fn some_permissions() -> impl Strategy<Value = Permissions> {
    (some_mode(), some_rules(), some_rules(), some_rules()).prop_map(|(mode, allow, ask, deny)| Permissions {
        mode,
        allow,
        ask,
        deny,
    })
}

fn some_mode() -> impl Strategy<Value = Mode> {
    select(vec![Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto])
}

fn some_text() -> impl Strategy<Value = String> {
    let parts = vec![
        "git", "clean", "log", "echo", "a", "rm", "-rf", "-x", " ", " ", ";", "&&", "|", "\n", "$(", ")",
        "(", "`", "'", "\"", "\\", "$X", "${", "}", "{", "<", ">", "<<", "#", "*", "[", "]", "sh -c ",
        "eval ", "sudo ", "case ", "\r", "\u{a0}", "src/", ".env", "..", "/", "./", "b.rs", "\u{df}",
        "mcp__a__",
    ];
    prop_oneof![
        proptest::collection::vec(select(parts), 0..14).prop_map(|parts| parts.concat()),
        any::<String>()
    ]
}

fn some_call() -> impl Strategy<Value = (&'static str, ActionKind, u8, String)> {
    let tools = vec!["shell", "read_file", "write_file", "edit_file", "grep", "mcp__a__b", "other"];
    (select(tools), select(vec![ActionKind::Pure, ActionKind::Edit, ActionKind::Other]), 0u8..3, some_text())
}

fn action<'a>((tool, kind, subject, text): &'a (&'static str, ActionKind, u8, String)) -> Action<'a> {
    let subject = match subject {
        0 => Subject::Nothing,
        1 => Subject::Path(text),
        _ => Subject::Command(text),
    };
    Action { tool, kind: *kind, subject }
}

fn verdict(permissions: &Permissions, call: &(&'static str, ActionKind, u8, String)) -> Verdict {
    permissions.check(&action(call))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_order_never_changes_the_verdict(
        (before, after) in (some_permissions()).prop_flat_map(|p| {
            let shuffled = (
                Just(p.mode),
                Just(p.allow.clone()).prop_shuffle(),
                Just(p.ask.clone()).prop_shuffle(),
                Just(p.deny.clone()).prop_shuffle(),
            );
            let shuffled = shuffled.prop_map(|(mode, allow, ask, deny)| Permissions { mode, allow, ask, deny });
            (Just(p), shuffled)
        }),
        call in some_call(),
    ) {
        prop_assert_eq!(verdict(&before, &call), verdict(&after, &call));
    }

    #[test]
    fn narrowed_mode_never_widens_a_verdict(permissions in some_permissions(), mode in some_mode(), call in some_call()) {
        let narrow = permissions.narrowed_to(mode);
        prop_assert!(narrow.mode <= permissions.mode && narrow.mode <= mode);
        prop_assert!(width(&verdict(&narrow, &call)) <= width(&verdict(&permissions, &call)));
        let wide = Permissions { mode, ..permissions };
        prop_assert!(width(&verdict(&narrow, &call)) <= width(&verdict(&wide, &call)));
    }

    #[test]
    fn check_never_panics_on_any_text(
        rule in some_text(), tool in select(vec!["shell", "read_file", "grep"]), call in some_call(),
    ) {
        let _ = rule.parse::<Rule>();
        let _ = rule.parse::<Mode>();
        if let Ok(rule) = format!("{tool}({rule})").parse::<Rule>() {
            let again: Rule = rule.to_string().parse().unwrap();
            prop_assert_eq!(&again, &rule);
            prop_assert_eq!(again.to_string(), rule.to_string());
            for list in 0..3 {
                let mut lists = [vec![], vec![], vec![]];
                lists[list] = vec![rule.clone()];
                let [allow, ask, deny] = lists;
                let permissions = Permissions { mode: Mode::Edit, allow, ask, deny };
                verdict(&permissions, &call);
                permissions.may_read(&call.3);
            }
        }
    }

    #[test]
    fn may_read_false_implies_the_read_is_not_allowed(permissions in some_permissions(), path in some_text()) {
        if !permissions.may_read(&path) {
            prop_assert!(!is_allow(on_path(&permissions, "grep", ActionKind::Pure, &path)));
        }
    }
}

#[test]
fn mcp_rule_in_any_letter_case_binds_the_tool() {
    for text in ["mcp__github__create_issue", "mcp__GitHub__Create_Issue", "MCP__GITHUB__*"] {
        let rule: Rule = text.parse().unwrap();
        assert!(rule.names("mcp__github__create_issue"), "{text}");
        let deny = Permissions { mode: Mode::Auto, deny: vec![rule], ..Permissions::default() };
        assert!(deny.denies("mcp__github__create_issue") && !deny.denies("mcp__gitlab__x"), "{text}");
    }
    assert!("Read_File".parse::<Rule>().is_err(), "names of our own tools are exact");
}

#[test]
fn write_rule_applies_to_every_tool_that_changes_its_path() {
    let rules = permissions(Mode::Auto, &[], &[], &["write_file(secret.txt)"]);
    for (tool, kind) in
        [("format", ActionKind::Edit), ("format", ActionKind::Other), ("edit_file", ActionKind::Pure)]
    {
        assert!(is_deny(on_path(&rules, tool, kind, "secret.txt")), "{tool}");
    }
    assert!(is_allow(on_path(&rules, "count", ActionKind::Pure, "secret.txt")));
}
