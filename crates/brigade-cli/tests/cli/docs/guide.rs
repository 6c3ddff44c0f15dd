//! Checks of the guide: its commands parse, those after a `$` print what the page shows, and its links resolve.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{normalized, page, repository, run_shell};
use crate::cli::support::{Home, text};

/// All pages in a folder and below it.
fn pages(folder: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |file: &PathBuf| file.extension().is_some_and(|end| end == "md");
    let mut pages: Vec<PathBuf> = files.filter(is_page).collect();
    pages.sort();
    assert!(!pages.is_empty());
    pages
}

/// Part of a page.
enum Part<'a> {
    /// Line of a fenced block, with the info string of the fence.
    Fenced(&'a str, &'a str),
    /// Indented line.
    Indented(&'a str),
    /// Any other line.
    Prose(&'a str),
}

fn parts(page: &str) -> Vec<Part<'_>> {
    let mut fence = None;
    let mut parts = Vec::new();
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(kind), None) => fence = Some(kind),
            (Some(_), Some(_)) => fence = None,
            (None, Some(kind)) => parts.push(Part::Fenced(kind, line)),
            (None, None) if line.starts_with("    ") => parts.push(Part::Indented(line)),
            (None, None) => parts.push(Part::Prose(line)),
        }
    }
    assert_eq!(fence, None, "a block has no end");
    parts
}

/// Commands of a page that are not run below: those in blocks, and those between backquotes in the text.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for part in parts(page) {
        match part {
            Part::Fenced("sh", line) | Part::Indented(line) => commands.push(line.trim().to_owned()),
            Part::Fenced(..) => {}
            Part::Prose(line) => commands.extend(line.split('`').skip(1).step_by(2).map(str::to_owned)),
        }
    }
    commands
}

/// Arguments of every `brigade` call in a line of shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    for letter in line.chars().chain([';']) {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | ';' | '&' | '<' | '>' | '(' | ')') => {
                let is_descriptor = |word: &String| letter == '>' && word.bytes().all(|b| b.is_ascii_digit());
                let ended = word.take().filter(|word| !is_descriptor(word));
                calls.last_mut().unwrap().extend(ended);
                if letter != ' ' {
                    calls.push(Vec::new());
                }
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    let is_assignment = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.contains(' '));
    let call = |words: Vec<String>| -> Option<Vec<String>> {
        let mut words = words.into_iter().skip_while(is_assignment);
        (words.next()? == "brigade").then(|| words.collect())
    };
    calls.into_iter().filter_map(call).collect()
}

#[test]
fn calls_finds_brigade_commands_in_shell_lines() {
    let found = |line: &str| calls(line).iter().map(|words| words.join("|")).collect::<Vec<_>>();
    assert_eq!(found("X=1 brigade run 'a b' 2> log; echo"), ["run|a b"]);
    assert_eq!(found("git diff | brigade run --mode plan # and"), ["run|--mode|plan"]);
    assert_eq!(found("id=$(brigade run x | jq .y); brigade tell \"$id\" more"), ["run|x", "tell|$id|more"]);
    assert!(found("cargo install brigade").is_empty());
}

