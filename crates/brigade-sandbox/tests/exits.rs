//! Exits of commands, their output, and the environment and resources that they have.

use std::time::Duration;

use brigade_sandbox::{ExitReason, GuardCommand, GuardError};

use crate::support::{assert_gone, command_processes, finish, guards, job, text, wait_until};

#[tokio::test]
async fn exit_codes_are_reported() {
    for code in [0, 1, 7, 127, 255] {
        assert_eq!(finish(job(&format!("exit {code}"))).await.unwrap().end, ExitReason::Exited(code));
    }
}

#[tokio::test]
async fn terminating_signal_is_reported() {
    assert_eq!(finish(job("kill -15 $$")).await.unwrap().end, ExitReason::Signalled(15));
    assert_eq!(finish(job("kill -9 $$")).await.unwrap().end, ExitReason::Signalled(9));
}

#[tokio::test]
async fn output_is_interleaved_as_it_came() {
    let finished = finish(job("echo a; echo b >&2; echo c; printf '\\377' >&2; cat")).await.unwrap();
    assert_eq!(finished.output, b"a\nb\nc\n\xff");
    assert_eq!((finished.end, finished.dropped_bytes), (ExitReason::Exited(0), 0));
}

#[tokio::test]
async fn output_is_bounded_to_head_and_tail() {
    let mut job = job("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last");
    job.output_limit = 1000;
    let finished = finish(job).await.unwrap();
    let text = text(&finished);
    assert_eq!((text.len(), finished.dropped_bytes), (1000, 3_000_011 - 1000));
    assert!(text.starts_with("first\nxxx") && text.ends_with("xxxlast\n"), "{text}");
}

#[tokio::test]
async fn output_limit_of_zero_keeps_nothing() {
    let mut job = job("echo nothing");
    job.output_limit = 0;
    let finished = finish(job).await.unwrap();
    assert_eq!((finished.output, finished.dropped_bytes), (Vec::new(), 8));
}

#[tokio::test]
async fn endless_output_is_dropped_until_the_limit() {
    let mut job = job("yes");
    job.time_limit = Duration::from_millis(500);
    job.output_limit = 4096;
    let finished = finish(job).await.unwrap();
    assert_eq!((finished.end, finished.output.len()), (ExitReason::TimedOut, 4096));
    assert!(finished.dropped_bytes > 1 << 20, "the command was blocked: {}", finished.dropped_bytes);
}

#[tokio::test]
async fn large_output_does_not_block_the_command() {
    let mut job = job("yes | head -c 200M; echo; echo done");
    job.output_limit = 100;
    let finished = finish(job).await.unwrap();
    assert_eq!(finished.end, ExitReason::Exited(0));
    assert!(text(&finished).ends_with("y\n\ndone\n"));
}

#[tokio::test]
async fn command_that_closes_its_output_continues() {
    let finished = finish(job("echo before; exec >&- 2>&-; sleep 0.3; exit 4")).await.unwrap();
    assert_eq!((finished.end, text(&finished).as_str()), (ExitReason::Exited(4), "before\n"));
    assert!(finished.duration >= Duration::from_millis(300));
}

