//! The dialogue about questions of agents: one at a time is put to the person, the others wait in line.
//!
//! An answer is a word and Enter, never a single key: who types something else while a question appears has not
//! answered it.

mod listener;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use brigade_core::event::Answer;
use brigade_core::permission::Rule;
use brigade_core::view::{Question, Tree};
use brigade_core::{CallId, SessionId};

use crate::clock;
use crate::keyboard::editor::{Edit, Editor};
use crate::keyboard::keys::Key;
use crate::progress::Footer;
use crate::render::{filled, question};
use crate::safe;
use crate::terminal::{self, Colour};
use crate::units;

pub(crate) use listener::{Listener, Typing, Wish};

/// Of a question with more lines it is said how many there are.
const LONG: usize = 12;
/// How many rows the answer may take.
const ANSWER_ROWS: usize = 3;

/// A question by its place.
type Place = (SessionId, CallId);

/// An answer to be given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    /// Who asked.
    pub(crate) session: SessionId,
    /// About which call.
    pub(crate) call: CallId,
    /// What is answered.
    pub(crate) answer: Answer,
}

/// What a key or a line has led to.
#[derive(Debug, PartialEq)]
pub(crate) enum Reaction {
    /// Nothing, or the answer looks different.
    Nothing,
    /// These answers are given.
    Answers(Vec<Given>),
    /// Something to tell the person.
    Say(String),
    /// The person wants the run to stop.
    Interrupt,
    /// The person wants to do something else first.
    Leave,
}

/// What is typed within this time after a question came up was meant for something else.
const BLINK: Duration = Duration::from_millis(400);

/// The questions of a tree and what is typed about the first of them.
#[derive(Default)]
pub(crate) struct Dialogue {
    current: Option<Place>,
    /// How many lines it has.
    lines: usize,
    /// When it came up.
    since: Option<Instant>,
    /// All that were shown whole.
    shown: HashSet<Place>,
    /// Answered here, and not heard of yet.
    answered: HashSet<Place>,
    editor: Editor,
}

impl Dialogue {
    /// Whether somebody waits for an answer.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Looks at the questions there are. The lines of a question that comes up now are to be shown whole.
    pub(crate) fn look(&mut self, tree: &Tree, columns: usize) -> Option<Vec<String>> {
        if tree.questions().next().is_none() {
            *self = Dialogue::default();
            return None;
        }
        self.answered.retain(|place| tree.questions().any(|open| is_at(open, place)));
        let still_open =
            self.current.as_ref().is_some_and(|current| self.open(tree).any(|open| is_at(open, current)));
        if still_open {
            return None;
        }
        let next = self.open(tree).next().map(place);
        self.bring_up(next, tree, columns)
    }

    fn bring_up(&mut self, next: Option<Place>, tree: &Tree, columns: usize) -> Option<Vec<String>> {
        self.editor.take();
        self.since = Some(Instant::now());
        self.shown.extend(next.clone());
        self.current = next;
        let lines = self.question(tree).map(|open| question::lines(open, tree, columns));
        self.lines = lines.as_ref().map_or(0, Vec::len);
        lines
    }

