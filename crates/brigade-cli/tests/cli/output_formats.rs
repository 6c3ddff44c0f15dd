//! The three output formats.

use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::{Value, json};

use crate::cli::support::Home;

fn team() -> Script {
    Script::new()
        .price(1.0, 2.0)
        .agent(
            "lead",
            [
                reply("splitting")
                    .delegate("Worker {n}", "part {n}")
                    .repeat(2)
                    .delegate("Broken", "fail")
                    .chunks(3),
                reply("{results}").turn(2),
            ],
        )
        .agent("Broken", [fault(Fault::Refused)])
        .turns([
            reply("working").call("echo", json!({ "text": "e" })).chunks(4).task("part"),
            reply("did {result:0}").turn(2).chunks(2).task("part"),
        ])
}

#[test]
fn json_format_prints_one_object() {
    let home = Home::new();
    let report = home.report(team(), &[]);
    assert_eq!(report["status"], "done");
    assert!(report["result"].as_str().unwrap().starts_with("[Worker 0]: did e\n[Worker 1]: did e\n"));
    assert_eq!(report["turns"], 2);
    assert_eq!(report["agents"].as_array().unwrap().len(), 4);
    let sum = |key: &str| -> u64 {
        report["agents"].as_array().unwrap().iter().map(|agent| agent["usage"][key].as_u64().unwrap()).sum()
    };
    for key in [
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "in_doubt_tokens",
        "reported_tokens",
    ] {
        assert_eq!(report["usage"][key].as_u64().unwrap(), sum(key), "{key}");
    }
    assert!(report["cost_usd"].as_f64().unwrap() > 0.0);
    let broken = &report["agents"][3];
    assert_eq!((broken["status"].as_str(), broken["agent"].as_str()), (Some("failed"), Some("Broken")));
    assert!(broken["key"].as_str().unwrap().starts_with("delegate:"));
    let failed = home.run(Script::new().reply(fault(Fault::Refused)), &["--output-format", "json"]);
    assert_eq!(failed.exits_with(1).json()["error"], "the scripted model refuses");
}

#[test]
fn stream_json_costs_name_their_unit() {
    let home = Home::new();
    let lines =
        home.run(team(), &["--output-format", "stream-json", "--budget-usd", "2.5"]).exits_with(0).lines();
    let started = of_kind(&lines, "started")[0];
    let budget = &started["grant"]["budget"];
    assert_eq!(
        (&budget["usd_nano"], &budget["cost_usd"]),
        (&2_500_000_000_u64.into(), &2.5.into()),
        "{budget}"
    );
    let mut costly = 0;
    for line in lines.iter().filter(|line| line["spent"].is_object()) {
        let spent = &line["spent"];
        let nano = spent["usd"].as_u64().unwrap_or(0);
        assert_eq!(
            (&spent["usd_nano"], &spent["cost_usd"]),
            (&nano.into(), &(nano as f64 / 1e9).into()),
            "{line}"
        );
        costly += u32::from(nano > 0);
    }
    assert!(costly > 3, "{costly}");
}