#[tokio::test]
async fn environment_is_exactly_that_of_the_job() {
    assert!(std::env::vars_os().count() > 0, "there must be something to hide");
    let job = job("env; cat /proc/$PPID/environ; echo \"guard: $(wc -c </proc/$PPID/environ)\"");
    let path = job.environment[0].1.clone();
    let tag = job.tag.clone();
    let finished = finish(job).await.unwrap();
    let mut lines: Vec<String> = text(&finished).lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [format!("PATH={path}"), "PWD=/".into(), format!("TEST_MARK={tag}"), "guard: 0".into()];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn command_inherits_only_standard_streams() {
    use std::os::fd::AsFd;
    // Without close-on-exec, as a careless library or the shell would leave it.
    let file = std::fs::File::open("/dev/null").unwrap();
    let open = rustix::io::dup(file.as_fd()).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    // The pause lets the guard close its copies of the command's streams.
    let command = "cd /proc/self/fd; echo *; sleep 0.3; ls -l /proc/$PPID/fd | grep -c /dev/null";
    let finished = finish(job(command)).await.unwrap();
    // The shell opens the directory to expand the pattern, which is the fourth descriptor. The guard has only
    // its standard error there.
    assert_eq!(text(&finished), "0 1 2 3\n1\n");
}

#[tokio::test]
async fn resource_limits_apply() {
    let mut job =
        job("ulimit -c; ulimit -n; ulimit -f; ulimit -v; ulimit -t; grep NoNewPrivs /proc/self/status");
    job.limits.memory_bytes = Some(1 << 30);
    job.limits.cpu_seconds = Some(5);
    job.limits.open_files = Some(99);
    let finished = finish(job).await.unwrap();
    let blocks = (4u64 << 30) / 512;
    assert_eq!(text(&finished), format!("0\n99\n{blocks}\n1048576\n5\nNoNewPrivs:\t1\n"));
}

#[tokio::test]
async fn cpu_limit_ends_with_sigxcpu() {
    let mut job = job("while :; do :; done");
    job.limits.cpu_seconds = Some(1);
    assert_eq!(finish(job).await.unwrap().end, ExitReason::Signalled(24));
}

#[tokio::test]
async fn signal_dispositions_are_reset() {
    let finished = finish(job("grep -hE 'Sig(Blk|Ign)' /proc/self/status | cut -f2")).await.unwrap();
    // Signals 32 and 33 are reserved by the C library and cannot be changed.
    let changed = |line: &str| u64::from_str_radix(line, 16).unwrap() & !0x1_8000_0000;
    assert_eq!(text(&finished).lines().map(changed).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn time_limit_ends_the_command() {
    let mut job = job("echo out; sleep 1000");
    job.time_limit = Duration::from_millis(300);
    let tag = job.tag.clone();
    let finished = finish(job).await.unwrap();
    assert_eq!((finished.end, text(&finished).as_str()), (ExitReason::TimedOut, "out\n"));
    assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
    assert_gone(&tag);
}

#[tokio::test]
async fn missing_directory_is_named() {
    let mut job = job("echo never");
    job.directory = "/no/such/directory".into();
    let error = finish(job).await.unwrap_err();
    assert!(matches!(error, GuardError::Directory { .. }), "{error:?}");
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}

#[tokio::test]
async fn missing_guard_program_is_named() {
    let missing = GuardCommand { program: "/no/such/guard".into(), arguments: Vec::new() };
    let error = brigade_sandbox::run(&missing, job("echo never"), std::future::pending()).await.unwrap_err();
    assert!(matches!(error, GuardError::CannotStart { .. }), "{error:?}");
    assert!(error.to_string().contains("/no/such/guard"), "{error}");
}

#[tokio::test]
async fn program_that_is_not_a_guard_is_an_error() {
    for (program, arguments) in [("/bin/true", vec![]), ("/bin/sh", vec!["-c".into(), "yes".into()])] {
        let other = GuardCommand { program: program.into(), arguments };
        let error =
            brigade_sandbox::run(&other, job("echo never"), std::future::pending()).await.unwrap_err();
        assert!(matches!(error, GuardError::Died { .. } | GuardError::Protocol { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn invalid_jobs_are_refused() {
    for tag in ["", "a b", "-x", "a\0", "ä"] {
        let mut job = job("echo never");
        job.tag = tag.into();
        assert!(matches!(finish(job).await, Err(GuardError::InvalidJob { .. })), "{tag}");
    }
    let mut bad = job("echo never");
    bad.environment.push(("A=B".into(), String::new()));
    assert!(matches!(finish(bad).await, Err(GuardError::InvalidJob { .. })));
    assert!(matches!(finish(job("echo \0")).await, Err(GuardError::InvalidJob { .. })));
    let long = format!(": {}", "x".repeat(200_000));
    assert!(matches!(finish(job(&long)).await, Err(GuardError::CannotRun { .. })));
}

#[tokio::test]
async fn killed_guard_is_an_error() {
    let job = job("kill -9 $PPID; sleep 1000");
    let tag = job.tag.clone();
    let error = finish(job).await.unwrap_err();
    assert!(matches!(error, GuardError::Died { .. }), "{error:?}");
    assert_eq!(guards(&tag), Vec::<i32>::new());
    let sleeper = command_processes(&tag);
    // The main process dies with its guard. Processes that it started before do not, as the error says.
    wait_until("the main process is gone", || command_processes(&tag).len() <= 1).await;
    for pid in sleeper {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        );
    }
}
