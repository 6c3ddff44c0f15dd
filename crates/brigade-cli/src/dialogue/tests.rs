//! Questions that come up, and the answers to them.

use brigade_core::{Event, Record};

use super::*;
use crate::keyboard::editor::Edit;

fn dialogue() -> Dialogue {
    Dialogue::new(None, Colour::Off)
}

/// Presses a key that types a letter.
fn press(dialogue: &mut Dialogue, letter: &str, tree: &Tree) -> Reaction {
    dialogue.key(Key::Edit(Edit::Insert(letter.to_owned())), tree)
}

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

/// Looks, and waits until what is typed counts.
fn look(dialogue: &mut Dialogue, tree: &Tree) -> Option<Vec<String>> {
    let lines = dialogue.look(tree, 80);
    dialogue.prompt.settle();
    lines
}

#[test]
fn what_was_typed_before_a_question_came_up_is_no_answer() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut dialogue = self::dialogue();
    dialogue.look(&tree, 80);
    assert_eq!(press(&mut dialogue, "y", &tree), Reaction::Nothing);
    assert_eq!(dialogue.key(Key::Enter, &tree), Reaction::Nothing);
    assert_eq!(dialogue.line("y", &tree), Reaction::Nothing);
    assert_eq!(dialogue.key(Key::Interrupt, &tree), Reaction::Interrupt);
    dialogue.prompt.settle();
    assert_eq!(dialogue.key(Key::Enter, &tree), Reaction::Nothing, "nothing of it is left");
    assert_eq!(indexes(press(&mut dialogue, "y", &tree)), [0]);
}

#[test]
fn yes_to_all_is_yes_to_what_was_shown() {
    let one = SessionId::root(1);
    let two = tree(&[(&one, 0), (&one, 1)]);
    let mut dialogue = self::dialogue();
    look(&mut dialogue, &two);
    let Reaction::Show(lines) = dialogue.line("y all", &two) else { panic!("not shown yet") };
    let words = lines.join("\n");
    assert!(words.contains("make") && words.contains("same again to allow all"), "{words}");
    dialogue.prompt.settle();
    // One more came while that was typed.
    let three = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
    look(&mut dialogue, &three);
    assert!(matches!(press(&mut dialogue, "Y", &three), Reaction::Show(_)));
    dialogue.prompt.settle();
    assert_eq!(indexes(press(&mut dialogue, "Y", &three)), [0, 1, 2]);
    // No needs no second look, and an answer that was not given is asked for again.
    let mut dialogue = self::dialogue();
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
    let mut dialogue = self::dialogue();
    assert!(look(&mut dialogue, &tree).is_some());
    assert_eq!(look(&mut dialogue, &tree), None);
    assert!(matches!(dialogue.key(Key::Complete, &tree), Reaction::Show(_)));
    dialogue.prompt.settle();
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
    let mut dialogue = self::dialogue();
    look(&mut dialogue, &tree);
    let mut answered = indexes(dialogue.line("a", &tree));
    answered.sort_unstable();
    assert_eq!(answered, [0, 2]);
}

#[test]
fn a_line_that_is_no_answer_answers_nothing() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut dialogue = self::dialogue();
    look(&mut dialogue, &tree);
    assert_eq!(dialogue.line("  ", &tree), Reaction::Nothing);
    assert!(matches!(dialogue.line("what?", &tree), Reaction::Say(_)));
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

fn footer(dialogue: &Dialogue, tree: &Tree) -> String {
    dialogue.footer(tree, 100).unwrap().lines.join("\n")
}

#[test]
fn one_key_answers() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let answered = |key: &str| {
        let mut dialogue = dialogue();
        look(&mut dialogue, &tree);
        match press(&mut dialogue, key, &tree) {
            Reaction::Answers(given) => given[0].answer.clone(),
            other => panic!("{key}: {other:?}"),
        }
    };
    assert_eq!(answered("y"), Answer::Once);
    assert_eq!(answered("a"), Answer::Always("shell(make)".to_owned()));
    assert_eq!(answered("n"), Answer::Deny { word: None });
    assert_eq!(answered("Y"), Answer::Once);
}

#[test]
fn a_key_that_is_not_offered_answers_nothing_and_is_named() {
    let one = SessionId::root(1);
    let mut record = asked(&one, 0, 1);
    if let Event::Asked { always, .. } = &mut record.event {
        *always = None;
    }
    let tree = Tree::fold(&[record]);
    let mut dialogue = dialogue();
    look(&mut dialogue, &tree);
    assert!(!footer(&dialogue, &tree).contains("always"));
    assert_eq!(press(&mut dialogue, "a", &tree), Reaction::Nothing);
    assert!(footer(&dialogue, &tree).contains("y allows it once"));
    assert_eq!(press(&mut dialogue, "x", &tree), Reaction::Nothing);
    assert!(footer(&dialogue, &tree).contains("'x' is not an answer"));
    dialogue.paste("y");
    assert!(dialogue.is_open());
    assert!(footer(&dialogue, &tree).contains("pasted"));
    assert_eq!(indexes(press(&mut dialogue, "n", &tree)), [0]);
}

#[test]
fn a_reason_is_typed_and_can_be_given_up() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut dialogue = dialogue();
    look(&mut dialogue, &tree);
    press(&mut dialogue, "r", &tree);
    press(&mut dialogue, "y", &tree);
    assert!(footer(&dialogue, &tree).contains("> y"), "the letter is a part of the reason");
    assert_eq!(dialogue.key(Key::Escape, &tree), Reaction::Nothing);
    press(&mut dialogue, "r", &tree);
    dialogue.paste("use\nmake");
    assert_eq!(dialogue.key(Key::Interrupt, &tree), Reaction::Nothing, "the reason is given up first");
    press(&mut dialogue, "r", &tree);
    dialogue.paste("use\nmake");
    let Reaction::Answers(given) = dialogue.key(Key::Enter, &tree) else { panic!("no answer") };
    assert_eq!(given[0].answer, Answer::Deny { word: Some("use make".to_owned()) });
}

#[test]
fn a_rule_can_be_edited_and_has_to_be_one_for_the_tool() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut dialogue = dialogue();
    look(&mut dialogue, &tree);
    press(&mut dialogue, "e", &tree);
    assert!(footer(&dialogue, &tree).contains("> shell(make)"));
    dialogue.key(Key::Edit(Edit::KillToStart), &tree);
    dialogue.paste("read_file");
    assert_eq!(dialogue.key(Key::Enter, &tree), Reaction::Nothing);
    assert!(footer(&dialogue, &tree).contains("`read_file` is not a rule for shell"));
    dialogue.key(Key::Edit(Edit::KillToStart), &tree);
    dialogue.paste("shell(make *)");
    let Reaction::Answers(given) = dialogue.key(Key::Enter, &tree) else { panic!("no answer") };
    assert_eq!(given[0].answer, Answer::Always("shell(make *)".to_owned()));
}

#[test]
fn a_key_that_is_held_down_or_a_word_that_is_being_typed_answers_nothing() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut dialogue = dialogue();
    dialogue.look(&tree, 80);
    // Each key comes sooner after the one before than a pause, all of them together take longer.
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(press(&mut dialogue, "y", &tree), Reaction::Nothing);
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(indexes(press(&mut dialogue, "y", &tree)), [0]);
}
