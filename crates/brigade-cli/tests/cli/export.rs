//! Exports: files, and hostile text in them.

use std::os::unix::fs::PermissionsExt;

use brigade_testing::{Fault, Script, call, fault, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home, text};
use crate::cli::transcript;

fn names(home: &Home) -> Vec<String> {
    let entries = std::fs::read_dir(home.work()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn export_format_follows_the_file_extension() {
    let home = Home::new();
    let mut console = Console::new(&home);
    transcript::run(&home);
    let export = |arguments: &[&str]| home.brigade(&[&["sessions", "export", "last"], arguments].concat());
    let begins = [
        ("a.html", "<!doctype html>"),
        ("a.HTM", "<!doctype html>"),
        ("a.md", "# the task"),
        ("a.jsonl", "{\"brigade_export\""),
        ("a", "{\"brigade_export\""),
    ];
    for (file, beginning) in begins {
        let done = export(&["-o", file]);
        console.add(done.exits_with(0).stderr_contains(&format!("\" to {file}")));
        assert_eq!(done.stdout, "");
        let written = home.work().join(file);
        assert!(text(&written).starts_with(beginning), "{file}");
        assert_eq!(std::fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    export(&["-o", "b.html", "--format", "md"]).exits_with(0);
    assert!(text(home.work().join("b.html")).starts_with("# the task"));
    export(&["-o", "-"]).exits_with(0).stdout_contains("brigade_export");
    console.add(export(&["--format", "pdf"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn export_replaces_no_file_without_force_and_writes_atomically() {
    let home = Home::new();
    let mut console = Console::new(&home);
    transcript::run(&home);
    home.write("work/mine.html", "mine");
    let export = |arguments: &[&str]| home.brigade(&[&["sessions", "export", "last"], arguments].concat());
    console.add(export(&["-o", "mine.html"]).exits_with(2));
    assert_eq!(text(home.work().join("mine.html")), "mine");
    export(&["-o", "mine.html", "--force"]).exits_with(0);
    assert!(text(home.work().join("mine.html")).ends_with("</html>\n"));
    console.add(export(&["-o", "nowhere/a.html"]).exits_with(1));
    console.add(export(&["-o", "/dev/null", "--force"]).exits_with(2));
    export(&["-o", ".", "--force"]).exits_with(2);
    home.brigade(&["sessions", "export", "zzzz", "-o", "none.html"]).exits_with(2);
    assert!(
        !names(&home).iter().any(|name| name.starts_with('.') || name == "none.html"),
        "{:?}",
        names(&home)
    );
    insta::assert_snapshot!(console.text());
}

const HOSTILE: [&str; 6] = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b onmouseover=alert(1)>",
    "\u{202e}txt.exe\u{2066}",
    "\u{1b}[31mred\u{1b}]0;title\u{7}",
    "</pre></details><!-- ```` ``` ~~~ <a href=javascript:alert(1)> [x](javascript:alert(1))",
];

/// Runs a tree with hostile text in every place that can contain untrusted text.
fn hostile(home: &Home) -> String {
    let all = HOSTILE.join("\n");
    home.write("work/evil.txt", &format!("{all}\n```\n# not a heading\n"));
    let quoted = |text: &str| serde_json::to_string(text).unwrap().replace('\u{7f}', "");
    let (words, role) = (quoted(&all), quoted("</h2><img src=x onerror=alert(1)>"));
    let script = format!(
        r#"{{"reply": [
            {{"agent": "lead", "turn": 1, "text": {words}, "call": [
                {{"tool": "delegate", "arguments": {{"role": {role}, "task": {words}}}}},
                {{"tool": "write_file", "arguments": {{"path": "<b>.txt", "content": {words}}}}},
                {{"tool": "edit_file", "arguments": {{"path": {words}, "old": {words}, "new": "x"}}}},
                {{"tool": "read_file", "arguments": {{"path": "evil.txt", "<i>": {words}}}}},
                {{"tool": "message", "arguments": {{"text": {words}}}}},
                {{"tool": "read_file", "arguments": {{"path": "evil.txt"}}}},
                {{"tool": "</b><script>", "raw": {words}}}
            ]}},
            {{"agent": "lead", "text": {words}}},
            {{"text": {words}}}
        ]}}"#
    );
    let model = home.script(&script);
    let done = home.brigade(&["run", "--model", &model, "--output-format", "json", &all]);
    let report = done.exits_with(0).json();
    assert_eq!(report["agents"].as_array().unwrap().len(), 2, "the hostile role is a role: {report}");
    report["session_id"].as_str().unwrap().to_owned()
}

fn is_control(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[test]
fn hostile_text_is_escaped_in_html() {
    let home = Home::new();
    let id = hostile(&home);
    let page = home.brigade(&["sessions", "export", &id, "--format", "html"]).exits_with(0).stdout.clone();
    assert!(!page.chars().any(is_control), "{:?}", page.chars().find(|c| is_control(*c)));
    let tags = tags(&page);
    let known = [
        "!doctype", "a", "article", "b", "body", "br", "code", "dd", "del", "details", "div", "dl", "dt",
        "h1", "h2", "h3", "head", "header", "html", "i", "ins", "main", "meta", "nav", "p", "pre", "section",
        "small", "span", "strong", "style", "summary", "table", "tbody", "td", "th", "thead", "title", "tr",
    ];
    let attributes = [
        "aria-label",
        "charset",
        "class",
        "content",
        "href",
        "http-equiv",
        "id",
        "lang",
        "name",
        "open",
        "style",
    ];
    let mut open = Vec::new();
    for tag in &tags {
        let (name, rest) = tag.split_once([' ', '>']).unwrap_or((tag, ""));
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag} closes what is not open");
            continue;
        }
        assert!(known.contains(&name), "{tag}");
        if !["!doctype", "meta", "br"].contains(&name) {
            open.push(name);
        }
        for (place, _) in rest.match_indices('=') {
            let attribute = rest[..place].rsplit([' ', '"', ';', '\'']).next().unwrap();
            let is_inner = rest[..place].matches('"').count() % 2 == 1;
            assert!(is_inner || attributes.contains(&attribute), "{tag}");
        }
        if let Some((_, link)) = rest.split_once("href=\"") {
            let target = link.split('"').next().unwrap();
            let place = target.strip_prefix('#').unwrap_or_else(|| panic!("{tag} leads away"));
            assert!(page.contains(&format!(" id=\"{place}\"")), "{tag} leads nowhere");
        }
    }
    assert!(open.is_empty(), "{open:?}");
    // The page loads nothing, and no text is lost.
    assert!(!page.contains("url(") && !page.contains("@import") && !page.contains("src=\""));
    for shown in [
        "&lt;img src=x onerror=alert(1)&gt;",
        "\\u{202e}txt.exe\\u{2066}",
        "\\u{1b}[31mred",
        "&lt;/b&gt;&lt;script&gt;",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

/// Tags of a page, without the style.
fn tags(page: &str) -> Vec<&str> {
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, body) = rest.split_once("</style>").unwrap();
    let of = |part: &'_ str| -> usize { part.matches('<').count() };
    let all: Vec<&str> = [head, body]
        .into_iter()
        .flat_map(|part| part.split('<').skip(1))
        .map(|tag| tag.split('>').next().unwrap())
        .collect();
    assert_eq!(all.len(), of(head) + of(body));
    all
}

#[test]
fn hostile_text_closes_no_markdown_fence() {
    let home = Home::new();
    let id = hostile(&home);
    let page = home.brigade(&["sessions", "export", &id, "--format", "md"]).exits_with(0).stdout.clone();
    assert!(!page.chars().any(is_control), "{page}");
    let mut fence: Option<String> = None;
    let mut fences = 0;
    for line in page.lines() {
        match &fence {
            Some(end) if line == end => fence = None,
            Some(_) => {}
            None if line.starts_with("```") => {
                let signs = line.len() - line.trim_start_matches('`').len();
                assert!(["text", "markdown", "diff"].contains(&&line[signs..]), "{line}");
                fence = Some("`".repeat(signs));
                fences += 1;
            }
            None => check_free_line(line),
        }
    }
    assert!(fence.is_none() && fences > 8, "{fences} fences");
    assert!(page.contains("# not a heading"), "text in a fence is not changed");
}

/// Checks that a line outside of fences contains only our own markup.
fn check_free_line(line: &str) {
    let ours = ["</details>", "<details><summary>"];
    if ours.iter().any(|own| line.starts_with(own)) || line.starts_with("<a id=\"agent") {
        return;
    }
    let mut code: Option<usize> = None;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let run = rest.len() - rest.trim_start_matches('`').len();
        if run > 0 {
            code = if code == Some(run) { None } else { code.or(Some(run)) };
            rest = &rest[run..];
        } else if c == '\\' && code.is_none() {
            rest = rest.get(2..).unwrap_or_default();
        } else {
            assert!(code.is_some() || c != '<', "markup in: {line}");
            rest = &rest[c.len_utf8()..];
        }
    }
    assert!(code.is_none(), "code is not closed in: {line}");
}

#[test]
fn exports_contain_no_active_links() {
    let home = Home::new();
    let id = hostile(&home);
    let page = home.brigade(&["sessions", "export", &id, "--format", "html"]).exits_with(0).stdout.clone();
    assert!(
        page.split("href=").skip(1).all(|link| link.starts_with("\"#") || !link.starts_with('"')),
        "{page}"
    );
    let page = home.brigade(&["sessions", "export", &id, "--format", "md"]).exits_with(0).stdout.clone();
    let (mut words, mut links) = (Vec::new(), Vec::new());
    collect(&page, &mut links, &mut words);
    assert!(!links.is_empty() && links.iter().all(|link| link.starts_with("#agent")), "{links:?}");
    assert!(!words.is_empty());
    for words in words {
        let mut links = Vec::new();
        collect(&words, &mut links, &mut Vec::new());
        assert!(links.is_empty(), "{links:?} in {words}");
    }
}

/// Collects the addresses of links and the contents of Markdown fences.
fn collect(page: &str, links: &mut Vec<String>, words: &mut Vec<String>) {
    use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
    let mut is_words = false;
    for event in Parser::new_ext(page, Options::all()) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.to_string());
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if &*language == "markdown" => {
                is_words = true;
                words.push(String::new());
            }
            Event::Text(text) if is_words => words.last_mut().unwrap().push_str(&text),
            Event::End(TagEnd::CodeBlock) => is_words = false,
            _ => {}
        }
    }
}

