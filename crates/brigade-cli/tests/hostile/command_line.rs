//! Names and texts on the command line that try to be paths, flags or queries.

use brigade_testing::{Script, reply};

use crate::cli::support::{CommandResult, Home};
use crate::hostile::place::Place;

/// Session ids that no session has. `@LONG` is a long one.
const IDS: [&str; 22] = [
    "../../x",
    "../outside/file",
    "/etc/passwd",
    "/",
    ".",
    "..",
    "a/../../b",
    "..\\..\\x",
    "C:\\x",
    "~/.bashrc",
    "%2e%2e%2fx",
    "$(touch F)",
    "`touch F`",
    "; touch F",
    "x') OR 1=1 --",
    "x\" UNION SELECT 1 --",
    "%",
    "_",
    "*",
    "\u{202e}tsal",
    "LAST",
    "@LONG",
];
/// Commands that take the id of a session.
const COMMANDS: [&[&str]; 7] = [
    &["resume"],
    &["tell", "@", "x"],
    &["cancel"],
    &["answer", "@", "yes"],
    &["sessions", "show"],
    &["sessions", "export"],
    &["sessions", "rm"],
];
/// Tasks and messages that look like flags or links.
const TEXTS: [&str; 6] = [
    "--set=sandbox.mode=off",
    "--mode=auto",
    "-m script:/nowhere",
    "brigade://run?mode=auto&set=sandbox.mode=off",
    "@/etc/passwd",
    "$(touch F)",
];

pub(crate) fn inputs() -> Vec<u8> {
    let ids = std::iter::repeat_n(18, IDS.len());
    ids.chain(std::iter::repeat_n(12, TEXTS.len())).chain(std::iter::repeat_n(40, IMPORTS.len())).collect()
}

fn run(place: &Place, arguments: &[&str]) -> CommandResult {
    CommandResult::run(&mut place.brigade(arguments))
}

/// Every id is refused by every command, without a look at any file. Each id meets one command here; all commands are met.
#[test]
fn h18_ids_are_not_paths() {
    let mut place = Place::new();
    let script = place.home.script(Script::new().reply("done"));
    run(&place, &["run", "--model", &script, "x"]).exits_with(0);
    for (at, id) in IDS.iter().enumerate() {
        let id = id.replace("@LONG", &"a".repeat(300));
        for command in [COMMANDS[at % COMMANDS.len()], COMMANDS[(at + 3) % COMMANDS.len()]] {
            let mut arguments: Vec<&str> =
                command.iter().map(|word| if *word == "@" { &id } else { *word }).collect();
            if !command.contains(&"@") {
                arguments.push(&id);
            }
            let done = run(&place, &arguments);
            assert!([1, 2].contains(&done.code), "{arguments:?}: {} {}", done.code, done.stdout);
            assert!(
                !done.stderr.contains("panicked") && !done.stderr.contains('\u{202e}'),
                "{}",
                done.stderr
            );
        }
    }
    let sessions = run(&place, &["sessions", "list", "--output-format", "json"]).json();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    assert!(!place.work().join("F").exists());
    assert_eq!(place.violations(), Vec::<String>::new());
}

/// A task is a text, whatever it looks like.
#[test]
fn h12_texts_are_not_flags() {
    let place = Place::new();
    let model = place.home.script(Script::new().reply(reply("{task}")));
    for text in TEXTS {
        let done = run(&place, &["run", "--model", &model, "--", text]);
        assert_eq!(done.exits_with(0).stdout.trim_end(), text, "{}", done.stderr);
        let message = run(&place, &["tell", "last", "--model", &model, "--", text]);
        message.exits_with(0);
    }
    assert!(!place.work().join("F").exists());
}

/// Changes to an exported session, each a text and its replacement.
const IMPORTS: [(&str, &str); 12] = [
    ("\"session\":\"", "\"session\":\"../../"),
    ("\"session\":\"", "\"session\":\"x') OR 1=1 --"),
    ("\"type\":\"started\"", "\"type\":\"python/object/apply:os.system\""),
    ("\"type\":\"started\"", "\"__type__\":\"x\",\"type\":\"started\""),
    ("\"depth\":0", "\"depth\":-1"),
    ("\"depth\":0", "\"depth\":18446744073709551616"),
    ("\"depth\":0", "\"depth\":0,\"depth\":9"),
    ("\"turns\":", "\"sandbox\":\"off\",\"turns\":"),
    ("\"seq\":0", "\"seq\":99"),
    ("\"seq\":1", "\"seq\":0"),
    ("done", "\\ud800"),
    ("{", "{\"lc\":1,\"id\":[\"os\",\"system\"],"),
];

/// A changed export is refused as a whole, or is no more than data.
#[test]
fn h40_exports_are_data() {
    let home = Home::new();
    home.run(Script::new().reply("done"), &[]).exits_with(0);
    let export = home.brigade(&["sessions", "export", "last"]).exits_with(0).stdout.clone();
    for (from, to) in IMPORTS {
        let changed = export.replacen(from, to, 1);
        assert_ne!(changed, export, "{from}");
        let other = Home::new();
        let file = other.write("changed.jsonl", &changed);
        let done = other.brigade(&["sessions", "import", file.to_str().unwrap()]);
        assert!([0, 1, 2].contains(&done.code) && !done.stderr.contains("panicked"), "{to}: {}", done.stderr);
        let listed = other.brigade(&["sessions", "list"]);
        assert!(!listed.exits_with(0).stderr.contains("panicked"), "{to}");
        assert!(done.code != 0 || !to.contains("../"), "{to} was imported");
        assert_eq!(std::fs::read_dir(other.work()).unwrap().count(), 0);
    }
}