    /// Whether a question came up just now.
    fn is_new(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() < BLINK)
    }

    /// An answer could not be given: the question comes up again.
    pub(crate) fn failed(&mut self, given: &Given) {
        self.answered.remove(&(given.session.clone(), given.call));
    }

    /// The question that is put to the person now.
    pub(crate) fn question<'a>(&self, tree: &'a Tree) -> Option<&'a Question> {
        let current = self.current.as_ref()?;
        tree.questions().find(|open| is_at(open, current))
    }

    /// Questions that were not answered here.
    fn open<'a>(&self, tree: &'a Tree) -> impl Iterator<Item = &'a Question> {
        tree.questions().filter(|open| !self.answered.contains(&place(open)))
    }

    /// The next question in line, shown whole.
    fn next(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let columns = terminal::size().0;
        let all: Vec<Place> = self.open(tree).map(place).collect();
        let at = all.iter().position(|other| Some(other) == self.current.as_ref())?;
        let next = all.get(at + 1).or(all.first()).filter(|_| all.len() > 1)?;
        self.bring_up(Some(next.clone()), tree, columns)
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: Key, tree: &Tree) -> Reaction {
        match key {
            Key::Interrupt if self.editor.is_empty() => return Reaction::Interrupt,
            _ if self.is_new() => {}
            Key::Edit(edit) => self.editor.apply(edit),
            Key::DeleteOrLeave => self.editor.apply(Edit::Delete),
            // A terminal that was stopped meanwhile sends Enter as the other.
            Key::Enter | Key::NewLine => {
                let line = self.editor.take();
                return self.line(&line, tree);
            }
            Key::Complete => {
                return self.next(tree).map_or(Reaction::Nothing, |lines| Reaction::Say(lines.join("\n")));
            }
            Key::Interrupt => drop(self.editor.take()),
            Key::Escape => {
                self.editor.take();
                return Reaction::Leave;
            }
            Key::Up | Key::Down | Key::Redraw | Key::Suspend => {}
        }
        Reaction::Nothing
    }

    /// Takes what was pasted as if it had been typed.
    pub(crate) fn paste(&mut self, text: &str) {
        self.editor.apply(Edit::Insert(text.replace('\n', " ")));
    }

    /// Takes a whole line.
    pub(crate) fn line(&mut self, line: &str, tree: &Tree) -> Reaction {
        let Some(current) = self.question(tree) else { return Reaction::Nothing };
        if line.trim().is_empty() || self.is_new() {
            return Reaction::Nothing;
        }
        let (answer, scope) = match answer(line, current.always.as_deref()) {
            Ok(answer) => answer,
            Err(words) => {
                // A sentence was meant for somebody else, and is not lost.
                if line.trim().contains(' ') {
                    self.editor.replace(line);
                }
                return Reaction::Say(words);
            }
        };
        let asked: Vec<Place> = match (&scope, &answer) {
            (Scope::All, Answer::Once) if let Some(words) = self.show_rest(tree) => {
                return Reaction::Say(words);
            }
            (Scope::All, _) => self.open(tree).map(place).collect(),
            // What was permitted for good is not asked about again.
            (Scope::One, Answer::Always(rule)) => {
                let is_same = |open: &&Question| {
                    open.session == current.session && open.always.as_deref() == Some(rule.as_str())
                };
                let same = self.open(tree).filter(is_same).map(place);
                same.chain([place(current)]).collect()
            }
            (Scope::One, _) => vec![place(current)],
        };
        let mut given: Vec<Given> = Vec::new();
        for (session, call) in asked {
            if self.answered.insert((session.clone(), call)) {
                given.push(Given { session, call, answer: answer.clone() });
            }
        }
        Reaction::Answers(given)
    }

    /// Nobody says yes to what they have not seen: shows what was not shown yet, if there is anything.
    fn show_rest(&mut self, tree: &Tree) -> Option<String> {
        let columns = terminal::size().0;
        let unseen: Vec<&Question> =
            self.open(tree).filter(|open| !self.shown.contains(&place(open))).collect();
        if unseen.is_empty() {
            return None;
        }
        self.shown.extend(unseen.iter().map(|open| place(open)));
        self.since = Some(Instant::now());
        let mut lines: Vec<String> =
            unseen.iter().flat_map(|open| question::lines(open, tree, columns)).collect();
        lines.push("These are all that are open. To allow all of them, type y all again.".to_owned());
        Some(lines.join("\n"))
    }

    /// What stands beneath the tree while a question is open.
    pub(crate) fn footer(&self, tree: &Tree, colour: Colour, columns: usize) -> Option<Footer> {
        let open = self.question(tree)?;
        let count = self.open(tree).count();
        let head = self.headline(open, tree, count);
        let head = filled(head.split(' '), " ", columns);
        let mut lines: Vec<String> = head.iter().map(|line| colour.paint("33;1", line)).collect();
        lines.extend(choices(open, count, columns));
        let layout = self.editor.layout(columns, ANSWER_ROWS);
        let (row, column) = layout.cursor;
        let cursor = Some((lines.len() + row, column));
        lines.extend(layout.lines);
        Some(Footer { lines, cursor })
    }

    fn headline(&self, open: &Question, tree: &Tree, count: usize) -> String {
        let left = units::elapsed(open.until.saturating_sub(clock::now()));
        let long = match self.lines {
            0..=LONG => String::new(),
            lines => format!(", {lines} lines above"),
        };
        let others = if count > 1 { format!(", {} more wait", count - 1) } else { String::new() };
        let who = question::lineage(open, tree);
        format!("? {who}: {} (no in {left}{long}{others})", safe::line(open.tool()))
    }
}

