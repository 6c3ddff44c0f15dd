//! Tests of files that are protected in every mode.

use super::*;

const MODES: [Mode; 3] = [Mode::Ask, Mode::Edit, Mode::Auto];

/// Reason of the verdict on an edit in mode `auto`, if it is a protection.
fn reason(tool: &str, kind: ActionKind, path: &str) -> Option<String> {
    match on_path(&permissions(Mode::Auto, &[], &[], &[]), tool, kind, path) {
        Verdict::Ask { reason: AskReason::Protected(protected) } => Some(protected.to_string()),
        _ => None,
    }
}

fn edit_reason(path: &str) -> Option<String> {
    reason("edit_file", ActionKind::Edit, path)
}

#[test]
fn edits_of_files_that_programs_act_upon_ask_with_the_reason() {
    for (path, expected) in [
        ("AGENTS.md", "AGENTS.md is an instruction file for agents"),
        ("sub/deep/CLAUDE.md", "CLAUDE.md is an instruction file for agents"),
        ("agents.MD", "agents.MD is an instruction file for agents"),
        ("GEMINI.md", "GEMINI.md is an instruction file for agents"),
        ("CLAUDE.local.md", "CLAUDE.local.md is an instruction file for agents"),
        (".cursorrules", ".cursorrules is an instruction file for agents"),
        (
            ".github/copilot-instructions.md",
            ".github/copilot-instructions.md is an instruction file for agents",
        ),
        (".git/config", ".git/config can name programs that git runs"),
        (".GIT/Config", ".GIT/Config can name programs that git runs"),
        ("sub/.git/config", ".git/config can name programs that git runs"),
        (".git/hooks/pre-commit", ".git/hooks can name programs that git runs"),
        (".git/config.worktree", ".git/config.worktree can name programs that git runs"),
        (".git/info/attributes", ".git/info/attributes can name programs that git runs"),
        ("mirror.git/config", "mirror.git/config can name programs that git runs"),
        ("mirror.git/hooks/update", "mirror.git/hooks can name programs that git runs"),
        ("bare/HEAD", "HEAD can name programs that git runs"),
        (".brigade/config.toml", ".brigade can name programs to run, or instruct agents"),
        ("a/.brigade", ".brigade can name programs to run, or instruct agents"),
        (".mcp.json", ".mcp.json can name programs to run, or instruct agents"),
        (".Mcp.json", ".Mcp.json can name programs to run, or instruct agents"),
        (".claude/settings.json", ".claude can name programs to run, or instruct agents"),
        (".claude/agents/a.md", ".claude can name programs to run, or instruct agents"),
        (".github/agents/a.md", ".github/agents can name programs to run, or instruct agents"),
        (".agents/skills/s/SKILL.md", ".agents/skills can name programs to run, or instruct agents"),
        (".factory/droids/d.md", ".factory can name programs to run, or instruct agents"),
        ("web/.vscode/tasks.json", ".vscode can name programs to run, or instruct agents"),
        (".husky/pre-commit", ".husky can name programs to run, or instruct agents"),
        (".envrc", ".envrc can name programs to run, or instruct agents"),
        (".gitmodules", ".gitmodules can name programs to run, or instruct agents"),
        (".bashrc", ".bashrc can name programs that run when you log in"),
        ("dotfiles/.zshrc", ".zshrc can name programs that run when you log in"),
        (".ssh/authorized_keys", ".ssh can name programs that run when you log in"),
        (".config/fish/config.fish", ".config/fish can name programs that run when you log in"),
        (".env", ".env can contain secrets"),
        ("./sub/../.env", ".env can contain secrets"),
    ] {
        assert_eq!(edit_reason(path).as_deref(), Some(expected), "{path}");
        assert_eq!(reason("acp__zed__delete", ActionKind::Other, path).as_deref(), Some(expected), "{path}");
    }
}

#[test]
fn other_files_are_edited_freely() {
    for path in [
        "src/main.rs",
        "AGENTS.md.bak",
        "docs/AGENTS.mdx",
        "MYAGENTS.md",
        ".github/workflows/ci.yml",
        ".gitignore",
        ".gitattributes",
        ".env.example",
        "git/config",
        "config",
        "hooks/x",
        "agents/a.md",
        "src/HEAD.rs",
        "ssh/config",
        ".claudeignore",
        "",
    ] {
        assert_eq!(edit_reason(path), None, "{path}");
        assert!(is_allow(on_path(
            &permissions(Mode::Edit, &[], &[], &[]),
            "edit_file",
            ActionKind::Edit,
            path
        )));
    }
}

#[test]
fn names_that_a_lenient_file_system_treats_as_protected_count() {
    for path in
        [".g\u{200c}it/config", ".\u{feff}brigade/x", "AGENT\u{17f}.md", "sub/.GIT/HOOKS/x", ".VSCode/a"]
    {
        assert!(edit_reason(path).is_some(), "{path}");
    }
    for path in [".g\u{200c}it/objects/a", ".GIT/index", ".Git"] {
        assert!(is_deny(on_path(
            &permissions(Mode::Auto, &[], &[], &[]),
            "edit_file",
            ActionKind::Edit,
            path
        )));
    }
}

