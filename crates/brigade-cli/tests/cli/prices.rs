//! Model information: prices, and the models that servers report.

use std::time::{Duration, Instant};

use brigade_testing::{AfterResponse, HttpRequest, HttpResponse, HttpServer};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

const KEY: &str = "sk-planted-fedcba9876543210";
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2000,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
const TWO: &str = r#"{"data":[{"id":"small","context_length":8192},{"id":"large"}]}"#;

/// Server that always gives the same response, and the requests that it received.
struct Server {
    url: String,
    http: HttpServer,
}

impl Server {
    fn start(head: &str, body: &str) -> Server {
        Server::with(HttpResponse::new(head, body))
    }

    /// Server that accepts requests and never responds.
    fn silent() -> Server {
        Server::with(HttpResponse::nothing().then(AfterResponse::Stall))
    }

    fn with(response: HttpResponse) -> Server {
        let http = HttpServer::always(response);
        Server { url: http.url("/v1"), http }
    }

    fn asked(&self) -> Vec<String> {
        self.http.requests().iter().map(HttpRequest::text).collect()
    }

    fn connections(&self) -> usize {
        self.http.connections()
    }
}

/// Home whose Ollama address is unreachable, so that a local one has no effect.
fn home(config: &str) -> Home {
    let home = Home::new();
    let mut config = format!("{config}\n");
    // Servers of the machine that runs the tests are not asked.
    for name in ["llamacpp", "lmstudio", "ollama", "vllm"] {
        let table = format!("[providers.{name}]\n");
        if !config.contains(&table) {
            config.push_str(&format!("{table}base_url = 'http://127.0.0.1:1/v1'\n"));
        }
    }
    home.write("home/config.toml", &config);
    home
}

fn with_server(url: &str, rest: &str) -> Home {
    home(&format!("model = 'mine/small'\n[providers.mine]\nkind = 'openai'\nbase_url = '{url}'\n{rest}"))
}

/// Output without the rows of the built-in providers.
fn without_builtin(done: &CommandResult) -> CommandResult {
    let is_builtin = |line: &str| line.contains("  no key: set ") || line.contains("  not running at ");
    let is_own = |line: &str| line.starts_with("mine ") || line.starts_with("other ");
    let lines = done.stdout.lines().filter(|line| is_own(line) || !is_builtin(line)).collect::<Vec<_>>();
    CommandResult {
        command: done.command.clone(),
        code: done.code,
        stdout: lines.join("\n"),
        stderr: done.stderr.clone(),
    }
}

#[test]
fn models_without_a_provider_says_how_to_start() {
    let home = home("");
    let done = home.brigade(&["models"]);
    let mut console = Console::new(&home);
    console.add(done.exits_with(0));
    assert!(!done.stdout.contains("anthropic/claude"), "{}", done.stdout);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    insta::assert_snapshot!(console.text());
}

#[test]
fn configured_server_that_is_down_is_what_to_start() {
    for model in ["model = 'mine/small'\n", ""] {
        let config =
            format!("{model}[providers.mine]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n");
        let home = home(&config);
        let done = home.brigade(&["models"]);
        let mut console = Console::new(&home);
        console.add(&without_builtin(done.exits_with(0)));
        insta::assert_snapshot!(
            if model.is_empty() { "no_default_is_down" } else { "the_default_is_down" },
            console.text()
        );
        assert!(!done.stderr.contains("ANTHROPIC_API_KEY"), "{}", done.stderr);
    }
}

#[test]
fn provider_with_a_key_is_ready_without_a_request() {
    let home = home("model = 'anthropic/claude-opus-5'");
    let done = CommandResult::run(home.command(&["models"]).env("ANTHROPIC_API_KEY", KEY));
    done.exits_with(0)
        .stdout_contains("ready (ANTHROPIC_API_KEY is set)")
        .stdout_contains("no key: set OPENAI_API_KEY");
    done.stdout_contains("* anthropic/claude-opus-5")
        .stdout_contains("(highest tier), as of 20")
        .stdout_contains("25.00");
    assert!(done.stderr.is_empty() && !done.stdout.contains(KEY), "{}{}", done.stdout, done.stderr);
    assert!(!done.stdout.contains("openai/gpt"), "{}", done.stdout);
}

