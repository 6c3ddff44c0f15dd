//! State that well-known agents keep in the home directory.

use std::path::{Path, PathBuf};

use super::servers::ServerProgram;

/// Paths of a program that it needs although its sandbox covers the home directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramState {
    /// Directories that it writes to.
    pub(super) directories: Vec<PathBuf>,
    /// Files that it writes to.
    pub(super) files: Vec<PathBuf>,
    /// Directories whose changes are discarded, because other programs run what is in them. Missing ones are created.
    pub(super) discarded: Vec<PathBuf>,
    /// Settings among its state that name programs to run. It cannot change them.
    pub(super) control: Vec<PathBuf>,
}

/// State of one program. Paths are relative to the home directory.
struct Known {
    /// Names of the executable and of packages.
    names: &'static [&'static str],
    /// Variable that names another directory in place of the first one, and the path below it.
    variable: Option<(&'static str, &'static str)>,
    directories: &'static [&'static str],
    files: &'static [&'static str],
    discarded: &'static [&'static str],
    /// Relative to the first directory.
    control: &'static [&'static str],
}

const KNOWN: [Known; 6] = [
    Known {
        names: &["claude", "claude-code-acp", "claude-agent-acp", "claude-code"],
        variable: Some(("CLAUDE_CONFIG_DIR", "")),
        directories: &[".claude"],
        files: &[".claude.json"],
        discarded: &[],
        control: &["agents", "commands", "hooks", "plugins", "settings.json", "skills"],
    },
    Known {
        names: &["codex", "codex-acp"],
        variable: Some(("CODEX_HOME", "")),
        directories: &[".codex"],
        files: &[],
        discarded: &[],
        control: &["config.toml", "hooks.json", "prompts", "rules", "skills"],
    },
    Known {
        names: &["gemini", "gemini-cli"],
        variable: Some(("GEMINI_CLI_HOME", ".gemini")),
        directories: &[".gemini"],
        files: &[],
        discarded: &[],
        control: &["commands", "extensions", "skills"],
    },
    Known {
        names: &["opencode", "opencode-ai"],
        variable: Some(("XDG_DATA_HOME", "opencode")),
        directories: &[".local/share/opencode", ".local/state/opencode"],
        files: &[],
        discarded: &[".cache/opencode", ".config/opencode"],
        control: &["bin"],
    },
    Known {
        names: &["goose"],
        variable: Some(("XDG_DATA_HOME", "goose")),
        directories: &[".local/share/goose", ".local/state/goose"],
        files: &[],
        discarded: &[".cache/goose", ".config/goose"],
        control: &[],
    },
    Known {
        names: &["cursor-agent", "cursor-agent-acp"],
        variable: Some(("CURSOR_CONFIG_DIR", "")),
        directories: &[".cursor"],
        files: &[],
        discarded: &[],
        control: &["cli-config.json", "commands", "hooks.json", "mcp.json", "rules"],
    },
];

/// Programs that run a package or script of another name.
const LAUNCHERS: [&str; 10] =
    ["bun", "bunx", "deno", "env", "node", "npx", "pnpm", "python", "python3", "uvx"];

/// Directories in which programs store the packages that they run.
const PACKAGE_CACHES: [(&str, &[&str]); 6] = [
    ("bunx", &[".bun/install/cache"]),
    ("deno", &[".cache/deno"]),
    ("npx", &[".npm"]),
    ("pnpm", &[".cache/pnpm", ".local/share/pnpm"]),
    ("uv", &[".cache/uv", ".local/share/uv"]),
    ("uvx", &[".cache/uv", ".local/share/uv"]),
];