#[test]
fn other_files_of_git_are_refused_whatever_the_rules() {
    let rules = ["edit_file", "edit_file(.git/index)", "edit_file(.git/**)"];
    for path in [".git/index", ".git", "sub/.git/refs/heads/main", "sub/.git", ".git/modules/a/config"] {
        for mode in MODES {
            let verdict = on_path(&permissions(mode, &rules, &[], &[]), "edit_file", ActionKind::Edit, path);
            assert!(is_deny(verdict), "{path}");
        }
        assert!(is_allow(read(&permissions(Mode::Auto, &[], &[], &[]), path)), "{path}");
    }
}

#[test]
fn reading_a_secret_asks_in_every_mode_and_reading_the_rest_does_not() {
    for path in [".env", "a/.env.local", "deploy/id_rsa", "server.pem", "x.KEY", ".netrc", "store.p12"] {
        for mode in [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto] {
            assert!(
                is_ask(read(&permissions(mode, &["read_file", "read_file(**)"], &[], &[]), path)),
                "{path}"
            );
        }
    }
    for path in ["AGENTS.md", ".git/config", ".claude/settings.json", ".env.example", ".bashrc", "id_rsa.pub"]
    {
        assert!(is_allow(read(&permissions(Mode::Plan, &[], &[], &[]), path)), "{path}");
    }
}

#[test]
fn only_a_rule_that_names_the_protected_part_allows_the_call() {
    let verdict = |rule: &str, path: &str| {
        let verdicts = MODES.map(|mode| {
            is_allow(on_path(&permissions(mode, &[rule], &[], &[]), "edit_file", ActionKind::Edit, path))
        });
        assert!(verdicts.iter().all(|allowed| *allowed == verdicts[0]), "{rule} {path}");
        verdicts[0]
    };
    for (rule, path) in [
        ("edit_file(AGENTS.md)", "AGENTS.md"),
        ("edit_file(AGENTS.md)", "sub/AGENTS.md"),
        ("edit_file(./AGENTS.md)", "AGENTS.md"),
        ("edit_file(**/AGENTS.md)", "a/b/AGENTS.md"),
        ("edit_file(.claude/**)", ".claude/settings.json"),
        ("edit_file(.claude/)", ".claude/agents/a.md"),
        ("edit_file(.git/config)", ".git/config"),
        ("edit_file(.git/hooks/*)", ".git/hooks/pre-commit"),
        ("edit_file(.github/agents/*.md)", ".github/agents/a.md"),
        ("edit_file(./.env)", ".env"),
        (r"edit_file(.claude/\[a\].md)", ".claude/[a].md"),
    ] {
        assert!(verdict(rule, path), "{rule} {path}");
    }
    for (rule, path) in [
        ("edit_file", "AGENTS.md"),
        ("edit_file(**)", "AGENTS.md"),
        ("edit_file(*)", "AGENTS.md"),
        ("edit_file(*.md)", "AGENTS.md"),
        ("edit_file(AGENTS*)", "AGENTS.md"),
        ("edit_file(AGENT?.md)", "AGENTS.md"),
        ("edit_file({x/AGENTS.md/y,**})", "AGENTS.md"),
        ("edit_file({AGENTS.md,b})", "AGENTS.md"),
        ("edit_file([A]GENTS.md)", "AGENTS.md"),
        ("edit_file(./AGENTS.md)", "sub/AGENTS.md"),
        ("edit_file(AGENTS.md)", "agents.md"),
        ("edit_file(sub/**)", "sub/AGENTS.md"),
        ("edit_file(.claude/**)", ".claude/AGENTS.md"),
        ("edit_file(.claude/**)", ".claude/x/.git/config"),
        ("edit_file(.git/**)", ".git/config"),
        ("edit_file(config)", ".git/config"),
        ("edit_file(.*)", ".env"),
        ("write_file(AGENTS.md)", "AGENTS.md"),
        ("read_file(.env)", ".env"),
    ] {
        assert!(!verdict(rule, path), "{rule} {path}");
    }
    let plan = permissions(Mode::Plan, &["edit_file(AGENTS.md)"], &[], &[]);
    assert!(is_deny(on_path(&plan, "edit_file", ActionKind::Edit, "AGENTS.md")));
    for list in [["edit_file(AGENTS.md)", ""], ["", "edit_file(AGENTS.md)"]] {
        let [ask, deny] = list.map(|rule| if rule.is_empty() { vec![] } else { vec![rule] });
        let both = permissions(Mode::Auto, &["edit_file(AGENTS.md)"], &ask, &deny);
        assert!(!is_allow(on_path(&both, "edit_file", ActionKind::Edit, "AGENTS.md")));
    }
}

