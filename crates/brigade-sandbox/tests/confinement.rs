//! Confinements that the guard cannot enforce.

use std::ffi::OsString;
use std::fs;
use std::future::pending;
use std::os::unix::ffi::OsStringExt;

use brigade_sandbox::{Confinement, Folders, GuardError, Job, serve};
use tokio::io::AsyncReadExt;

use crate::support::{assert_gone, finish, guard, job};

/// Every restriction alone, each of which the guard cannot enforce.
fn unenforceable() -> Vec<Confinement> {
    let none = Confinement::none;
    let not_utf8 = OsString::from_vec(b"/tmp/\xff".to_vec());
    vec![
        Confinement { readable: Folders::Only(vec!["/".into()]), ..none() },
        Confinement { writable: Folders::Only(Vec::new()), ..none() },
        Confinement { writable: Folders::Only(vec![not_utf8]), ..none() },
        Confinement { network: false, ..none() },
    ]
}

/// A command that leaves a file behind if it runs, and that file.
fn job_with_trace(folder: &tempfile::TempDir, confinement: &Confinement) -> (Job, std::path::PathBuf) {
    let mut job = job("echo ran | tee trace");
    job.directory = folder.path().into();
    job.confinement = confinement.clone();
    (job, folder.path().join("trace"))
}

#[tokio::test]
async fn run_without_confinement_runs_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (job, trace) = job_with_trace(&folder, &Confinement::none());
    finish(job).await.unwrap();
    assert_eq!(fs::read_to_string(trace).unwrap(), "ran\n");
}

#[tokio::test]
async fn run_with_unenforceable_confinement_is_refused_before_the_command_runs() {
    for confinement in unenforceable() {
        let folder = tempfile::tempdir().unwrap();
        let (job, trace) = job_with_trace(&folder, &confinement);
        let tag = job.tag.clone();
        let error = finish(job).await.unwrap_err();
        assert!(matches!(error, GuardError::CannotConfine { .. }), "{confinement:?}: {error:?}");
        assert!(error.to_string().contains("cannot enforce the requested confinement"), "{error}");
        assert!(!trace.exists(), "the command ran with {confinement:?}");
        assert_gone(&tag);
    }
}

#[tokio::test]
async fn serve_with_unenforceable_confinement_is_refused_before_the_command_runs() {
    for confinement in unenforceable() {
        let folder = tempfile::tempdir().unwrap();
        let (job, trace) = job_with_trace(&folder, &confinement);
        let (mut stream, run) = serve(guard(), job, pending()).unwrap();
        let mut received = String::new();
        let (finished, read) = tokio::join!(run, stream.read_to_string(&mut received));
        read.unwrap();
        assert!(matches!(finished, Err(GuardError::CannotConfine { .. })), "{confinement:?}: {finished:?}");
        assert_eq!((received.as_str(), trace.exists()), ("", false), "{confinement:?}");
    }
}
