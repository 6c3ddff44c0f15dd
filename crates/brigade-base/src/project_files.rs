//! Files of a project that other programs and Brigade itself act upon.

/// Directories with settings, agents and skills. A project's agents and skills are used only while the user trusts them.
pub const COVERED_DIRS: [&str; 12] = [
    ".brigade",
    ".claude/agents",
    ".claude/skills",
    ".agents/skills",
    ".opencode/agent",
    ".opencode/agents",
    ".gemini/agents",
    ".codex/agents",
    ".github/agents",
    ".copilot/agents",
    ".cursor/agents",
    ".factory/droids",
];

/// File that configures MCP servers.
pub const MCP_FILE: &str = ".mcp.json";

/// Names of instruction files. The first one that exists is used.
pub const INSTRUCTION_FILES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md"];
