//! Files that were written for other programs.

use brigade::agents::{Format, KeyStatus, lint};
use brigade::core::permission::Mode;

use crate::agents::agent_dir::{AgentDir, assert_status, deny, note, tools};

#[test]
fn claude_code() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        ".claude/agents/quality/checker.md",
        "---\nname: Style Checker\ndescription: Looks at style.\\nUse it after edits.\ntools: Read, Grep, Glob, \
         mcp__lint__*, SlashCommand, Agent(a, b)\nmodel: sonnet\ncolor: cyan\nhooks: {}\nmaxTurns: 12\n\
         permissionMode: plan\nsomething: else\n---\n\nCheck the style.\n",
    );
    let agent = &definition.agent;
    assert_eq!((agent.id.as_str(), agent.name.as_str()), ("style-checker", "Style Checker"));
    assert_eq!(agent.description, "Looks at style.\nUse it after edits.");
    assert_eq!(tools(&definition).unwrap(), ["read_file", "grep", "glob", "mcp__lint__*"]);
    assert_eq!((agent.model.as_deref(), agent.max_turns, agent.mode), (None, Some(12), Some(Mode::Plan)));
    assert_eq!((agent.temperature, agent.max_tokens), (None, None), "the defaults are ours alone");
    let notes = &definition.notes;
    for (key, status) in [
        ("name", KeyStatus::Honoured),
        ("description", KeyStatus::Translated),
        ("tools", KeyStatus::Translated),
        ("model", KeyStatus::Ignored),
        ("color", KeyStatus::Ignored),
        ("hooks", KeyStatus::Ignored),
        ("maxTurns", KeyStatus::Honoured),
        ("permissionMode", KeyStatus::Translated),
        ("something", KeyStatus::Ignored),
    ] {
        assert_status(notes, key, status);
    }
    let granted = &note(notes, "tools").text;
    assert!(granted.contains("SlashCommand") && granted.contains("Agent(a, b)"), "{granted}");
    assert_eq!(note(notes, "tools").line, Some(4));
}

#[test]
fn codex() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        ".codex/agents/mapper.toml",
        "name = \"mapper\"\ndescription = \"Maps code.\"\nmodel = \"gpt-5\"\nsandbox_mode = \"read-only\"\n\
         model_reasoning_effort = \"high\"\ndeveloper_instructions = \"\"\"\nMap it.\n\"\"\"\n",
    );
    assert_eq!(definition.format, Format::Codex);
    let agent = &definition.agent;
    assert_eq!((agent.id.as_str(), agent.prompt.as_str()), ("mapper", "Map it."));
    assert_eq!((agent.model.as_deref(), agent.mode), (Some("openai/gpt-5"), Some(Mode::Plan)));
    assert_status(&definition.notes, "model_reasoning_effort", KeyStatus::Ignored);
    let refusal = dir.load_err(".codex/agents/empty.toml", "name = \"x\"\ndescription = \"d\"\n");
    assert!(refusal.problem.cause.contains("developer_instructions"));
    let refusal = dir.load_err(".codex/agents/bad.toml", "name = \"x\"\ndescription = [\n\n= 1");
    assert!(refusal.problem.cause.contains("TOML") && refusal.problem.line.is_some());
}

#[test]
fn opencode_markdown() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        ".opencode/agent/docs/writer.md",
        "---\ndescription: Writes docs\nmode: subagent\nmodel: local/qwen\ntemperature: 0.2\nsteps: 9\n\
         tools:\n  bash: false\n  write: false\npermission:\n  webfetch: deny\n---\nWrite.\n",
    );
    let agent = &definition.agent;
    assert_eq!((agent.id.as_str(), agent.model.as_deref()), ("docs-writer", Some("local/qwen")));
    assert_eq!((agent.temperature, agent.max_turns), (Some(0.2), Some(9)));
    assert_eq!(tools(&definition), None);
    assert_eq!(deny(&definition), ["shell", "web_fetch", "write_file"]);
    assert_status(&definition.notes, "mode", KeyStatus::Ignored);
}

