//! Conventions of other programs: unquoted tasks, flags, provider variables and MCP servers.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use brigade_testing::{HttpResponse, HttpServer, Script};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

fn echo() -> Script {
    Script::new().reply("{heard}")
}

#[test]
fn stdin_is_appended_to_the_task() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(echo());
    let run = ["run", "--model", &model, "explain"];
    let both = home.with_input(&run, "line 1\nline 2");
    assert_eq!(both.exits_with(0).stdout, "explain\n\n<stdin>\nline 1\nline 2\n</stdin>\n");
    assert_eq!(home.with_input(&run, " \n").exits_with(0).stdout, "explain\n", "blank input is no input");
    assert_eq!(home.brigade(&run).exits_with(0).stdout, "explain\n");
    for only in [&["run", "--model", &model][..], &["run", "--model", &model, "-"]] {
        assert_eq!(home.with_input(only, "explain this").exits_with(0).stdout, "explain this\n");
        console.add(home.with_input(only, " \n").exits_with(2));
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn binary_stdin_is_accepted_only_with_a_task() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(echo());
    let with = |arguments: &[&str], input: &[u8]| {
        let mut command = home.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        CommandResult::of(child.wait_with_output().unwrap()).named(&command)
    };
    with(&["run", "--model", &model, "explain"], b"a\xffb").exits_with(0).stdout_contains("a\u{fffd}b");
    console.add(with(&["run", "--model", &model], b"a\xffb").exits_with(2));
    let large = vec![b'x'; 10 * 1024 * 1024 + 1];
    console.add(with(&["run", "--model", &model, "explain"], &large).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn idle_stdin_pipe_does_not_block_a_run() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(echo());
    let begun = Instant::now();
    let mut command = home.command(&["run", "--model", &model, "explain"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    // A run that waits for its end gets it, and is found out by what it prints.
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        drop(held);
    });
    let done = CommandResult::of(child.wait_with_output().unwrap()).named(&command);
    assert_eq!(done.exits_with(0).stdout, "explain\n");
    console.add(&done);
    assert!(begun.elapsed() > Duration::from_secs(2), "a slow program has some time");
    insta::assert_snapshot!(console.text());
}

#[test]
fn unquoted_words_are_one_task() {
    let home = Home::new();
    let model = home.script(echo());
    for command in ["run", "exec"] {
        let done = home.brigade(&[command, "fix", "the", "tests", "-m", &model]);
        assert_eq!(done.exits_with(0).stdout, "fix the tests\n", "{command}");
    }
    for (typed, command) in [
        (&["-p", "fix the tests"][..], "brigade run 'fix the tests'"),
        (&["-p", "fix it", "-m", "ollama/qwen3"], "brigade run 'fix it' -m ollama/qwen3"),
        (&["run", "--print", "fix it"], "brigade run 'fix it'"),
    ] {
        home.brigade(typed).exits_with(2).stderr_contains(&format!("To run a task: {command}"));
    }
}

#[test]
fn run_continues_the_last_or_the_named_session() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("turn {turn}: {heard}"));
    console.add(home.brigade(&["run", "-c", "more", "-m", &model]).exits_with(2));
    let id = |task: &str| {
        let report =
            home.brigade(&["run", "-m", &model, "--output-format", "json", task]).exits_with(0).json();
        report["session_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (id("first"), id("second"));
    assert_eq!(home.brigade(&["run", "-c", "and", "more"]).exits_with(0).stdout, "turn 2: and more\n");
    assert_eq!(home.brigade(&["run", "-r", &first, "again"]).exits_with(0).stdout, "turn 2: again\n");
    let last = home.brigade(&["run", "--continue", "--output-format", "json", "third"]).exits_with(0).json();
    assert_eq!(last["session_id"], first.as_str(), "the session that was used last");
    let piped = home.with_input(&["run", "-r", &second, "explain"], "a log\n");
    assert_eq!(piped.exits_with(0).stdout, "turn 3: explain\n\n<stdin>\na log\n</stdin>\n");
    // Without a task it behaves like `resume`: the result is printed again.
    assert_eq!(home.brigade(&["run", "-r", &second[..8]]).exits_with(0).stdout, piped.stdout);
    home.brigade(&["run", "-c", "-r", &first, "x"]).exits_with(2);
    home.brigade(&["run", "-c", "-a", "reviewer", "x"]).exits_with(2);
    insta::assert_snapshot!(console.text());
}

/// Server that replies to every request with the same stream, and its address.
fn serve(stream: &str) -> (HttpServer, String) {
    let server = HttpServer::always(HttpResponse::events(stream));
    let address = format!("127.0.0.1:{}", server.port());
    (server, address)
}

const CHAT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const MESSAGES: &str = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n\
    data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n\
    data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n\
    data: {\"type\":\"message_stop\"}\n\n";
const GEMINI: &str =
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}]},\"finishReason\":\"STOP\"}]}\n\n";

