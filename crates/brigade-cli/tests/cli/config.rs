//! Origins of configuration values, and errors in them.

use brigade_testing::{HttpResponse, HttpServer, Script, call, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

fn hello() -> Script {
    Script::new().reply("hello")
}

#[test]
fn unknown_key_error_names_the_place_and_the_nearest_key() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "[swarm]\nmax_dept = 2\n");
    let done = home.brigade(&["config", "show"]);
    console.add(done.exits_with(2));
    home.run(hello(), &[]).exits_with(2);
    home.write("home/config.toml", "[swarm]\nmax_depth = 'two'\n");
    console.add(home.brigade(&["tools", "list"]).exits_with(2));
    home.write("home/config.toml", "[swarm\n");
    console.add(home.brigade(&["tools", "list"]).exits_with(2));
    home.write("home/config.toml", "[swarm.roles]\na = {}\nA = {}\n");
    console.add(home.brigade(&["tools", "list"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn set_flag_values_are_checked() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["config", "show", "--set", "swarm.enabeld=true"]).exits_with(2));
    console.add(home.brigade(&["config", "show", "--set", "swarm"]).exits_with(2));
    console.add(home.brigade(&["config", "show", "--set", "limits.child_timeout=soon"]).exits_with(2));
    let done = CommandResult::run(home.command(&["config", "show"]).env("BRIGADE_SWARM__MAX_DEPHT", "2"));
    console.add(done.exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn later_config_layers_win() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write(
        "home/config.json",
        r#"{"swarm": {"max_depth": 2, "max_concurrent": 5}, "budget": {"usd": 0.1}}"#,
    );
    let mut command = home.command(&["config", "show", "--set", "swarm.enabled=false"]);
    let done = CommandResult::run(command.env("BRIGADE_SWARM__MAX_DEPTH", "3"));
    console.add(done.exits_with(0));
    assert!(done.stdout.contains("max_concurrent = 5  # from ") && done.stdout.contains("config.json"));
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).json();
    assert_eq!(shown["config"]["swarm"]["max_depth"], 2);
    assert_eq!(shown["origins"]["swarm.keep"], "default");
    home.write("home/config.toml", "");
    console.add(home.brigade(&["config", "show"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn configured_model_is_used() {
    let home = Home::new();
    let model = home.script(hello());
    home.write("home/config.toml", &format!("model = \"{model}\""));
    assert_eq!(home.brigade(&["run", "x"]).exits_with(0).stdout, "hello\n");
    home.write("work/other.toml", "[[reply]]\ntext = 'other'");
    let mut command = home.command(&["run", "x"]);
    let done = command.env("BRIGADE_MODEL", "script:other.toml").output().unwrap();
    assert_eq!(CommandResult::of(done).exits_with(0).stdout, "other\n");
}

#[test]
fn commands_do_not_see_api_keys() {
    let home = Home::new();
    let script = Script::new().turns([call("shell", json!({ "command": "env" })), reply("{result:0}")]);
    let model = home.script(script);
    let mut command = home.command(&["run", "--model", &model, "--mode", "auto", "x"]);
    let done = command.env("SECRET_API_KEY", "sesame").env("LC_ALL", "C").output().unwrap();
    let done = CommandResult::of(done);
    done.exits_with(0).stdout_contains("PATH=").stdout_contains("LC_ALL=C");
    assert!(!done.stdout.contains("sesame") && !done.stdout.contains("BRIGADE"), "{}", done.stdout);
}

#[test]
fn mode_decides_which_calls_run() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new().turns([
        call("write_file", json!({ "path": "f", "content": "x" }))
            .call("shell", json!({ "command": "touch g" })),
        reply("{results}"),
    ]);
    let there = |name: &str| home.work().join(name).exists();
    console.add(home.run(&script, &["--mode", "plan"]).exits_with(0));
    assert!(!there("f") && !there("g"));
    console.add(home.run(&script, &["--no-sandbox"]).exits_with(0));
    assert!(there("f") && !there("g"));
    let denied = ["--set", "permissions.deny=[\"write_file\"]", "--mode", "auto"];
    console.add(home.run(&script, &denied).exits_with(0));
    assert!(there("g"));
    insta::assert_snapshot!(console.text());
}

#[test]
fn denied_call_is_noted_only_with_text_output() {
    let home = Home::new();
    let script = Script::new().turns([call("shell", json!({ "command": "rm -rf x" })), reply("done")]);
    let rule = ["--mode", "auto", "--set", "permissions.deny=[\"shell(rm *)\"]"];
    let note = "lead: denied shell rm -rf x: the rule `shell(rm *)` in `permissions.deny` forbids it\n";
    for flags in [&[][..], &["-v"]] {
        let done = home.run(&script, &[&rule, flags].concat());
        assert_eq!(done.exits_with(0).stderr.matches(note).count(), 1, "{}", done.stderr);
        assert!(!done.stderr.contains("failed: `shell`"), "{}", done.stderr);
    }
    for format in ["json", "stream-json"] {
        let done = home.run(&script, &[&rule[..], &["--output-format", format]].concat());
        assert!(!done.exits_with(0).stderr.contains("denied"), "{}", done.stderr);
    }
}

#[test]
fn rule_for_an_unknown_tool_is_an_error() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "[permissions]\ndeny = ['shel(git push)']\n");
    console.add(home.run(hello(), &[]).exits_with(2));
    home.write("home/config.toml", "[permissions]\ndeny = ['unheard_of']\n");
    console.add(home.run(hello(), &[]).exits_with(2));
    home.write("home/config.toml", "[permissions]\ndeny = ['shell(git push)', 'mcp__any__*']\n");
    home.run(hello(), &[]).exits_with(0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn web_search_needs_an_engine_and_its_key() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("web_fetch");
    assert!(!home.brigade(&["tools", "list"]).stdout.contains("web_search"));
    home.write(
        "home/config.toml",
        "[web]\nsearch = 'brave'\n[permissions]\ndeny = ['web_fetch(*.example.com)']\n",
    );
    console.add(home.brigade(&["tools", "list"]).exits_with(2));
    home.brigade(&["sessions", "list"]).exits_with(0);
    let list = |name: &str, arguments: &[&str]| {
        let arguments = [&["tools", "list"], arguments].concat();
        CommandResult::run(home.command(&arguments).env(name, "key-that-nobody-sees"))
    };
    list("BRAVE_API_KEY", &[]).exits_with(0).stdout_contains("web_search");
    list("OTHER", &["--set", "web.search_key_env=OTHER"]).exits_with(0).stdout_contains("web_search");
    list("TAVILY_API_KEY", &["--set", "web.search=tavily"]).exits_with(0).stdout_contains("web_search");
    list("OTHER", &["--set", "web.search=https://searx.example"]).exits_with(0).stdout_contains("web_search");
    console.add(list("OTHER", &["--set", "web.search=https://a:b@searx.example"]).exits_with(2));
    console.add(list("OTHER", &["--set", "web.search=bing"]).exits_with(2));
    console.add(list("OTHER", &["--set", "web.allow_loopback=yes"]).exits_with(2));
    console.add(list("BRAVE_API_KEY", &["--set", "permissions.deny=['web_fetch(https://a)']"]).exits_with(2));
    let shown =
        CommandResult::run(home.command(&["config", "show"]).env("BRAVE_API_KEY", "key-that-nobody-sees"));
    shown
        .exits_with(0)
        .stdout_contains("search = \"brave\"")
        .stdout_contains("allow_loopback = false  # from default");
    assert!(!shown.stdout.contains("nobody"));
    insta::assert_snapshot!(console.text());
}

#[test]
fn web_fetch_from_loopback_needs_user_config() {
    let page = HttpResponse::with_headers("200 OK", "Content-Type: text/html\r\n", "<h1>inside</h1>");
    let url = HttpServer::always(page).url("/");
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new().turns([call("web_fetch", json!({ "url": url })), reply("{results}")]);
    console.add(home.run(&script, &["--mode", "plan"]).exits_with(0));
    console.add(home.run(&script, &["--mode", "plan", "--set", "web.allow_loopback=true"]).exits_with(0));
    let model = home.script(&script);
    let mut proxied = home.command(&["run", "x", "--model", &model, "--set", "web.allow_loopback=true"]);
    proxied.env("http_proxy", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
    console.add(CommandResult::run(&mut proxied).exits_with(0));
    let denied = ["--set", "web.allow_loopback=true", "--set", "permissions.deny=['web_fetch(127.0.0.1)']"];
    console.add(home.run(&script, &denied).exits_with(0));
    insta::assert_snapshot!(console.text());
}
