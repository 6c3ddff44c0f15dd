//! Directories whose changes are discarded, with layers on disk.

use std::fs;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use brigade_sandbox::{
    Confinement, Enforcement, ExitReason, GuardCommand, JobResult, Layers, Sandbox, remove_tree, run,
};

use crate::sandbox::{ORDINARY_USER, OrdinaryGuard, Place};
use crate::support::{guard, guards, job, text, wait_until, wait_until_running};

/// A cache in the home directory, and layers for it.
fn prepare(place: &Place) -> Arc<Layers> {
    fs::create_dir_all(place.path("home/.cache/old")).unwrap();
    fs::write(place.path("home/.cache/old/file"), "old").unwrap();
    fs::create_dir(place.path("layers")).unwrap();
    Arc::new(Layers::below(place.path("layers"), vec![place.path("home/.cache")]))
}

/// A sandbox that can change the cache.
fn sandbox(place: &Place) -> Sandbox {
    Sandbox { discarded: vec![place.path("home/.cache").into()], ..place.sandbox() }
}

async fn run_with(
    guard: &GuardCommand,
    place: &Place,
    sandbox: Sandbox,
    layers: &Arc<Layers>,
    command: &str,
) -> JobResult {
    let mut job = job(command).layers(Some(layers.clone()));
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(sandbox));
    run(guard, job, pending()).await.unwrap()
}

/// Asserts that the cache of the host is as it was.
fn assert_unchanged(place: &Place) {
    assert_eq!(fs::read_to_string(place.path("home/.cache/old/file")).unwrap(), "old");
    assert_eq!(fs::read_dir(place.path("home/.cache")).unwrap().count(), 1);
}

/// Directories for single commands.
fn own_directories(place: &Place) -> usize {
    let names = fs::read_dir(place.path("layers")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("command-")).count()
}

#[tokio::test]
async fn commands_share_the_changes_of_a_cache() {
    let (place, guard) = (&Place::new(), &guard());
    let layers = prepare(place);
    let cache = place.path("home/.cache");
    let cache = cache.display();
    let run = |command: String| {
        let layers = layers.clone();
        async move { run_with(guard, place, sandbox(place), &layers, &command).await }
    };
    // Whole directories are replaced, which needs whiteouts and opaque directories.
    let first = run(format!(
        "cd {cache} && rm -r old && mkdir old && echo new > old/new && echo one > one && ls old"
    ))
    .await;
    assert_eq!((first.end, first.enforcement), (ExitReason::Exited(0), Enforcement::Namespaces));
    assert_eq!(text(&first), "new\n");
    assert_eq!(
        text(&run(format!("cd {cache} && ls old . && cat one")).await),
        ".:\nold\none\n\nold:\nnew\none\n"
    );
    // Two commands at the same time see each other's changes.
    let wait = "for i in $(seq 500); do [ -e $f ] && break; sleep 0.02; done; [ -e $f ] && echo seen";
    let (left, right) = tokio::join!(
        run(format!("cd {cache} && touch left; f=right; {wait}")),
        run(format!("cd {cache} && touch right; f=left; {wait}")),
    );
    assert_eq!((text(&left).as_str(), text(&right).as_str()), ("seen\n", "seen\n"));
    let direct = run(format!("ls -R {} 2>&1", place.path("layers").display())).await;
    assert!(text(&direct).contains("Permission denied"), "{}", text(&direct));
    assert_unchanged(place);
    drop(layers);
    remove_tree(&place.path("layers")).unwrap();
    assert!(!place.path("layers").exists());
}

