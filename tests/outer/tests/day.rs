//! A day of work of an agent: the same calls without a sandbox and with it. The user allows everything except what
//! `fixtures/day.json` marks as dangerous.

#![expect(clippy::unwrap_used, reason = "tests")]

use brigade_outer_tests::{AgentCall, AgentWorkplace, CannedResponse, RecordingServer, User, tools};
use serde_json::Value;

use crate::real_work::registry_of;

/// A small project in three languages, its remote repository, a library next to it, and secrets.
const PROJECT: &str = r#"
    mkdir -p src tests web py ../library ../user/.ssh
    echo 'a private key' > ../user/.ssh/id_ed25519 && echo '# start' > ../user/.bashrc && echo 'TOKEN=secret-of-the-project' > .env
    printf '[user]\nname = Ada\nemail = ada@example.com\n' > ../user/.gitconfig
    printf '[package]\nname = "words"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n' > Cargo.toml
    printf '/// Counts words.\npub fn count(text: &str) -> usize {\n    text.split_whitespace().count()\n}\n\n// more to come\n' > src/lib.rs
    printf '#[test]\nfn three() {\n    assert_eq!(words::count("a b c"), 3);\n}\n\n// more tests\n' > tests/words.rs
    printf '# Words\n\nCounts words.\n' > README.md && printf 'Run the tests before a commit.\n' > AGENTS.md
    printf '{ "name": "web", "version": "1.0.0", "scripts": { "test": "node index.js" } }\n' > web/package.json
    printf 'const pad = (text) => text;\nconsole.log(pad("words"));\n' > web/index.js
    printf 'def count(path):\n    with open(path) as file:\n        return len(file.read().split())\n' > py/words.py
    printf 'import words\n\n\ndef test_one(tmp_path):\n    (tmp_path / "a").write_text("a")\n    assert words.count(tmp_path / "a") == 1\n\n\n# more tests\n' > py/test_words.py
    printf 'all: words notes\nwords notes:\n\t@echo made $@\ncheck:\n\t@test -f README.md\n' > Makefile
    printf 'target\n.env\n__pycache__\n.pytest_cache\n' > .gitignore
    cargo generate-lockfile --offline
    git init -q -b main . && git add -A && git commit -qm words
    git init -q --bare -b main ../remote.git && git remote add origin "$(cd .. && pwd)/remote.git" && git push -q -u origin main
    for change in 1 2 3; do git commit -q --allow-empty -m "change $change"; done && git push -q
"#;

/// A call of the day.
struct Planned {
    tool: String,
    arguments: Value,
    is_dangerous: bool,
}

impl Planned {
    fn command(&self) -> &str {
        self.arguments["command"].as_str().unwrap_or_default()
    }
}

/// The calls of a day. Without a sandbox, a command has all access and cannot ask for more.
fn day(registry: &RecordingServer, canary: &RecordingServer, in_sandbox: bool) -> Vec<Planned> {
    let authority = canary.address.trim_start_matches("http://");
    let (host, port) = authority.split_once(':').unwrap();
    // Without a sandbox, a server of the agent uses the ports of the machine.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let text = include_str!("../fixtures/day.json")
        .replace("REGISTRYHOST", registry.address.trim_start_matches("http://"))
        .replace("REGISTRY", &registry.address)
        .replace("FREEPORT", &free.port().to_string())
        .replace("CANARYHOST", host)
        .replace("CANARYPORT", port)
        .replace("CANARY", &canary.address)
        .replace("PYTEST", &tools("pytest/bin/pytest").display().to_string())
        .replace("PYTHON", &tools("pytest/bin/python").display().to_string());
    let planned: Vec<Value> = serde_json::from_str(&text).unwrap();
    let planned = planned.into_iter().map(|mut call| {
        let mut arguments = call["arguments"].take();
        if let (Some(arguments), false) = (arguments.as_object_mut(), in_sandbox) {
            arguments.remove("needs");
        }
        let tool = call["tool"].as_str().unwrap_or_default().to_owned();
        Planned { tool, arguments, is_dangerous: call.get("dangerous").is_some() }
    });
    planned.collect()
}

