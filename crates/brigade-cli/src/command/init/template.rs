//! Template of the configuration file. A line with `#` and no space after it is a commented-out setting.

use brigade_core::permission::Mode;
use toml::Value;

use super::questions::Server;
use super::{CUSTOM, ConfigScope};
use crate::model_hints;

const HEAD: &str = "\
# Settings of brigade. What is in force, and why: brigade config show
# All keys with their meaning: brigade config schema
# To switch on a line that begins with # and no blank, take the # away.
";

const PROJECT_HEAD: &str = "\
# Settings of this project, for all who work in it and trust it: brigade trust
# What is in force, and why: brigade config show. All keys with their meaning: brigade config schema
# To switch on a line that begins with # and no blank, take the # away.
";

const RULES: &str = r#"
# Rules for calls of tools; deny beats ask beats allow. The tools: brigade tools list
#allow = ["shell(cargo test *)", "shell(git diff *)"]
#deny = ["read_file(**/.env*)", "shell(git push)"]

# What one task may use up, all its agents together; "unlimited" is a number too.
[budget]
#tokens = 500000
#usd = 2.50
#agents = 20

[limits]
# Model calls of the agent that takes the task, and of those that work for it.
#lead_turns = 50
#child_turns = 20
# How long a command may take, and how many agents may be active at once.
#shell_timeout = "2m"
#concurrency = 8

# Agents that the lead makes up with `delegate`, and roles that are prepared for it.
[swarm]
#max_depth = 2
#max_concurrent = 3
#roles.researcher = { system_prompt = "You find things out and name your sources.", tools = ["grep", "glob", "read_file"] }

# More ways to delegate.
[delegation]
#faces = ["delegate", "subagent"]
#extras = ["background"]
"#;

const USER_SECTIONS: &str = r#"
# Servers of your own, and changes to those that brigade models lists. A key stands in a variable, never here.
[providers]
#work = { kind = "openai", base_url = "https://llm.example/v1", api_key_env = "WORK_API_KEY" }
#ollama = { base_url = "http://127.0.0.1:11434/v1", concurrency = 2 }

# What you pay, in dollars for a million tokens, where the built-in table is wrong or has no entry.
[prices]
#"openrouter/some/model" = { input = 0.50, output = 1.50 }

# An engine makes web_search a tool: "tavily" and "brave" need a key in a variable, a SearXNG its address.
[web]
#search = "https://searx.example"
#allow_loopback = true

[skills]
#paths = ["/srv/skills"]

[memory]
#enabled = false
"#;

/// Header of the providers section in the file.
const PROVIDERS_HEADER: &str = "[providers]\n";

/// Line for the user's own server.
fn provider(server: &Server) -> String {
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let key = server.key.as_deref().map(|key| format!(", api_key_env = {}", text(key))).unwrap_or_default();
    format!("{CUSTOM} = {{ kind = \"openai\", base_url = {}{key} }}\n", text(&server.base_url))
}

/// Content of the file.
pub(super) fn config(
    scope: ConfigScope,
    model: Option<&str>,
    mode: Option<Mode>,
    server: Option<&Server>,
) -> String {
    let head = match scope {
        ConfigScope::User => HEAD,
        ConfigScope::Project => PROJECT_HEAD,
    };
    let user_sections = match scope {
        ConfigScope::User => USER_SECTIONS,
        ConfigScope::Project => "",
    };
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let user_sections = match server {
        Some(server) => {
            user_sections.replacen(PROVIDERS_HEADER, &format!("{PROVIDERS_HEADER}{}", provider(server)), 1)
        }
        None => user_sections.to_owned(),
    };
    let model = match model {
        Some(model) => format!("model = {}", text(model)),
        None => format!("#model = {}", text(&model_hints::suggested_model("anthropic").unwrap_or_default())),
    };
    let mode = match mode {
        Some(mode) => format!("mode = {}", text(mode.as_str())),
        None => "#mode = \"edit\"".to_owned(),
    };
    format!(
        "{head}\n\
         # The model of agents that name none. Those that can be used here: brigade models\n\
         {model}\n\
         # Models that take over where that one fails for good.\n\
         #fallbacks = [\"ollama/qwen3\"]\n\n\
         [permissions]\n\
         # What agents do without asking: plan (only read), ask (also what rules allow), edit (also edit files), auto (all\n\
         # that no rule forbids).\n\
         {mode}\
         {RULES}{user_sections}"
    )
}
