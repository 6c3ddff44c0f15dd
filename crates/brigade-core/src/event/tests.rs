use super::*;
use crate::message::ToolCall;

fn id() -> CallId {
    CallId { turn: 1, index: 0 }
}

fn host() -> Target {
    "a.example:443".parse().unwrap()
}

#[test]
fn events_of_the_user_are_external() {
    let by = || "the user".to_owned();
    let answered = Event::Answered { call: id(), answer: Answer::Once, by: by() };
    let heard = Event::Heard { from: Speaker::Person, text: "More".into() };
    let host_answered = Event::HostAnswered { call: id(), host: host(), answer: Answer::Once, by: by() };
    for event in [answered, host_answered, heard, Event::CancelAsked { by: by() }] {
        assert!(event.is_external(), "{}", event.kind());
    }
    let ended = Event::tool_ended(id(), ToolOutput::ok(""));
    let started = Event::tool_started(id(), Effect::Pure);
    for event in [ended, started, Event::limit_reached(LimitKind::Time)] {
        assert!(!event.is_external(), "{}", event.kind());
    }
}

#[test]
fn every_text_of_an_event_is_visited() {
    let visited = |mut event: Event| {
        let mut texts = Vec::new();
        event.texts_mut(&mut |text| {
            texts.push(text.to_string());
            *text = "changed".into();
        });
        let mut again = Vec::new();
        event.texts_mut(&mut |text| again.push(text.to_string()));
        assert!(again.iter().all(|text| text == "changed") && again.len() == texts.len());
        texts
    };
    let call = ToolCall { name: "x".to_owned(), arguments: "{}".into(), provider_id: None };
    let reply =
        Reply { text: "Hello".into(), calls: vec![call], opaque: vec!["opaque".into()], ..Reply::default() };
    let replied = Event::Replied { turn: 1, reply, spent: Spent::default(), waited_ms: 0 };
    assert_eq!(visited(replied), ["Hello", "{}", "opaque"]);
    assert_eq!(visited(Event::tool_ended(id(), ToolOutput::ok("text"))), ["text"]);
    assert_eq!(visited(Event::Compacted { summary: "short".into(), keep_from: 1 }), ["short"]);
    let host_asked = Event::HostAsked {
        call: id(),
        host: host(),
        what: "shell {}".into(),
        why: String::new(),
        until: 0,
        default: Answer::Once,
    };
    assert_eq!(visited(host_asked), ["shell {}"]);
    let partial = Some("Hel".into());
    let failed = Event::CallFailed {
        turn: 1,
        attempt: 1,
        cause: CallFault::Stopped,
        spent: Spent::default(),
        partial,
        waited_ms: 0,
    };
    assert_eq!(visited(failed), ["Hel"]);
    assert_eq!(visited(Event::limit_reached(LimitKind::Time)), Vec::<String>::new());
}

#[test]
fn fault_is_shown_with_its_message() {
    let message = || "overloaded".to_owned();
    for (fault, shown) in [
        (CallFault::Transient { message: message() }, "overloaded"),
        (CallFault::Cut { message: message() }, "overloaded"),
        (
            CallFault::GivenUp { message: message(), next: "local/small".to_owned() },
            "overloaded; falling back to local/small",
        ),
        (CallFault::Interrupted, "Brigade exited while the model was answering"),
        (CallFault::Stopped, "stopped while the model was answering"),
        (CallFault::Unaffordable, "the budget does not cover another model call"),
    ] {
        assert_eq!(fault.to_string(), shown);
    }
}

#[test]
fn given_up_message_ends_before_the_fallback() {
    let given_up = |message: &str| {
        CallFault::GivenUp { message: message.to_owned(), next: "b/two".to_owned() }.to_string()
    };
    assert_eq!(given_up("it is gone. Check the name."), "it is gone. Check the name; falling back to b/two");
    assert_eq!(given_up("gone"), "gone; falling back to b/two");
}
