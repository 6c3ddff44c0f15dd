//! The configuration schema matches the settings.

use serde_json::{Value, json};

use crate::cli::docs::{page, repository};
use crate::cli::support::Home;

struct SchemaAndSettings {
    home: Home,
    schema: jsonschema::Validator,
}

impl SchemaAndSettings {
    fn new() -> SchemaAndSettings {
        let home = Home::new();
        let schema = home.brigade(&["config", "schema"]).exits_with(0).json();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        SchemaAndSettings { home, schema: jsonschema::draft202012::new(&schema).unwrap() }
    }

    /// Validates a configuration with the schema and with the settings.
    fn accept(&self, toml: &str) -> (bool, bool) {
        let parsed: toml::Table = toml::from_str(toml).unwrap_or_else(|error| panic!("{error} in {toml}"));
        self.home.write("home/config.toml", toml);
        let done = self.home.brigade(&["config", "show"]);
        (self.schema.is_valid(&serde_json::to_value(parsed).unwrap()), done.code == 0)
    }
}

/// Every TOML block on a page.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next())
}

#[test]
fn config_examples_in_the_docs_are_valid() {
    let checks = SchemaAndSettings::new();
    let mut seen = 0;
    for name in [
        "README.md",
        "docs/guide/agents.md",
        "docs/guide/models.md",
        "docs/guide/permissions.md",
        "docs/MULTI-TENANT.md",
        "docs/faces/README.md",
        "docs/faces/delegate.md",
        "docs/faces/spawn.md",
    ] {
        for block in blocks(&page(name)) {
            assert_eq!(checks.accept(block), (true, true), "{name}: {block}");
            seen += 1;
        }
    }
    assert!(seen > 6, "{seen}");
    let example: Value = serde_json::from_str(&page("config.example.json")).unwrap();
    assert!(checks.schema.is_valid(&example));
    assert!(repository().join("config.example.json").exists());
}

#[test]
fn init_output_and_effective_config_are_valid() {
    let checks = SchemaAndSettings::new();
    checks.home.brigade(&["init", "--model", "ollama/qwen3", "--mode", "ask"]).exits_with(0);
    let written = std::fs::read_to_string(checks.home.home().join("config.toml")).unwrap();
    let all_on: String = written
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(example) if !example.starts_with(' ') => format!("{example}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    for config in [&written, &all_on] {
        assert_eq!(checks.accept(config), (true, true), "{config}");
    }
    let shown = checks.home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    assert!(checks.schema.is_valid(&shown["config"]), "the defaults fit too");
}

#[test]
fn schema_and_settings_accept_the_same_values() {
    let checks = SchemaAndSettings::new();
    for good in [
        "",
        "limits.child_timeout = 90",
        "limits.child_timeout = '1h30m'",
        "budget.usd = '$2.50'",
        "budget = { usd = 'unlimited', tokens = 'unlimited', agents = 0 }",
        "delegation.faces = 'auto'",
        "permissions.deny = ['shell(git push)', 'mcp__any__*', 'web_fetch(*.example.com)', 'write_file(**/*.lock)']",
        "prices.'openai/gpt-5' = { input = 1, output = '2.5' }",
        "mcpServers.files = { command = 'x', args = ['a'], env = { A = 'b' } }",
        "mcpServers.web = { type = 'http', url = 'https://x.example/mcp', headers = { A = 'b' }, timeout = '2m' }",
        "mcpServers.off = { command = 'x', cwd = 'y', disabled = true, autoApprove = ['z'], timeout = 60000 }",
        "mcpServers.on = { command = 'x', enabled = true, tools = ['*'] }",
        "'$schema' = 'x'",
        "providers.ollama.concurrency = 1",
    ] {
        assert_eq!(checks.accept(good), (true, true), "{good}");
    }
    for bad in [
        "mdoel = 'x'",
        "swarm.max_dept = 2",
        "swarm.roles.a.toosl = []",
        "providers.ollama.url = 'x'",
        "model = 3",
        "fallbacks = 'x'",
        "swarm = 3",
        "swarm.enabled = 'yes'",
        "swarm.keep = 'for ever'",
        "limits.lead_turns = -1",
        "limits.lead_turns = 1.5",
        "limits.lead_turns = 4294967296",
        "limits.child_timeout = 'soon'",
        "limits.child_timeout = '0s'",
        "limits.child_timeout = 0",
        "budget.usd = 'much'",
        "budget.usd = -1",
        "budget.tokens = 'many'",
        "permissions.mode = 'yolo'",
        "permissions.deny = ['shell(']",
        "permissions.deny = ['']",
        "permissions.deny = 'shell'",
        "providers.ollama.kind = 'soap'",
        "providers.ollama.concurrency = 0",
        "prices.x.input = 1",
        "prices.'a/b'.input = 1000001",
        "prices.'a/b'.max_output = 0",
        "mcpServers.files.env.A = 1",
        "mcpServers.files.comand = 'x'",
        "mcpServers.files.disabled = 'yes'",
        "mcpServers.files.enabled = 'yes'",
    ] {
        assert_eq!(checks.accept(bad), (false, false), "{bad}");
    }
}

#[test]
fn every_schema_key_has_a_description_and_the_effective_default() {
    fn walk(schema: &Value, path: &str, config: &Value, seen: &mut usize) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            assert!(property["description"].as_str().is_some_and(|text| text.len() > 5), "{path}");
            if let Some(default) = property.get("default") {
                assert_eq!(config.pointer(&path), Some(default), "{path}");
                *seen += 1;
            }
            walk(property, &path, config, seen);
            walk(&property["additionalProperties"], &format!("{path}/*"), config, seen);
        }
    }
    let home = Home::new();
    let config = home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    let schema = home.brigade(&["config", "schema", "--output-format", "json"]).exits_with(0).json();
    let mut seen = 0;
    let mut config = config["config"].clone();
    // These sections are absent by default. Their keys have the defaults of the contract.
    assert_eq!((config.get("subagent"), config.get("spawn")), (None, None));
    config["subagent"] =
        json!({ "max_depth": 3, "default_max_turns": 10, "output_max_size": 4096, "keep": "root" });
    config["spawn"] = json!({ "max_depth": 2, "default_max_turns": 10 });
    walk(&schema, "", &config, &mut seen);
    for section in ["subagent", "spawn"] {
        for key in config[section].as_object().unwrap().keys() {
            assert!(schema["properties"][section]["properties"][key].get("default").is_some(), "{key}");
        }
    }
    assert!(seen > 20, "{seen}");
    home.write("home/config.toml", "[broken");
    home.brigade(&["config", "schema"]).exits_with(0).stdout_contains("\"additionalProperties\": false");
}
