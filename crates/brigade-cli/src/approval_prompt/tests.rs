//! Tests of approval prompts and their answers.

use brigade_core::{CallId, Cursor, Event, Record};

use super::*;
use crate::keyboard::editor::Edit;

fn new_prompt() -> ApprovalPrompt {
    ApprovalPrompt::new(None, Colour::Off)
}

/// Presses a letter key.
fn press(prompt: &mut ApprovalPrompt, letter: &str, tree: &Tree) -> PromptAction {
    prompt.key(Key::Edit(Edit::Insert(letter.to_owned())), tree)
}

fn asked(session: &SessionId, index: u32, pos: u64) -> Record {
    let event = Event::Asked {
        call: CallId { turn: 1, index },
        what: r#"shell {"command":"make"}"#.into(),
        why: "this mode requires approval".to_owned(),
        always: Some("shell(make)".to_owned()),
        until: u64::MAX,
        default: Answer::Deny { word: None },
    };
    Record { session: session.clone(), seq: pos, pos: Cursor::new(pos), at: 0, v: 1, event }
}

fn tree(places: &[(&SessionId, u32)]) -> Tree {
    let records: Vec<Record> =
        (1..).zip(places).map(|(pos, (session, index))| asked(session, *index, pos)).collect();
    Tree::fold(&records)
}

fn indexes(action: PromptAction) -> Vec<u32> {
    match action {
        PromptAction::Answers(given) => given.iter().map(|given| given.question.call.index).collect(),
        other => panic!("{other:?}"),
    }
}

/// Updates the prompt, and waits until input counts as an answer.
fn look(prompt: &mut ApprovalPrompt, tree: &Tree) -> Option<Vec<String>> {
    let lines = prompt.look(tree, 80);
    prompt.key_prompt.settle();
    lines
}

#[test]
fn input_typed_before_a_prompt_appears_is_discarded() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut prompt = self::new_prompt();
    prompt.look(&tree, 80);
    assert_eq!(press(&mut prompt, "y", &tree), PromptAction::Nothing);
    assert_eq!(prompt.key(Key::Enter, &tree), PromptAction::Nothing);
    assert_eq!(prompt.line("y", &tree), PromptAction::Nothing);
    assert_eq!(prompt.key(Key::Interrupt, &tree), PromptAction::Interrupt);
    prompt.key_prompt.settle();
    assert_eq!(prompt.key(Key::Enter, &tree), PromptAction::Nothing, "nothing of it is left");
    assert_eq!(indexes(press(&mut prompt, "y", &tree)), [0]);
}

#[test]
fn allow_all_covers_only_approvals_that_were_shown() {
    let one = SessionId::root(1);
    let two = tree(&[(&one, 0), (&one, 1)]);
    let mut prompt = self::new_prompt();
    look(&mut prompt, &two);
    let PromptAction::Show(lines) = prompt.line("y all", &two) else { panic!("not shown yet") };
    let message = lines.join("\n");
    assert!(message.contains("make") && message.contains("Repeat your answer to allow all"), "{message}");
    prompt.key_prompt.settle();
    // One more approval arrived in the meantime.
    let three = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
    look(&mut prompt, &three);
    assert!(matches!(press(&mut prompt, "Y", &three), PromptAction::Show(_)));
    prompt.key_prompt.settle();
    assert_eq!(indexes(press(&mut prompt, "Y", &three)), [0, 1, 2]);
    // Denying needs no second look. An answer that could not be recorded is asked for again.
    let mut prompt = self::new_prompt();
    look(&mut prompt, &three);
    let PromptAction::Answers(given) = prompt.line("n all", &three) else { panic!("no is no") };
    assert_eq!(given.len(), 3);
    prompt.failed(&given[1]);
    assert!(look(&mut prompt, &three).is_some());
    assert_eq!(indexes(prompt.line("n", &three)), [1]);
}