#[test]
fn commands_of_the_pages_parse() {
    let home = Home::new();
    let mut count = 0;
    for file in [vec![repository().join("README.md")], pages("docs/guide")].concat() {
        for line in commands(&text(&file)) {
            for mut words in calls(&line) {
                // The arguments after its name are text for an agent, even if they look like flags.
                if words.first().is_some_and(|word| word == "answer") {
                    words.truncate(1);
                }
                words.push("--help".to_owned());
                let done = home.brigade(&words.iter().map(String::as_str).collect::<Vec<_>>());
                assert_eq!(done.code, 0, "{}: {line}\n{}", file.display(), done.stderr);
                assert!(done.stdout.contains("brigade"), "{}: {line}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 60, "only {count} were found");
}

/// Line with normalized spaces and numbers.
fn normalized_line(line: &str) -> String {
    let is_figure = |word: &str| {
        word.contains(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || ".,$smhkM".contains(c))
    };
    let normalized = normalized(line);
    let keeps = normalized.starts_with("exit ");
    let words = normalized.split_whitespace().map(|word| if is_figure(word) && !keeps { "0" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a line matches the page, where `…` matches anything.
fn matches_shown(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…').map(normalized_line);
    let line = normalized_line(line);
    let Some(mut rest) = line.strip_prefix(&parts.next().unwrap()) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(&part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|part| part.is_empty())
}

#[test]
fn matches_shown_ignores_numbers_spaces_and_ellipses() {
    assert!(matches_shown("lead  1  $0.1  done", "lead    12  $0.2234   done"));
    assert!(matches_shown("a … c", "a b c") && matches_shown("a …", "a b c") && matches_shown("…c", "a b c"));
    assert!(!matches_shown("lead  1  done", "lead  1  failed") && !matches_shown("a … d", "a b c"));
    assert!(!matches_shown("a b", "a b c") && !matches_shown("exit 3", "exit 0"));
}

/// Runs the commands after a `$` in order, and compares the lines below each.
#[track_caller]
fn check(name: &str) {
    let home = Home::new();
    for file in ["hello.toml", "parts.toml", "count.toml", "json.toml", "eval.toml", "notes.txt"] {
        home.write(&format!("work/{file}"), &page(&format!("docs/guide/{file}")));
    }
    let page = page(&format!("docs/guide/{name}.md"));
    let has_jq = Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut output: Option<String> = None;
    let mut count = 0;
    for part in parts(&page) {
        let Part::Fenced("console", line) = part else { continue };
        if let Some(command) = line.strip_prefix("$ ") {
            output = (has_jq || !command.contains("| jq ")).then(|| {
                let done = run_shell(&home, &home.work(), &format!("set +e\n{command}"));
                assert_eq!(done.code, 0, "{name}: {command}\n{}", done.stderr);
                format!("{}\n{}", done.stderr, done.stdout)
            });
            count += 1;
        } else if let Some(output) = &output
            && !line.trim().is_empty()
        {
            assert!(
                output.lines().any(|printed| matches_shown(line, printed)),
                "{name}: no `{line}` in\n{output}"
            );
        }
    }
    assert!(count > 0, "{name} has no commands");
}

#[test]
fn guide_first_run_matches_the_command() {
    check("install");
    check("first-run");
}

#[test]
fn guide_models_and_agents_match_the_command() {
    check("models");
    check("agents");
}

#[test]
fn guide_budgets_and_permissions_match_the_command() {
    check("budgets");
    check("permissions");
}

#[test]
fn guide_sessions_match_the_command() {
    check("sessions");
}

#[test]
fn guide_scripting_matches_the_command() {
    check("scripting");
}

#[test]
fn guide_eval_matches_the_command() {
    check("eval");
}

#[test]
fn guide_troubleshooting_matches_the_command() {
    check("troubleshooting");
}

#[test]
fn guide_embedding_program_is_the_example() {
    let page = page("docs/guide/embedding.md");
    assert_eq!(
        super::block(&page, "the tests run it."),
        text(repository().join("crates/brigade/examples/embedded.rs"))
    );
}

/// Blocks of Rust on a page, without indentation.
fn rust_blocks(page: &str) -> Vec<String> {
    let blocks = page.split("```rust\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    blocks.map(without_indentation).collect()
}

fn without_indentation(code: &str) -> String {
    code.lines().map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn rust_on_the_pages_comes_from_compiled_code() {
    let library = repository().join("crates/brigade");
    let front_page = text(library.join("src/lib.rs")).replace("//!", "");
    let examples = std::fs::read_dir(library.join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut compiled: Vec<String> = examples.map(|file| without_indentation(&text(file))).collect();
    compiled.push(without_indentation(&front_page));
    for (name, count) in [("README.md", 1), ("docs/guide/embedding.md", 9)] {
        let blocks = rust_blocks(&page(name));
        assert_eq!(blocks.len(), count, "{name}");
        for block in blocks {
            assert!(compiled.iter().any(|code| code.contains(&block)), "{name}: not in an example:\n{block}");
        }
    }
}

/// Anchors of a page.
fn anchors(page: &str) -> Vec<String> {
    let heading = |part| match part {
        Part::Prose(line) => {
            line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase())
        }
        Part::Fenced(..) | Part::Indented(_) => None,
    };
    let keeps = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let anchor = |title: String| title.chars().filter(keeps).collect::<String>().replace(' ', "-");
    parts(page).into_iter().filter_map(heading).map(anchor).collect()
}

/// Problem of a link on a page, if there is one.
fn broken(file: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { file.to_path_buf() } else { file.parent().unwrap().join(path) };
    if !target.exists() {
        return Some(format!("{}: {link} is not there", file.display()));
    }
    let anchor = anchor?;
    (!anchors(&text(&target)).contains(&anchor.to_owned()))
        .then(|| format!("{}: {link} names no heading", file.display()))
}

#[test]
fn links_between_pages_resolve() {
    let folders = ["", "docs", "docs/guide", "docs/faces", "docs/adr"];
    let mut wrong = Vec::new();
    for file in folders.into_iter().flat_map(pages) {
        for part in parts(&text(&file)) {
            let Part::Prose(line) = part else { continue };
            let links = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
            wrong.extend(links.filter(|link| !link.contains("://")).filter_map(|link| broken(&file, link)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let somewhere = repository().join("README.md");
    assert!(broken(&somewhere, "docs/nowhere.md").is_some() && broken(&somewhere, "#nothing").is_some());
}

#[test]
fn every_guide_page_is_in_the_index() {
    let list = page("docs/guide/README.md");
    for file in pages("docs/guide") {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name == "README.md" || list.contains(&format!("]({name})")), "{name}");
    }
}
