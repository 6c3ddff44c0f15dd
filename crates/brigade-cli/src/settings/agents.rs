//! Folders with agent definitions.

use std::path::{Path, PathBuf};

use brigade::project_files::AGENT_DIRS;

use super::Environment;

/// Folder of Brigade's agents in a project.
pub(crate) const PROJECT_AGENTS: &str = ".brigade/agents";

/// Folders with the user's agents. The default has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentFolders {
    /// Folder of Brigade's agents: `$BRIGADE_HOME/agents`, or `agents` beside the configuration.
    pub(crate) user: Option<PathBuf>,
    /// Home folder, for the agent folders of other programs.
    pub(crate) home: Option<PathBuf>,
    /// Folders of `agents.paths`.
    pub(crate) paths: Vec<PathBuf>,
}

impl AgentFolders {
    pub(super) fn of(environment: &Environment, paths: &[String]) -> AgentFolders {
        let home = environment.home();
        let path = |path: &String| match (path.strip_prefix("~/"), home) {
            (Some(below), Some(home)) => home.join(below),
            _ => environment.absolute(Path::new(path)),
        };
        AgentFolders {
            user: environment.config_folder().map(|folder| folder.join("agents")),
            home: home.map(Path::to_owned),
            paths: paths.iter().map(path).collect(),
        }
    }
}

/// Folders that are searched for agents, in order of precedence. An untrusted project is not included.
pub(crate) fn agent_dirs(
    home: &AgentFolders,
    project: Option<&Path>,
    config_paths: &[PathBuf],
) -> Vec<PathBuf> {
    let other_dirs = |base: Option<&Path>| {
        let base = base.map(Path::to_owned);
        base.into_iter().flat_map(|base| AGENT_DIRS.map(|folder| base.join(folder)))
    };
    let mut dirs: Vec<PathBuf> = project.map(|project| project.join(PROJECT_AGENTS)).into_iter().collect();
    dirs.extend(home.user.clone());
    dirs.extend_from_slice(config_paths);
    dirs.extend(other_dirs(project));
    dirs.extend(other_dirs(home.home.as_deref()));
    // Displayed paths contain no `.` components.
    dirs.iter().map(|dir| dir.components().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_dirs_come_before_home_and_ours_before_others() {
        let home = AgentFolders {
            user: Some("/b/agents".into()),
            home: Some("/h".into()),
            paths: vec!["/more".into()],
        };
        let dirs = agent_dirs(&home, Some(Path::new("/p")), &home.paths);
        let shown: Vec<&str> = dirs.iter().filter_map(|dir| dir.to_str()).collect();
        assert_eq!(
            shown,
            [
                "/p/.brigade/agents",
                "/b/agents",
                "/more",
                "/p/.claude/agents",
                "/p/.opencode/agent",
                "/p/.opencode/agents",
                "/p/.gemini/agents",
                "/p/.codex/agents",
                "/p/.github/agents",
                "/p/.copilot/agents",
                "/p/.cursor/agents",
                "/p/.factory/droids",
                "/h/.claude/agents",
                "/h/.opencode/agent",
                "/h/.opencode/agents",
                "/h/.gemini/agents",
                "/h/.codex/agents",
                "/h/.github/agents",
                "/h/.copilot/agents",
                "/h/.cursor/agents",
                "/h/.factory/droids",
            ]
        );
        let untrusted = agent_dirs(&home, None, &home.paths);
        assert!(!untrusted.iter().any(|dir| dir.starts_with("/p")));
        assert_eq!(agent_dirs(&AgentFolders::default(), None, &[]), Vec::<PathBuf>::new());
    }
}
