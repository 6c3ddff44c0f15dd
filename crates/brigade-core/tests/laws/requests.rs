//! The request is valid for any log.

use super::*;

pub(crate) fn assert_paired(messages: &[Message]) {
    let mut due: Option<&Reply> = None;
    for message in messages {
        match (message, due.take()) {
            (Message::Results(results), Some(reply)) => {
                let expected: Vec<(u32, &str)> =
                    (0..).zip(&reply.calls).map(|(index, call)| (index, call.name.as_str())).collect();
                let found: Vec<(u32, &str)> =
                    results.iter().map(|result| (result.call.index, result.name.as_str())).collect();
                assert_eq!(found, expected);
            }
            (Message::Assistant(reply), None) if !reply.calls.is_empty() => due = Some(reply),
            (Message::Assistant(_) | Message::User(_), None) => {}
            (message, due) => panic!("{message:?} stands where {due:?} is due"),
        }
    }
    assert!(due.is_none(), "{due:?} has no results");
}

#[derive(Debug, Clone)]
pub(crate) enum LogEdit {
    Drop,
    Duplicate,
    Swap(prop::sample::Index),
    Truncate,
    DropHead,
}

pub(crate) fn edit() -> impl Strategy<Value = LogEdit> {
    prop_oneof![
        4 => Just(LogEdit::Drop),
        4 => Just(LogEdit::Duplicate),
        4 => any::<prop::sample::Index>().prop_map(LogEdit::Swap),
        1 => Just(LogEdit::Truncate),
        1 => Just(LogEdit::DropHead),
    ]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn requests_are_valid_under_any_edit_of_the_log(
        numbers in random_numbers(250),
        edits in vec((any::<prop::sample::Index>(), edit()), 1..12),
    ) {
        let (_, sim) = run_random_tree(numbers);
        let mut records = sim.records;
        for (at, edit) in edits {
            if records.is_empty() {
                break;
            }
            let at = at.index(records.len());
            match edit {
                LogEdit::Drop => drop(records.remove(at)),
                LogEdit::Duplicate => records.insert(at, records[at].clone()),
                LogEdit::Swap(with) => {
                    let with = with.index(records.len());
                    records.swap(at, with);
                }
                LogEdit::Truncate => records.truncate(at),
                LogEdit::DropHead => drop(records.drain(..at)),
            }
        }
        // All events of the tree in one log are one more hostile input.
        let session = SessionId::root(1);
        let mut state = State::new(session.clone());
        for record in &records {
            let _ = state.admits(&record.event);
            state.apply(&record.event);
            let _ = (state.next(), state.next_attempt(), state.fingerprint(), state.exceeded_limit());
            assert_paired(&state.messages());
        }
        let own_events = records.iter().filter(|record| record.session == session).map(|record| &record.event);
        assert_paired(&State::fold(session.clone(), own_events).messages());
        let tree = Tree::fold(&records);
        for session in tree.nodes().keys() {
            prop_assert!(tree.walk(session).len() <= tree.nodes().len());
        }
    }
}

#[test]
fn session_that_delegates_to_itself_does_not_loop() {
    let mut sim = Simulation::new(Vec::new());
    let session = SessionId::root(1);
    let event = Event::Delegated {
        call: CallId { turn: 1, index: 0 },
        child: session.clone(),
        delegation: Delegation::default().into(),
        agent: Hash::of(b""),
        grant: random_grant(&mut sim),
    };
    let record = |seq, event| Record {
        session: session.clone(),
        seq,
        pos: Cursor::new(seq),
        at: 0,
        v: VERSION,
        event,
    };
    let deep_start = Event::Started {
        delegation: Delegation::default().into(),
        agent: Hash::of(b""),
        grant: random_grant(&mut sim),
        parent: None,
        depth: u32::MAX,
    };
    let tree = Tree::fold(&[record(0, event.clone()), record(1, deep_start), record(2, event)]);
    assert_eq!(tree.walk(&session).len(), 1);
}
