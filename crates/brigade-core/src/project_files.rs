//! Files that Brigade, other agents, editors, git and shells act upon. This is the only list of them.
//!
//! Names are relative to the directory to which they belong, and consist of one or more components.

/// Directory with Brigade's own settings, agents and skills.
pub const BRIGADE_DIR: &str = ".brigade";

/// Agent directories of other programs, in a project and in the home directory.
pub const AGENT_DIRS: [&str; 9] = [
    ".claude/agents",
    ".opencode/agent",
    ".opencode/agents",
    ".gemini/agents",
    ".codex/agents",
    ".github/agents",
    ".copilot/agents",
    ".cursor/agents",
    ".factory/droids",
];

/// Skill directories of other programs, in a project and in the home directory.
pub const SKILL_DIRS: [&str; 2] = [".claude/skills", ".agents/skills"];

/// File that configures MCP servers.
pub const MCP_FILE: &str = ".mcp.json";

/// Names of instruction files. The first one that exists is used.
pub const INSTRUCTION_FILES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md"];

/// Instruction files that only other agents read.
pub const FOREIGN_INSTRUCTION_FILES: [&str; 13] = [
    "AGENT.md",
    "AGENTS.override.md",
    "CLAUDE.local.md",
    "CRUSH.md",
    "QWEN.md",
    "WARP.md",
    ".clinerules",
    ".cursorrules",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".goosehints",
    ".roorules",
    ".windsurfrules",
];

/// Settings of editors and agents that can name programs to run.
pub const TOOL_SETTINGS: [&str; 12] = [
    ".claude",
    ".codex",
    ".copilot",
    ".cursor",
    ".envrc",
    ".factory",
    ".gemini",
    ".husky",
    ".idea",
    ".opencode",
    ".vscode",
    ".zed",
];

/// Settings that can name programs to run and that few projects have.
pub const RARE_TOOL_SETTINGS: [&str; 13] = [
    ".aider.conf.yml",
    ".amazonq",
    ".continue",
    ".crush",
    ".devcontainer",
    ".devcontainer.json",
    ".github/hooks",
    ".gitmodules",
    ".junie",
    ".kiro",
    ".ripgreprc",
    ".roo",
    ".windsurf",
];

/// Directory of a git repository.
pub const GIT_DIR: &str = ".git";

/// Files of a git directory that name programs to run.
pub const GIT_CONTROL: [&str; 5] = ["config", "config.worktree", "gitdir", "hooks", "info/attributes"];

/// Files in the home directory that shells and other programs run.
pub const HOME_FILES: [&str; 21] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/autostart",
    ".config/environment.d",
    ".config/fish",
    ".config/git",
    ".config/systemd",
    ".gitconfig",
    ".kshrc",
    ".local/bin",
    ".login",
    ".profile",
    ".ssh",
    ".xinitrc",
    ".xprofile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// Credentials in the home directory.
pub const HOME_SECRETS: [&str; 37] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/chromium",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".docker/config.json",
    ".dockercfg",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".gradle/gradle.properties",
    ".kube",
    ".local/share/keyrings",
    ".m2/settings.xml",
    ".mozilla",
    ".netrc",
    ".node_repl_history",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".python_history",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".yarnrc.yml",
    ".zsh_history",
    "_netrc",
];

/// Names of files with secrets in a workspace, in lower case.
const SECRET_NAMES: [&str; 10] = [
    ".git-credentials",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "_netrc",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
];

/// Suffixes of files that can contain a private key.
const KEY_SUFFIXES: [&str; 4] = ["key", "p12", "pem", "pfx"];

/// Suffixes of examples, which contain no secrets.
const EXAMPLES: [&str; 4] = ["dist", "example", "sample", "template"];

/// Directories with settings, agents and skills. A project's agents and skills are used only while the user trusts them.
pub fn covered_dirs() -> impl Iterator<Item = &'static str> {
    [BRIGADE_DIR].into_iter().chain(SKILL_DIRS).chain(AGENT_DIRS)
}

/// Settings of a project that programs act upon, without those of git.
pub fn settings() -> impl Iterator<Item = &'static str> {
    covered_dirs().chain(TOOL_SETTINGS).chain([MCP_FILE])
}

/// Settings and instruction files of a project, without those of git.
pub fn acted_upon() -> impl Iterator<Item = &'static str> {
    let instructions = INSTRUCTION_FILES.into_iter().chain(FOREIGN_INSTRUCTION_FILES);
    settings().chain(RARE_TOOL_SETTINGS).chain(instructions)
}

/// Whether a file contains secrets, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretName {
    /// The name is not that of a secret.
    No,
    /// The file can contain a private key, a certificate or a public key.
    MaybeKey,
    /// The file contains secrets.
    Yes,
}

/// Judges the name of a file, without its directories. Case is ignored.
pub fn secret_name(name: &str) -> SecretName {
    let name = name.to_ascii_lowercase();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    let is_environment = (name == ".env" || name.starts_with(".env.")) && !EXAMPLES.contains(&suffix);
    match suffix {
        _ if is_environment || SECRET_NAMES.contains(&name.as_str()) => SecretName::Yes,
        "p12" | "pfx" => SecretName::Yes,
        _ if KEY_SUFFIXES.contains(&suffix) => SecretName::MaybeKey,
        _ => SecretName::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognised_by_name() {
        for name in
            [".env", ".ENV", ".env.production", "id_rsa", "ID_ED25519", ".netrc", "store.p12", "A.PFX"]
        {
            assert_eq!(secret_name(name), SecretName::Yes, "{name}");
        }
        for name in ["server.key", "ca.pem", "X.PEM", "a.b.key"] {
            assert_eq!(secret_name(name), SecretName::MaybeKey, "{name}");
        }
        for name in [".env.example", ".env.sample", "environment.rs", "id_rsa.pub", ".environment", "key", ""]
        {
            assert_eq!(secret_name(name), SecretName::No, "{name}");
        }
    }

    #[test]
    fn every_file_that_is_acted_upon_is_listed_once() {
        let mut all: Vec<&str> = acted_upon().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| !name.starts_with('/') && !name.ends_with('/')));
    }
}
