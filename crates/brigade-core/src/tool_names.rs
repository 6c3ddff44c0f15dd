//! Table of tool names: the built-in tools and the names that other programs use for them.
//!
//! Whitelists in calls, roles and agent files all go through [`resolve`], so that a name means the same everywhere.
//!
//! | Built-in | Also written as |
//! |---|---|
//! | `read_file` | Read, view, cat, open_file, read_many_files, NotebookRead, readfile |
//! | `write_file` | Write, create, create_file, WriteFile |
//! | `edit_file` | Edit, MultiEdit, NotebookEdit, patch, apply_patch, replace, str_replace, text_editor |
//! | `list_dir` | LS, list, tree, list_directory, list_files |
//! | `grep` | Grep, search, codebase, ripgrep, search_files, search_file_content, grep_search |
//! | `glob` | Glob, find, find_files, file_search |
//! | `shell` | Bash, terminal, execute, run_shell_command, local_shell, run_command, runInTerminal |
//! | `message` | send_message, post_message |
//! | `memory_search`, `memory_get`, `memory_put` | search_memory; get_memory, memory_read; save_memory, memory_write |
//! | `web_fetch` | WebFetch, fetch, fetch_url, FetchUrl |
//! | `web_search` | WebSearch, google_web_search |
//! | `skill` | Skill, activate_skill, load_skill |
//! | `subagent_dispatch` | Task, Agent, runSubagent |
//!
//! Some names mean several tools: `file_ops` and `read-only` for tools that only read, `web` for both web
//! tools, `developer` for files and commands. In agent files of Copilot, `edit` and `search` mean more; see
//! [`resolve_copilot`].

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Prefix of the names of MCP tools.
const MCP_PREFIX: &str = "mcp__";

/// Built-in tools, in the order of the table.
pub const BUILTIN: [&str; 21] = [
    "read_file",
    "write_file",
    "edit_file",
    "list_dir",
    "grep",
    "glob",
    "shell",
    "echo",
    "message",
    "memory_search",
    "memory_get",
    "memory_put",
    "web_fetch",
    "web_search",
    "skill",
    "delegate",
    "subagent",
    "parallel_subagent",
    "subagent_dispatch",
    "subagent_spawn",
    "subagent_delegate",
];

/// Kind of the specifier in a permission rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specifier {
    /// Path pattern.
    Path,
    /// Command.
    Command,
    /// Host.
    Host,
    /// The tool takes no specifier.
    None,
}

/// Returns the meaning of a specifier of a built-in tool, which is known before there is a call. `None` for other
/// tools, whose specifiers depend on the subjects of their calls.
pub fn specifier(tool: &str) -> Option<Specifier> {
    match tool {
        "shell" => Some(Specifier::Command),
        "web_fetch" => Some(Specifier::Host),
        "web_search" => Some(Specifier::None),
        _ => BUILTIN.contains(&tool).then_some(Specifier::Path),
    }
}