#[test]
fn rule_that_the_user_accepts_for_the_session_has_to_name_the_file_too() {
    let permissions = permissions(Mode::Auto, &[], &[], &[]);
    let action = |path| Action { tool: "edit_file", kind: ActionKind::Edit, subject: Subject::Path(path) };
    for path in ["AGENTS.md", "a/.vscode/x.json", ".git/hooks/a*b", ".env", "a/[x].key"] {
        let exact = permissions.exact_rule(&action(path)).unwrap();
        assert!(is_allow(permissions.check_with(std::slice::from_ref(&exact), &action(path))), "{exact}");
        assert!(is_ask(permissions.check_with(&rules(&["edit_file", "edit_file(**)"]), &action(path))));
    }
}

#[test]
fn rule_that_names_a_secret_grants_it_to_every_reading_tool() {
    let granted = permissions(Mode::Plan, &["read_file(.env)"], &[], &[]);
    assert!(is_allow(read(&granted, ".env")) && is_allow(read(&granted, "sub/.env")));
    assert!(is_allow(on_path(&granted, "grep", ActionKind::Pure, ".env")));
    assert!(is_ask(read(&granted, ".env.local")));
    let none = ProtectedPaths::default();
    assert!(granted.grants_secret(&none, ".env") && granted.grants_secret(&none, "src/main.rs"));
    assert!(!granted.grants_secret(&none, "id_rsa"));
    let other = permissions(Mode::Plan, &["grep(.env)"], &[], &[]);
    assert!(is_allow(on_path(&other, "grep", ActionKind::Pure, ".env")));
    assert!(is_ask(read(&other, ".env")) && !other.grants_secret(&none, ".env"));
}

#[test]
fn every_edit_asks_in_a_workspace_that_contains_the_home_directory() {
    let auto = permissions(Mode::Auto, &["edit_file", "edit_file(notes/**)", "edit_file(**/x.md)"], &[], &[]);
    for home in ["", "users/me"] {
        let place = ProtectedPaths { home: Some(home.to_owned()), ..ProtectedPaths::default() };
        let check = |tool, kind, path: &str| {
            let action = Action { tool, kind, subject: Subject::Path(path) };
            auto.check_in(&place, &[], &action)
        };
        assert!(is_ask(check("edit_file", ActionKind::Edit, "src/a.rs")));
        assert!(is_ask(check("edit_file", ActionKind::Edit, "src/x.md")));
        assert!(is_allow(check("edit_file", ActionKind::Edit, "notes/a.md")));
        assert!(is_ask(check("edit_file", ActionKind::Edit, "notes/.bashrc")));
        assert!(is_allow(check("read_file", ActionKind::Pure, "src/a.rs")));
        let secret = if home.is_empty() { ".aws/config" } else { "users/me/.aws/config" };
        assert!(is_ask(check("read_file", ActionKind::Pure, secret)), "{secret}");
        assert!(is_allow(check("read_file", ActionKind::Pure, "other/.aws/config")));
    }
}

#[test]
fn directories_that_the_configuration_names_are_protected() {
    let place = ProtectedPaths { configured: vec!["team/agents".to_owned()], ..ProtectedPaths::default() };
    let auto = permissions(Mode::Auto, &[], &[], &[]);
    let check = |path: &str| {
        auto.check_in(
            &place,
            &[],
            &Action { tool: "edit_file", kind: ActionKind::Edit, subject: Subject::Path(path) },
        )
    };
    assert!(is_ask(check("team/agents/a.md")) && is_ask(check("Team/Agents/a.md")));
    assert!(is_allow(check("team/agents2/a.md")) && is_allow(check("agents/a.md")));
}

#[test]
fn roots_that_programs_act_upon_are_found_at_any_depth() {
    for path in [".brigade", "a/.MCP.json", "x/.github/agents", "AGENTS.md", "b/claude.md", ".vscode"] {
        assert!(is_acted_upon(path), "{path}");
    }
    for path in [".github", "a.brigade", "x/agents", "MYAGENTS.md", ".vscode/a", "", "s.md"] {
        assert!(!is_acted_upon(path), "{path}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_check_fail_and_no_mode_lifts_a_protection(path in "[.a-zA-Z/*{}\\[\\\\ \u{200c}]{0,24}", head in select(vec!["", ".git/hooks/", "x/AGENTS.md/../", ".claude/"])) {
        let path = format!("{head}{path}");
        let at = |mode| on_path(&permissions(mode, &[], &[], &[]), "edit_file", ActionKind::Edit, &path);
        let is_protected = |verdict: &Verdict| {
            matches!(verdict, Verdict::Ask { reason: AskReason::Protected(_) })
        };
        let [ask, edit, auto] = MODES.map(at);
        prop_assert_eq!(is_protected(&edit), is_protected(&auto));
        prop_assert_eq!(is_protected(&ask), is_protected(&auto));
        let _ = is_acted_upon(&path);
        if let Ok(rule) = format!("edit_file({path})").parse::<Rule>() {
            let _ = permissions(Mode::Auto, &[], &[], &[]).check_with(&[rule], &Action { tool: "edit_file", kind: ActionKind::Edit, subject: Subject::Path(&path) });
        }
    }
}
