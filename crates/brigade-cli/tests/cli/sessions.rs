//! Listing, showing, exporting and importing sessions.

use brigade_testing::{Fault, Purpose, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home, text};

fn one() -> Script {
    Script::new().agent("lead", [delegate("Helper", "help"), reply("all: {result:0}")]).reply("helped")
}

#[test]
fn export_imported_again_is_the_same_session() {
    let (here, there) = (Home::new(), Home::new());
    let report = here.report(one(), &[]);
    let id = report["session_id"].as_str().unwrap();
    let export = here.brigade(&["sessions", "export", id]);
    let imported = there.with_input(&["sessions", "import", "-"], &export.exits_with(0).stdout);
    assert_eq!(imported.exits_with(0).stdout.trim(), id);
    let file = there.work().join("again.jsonl");
    there.brigade(&["sessions", "export", id, "--output", file.to_str().unwrap()]).exits_with(0);
    assert_eq!(text(&file), export.stdout);
    for what in ["show", "tree"] {
        let shown = |home: &Home| home.brigade(&["sessions", what, id]).exits_with(0).stdout.clone();
        assert_eq!(shown(&here), shown(&there));
    }
    // A second import changes nothing. If the file is cut in the middle, the complete records are kept.
    let mut console = Console::new(&there);
    console.hide(here.home().parent().unwrap().to_str().unwrap(), "ELSEWHERE");
    console.add(there.brigade(&["sessions", "import", file.to_str().unwrap()]).exits_with(0));
    let cut: String = export.stdout.chars().take(export.stdout.len() - 30).collect();
    console.add(Home::new().with_input(&["sessions", "import", "-"], &cut).exits_with(1));
    console.add(there.with_input(&["sessions", "import", "-"], "nonsense").exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["sessions", "list"]).exits_with(0));
    let report = home.report(one(), &[]);
    let id = report["session_id"].as_str().unwrap();
    console.add(home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains(id));
    console.add(home.brigade(&["sessions", "show", id]).exits_with(0));
    console.add(home.brigade(&["sessions", "tree", id]).exits_with(0));
    let child = format!("{id}.1-0");
    home.brigade(&["sessions", "show", &child]).exits_with(0).stdout_contains("helped");
    console.add(home.brigade(&["sessions", "rm", &child]).exits_with(2));
    home.brigade(&["sessions", "rm", id]).exits_with(0);
    home.brigade(&["sessions", "show", id]).exits_with(2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn running_session_cannot_be_removed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let mut running = BackgroundRun::start(&home, Script::new().reply(fault(Fault::Hang)), &[]);
    running.wait_for("called");
    console.add(home.brigade(&["sessions", "rm", &running.session]).exits_with(1));
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("running");
    console.add(home.brigade(&["resume", &running.session]).exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn damaged_session_is_shown_up_to_the_damage() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let report = home.report(
        Script::new().turns([reply("before").call("echo", json!({ "text": "x" })), reply("unmistakable")]),
        &[],
    );
    let id = report["session_id"].as_str().unwrap();
    let store = home.home().join("sessions.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let place = bytes.windows(12).position(|window| window == b"unmistakable").unwrap();
    bytes[place] = b'X';
    std::fs::write(&store, bytes).unwrap();
    console.add(home.brigade(&["sessions", "show", id]).exits_with(1));
    console.add(home.brigade(&["sessions", "tree", id]).exits_with(1));
    console.add(home.brigade(&["resume", id]).exits_with(1));
    for format in ["md", "html"] {
        let export = home.brigade(&["sessions", "export", id, "--format", format]);
        export
            .exits_with(1)
            .stdout_contains("before")
            .stdout_contains("Part of this session cannot be read")
            .stderr_contains("is damaged");
    }
    console.add(home.brigade(&["sessions", "list", "--status", "damaged"]).exits_with(0).stdout_contains(id));
    // It does not hide the other sessions.
    home.report(Script::new().reply("whole"), &[]);
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn session_whose_child_is_lost_is_damaged() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("unmistakable");
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    let child = format!("{id}.1-0");
    home.brigade(&["sessions", "show", &child]).exits_with(0).stdout_contains("unmistakable");
    lose(&home, &child);
    let missing = format!("session {child} is missing");
    console.add(home.brigade(&["sessions", "show", id]).exits_with(1).stderr_contains(&missing));
    console.add(home.brigade(&["sessions", "tree", id]).exits_with(1).stderr_contains(&missing));
    home.brigade(&["sessions", "export", id]).exits_with(1).stderr_contains(&missing);
    console.add(home.brigade(&["resume", id]).exits_with(1).stderr_contains(&missing));
    console.add(home.brigade(&["tell", id, "more"]).exits_with(1).stderr_contains(&missing));
    insta::assert_snapshot!(console.text());
}

#[test]
fn session_with_a_missing_record_is_damaged() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new().turns([reply("before").call("echo", json!({ "text": "x" })), reply("after")]);
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    let store = rusqlite::Connection::open(home.home().join("sessions.db")).unwrap();
    // A row has the records that were written together, under the number of the last of them.
    let row = |newest: u64| -> u64 {
        let sql = "SELECT seq FROM events WHERE session = ? ORDER BY seq DESC LIMIT 1 OFFSET ?";
        store.query_row(sql, (id, newest), |row| row.get(0)).unwrap()
    };
    let (lost, kept) = (row(1), row(2));
    assert_eq!(store.execute("DELETE FROM events WHERE session = ? AND seq = ?", (id, lost)).unwrap(), 1);
    drop(store);
    let missing = format!("session {id}: record {} is missing", kept + 1);
    console.add(home.brigade(&["sessions", "show", id]).exits_with(1).stderr_contains(&missing));
    console.add(home.brigade(&["sessions", "tree", id]).exits_with(1).stderr_contains(&missing));
    for format in ["jsonl", "md", "html"] {
        home.brigade(&["sessions", "export", id, "--format", format]).exits_with(1).stderr_contains(&missing);
    }
    home.brigade(&["resume", id]).exits_with(1).stderr_contains(&missing);
    home.brigade(&["tell", id, "more"]).exits_with(1).stderr_contains(&missing);
    insta::assert_snapshot!(console.text());
}

/// Deletes the records of a session from the store, as corruption may.
fn lose(home: &Home, session: &str) {
    let store = rusqlite::Connection::open(home.home().join("sessions.db")).unwrap();
    assert!(store.execute("DELETE FROM events WHERE session = ?", [session]).unwrap() > 0);
}

#[test]
fn list_counts_children_of_an_interrupted_run() {
    let home = Home::new();
    let script = Script::new()
        .agent("lead", [delegate("Helper", "help").turn(1)])
        .agent("Helper", [call("echo", json!({ "text": "x" })).turn(1).tokens(1000, 100)])
        .reply(fault(Fault::Hang));
    let mut run = BackgroundRun::start(&home, script, &[]);
    run.read_until(|line| line["type"] == "called" && line["turn"] == 2);
    let listed = || home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    let running = listed();
    assert_eq!((&running[0]["state"], &running[0]["turns"]), (&"running".into(), &2.into()), "{running}");
    run.signal(rustix::process::Signal::KILL);
    run.end();
    let interrupted = listed();
    assert_eq!(interrupted[0]["state"], "interrupted");
    assert_eq!(
        (&interrupted[0]["agents"], &interrupted[0]["turns"]),
        (&2.into(), &2.into()),
        "{interrupted}"
    );
    assert!(interrupted[0]["tokens"].as_u64().unwrap() >= 1_100, "{interrupted}");
}

/// Home with a done, a failed and an incomplete session, oldest first.
fn three_sessions() -> (Home, [String; 3]) {
    let home = Home::new();
    home.write("work/notes.txt", "a needle in a haystack\n");
    let scripts = [
        one(),
        Script::new().reply(fault(Fault::Refused)),
        Script::new()
            .reply(reply("So FAR so good").purpose(Purpose::Grace))
            .reply(call("read_file", json!({ "path": "notes.txt" }))),
    ];
    let ids =
        ["Tidy the attic", "Fly to the moon", "Read ÄRGER"].into_iter().zip(scripts).map(|(task, script)| {
            let model = home.script(script);
            let done = home.brigade(&[
                "run",
                "--model",
                &model,
                "--max-turns",
                "2",
                "--output-format",
                "json",
                task,
            ]);
            done.json()["session_id"].as_str().unwrap().to_owned()
        });
    let ids: Vec<String> = ids.collect();
    (home, ids.try_into().unwrap())
}

fn listed(home: &Home, arguments: &[&str]) -> Vec<String> {
    let all = [&["sessions", "list", "--output-format", "json"], arguments].concat();
    let list = home.brigade(&all).exits_with(0).json();
    list.as_array().unwrap().iter().map(|entry| entry["session_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn list_filters_by_text_state_agent_and_age() {
    let (home, [done, failed, incomplete]) = three_sessions();
    let expect = |arguments: &[&str], ids: &[&String]| {
        assert_eq!(listed(&home, arguments).iter().collect::<Vec<_>>(), ids, "{arguments:?}");
    };
    expect(&[], &[&incomplete, &failed, &done]);
    expect(&["--limit", "2"], &[&incomplete, &failed]);
    // In the task, in the text of a child, in a tool output and in a final reply, ignoring case.
    expect(&["ATTIC"], &[&done]);
    expect(&["helped"], &[&done]);
    expect(&["needle in a", "haystack"], &[&incomplete]);
    expect(&["so far SO"], &[&incomplete]);
    expect(&["ärger"], &[&incomplete]);
    expect(&["notes.txt"], &[&incomplete]);
    expect(&["no such words"], &[]);
    expect(&["--status", "failed"], &[&failed]);
    expect(&["--status", "failed,done"], &[&failed, &done]);
    expect(&["--status", "running"], &[]);
    expect(&["--agent", "LEAD", "--status", "done"], &[&done]);
    expect(&["--agent", "nobody"], &[]);
    expect(&["--since", "1d"], &[&incomplete, &failed, &done]);
    expect(&["--since", "9999-12-31"], &[]);
}

#[test]
fn list_shows_the_usage_of_each_tree() {
    let (home, [done, ..]) = three_sessions();
    let list = home.brigade(&["sessions", "list", "attic", "--output-format", "json"]).json();
    let entry = &list[0];
    assert_eq!((&entry["agents"], &entry["turns"]), (&2.into(), &3.into()), "{entry}");
    assert!(entry["tokens"].as_u64().unwrap() > 0 && entry["cost_usd"] == 0.0, "{entry}");
    let tree = home.brigade(&["sessions", "tree", &done, "--output-format", "json"]).json();
    let [lead, helper] = &tree["agents"].as_array().unwrap()[..] else { panic!("{tree}") };
    assert_eq!(lead["branch"]["tokens"], entry["tokens"]);
    assert_eq!((&lead["branch"]["agents"], &helper["branch"]["agents"]), (&2.into(), &1.into()), "{tree}");
    assert_eq!(lead["branch"]["turns"], 3);
}

#[test]
fn empty_or_truncated_list_says_how_to_see_more() {
    let (home, _) = three_sessions();
    let mut console = Console::new(&home);
    let list = |arguments: &[&str]| home.brigade(&[&["sessions", "list"], arguments].concat());
    let empty = list(&["nothing", "--status", "lost"]);
    console.add(empty.exits_with(0));
    assert_eq!(empty.stdout, "");
    console.add(list(&["--limit", "2"]).exits_with(0));
    console.add(list(&["--limit", "1", "--status", "done,failed"]).exits_with(0));
    assert_eq!(list(&["--all"]).exits_with(0).stderr, "");
    assert_eq!(list(&["helped"]).exits_with(0).stdout.lines().last(), Some("    [Helper]: helped"));
    console.add(list(&["--status", "faild"]).exits_with(2));
    console.add(list(&["--since", "yesterday"]).exits_with(2).stderr_contains("a day such as 2026-11-16"));
    list(&["--limit", "0"]).exits_with(2);
    list(&["--limit", "3", "--all"]).exits_with(2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn list_fits_the_terminal_width() {
    let (home, ids) = three_sessions();
    for columns in [40, 80, 120] {
        let printed = at_terminal(&home, columns, &["sessions", "list"]);
        assert_eq!(printed.lines().count(), 4, "{printed}");
        for (line, id) in printed.lines().skip(1).zip(ids.iter().rev()) {
            assert!(line.chars().count() <= columns.into(), "{printed}");
            let short = line.split(' ').next().unwrap();
            assert!(short.len() >= 8 && short.len() < 26 && id.starts_with(short), "{printed}");
        }
        assert!(printed.contains("Fly to"), "{printed}");
        assert_eq!(printed.contains("turns"), columns > 40, "{printed}");
    }
    for columns in [40, 80] {
        let printed = at_terminal(&home, columns, &["sessions", "tree", &ids[0]]);
        let plain = printed.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert!(plain.lines().all(|line| line.chars().count() <= columns.into()), "{printed}");
        assert!(printed.contains("└─ Helper") && printed.contains("cost"), "{printed}");
    }
}

#[test]
fn colours_are_sent_to_terminals_only() {
    let (home, [done, ..]) = three_sessions();
    let shown = at_terminal(&home, 80, &["sessions", "show", &done]);
    assert!(shown.contains("\u{1b}[1mturn 1\u{1b}[0m"), "{shown}");
    assert!(!home.brigade(&["sessions", "show", &done]).stdout.contains('\u{1b}'));
}

/// Output of a command on a terminal of this width.
fn at_terminal(home: &Home, columns: u16, arguments: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = std::fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    rustix::termios::tcsetwinsize(&screen, size).unwrap();
    let mut child = home.command(arguments).env("TERM", "xterm").stdout(screen).spawn().unwrap();
    let mut printed = Vec::new();
    // The other side is closed when the command has ended, which is an error for the reader.
    let _ = std::io::Read::read_to_end(&mut std::fs::File::from(terminal), &mut printed);
    assert!(child.wait().unwrap().success());
    String::from_utf8(printed).unwrap().replace('\r', "")
}

#[test]
fn list_on_a_pipe_shortens_long_tasks() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("ok"));
    home.with_input(&["run", "--model", &model, "-"], &"long ".repeat(20_000)).exits_with(0);
    let list = home.brigade(&["sessions", "list"]);
    console.add(list.exits_with(0));
    assert!(list.stdout.lines().all(|line| line.chars().count() < 300), "{}", list.stdout.len());
    insta::assert_snapshot!(console.text());
}

#[test]
fn list_filters_by_the_agent_of_a_child() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let id = home.report(one(), &[])["session_id"].as_str().unwrap().to_owned();
    home.report(Script::new().reply("alone"), &[]);
    for agent in ["Helper", "helper"] {
        let list = home
            .brigade(&["sessions", "list", "--agent", agent, "--output-format", "json"])
            .exits_with(0)
            .json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!((&list[0]["session_id"], &list[0]["agent"]), (&id.clone().into(), &"lead".into()));
        assert_eq!(list[0]["found"], format!("Helper {id}.1-0: help"));
    }
    home.brigade(&["sessions", "list", "--agent", "Helper"])
        .exits_with(0)
        .stdout_contains(&format!("Helper {id}.1-0: help"));
    let leads = home
        .brigade(&["sessions", "list", "--agent", "lead", "--output-format", "json"])
        .exits_with(0)
        .json();
    assert_eq!(leads.as_array().unwrap().len(), 2, "{leads}");
    console.add(home.brigade(&["sessions", "list", "--agent", "nobody"]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn failed_import_error_names_no_rust_types() {
    let home = Home::new();
    let id = home.report(one(), &[])["session_id"].as_str().unwrap().to_owned();
    let export = home.brigade(&["sessions", "export", &id]).exits_with(0).stdout.clone();
    let (header, rest) = export.split_once('\n').unwrap();
    for (text, words) in [
        ("nonsense\n".to_owned(), "the first line is not JSON"),
        ("\"a text\"\n".to_owned(), "the first line is not an export header"),
        ("{\"brigade_export\":\"x\"}\n".to_owned(), "the first line is not an export header"),
        (format!("{header}\n[1]\n{rest}"), "line 2 is damaged"),
        (format!("{header}\n\"x\"\n{rest}"), "line 2 is damaged"),
        (format!("{header}\n{{\"blob\":7}}\n{rest}"), "line 2 is damaged"),
    ] {
        let done = Home::new().with_input(&["sessions", "import", "-"], &text);
        done.stderr_contains(words);
        for name in ["struct", "enum", "Header", "RecordLine", "BlobLine"] {
            assert!(!done.stderr.contains(name), "{name} in {}", done.stderr);
        }
    }
}
