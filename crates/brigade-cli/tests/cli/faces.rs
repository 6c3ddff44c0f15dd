//! The stories of delegation styles B, C and D, and a tree with all of them, through the command line.

use brigade_testing::{Purpose, Script, call, delegate, reply};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::support::Home;

const ALL_STYLES: &[&str] = &["--faces", "delegate,subagent,dispatch,spawn"];

fn agent_file(home: &Home, id: &str, head: &str) {
    std::fs::create_dir_all(home.home().join("agents").join(id)).unwrap();
    home.write(
        &format!("home/agents/{id}/AGENT.md"),
        &format!("---\nname: {id}\ndescription: Does the work of {id}\n{head}---\nYou are {id}.\n"),
    );
}

/// First columns of a table. Tokens and times differ from run to run, and shift the columns after them.
fn normalized(text: &str) -> String {
    let column = |line: &str| line.chars().take(22).collect::<String>().trim_end().to_owned() + "\n";
    text.lines().map(column).collect()
}

#[test]
fn max_depth_0_disables_delegation() {
    let home = Home::new();
    let off = ["--set", "swarm.max_depth=0"];
    let tools = home.brigade(&[&["tools", "list"], &off[..]].concat());
    assert!(!tools.exits_with(0).stdout.contains("delegate"), "{}", tools.stdout);
    let script = Script::new().turns([delegate("Reader", "read"), reply("{results}")]);
    let done = home.run(script, &off);
    assert_eq!(
        done.exits_with(0).stdout,
        "Delegation is disabled in configuration (`swarm.max_depth` is 0)\n"
    );
}

