//! Everyday commands of developers in the sandbox, made by an agent in mode `edit`. None of them needs an approval.

#![expect(clippy::unwrap_used, reason = "tests")]

use brigade_outer_tests::{
    AgentCall, AgentWorkplace, CannedResponse, RecordingServer, User, processes_with, tools,
};
use serde_json::{Value, json};

const SANDBOX: &str = "sandbox.mode=workspace";

/// A repository with a hook of the user and a submodule.
const REPOSITORY: &str = "git init -q -b main ../library && cd ../library
    git -c user.name=Ada -c user.email=ada@example.com commit -q --allow-empty -m library && cd ../work
    git init -q . && git config user.name Ada && git config user.email ada@example.com
    git -c protocol.file.allow=always submodule --quiet add ../library library
    echo one > notes.txt && printf '*\\n!notes.txt\\n' > .gitignore
    printf '#!/bin/sh\\necho the hook ran >> hook.log\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
    git add notes.txt && git commit -qm first";

/// A command, and texts of its output.
type Step = (&'static str, &'static [&'static str]);

const WORK: &[Step] = &[
    (
        "echo two >> notes.txt && git commit -qam second && git log --oneline | wc -l && cat hook.log",
        &["2\n", "the hook ran"],
    ),
    (
        "git switch -qc topic && echo three >> notes.txt && git commit -qam third && git switch -q - && git merge -q topic && \
      git branch -d topic && git stash list && git gc -q && git fsck 2>&1 && git worktree add -q tree && git worktree remove tree",
        &["Deleted branch topic"],
    ),
    (
        "git clone -q . copies/clone && cd copies/clone && git config user.name Eve && git config user.email e@example.com && \
      echo four >> notes.txt && git commit -qam fourth && git push -q origin HEAD:pushed && git log --oneline | wc -l",
        &["4\n"],
    ),
    ("git log --oneline pushed | wc -l && git fetch -q copies/clone", &["4\n"]),
    (
        "mkdir fresh && cd fresh && git init -q . && git config user.name n && echo x > x && git add x && \
      git -c user.email=n@example.com commit -qm x && git log --format=%s",
        &["x\n"],
    ),
    (
        "cargo new -q tool 2>&1 && cd tool && cargo build -q --offline && cargo test --offline 2>&1 && cargo run -q --offline",
        &["0 failed", "Hello, world!"],
    ),
    (
        "cargo new -q --lib helper 2>&1 && cd tool && cargo add -q --offline --path ../helper && \
      echo 'fn main() { println!(\"{}\", helper::add(40, 2)); }' > src/main.rs && cargo run -q --offline && \
      cd ../helper && cargo test --offline 2>&1",
        &["42\n", "1 passed"],
    ),
    (
        // npm looks for its own updates, and the proxy makes Node.js print a warning.
        "export npm_config_update_notifier=false NODE_NO_WARNINGS=1; mkdir package web && cd package && npm init -y >/dev/null && echo 'module.exports = 42;' > index.js && \
      npm pack --silent && cd ../web && npm init -y >/dev/null && \
      npm install --silent --no-audit --no-fund file:../package/package-1.0.0.tgz && \
      node -e 'console.log(require(\"package\"))' && npm pkg set scripts.test='node -p 6*7' && npm test --silent",
        &["package-1.0.0.tgz", "42\n42\n"],
    ),
    (
        "mkdir py && printf 'def test_files(tmp_path):\\n    (tmp_path / \"a\").write_text(\"a\")\\n' > py/test_files.py && PYTEST -q py",
        &["1 passed"],
    ),
    (
        "python3 -m venv --without-pip py/venv && py/venv/bin/python -c 'import sys; print(sys.prefix)'",
        &["/work/py/venv"],
    ),
    (
        "printf 'all: a b c d\\na b c d:\\n\\t@sleep 0.1; echo made $@\\n' > Makefile && make -j2",
        &["made a", "made d"],
    ),
    (
        "printf '#include <stdio.h>\\nint main(void) { puts(\"compiled\"); }\\n' > main.c && cc main.c -o main && ./main",
        &["compiled"],
    ),
    (
        "python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 & for try in $(seq 100); do \
      curl -sf http://127.0.0.1:8123/notes.txt && exit; sleep 0.1; done; exit 1",
        &["one\ntwo\n"],
    ),
    (
        "node -e 'const n = require(\"net\"); const s = n.createServer(c => c.end(\"over a socket\")).listen(\"s.sock\", \
      () => n.connect(\"s.sock\").on(\"data\", d => { console.log(String(d)); s.close(); }))'",
        &["over a socket"],
    ),
    ("python3 -c 'import multiprocessing as m; print(sum(m.Pool(2).map(abs, range(-9, 0))))'", &["45"]),
    (
        "sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values (1), (2)' && \
      sqlite3 db 'select sum(x) from t' && flock lock sh -c 'flock -n lock true || echo locked'",
        &["wal\n3\nlocked"],
    ),
    ("script -qec 'tty && test -t 1 && echo terminal' /dev/null", &["/dev/pts/", "terminal"]),
    ("seq 200000 | sort -R | sort -n | grep -v 7 | tac | tr 0-9 a-j | head -1 | cat", &["caaaaa\n"]),
    (
        "mkfifo pipe && (echo through a pipe > pipe &) && cat pipe && bash -c 'cat <(echo substituted)'",
        &["through a pipe", "substituted"],
    ),
    (
        "ln -s notes.txt link && ln notes.txt hard && chmod 600 hard && touch -d yesterday hard && stat -c '%a %h' link/../hard; \
      rm -f link hard",
        &[],
    ),
    ("echo kept > /tmp/kept && file=$(mktemp) && test -w $file && echo temporary", &["temporary"]),
    ("cat /tmp/kept", &["kept\n"]),
    ("echo cached > ~/.npm/cached && cat ~/.npm/cached", &["cached\n"]),
    (
        "ps -e | grep -c ps; kill -0 $$ && nproc >/dev/null && df . >/dev/null && id -un >/dev/null; echo seen",
        &["seen"],
    ),
    ("setsid sleep MARK & nohup sleep MARK >/dev/null 2>&1 & (sleep MARK &) ; echo started", &["started"]),
    ("pgrep -x sleep; echo 'none is left'", &["none is left"]),
];

fn make(workplace: &AgentWorkplace, settings: &[&str], commands: &[String]) -> Vec<AgentCall> {
    let calls: Vec<(String, Value)> =
        commands.iter().map(|command| ("shell".to_owned(), json!({ "command": command }))).collect();
    workplace.make_calls(settings, &calls, |_| false)
}

fn work(user: User) {
    let workplace = AgentWorkplace::new(user);
    workplace.prepare(REPOSITORY);
    // A time that no other process of the machine sleeps for.
    let mark = format!("{}.{}", 100_000 + std::process::id(), if user == User::Ordinary { 1 } else { 2 });
    let pytest = tools("pytest/bin/pytest").display().to_string();
    let commands: Vec<String> =
        WORK.iter().map(|(command, _)| command.replace("MARK", &mark).replace("PYTEST", &pytest)).collect();
    let calls = make(&workplace, &[SANDBOX], &commands);
    for ((command, expected), call) in WORK.iter().zip(&calls) {
        assert!(!call.is_error && !call.was_asked, "{command}\n{}", call.text);
        assert!(!call.text.contains("sandbox"), "{command}\n{}", call.text);
        for text in *expected {
            assert!(call.text.contains(text), "no {text:?} after {command}\n{}", call.text);
        }
    }
    assert_eq!(processes_with(&mark), [0; 0]);
    let hook = std::fs::read_to_string(workplace.path("work/.git/hooks/pre-commit")).unwrap();
    assert_eq!(hook, "#!/bin/sh\necho the hook ran >> hook.log\n");
    assert!(!workplace.path("user/.npm/cached").exists());
}

#[test]
fn everyday_work_needs_no_approval() {
    work(User::OfTests);
}

#[test]
fn everyday_work_of_an_ordinary_user_needs_no_approval() {
    work(User::Ordinary);
}

/// Serves one package, as far as npm needs it.
fn registry(package: Vec<u8>) -> RecordingServer {
    let package = std::sync::Arc::new(package);
    RecordingServer::start(move |request| {
        if request.head.starts_with("GET /leftpad/-/leftpad-1.0.0.tgz") {
            let length = package.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            return CannedResponse::Bytes([head.as_bytes(), &package].concat());
        }
        let host = request.header("host").first().copied().unwrap_or_default().to_owned();
        let version = json!({ "name": "leftpad", "version": "1.0.0",
            "dist": { "tarball": format!("http://{host}/leftpad/-/leftpad-1.0.0.tgz") } });
        let metadata = json!({ "name": "leftpad", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
        CannedResponse::new("200 OK", "application/json", "", &metadata.to_string())
    })
}

/// Packs a package without dependencies.
pub(crate) fn registry_of(workplace: &AgentWorkplace) -> RecordingServer {
    workplace.prepare(
        "mkdir ../package && cd ../package && npm init -y >/dev/null && npm pkg set name=leftpad
         echo 'module.exports = (text) => text.padStart(8);' > index.js && npm pack --silent >/dev/null",
    );
    registry(std::fs::read(workplace.path("package/leftpad-1.0.0.tgz")).unwrap())
}

#[test]
fn packages_are_installed_from_a_registry_only_with_the_network() {
    for user in [User::OfTests, User::Ordinary] {
        let workplace = AgentWorkplace::new(user);
        let server = registry_of(&workplace);
        let install = format!(
            "npm init -y >/dev/null; npm install --no-audit --no-fund --no-update-notifier --fetch-retries 0 --registry {} leftpad 2>&1 && \
             node -e 'console.log(require(\"leftpad\")(\"padded\"))'",
            server.address
        );
        let [refused] = &make(&workplace, &[SANDBOX], std::slice::from_ref(&install))[..] else {
            unreachable!()
        };
        assert!(refused.is_error && server.requests().is_empty(), "{refused:?}");

        // The whole network, or this server through the proxy.
        let host = format!("sandbox.network=[\"{}\"]", server.address.trim_start_matches("http://"));
        for setting in ["sandbox.network=true", &host] {
            let workplace = AgentWorkplace::new(user);
            let [installed] = &make(&workplace, &[SANDBOX, setting], std::slice::from_ref(&install))[..]
            else {
                unreachable!("one command has one result")
            };
            assert!(!installed.is_error && installed.text.contains("  padded\n"), "{installed:?}");
            assert!(workplace.path("work/node_modules/leftpad/index.js").exists());
        }
    }
}

/// Commands that fail in the sandbox. "Real work in the sandbox" in docs/evidence.md lists them with what to do instead.
const REFUSED: &[Step] = &[
    ("git config user.name Eve", &["could not write config file", "probably denied by the sandbox"]),
    ("git remote add origin https://example.com/x.git", &["could not write config file"]),
    ("echo x > .git/hooks/pre-commit", &["Read-only file system"]),
    ("rm -rf nested", &["Device or resource busy"]),
    ("strace -o trace true", &["Operation not permitted"]),
    ("git config --global user.name Eve", &["Read-only file system"]),
    ("mkdir -p .vscode && echo {} > .vscode/settings.json", &["Read-only file system"]),
    ("curl -sS --noproxy '*' http://example.com/", &["Could not resolve host"]),
    ("mkdir ~/.local", &["Read-only file system"]),
];

/// Commands that fail in a linked worktree, because its repository is outside the workspace.
const REFUSED_IN_A_LINKED_WORKTREE: &[Step] = &[
    (
        "git status --short; echo x > x && git add x && git -c user.name=n -c user.email=n@example.com commit -qm x",
        &[],
    ),
    ("git branch other && git branch -d other", &["Read-only file system"]),
];

/// Commands that fail in a workspace that is no repository.
const REFUSED_WITHOUT_A_REPOSITORY: &[Step] = &[("git init -q .", &["Read-only file system"])];

/// Commands of root that fail, because the sandbox has no other users.
const REFUSED_AS_ROOT: &[Step] = &[
    ("chown 1000 x", &["Invalid argument"]),
    ("tar cf x.tar --owner=1000 x && tar xf x.tar", &["Cannot change ownership"]),
    ("tar xf x.tar --no-same-owner", &[]),
];

#[test]
fn documented_limits_of_the_sandbox_hold() {
    let worktree = "git init -q ../main && cd ../main && git -c user.name=n -c user.email=n@example.com commit -q \
                    --allow-empty -m first && git worktree add -q ../work";
    let nested = format!("{REPOSITORY}\ngit clone -q . nested");
    refuses(User::Ordinary, &nested, REFUSED);
    refuses(User::Ordinary, worktree, REFUSED_IN_A_LINKED_WORKTREE);
    refuses(User::Ordinary, "true", REFUSED_WITHOUT_A_REPOSITORY);
    if rustix::process::getuid().is_root() {
        refuses(User::OfTests, "echo x > x", REFUSED_AS_ROOT);
    }
}

/// Checks that these commands fail in a workspace with this content, unless no text is expected.
fn refuses(user: User, content: &str, steps: &[Step]) {
    let workplace = AgentWorkplace::new(user);
    workplace.prepare(content);
    let commands: Vec<String> = steps.iter().map(|(command, _)| (*command).to_owned()).collect();
    for ((command, expected), call) in steps.iter().zip(make(&workplace, &[SANDBOX], &commands)) {
        assert!(call.is_error != expected.is_empty() && !call.was_asked, "{command}\n{}", call.text);
        for text in *expected {
            assert!(call.text.contains(text), "no {text:?} after {command}\n{}", call.text);
        }
    }
}