/// Aliases and their tools. Foreign names are normalised first: lower case, without `-`, `_` and spaces.
const ALIASES: &[(&[&str], &[&str])] = &[
    (
        &["read", "view", "cat", "openfile", "readfile", "readmanyfiles", "notebookread", "viewfile"],
        &["read_file"],
    ),
    (&["write", "create", "createfile", "writefile", "newfile"], &["write_file"]),
    (
        &[
            "edit",
            "multiedit",
            "editfile",
            "editfiles",
            "notebookedit",
            "patch",
            "applypatch",
            "replace",
            "strreplace",
            "strreplaceeditor",
            "texteditor",
        ],
        &["edit_file"],
    ),
    (&["ls", "list", "tree", "listdir", "listdirectory", "listfiles"], &["list_dir"]),
    (
        &[
            "grep",
            "search",
            "codebase",
            "ripgrep",
            "rg",
            "searchfiles",
            "searchfilecontent",
            "grepsearch",
            "textsearch",
        ],
        &["grep"],
    ),
    (&["glob", "find", "findfiles", "filesearch"], &["glob"]),
    (
        &[
            "shell",
            "bash",
            "terminal",
            "execute",
            "exec",
            "runshellcommand",
            "runcommand",
            "runcommands",
            "runinterminal",
            "localshell",
            "shellcommand",
            "execcommand",
        ],
        &["shell"],
    ),
    (&["sendmessage", "postmessage"], &["message"]),
    (&["memorysearch", "searchmemory"], &["memory_search"]),
    (&["memoryget", "getmemory", "memoryread"], &["memory_get"]),
    (&["memoryput", "putmemory", "savememory", "memorywrite"], &["memory_put"]),
    (&["webfetch", "fetch", "fetchurl", "fetchwebpage"], &["web_fetch"]),
    (&["websearch", "googlewebsearch"], &["web_search"]),
    (&["web"], &["web_fetch", "web_search"]),
    (&["skill", "activateskill", "loadskill", "useskill"], &["skill"]),
    (&["task", "agent", "runsubagent", "agents"], &["subagent_dispatch"]),
    (&["fileops"], &["read_file", "list_dir"]),
    (&["readonly"], &["read_file", "list_dir", "grep", "glob"]),
    (&["developer"], &["read_file", "write_file", "edit_file", "list_dir", "grep", "glob", "shell"]),
];

/// Returns the built-in tools that a name means; empty if the name is unknown.
///
/// ```
/// use brigade_core::tool_names::resolve;
/// assert_eq!(resolve("Read"), ["read_file"]);
/// assert_eq!(resolve("file_ops"), ["read_file", "list_dir"]);
/// assert!(resolve("teleport").is_empty());
/// ```
pub fn resolve(name: &str) -> Vec<&'static str> {
    let name = name.trim();
    if let Some(ours) = BUILTIN.iter().find(|ours| **ours == name) {
        return vec![ours];
    }
    let folded = fold(name);
    if let Some((_, ours)) = ALIASES.iter().find(|(names, _)| names.contains(&folded.as_str())) {
        return ours.to_vec();
    }
    BUILTIN.iter().find(|ours| fold(ours) == folded).map(|ours| vec![*ours]).unwrap_or_default()
}

/// Returns the built-in tools that a name means in an agent file of Copilot. GitHub's table gives two names a wider
/// meaning than other programs do: `edit` also creates files, and `search` finds files and text in files.
///
/// ```
/// use brigade_core::tool_names::resolve_copilot;
/// assert_eq!(resolve_copilot("edit"), ["edit_file", "write_file"]);
/// assert_eq!(resolve_copilot("search"), ["grep", "glob"]);
/// assert_eq!(resolve_copilot("read"), ["read_file"]);
/// ```
pub fn resolve_copilot(name: &str) -> Vec<&'static str> {
    match fold(name.trim()).as_str() {
        "edit" => vec!["edit_file", "write_file"],
        "search" => vec!["grep", "glob"],
        _ => resolve(name),
    }
}

/// Returns the name of a tool for comparison. Names of MCP tools become lower case; all other names stay as they
/// are.
///
/// ```
/// use brigade_core::tool_names::canonical;
/// assert_eq!(canonical("MCP__GitHub__createIssue"), "mcp__github__createissue");
/// assert_eq!(canonical("Read"), "Read");
/// ```
pub fn canonical(name: &str) -> Cow<'_, str> {
    let is_mcp = name.get(..MCP_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(MCP_PREFIX));
    if is_mcp { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) }
}

/// Returns the prefix of a pattern such as `mcp__server__*`. Only MCP tools have patterns.
///
/// ```
/// use brigade_core::tool_names::mcp_prefix;
/// assert_eq!(mcp_prefix("mcp__files__*"), Some("mcp__files__"));
/// assert_eq!(mcp_prefix("read_*"), None);
/// ```
pub fn mcp_prefix(name: &str) -> Option<&str> {
    let start = name.trim().strip_suffix('*')?;
    start.strip_prefix(MCP_PREFIX).filter(|rest| !rest.is_empty()).map(|_| start)
}

fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Resolves the tools that a whitelist names, by any of their names. White space around a name is ignored. A name
/// that cannot be lent stays as written, so that it is reported.
pub fn resolve_list(list: &[String], lend: &BTreeSet<String>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for requested in list {
        let known = resolve(requested).into_iter().filter(|name| lend.contains(*name));
        let mut known: Vec<String> = known.map(str::to_owned).collect();
        let name = canonical(requested.trim());
        if let Some(start) = mcp_prefix(&name) {
            known = lend.iter().filter(|name| name.starts_with(start)).cloned().collect();
        } else if lend.contains(&*name) {
            known = vec![name.into_owned()];
        }
        if known.is_empty() || lend.contains(requested) {
            known = vec![requested.clone()];
        }
        known.retain(|name| !tools.contains(name));
        tools.append(&mut known);
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn same(names: &[&str], ours: &[&str]) {
        for name in names {
            assert_eq!(resolve(name), ours, "{name}");
        }
    }

    #[test]
    fn builtin_names_resolve_to_themselves() {
        for ours in BUILTIN {
            assert_eq!(resolve(ours), [ours]);
        }
        assert!(crate::delegation_styles::DELEGATION_TOOLS.iter().all(|tool| BUILTIN.contains(tool)));
    }

    #[test]
    fn aliases_resolve_in_any_case() {
        same(&["Read", "read", "READ", "read_file", "ReadFile", "NotebookRead"], &["read_file"]);
        same(&["Edit", "MultiEdit", "apply_patch", "replace", "editFiles"], &["edit_file"]);
        same(&["Write", "write", "WriteFile", "create_file"], &["write_file"]);
        same(&["Bash", "bash", "terminal", "run_shell_command", "execute", "runInTerminal"], &["shell"]);
        same(&["LS", "list", "list_directory"], &["list_dir"]);
        same(&["Grep", "search", "search_file_content"], &["grep"]);
        same(&["WebFetch", "webfetch", "fetch", "FetchUrl"], &["web_fetch"]);
        same(&["WebSearch", "google_web_search"], &["web_search"]);
        same(&["Task", "Agent", "task"], &["subagent_dispatch"]);
        same(&["Skill", "activate_skill"], &["skill"]);
    }

    #[test]
    fn c84_group_names_resolve_to_several_tools() {
        same(&["file_ops"], &["read_file", "list_dir"]);
        same(&["read-only"], &["read_file", "list_dir", "grep", "glob"]);
        same(&["web"], &["web_fetch", "web_search"]);
    }

    #[test]
    fn copilot_names_have_a_wider_meaning() {
        assert_eq!(resolve_copilot(" Edit "), ["edit_file", "write_file"]);
        assert_eq!(resolve_copilot("search"), ["grep", "glob"]);
        assert_eq!((resolve_copilot("read"), resolve_copilot("teleport")), (vec!["read_file"], vec![]));
    }

    #[test]
    fn names_of_mcp_tools_are_compared_in_lower_case() {
        assert_eq!(canonical("MCP__GitHub__createIssue"), "mcp__github__createissue");
        assert_eq!(
            (canonical("Read"), canonical("mcp_"), canonical("")),
            ("Read".into(), "mcp_".into(), "".into())
        );
        assert_eq!((mcp_prefix(" mcp__files__* "), mcp_prefix("mcp__*")), (Some("mcp__files__"), None));
        assert_eq!((mcp_prefix("read_*"), mcp_prefix("mcp__files__x")), (None, None));
    }

    #[test]
    fn unknown_names_resolve_to_nothing() {
        same(&["", " ", "teleport", "mcp__github__issues", "*", "Read(src/**)"], &[]);
    }

    #[test]
    fn aliases_are_unique_and_target_builtin_tools() {
        let mut seen = std::collections::BTreeSet::new();
        for (names, ours) in ALIASES {
            assert!(ours.iter().all(|tool| BUILTIN.contains(tool)), "{ours:?}");
            for name in *names {
                assert_eq!(fold(name), *name, "{name} is not folded");
                assert!(seen.insert(*name), "{name} is listed twice");
            }
        }
    }
}