#[test]
fn local_servers_are_queried() {
    let server = Server::start("200 OK", TWO);
    let done = with_server(&server.url, "").brigade(&["models"]);
    done.exits_with(0)
        .stdout_contains("running, 2 models")
        .stdout_contains("* mine/small")
        .stdout_contains("  mine/large")
        .stdout_contains("free");
    done.stdout_contains("8192").stdout_contains("Default model: mine/small");
    assert!(done.stderr.is_empty(), "{}", done.stderr);
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].starts_with("GET /v1/models HTTP") && !asked[0].contains("uthorization"),
        "{}",
        asked[0]
    );
}

#[test]
fn key_is_sent_only_to_its_provider_and_never_printed() {
    let server =
        Server::start("401 Unauthorized", &format!("{{\"error\":{{\"message\":\"Wrong key {KEY}\"}}}}"));
    let home = with_server(&server.url, "api_key_env = 'MY_KEY'");
    let mut console = Console::new(&home);
    console.add(&without_builtin(home.brigade(&["models"]).exits_with(0)));
    assert_eq!(server.connections(), 0);
    let done = CommandResult::run(home.command(&["models"]).env("MY_KEY", KEY));
    console.add(&without_builtin(done.exits_with(0)));
    let asked = &server.asked()[0];
    assert!(asked.contains(&format!("authorization: Bearer {KEY}")), "{asked}");
    assert!(!done.stdout.contains(KEY) && !done.stderr.contains(KEY), "{}{}", done.stdout, done.stderr);
    insta::assert_snapshot!(console.text());
}