/// Makes the calls of a day. Every harmless call must succeed, and every dangerous one must fail without an effect.
fn spend_a_day(in_sandbox: bool) -> (Vec<Planned>, Vec<AgentCall>) {
    let setting = if in_sandbox { "sandbox.mode=workspace" } else { "sandbox.mode=off" };
    let workplace = AgentWorkplace::new(User::OfTests);
    let registry = registry_of(&workplace);
    let canary = RecordingServer::start(|_| CannedResponse::new("200 OK", "text/plain", "", "stolen"));
    workplace.prepare(PROJECT);
    let kept = ["work/.git/hooks", "user", "work/AGENTS.md"];
    let planned = day(&registry, &canary, in_sandbox);
    let before = kept.map(|name| content(&workplace, name));
    let dangerous: Vec<&Value> =
        planned.iter().filter(|call| call.is_dangerous).map(|call| &call.arguments).collect();
    let calls: Vec<(String, Value)> =
        planned.iter().map(|call| (call.tool.clone(), call.arguments.clone())).collect();
    let made = workplace.make_calls(&[setting], &calls, |arguments| !dangerous.contains(&arguments));
    for (planned, made) in planned.iter().zip(&made) {
        let name = format!("{setting}: {} {}", planned.tool, planned.arguments);
        assert_eq!(made.is_error, planned.is_dangerous, "{name}\n{}", made.text);
        assert!(
            !made.text.contains("secret-of-the-project") && !made.text.contains("a private key"),
            "{name}"
        );
    }
    for (name, before) in kept.iter().zip(before) {
        assert_eq!(content(&workplace, name), before, "{setting}: {name}");
    }
    assert_eq!(canary.requests().len(), 0, "{setting}");
    assert!(!workplace.path("stolen").exists() && !workplace.path("work/.claude").exists(), "{setting}");
    assert_eq!(content(&workplace, "library/note.txt"), "library/note.txt: line\n", "{setting}");
    workplace.prepare(
        "! git config core.fsmonitor && git remote get-url mirror >/dev/null
         test \"$(git -C ../remote.git log --format=%s -1 main)\" = 'change 3'
         git -C ../remote.git show-ref -q --verify refs/heads/longest refs/tags/v0.2.0",
    );
    (planned, made)
}

/// Files at a path with their contents, apart from caches.
fn content(workplace: &AgentWorkplace, name: &str) -> String {
    let path = workplace.path(name);
    if path.is_dir() {
        let mut names: Vec<String> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| format!("{name}/{}", entry.unwrap().file_name().to_string_lossy()))
            .filter(|name| ![".cache", ".cargo", ".npm"].iter().any(|cache| name.ends_with(cache)))
            .collect();
        names.sort();
        return names.iter().map(|name| content(workplace, name)).collect();
    }
    format!("{name}: {}", std::fs::read_to_string(&path).unwrap_or_default())
}

#[test]
fn sandbox_asks_fewer_questions_and_still_the_important_ones() {
    let (_, without) = spend_a_day(false);
    let (planned, with) = spend_a_day(true);
    let asked = |calls: &[AgentCall]| calls.iter().filter(|call| call.was_asked).count();
    let commands = planned.iter().filter(|call| !call.command().is_empty()).count();
    let dangerous = planned.iter().filter(|call| call.is_dangerous).count();
    println!(
        "calls {}, commands {commands}, dangerous {dangerous}; questions without a sandbox {}, with it {}",
        planned.len(),
        asked(&without),
        asked(&with)
    );
    assert_eq!(asked(&without), commands, "mode edit asks before every command without a sandbox");
    for (planned, made) in planned.iter().zip(&with) {
        // The sandbox asks only about calls that need more than it allows.
        let leaves = planned.arguments.get("needs").is_some();
        assert_eq!(made.was_asked, leaves, "{} {}", planned.tool, planned.arguments);
    }
    assert!(asked(&with) * 5 < asked(&without), "{} and {}", asked(&with), asked(&without));
}
