//! Commands in a sandbox: what they can do, and what they cannot do.

use std::ffi::OsString;
use std::fs;
use std::future::pending;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade_sandbox::{
    Confinement, Enforcement, ExitReason, GuardCommand, GuardError, JobResult, Network, Sandbox,
    SandboxLimit, SandboxLimits, run, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::probe::{guard_that_cannot, probe};
use crate::support::{assert_gone, finish, guard, guards, job, text, wait_until, wait_until_running};

/// A home with secrets, a project with a repository, and a directory outside.
pub(crate) struct Place {
    root: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place::new_in(&directory_outside_tmp())
    }

    pub(crate) fn new_in(directory: &Path) -> Place {
        let root = tempfile::tempdir_in(directory).unwrap();
        let place = Place { root };
        for directory in ["project/.git/hooks", "project/src", "outside", "home/.ssh"] {
            fs::create_dir_all(place.path(directory)).unwrap();
        }
        fs::write(place.path("project/.git/config"), "[core]\n").unwrap();
        fs::write(place.path("project/.env"), "CANARY").unwrap();
        fs::write(place.path("home/.ssh/id"), "CANARY").unwrap();
        fs::write(place.path("outside/file"), "outside").unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// A sandbox as a session has it.
    pub(crate) fn sandbox(&self) -> Sandbox {
        let protected = |name: &str| self.path(name).into();
        Sandbox {
            writable: vec![self.path("project").into()],
            // The tests and their program may be below /tmp.
            visible: vec![
                self.root.path().canonicalize().unwrap().into(),
                std::env::current_exe().unwrap().canonicalize().unwrap().into(),
            ],
            protected: vec![
                protected("project/.git/hooks"),
                protected("project/.git/config"),
                protected("project/.brigade"),
                protected("project/.claude/agents"),
                protected("project/.mcp.json"),
            ],
            hidden: vec![self.path("project/.env").into(), self.path("home/.ssh").into()],
            ..Sandbox::default()
        }
    }

    async fn run(&self, command: &str) -> JobResult {
        self.run_in(self.sandbox(), command).await
    }

    async fn run_in(&self, sandbox: Sandbox, command: &str) -> JobResult {
        self.try_run_in(sandbox, command).await.unwrap()
    }

    async fn try_run_in(&self, sandbox: Sandbox, command: &str) -> Result<JobResult, GuardError> {
        let mut job = job(command);
        job.directory = self.path("project");
        job.confinement = Confinement::Sandbox(Box::new(sandbox));
        finish(job).await
    }

    /// Names in the project.
    pub(crate) fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("project")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A directory that is not below the private ones.
fn directory_outside_tmp() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Results of a probe.
fn probed(result: &JobResult) -> Vec<String> {
    let output = text(result);
    output.lines().filter_map(|line| line.strip_prefix("probe: ")).map(str::to_owned).collect()
}

/// Exit code and output.
fn seen(result: &JobResult) -> (ExitReason, String) {
    (result.end, text(result))
}

#[tokio::test]
async fn writes_reach_the_writable_directory_and_nothing_else() {
    let place = Place::new();
    let result = place.run("echo in > src/new && cat src/new; echo out > ../outside/file; echo $?").await;
    assert_eq!(result.enforcement, Enforcement::Namespaces);
    assert!(text(&result).starts_with("in\n"), "{}", text(&result));
    assert!(text(&result).contains("Read-only file system"), "{}", text(&result));
    assert_eq!(fs::read_to_string(place.path("project/src/new")).unwrap(), "in\n");
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
}

#[tokio::test]
async fn exit_codes_and_signals_pass_through() {
    let place = Place::new();
    assert_eq!(place.run("exit 42").await.end, ExitReason::Exited(42));
    assert_eq!(place.run("kill -TERM $$").await.end, ExitReason::Signalled(15));
    assert_eq!(place.run("kill -KILL $$").await.end, ExitReason::Signalled(9));
    let missing = place.run("/no/such/program").await;
    assert_eq!(missing.end, ExitReason::Exited(127));
}

#[tokio::test]
async fn protected_paths_stay_as_they_are() {
    let place = Place::new();
    let attacks = [
        "echo pwned > .git/hooks/pre-commit",
        "echo pwned >> .git/config",
        "rm -rf .git/hooks",
        "rm .git/config",
        "mv .git .g2; mkdir -p .git/hooks && echo pwned > .git/hooks/pre-commit",
        "mv .git/hooks .git/h2; mkdir .git/hooks && echo pwned > .git/hooks/pre-commit",
        "ln -sfn /tmp/x .git/hooks",
        "ln -f src/new .git/config",
        "mkdir -p .brigade && echo pwned > .brigade/config.toml",
        "mv src .brigade",
        "rmdir .brigade; mkdir .brigade && echo pwned > .brigade/config.toml",
        "mkdir -p .claude/agents && echo pwned > .claude/agents/a.md",
        "ln -s /tmp .claude",
        "echo pwned > .mcp.json",
        "rm -f .mcp.json; echo pwned > .mcp.json",
        "mv src .mcp.json",
        "cd .. && mv project p2",
        "chmod 777 .git/hooks .git/config",
        &probe("rename .git x"),
        "mount -t tmpfs none .git/hooks; umount .git/hooks; umount -l .git",
        "unshare -Urm sh -c 'umount .git/hooks; echo pwned > .git/hooks/pre-commit'",
    ];
    for attack in attacks {
        place.run(&format!("( {attack} ) 2>/dev/null; true")).await;
        assert_eq!(fs::read_dir(place.path("project/.git/hooks")).unwrap().count(), 0, "{attack}");
        assert_eq!(fs::read_to_string(place.path("project/.git/config")).unwrap(), "[core]\n", "{attack}");
        assert_eq!(place.entries(), [".env", ".git", "src"], "{attack}");
    }
}

#[tokio::test]
async fn protected_links_and_their_targets_stay_as_they_are() {
    let place = Place::new();
    let project = place.path("project");
    fs::create_dir_all(project.join("real/agents")).unwrap();
    fs::write(project.join("real/agents/a.md"), "mine").unwrap();
    std::os::unix::fs::symlink("real", project.join(".claude")).unwrap();
    let attacks = [
        "echo pwned > .claude/agents/a.md",
        "echo pwned > real/agents/a.md",
        "ln -sfn src .claude",
        "rm .claude; mkdir -p .claude/agents; echo pwned > .claude/agents/a.md",
        "mv real other",
        "mv real/agents real/x",
    ];
    for attack in attacks {
        place.run(&format!("( {attack} ) 2>/dev/null; true")).await;
        assert_eq!(fs::read_to_string(project.join(".claude/agents/a.md")).unwrap(), "mine", "{attack}");
        assert!(project.join(".claude").is_symlink(), "{attack}");
    }
}

#[tokio::test]
async fn hidden_paths_cannot_be_read_by_any_way() {
    let place = Place::new();
    std::os::unix::fs::symlink(place.path("home/.ssh/id"), place.path("project/link")).unwrap();
    let ssh = place.path("home/.ssh");
    let ssh = ssh.display();
    for attack in [
        "cat .env".into(),
        "cat link".into(),
        format!("cat {ssh}/id"),
        format!("ls {ssh}"),
        format!("cat /proc/self/root{ssh}/id"),
        format!("cat /proc/1/root{ssh}/id"),
        "cp .env /tmp/x && cat /tmp/x".into(),
        "ln .env other && cat other".into(),
        "mv .env other; cat other".into(),
        "tar cf - . 2>/dev/null".into(),
        probe(&format!("read {ssh}/id")),
        "chmod 644 .env; cat .env".into(),
        "unshare -Ur cat .env".into(),
    ] {
        let result = place.run(&format!("( {attack} ) 2>&1")).await;
        assert!(!text(&result).contains("CANARY"), "{attack}: {}", text(&result));
    }
    assert_eq!(fs::read_to_string(place.path("project/.env")).unwrap(), "CANARY");
}

/// A command cannot move a secret to a place where the next command could read it.
#[tokio::test]
async fn hidden_paths_and_their_directories_cannot_be_moved() {
    let place = Place::new();
    fs::create_dir_all(place.path("project/a/b")).unwrap();
    fs::write(place.path("project/a/b/.env"), "CANARY").unwrap();
    let mut sandbox = place.sandbox();
    sandbox.hidden.push(place.path("project/a/b/.env").into());
    let attack = "mv a node_modules; mv a/b a/c; mv a/b/.env x; rm -rf a; ln -sfn /tmp a; cat node_modules/b/.env x 2>&1; true";
    let result = place.run_in(sandbox, attack).await;
    assert!(!text(&result).contains("CANARY"), "{}", text(&result));
    assert_eq!(fs::read_to_string(place.path("project/a/b/.env")).unwrap(), "CANARY");
}

#[tokio::test]
async fn missing_protected_paths_behind_links_cannot_be_created() {
    let place = Place::new();
    let project = place.path("project");
    std::os::unix::fs::symlink("conf/mcp.json", project.join(".mcp.json")).unwrap();
    fs::create_dir(project.join("dot")).unwrap();
    std::os::unix::fs::symlink("dot", project.join(".claude")).unwrap();
    let attack = "mkdir -p conf; echo {} > conf/mcp.json; mkdir dot/agents; echo evil > dot/agents/e.md; \
                  rm .mcp.json .claude; true";
    place.run(attack).await;
    assert!(!project.join(".mcp.json").exists() && !project.join(".claude/agents").exists());
    assert!(project.join(".mcp.json").is_symlink() && project.join(".claude").is_symlink());
    assert!(!project.join("conf").exists(), "the placeholder is gone");
}

#[tokio::test]
async fn forbidden_paths_are_removed_after_the_command() {
    let place = Place::new();
    let sandbox = Sandbox { forbidden: vec![place.path("project/.git/commondir").into()], ..place.sandbox() };
    let result =
        place.run_in(sandbox, "echo ../evil > .git/commondir && git --version >/dev/null && echo done").await;
    assert_eq!(text(&result), "done\n");
    assert_eq!(result.removed, [place.path("project/.git/commondir").into_os_string()]);
    assert!(!place.path("project/.git/commondir").exists());
}

#[tokio::test]
async fn private_directories_in_memory_are_limited() {
    let place = Place::new();
    let limits = SandboxLimits { memory_bytes: Some(64 << 20), ..SandboxLimits::default() };
    for directory in ["/dev/shm", "/run", "/tmp", "/var/tmp"] {
        let sandbox = Sandbox { limits, ..place.sandbox() };
        let result = place.run_in(sandbox, &format!("head -c 100M /dev/zero > {directory}/x; echo $?")).await;
        assert!(text(&result).contains("No space left on device"), "{directory}: {}", text(&result));
    }
}

#[tokio::test]
async fn temporary_directories_are_private_and_discarded() {
    let place = Place::new();
    let mark = format!("brigade-sandbox-{}", std::process::id());
    for directory in ["/tmp", "/var/tmp", "/run", "/dev/shm"] {
        let own = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let name = own.path().display();
        let result = place.run(&format!("echo x > {directory}/{mark} && ls {directory}; ls {name}")).await;
        assert!(text(&result).contains(&mark), "{directory}: {}", text(&result));
        assert!(text(&result).contains("No such file"), "{directory}: {}", text(&result));
        assert!(!Path::new(directory).join(&mark).exists(), "{directory}");
    }
}

#[tokio::test]
async fn directory_of_the_host_can_be_the_temporary_one() {
    let place = Place::new();
    fs::create_dir(place.path("tmp")).unwrap();
    let sandbox = Sandbox { temporary: Some(place.path("tmp").into()), ..place.sandbox() };
    place.run_in(sandbox.clone(), "echo kept > /tmp/file").await;
    assert_eq!(fs::read_to_string(place.path("tmp/file")).unwrap(), "kept\n");
    assert_eq!(text(&place.run_in(sandbox, "cat /tmp/file").await), "kept\n");
}

#[tokio::test]
async fn workspace_below_a_private_directory_is_there() {
    let workspace = tempfile::tempdir_in("/tmp").unwrap();
    let sandbox = Sandbox { writable: vec![workspace.path().into()], ..Sandbox::default() };
    let mut job = job("echo here > file; ls -A /tmp | wc -l");
    job.directory = workspace.path().into();
    job.confinement = Confinement::Sandbox(Box::new(sandbox));
    let result = finish(job).await.unwrap();
    assert_eq!(seen(&result), (ExitReason::Exited(0), "1\n".into()));
    assert_eq!(fs::read_to_string(workspace.path().join("file")).unwrap(), "here\n");
}

#[tokio::test]
async fn changes_of_a_discarded_directory_are_seen_inside_only() {
    let place = Place::new();
    let sandbox =
        Sandbox { writable: Vec::new(), discarded: vec![place.path("project").into()], ..place.sandbox() };
    fs::write(place.path("project/src/old"), "old").unwrap();
    let command = "echo new > src/new; echo changed > src/old; rm -r .git/HEAD 2>/dev/null; mkdir target; \
                   cat src/new src/old; ls";
    let result = place.run_in(sandbox, command).await;
    assert!(text(&result).starts_with("new\nchanged\n"), "{}", text(&result));
    assert!(text(&result).contains("target"), "{}", text(&result));
    assert_eq!(fs::read_to_string(place.path("project/src/old")).unwrap(), "old");
    assert_eq!(place.entries(), [".env", ".git", "src"]);
    assert!(!place.path("project/src/new").exists());
}

#[tokio::test]
async fn network_is_off_and_loopback_is_private() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = probe(&format!("tcp 127.0.0.1:{port}"));
    let off = place.run(&connect).await;
    assert!(text(&off).contains("Connection refused"), "{}", text(&off));
    let on = Sandbox { network: Network::On, ..place.sandbox() };
    assert_eq!(probed(&place.run_in(on, &connect).await), ["connected"]);
    let own = probed(&place.run(&probe("own-network")).await);
    assert_eq!(own[0], "connected");
    assert!(own[1].starts_with("Network is unreachable"), "{own:?}");
    assert!(
        own[2..].iter().all(|line| line.starts_with("Operation not permitted")) && own.len() == 5,
        "{own:?}"
    );
}

#[tokio::test]
async fn proxy_of_a_sandbox_is_served_by_the_runner() {
    let place = Place::new();
    let mut job = job(&format!("echo $HTTPS_PROXY $NO_PROXY $no_proxy; {}", probe("proxy")));
    job.environment.push(("no_proxy".into(), "own".into()));
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(Sandbox { network: Network::Proxy, ..place.sandbox() }));
    let job = job.on_proxy(|listener| {
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut ping = [0; 4];
            std::io::Read::read_exact(&mut client, &mut ping).unwrap();
            assert_eq!(&ping, b"ping");
            client.write_all(b"pong").unwrap();
        });
    });
    let result = finish(job).await.unwrap();
    let first = text(&result).lines().next().unwrap().to_owned();
    assert!(
        first.starts_with("http://127.0.0.1:") && first.ends_with(" localhost,127.0.0.1,::1 own"),
        "{first}"
    );
    assert_eq!(probed(&result), ["pong"]);
}

