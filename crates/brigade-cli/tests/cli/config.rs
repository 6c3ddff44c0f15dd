//! Where values come from, and what is wrong with them.

use crate::support::Home;

const HELLO: &str = "[[reply]]\ntext = 'hello'";

#[test]
fn unknown_keys_name_the_place_and_the_nearest_key() {
    let home = Home::new();
    let file = home.write("home/config.toml", "[swarm]\nmax_dept = 2\n");
    let done = home.brigade(&["config", "show"]);
    done.exits(2).says(file.to_str().unwrap()).says("`swarm.max_dept`").says("`swarm.max_depth`");
    home.run(HELLO, &[]).exits(2);
    home.write("home/config.toml", "[swarm]\nmax_depth = 'two'\n");
    home.brigade(&["tools", "list"]).exits(2).says("whole number");
    home.write("home/config.toml", "[swarm\n");
    home.brigade(&["tools", "list"]).exits(2).says("config.toml");
    home.write("home/config.toml", "[swarm.roles]\na = {}\nA = {}\n");
    home.brigade(&["tools", "list"]).exits(2).says("are the same role");
}

#[test]
fn settings_on_the_command_line_are_checked() {
    let home = Home::new();
    home.brigade(&["config", "show", "--set", "swarm.enabeld=true"]).exits(2).says("swarm.enabled");
    home.brigade(&["config", "show", "--set", "swarm"]).exits(2).says("key=value");
    home.brigade(&["config", "show", "--set", "limits.child_timeout=soon"]).exits(2).says("duration");
    let done = home.command(&["config", "show"]).env("BRIGADE_SWARM__MAX_DEPHT", "2").output().unwrap();
    crate::support::Done::of(done).exits(2).says("BRIGADE_SWARM__MAX_DEPHT").says("swarm.max_depth");
}

#[test]
fn later_layers_win() {
    let home = Home::new();
    home.write(
        "home/config.json",
        r#"{"swarm": {"max_depth": 2, "max_concurrent": 5}, "budget": {"usd": 0.1}}"#,
    );
    let mut command = home.command(&["config", "show", "--set", "swarm.enabled=false"]);
    let done = crate::support::Done::of(command.env("BRIGADE_SWARM__MAX_DEPTH", "3").output().unwrap());
    done.exits(0)
        .prints("max_depth = 3  # from BRIGADE_SWARM__MAX_DEPTH")
        .prints("enabled = false  # from --set swarm.enabled")
        .prints("lead_turns = 50  # from default");
    assert!(done.stdout.contains("max_concurrent = 5  # from ") && done.stdout.contains("config.json"));
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).json();
    assert_eq!(shown["config"]["swarm"]["max_depth"], 2);
    assert_eq!(shown["origins"]["swarm.keep"], "default");
    home.write("home/config.toml", "");
    home.brigade(&["config", "show"]).exits(2).says("both exist");
}

#[test]
fn the_configured_model_is_used() {
    let home = Home::new();
    let model = home.script(HELLO);
    home.write("home/config.toml", &format!("model = \"{model}\""));
    assert_eq!(home.brigade(&["run", "x"]).exits(0).stdout, "hello\n");
    home.write("work/other.toml", "[[reply]]\ntext = 'other'");
    let mut command = home.command(&["run", "x"]);
    let done = command.env("BRIGADE_MODEL", "script:other.toml").output().unwrap();
    assert_eq!(crate::support::Done::of(done).exits(0).stdout, "other\n");
}

#[test]
fn commands_do_not_see_keys() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'shell'\narguments = { command = 'env' }\n\
                  [[reply]]\ntext = '{result:0}'";
    let model = home.script(script);
    let mut command = home.command(&["run", "--model", &model, "--mode", "auto", "x"]);
    let done = command.env("SECRET_API_KEY", "sesame").env("LC_ALL", "C").output().unwrap();
    let done = crate::support::Done::of(done);
    done.exits(0).prints("PATH=").prints("LC_ALL=C");
    assert!(!done.stdout.contains("sesame") && !done.stdout.contains("BRIGADE"), "{}", done.stdout);
}

#[test]
fn modes_decide_what_runs() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'write_file'\narguments = { path = 'f', content = 'x' }\n\
                  [[reply.call]]\ntool = 'shell'\narguments = { command = 'touch g' }\n\
                  [[reply]]\ntext = '{results}'";
    let there = |name: &str| home.work().join(name).exists();
    home.run(script, &["--mode", "plan"]).exits(0).prints("plan mode");
    assert!(!there("f") && !there("g"));
    home.run(script, &[]).exits(0).prints("not allowed");
    assert!(there("f") && !there("g"));
    home.run(script, &["--set", "permissions.deny=[\"write_file\"]", "--mode", "auto"])
        .exits(0)
        .prints("deny");
    assert!(there("g"));
}

#[test]
fn a_rule_for_a_tool_that_does_not_exist_is_an_error() {
    let home = Home::new();
    home.write("home/config.toml", "[permissions]\ndeny = ['shel(git push)']\n");
    home.run(HELLO, &[]).exits(2).says("permissions.deny").says("`shel(git push)`").says("shell");
    home.write("home/config.toml", "[permissions]\ndeny = ['shell(git push)', 'mcp__any__*']\n");
    home.run(HELLO, &[]).exits(0);
}
