//! Checks of the project's own prose: banned phrases, the length of sentences, and how doc comments begin.

use std::path::Path;
use std::process::Command;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::cli::docs::repository;

const MAX_SENTENCE_WORDS: usize = 40;

/// Text of a source file or page: lower-case words with the line that each is on.
struct Prose {
    words: Vec<(String, usize)>,
}

impl Prose {
    /// Markers of comments and continued lines are left out, so that a phrase is found across lines.
    fn parse(text: &str) -> Prose {
        let mut words = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line =
                line.trim_start().trim_start_matches(['/', '!', '#', '*', '>', '|']).trim_end_matches('\\');
            for word in line.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '_')) {
                if !word.is_empty() {
                    words.push((word.to_lowercase(), number + 1));
                }
            }
        }
        Prose { words }
    }

    /// Lines on which the phrase begins.
    fn find(&self, phrase: &str) -> Vec<usize> {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        let windows = self.words.windows(phrase.len());
        let found = windows.filter(|window| window.iter().map(|(word, _)| word).eq(phrase.iter()));
        found.map(|window| window[0].1).collect()
    }
}

/// The files that git tracks, relative to the root of the repository.
fn tracked_files() -> Vec<String> {
    let output = Command::new("git").arg("-C").arg(repository()).arg("ls-files").output().unwrap();
    assert!(output.status.success(), "the tests run in a git checkout");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap()
}

fn entries(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn is_prose(file: &str) -> bool {
    let is_source =
        matches!(Path::new(file).extension().and_then(|e| e.to_str()), Some("rs" | "md" | "toml"));
    // Golden data is recorded, and these lists quote the phrases.
    is_source && !file.contains("/golden/") && !file.contains("tests/cli/tidy")
}

fn banned_phrases(file: &str, text: &str) -> Vec<String> {
    let prose = Prose::parse(text);
    let is_allowed = |phrase: &str| {
        let place = format!("{file}: {phrase}");
        entries(include_str!("tidy/allowed.txt")).any(|allowed| allowed == place)
    };
    let phrases = entries(include_str!("tidy/phrases.txt")).filter(|phrase| !is_allowed(phrase));
    let lines = phrases.flat_map(|phrase| prose.find(phrase).into_iter().map(move |line| (phrase, line)));
    lines.map(|(phrase, line)| format!("{file}:{line}: {phrase}")).collect()
}

/// Sentences of a Markdown page that are too long. Code blocks do not count.
fn long_sentences(text: &str) -> Vec<String> {
    let mut long = Vec::new();
    let mut block = String::new();
    let mut in_code = false;
    for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(piece) if !in_code => block.push_str(&piece),
            // One word, whatever it contains.
            Event::Code(_) => block.push_str("code"),
            Event::SoftBreak | Event::HardBreak => block.push(' '),
            Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell | TagEnd::Heading(_))
            | Event::Start(Tag::Item | Tag::List(_)) => {
                let sentences = block.split_inclusive(['.', '?', '!']).fold(Vec::new(), join_abbreviations);
                long.extend(
                    sentences.into_iter().filter(|s| s.split_whitespace().count() > MAX_SENTENCE_WORDS),
                );
                block.clear();
            }
            _ => {}
        }
    }
    long
}

/// A stop ends a sentence only if a blank follows it.
fn join_abbreviations(mut sentences: Vec<String>, piece: &str) -> Vec<String> {
    match sentences.last_mut() {
        Some(last) if !piece.starts_with(char::is_whitespace) => last.push_str(piece),
        _ => sentences.push(piece.to_owned()),
    }
    sentences
}

/// Doc comments that open with a question word instead of saying what the item is.
fn question_openings(file: &str, text: &str) -> Vec<String> {
    let openings = ["What ", "Who ", "Where ", "How ", "All that "];
    let mut found = Vec::new();
    let mut previous = "";
    for (number, line) in text.lines().map(str::trim_start).enumerate() {
        for marker in ["/// ", "//! "] {
            if let Some(doc) = line.strip_prefix(marker)
                && !previous.starts_with(marker.trim_end())
                && openings.iter().any(|opening| doc.starts_with(opening))
            {
                found.push(format!("{file}:{}: {doc}", number + 1));
            }
        }
        previous = line;
    }
    found
}

#[track_caller]
fn assert_none(violations: &[String], rule: &str) {
    assert!(violations.is_empty(), "{} {rule}:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn prose_contains_no_banned_phrase() {
    let files = tracked_files();
    let files = files.iter().filter(|file| is_prose(file));
    let violations: Vec<String> = files.flat_map(|file| banned_phrases(file, &read(file))).collect();
    assert_none(&violations, "banned phrases (tests/cli/tidy/phrases.txt); rewrite the sentences");
}

#[test]
fn sentences_of_pages_have_at_most_40_words() {
    let files = tracked_files();
    let is_page =
        |file: &&String| file.ends_with(".md") && (file.starts_with("docs/") || *file == "README.md");
    let long = |file: &String| -> Vec<String> {
        long_sentences(&read(file)).iter().map(|sentence| format!("{file}: {}", sentence.trim())).collect()
    };
    let violations: Vec<String> = files.iter().filter(is_page).flat_map(long).collect();
    assert_none(&violations, "sentences with more than 40 words; split them");
}

#[test]
fn doc_comments_say_what_an_item_is() {
    let files = tracked_files();
    let is_source = |file: &&String| file.ends_with(".rs") && file.contains("/src/");
    let violations: Vec<String> =
        files.iter().filter(is_source).flat_map(|file| question_openings(file, &read(file))).collect();
    assert_none(&violations, "doc comments that open with What, Who, Where, How or All that");
}

#[test]
fn tidy_checks_find_what_they_look_for() {
    let source = "//! What is here.\n\n/// How it is\n/// What follows counts as text.\nfn f() { say(\"the agent \\\n    goes\n    on\") }";
    assert_eq!(question_openings("a.rs", source), ["a.rs:1: What is here.", "a.rs:3: How it is"]);
    assert_eq!(banned_phrases("a.rs", source), ["a.rs:6: goes on"]);
    assert_eq!(banned_phrases("a.rs", "// The\n// Person's agent; going on"), ["a.rs:1: the person's"]);
    let words = |count: usize| vec!["word"; count].join(" ");
    let page = format!("{}, see 1.5. {}.\n\n    {}", words(20), words(30), words(90));
    assert_eq!(long_sentences(&page).len(), 0);
    assert_eq!(long_sentences(&format!("* {}.\n* {} `a b c` b.", words(41), words(38))).len(), 1);
}