#[tokio::test]
async fn host_sockets_are_hidden_unless_named() {
    let place = Place::new();
    let named = place.path("outside/named.sock");
    let other = place.path("outside/other.sock");
    let _listeners = [UnixListener::bind(&named).unwrap(), UnixListener::bind(&other).unwrap()];
    let connect = |path: &Path| probe(&format!("unix {}", path.display()));
    let sandbox = Sandbox { sockets: vec![named.clone().into()], ..place.sandbox() };
    assert_eq!(probed(&place.run_in(sandbox.clone(), &connect(&named)).await), ["connected"]);
    let refused = place.run_in(sandbox, &connect(&other)).await;
    assert!(!text(&refused).contains("connected"), "{}", text(&refused));
}

/// Most sockets of the host are below private directories.
#[tokio::test]
async fn named_socket_below_a_private_directory_can_be_reached() {
    let place = Place::new();
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let socket = directory.path().canonicalize().unwrap().join("agent.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let connect = probe(&format!("unix {}", socket.display()));
    assert_ne!(probed(&place.run(&connect).await), ["connected"]);
    let sandbox = Sandbox { sockets: vec![socket.into()], ..place.sandbox() };
    assert_eq!(probed(&place.run_in(sandbox, &connect).await), ["connected"]);
}

#[tokio::test]
async fn abstract_sockets_of_the_host_are_out_of_reach_with_network() {
    use std::os::linux::net::SocketAddrExt;
    let place = Place::new();
    let name = format!("brigade-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = probe(&format!("abstract {name}"));
    for network in [Network::Off, Network::On] {
        let result = place.run_in(Sandbox { network, ..place.sandbox() }, &connect).await;
        assert!(!text(&result).contains("connected"), "{network:?}: {}", text(&result));
    }
}

#[tokio::test]
async fn other_processes_and_the_guard_are_out_of_reach() {
    let place = Place::new();
    let own = std::process::id();
    let result = place
        .run(&format!(
            "ps ax 2>/dev/null | wc -l; kill -0 {own} 2>&1; ls /proc/{own} 2>&1; kill -9 1; echo alive; \
             cat /proc/1/environ 2>&1; cat /proc/1/mem 2>&1 | head -c 1"
        ))
        .await;
    let output = text(&result);
    assert!(output.contains("No such process") && output.contains("No such file"), "{output}");
    assert!(output.contains("alive"), "{output}");
    assert!(output.contains("Permission denied"), "{output}");
}

#[tokio::test]
async fn system_calls_that_could_undo_the_sandbox_are_denied() {
    let place = Place::new();
    let lines = probed(&place.run(&probe("system-calls")).await);
    assert_eq!(lines.len(), if cfg!(target_arch = "x86_64") { 19 } else { 18 }, "{lines:?}");
    for line in &lines[..17] {
        assert!(line.contains(" -1 Operation not permitted"), "{line}");
    }
    for line in &lines[17..] {
        assert!(line.contains(" -1 Function not implemented"), "{line}");
    }
}

#[tokio::test]
async fn no_capability_and_no_privilege_is_left() {
    let place = Place::new();
    let command = "cat /proc/self/status; echo x > /proc/sys/kernel/core_pattern; mknod /tmp/dev b 8 0";
    let status = text(&place.run(command).await);
    for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{field}:\t0000000000000000")), "{field}: {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    assert!(status.contains("core_pattern: Read-only file system"), "{status}");
    assert!(status.contains("Operation not permitted"), "{status}");
}

#[tokio::test]
async fn everything_ends_with_the_command() {
    let place = Place::new();
    let mut job = job("(setsid sleep 600 &) ; (nohup sleep 600 >/dev/null 2>&1 &) ; sleep 0.1; echo done");
    job.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let tag = job.tag.clone();
    assert_eq!(text(&finish(job).await.unwrap()), "done\n");
    assert_gone(&tag);
}

#[tokio::test]
async fn killed_guard_leaves_neither_process_nor_placeholder() {
    let place = Place::new();
    let mut job = job("sleep 600");
    job.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let tag = job.tag.clone();
    let running = tokio::spawn(async move { run(&guard(), job, pending()).await });
    wait_until_running(&tag, 1).await;
    assert_eq!(place.entries(), [".brigade", ".claude", ".env", ".git", ".mcp.json", "src"]);
    for pid in guards(&tag) {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, GuardError::Died { .. }), "{error}");
    wait_until("all are gone", || crate::support::command_processes(&tag).is_empty()).await;
    assert_eq!(place.entries(), [".env", ".git", "src"]);
}

#[tokio::test]
async fn cancel_and_time_limit_end_the_sandbox() {
    let place = Place::new();
    let mut limited = job("sleep 600").time_limit(Duration::from_millis(300));
    limited.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let tag = limited.tag.clone();
    assert_eq!(finish(limited).await.unwrap().end, ExitReason::TimedOut);
    assert_gone(&tag);
    let mut cancelled = job("echo started; sleep 600");
    cancelled.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let tag = cancelled.tag.clone();
    let result = run(&guard(), cancelled, tokio::time::sleep(Duration::from_millis(300))).await.unwrap();
    assert_eq!(seen(&result), (ExitReason::Cancelled, "started\n".into()));
    assert_gone(&tag);
    assert_eq!(place.entries(), [".env", ".git", "src"]);
}

#[tokio::test]
async fn servers_run_in_a_sandbox_and_get_a_termination_signal() {
    let place = Place::new();
    let command =
        "trap 'echo bye >&2; exit 3' TERM; cat; echo x > ../outside/file; while :; do sleep 0.05; done";
    let mut job = job(command);
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (mut stream, run) = serve(guard(), job, async move { drop(stopped.await) }).unwrap();
    let talk = async move {
        stream.write_all(b"hello\n").await.unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello\n");
        stop.send(()).unwrap();
        drop(stream);
    };
    let (result, ()) = tokio::join!(run, talk);
    let result = result.unwrap();
    assert_eq!(result.end, ExitReason::Cancelled);
    assert!(text(&result).ends_with("bye\n"), "{}", text(&result));
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
}

#[tokio::test]
async fn limits_hold_for_all_processes_together() {
    let place = Place::new();
    let with = |limits| Sandbox { limits, ..place.sandbox() };
    let processes = with(SandboxLimits { processes: Some(20), ..SandboxLimits::default() });
    let result = place.run_in(processes, "for i in $(seq 100); do sleep 60 & done; wait").await;
    assert_eq!(result.end, ExitReason::OverLimit(SandboxLimit::Processes));
    let memory = with(SandboxLimits { memory_bytes: Some(100 << 20), ..SandboxLimits::default() });
    let each = probe("memory 60");
    let result = place.run_in(memory, &format!("{each} & {each} & wait")).await;
    assert_eq!(result.end, ExitReason::OverLimit(SandboxLimit::Memory));
    let disk = with(SandboxLimits { free_disk_bytes: Some(u64::MAX), ..SandboxLimits::default() });
    let result = place.run_in(disk, "sleep 60").await;
    assert_eq!(result.end, ExitReason::OverLimit(SandboxLimit::FreeDisk));
}

#[tokio::test]
async fn ordinary_work_succeeds() {
    let place = Place::new();
    let command = "git init -q sub && cd sub && git config user.email a@b && git config user.name n && \
                   echo made | tee file && git add . && git commit -qm one && \
                   git log --format=%s && date +%Y > /dev/null && cat /dev/urandom | head -c 3 | wc -c && \
                   echo $(id -u) && cat <(echo substituted) 2>/dev/null; script -qc 'echo tty' /dev/null 2>/dev/null | tr -d '\\r'";
    let result = place.run(&format!("bash -c '{}'", command.replace('\'', "'\\''"))).await;
    let expected = format!("made\none\n3\n{}\nsubstituted\ntty\n", rustix::process::getuid().as_raw());
    assert_eq!(text(&result), expected);
}

#[tokio::test]
async fn description_that_does_not_fit_is_refused_before_the_command_runs() {
    let place = Place::new();
    let unusable: [(Sandbox, &str); 3] = [
        (Sandbox { writable: vec!["/".into()], ..place.sandbox() }, "contains system directories"),
        (Sandbox { writable: vec!["relative".into()], ..place.sandbox() }, "must be an absolute path"),
        (Sandbox { writable: vec!["/no/such/directory".into()], ..place.sandbox() }, "No such file"),
    ];
    for (sandbox, reason) in unusable {
        let error = place.try_run_in(sandbox, "touch /proc/self/ran; echo ran").await.unwrap_err();
        assert!(matches!(error, GuardError::CannotConfine { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let mut elsewhere = job("true");
    elsewhere.directory = place.path("home/.ssh");
    elsewhere.confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let error = finish(elsewhere).await.unwrap_err();
    assert!(matches!(error, GuardError::Directory { .. }), "{error:?}");
}

#[tokio::test]
async fn placeholders_are_invisible_to_version_control() {
    let place = Place::new();
    let mut sandbox = place.sandbox();
    sandbox.hidden.clear();
    fs::remove_dir_all(place.path("project/.git")).unwrap();
    let init = "git init -q . && git status --porcelain --untracked-files=all";
    sandbox.protected.retain(|protected| !protected.to_string_lossy().contains(".git"));
    let result = place.run_in(sandbox, init).await;
    assert_eq!(seen(&result), (ExitReason::Exited(0), "?? .env\n".into()));
}

#[tokio::test]
async fn command_that_exits_leaves_the_placeholders_of_others() {
    let place = Place::new();
    fs::remove_dir_all(place.path("project/.git")).unwrap();
    let forbidden = vec![place.path("project/.git/commondir").into()];
    let sandbox = Sandbox { forbidden, hidden: Vec::new(), ..place.sandbox() };
    let command = "touch src/started; until [ -e src/go ]; do sleep 0.02; done; \
                   mkdir -p .git/hooks && echo pwned > .git/hooks/x; echo $?";
    let ((), waiting) = tokio::join!(
        async {
            wait_until("it has started", || place.path("project/src/started").exists()).await;
            let result = place.run_in(sandbox.clone(), "true").await;
            assert_eq!(result.removed, Vec::<OsString>::new());
            fs::write(place.path("project/src/go"), "").unwrap();
        },
        place.run_in(sandbox.clone(), command)
    );
    assert!(text(&waiting).ends_with("1\n"), "{}", text(&waiting));
    assert_eq!(waiting.removed, Vec::<OsString>::new());
    assert_eq!(place.entries(), [".env", "src"]);
}

/// User without any privilege.
pub(crate) const ORDINARY_USER: u32 = 65_534;

/// A guard of an ordinary user, if the tests are run by root.
pub(crate) struct OrdinaryGuard {
    pub(crate) guard: GuardCommand,
    _program: tempfile::TempDir,
}

impl OrdinaryGuard {
    pub(crate) fn new() -> OrdinaryGuard {
        let mut arguments: Vec<OsString> =
            ["--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(OsString::from).into();
        let program = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap();
        // Another test may start a process while this one writes a program, which could then not be started.
        let copied =
            std::process::Command::new("cp").arg(guard().program).arg(program.path().join("guard")).status();
        assert!(copied.unwrap().success());
        arguments.push(program.path().join("guard").into());
        OrdinaryGuard {
            guard: GuardCommand { program: "/usr/bin/setpriv".into(), arguments },
            _program: program,
        }
    }
}

/// An ordinary user has the same sandbox as root.
#[tokio::test]
async fn ordinary_users_need_no_privilege() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    // The test user may not be allowed to enter the directory of the tests.
    let place = Place::new_in(Path::new("/tmp"));
    for name in ["", "project", "project/src", "project/.git", "project/.git/hooks", "outside"] {
        std::os::unix::fs::chown(place.path(name), Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ordinary = OrdinaryGuard::new();
    let command = "id -u; echo in > src/new && cat src/new; echo out > ../outside/new; echo pwned > .git/hooks/x; \
                   mkdir .brigade; cat .env; mount -t tmpfs none /tmp; echo end";
    let result = run_by(&ordinary.guard, &place, place.sandbox(), command).await.unwrap();
    let output = text(&result);
    assert_eq!(result.enforcement, Enforcement::Namespaces);
    assert!(output.starts_with("65534\nin\n") && output.ends_with("end\n"), "{output}");
    assert!(!output.contains("CANARY") && !place.path("outside/new").exists(), "{output}");
    assert_eq!(place.entries(), [".env", ".git", "src"]);
    assert_eq!(fs::read_dir(place.path("project/.git/hooks")).unwrap().count(), 0);
}

/// `clone` with a user namespace.
const CLONE: libc::c_long = libc::SYS_clone;
/// `landlock_create_ruleset`.
const LANDLOCK: libc::c_long = libc::SYS_landlock_create_ruleset;

pub(crate) async fn run_by(
    guard: &brigade_sandbox::GuardCommand,
    place: &Place,
    sandbox: Sandbox,
    command: &str,
) -> Result<JobResult, GuardError> {
    let mut job = job(command);
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(sandbox));
    run(guard, job, pending()).await
}

#[tokio::test]
async fn kernel_without_namespaces_is_refused_or_gets_landlock() {
    let place = Place::new();
    let guard = guard_that_cannot(&[CLONE], &guard());
    let strict = run_by(&guard, &place, place.sandbox(), "echo ran").await.unwrap_err();
    assert!(strict.to_string().contains("cannot create namespaces: Operation not permitted"), "{strict}");

    fs::create_dir(place.path("tmp")).unwrap();
    let sandbox =
        Sandbox { allow_landlock_only: true, temporary: Some(place.path("tmp").into()), ..place.sandbox() };
    let command = format!(
        "echo in > src/new; echo pwned > .git/hooks/x; echo pwned >> .git/config; echo pwned > ../outside/file; \
         cat .env ../home/.ssh/id; echo t > $TMPDIR/t; mkdir .claude .brigade; {}; echo end",
        probe("socket")
    );
    let result = run_by(&guard, &place, sandbox, &command).await.unwrap();
    let output = text(&result);
    assert_eq!(result.enforcement, Enforcement::Landlock);
    assert_eq!(fs::read_to_string(place.path("project/src/new")).unwrap(), "in\n", "{output}");
    assert_eq!(fs::read_to_string(place.path("tmp/t")).unwrap(), "t\n", "{output}");
    assert!(!output.contains("CANARY") && output.ends_with("end\n"), "{output}");
    assert!(output.contains("Operation not permitted"), "{output}");
    assert_eq!(fs::read_dir(place.path("project/.git/hooks")).unwrap().count(), 0, "{output}");
    assert_eq!(fs::read_to_string(place.path("project/.git/config")).unwrap(), "[core]\n");
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
    assert_eq!(place.entries(), [".env", ".git", "src"]);
}

/// Without a network namespace, a proxy could be bypassed. The network is off then.
#[tokio::test]
async fn network_through_a_proxy_is_off_without_namespaces() {
    let place = Place::new();
    let guard = guard_that_cannot(&[CLONE], &guard());
    let sandbox = Sandbox { allow_landlock_only: true, network: Network::Proxy, ..place.sandbox() };
    let mut job = job(&format!("echo proxy=$http_proxy; {}", probe("socket")));
    job.directory = place.path("project");
    job.confinement = Confinement::Sandbox(Box::new(sandbox));
    let (sender, listeners) = std::sync::mpsc::channel();
    let job = job.on_proxy(move |listener| drop(sender.send(listener)));
    let result = run(&guard, job, pending()).await.unwrap();
    assert_eq!(result.enforcement, Enforcement::Landlock);
    assert!(text(&result).starts_with("proxy=\n"), "{}", text(&result));
    assert!(probed(&result)[0].starts_with("Operation not permitted"), "{}", text(&result));
    assert!(listeners.try_recv().is_err());
}

#[tokio::test]
async fn protected_paths_that_appeared_under_landlock_are_removed() {
    let place = Place::new();
    let guard = guard_that_cannot(&[CLONE], &guard());
    let missing = place.path("project/src/.brigade").into();
    let sandbox = Sandbox {
        allow_landlock_only: true,
        protected: vec![missing],
        hidden: Vec::new(),
        ..place.sandbox()
    };
    let command = "mkdir -p src/.brigade/agents && echo pwned > src/.brigade/agents/a.md && echo created";
    let result = run_by(&guard, &place, sandbox, command).await.unwrap();
    assert_eq!(text(&result), "created\n");
    assert_eq!(result.removed, [place.path("project/src/.brigade").into_os_string()]);
    assert!(!place.path("project/src/.brigade").exists());
}

/// The paths to remove are those of the workspace, whatever the command put in their place.
#[tokio::test]
async fn removal_under_landlock_follows_no_link() {
    let place = Place::new();
    fs::create_dir_all(place.path("victim/agents")).unwrap();
    fs::write(place.path("victim/agents/a.md"), "mine").unwrap();
    let guard = guard_that_cannot(&[CLONE], &guard());
    let missing =
        ["project/src/.claude/agents", "project/src/deep/.brigade"].map(|name| place.path(name).into());
    fs::create_dir(place.path("project/src/deep")).unwrap();
    let sandbox = Sandbox {
        allow_landlock_only: true,
        protected: missing.into(),
        hidden: Vec::new(),
        ..place.sandbox()
    };
    let command = format!(
        "ln -s {0} src/.claude; mv src/deep src/other; ln -s {0} src/deep; mkdir src/other/.brigade",
        place.path("victim").display()
    );
    run_by(&guard, &place, sandbox, &command).await.unwrap();
    assert_eq!(fs::read_to_string(place.path("victim/agents/a.md")).unwrap(), "mine");
    assert!(!place.path("project/src/.claude").is_symlink());
    assert!(!place.path("project/src/other/.brigade").exists());
}

#[tokio::test]
async fn kernel_without_landlock_still_confines_by_namespaces() {
    let place = Place::new();
    let guard = guard_that_cannot(&[LANDLOCK], &guard());
    let result = run_by(&guard, &place, place.sandbox(), "echo x > ../outside/file; cat .env; echo end")
        .await
        .unwrap();
    assert_eq!(result.enforcement, Enforcement::Namespaces);
    assert!(!text(&result).contains("CANARY"), "{}", text(&result));
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "outside");
    let guard = guard_that_cannot(&[CLONE, LANDLOCK], &crate::support::guard());
    let sandbox = Sandbox { allow_landlock_only: true, ..place.sandbox() };
    let error = run_by(&guard, &place, sandbox, "echo ran").await.unwrap_err();
    assert!(error.to_string().contains("and cannot use Landlock instead"), "{error}");
}
