//! Files and links that a command creates for programs of the user are removed after it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use brigade_sandbox::{JobResult, Sandbox};

use crate::sandbox::{ORDINARY_USER, OrdinaryGuard, Place, run_by};
use crate::support::guard;

/// A place with a repository, and a sandbox that forbids its redirection and an instruction file.
fn repository(place: Place) -> (Place, Sandbox) {
    fs::write(place.path("project/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let forbidden = ["project/.git/commondir", "project/AGENTS.md"].map(|name| place.path(name).into());
    let sandbox = Sandbox { forbidden: forbidden.into(), ..place.sandbox() };
    (place, sandbox)
}

fn removed(result: &JobResult) -> Vec<String> {
    result.removed.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// git writes the message of a commit through a link.
#[tokio::test]
async fn links_that_lead_out_of_a_git_directory_are_deleted() {
    let (place, sandbox) = repository(Place::new());
    let git = place.path("project/.git");
    symlink("/etc/hostname", git.join("of-the-user")).unwrap();
    let command = "ln -s ../../outside/file .git/COMMIT_EDITMSG; mkdir -p .git/logs/refs; ln -s /etc/passwd .git/logs/HEAD; \
                   ln -s ../HEAD .git/logs/inside; ln -s ../../../.. .git/logs/refs/up; ln -sf /etc/passwd .git/of-the-user2";
    let result = run_by(&guard(), &place, sandbox, command).await.unwrap();
    let mut found = removed(&result);
    found.sort();
    let names = ["COMMIT_EDITMSG", "logs/HEAD", "logs/refs/up", "of-the-user2"];
    let expected: Vec<String> =
        names.iter().map(|name| format!("{} (a link, deleted)", git.join(name).display())).collect();
    assert_eq!(found, expected);
    for name in names {
        assert!(git.join(name).symlink_metadata().is_err(), "{name}");
    }
    assert!(git.join("of-the-user").is_symlink() && git.join("logs/inside").is_symlink());
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
}

#[tokio::test]
async fn names_that_a_command_has_taken_do_not_keep_a_forbidden_file() {
    let (place, sandbox) = repository(Place::new());
    let command = "touch AGENTS.md.removed; for i in $(seq 2 1200); do : > AGENTS.md.removed-$i; done; echo evil > AGENTS.md";
    let result = run_by(&guard(), &place, sandbox, command).await.unwrap();
    assert_eq!(removed(&result), [place.path("project/AGENTS.md").display().to_string()]);
    assert!(!place.path("project/AGENTS.md").exists());
    let kept = place.entries().iter().filter(|name| name.starts_with("AGENTS.md.removed")).count();
    assert_eq!(kept, 1201, "nothing is lost");
}

/// An ordinary user cannot change a directory without write permission, but its owner can change the permission.
#[tokio::test]
async fn permissions_that_a_command_removed_do_not_keep_a_forbidden_file() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    // The test user may not be allowed to enter the directory of the tests.
    let (place, sandbox) = repository(Place::new_in(Path::new("/tmp")));
    for name in ["", "project", "project/src", "project/.git", "project/.git/hooks", "outside"] {
        chown(place.path(name), Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ordinary = OrdinaryGuard::new();
    let command = "echo evil > AGENTS.md; echo ../evil > .git/commondir; chmod 555 .git .; echo done";
    let result = run_by(&ordinary.guard, &place, sandbox, command).await.unwrap();
    assert_eq!(removed(&result).len(), 2, "{:?}", result.removed);
    assert!(!place.path("project/AGENTS.md").exists() && !place.path("project/.git/commondir").exists());
    assert_eq!(place.entries(), [".env", ".git", "AGENTS.md.removed", "src"], "no placeholder is left");
    let mode = fs::metadata(place.path("project")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o555, "the permissions are those that the command chose");
    fs::set_permissions(place.path("project"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.path("project/.git"), fs::Permissions::from_mode(0o755)).unwrap();
}