#[test]
fn anthropic_model_list_is_parsed() {
    let server = Server::start("200 OK", r#"{"data":[{"type":"model","id":"claude-x"}],"has_more":false}"#);
    let config = format!(
        "[providers.mine]\nkind = 'anthropic'\nbase_url = '{}'\napi_key_env = 'MY_KEY'",
        server.url.trim_end_matches("/v1")
    );
    let home = home(&config);
    let done = CommandResult::run(home.command(&["models", "mine"]).env("MY_KEY", KEY));
    done.exits_with(0).stdout_contains("mine/claude-x");
    let asked = &server.asked()[0];
    assert!(asked.starts_with("GET /v1/models?limit=1000 "), "{asked}");
    assert!(asked.contains(&format!("x-api-key: {KEY}")) && asked.contains("anthropic-version: "), "{asked}");
}

#[test]
fn silent_server_does_not_delay_the_list() {
    let (silent, lively) = (Server::silent(), Server::start("200 OK", TWO));
    let rest = format!("[providers.other]\nkind = 'openai'\nbase_url = '{}'", lively.url);
    let since = Instant::now();
    let home = with_server(&silent.url, &rest);
    let mut console = Console::new(&home);
    console.add(&without_builtin(home.brigade(&["models"]).exits_with(0)));
    insta::assert_snapshot!(console.text());
    assert!(since.elapsed() < Duration::from_secs(20));
}

#[test]
fn redirects_of_a_server_are_not_followed() {
    let aim = Server::start("200 OK", TWO);
    let server = Server::start(&format!("302 Found\r\nLocation: {}/models", aim.url), "");
    let home = with_server(&server.url, "");
    let mut console = Console::new(&home);
    console.add(&without_builtin(home.brigade(&["models"]).exits_with(0)));
    insta::assert_snapshot!(console.text());
    assert_eq!(aim.connections(), 0);
}

#[test]
fn control_characters_of_a_server_are_escaped() {
    let server = Server::start("200 OK", "{\"data\":[{\"id\":\"a\\u001b[2J\\nb\\u202ec\"}]}");
    let home = with_server(&server.url, "");
    let mut console = Console::new(&home);
    let done = home.brigade(&["models"]);
    console.add(&without_builtin(done.exits_with(0)));
    let json = home.brigade(&["models", "--output-format", "json"]);
    assert!(!json.stdout.contains(['\u{1b}', '\u{202e}']), "{}", json.stdout);
    assert!(json.json()["providers"].to_string().contains("mine/a"));
    for body in ["<html>", "{}", "{\"data\":7}"] {
        let server = Server::start("200 OK", body);
        let home = with_server(&server.url, "");
        console.enter(&home);
        console.add(&without_builtin(home.brigade(&["models"]).exits_with(0)));
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn models_of_one_provider_lists_all_its_models() {
    let ids: Vec<String> = (10..40).map(|number| format!("{{\"id\":\"m{number}\"}}")).collect();
    let server = Server::start("200 OK", &format!("{{\"data\":[{}]}}", ids.join(",")));
    let home = with_server(&server.url, "");
    let mut console = Console::new(&home);
    let glance = home.brigade(&["models"]);
    console.add(&without_builtin(glance.exits_with(0)));
    assert!(!glance.stdout.contains("m30"), "{}", glance.stdout);
    let done = home.brigade(&["models", "mine"]);
    done.exits_with(0).stdout_contains("mine/m10").stdout_contains("mine/m39");
    assert!(!done.stdout.contains("openai"), "{}", done.stdout);
    home.brigade(&["models", "openai"])
        .exits_with(0)
        .stdout_contains("openai/gpt-4o ")
        .stderr_contains("set OPENAI_API_KEY to use openai");
    console.add(home.brigade(&["models", "ollama"]).exits_with(0));
    console.add(home.brigade(&["models", "antropic"]).exits_with(2));
    console.add(home.brigade(&["models", ""]).exits_with(2));
    home.brigade(&["models", "mine", "other"]).exits_with(2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn models_json_is_one_object() {
    let server = Server::start("200 OK", TWO);
    let home = with_server(&server.url, "[prices.'mine/large']\ninput = 2.5\noutput = 10\nmax_output = 99\n");
    let all = home.brigade(&["models", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(all["model"], "mine/small");
    assert!(all["prices_of"].as_str().unwrap().starts_with("20"));
    let find = |name: &str| {
        all["providers"].as_array().unwrap().iter().find(|provider| provider["name"] == name).unwrap()
    };
    assert_eq!(
        (&find("ollama")["state"], &find("mine")["state"]),
        (&"not_running".into(), &"running".into())
    );
    assert_eq!(
        (&find("openai")["state"], &find("openai")["key_variable"]),
        (&"no_key".into(), &"OPENAI_API_KEY".into())
    );
    let models = find("mine")["models"].as_array().unwrap();
    assert_eq!((&models[0]["name"], &models[0]["is_default"]), (&"mine/large".into(), &false.into()));
    assert_eq!(models[0]["usd_per_million_tokens"]["cache_write"], 3.125);
    assert_eq!((&models[0]["max_output"], &models[1]["context_window"]), (&99.into(), &8192.into()));
    assert_eq!(
        (&models[1]["usd_per_million_tokens"]["input"], &models[1]["is_default"]),
        (&0.0.into(), &true.into())
    );
}

#[test]
fn configured_price_determines_the_cost() {
    let server = Server::start("200 OK\r\nContent-Type: text/event-stream", HELLO);
    let price = "[prices.'mine/small']\ninput = 3.0\noutput = 15\nmax_output = 321\n";
    let home = with_server(&server.url, price);
    let run = ["run", "the task", "--budget-usd", "1", "--output-format", "json"];
    let report = home.brigade(&run).exits_with(0).json();
    assert_eq!(report["cost_usd"], 0.00603, "{report}");
    assert!(server.asked()[0].contains("\"max_tokens\":321"), "{}", server.asked()[0]);
    let free = with_server(&server.url, "").brigade(&run).exits_with(0).json();
    assert_eq!(free["cost_usd"], 0.0);
    let poor = home.brigade(&["run", "the task", "--budget-usd", "0.0001"]);
    assert_ne!(poor.code, 0, "the worst case of a call does not fit: {}", poor.stdout);
}

#[test]
fn unpriced_model_is_refused_under_a_usd_budget() {
    let work = "[providers.work]\nkind = 'anthropic'\nbase_url = 'http://proxy.invalid'";
    let home = home(work);
    let done = home.brigade(&["run", "x", "--model", "work/claude-opus-5", "--budget-usd", "1"]);
    let mut console = Console::new(&home);
    console.add(done.exits_with(2));
    insta::assert_snapshot!(console.text());
    assert!(!done.stderr.contains("PROVIDER/MODEL"), "{}", done.stderr);
}

#[test]
fn local_proxy_with_a_key_is_refused_under_a_usd_budget() {
    let server = Server::start("200 OK\r\nContent-Type: text/event-stream", HELLO);
    let run = ["run", "the task", "--budget-usd", "1", "--output-format", "json"];
    let with_key =
        |home: &Home, args: &[&str]| CommandResult::run(home.command(args).env("PROXY_KEY", "sk-0123456789"));
    let proxy = with_server(&server.url, "api_key_env = 'PROXY_KEY'\n");
    let refused = with_key(&proxy, &run);
    refused.exits_with(2).stderr_contains("the price of the model 'mine/small' is unknown");
    assert_eq!(server.connections(), 0, "nothing is sent");
    let unknown = with_key(&proxy, &["run", "the task"]);
    unknown.exits_with(0);
    assert!(!unknown.stderr.contains('$'), "{}", unknown.stderr);
    for look in ["list", "tree"] {
        let arguments: &[&str] =
            if look == "list" { &["sessions", look] } else { &["sessions", look, "last"] };
        let shown = proxy.brigade(arguments);
        assert!(
            shown.exits_with(0).stdout.contains(" - ") && !shown.stdout.contains('$'),
            "{}",
            shown.stdout
        );
        let json = proxy.brigade(&[arguments, &["--output-format", "json"]].concat()).json();
        let entry = if look == "list" { &json[0] } else { &json["agents"][0] };
        assert_eq!((&entry["cost_usd"], &entry["cost_unknown"]), (&0.0.into(), &true.into()), "{json}");
    }
    proxy.brigade(&["sessions", "show", "last"]).exits_with(0).stdout_contains("cost unknown");
    let report = with_key(&proxy, &["run", "the task", "--output-format", "json"]).json();
    assert_eq!((&report["cost_usd"], &report["cost_unknown"]), (&0.0.into(), &true.into()), "{report}");
    assert_eq!(report["agents"][0]["cost_unknown"], true, "{report}");
    let price = "api_key_env = 'PROXY_KEY'\n[prices.'mine/small']\ninput = 3.0\noutput = 15\n";
    let report = with_key(&with_server(&server.url, price), &run).exits_with(0).json();
    assert_eq!(report["cost_usd"], 0.00603, "{report}");
    let local = format!(
        "model = 'vllm/small'\n[providers.vllm]\nbase_url = '{}'\napi_key_env = 'PROXY_KEY'\n",
        server.url
    );
    let free = with_key(&home(&local), &run).exits_with(0).json();
    assert_eq!((&free["cost_usd"], &free["cost_unknown"]), (&0.0.into(), &serde_json::Value::Null), "{free}");
}

#[test]
fn local_proxy_with_a_key_is_not_listed_as_free() {
    let server = Server::start("200 OK", TWO);
    let home = with_server(&server.url, "api_key_env = 'PROXY_KEY'\n");
    let models = ["models", "mine"];
    let done = CommandResult::run(home.command(&models).env("PROXY_KEY", "sk-0123456789"));
    done.exits_with(0).stdout_contains("mine/small");
    assert!(!done.stdout.contains("free"), "{}", done.stdout);
}

#[test]
fn invalid_price_error_names_file_and_fix() {
    let home = Home::new();
    let file = home.home().join("config.toml").display().to_string();
    let mut console = Console::new(&home);
    let elsewhere =
        "[providers.openai]\nbase_url = 'https://proxy.invalid'\n[prices.'openai/gpt-4.1']\ninput = 1";
    for config in [
        "[prices.'openai/gpt-4.1']\ninput = -1.0",
        "[prices.'openai/gpt-4.1']\ninput = nan",
        "[prices.'openai/gpt-4.1']\ninput = 'dear'",
        "[prices.'openai/gpt-4.1']\ninput = 2e6",
        "[prices.'openai/gpt-4.1']\ncontext_window = 0",
        "[prices.openai]\ninput = 1",
        "[prices.'opnai/x']\ninput = 1\noutput = 1",
        "[prices.'openai/x']\ninput = 1",
        "[prices.'ollama/x']\noutput = 1",
        "[prices.'openai/x']\ncache_read = 1",
        elsewhere,
    ] {
        home.write("home/config.toml", config);
        console.add(home.brigade(&["config", "show"]).exits_with(2).stderr_contains(&file));
    }
    insta::assert_snapshot!(console.text());
    home.write(
        "home/config.toml",
        "[prices.'openai/gpt-4.1']\ninput = 1\n[prices.'openai/x']\nmax_output = 5",
    );
    home.brigade(&["config", "show"]).exits_with(0).stdout_contains("[prices.\"openai/gpt-4.1\"]");
    let models = home.brigade(&["models", "openai"]);
    let line = models.stdout.lines().find(|line| line.contains("openai/gpt-4.1 ")).unwrap();
    assert_eq!(line.split_whitespace().skip(1).take(4).collect::<Vec<_>>(), ["1.00", "8.00", "1.00", "2.00"]);
}

#[test]
fn project_config_cannot_set_prices() {
    let home = Home::new();
    let mut console = Console::new(&home);
    std::fs::create_dir(home.work().join(".brigade")).unwrap();
    home.write("work/.brigade/config.toml", "[prices.'openai/gpt-4.1']\ninput = 0\noutput = 0\n");
    console.add(home.brigade(&["trust", "--yes"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}