#[test]
fn base_url_variables_of_other_tools_are_used() {
    for (model, variable, url, path, body) in [
        ("openai/gpt-5", "OPENAI_BASE_URL", "http://{}/v1", "/v1/chat/completions", CHAT),
        ("anthropic/claude-sonnet-5", "ANTHROPIC_BASE_URL", "http://{}", "/v1/messages", MESSAGES),
        ("ollama/qwen3", "OLLAMA_HOST", "{}", "/v1/chat/completions", CHAT),
    ] {
        let (server, address) = serve(body);
        let home = Home::new();
        let set = |arguments: &[&str], url: &str| {
            let mut command = home.command(arguments);
            command.env(variable, url).env("OPENAI_API_KEY", "sk-one").env("ANTHROPIC_API_KEY", "sk-two");
            CommandResult::run(&mut command)
        };
        let url = url.replace("{}", &address);
        set(&["run", "-m", model, "hi"], &url).exits_with(0).stdout_contains("hello");
        let request = server.requests()[0].text();
        assert!(request.starts_with(&format!("POST {path} HTTP/1.1")), "{variable}: {request}");
        set(&["config", "show"], &url).exits_with(0).stdout_contains(&format!("# from {variable}"));
        set(&["doctor", "--offline"], &url).stdout_contains(variable);
        // An empty variable is not set, and the configuration takes precedence over the variable.
        let without = set(&["config", "show"], " ");
        assert!(!without.exits_with(0).stdout.contains(variable), "{}", without.stdout);
        let provider = model.split('/').next().unwrap();
        let config = format!("[providers.{provider}]\nbase_url = 'http://{address}/v1'\n");
        home.write("home/config.toml", &config);
        set(&["run", "-m", model, "hi"], "http://127.0.0.1:9").exits_with(0).stdout_contains("hello");
    }
}

#[test]
fn google_api_key_is_used_for_gemini() {
    let (server, address) = serve(GEMINI);
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", &format!("[providers.gemini]\nbase_url = 'http://{address}/v1beta'\n"));
    let run = |keys: &[(&str, &str)]| {
        let mut command = home.command(&["run", "-m", "gemini/gemini-3.6-flash", "hi"]);
        CommandResult::run(command.envs(keys.iter().copied()))
    };
    console.add(run(&[]).exits_with(2));
    run(&[("GOOGLE_API_KEY", "google-key")]).exits_with(0).stdout_contains("hello");
    assert!(server.requests()[0].text().contains("google-key"));
    run(&[("GOOGLE_API_KEY", "google-key"), ("GEMINI_API_KEY", "gemini-key")]).exits_with(0);
    assert!(server.requests()[1].text().contains("gemini-key"));
    insta::assert_snapshot!(console.text());
}

#[test]
fn tools_add_and_remove_edit_the_config_in_place() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let config = "# Mine, do not touch.\nmodel = \"ollama/qwen3\"   # local\n\n[limits]\n#lead_turns = 50\n";
    let file = home.write("home/config.toml", config);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let done =
        home.brigade(&["tools", "add", "files", "-e", "ROOT=${HOME}/x", "--", "files-mcp", "--root", "a b"]);
    console.add(done.exits_with(0));
    let entry = "\n[mcpServers.files]\ncommand = \"files-mcp\"\nargs = [\"--root\", \"a b\"]\nenv = { ROOT = \"${HOME}/x\" }\n";
    assert_eq!(text(&file), format!("{config}{entry}"));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    home.brigade(&["tools", "add", "web", "--url", "https://tools.example/mcp"]).exits_with(0);
    home.brigade(&["tools", "list"])
        .exits_with(0)
        .stdout_contains("mcp__files__*")
        .stdout_contains("mcp__web__*");
    let taken = home.brigade(&["tools", "add", "FILES", "--", "x"]);
    console.add(taken.exits_with(2));
    let removed = home.brigade(&["tools", "remove", "Web", "--output-format", "json"]).exits_with(0).json();
    assert_eq!((&removed["type"], &removed["server"]), (&"removed".into(), &"web".into()));
    console.add(home.brigade(&["tools", "remove", "web"]).exits_with(2));
    console.add(home.brigade(&["tools", "remove", "files"]).exits_with(0));
    assert_eq!(text(&file), config, "nothing else has changed");
    insta::assert_snapshot!(console.text());
}

#[test]
fn tools_add_refuses_invalid_entries_and_keeps_the_file() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for name in ["", "a b", "a__b", "a.b", &"x".repeat(41)] {
        console.add(home.brigade(&["tools", "add", name, "--", "x"]).exits_with(2));
    }
    home.brigade(&["tools", "add", "a"]).exits_with(2);
    home.brigade(&["tools", "add", "a", "--url", "https://x", "--", "x"]).exits_with(2);
    for url in ["notaurl", "localhost:3000/mcp", "ftp://host/mcp"] {
        console.add(home.brigade(&["tools", "add", "a", "--url", url]).exits_with(2));
    }
    console.add(home.brigade(&["tools", "add", "a", "--env", "no", "--", "x"]).exits_with(2));
    assert!(home.files().is_empty(), "{:?}", home.files());
    let file = home.write("home/config.toml", "model = \n");
    console.add(home.brigade(&["tools", "add", "a", "--", "x"]).exits_with(2));
    assert_eq!(text(&file), "model = \n");
    std::fs::remove_file(file).unwrap();
    let json = home.write("home/config.json", "{}");
    let done = home.brigade(&["tools", "add", "a", "--", "x", "y"]);
    console.add(done.exits_with(2));
    console.add(home.brigade(&["tools", "remove", "a"]).exits_with(2));
    assert_eq!(text(&json), "{}");
    insta::assert_snapshot!(console.text());
}

#[test]
fn tools_add_keeps_a_symlinked_config() {
    let home = Home::new();
    let file = home.write("dotfiles.toml", "# linked\n");
    std::os::unix::fs::symlink(&file, home.home().join("config.toml")).unwrap();
    home.brigade(&["tools", "add", "a", "--", "x"]).exits_with(0);
    assert!(home.home().join("config.toml").is_symlink());
    assert_eq!(text(&file), "# linked\n\n[mcpServers.a]\ncommand = \"x\"\n");
}
