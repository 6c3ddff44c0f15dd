//! The request is valid whatever the log looks like.

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
pub(crate) enum Edit {
    Drop,
    Duplicate,
    Swap(prop::sample::Index),
    Truncate,
    Behead,
}

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => Just(Edit::Drop),
        4 => Just(Edit::Duplicate),
        4 => any::<prop::sample::Index>().prop_map(Edit::Swap),
        1 => Just(Edit::Truncate),
        1 => Just(Edit::Behead),
    ]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn requests_are_valid_under_any_edit_of_the_log(
        numbers in chances(250),
        edits in vec((any::<prop::sample::Index>(), edit()), 1..12),
    ) {
        let (_, world) = run_a_tree(numbers);
        let mut records = world.records;
        for (at, edit) in edits {
            if records.is_empty() {
                break;
            }
            let at = at.index(records.len());
            match edit {
                Edit::Drop => drop(records.remove(at)),
                Edit::Duplicate => records.insert(at, records[at].clone()),
                Edit::Swap(with) => {
                    let with = with.index(records.len());
                    records.swap(at, with);
                }
                Edit::Truncate => records.truncate(at),
                Edit::Behead => drop(records.drain(..at)),
            }
        }
        // All facts of the tree in one log are one more hostile edit.
        let session = SessionId::root(1);
        let mut state = State::new(session.clone());
        for record in &records {
            let _ = state.admits(&record.event);
            state.apply(&record.event);
            let _ = (state.next(), state.upcoming(), state.fingerprint(), state.limit_due());
            assert_paired(&state.messages());
        }
        let own = records.iter().filter(|record| record.session == session).map(|record| &record.event);
        assert_paired(&State::fold(session.clone(), own).messages());
        let tree = Tree::fold(&records);
        for session in tree.nodes().keys() {
            prop_assert!(tree.walk(session).len() <= tree.nodes().len());
        }
    }
}

#[test]
fn a_session_that_delegates_to_itself_is_no_endless_tree() {
    let mut world = World::new(Vec::new());
    let session = SessionId::root(1);
    let event = Event::Delegated {
        call: CallId { turn: 1, index: 0 },
        child: session.clone(),
        delegation: Delegation::default().into(),
        agent: Hash::of(b""),
        grant: some_grant(&mut world),
    };
    let record = |seq, event| Record { session: session.clone(), seq, pos: seq, at: 0, v: VERSION, event };
    let deepest = Event::Started {
        delegation: Delegation::default().into(),
        agent: Hash::of(b""),
        grant: some_grant(&mut world),
        parent: None,
        depth: u32::MAX,
    };
    let tree = Tree::fold(&[record(0, event.clone()), record(1, deepest), record(2, event)]);
    assert_eq!(tree.walk(&session).len(), 1);
}