#[test]
fn subtree_can_be_exported() {
    let home = Home::new();
    let id = transcript::run(&home);
    let child = format!("{id}.1-0");
    let page = home.brigade(&["sessions", "export", &child, "--format", "html"]).exits_with(0).stdout.clone();
    assert!(
        page.contains("Fixed.") && page.contains("+    check(n);") && !page.contains("Checker"),
        "{page}"
    );
    for link in page.split("href=\"#").skip(1) {
        let place = link.split('"').next().unwrap();
        assert!(page.contains(&format!(" id=\"{place}\"")), "{place}");
    }
}

/// Kills a run that waits for an approval and imports it elsewhere. Nothing of it runs there, and the import lists its
/// contents.
#[test]
fn imported_session_never_runs_its_pending_command() {
    let script = Script::new().turns([call("shell", json!({ "command": "touch ran" })), reply("{results}")]);
    let from = Home::new();
    let wait = ["--set", "permissions.questions=wait", "--mode", "ask"];
    let mut running = BackgroundRun::start(&from, &script, &wait);
    running.wait_for("asked");
    let id = running.session.clone();
    running.signal(rustix::process::Signal::KILL);
    running.end();
    from.brigade(&["answer", &id, "yes"]);
    let file = from.work().join("tree.jsonl");
    from.brigade(&["sessions", "export", &id, "-o", file.to_str().unwrap()]).exits_with(0);

    let to = Home::new();
    to.write("home/config.toml", "permissions.mode = 'plan'\n");
    let imported = to.brigade(&["sessions", "import", file.to_str().unwrap()]);
    let mut console = Console::new(&to);
    console.hide(from.home().parent().unwrap().to_str().unwrap(), "ELSEWHERE");
    console.add(imported.exits_with(0));
    let again = Home::new();
    let json =
        again.brigade(&["--output-format", "json", "sessions", "import", file.to_str().unwrap()]).json();
    assert_eq!((json["mode"].as_str(), json["pending"][0]["tool"].as_str()), (Some("ask"), Some("shell")));
    // An import cannot bring a file as its model, either.
    console.add(to.brigade(&["resume", &id]).exits_with(2));
    let model = to.script(&script);
    console.add(to.brigade(&["resume", &id, "--model", &model]).exits_with(0));
    insta::assert_snapshot!(console.text());
    // It works in the user's folder, not in the one that the file names.
    for home in [&from, &to] {
        assert!(!home.work().join("ran").exists());
    }
}

#[test]
fn resumed_run_is_bound_by_a_narrower_configured_mode() {
    let script = Script::new()
        .turns([
            fault(Fault::Hang).attempt(1),
            call("write_file", json!({ "path": "a.txt", "content": "x" })).turn(1),
        ])
        .reply("{results}");
    for (flags, is_written) in [(&[][..], false), (&["--mode", "edit"][..], true)] {
        let home = Home::new();
        home.write("home/config.toml", "permissions.mode = 'edit'\n");
        let mut running = BackgroundRun::start(&home, &script, flags);
        running.wait_for("called");
        let id = running.session.clone();
        running.signal(rustix::process::Signal::KILL);
        running.end();
        home.write("home/config.toml", "permissions.mode = 'plan'\n");
        home.brigade(&["resume", &id]).exits_with(0);
        assert_eq!(home.work().join("a.txt").exists(), is_written, "{flags:?}");
    }
}
