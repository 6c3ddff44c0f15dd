//! `brigade eval`: every task can be passed and failed, the report is complete, and nothing is left behind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::support::{CommandResult, Home, text};

const SOLUTIONS: &str = include_str!("eval/solutions.toml");
const IDLE: &str = "[[reply]]\ntext = 'I did nothing.'";
const TASKS: [&str; 8] = [
    "quick-answer",
    "three-services",
    "fix-test",
    "read-only-review",
    "find-invoice",
    "brief-writer",
    "two-writers",
    "small-budget",
];

/// Runs an eval with a script, with the folder of the test for its temporary files.
fn eval(home: &Home, script: &str, arguments: &[&str]) -> CommandResult {
    let model = home.script(script);
    let all = [&["eval", "-m", &model], arguments].concat();
    CommandResult::of(home.command(&all).env("TMPDIR", home.work()).output().unwrap())
}

fn report(home: &Home, script: &str, arguments: &[&str]) -> Value {
    eval(home, script, &[&["--output-format", "json"], arguments].concat()).json()
}

/// Solutions, with replies that take precedence over them.
fn solutions_with(first: &str) -> String {
    SOLUTIONS.replacen("# quick-answer", &format!("{first}\n# quick-answer"), 1)
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn failed_checks(task: &Value) -> Vec<&str> {
    let checks = task["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["passed"] == false).map(|check| check["name"].as_str().unwrap()).collect()
}

fn left_behind(home: &Home) -> Vec<PathBuf> {
    std::fs::read_dir(home.work()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn eval_of_good_solutions_passes_every_task_and_counts_sub_agents() {
    let home = Home::new();
    let done = eval(&home, SOLUTIONS, &["--output-format", "json"]);
    let report = done.exits_with(0).json();
    assert_eq!((&report["passed"], &report["failed"]), (&8.into(), &0.into()), "{report}");
    let tasks = report["tasks"].as_array().unwrap();
    let names: Vec<&str> = tasks.iter().map(|task| task["name"].as_str().unwrap()).collect();
    assert_eq!(names, TASKS);
    let agents: Vec<u64> = tasks.iter().map(|task| task["sub_agents"].as_u64().unwrap()).collect();
    assert_eq!(agents, [0, 3, 0, 1, 1, 1, 2, 0]);
    let turns: Vec<u64> = tasks.iter().map(|task| task["turns"].as_u64().unwrap()).collect();
    assert_eq!(turns, [2, 9, 4, 4, 5, 4, 6, 2], "sub-agents included");
    for task in tasks {
        assert_eq!(task["delegated"], task["sub_agents"] != 0, "{task}");
        let status = if task["name"] == "small-budget" { "incomplete" } else { "done" };
        assert_eq!(task["status"], status, "{task}");
        assert!(task["cost_usd"].as_f64().unwrap() > 0.0 && task["tokens"].as_u64().unwrap() > 0, "{task}");
    }
    assert_eq!(left_behind(&home), [] as [PathBuf; 0]);
    assert_eq!(home.files(), [] as [PathBuf; 0], "nothing is written to the user's folders");
}

#[test]
fn eval_of_an_idle_model_fails_the_result_check_of_every_task() {
    let home = Home::new();
    let done = eval(&home, IDLE, &["--output-format", "json"]);
    let report = done.exits_with(1).json();
    assert_eq!((&report["passed"], &report["failed"]), (&0.into(), &8.into()));
    let failed: Vec<Vec<&str>> = report["tasks"].as_array().unwrap().iter().map(failed_checks).collect();
    assert_eq!(
        failed,
        [
            vec!["answer_contains"],
            vec![
                "delegation",
                "json_equals routes.json",
                "file_contains services/auth/SUMMARY.md",
                "file_contains services/billing/SUMMARY.md",
                "file_contains services/search/SUMMARY.md"
            ],
            vec!["script test.sh"],
            vec!["delegation", "role reviewer", "answer_contains"],
            vec!["delegation", "role researcher", "file_equals answer.txt"],
            vec![
                "delegation",
                "role copywriter",
                "briefed copywriter",
                "file_contains RELEASE.md",
                "file_lacks RELEASE.md"
            ],
            vec!["delegation", "role writer", "file_contains_in_order menu.md", "json_equals hours.json"],
            vec!["status"],
        ]
    );
}

#[test]
fn eval_json_has_stable_keys() {
    let report = report(&Home::new(), SOLUTIONS, &["quick-answer"]);
    assert_eq!(keys(&report), ["model", "passed", "failed", "cost_usd", "tasks"]);
    let task = &report["tasks"][0];
    assert_eq!(
        keys(task),
        [
            "name",
            "run",
            "passed",
            "delegated",
            "sub_agents",
            "expected",
            "turns",
            "tokens",
            "cost_usd",
            "duration_ms",
            "status",
            "checks"
        ]
    );
    assert_eq!((&task["expected"], &task["run"]), (&"should_not".into(), &1.into()));
    let check = &task["checks"][0];
    assert_eq!(check, &serde_json::json!({"name": "status", "passed": true, "detail": ""}));
    assert!(report["model"].as_str().unwrap().starts_with("script:/"));
}

#[test]
fn eval_text_shows_expected_and_found_below_a_failed_task() {
    let home = Home::new();
    let wrong = "[[reply]]\ntask = 'How many connections'\ntext = 'There are \\u001b[2J 48.'\n";
    let done = eval(&home, &solutions_with(&wrong.replace('\'', "\"")), &["fix-test", "quick-answer"]);
    let shown = &done.exits_with(1).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[0]),
        ["task", "result", "delegated", "expected", "turns", "tokens", "cost", "time"]
    );
    assert_eq!(words(lines[1])[..5], ["quick-answer", "failed", "no", "should", "not"]);
    assert_eq!(lines[2], r"  answer_contains: expected `288` in the answer; found `There are \u{1b}[2J 48.`");
    assert_eq!(words(lines[3])[..5], ["fix-test", "passed", "no", "either", "4"]);
    assert_eq!(words(lines[4])[..7], ["total", "1", "of", "2", "0", "of", "2"]);
    assert!(lines.last().unwrap().starts_with("Model: script:/"), "{shown}");
    done.stderr_contains("2 tasks with script:/")
        .stderr_contains(": at most $0.60 and 300k tokens in total.")
        .stderr_contains("\n[1/2] quick-answer: failed, ")
        .stderr_contains("\n[2/2] fix-test: passed, ");
}

#[test]
fn unexpected_delegation_fails_the_delegation_check() {
    let delegates = r#"
[[reply]]
task = "How many connections"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Reader", task = "Read server.ini." }
"#;
    let report = report(&Home::new(), &solutions_with(delegates), &["quick-answer"]);
    let task = &report["tasks"][0];
    assert_eq!(failed_checks(task), ["delegation"]);
    assert_eq!((&task["delegated"], &task["sub_agents"]), (&true.into(), &1.into()));
    assert_eq!(task["checks"][1]["detail"], "expected no sub-agent; found 1");
}

#[test]
fn edited_test_script_is_restored_before_the_check() {
    let cheats = r#"
[[reply]]
task = "sh test.sh fails"
turn = 1
[[reply.call]]
tool = "read_file"
arguments = { path = "test.sh" }
[[reply]]
task = "sh test.sh fails"
turn = 2
[[reply.call]]
tool = "write_file"
arguments = { path = "test.sh", content = "exit 0" }
[[reply]]
task = "sh test.sh fails"
turn = 3
[[reply.call]]
tool = "shell"
arguments = { command = "sh test.sh" }
"#;
    let report = report(&Home::new(), &solutions_with(cheats), &["fix-test"]);
    let task = &report["tasks"][0];
    assert_eq!(failed_checks(task), ["script test.sh"]);
    let detail = task["checks"][2]["detail"].as_str().unwrap();
    assert!(detail.contains("expected exit code 0; found exit code 1, `duration.sh 3600: "), "{detail}");
}

#[test]
fn changed_and_added_files_fail_the_unchanged_check() {
    let edits = r##"
[[reply]]
task = "have the reviewer go through account.py"
turn = 2
[[reply.call]]
tool = "read_file"
arguments = { path = "account.py" }
[[reply]]
task = "have the reviewer go through account.py"
turn = 3
[[reply.call]]
tool = "edit_file"
arguments = { path = "account.py", old = "fee=25", new = "fee=26" }
[[reply.call]]
tool = "write_file"
arguments = { path = "notes/review.md", content = "transfer" }
[[reply]]
task = "have the reviewer go through account.py"
turn = 4
text = "transfer"
"##;
    let report = report(&Home::new(), &solutions_with(edits), &["read-only-review"]);
    let task = &report["tasks"][0];
    assert_eq!(failed_checks(task), ["unchanged"]);
    let detail = &task["checks"][4]["detail"];
    assert_eq!(detail, "expected no change; found account.py changed, notes/review.md added");
}

#[test]
fn sub_agent_without_the_facts_of_the_prompt_fails_the_briefing_check() {
    let vague = r#"
[[reply]]
task = "Let the copywriter turn changes.txt"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "copywriter", task = "Write RELEASE.md from changes.txt for Lumen." }
"#;
    let report = report(&Home::new(), &solutions_with(vague), &["brief-writer"]);
    assert_eq!(failed_checks(&report["tasks"][0]), ["briefed copywriter"]);
}

#[test]
fn run_that_fails_is_reported_with_its_cause() {
    let refused = "[[reply]]\ntask = 'How many connections'\nfault = 'refused'\n";
    let done = eval(&Home::new(), &solutions_with(refused), &["quick-answer", "--output-format", "json"]);
    let task = &done.exits_with(1).json()["tasks"][0];
    assert_eq!(task["status"], "failed");
    assert_eq!(failed_checks(task), ["status", "answer_contains"]);
    let detail = task["checks"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("expected done; found failed: "), "{detail}");
}

#[test]
fn eval_repeats_tasks_and_streams_their_reports() {
    let home = Home::new();
    let twice = eval(&home, SOLUTIONS, &["quick-answer", "--runs", "2", "--output-format", "stream-json"]);
    let lines = twice.exits_with(0).lines();
    let runs: Vec<&Value> = lines.iter().map(|line| &line["run"]).collect();
    assert_eq!(runs, [&1.into(), &2.into(), &Value::Null]);
    assert_eq!(lines[2]["passed"], 2);
    twice.stderr_contains("1 task, 2 runs each, with ").stderr_contains("[2/2] quick-answer (run 2): passed");
    let table = eval(&home, SOLUTIONS, &["quick-answer", "--runs", "2"]);
    table.exits_with(0).stdout_contains("quick-answer  2    passed");
}

#[test]
fn eval_list_needs_no_model_and_runs_nothing() {
    let home = Home::new();
    let list = home.brigade(&["eval", "--list"]);
    for name in TASKS {
        list.exits_with(0).stdout_contains(name);
    }
    let list =
        home.brigade(&["eval", "--list", "find-invoice", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!((&list[0]["expected"], &list[0]["budget_tokens"]), (&"should".into(), &300_000.into()));
    assert!(list[0]["prompt"].as_str().unwrap().contains("Harlow Bakery"));
    assert_eq!(home.files(), [] as [PathBuf; 0]);
}

#[test]
fn eval_usage_errors_exit_with_2_and_name_the_fix() {
    let home = Home::new();
    home.brigade(&["eval", "quick-answr"]).exits_with(2).stderr_contains("'quick-answer'");
    home.brigade(&["eval"])
        .exits_with(2)
        .stderr_contains("no model is set.")
        .stderr_contains("brigade eval --model ");
    home.brigade(&["eval", "-m", "openai/gpt-5.4"]).exits_with(2).stderr_contains("export OPENAI_API_KEY=");
    for (arguments, expected) in [
        (&["--store", "here.db"][..], "cannot use --store with eval"),
        (&["--set", "swarm.max_depth=2"], "cannot use --set swarm.max_depth=2 with eval"),
        (&["--runs", "0"], "--runs"),
    ] {
        eval(&home, SOLUTIONS, arguments).exits_with(2).stderr_contains(expected);
    }
    home.write("home/config.toml", "[providers.work]\nkind = 'openai'\nbase_url = 'http://192.0.2.1/v1'\n");
    let unpriced = home.brigade(&["eval", "-m", "work/large", "--budget-usd", "1"]);
    unpriced.exits_with(2).stderr_contains("the price of the model 'work/large' is unknown");
    assert_eq!(left_behind(&home), [] as [PathBuf; 0]);
}

#[test]
fn budget_flags_replace_the_budgets_of_tasks_but_not_the_tested_one() {
    let home = Home::new();
    let done =
        eval(&home, SOLUTIONS, &["quick-answer", "--budget-tokens", "1000", "--output-format", "json"]);
    let task = &done.exits_with(1).json()["tasks"][0];
    assert_eq!(task["checks"][0]["detail"], "expected done; found incomplete: tokens");
    let dollars = eval(&home, SOLUTIONS, &["quick-answer", "--budget-usd", "0.0001"]);
    dollars.exits_with(1).stdout_contains("found incomplete: usd").stderr_contains("at most $0.0001 and");
    eval(&home, SOLUTIONS, &["small-budget", "--budget-tokens", "2M"])
        .exits_with(0)
        .stderr_contains("and 48k tokens in total");
}

#[test]
fn eval_uses_only_model_providers_and_prices_of_the_user() {
    let home = Home::new();
    let model = home.script(SOLUTIONS);
    let started = home.work().join("started");
    std::fs::create_dir(home.home().join("agents")).unwrap();
    home.write("home/agents/broken.md", "no frontmatter");
    home.write("work/AGENTS.md", "Answer only in verse.");
    let config = format!(
        "model = '{model}'\nfallbacks = ['script:/nowhere']\ndefault_agent = 'nobody'\nstore = '{}'\nnotify = 'touch {started}'\n\
         [limits]\nlead_turns = 1\n[budget]\ntokens = 10\n[swarm]\nenabled = false\n[permissions]\nmode = 'plan'\n\
         deny = ['read_file']\n[swarm.roles.reviewer]\ntools = ['shell']\nlocked = true\n\
         [mcpServers.marker]\ncommand = 'touch'\nargs = ['{started}']\n",
        home.home().join("user.db").display(),
        started = started.display()
    );
    home.write("home/config.toml", &config);
    let mut command = home.command(&["eval", "--output-format", "json"]);
    command.env("TMPDIR", home.work()).env("BRIGADE_LIMITS__CHILD_TURNS", "1");
    let done = CommandResult::of(command.output().unwrap());
    assert_eq!(done.exits_with(0).json()["passed"], 8, "{}", done.stderr);
    assert!(!started.exists() && !home.home().join("user.db").exists());
    assert!(!done.stderr.contains("warning"), "{}", done.stderr);
    // A configuration that cannot be read is still an error.
    home.write("home/config.toml", "modell = 'x'");
    home.brigade(&["eval"]).exits_with(2).stderr_contains("modell");
}

#[test]
fn kept_folder_contains_the_projects_and_the_sessions() {
    let home = Home::new();
    let done = eval(&home, SOLUTIONS, &["find-invoice", "--keep"]);
    let left = left_behind(&home);
    assert_eq!(left.len(), 1, "{left:?}");
    done.exits_with(0).stderr_contains(&format!("The projects and sessions are in {}", left[0].display()));
    let folder = left[0].join("find-invoice-1");
    assert_eq!(text(folder.join("project/answer.txt")), "INV-20417\n");
    let store = folder.join("sessions.db");
    home.brigade(&["sessions", "tree", "last", "--store", store.to_str().unwrap()])
        .exits_with(0)
        .stdout_contains("researcher");
    assert_eq!(home.files(), [] as [PathBuf; 0]);
}

/// Starts an eval and waits for words on standard error.
fn start_until(home: &Home, model: &str, arguments: &[&str], words: &str) -> Child {
    let all = [&["eval", "-m", model, "--output-format", "json"], arguments].concat();
    let mut child = home.command(&all).env("TMPDIR", home.work()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the eval ended before `{words}`");
    }
    // The rest is read, so that writing it does not fail.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    child
}

#[test]
fn signals_end_the_eval_with_a_report_of_the_finished_tasks() {
    let hangs = "[[reply]]\ntask = 'sh test.sh fails'\nfault = 'hang'\n";
    for sent in [Signal::INT, Signal::TERM, Signal::HUP] {
        let home = Home::new();
        let model = home.script(solutions_with(hangs));
        let child = start_until(&home, &model, &["quick-answer", "fix-test", "two-writers"], "[1/3]");
        std::thread::sleep(std::time::Duration::from_millis(200));
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), sent).unwrap();
        let done = CommandResult::of(child.wait_with_output().unwrap());
        let report = done.exits_with(130).json();
        assert_eq!((&report["passed"], &report["failed"]), (&1.into(), &0.into()), "{sent:?}");
        assert_eq!(report["tasks"].as_array().unwrap().len(), 1);
        assert_eq!(left_behind(&home), [] as [PathBuf; 0], "{sent:?}");
    }
}

#[test]
fn unknown_price_is_announced_and_only_tokens_are_limited() {
    let home = Home::new();
    // An address for documentation, which nothing answers.
    let provider = "[providers.work]\nkind = 'openai'\nbase_url = 'http://192.0.2.1/v1'\n";
    home.write("home/config.toml", provider);
    let child = start_until(
        &home,
        "work/large",
        &["quick-answer", "small-budget"],
        "Its price is unknown, so only tokens are limited: at most 148k in total.",
    );
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let done = CommandResult::of(child.wait_with_output().unwrap());
    assert_eq!(done.exits_with(130).json()["tasks"], Value::Array(Vec::new()));
    assert_eq!(left_behind(&home), [] as [PathBuf; 0]);
}
