//! Environment that is described to the lead: system, date and git state.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use brigade_core::delegation::Environment;
use brigade_sandbox::{Confinement, ExitReason, Job};

use crate::clock;
use crate::settings::Settings;
use crate::setup;
use crate::trust::instructions::git_root;

/// Maximum time for git. If it takes longer, the prompt does not contain the state.
const GIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of changed files that are counted.
const MAX_COUNTED_FILES: usize = 999;

/// Prints the branch, and the state unless the repository defines filters, which git would run. Runs nothing else from
/// the repository's configuration, and writes nothing.
const GIT_SCRIPT: &str = r##"
git="git --no-optional-locks -c core.fsmonitor=false -c core.hooksPath=/dev/null"
filters=$($git config --show-scope --name-only --get-regexp '^filter\.')
case $? in
    0 | 1) ;;
    *) filters=local ;;
esac
if printf '%s\n' "$filters" | grep -qE '^(local|worktree)'; then
    echo "# branch.head $($git branch --show-current)"
    echo "# state unknown"
else
    $git status --porcelain=v2 --branch --ignore-submodules=all | head -n 1100
fi
"##;

/// Environment of a session that starts now.
pub(crate) async fn environment(settings: &Settings) -> Environment {
    let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let now = clock::format_utc(clock::now());
    let date = now.split(' ').next().unwrap_or_default();
    Environment {
        system: format!("{system}, {machine}"),
        date: format!("{date} (UTC)"),
        git: git_state(settings, &settings.folder).await,
    }
}

/// Branch and state of the git repository that contains a folder.
async fn git_state(settings: &Settings, folder: &Path) -> Option<String> {
    git_root(&folder.canonicalize().ok()?)?;
    let mut environment = settings.command_environment();
    // These would point git to another repository.
    environment.retain(|(name, _)| !name.starts_with("GIT_"));
    let tag = format!("git:{}", std::process::id());
    let job = Job::new(GIT_SCRIPT, folder, tag, Confinement::None)
        .environment(environment)
        .time_limit(GIT_TIMEOUT)
        .output_limit(1 << 20);
    let finished = brigade_sandbox::run(&setup::guard_command().ok()?, job, pending()).await.ok()?;
    match finished.end {
        ExitReason::Exited(0) => describe_status(&String::from_utf8_lossy(&finished.output)),
        _ => Some("repository, state unknown".to_owned()),
    }
}

/// One line from the output of `git status --porcelain=v2 --branch`.
fn describe_status(output: &str) -> Option<String> {
    let branch = output.lines().find_map(|line| line.strip_prefix("# branch.head "))?.trim();
    let branch = match branch {
        "(detached)" | "" => "detached HEAD".to_owned(),
        name => format!("branch {name}"),
    };
    let count = |kinds: &[&str]| {
        output.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).count()
    };
    let files = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 file {what}")),
        number if number > MAX_COUNTED_FILES => Some(format!("more than {MAX_COUNTED_FILES} files {what}")),
        number => Some(format!("{number} files {what}")),
    };
    let state: Vec<String> =
        [files(count(&["1 ", "2 ", "u "]), "changed"), files(count(&["? "]), "untracked")]
            .into_iter()
            .flatten()
            .collect();
    Some(match state.is_empty() {
        _ if output.contains("# state unknown") => branch,
        true => format!("{branch}, clean"),
        false => format!("{branch}, {}", state.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describe_status_fits_one_line() {
        let of = |lines: &str| describe_status(lines).unwrap();
        assert_eq!(of("# branch.oid 1\n# branch.head main\n"), "branch main, clean");
        assert_eq!(
            of("# branch.head a/b\n1 .M N... x\n2 R. y\nu UU z\n? new\n"),
            "branch a/b, 3 files changed, 1 file untracked"
        );
        assert_eq!(of("# branch.head (detached)\n? a\n? b\n"), "detached HEAD, 2 files untracked");
        assert_eq!(of("# branch.head main\n# state unknown\n"), "branch main");
        let many = "# branch.head m\n".to_owned() + &"1 x\n".repeat(1_050);
        assert_eq!(of(&many), "branch m, more than 999 files changed");
        assert_eq!(describe_status(""), None);
    }
}
