//! Origins of configuration values, and errors in them.

use crate::support::Home;

const HELLO: &str = "[[reply]]\ntext = 'hello'";

#[test]
fn unknown_key_error_names_the_place_and_the_nearest_key() {
    let home = Home::new();
    let file = home.write("home/config.toml", "[swarm]\nmax_dept = 2\n");
    let done = home.brigade(&["config", "show"]);
    done.exits_with(2)
        .stderr_contains(file.to_str().unwrap())
        .stderr_contains("`swarm.max_dept`")
        .stderr_contains("`swarm.max_depth`");
    home.run(HELLO, &[]).exits_with(2);
    home.write("home/config.toml", "[swarm]\nmax_depth = 'two'\n");
    home.brigade(&["tools", "list"]).exits_with(2).stderr_contains("whole number");
    home.write("home/config.toml", "[swarm\n");
    home.brigade(&["tools", "list"]).exits_with(2).stderr_contains("config.toml");
    home.write("home/config.toml", "[swarm.roles]\na = {}\nA = {}\n");
    home.brigade(&["tools", "list"]).exits_with(2).stderr_contains("are the same role");
}

#[test]
fn set_flag_values_are_checked() {
    let home = Home::new();
    home.brigade(&["config", "show", "--set", "swarm.enabeld=true"])
        .exits_with(2)
        .stderr_contains("swarm.enabled");
    home.brigade(&["config", "show", "--set", "swarm"]).exits_with(2).stderr_contains("key=value");
    home.brigade(&["config", "show", "--set", "limits.child_timeout=soon"])
        .exits_with(2)
        .stderr_contains("duration");
    let done = home.command(&["config", "show"]).env("BRIGADE_SWARM__MAX_DEPHT", "2").output().unwrap();
    crate::support::CommandResult::of(done)
        .exits_with(2)
        .stderr_contains("BRIGADE_SWARM__MAX_DEPHT")
        .stderr_contains("swarm.max_depth");
}

#[test]
fn later_config_layers_win() {
    let home = Home::new();
    home.write(
        "home/config.json",
        r#"{"swarm": {"max_depth": 2, "max_concurrent": 5}, "budget": {"usd": 0.1}}"#,
    );
    let mut command = home.command(&["config", "show", "--set", "swarm.enabled=false"]);
    let done =
        crate::support::CommandResult::of(command.env("BRIGADE_SWARM__MAX_DEPTH", "3").output().unwrap());
    done.exits_with(0)
        .stdout_contains("max_depth = 3  # from BRIGADE_SWARM__MAX_DEPTH")
        .stdout_contains("enabled = false  # from --set swarm.enabled")
        .stdout_contains("lead_turns = 50  # from default");
    assert!(done.stdout.contains("max_concurrent = 5  # from ") && done.stdout.contains("config.json"));
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).json();
    assert_eq!(shown["config"]["swarm"]["max_depth"], 2);
    assert_eq!(shown["origins"]["swarm.keep"], "default");
    home.write("home/config.toml", "");
    home.brigade(&["config", "show"]).exits_with(2).stderr_contains("both exist");
}

#[test]
fn configured_model_is_used() {
    let home = Home::new();
    let model = home.script(HELLO);
    home.write("home/config.toml", &format!("model = \"{model}\""));
    assert_eq!(home.brigade(&["run", "x"]).exits_with(0).stdout, "hello\n");
    home.write("work/other.toml", "[[reply]]\ntext = 'other'");
    let mut command = home.command(&["run", "x"]);
    let done = command.env("BRIGADE_MODEL", "script:other.toml").output().unwrap();
    assert_eq!(crate::support::CommandResult::of(done).exits_with(0).stdout, "other\n");
}

#[test]
fn commands_do_not_see_api_keys() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'shell'\narguments = { command = 'env' }\n\
                  [[reply]]\ntext = '{result:0}'";
    let model = home.script(script);
    let mut command = home.command(&["run", "--model", &model, "--mode", "auto", "x"]);
    let done = command.env("SECRET_API_KEY", "sesame").env("LC_ALL", "C").output().unwrap();
    let done = crate::support::CommandResult::of(done);
    done.exits_with(0).stdout_contains("PATH=").stdout_contains("LC_ALL=C");
    assert!(!done.stdout.contains("sesame") && !done.stdout.contains("BRIGADE"), "{}", done.stdout);
}

