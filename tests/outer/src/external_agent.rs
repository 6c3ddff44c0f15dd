//! Third-party ACP agents with a mock model on this machine.

use serde_json::json;

use crate::counterpart::{node, tools};
use crate::{Aimock, TestEnv, WireLog};

/// A third-party agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalAgent {
    /// OpenCode.
    OpenCode,
    /// Gemini CLI.
    GeminiCli,
}

impl ExternalAgent {
    /// Config section that defines the agent under this name. Its model is a mock, its home is in the test
    /// environment, it sends nothing elsewhere, and its messages are recorded.
    pub fn config_section(self, name: &str, env: &TestEnv, aimock: &Aimock, wire: &WireLog) -> String {
        let node = node().display().to_string();
        let argv = match self {
            ExternalAgent::OpenCode => vec![opencode(), "acp".to_owned()],
            ExternalAgent::GeminiCli => {
                let program =
                    tools("acp/node_modules/@google/gemini-cli/bundle/gemini.js").display().to_string();
                [&node, &program, "--acp", "-m", "gemini-2.5-flash"].map(str::to_owned).to_vec()
            }
        };
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let argv = wire.wrap_command(&argv);
        let home = env.path(&format!("{name}-home"));
        std::fs::create_dir_all(&home).unwrap();
        // Starting may take long on a busy machine.
        let mut section =
            format!("[acp.servers.{name}]\nstart_timeout = '90s'\ncommand = '{}'\nargs = [", argv[0]);
        section.extend(argv[1..].iter().map(|word| format!("'{word}', ")));
        section.push_str(&format!("]\n[acp.servers.{name}.env]\nHOME = '{}'\n", home.display()));
        for (key, value) in self.environment(aimock) {
            section.push_str(&format!("{key} = '{value}'\n"));
        }
        // The program that records the messages hides the name of the agent, by which its state is known otherwise.
        let (home, wire) = (home.display(), wire.folder().display());
        section.push_str(&format!("[acp.servers.{name}.sandbox]\nstate = ['{home}', '{wire}']\n"));
        section
    }

    fn environment(self, aimock: &Aimock) -> Vec<(&'static str, String)> {
        match self {
            ExternalAgent::OpenCode => vec![
                ("OPENCODE_CONFIG_CONTENT", opencode_settings(&aimock.address)),
                ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
            ],
            ExternalAgent::GeminiCli => vec![
                ("GEMINI_API_KEY", Aimock::KEY.to_owned()),
                ("GOOGLE_GEMINI_BASE_URL", aimock.address.clone()),
                ("GEMINI_TELEMETRY_ENABLED", "false".to_owned()),
                // Otherwise it restarts itself.
                ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned()),
            ],
        }
    }

    /// The agent's name for its tool that writes a file, and for that tool's path argument.
    pub fn write_tool(self) -> (&'static str, &'static str) {
        match self {
            ExternalAgent::OpenCode => ("write", "filePath"),
            ExternalAgent::GeminiCli => ("write_file", "file_path"),
        }
    }
}

/// The program itself. The wrapper from npm is created by an install script, which is not run.
fn opencode() -> String {
    let platform = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    tools(&format!("acp/node_modules/opencode-linux-{platform}/bin/opencode")).display().to_string()
}

fn opencode_settings(address: &str) -> String {
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible", "name": "Mock", "models": { "small": { "name": "Small" } },
        "options": { "baseURL": format!("{address}/v1"), "apiKey": Aimock::KEY },
    });
    let settings = json!({
        "autoupdate": false, "share": "disabled", "model": "mock/small", "small_model": "mock/small",
        "enabled_providers": ["mock"], "provider": { "mock": provider },
        "permission": { "edit": "ask", "bash": "ask" },
    });
    settings.to_string()
}
