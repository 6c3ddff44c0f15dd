//! Many commands one after the other and at the same time, after which nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use brigade_sandbox::{Confinement, ExitReason, Layers, Sandbox, SandboxLimits, remove_tree};

use crate::sandbox::Place;
use crate::support::{assert_gone, finish, job, text, wait_until};

/// Number of commands at the same time.
const PARALLEL: usize = 4;

fn commands() -> usize {
    if std::env::var_os("THOROUGH").is_some() { 1000 } else { 60 }
}

/// Mounts of this namespace, open descriptors, and groups: what a command could leave behind outside of its directories.
fn traces() -> (String, usize, BTreeSet<PathBuf>) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let groups = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let groups = groups.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let groups = groups.flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
    let groups = groups.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    (mounts.clone(), mounts.lines().count(), groups)
}

#[tokio::test]
async fn many_commands_leave_nothing_behind() {
    let place = Place::new();
    fs::create_dir_all(place.path("home/.cache")).unwrap();
    fs::create_dir_all(place.path("tree/layers")).unwrap();
    fs::create_dir_all(place.path("tree/tmp")).unwrap();
    let (mounts, _, _) = traces();
    let layers = Arc::new(Layers::below(place.path("tree/layers"), vec![place.path("home/.cache")]));
    let limits =
        SandboxLimits { processes: Some(1000), memory_bytes: Some(1 << 30), free_disk_bytes: Some(1) };
    let plain = Sandbox {
        temporary: Some(place.path("tree/tmp").into()),
        discarded: vec![place.path("home/.cache").into()],
        limits,
        ..place.sandbox()
    };
    let discarding = Sandbox {
        discarded: vec![place.path("home/.cache").into(), place.path("project").into()],
        writable: Vec::new(),
        ..plain.clone()
    };
    let cache = place.path("home/.cache");
    let mut names = BTreeSet::new();
    for round in 0..commands() / PARALLEL {
        let mut running = tokio::task::JoinSet::new();
        for number in 0..PARALLEL {
            let command = format!(
                "(setsid sleep 600 &); echo x > /tmp/{round}-{number}; echo x > {}/{round}-{number}; mkdir -p made; \
                 cat /proc/self/cgroup; echo end",
                cache.display()
            );
            let mut job = job(&command).layers(Some(layers.clone()));
            job.directory = place.path("project");
            let sandbox = if number % 2 == 0 { &plain } else { &discarding };
            job.confinement = Confinement::Sandbox(Box::new(sandbox.clone()));
            running.spawn(async move {
                let tag = job.tag.clone();
                (tag, finish(job).await.unwrap())
            });
        }
        for (tag, result) in running.join_all().await {
            let output = text(&result);
            assert_eq!(result.end, ExitReason::Exited(0), "{output}");
            assert!(output.ends_with("end\n"), "{output}");
            assert_gone(&tag);
            let groups = output.lines().filter_map(|line| line.rsplit_once("/brigade-sandbox-"));
            names.extend(groups.map(|(_, name)| format!("brigade-sandbox-{name}")));
        }
        assert_eq!(place.entries(), [".env", ".git", "made", "src"], "round {round}");
    }
    let kept = fs::read_dir(place.path("tree/layers")).unwrap().map(|entry| entry.unwrap().file_name());
    let kept: Vec<_> = kept.collect();
    assert!(kept.len() == 1 && kept[0].to_string_lossy().starts_with("shared-"), "{kept:?}");
    assert_eq!(fs::read_dir(place.path("tree/tmp")).unwrap().count(), commands() / PARALLEL * PARALLEL);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    drop(layers);
    remove_tree(&place.path("tree")).unwrap();
    assert_eq!(traces().0, mounts);
    // Groups of commands of other tests come and go.
    let is_left =
        |group: &PathBuf| group.file_name().is_some_and(|name| names.contains(&*name.to_string_lossy()));
    wait_until("the control groups are gone", || !traces().2.iter().any(is_left)).await;
}