#[test]
fn zero_byte_report_limit_is_refused() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = home.run(Script::new().reply("x"), &["--set", "subagent.output_max_size=0"]);
    console.add(done.exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn agent_folder_name_may_differ_from_its_id() {
    let home = Home::new();
    for folder in ["Pickle", "my agent"] {
        agent_file(&home, folder, "");
    }
    let list = home.brigade(&["agents", "list", "--output-format", "json"]).exits_with(0).json();
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["my-agent", "pickle"]);
    home.brigade(&["agents", "show", "my agent"]).exits_with(0).stdout_contains("You are my agent.");
    let script = Script::new()
        .agent(
            "pickle",
            [
                call("subagent_dispatch", json!({ "agent_id": "my agent", "task": "look" })),
                reply("{results}"),
            ],
        )
        .reply("looked");
    let done = home.run(script, &["-a", "Pickle"]);
    assert!(done.exits_with(0).stdout.starts_with(r#"{"result":"looked","session_id":"#), "{}", done.stdout);
}

#[test]
fn s06_subagent_with_a_tool_list_can_only_search_and_read() {
    let home = Home::new();
    home.write("work/app.log", "one\nERROR two\n");
    let report = home.report(
        Script::new()
            .agent(
                "lead",
                [
                    call(
                        "subagent",
                        json!({
                            "label": "analyze_logs",
                            "task_prompt": "find errors",
                            "allowed_tools": ["file_ops", "grep"],
                            "max_turns": 5,
                        }),
                    ),
                    reply("{result:0}"),
                ],
            )
            .reply(reply("report: {results}").purpose(Purpose::Summary))
            .agent(
                "analyze_logs",
                [call("grep", json!({ "pattern": "ERROR" }))
                    .call("read_file", json!({ "path": "app.log" }))
                    .call("write_file", json!({ "path": "x", "content": "x" }))
                    .call("shell", json!({ "command": "true" }))
                    .turn(1)],
            )
            .reply("found"),
        &["--faces", "subagent", "--mode", "auto"],
    );
    let result = report["result"].as_str().unwrap();
    assert!(result.contains("ERROR two"), "{result}");
    assert!(result.contains("Unknown tool `write_file`"), "{result}");
    assert!(result.contains("Unknown tool `shell`"), "{result}");
    assert!(!home.work().join("x").exists());
}

#[test]
fn s07_subagents_nest_and_show_prints_their_metadata() {
    let home = Home::new();
    home.write("home/config.toml", "[subagent]\nmax_depth = 3\n");
    let report = home.report(
        Script::new()
            .reply(reply("{role}: {results}").purpose(Purpose::Summary))
            .agent("lead", [reply("{result:0}").turn(2)])
            .turns([call("subagent", json!({ "label": "next", "task_prompt": "go deeper" })), reply("done")]),
        &[],
    );
    let result = report["result"].as_str().unwrap();
    assert!(
        result.contains("Maximum recursion depth exceeded (subagent limit 3, current depth 2)"),
        "{result}"
    );
    let agents = report["agents"].as_array().unwrap();
    assert_eq!(agents.iter().map(|agent| agent["depth"].as_u64().unwrap()).max(), Some(2));
    let deepest = agents.iter().find(|agent| agent["depth"] == 2).unwrap();
    let id = deepest["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "show", id])
        .exits_with(0)
        .stdout_contains("subagent_label: next")
        .stdout_contains("recursion_depth: 1")
        .stdout_contains("child_depth: 2")
        .stdout_contains("completion_status: complete");
}

#[test]
fn s08_long_subagent_report_is_truncated_and_whole_in_its_session() {
    let home = Home::new();
    let long = "x".repeat(5_000);
    let report = home.report(
        Script::new()
            .agent(
                "lead",
                [
                    call("subagent", json!({ "label": "endless", "task_prompt": "go", "max_turns": 1 })),
                    reply("{result:0}"),
                ],
            )
            .reply(reply(&long).purpose(Purpose::Summary))
            .reply(call("echo", json!({ "text": "again" }))),
        &["--faces", "subagent"],
    );
    assert_eq!(report["status"], "done");
    let expected = format!("{}\n... (truncated)\n(incomplete: turns)", "x".repeat(4096));
    assert_eq!(report["result"].as_str().unwrap(), expected);
    let id = report["agents"][1]["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "show", id])
        .exits_with(0)
        .stdout_contains(&long)
        .stdout_contains("completion_status: incomplete")
        .stdout_contains("max_turns_reached: true");
}

fn dispatcher() -> Script {
    Script::new()
        .agent(
            "pickle",
            [
                call("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "look at a file" })),
                reply("{result:0}"),
            ],
        )
        .agent("reviewer", [reply("looks good").task("look"), reply("as reviewer I add: {heard}")])
}

#[test]
fn s09_dispatched_agent_session_is_listed_and_resumed() {
    let home = Home::new();
    agent_file(&home, "pickle", "");
    agent_file(&home, "reviewer", "");
    let report = home.report(dispatcher(), &["-a", "pickle"]);
    let result: Value = serde_json::from_str(report["result"].as_str().unwrap()).unwrap();
    assert_eq!(result["result"], "looks good");
    let id = result["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains(id).stdout_contains("reviewer");
    let told = home.brigade(&["tell", id, "and the tests?"]);
    told.exits_with(0).stdout_contains("as reviewer I add: and the tests?");
    // It is now an independent session: removing its origin keeps it.
    home.brigade(&["sessions", "rm", report["session_id"].as_str().unwrap()]).exits_with(0);
    home.brigade(&["sessions", "show", id]).exits_with(0).stdout_contains("and the tests?");
}

#[test]
fn s10_broken_agent_file_is_reported_and_hides_no_other() {
    let home = Home::new();
    agent_file(&home, "one", "");
    agent_file(&home, "two", "");
    std::fs::create_dir_all(home.home().join("agents/broken")).unwrap();
    home.write("home/agents/broken/AGENT.md", "---\nname: broken\n---\nbody\n");
    let listed = home.brigade(&["agents", "list"]);
    listed.stdout_contains("one").stdout_contains("two");
    assert!(
        listed.stderr.contains("broken/AGENT.md") && listed.stderr.contains("description"),
        "{}",
        listed.stderr
    );
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("subagent_dispatch");
    let alone = Home::new();
    assert!(!alone.brigade(&["tools", "list"]).exits_with(0).stdout.contains("subagent_dispatch"));
}

#[test]
fn s11_planner_without_shell_dispatches_coder_with_shell() {
    let script = Script::new()
        .agent(
            "planner",
            [
                call("subagent_dispatch", json!({ "agent_id": "coder", "task": "build it" }))
                    .call("shell", json!({ "command": "echo planner" })),
                reply("{results}"),
            ],
        )
        .agent("coder", [call("shell", json!({ "command": "echo built" })), reply("{result:0}")]);
    for (lend, can) in [("", true), ("lend: []\n", false)] {
        let home = Home::new();
        agent_file(&home, "planner", &format!("tools: [read_file]\n{lend}"));
        agent_file(&home, "coder", "tools: [shell]\ntemperature: 0.2\n");
        let report = home.report(&script, &["-a", "planner", "--mode", "auto"]);
        let result = report["result"].as_str().unwrap();
        assert!(result.contains("Unknown tool `shell`"), "the planner itself has none: {result}");
        assert_eq!(result.contains("built"), can, "{result}");
    }
}

#[test]
fn s12_nested_sub_agents_stream_their_lifecycle_in_order() {
    let home = Home::new();
    let script = Script::new()
        .agent("lead", [call("subagent_spawn", json!({ "task": "outer", "description": "outer" })).turn(1)])
        .agent(
            "outer",
            [reply("let me see")
                .call("subagent_spawn", json!({ "task": "inner", "description": "inner" }))
                .turn(1)],
        )
        .reply("done");
    let done = home.run(script, &["--faces", "spawn", "--output-format", "stream-json"]);
    done.exits_with(0);
    let told: Vec<(String, String)> = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["type"].as_str().is_some_and(|kind| kind.starts_with("subagent_")))
        .map(|line| (line["type"].as_str().unwrap().to_owned(), line["id"].as_str().unwrap().to_owned()))
        .collect();
    let place = |kind: &str, id: &str| {
        let wanted = (format!("subagent_{kind}"), id.to_owned());
        let found: Vec<usize> = (0..told.len()).filter(|at| told[*at] == wanted).collect();
        assert_eq!(found.len(), 1, "{kind} of {id} in {told:?}");
        found[0]
    };
    let order = [
        place("start", "sub_1"),
        place("tool_call_start", "sub_1"),
        place("start", "sub_2"),
        place("complete", "sub_2"),
        place("tool_call_end", "sub_1"),
        place("complete", "sub_1"),
    ];
    assert!(order.is_sorted(), "{told:?}");
    assert!(told.iter().all(|(kind, _)| kind != "subagent_error"));
}

#[test]
fn s14_all_styles_enabled_render_a_mixed_tree() {
    let home = Home::new();
    agent_file(&home, "reviewer", "");
    let script = Script::new()
        .reply(reply("helped").purpose(Purpose::Summary))
        .agent(
            "lead",
            [delegate("Child", "try all")
                .call("subagent", json!({ "label": "helper", "task_prompt": "help" }))
                .call(
                    "parallel_subagent",
                    json!({
                        "tasks": [
                            { "label": "left", "task_prompt": "l" },
                            { "label": "right", "task_prompt": "r" },
                        ],
                    }),
                )
                .call("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "review" }))
                .call("subagent_spawn", json!({ "task": "spawn", "description": "nested loop" }))
                .call("subagent_delegate", json!({ "task": "answer", "description": "one answer" }))
                .turn(1)],
        )
        .agent(
            "Child",
            [delegate("x", "x")
                .call("subagent", json!({ "label": "x", "task_prompt": "x" }))
                .call("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "x" }))
                .call("subagent_spawn", json!({ "task": "x", "description": "x" }))
                .turn(1)],
        )
        .reply("done");
    let report = home.report(script, ALL_STYLES);
    assert_eq!(report["status"], "done", "{report}");
    let agents = report["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 8, "{agents:#?}");
    let keys: Vec<&str> = agents.iter().map(|agent| agent["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"sub_1") && keys.contains(&"sub_2"), "{keys:?}");
    let tree = home.brigade(&["sessions", "tree", report["session_id"].as_str().unwrap()]);
    tree.exits_with(0);
    insta::assert_snapshot!(normalized(&tree.stdout));
}

#[test]
fn enabled_delegation_styles_follow_config_and_flag() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let listed = |arguments: &[&str]| home.brigade(&[&["tools", "list"], arguments].concat()).stdout;
    assert!(listed(&[]).contains("delegate") && !listed(&[]).contains("parallel_subagent"));
    assert!(listed(&["--set", "subagent.max_depth=3"]).contains("parallel_subagent"));
    let spawn = listed(&["--set", "delegation.faces=spawn"]);
    assert!(spawn.contains("subagent_spawn") && !spawn.contains("Delegate a self-contained task"), "{spawn}");
    console.add(home.brigade(&["tools", "list", "--set", "delegation.faces=swarm"]).exits_with(2));
    console.add(
        home.run(Script::new().reply("x"), &["--set", "subagent.max_depth=2", "--faces", "spawn"])
            .exits_with(0),
    );
    insta::assert_snapshot!(console.text());
}