#[test]
fn approvals_are_shown_one_at_a_time() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
    let mut prompt = self::new_prompt();
    assert!(look(&mut prompt, &tree).is_some());
    assert_eq!(look(&mut prompt, &tree), None);
    assert!(matches!(prompt.key(Key::Complete, &tree), PromptAction::Show(_)));
    prompt.key_prompt.settle();
    assert_eq!(indexes(prompt.line("y", &tree)), [1]);
    // The answer is not in the log yet. The next approval comes up, and none comes up twice.
    assert!(look(&mut prompt, &tree).is_some());
    assert_eq!(indexes(prompt.line("n all", &tree)), [0, 2]);
    assert_eq!(look(&mut prompt, &tree), None);
    assert!(!prompt.is_open());
}

#[test]
fn always_allow_answers_the_same_approval_of_the_same_session_only() {
    let (one, other) = (SessionId::root(1), SessionId::root(2));
    let tree = tree(&[(&one, 0), (&other, 1), (&one, 2)]);
    let mut prompt = self::new_prompt();
    look(&mut prompt, &tree);
    let mut answered = indexes(prompt.line("a", &tree));
    answered.sort_unstable();
    assert_eq!(answered, [0, 2]);
}

#[test]
fn invalid_line_answers_nothing() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut prompt = self::new_prompt();
    look(&mut prompt, &tree);
    assert_eq!(prompt.line("  ", &tree), PromptAction::Nothing);
    assert!(matches!(prompt.line("what?", &tree), PromptAction::Say(_)));
    assert!(prompt.is_open());
    // Another process answered it.
    let answered = Event::Answered {
        call: CallId { turn: 1, index: 0 },
        answer: Answer::Once,
        by: "another".to_owned(),
    };
    let mut records = vec![asked(&one, 0, 1)];
    records.push(Record { session: one.clone(), seq: 2, pos: Cursor::new(2), at: 0, v: 1, event: answered });
    look(&mut prompt, &Tree::fold(&records));
    assert!(!prompt.is_open());
}

fn footer(prompt: &ApprovalPrompt, tree: &Tree) -> String {
    prompt.footer(tree, 100).unwrap().lines.join("\n")
}

#[test]
fn single_key_answers() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let answered = |key: &str| {
        let mut prompt = new_prompt();
        look(&mut prompt, &tree);
        match press(&mut prompt, key, &tree) {
            PromptAction::Answers(given) => given[0].answer.clone(),
            other => panic!("{key}: {other:?}"),
        }
    };
    assert_eq!(answered("y"), Answer::Once);
    assert_eq!(answered("a"), Answer::Always("shell(make)".to_owned()));
    assert_eq!(answered("n"), Answer::Deny { word: None });
    assert_eq!(answered("Y"), Answer::Once);
    assert_eq!(answered("N"), Answer::Deny { word: None });
}

fn host_asked(session: &SessionId, host: &str, pos: u64) -> Record {
    let event = Event::HostAsked {
        call: CallId { turn: 1, index: 0 },
        host: host.parse().unwrap(),
        what: r#"shell {"command":"npm install"}"#.into(),
        why: "the sandbox does not allow this host".to_owned(),
        until: u64::MAX,
        default: Answer::Deny { word: None },
    };
    Record { session: session.clone(), seq: pos, pos: Cursor::new(pos), at: 0, v: 1, event }
}