#[test]
fn opencode_json() {
    let dir = AgentDir::new();
    dir.put(
        "opencode.json",
        r#"{"agent": {
            "plan-only": {"description": "Plans", "prompt": "Plan.", "permission": {"edit": "deny"}},
            "Other One": {"description": "d", "prompt": "p", "tools": {"read": true}},
            "off": {"disable": true, "prompt": "p"},
            "elsewhere": {"prompt": "{file:./x.txt}"}
        }}"#,
    );
    let found = dir.discover();
    let ids: Vec<&str> = found.definitions.iter().map(|definition| definition.agent.id.as_str()).collect();
    assert_eq!(ids, ["other-one", "plan-only"]);
    assert_eq!(deny(&found.definitions[1]), ["edit_file", "write_file"]);
    assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
    let one = dir.load_ok(".opencode/agent/one.json", r#"{"description": "d", "prompt": "Do."}"#);
    assert_eq!((one.agent.id.as_str(), one.agent.prompt.as_str()), ("one", "Do."));
    let refusal = dir.load_err("twice.json", r#"{"tools": ["read"], "tools": ["bash"]}"#);
    assert!(refusal.problem.cause.contains("duplicate key"));
}

#[test]
fn gemini() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        ".gemini/agents/scout.md",
        "---\nname: scout\ndescription: d\nkind: local\ndisplay_name: The Scout\ntools:\n  - read_file\n  \
         - search_file_content\n  - run_shell_command\nmodel: gemini-2.5-flash\nmax_turns: 5\ntimeout_mins: 2\n\
         mcp_servers: {}\n---\nLook.\n",
    );
    let agent = &definition.agent;
    assert_eq!((agent.id.as_str(), agent.name.as_str()), ("scout", "The Scout"));
    assert_eq!(tools(&definition).unwrap(), ["read_file", "grep", "shell"]);
    assert_eq!((agent.model.as_deref(), agent.timeout), (Some("gemini/gemini-2.5-flash"), Some(120_000)));
    let refusal = dir.load_err(
        ".gemini/agents/far.md",
        "---\nname: far\nkind: remote\nagent_card_url: http://127.0.0.1/\n---\n",
    );
    assert_eq!(refusal.problem.cause, "`kind` is remote, which is not supported");
    dir.load_err(".gemini/agents/many.md", "---\n- kind: remote\n- kind: remote\n---\n");
    dir.put(".gemini/agents/_draft.md", "nothing");
    assert_eq!(lint(&dir.path(".gemini/agents")).0.len(), 3);
}

#[test]
fn goose_recipes() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        "recipes/release.yaml",
        "version: 1.0.0\ntitle: Release Notes\ndescription: Writes them\ninstructions: |\n  Write notes.\n\
         prompt: Begin\nsettings:\n  goose_provider: local\n  goose_model: small\n  temperature: 0.1\n  \
         max_turns: 4\nextensions:\n  - type: builtin\n    name: developer\n",
    );
    let agent = &definition.agent;
    assert_eq!(definition.format, Format::Goose);
    assert_eq!((agent.id.as_str(), agent.prompt.as_str()), ("release-notes", "Write notes."));
    assert_eq!((agent.provider.as_deref(), agent.model.as_deref()), (Some("local"), Some("small")));
    assert_eq!((agent.temperature, agent.max_turns), (Some(0.1), Some(4)));
    assert_status(&definition.notes, "prompt", KeyStatus::Ignored);
    assert_status(&definition.notes, "settings.goose_model", KeyStatus::Honoured);
    let json = dir.load_ok("r.json", r#"{"title": "T", "description": "d", "instructions": "Do."}"#);
    assert_eq!((json.format, json.agent.prompt.as_str()), (Format::Goose, "Do."));
}

#[test]
fn picklebot() {
    let dir = AgentDir::new();
    dir.put("cook/SOUL.md", "Warm.");
    let definition = dir.load_ok(
        "cook/AGENT.md",
        "---\nname: Cook\nllm:\n  provider: local\n  model: m\n  temperature: 1.5\nallow_skills: true\n---\nCook {{dish}}.\n",
    );
    let agent = &definition.agent;
    assert_eq!((definition.format, agent.id.as_str()), (Format::Picklebot, "cook"));
    assert_eq!((agent.provider.as_deref(), agent.temperature), (Some("local"), Some(1.5)));
    assert_eq!((agent.max_tokens, agent.allow_skills), (None, true));
    assert_eq!(dir.discover().definitions.len(), 1);
    assert_status(&definition.notes, "SOUL.md", KeyStatus::Ignored);
    assert_status(&definition.notes, "{{…}}", KeyStatus::Ignored);
}