#[tokio::test]
async fn ordinary_users_share_changes_too() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let place = Place::new_in(Path::new("/tmp"));
    let layers = prepare(&place);
    let names = ["", "home", "home/.cache", "home/.cache/old", "layers", "project", "project/src"];
    for name in names {
        std::os::unix::fs::chown(place.path(name), Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ordinary = OrdinaryGuard::new();
    let (cache, project) = (place.path("home/.cache"), place.path("project"));
    let sandbox = Sandbox {
        writable: Vec::new(),
        protected: Vec::new(),
        hidden: Vec::new(),
        discarded: vec![cache.clone().into(), project.clone().into()],
        ..place.sandbox()
    };
    let command = format!(
        "id -u; cd {} && rm -r old && mkdir old && echo new > old/new && ls old; cd {} && rm -r src && mkdir src && \
         echo x > src/x && chmod 0 src && echo done",
        cache.display(),
        project.display()
    );
    let first = run_with(&ordinary.guard, &place, sandbox.clone(), &layers, &command).await;
    assert_eq!(text(&first), format!("{ORDINARY_USER}\nnew\ndone\n"));
    let command = format!("ls {}/old; ls -A src", cache.display());
    let second = run_with(&ordinary.guard, &place, sandbox, &layers, &command).await;
    assert_eq!(text(&second), "new\n");
    assert_unchanged(&place);
    assert_eq!(own_directories(&place), 0, "a directory without permissions is removed too");
}

#[tokio::test]
async fn changes_that_are_not_shared_end_with_the_command_and_are_on_disk() {
    let place = Place::new();
    let layers = prepare(&place);
    let project = place.path("project");
    let mut sandbox = Sandbox {
        writable: Vec::new(),
        discarded: vec![project.clone().into(), place.path("home/.cache").into()],
        ..place.sandbox()
    };
    // A directory and a path in it, both missing.
    sandbox.protected.push(project.join(".claude").into());
    let command = "echo new > src/new; mkdir -p .brigade .claude/agents; echo pwned > .brigade/config.toml; \
                   echo pwned > .claude/agents/a.md; echo pwned >> .git/config; cat .env; cat .git/config .brigade/* .claude/*/* .claude/*; \
                   grep -c \" $PWD overlay .*upperdir=.*/disk/\" /proc/self/mounts; cat src/new";
    let result = run_with(&guard(), &place, sandbox.clone(), &layers, command).await;
    let output = text(&result);
    assert!(output.ends_with("\n1\nnew\n"), "{output}");
    assert!(!output.contains("CANARY"), "{output}");
    assert!(!output.contains("pwned"), "{output}");
    assert_eq!(place.entries(), [".env", ".git", "src"]);
    assert_eq!(fs::read_to_string(project.join(".git/config")).unwrap(), "[core]\n");
    let again = run_with(&guard(), &place, sandbox, &layers, "ls src; ls -A .brigade .claude").await;
    assert!(!text(&again).contains("new") && !text(&again).contains("config.toml"), "{}", text(&again));
    assert_eq!(own_directories(&place), 0);
    assert_unchanged(&place);
}

/// While a command runs, nothing of a workspace whose changes are discarded changes on the host.
#[tokio::test]
async fn killed_guard_leaves_a_discarded_workspace_as_it_was() {
    let place = Place::new();
    let layers = prepare(&place);
    let mut job = job("echo x > src/new; sleep 600").layers(Some(layers.clone()));
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(Sandbox {
        writable: Vec::new(),
        discarded: vec![place.path("project").into()],
        ..place.sandbox()
    }));
    let tag = job.tag.clone();
    let running = tokio::spawn(async move { run(&guard(), job, pending()).await });
    wait_until_running(&tag, 1).await;
    assert_eq!(place.entries(), [".env", ".git", "src"]);
    assert_eq!(own_directories(&place), 1);
    for pid in guards(&tag) {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    running.await.unwrap().unwrap_err();
    wait_until("all are gone", || crate::support::command_processes(&tag).is_empty()).await;
    assert_eq!(place.entries(), [".env", ".git", "src"]);
    drop(layers);
    remove_tree(&place.path("layers")).unwrap();
}

/// A file system that cannot hold an upper layer, such as one of these layers themselves.
#[tokio::test]
async fn layers_that_cannot_be_on_disk_are_in_memory() {
    let place = Place::new();
    prepare(&place);
    let layers = Arc::new(Layers::below("/proc/self", vec![place.path("home/.cache")]));
    let cache = place.path("home/.cache");
    let command = format!("echo x > {0}/new && cat {0}/new", cache.display());
    for _ in 0..2 {
        let result = run_with(&guard(), &place, sandbox(&place), &layers, &command).await;
        assert_eq!(text(&result), "x\n");
    }
    assert_unchanged(&place);
}

/// The overlays of shared layers live as long as their namespaces.
#[tokio::test]
async fn shared_layers_end_with_their_value() {
    let place = Place::new();
    let layers = prepare(&place);
    let namespaces = || {
        let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("mnt:[")).collect::<Vec<_>>()
    };
    let before = namespaces();
    run_with(&guard(), &place, sandbox(&place), &layers, "true").await;
    // Other tests of this process may hold namespaces too.
    let held: Vec<_> = namespaces().into_iter().filter(|link| !before.contains(link)).collect();
    assert!(!held.is_empty());
    drop(layers);
    wait_until("namespaces are released", || held.iter().any(|held| !namespaces().contains(held))).await;
}