#[test]
fn mode_decides_which_calls_run() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'write_file'\narguments = { path = 'f', content = 'x' }\n\
                  [[reply.call]]\ntool = 'shell'\narguments = { command = 'touch g' }\n\
                  [[reply]]\ntext = '{results}'";
    let there = |name: &str| home.work().join(name).exists();
    home.run(script, &["--mode", "plan"]).exits_with(0).stdout_contains("plan mode");
    assert!(!there("f") && !there("g"));
    home.run(script, &[]).exits_with(0).stdout_contains("not allowed");
    assert!(there("f") && !there("g"));
    home.run(script, &["--set", "permissions.deny=[\"write_file\"]", "--mode", "auto"])
        .exits_with(0)
        .stdout_contains("deny");
    assert!(there("g"));
}

#[test]
fn rule_for_an_unknown_tool_is_an_error() {
    let home = Home::new();
    home.write("home/config.toml", "[permissions]\ndeny = ['shel(git push)']\n");
    home.run(HELLO, &[])
        .exits_with(2)
        .stderr_contains("permissions.deny")
        .stderr_contains("`shel(git push)`")
        .stderr_contains("shell");
    home.write("home/config.toml", "[permissions]\ndeny = ['shell(git push)', 'mcp__any__*']\n");
    home.run(HELLO, &[]).exits_with(0);
}

#[test]
fn web_search_needs_an_engine_and_its_key() {
    let home = Home::new();
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("web_fetch");
    assert!(!home.brigade(&["tools", "list"]).stdout.contains("web_search"));
    home.write(
        "home/config.toml",
        "[web]\nsearch = 'brave'\n[permissions]\ndeny = ['web_fetch(*.example.com)']\n",
    );
    home.brigade(&["tools", "list"])
        .exits_with(2)
        .stderr_contains("BRAVE_API_KEY is not set")
        .stderr_contains("web.search_key_env");
    home.brigade(&["sessions", "list"]).exits_with(0);
    let list = |name: &str, arguments: &[&str]| {
        let arguments = [&["tools", "list"], arguments].concat();
        crate::support::CommandResult::of(
            home.command(&arguments).env(name, "key-that-nobody-sees").output().unwrap(),
        )
    };
    list("BRAVE_API_KEY", &[]).exits_with(0).stdout_contains("web_search");
    list("OTHER", &["--set", "web.search_key_env=OTHER"]).exits_with(0).stdout_contains("web_search");
    list("TAVILY_API_KEY", &["--set", "web.search=tavily"]).exits_with(0).stdout_contains("web_search");
    list("OTHER", &["--set", "web.search=https://searx.example"]).exits_with(0).stdout_contains("web_search");
    list("OTHER", &["--set", "web.search=https://a:b@searx.example"])
        .exits_with(2)
        .stderr_contains("user name or password");
    list("OTHER", &["--set", "web.search=bing"]).exits_with(2).stderr_contains("\"brave\"");
    list("OTHER", &["--set", "web.allow_loopback=yes"]).exits_with(2).stderr_contains("true or false");
    list("BRAVE_API_KEY", &["--set", "permissions.deny=['web_fetch(https://a)']"])
        .exits_with(2)
        .stderr_contains("a host stands alone");
    let shown =
        home.command(&["config", "show"]).env("BRAVE_API_KEY", "key-that-nobody-sees").output().unwrap();
    let shown = crate::support::CommandResult::of(shown);
    shown
        .exits_with(0)
        .stdout_contains("search = \"brave\"")
        .stdout_contains("allow_loopback = false  # from default");
    assert!(!shown.stdout.contains("nobody"));
}

#[test]
fn web_fetch_from_loopback_needs_user_config() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::{Read, Write};
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>inside</h1>",
            );
        }
    });
    let home = Home::new();
    let script = format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'web_fetch'\narguments = {{ url = '{url}' }}\n[[reply]]\ntext = '{{results}}'"
    );
    home.run(&script, &["--mode", "plan"])
        .exits_with(0)
        .stdout_contains("is not allowed. Use a URL without a port");
    home.run(&script, &["--mode", "plan", "--set", "web.allow_loopback=true"])
        .exits_with(0)
        .stdout_contains("# inside");
    let model = home.script(&script);
    let mut proxied = home.command(&["run", "x", "--model", &model, "--set", "web.allow_loopback=true"]);
    proxied.env("http_proxy", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
    crate::support::CommandResult::of(proxied.output().unwrap()).exits_with(0).stdout_contains("# inside");
    let denied = ["--set", "web.allow_loopback=true", "--set", "permissions.deny=['web_fetch(127.0.0.1)']"];
    home.run(&script, &denied).exits_with(0).stdout_contains("in permissions.deny forbids it");
}