#[test]
fn settings_of_other_programs_are_refused() {
    let dir = AgentDir::new();
    dir.load_err("package.json", r#"{"name": "package", "description": "d", "version": "1"}"#);
    dir.load_err("settings.toml", "name = 'x'\ndescription = 'd'\n");
    dir.load_err("compose.yaml", "name: x\nservices: {}\n");
    dir.load_err("opencode.json", r#"{"agent": {"build": {"model": "a/b"}}}"#);
}

#[test]
fn deepagents() {
    let dir = AgentDir::new();
    let definition = dir
        .load_ok("agents/planner/AGENTS.md", "---\ndescription: Plans\nmodel: openai:gpt-5\n---\nPlan it.");
    assert_eq!((definition.format, definition.agent.id.as_str()), (Format::Deepagents, "planner"));
    assert_eq!(definition.agent.model.as_deref(), Some("openai/gpt-5"));
    dir.put("AGENTS.md", "# Instructions of a project");
    let found = dir.discover();
    assert_eq!((found.definitions.len(), found.problems.len()), (1, 0));
}

#[test]
fn cursor_factory_and_copilot() {
    let dir = AgentDir::new();
    let cursor = dir.load_ok(
        ".cursor/agents/look.md",
        "---\nname: look\ndescription: d\nmodel: fast\nreadonly: true\nis_background: false\n---\nLook.",
    );
    assert_eq!((cursor.agent.mode, cursor.agent.model), (Some(Mode::Plan), None));
    let factory = dir.load_ok(
        ".factory/droids/r.md",
        "---\nname: r\ndescription: d\nmodel: inherit\ntools: read-only\n---\nR.",
    );
    assert_eq!(tools(&factory).unwrap(), ["read_file", "list_dir", "grep", "glob"]);
    let copilot = dir.load_ok(
        "helper.agent.md",
        "---\nname: Big Helper\ndescription: d\nmodel: GPT-4.1 | 'gpt-5'\ntools: ['read/readFile', \
         'search/codebase', 'github/*', 'execute']\nhandoffs: []\n---\nHelp.",
    );
    assert_eq!((copilot.format, copilot.agent.id.as_str()), (Format::Copilot, "big-helper"));
    assert_eq!(tools(&copilot).unwrap(), ["read_file", "grep", "shell"]);
    assert!(note(&copilot.notes, "tools").text.contains("github/*"));
    let stem = dir.load_ok("only-stem.agent.md", "---\ndescription: d\n---\nHelp.");
    assert_eq!(stem.agent.id, "only-stem");
}

/// GitHub's table: `edit` also creates files, and `search` finds files and text. Elsewhere `Edit` does not include `Write`.
#[test]
fn copilot_edit_and_search_mean_what_github_says() {
    let dir = AgentDir::new();
    let text = |tools: &str| format!("---\nname: x\ndescription: d\ntools: {tools}\n---\nHelp.");
    let both = ["edit_file", "write_file", "grep", "glob"];
    for file in [".github/agents/a.md", ".github/agents/b.agent.md", ".copilot/agents/c.md", "d.agent.md"] {
        let copilot = dir.load_ok(file, text("['edit', 'Search']"));
        assert_eq!(copilot.format, Format::Copilot, "{file}");
        assert_eq!(tools(&copilot).unwrap(), both, "{file}");
        assert!(note(&copilot.notes, "tools").text.starts_with("edit_file, write_file"), "{file}");
    }
    let part = dir.load_ok("e.agent.md", text("['search/codebase', 'edit/editFiles']"));
    assert_eq!(tools(&part).unwrap(), ["grep", "edit_file"]);
    for file in [".claude/agents/f.md", ".cursor/agents/g.md", ".github/.claude/agents/h.md", "i/AGENT.md"] {
        let other = dir.load_ok(file, text("[edit, search]"));
        assert_eq!(tools(&other).unwrap(), ["edit_file", "grep"], "{file}");
    }
}

#[test]
fn invalid_yaml_is_read_line_by_line() {
    let dir = AgentDir::new();
    let definition = dir.load_ok(
        "talker.md",
        "---\nname: talker\ndescription: Use this when: something comes up.\\n\\nExamples:\n\nuser: \"Do it\"\n\
         assistant: \"Done: all\"\n<commentary>\nWhy: because.\n</commentary>\ntools: Read, Bash\nmodel: opus\n---\nTalk.\n",
    );
    let agent = &definition.agent;
    assert!(agent.description.starts_with("Use this when: something comes up.\n\nExamples:"));
    assert!(agent.description.ends_with("</commentary>"), "{}", agent.description);
    assert_eq!(tools(&definition).unwrap(), ["read_file", "shell"]);
    let repaired = note(&definition.notes, "frontmatter");
    assert_eq!(repaired.status, KeyStatus::Translated);
    assert!(repaired.text.contains("line by line"), "{}", repaired.text);
    let quoted =
        dir.load_ok("q.md", "---\nname: q\ndescription: \"a \"quoted\" word: yes\"\ncolor: red\n---\nQ.");
    assert_eq!(quoted.agent.description, "a \"quoted\" word: yes");
    let list = dir.load_ok("l.md", "---\nname: l\ndescription: a: b\ntools:\n  - Read\n  - Grep\n---\nL.");
    assert_eq!(tools(&list).unwrap(), ["read_file", "grep"]);
}

#[test]
fn frontmatter_may_be_indented() {
    let dir = AgentDir::new();
    let plain = "---\nname: a\ndescription: d\ntools: Read\n---\nBody.\n";
    let indented: String = plain.lines().map(|line| format!("    {line}\n")).collect();
    let keys_indented =
        plain.replace("name:", "  name:").replace("desc", "  desc").replace("tools", "  tools");
    for text in [
        format!("\u{feff}{plain}"),
        plain.replace('\n', "\r\n"),
        format!("\n\n{plain}"),
        format!("\n{indented}"),
        keys_indented,
    ] {
        let definition = dir.load_ok("a.md", &text);
        assert_eq!(
            (definition.agent.id.as_str(), definition.agent.prompt.as_str()),
            ("a", "Body."),
            "{text:?}"
        );
        assert_eq!(tools(&definition).unwrap(), ["read_file"], "{text:?}");
    }
    let block = dir.load_ok("b.md", "---\nname: b\ndescription: |\n  one\n  ---\n  two\n---\nB\n---\nC\n");
    assert_eq!(
        (block.agent.description.as_str(), block.agent.prompt.as_str()),
        ("one\n---\ntwo", "B\n---\nC")
    );
}