/// What can be answered.
pub(crate) fn choices(open: &Question, count: usize, columns: usize) -> Vec<String> {
    let always = open.always.as_ref().map(|rule| {
        let every = if rule == open.tool() { " (every call of it)" } else { "" };
        format!("a always: {}{every}", safe::line(rule))
    });
    let several = if count > 1 { &["y all, n all", "Tab next"][..] } else { &[] };
    let words = ["y once"].into_iter().chain(always.as_deref()).chain(["n no", "n WORDS no, because"]);
    filled(words.chain(several.iter().copied()), "   ", columns)
}

fn place(open: &Question) -> Place {
    (open.session.clone(), open.call)
}

fn is_at(open: &Question, (session, call): &Place) -> bool {
    open.session == *session && open.call == *call
}

/// Which questions an answer is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The one that is put.
    One,
    /// All that are open.
    All,
}

/// Reads an answer: `y`, `y all`, `a`, `a RULE`, `n`, `n all`, `n WORDS`.
pub(crate) fn answer(line: &str, always: Option<&str>) -> Result<(Answer, Scope), String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let scope = if rest == "all" { Scope::All } else { Scope::One };
    match (word.to_lowercase().trim_end_matches([',', '.', ':', '!']), rest) {
        ("y" | "yes" | "once", "" | "all") => Ok((Answer::Once, scope)),
        ("a" | "always", "") => match always {
            Some(rule) => Ok((Answer::Always(rule.to_owned()), Scope::One)),
            None => {
                Err("No rule says just this call, so it cannot be allowed for good; y allows it once."
                    .to_owned())
            }
        },
        ("a" | "always", rule) => match rule.parse::<Rule>() {
            Ok(rule) => Ok((Answer::Always(rule.to_string()), Scope::One)),
            Err(error) => Err(error.to_string()),
        },
        ("n" | "no", "" | "all") => Ok((Answer::Deny { word: None }, scope)),
        ("n" | "no", words) => Ok((Answer::Deny { word: Some(words.to_owned()) }, Scope::One)),
        _ => {
            let choices = if always.is_some() { "y, a or n" } else { "y or n" };
            Err(format!("'{}' is no answer: type {choices}, and press Enter.", safe::line(word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Event, Record};

    use super::*;

    fn asked(session: &SessionId, index: u32, pos: u64) -> Record {
        let event = Event::Asked {
            call: CallId { turn: 1, index },
            what: r#"shell {"command":"make"}"#.into(),
            why: "this mode asks before it".to_owned(),
            always: Some("shell(make)".to_owned()),
            until: u64::MAX,
            default: Answer::Deny { word: None },
        };
        Record { session: session.clone(), seq: pos, pos, at: 0, v: 1, event }
    }

    fn tree(places: &[(&SessionId, u32)]) -> Tree {
        let records: Vec<Record> =
            (1..).zip(places).map(|(pos, (session, index))| asked(session, *index, pos)).collect();
        Tree::fold(&records)
    }

    fn indexes(reaction: Reaction) -> Vec<u32> {
        match reaction {
            Reaction::Answers(given) => given.iter().map(|given| given.call.index).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_words() {
        let no = |word: &str| Ok((Answer::Deny { word: Some(word.to_owned()) }, Scope::One));
        assert_eq!(answer(" Yes ", None), Ok((Answer::Once, Scope::One)));
        assert_eq!(answer("y all", None), Ok((Answer::Once, Scope::All)));
        assert_eq!(answer("n all", None), Ok((Answer::Deny { word: None }, Scope::All)));
        assert_eq!(answer("no use make", None), no("use make"));
        assert_eq!(answer("No, use make", None), no("use make"));
        assert_eq!(answer("a", Some("shell(x)")), Ok((Answer::Always("shell(x)".to_owned()), Scope::One)));
        assert_eq!(
            answer("a shell(git *)", None),
            Ok((Answer::Always("shell(git *)".to_owned()), Scope::One))
        );
        assert!(answer("a", None).unwrap_err().contains("y allows it once"));
        assert!(answer("a shell(", None).is_err());
        // Whoever was in the middle of a sentence has not answered.
        for line in ["yesterday", "y please", "yes, but", "not now", "also", "all", "ok"] {
            assert!(answer(line, Some("shell(x)")).is_err(), "{line}");
        }
    }

    /// Looks, and waits until what is typed counts.
    fn look(dialogue: &mut Dialogue, tree: &Tree) -> Option<Vec<String>> {
        let lines = dialogue.look(tree, 80);
        dialogue.since = None;
        lines
    }

    #[test]
    fn what_was_typed_before_a_question_came_up_is_no_answer() {
        let one = SessionId::root(1);
        let tree = tree(&[(&one, 0)]);
        let mut dialogue = Dialogue::default();
        dialogue.look(&tree, 80);
        assert_eq!(dialogue.key(Key::Edit(Edit::Insert("y".to_owned())), &tree), Reaction::Nothing);
        assert_eq!(dialogue.key(Key::Enter, &tree), Reaction::Nothing);
        assert_eq!(dialogue.line("y", &tree), Reaction::Nothing);
        assert_eq!(dialogue.key(Key::Interrupt, &tree), Reaction::Interrupt);
        dialogue.since = None;
        assert_eq!(dialogue.key(Key::Enter, &tree), Reaction::Nothing, "nothing of it is left");
        assert_eq!(indexes(dialogue.line("y", &tree)), [0]);
    }

    #[test]
    fn yes_to_all_is_yes_to_what_was_shown() {
        let one = SessionId::root(1);
        let two = tree(&[(&one, 0), (&one, 1)]);
        let mut dialogue = Dialogue::default();
        look(&mut dialogue, &two);
        let Reaction::Say(words) = dialogue.line("y all", &two) else { panic!("not shown yet") };
        assert!(words.contains("make") && words.contains("type y all again"), "{words}");
        dialogue.since = None;
        // One more came while that was typed.
        let three = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
        look(&mut dialogue, &three);
        assert!(matches!(dialogue.line("y all", &three), Reaction::Say(_)));
        dialogue.since = None;
        assert_eq!(indexes(dialogue.line("y all", &three)), [0, 1, 2]);
        // No needs no second look, and an answer that was not given is asked for again.
        let mut dialogue = Dialogue::default();
        look(&mut dialogue, &three);
        let Reaction::Answers(given) = dialogue.line("n all", &three) else { panic!("no is no") };
        assert_eq!(given.len(), 3);
        dialogue.failed(&given[1]);
        assert!(look(&mut dialogue, &three).is_some());
        assert_eq!(indexes(dialogue.line("n", &three)), [1]);
    }

    #[test]
    fn questions_come_up_one_after_the_other() {
        let one = SessionId::root(1);
        let tree = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
        let mut dialogue = Dialogue::default();
        assert!(look(&mut dialogue, &tree).is_some());
        assert_eq!(look(&mut dialogue, &tree), None);
        assert!(matches!(dialogue.key(Key::Complete, &tree), Reaction::Say(_)));
        dialogue.since = None;
        assert_eq!(indexes(dialogue.line("y", &tree)), [1]);
        // The answer is under way: the next one comes up, and none of them twice.
        assert!(look(&mut dialogue, &tree).is_some());
        assert_eq!(indexes(dialogue.line("n all", &tree)), [0, 2]);
        assert_eq!(look(&mut dialogue, &tree), None);
        assert!(!dialogue.is_open());
    }

    #[test]
    fn always_answers_the_same_question_of_the_same_session_and_of_no_other() {
        let (one, other) = (SessionId::root(1), SessionId::root(2));
        let tree = tree(&[(&one, 0), (&other, 1), (&one, 2)]);
        let mut dialogue = Dialogue::default();
        look(&mut dialogue, &tree);
        let mut answered = indexes(dialogue.line("a", &tree));
        answered.sort_unstable();
        assert_eq!(answered, [0, 2]);
    }

    #[test]
    fn a_line_that_is_no_answer_answers_nothing() {
        let one = SessionId::root(1);
        let tree = tree(&[(&one, 0)]);
        let mut dialogue = Dialogue::default();
        look(&mut dialogue, &tree);
        assert_eq!(dialogue.line("  ", &tree), Reaction::Nothing);
        assert!(matches!(dialogue.line("what?", &tree), Reaction::Say(_)));
        assert!(dialogue.editor.is_empty());
        assert!(matches!(dialogue.line("Please stop that", &tree), Reaction::Say(_)));
        assert_eq!(dialogue.editor.text(), "Please stop that");
        assert!(dialogue.is_open());
        // Somebody else answered it.
        let answered = Event::Answered {
            call: CallId { turn: 1, index: 0 },
            answer: Answer::Once,
            by: "another".to_owned(),
        };
        let mut records = vec![asked(&one, 0, 1)];
        records.push(Record { session: one.clone(), seq: 2, pos: 2, at: 0, v: 1, event: answered });
        look(&mut dialogue, &Tree::fold(&records));
        assert!(!dialogue.is_open());
    }
}
