//! Template of the configuration file. A line with `#` and no space after it is a commented-out setting.

use brigade_core::permission::Mode;
use toml::Value;

use super::questions::Server;
use super::{CUSTOM, ConfigScope};
use crate::model_hints;

const HEAD: &str = "\
# Brigade settings. Show the effective values and their origins: brigade config show
# All keys with descriptions: brigade config schema
# Uncomment a line to change it. Values shown are the defaults, or examples if the default is empty.
";

const PROJECT_HEAD: &str = "\
# Brigade settings of this project, for everyone who works in it and trusts it: brigade trust
# Show the effective values and their origins: brigade config show. All keys: brigade config schema
# Uncomment a line to change it. Values shown are the defaults, or examples if the default is empty.
";

const RULES: &str = r#"
# Rules for tool calls; deny takes precedence over ask, and ask over allow. List the tools: brigade tools list
#allow = ["shell(cargo test *)", "shell(git diff *)"]
#deny = ["read_file(**/.env*)", "shell(git push)"]

# Limits of one task, for all its agents together; "unlimited" is also accepted.
[budget]
#tokens = 2000000
#usd = "unlimited"
#agents = 100

[limits]
# Maximum model calls of the lead agent, and of each sub-agent.
#lead_turns = 50
#child_turns = 50
# Maximum duration of a command, and number of agents that may be active at once.
#shell_timeout = "2m"
#concurrency = 64

# Sub-agents started with `delegate`, and preset roles for them.
[swarm]
#max_depth = 1
#max_concurrent = 3
#roles.researcher = { system_prompt = "Research the question and cite your sources.", tools = ["grep", "glob", "read_file"] }

# Delegation styles: "auto", or a list such as ["delegate", "subagent"]; and optional parameters of their tools.
[delegation]
#faces = "auto"
#extras = ["background"]
"#;

const USER_SECTIONS: &str = r#"
# Your own servers, and changes to those that `brigade models` lists. Keys belong in environment variables, not here.
[providers]
#work = { kind = "openai", base_url = "https://llm.example/v1", api_key_env = "WORK_API_KEY" }
#ollama = { base_url = "http://127.0.0.1:11434/v1", concurrency = 2 }

# Prices in USD per million tokens, for models that are missing or wrong in the built-in table.
[prices]
#"openrouter/some/model" = { input = 0.50, output = 1.50 }

# Search engine of the web_search tool: "tavily" or "brave" (with a key in a variable), or the URL of a SearXNG instance.
[web]
#search = "https://searx.example"
#allow_loopback = false

[skills]
#paths = ["/srv/skills"]

[memory]
#enabled = true
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
        None => "#mode = \"ask\"".to_owned(),
    };
    format!(
        "{head}\n\
         # Default model. List available models: brigade models\n\
         {model}\n\
         # Fallback models, used in this order if the default model fails permanently.\n\
         #fallbacks = [\"ollama/qwen3\"]\n\n\
         [permissions]\n\
         # Calls that run without approval: plan (reads, and commands whose changes are discarded), ask (reads),\n\
         # edit (reads, file edits, and commands in a sandbox), auto (all calls that no deny or ask rule matches).\n\
         {mode}\
         {RULES}{user_sections}"
    )
}