#[test]
fn duration_excludes_time_between_rounds() {
    let home = Home::new();
    let first = home.report(Script::new().reply("ok {turn}"), &[]);
    let session = first["session_id"].as_str().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(4));
    let told = home.brigade(&["tell", session, "more", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(told["turns"], 2, "{told}");
    let worked = |report: &Value| report["agents"][0]["duration_ms"].as_u64().unwrap();
    assert!(worked(&told) < 3_500, "{told}");
    let tree = home.brigade(&["sessions", "tree", session, "--output-format", "json"]).exits_with(0).json();
    assert_eq!(worked(&tree), worked(&told));
    assert_eq!(tree["agents"][0]["branch"]["duration_ms"], tree["agents"][0]["duration_ms"]);
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[test]
fn stream_json_contains_every_event_of_every_agent() {
    let home = Home::new();
    let done = home.run(team(), &["--output-format", "stream-json"]);
    let lines = done.exits_with(0).lines();
    let report = lines.last().unwrap();
    assert_eq!((report["type"].as_str(), report["status"].as_str()), (Some("result"), Some("done")));
    let facts: Vec<&Value> = lines.iter().filter(|line| line.get("seq").is_some()).collect();
    for fact in &facts {
        for key in ["session", "parent", "depth", "agent", "key", "seq", "at", "type"] {
            assert!(fact.get(key).is_some(), "no {key} in {fact}");
        }
    }
    let id = report["session_id"].as_str().unwrap();
    let shown = home.brigade(&["sessions", "show", id, "--output-format", "json"]).json();
    let of_root = facts.iter().filter(|fact| fact["session"] == id).count();
    assert_eq!(of_root, shown["records"].as_array().unwrap().len(), "every fact, once");
    let deltas = of_kind(&lines, "delta");
    assert!(deltas.iter().all(|delta| delta["live"] == true) && !deltas.is_empty());

    let starts = of_kind(&lines, "subagent_start");
    assert_eq!(starts.len(), 3);
    for start in starts {
        assert_eq!(start["mode"], "role");
        let life: Vec<&str> = lines
            .iter()
            .filter(|line| line["id"] == start["id"])
            .map(|line| line["type"].as_str().unwrap())
            .collect();
        let is_end = |kind: &&str| matches!(*kind, "subagent_complete" | "subagent_error");
        assert_eq!(life.first(), Some(&"subagent_start"), "{life:?}");
        assert!(life.last().is_some_and(is_end), "{life:?}");
        assert_eq!(life.iter().copied().filter(|kind| is_end(kind)).count(), 1, "{life:?}");
        let calls = |kind: &str| life.iter().filter(|other| **other == kind).count();
        assert_eq!(calls("subagent_tool_call_start"), calls("subagent_tool_call_end"));
        if start["description"] != "Broken" {
            assert!(
                calls("subagent_stream_delta") >= 4 && calls("subagent_tool_call_start") == 1,
                "{life:?}"
            );
        }
    }
    assert_eq!(of_kind(&lines, "subagent_error").len(), 1);
}

#[test]
fn stream_json_names_the_call_of_every_result() {
    let home = Home::new();
    let script = Script::new()
        .agent("lead", [delegate("Reader", "read").turn(1)])
        .agent(
            "Reader",
            [call("message", json!({ "text": "half way" }))
                .call("read_file", json!({ "path": "nothing.txt" }))
                .turn(1)],
        )
        .reply("over");
    let lines = home.run(script, &["--output-format", "stream-json"]).exits_with(0).lines();
    let calls: Vec<&Value> =
        of_kind(&lines, "subagent_tool_call_start").iter().map(|line| &line["call"]).collect();
    assert_eq!(calls[0], &json!({ "id": "1-0", "name": "message", "arguments": { "text": "half way" } }));
    assert_eq!(
        calls[1],
        &json!({ "id": "1-1", "name": "read_file", "arguments": { "path": "nothing.txt" } })
    );
    let results: Vec<&Value> =
        of_kind(&lines, "subagent_tool_call_end").iter().map(|line| &line["result"]).collect();
    assert_eq!(results[0], &json!({ "id": "1-0", "name": "message", "text": "Sent.", "status": "ok" }));
    assert_eq!((&results[1]["id"], &results[1]["name"]), (&json!("1-1"), &json!("read_file")));
    assert_eq!(results[1]["status"], "error");
    // A message appears here as in `messages`.
    let said: Vec<&Value> = of_kind(&lines, "said").iter().map(|line| &line["text"]).collect();
    assert_eq!(said, [&json!("[Reader]: half way")]);
    assert_eq!(lines.last().unwrap()["messages"][0]["text"], "[Reader]: half way");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let home = Home::new();
    let script = Script::new()
        .agent(
            "lead",
            [call("message", json!({ "text": "hi \u{1b}[2J\u{9b}31m\u{202e} there\nlead: done" }))
                .delegate("Good", "\u{1b}]0;title\u{7}x")
                .turn(1)],
        )
        .agent("Good", [fault(Fault::Refused)])
        .reply("raw \u{1b}[1m bytes");
    let done = home.run(script, &["-v"]);
    assert_eq!(done.exits_with(0).stdout, "raw \\u{1b}[1m bytes\n");
    let hostile = |text: &str| text.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']);
    assert!(!hostile(&done.stderr), "{:?}", done.stderr);
    done.stderr_contains("[lead]: hi \\u{1b}[2J\\u{9b}31m\\u{202e} there\n    lead: done");
    for format in ["text", "json"] {
        let list = home.brigade(&["sessions", "list", "--output-format", format]);
        assert!(!hostile(&list.stdout));
    }
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    let id = list[0]["session_id"].as_str().unwrap();
    for arguments in [["show", "text"], ["show", "json"], ["tree", "text"], ["tree", "json"]] {
        let done = home.brigade(&["sessions", arguments[0], id, "--output-format", arguments[1]]);
        assert!(!hostile(&done.exits_with(0).stdout), "{arguments:?}: {:?}", done.stdout);
    }
}

#[test]
fn raw_flag_keeps_control_characters_and_json_loses_none() {
    const SAID: &str = "a\u{1b}[2Jb\u{9b}31mc\u{7f}d\re\u{0}f\tg\u{202e}h\n\u{1b}]0;title\u{7}";
    let home = Home::new();
    let model = home.script(Script::new().reply(SAID));
    let run = |more: &[&str]| {
        let done = home.brigade(&[&["run", "--model", &model, "the task"], more].concat());
        done.exits_with(0);
        done
    };
    let piped = run(&[]).stdout.clone();
    assert!(!piped.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{piped:?}");
    assert!(piped.starts_with("a\\u{1b}[2Jb\\u{9b}31mc\\u{7f}d\\u{d}e\\u{0}f\tg\u{202e}h\n"), "{piped:?}");
    assert_eq!(run(&["--raw"]).stdout, format!("{SAID}\n"));
    let hostile = |text: &str| text.chars().any(|c| c == '\u{202e}' || (c.is_control() && c != '\n'));
    let json = run(&["--output-format", "json"]);
    assert!(!hostile(&json.stdout), "{:?}", json.stdout);
    assert_eq!(json.json()["result"], SAID);
    let stream = run(&["--output-format", "stream-json"]);
    assert!(!hostile(&stream.stdout), "{:?}", stream.stdout);
    let last: serde_json::Value = serde_json::from_str(stream.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"], SAID);
}