fn hosts(action: PromptAction) -> Vec<String> {
    match action {
        PromptAction::Answers(given) => {
            given.iter().filter_map(|given| Some(given.question.host.as_ref()?.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn hosts_of_one_call_are_answered_one_by_one() {
    let one = SessionId::root(1);
    let tree = Tree::fold(&[host_asked(&one, "a.example:443", 1), host_asked(&one, "b.example:443", 2)]);
    let mut prompt = new_prompt();
    let shown = look(&mut prompt, &tree).unwrap().join("\n");
    let unwrapped = shown.replace('\n', " ");
    assert!(unwrapped.contains("wants to connect to a.example:443 (running: npm install)"), "{shown}");
    assert!(
        shown.contains("the sandbox does not allow this host") && shown.contains("│ npm install"),
        "{shown}"
    );
    assert!(footer(&prompt, &tree).contains("y allow for this call · a always allow a.example:443 · n deny"));
    // A host has no rule that could be edited.
    assert!(!footer(&prompt, &tree).contains("e edit the rule"));
    assert_eq!(press(&mut prompt, "e", &tree), PromptAction::Nothing);
    assert!(footer(&prompt, &tree).contains("A host can only be allowed as shown"));
    assert_eq!(hosts(press(&mut prompt, "y", &tree)), ["a.example:443"]);
    assert!(look(&mut prompt, &tree).unwrap().join("\n").contains("b.example:443"));
    let PromptAction::Answers(given) = press(&mut prompt, "a", &tree) else { panic!("not an answer") };
    assert_eq!(given[0].answer, Answer::Always("b.example:443".to_owned()));
    assert_eq!(look(&mut prompt, &tree), None);
}

#[test]
fn capital_n_denies_all_and_escape_leaves() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0), (&one, 1), (&one, 2)]);
    let mut prompt = new_prompt();
    look(&mut prompt, &tree);
    assert_eq!(prompt.key(Key::Escape, &tree), PromptAction::Leave);
    assert_eq!(indexes(press(&mut prompt, "N", &tree)), [0, 1, 2]);
}

#[test]
fn unavailable_key_answers_nothing_and_shows_a_hint() {
    let one = SessionId::root(1);
    let mut record = asked(&one, 0, 1);
    if let Event::Asked { always, .. } = &mut record.event {
        *always = None;
    }
    let tree = Tree::fold(&[record]);
    let mut prompt = new_prompt();
    look(&mut prompt, &tree);
    assert!(!footer(&prompt, &tree).contains("always"));
    assert_eq!(press(&mut prompt, "a", &tree), PromptAction::Nothing);
    assert!(footer(&prompt, &tree).contains("Press y to allow it once"));
    assert_eq!(press(&mut prompt, "x", &tree), PromptAction::Nothing);
    assert!(footer(&prompt, &tree).contains("'x' is not an answer"));
    prompt.paste("y");
    assert!(prompt.is_open());
    assert!(footer(&prompt, &tree).contains("Pasted text"));
    assert_eq!(indexes(press(&mut prompt, "n", &tree)), [0]);
}

#[test]
fn reason_field_can_be_cancelled() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut prompt = new_prompt();
    look(&mut prompt, &tree);
    press(&mut prompt, "r", &tree);
    press(&mut prompt, "y", &tree);
    assert!(footer(&prompt, &tree).contains("> y"), "the letter is a part of the reason");
    assert_eq!(prompt.key(Key::Escape, &tree), PromptAction::Nothing);
    press(&mut prompt, "r", &tree);
    prompt.paste("use\nmake");
    assert_eq!(prompt.key(Key::Interrupt, &tree), PromptAction::Nothing, "the reason is given up first");
    press(&mut prompt, "r", &tree);
    prompt.paste("use\nmake");
    let PromptAction::Answers(given) = prompt.key(Key::Enter, &tree) else { panic!("no answer") };
    assert_eq!(given[0].answer, Answer::Deny { word: Some("use make".to_owned()) });
}

#[test]
fn edited_rule_must_match_the_tool() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut prompt = new_prompt();
    look(&mut prompt, &tree);
    press(&mut prompt, "e", &tree);
    assert!(footer(&prompt, &tree).contains("> shell(make)"));
    prompt.key(Key::Edit(Edit::KillToStart), &tree);
    prompt.paste("read_file");
    assert_eq!(prompt.key(Key::Enter, &tree), PromptAction::Nothing);
    assert!(footer(&prompt, &tree).contains("`read_file` is not a rule for `shell`"));
    prompt.key(Key::Edit(Edit::KillToStart), &tree);
    prompt.paste("shell(make *)");
    let PromptAction::Answers(given) = prompt.key(Key::Enter, &tree) else { panic!("no answer") };
    assert_eq!(given[0].answer, Answer::Always("shell(make *)".to_owned()));
}

#[test]
fn keys_without_a_pause_answer_nothing() {
    let one = SessionId::root(1);
    let tree = tree(&[(&one, 0)]);
    let mut prompt = new_prompt();
    prompt.look(&tree, 80);
    // Each key comes sooner than a pause after the one before. All of them together take longer.
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(press(&mut prompt, "y", &tree), PromptAction::Nothing);
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(indexes(press(&mut prompt, "y", &tree)), [0]);
}
