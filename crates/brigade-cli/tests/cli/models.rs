//! Models of providers.

use brigade_testing::{HttpResponse, HttpServer};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

pub(crate) const KEY: &str = "sk-planted-fedcba9876543210";
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
pub(crate) const DENIED: &str = r#"{"error":{"message":"Wrong key sk-planted-fedcba9876543210"}}"#;

/// Server that gives every request this response.
pub(crate) fn serve(status: &str, body: &str) -> HttpServer {
    let headers = "Content-Type: text/event-stream\r\n";
    HttpServer::always(HttpResponse::with_headers(status, headers, body))
}

/// Text of the only request that the server received.
fn only_request(server: &HttpServer) -> String {
    assert_eq!(server.request_count(), 1);
    server.requests()[0].text()
}

pub(crate) fn configured(url: &str) -> Home {
    configured_as("openai", url)
}

fn configured_as(kind: &str, url: &str) -> Home {
    let home = Home::new();
    let config = format!(
        "model = 'mine/small'\n[providers.mine]\nkind = '{kind}'\nbase_url = '{url}'\napi_key_env = 'MY_KEY'\n"
    );
    home.write("home/config.toml", &config);
    home
}

fn run(home: &Home) -> CommandResult {
    CommandResult::run(home.command(&["run", "the task"]).env("MY_KEY", KEY))
}

fn assert_key_hidden(home: &Home, done: &CommandResult) {
    assert!(!done.stdout.contains(KEY) && !done.stderr.contains(KEY), "{}{}", done.stdout, done.stderr);
    for entry in std::fs::read_dir(home.home()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(KEY), "{}", path.display());
        }
    }
}

#[test]
fn configured_provider_answers() {
    let server = serve("200 OK", HELLO);
    let home = configured(&server.url("/v1"));
    let done = run(&home);
    done.exits_with(0).stdout_contains("hello");
    let asked = only_request(&server);
    assert!(asked.starts_with("POST /v1/chat/completions"), "{asked}");
    assert!(asked.contains(&format!("Bearer {KEY}")) && asked.contains("\"model\":\"small\""), "{asked}");
    assert_key_hidden(&home, &done);
}

#[test]
fn every_provider_kind_uses_its_own_protocol() {
    let responses = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n";
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    let cases = [
        ("responses", responses, "POST /v1/responses HTTP"),
        ("gemini", gemini, "POST /v1/models/small:streamGenerateContent?alt=sse HTTP"),
    ];
    for (kind, stream, line) in cases {
        let server = serve("200 OK", stream);
        let home = configured_as(kind, &server.url("/v1"));
        let done = run(&home);
        done.exits_with(0).stdout_contains("hello");
        let asked = only_request(&server);
        assert!(asked.starts_with(line) && asked.contains(KEY), "{asked}");
        assert_key_hidden(&home, &done);
    }
}

#[test]
fn refused_key_is_not_printed() {
    let server = serve("401 Unauthorized", DENIED);
    let home = configured(&server.url("/v1"));
    let done = run(&home);
    assert_ne!(done.code, 0);
    assert_eq!(server.request_count(), 1);
    let shown = format!("{}{}", done.stdout, done.stderr);
    assert!(shown.contains("Wrong key (key)") && shown.contains("Check the provider's API key"), "{shown}");
    assert_key_hidden(&home, &done);
}

#[test]
fn request_that_is_refused_is_not_to_be_tried_again_as_it_is() {
    let server = serve("400 Bad Request", "{\"error\":{\"message\":\"no such field\"}}");
    let home = configured(&server.url("/v1"));
    let done = run(&home);
    assert_eq!(server.request_count(), 1);
    let mut console = Console::new(&home);
    console.add(done.exits_with(1));
    insta::assert_snapshot!(console.text());
    assert!(!done.stderr.contains("Retry:"), "{}", done.stderr);
}

#[test]
fn missing_provider_settings_are_named() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = |name: &str| home.brigade(&["run", "--model", name, "the task"]);
    console.add(model("openai/gpt-4.1").exits_with(2));
    console.add(model("anthropic/claude-x").exits_with(2));
    console.add(model("openrouter/a/b").exits_with(2));
    console.add(model("openai-responses/gpt-5").exits_with(2));
    console.add(model("gemini/gemini-2.5-flash").exits_with(2));
    console.add(model("deepseek/deepseek-chat").exits_with(2));
    console.add(model("groq/x").exits_with(2));
    console.add(model("ollama").exits_with(2));
    console.add(model("nobody/x").exits_with(2));
    home.write("home/config.toml", "[providers.mine]\nkind = 'openai'\n");
    console.add(model("mine/x").exits_with(2));
    home.write("home/config.toml", "[providers.mine]\nbase_url = 'http://127.0.0.1:1'\n");
    console.add(model("mine/x").exits_with(2));
    home.write("home/config.toml", "[providers.mine]\nkind = 'telepathy'\nbase_url = 'http://127.0.0.1:1'\n");
    console.add(model("mine/x").exits_with(2));
    home.write("home/config.toml", "[providers.ollama]\nbase_url = 'nowhere'\n");
    console.add(model("ollama/x").exits_with(2));
    insta::assert_snapshot!(console.text());
}

/// Server that rejects one request with this retry delay, and then responds.
pub(crate) fn refuses_once(retry: &'static str) -> String {
    let server = HttpServer::start(move |request| match request.number {
        0 => HttpResponse::with_headers("429 Too Many Requests", retry, ""),
        1 => HttpResponse::events(HELLO),
        _ => HttpResponse::nothing(),
    });
    server.url("/v1")
}

#[test]
fn wait_for_the_provider_is_shown() {
    let url = refuses_once("Retry-After: 3\r\n");
    let done = run(&configured(&url));
    done.exits_with(0).stdout_contains("hello").stderr_contains(" s (rate limit)");
    // The message names the time that is left when it is printed.
    let (_, wait) = done.stderr.split_once("mine requested a wait of ").unwrap();
    let seconds: u32 = wait.split_once(' ').unwrap().0.parse().unwrap();
    assert!((1..=3).contains(&seconds), "{}", done.stderr);
}

#[test]
fn provider_limits_are_enforced() {
    let home = configured(&refuses_once("Retry-After: 60\r\n"));
    let mut console = Console::new(&home);
    let file = home.home().join("config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{config}longest_wait = '1s'\n")).unwrap();
    let done = run(&home);
    assert_ne!(done.code, 0);
    done.stderr_contains("mine requested a wait of").stderr_contains("but the limit is 1 s");
    std::fs::write(&file, format!("{config}requests_per_minute = 0\n")).unwrap();
    console.add(run(&home).exits_with(2));
    std::fs::write(&file, format!("{config}total_timeout = 'soon'\n")).unwrap();
    console.add(run(&home).exits_with(2));
    insta::assert_snapshot!(console.text());
}