impl ProgramState {
    /// State of a program that is known by its name or by the name of its package.
    pub(super) fn of(program: &ServerProgram<'_>, home: Option<&Path>) -> ProgramState {
        let known = KNOWN.iter().find(|known| known.names.iter().any(|name| is_named(program, name)));
        let variable = |name: &str| {
            let value = program.environment.iter().find(|(variable, _)| variable == name);
            value.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let Some(home) = variable("HOME").or_else(|| home.map(Path::to_path_buf)) else {
            return ProgramState::default();
        };
        let below_home = |paths: &[&str]| paths.iter().map(|path| home.join(path)).collect::<Vec<_>>();
        let command = base_name(program.command);
        let caches = PACKAGE_CACHES.iter().filter(|(name, _)| *name == command);
        let caches = caches.flat_map(|(_, caches)| below_home(caches));
        let Some(known) = known else {
            return ProgramState { discarded: caches.collect(), ..ProgramState::default() };
        };
        let mut directories = below_home(known.directories);
        if let (Some(first), Some((name, below))) = (directories.first_mut(), known.variable)
            && let Some(root) = variable(name)
        {
            *first = root.join(below);
        }
        let control = directories.first().map(|first| known.control.iter().map(|name| first.join(name)));
        ProgramState {
            control: control.into_iter().flatten().collect(),
            directories,
            files: below_home(known.files),
            discarded: below_home(known.discarded).into_iter().chain(caches).collect(),
        }
    }
}

/// Whether a program has this name, or is a launcher whose first argument that is no option has it.
fn is_named(program: &ServerProgram<'_>, name: &str) -> bool {
    let command = base_name(program.command);
    let package = || program.arguments.iter().find(|argument| !argument.starts_with('-'));
    command == name
        || (LAUNCHERS.contains(&command) && package().is_some_and(|package| package_names(package, name)))
}

/// Whether a word is a package or script of this name: `@scope/name@1.2`, `/a/node_modules/name/index.js`, `/a/name.js`.
fn package_names(word: &str, name: &str) -> bool {
    let without_scope = |package: &str| match package.strip_prefix('@').and_then(|rest| rest.split_once('/'))
    {
        Some((_scope, package)) => package.to_owned(),
        None => package.to_owned(),
    };
    match word.rsplit_once("node_modules/") {
        Some((_, package)) => without_scope(package).split('/').next() == Some(name),
        None if word.starts_with(['/', '.']) => {
            let script = base_name(word);
            script.split_once('.').map_or(script, |(stem, _)| stem) == name
        }
        None => without_scope(word).split('@').next() == Some(name),
    }
}

fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(command: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<PathBuf> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: Vec<_> = environment.iter().map(pair).collect();
        let program = ServerProgram {
            command,
            arguments: &arguments,
            directory: Path::new("/work"),
            environment: &environment,
        };
        ProgramState::of(&program, Some(Path::new("/home/me"))).directories
    }

    #[test]
    fn programs_are_known_by_executable_package_and_script() {
        let claude = [PathBuf::from("/home/me/.claude")];
        assert_eq!(directories("claude-code-acp", &[], &[]), claude);
        assert_eq!(directories("/usr/bin/claude-code-acp", &[], &[]), claude);
        assert_eq!(directories("npx", &["-y", "@zed-industries/claude-code-acp@0.12.6"], &[]), claude);
        assert_eq!(directories("npx", &["-y", "@zed-industries/claude-code-acp"], &[]), claude);
        let script = "/cache/node_modules/@google/gemini-cli/bundle/gemini.js";
        assert_eq!(directories("node", &[script, "--acp"], &[]), [PathBuf::from("/home/me/.gemini")]);
        for (command, arguments) in [
            ("claudette", &[][..]),
            ("cat", &["claude"]),
            ("npx", &["-y", "my-claude"]),
            ("node", &[]),
            ("node", &["/src/claude/dist/index.js"]),
            ("npx", &["claude/other"]),
            ("npx", &["@claude/other"]),
        ] {
            assert_eq!(
                directories(command, arguments, &[]),
                Vec::<PathBuf>::new(),
                "{command} {arguments:?}"
            );
        }
    }

    #[test]
    fn variables_of_the_program_move_its_state() {
        assert_eq!(directories("codex", &[], &[("CODEX_HOME", "/c")]), [PathBuf::from("/c")]);
        let moved = directories("opencode", &["acp"], &[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]);
        assert_eq!(moved, [PathBuf::from("/d/opencode"), PathBuf::from("/h/.local/state/opencode")]);
        let moved = directories("gemini", &[], &[("GEMINI_CLI_HOME", "relative")]);
        assert_eq!(moved, [PathBuf::from("/home/me/.gemini")]);
    }
}
