//! Answers of a state about its round, its calls and the next request.

use super::*;

fn model(fixed_bytes: u64, window: Option<u64>) -> CostModel {
    CostModel { price: Price::default(), fixed_bytes, max_output: 100, window }
}

fn reporting(turns: u32) -> Event {
    let mut event = started(turns, LARGE_BUDGET);
    if let Event::Started { delegation, .. } = &mut event {
        *delegation = Delegation { report: Some("Summarise.".into()), ..task("Do it") }.into();
    }
    event
}

fn single() -> Event {
    let mut event = started(9, LARGE_BUDGET);
    if let Event::Started { delegation, .. } = &mut event {
        *delegation = Delegation { single: true, ..task("Do it") }.into();
    }
    event
}

fn replied_with(turn: u32, reply: Reply, input: u64) -> Event {
    let usage = Usage { input, ..Usage::default() };
    Event::Replied { turn, reply, spent: Spent { usage, ..Spent::default() }, waited_ms: 0 }
}

fn note(text: &str) -> Event {
    Event::Heard { from: Speaker::Runtime, text: text.into() }
}

#[test]
fn phase_of_a_round_follows_its_events() {
    let mut scenario = Scenario::new();
    let state = |scenario: &Scenario| {
        let state = &scenario.state;
        (state.is_running(), state.has_called_model(), state.ended().is_some(), state.rounds())
    };
    assert_eq!(state(&scenario), (false, false, false, 0));
    scenario.then(started(9, LARGE_BUDGET));
    assert_eq!(state(&scenario), (true, false, false, 1));
    scenario.then(called(1, 1, Purpose::Turn));
    assert_eq!(state(&scenario), (true, true, false, 1));
    scenario.then(replied(1, "Answer.", &[])).ends();
    assert_eq!(state(&scenario), (false, true, true, 1));
    assert_eq!(scenario.state.length(), 4);
}

#[test]
fn reasons_for_a_stop_are_named() {
    let reasons = |scenario: &Scenario| {
        let state = &scenario.state;
        let cancelled = state.cancelled().map(str::to_owned);
        (state.stop_reason(), state.stop_initiator(), cancelled)
    };
    let text = |text: &str| Some(text.to_owned());
    let mut scenario = worked_once();
    assert_eq!(reasons(&scenario), (None, None, None));
    scenario.then(limit_reached(LimitKind::Time));
    let limit = text("the parent, whose time limit was reached");
    assert_eq!(reasons(&scenario), (text("the time limit was reached"), limit, None));
    scenario.then(cancel());
    let by = text("the user");
    assert_eq!(reasons(&scenario), (text("cancelled by the user"), by.clone(), by));
}

#[test]
fn reminders_count_notes_after_an_answer() {
    let mut scenario = worked_once();
    scenario.then(note("Not yet."));
    assert_eq!(scenario.state.reminders(), 0);
    for (turn, count) in [(2, 1), (3, 2)] {
        scenario.then(called(turn, 1, Purpose::Turn)).then(replied(turn, "Answer.", &[]));
        scenario.then(note("The result does not match."));
        assert_eq!(scenario.state.reminders(), count);
    }
}

#[test]
fn last_stop_is_that_of_the_last_reply() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    assert_eq!(scenario.state.last_stop(), None);
    scenario.then(replied_with(1, Reply { stop: Stop::Length, ..reply("Cut", &[]) }, 10));
    assert_eq!(scenario.state.last_stop(), Some(Stop::Length));
}

#[test]
fn forgotten_permissions_are_not_allowed_any_more() {
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["shell", "shell"]),
    ]);
    let (what, why, default) = ("shell {}".into(), String::new(), Answer::Deny { word: None });
    let asked = Event::Asked { call: call(1, 0), what, why, always: None, until: 0, default };
    let always = |index: u32, rule: &str| {
        let answer = Answer::Always(rule.to_owned());
        Event::Answered { call: call(1, index), answer, by: "the user".to_owned() }
    };
    // An answer without a request changes nothing.
    scenario.state.apply(&always(1, "shell(ls)"));
    assert!(scenario.state.always_allowed().is_empty());
    scenario.then(asked).then(always(0, "shell(git status)"));
    assert_eq!(scenario.state.always_allowed(), ["shell(git status)".parse().unwrap()]);
    assert!(scenario.state.call(call(1, 0)).unwrap().is_permitted);
    scenario.state.forget_permissions();
    assert!(scenario.state.always_allowed().is_empty());
}

#[test]
fn tool_call_is_found_only_in_the_last_reply() {
    let mut scenario = worked_once();
    let name = |scenario: &Scenario, id| scenario.state.tool_call(id).map(|call| call.name.clone());
    assert_eq!(name(&scenario, call(1, 0)).as_deref(), Some("read"));
    assert_eq!((name(&scenario, call(1, 1)), name(&scenario, call(2, 0))), (None, None));
    scenario.then(called(2, 1, Purpose::Turn)).then(replied(2, "", &["grep", "shell"]));
    assert_eq!(name(&scenario, call(1, 0)), None);
    assert_eq!(name(&scenario, call(2, 1)).as_deref(), Some("shell"));
}

#[test]
fn request_exceeds_the_window_if_even_the_lower_bound_does() {
    // 595 fixed bytes and five of the task are at least 100 tokens.
    let state = Scenario::of([started(9, LARGE_BUDGET)]).state;
    assert_eq!(state.exceeds_window(&model(595, Some(100))), None);
    assert_eq!(state.exceeds_window(&model(595, Some(99))), Some(100));
    assert_eq!(state.exceeds_window(&model(595, None)), None);
}

/// Two turns with calls: an older text of this size, and a recent one of 300 bytes. The model counts 900 tokens.
fn long_conversation(older: usize) -> Scenario {
    conversation(older, 900)
}

fn conversation(older: usize, counted: u64) -> Scenario {
    Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied_with(1, reply(&"a".repeat(older), &["x"]), 100),
        tool_ended(1, 0, ""),
        called(2, 1, Purpose::Turn),
        replied_with(2, reply(&"b".repeat(300), &["x"]), counted),
        tool_ended(2, 0, ""),
    ])
}

#[test]
fn conversation_is_compacted_if_a_summary_replaces_a_quarter_of_it() {
    let window = Some(1000);
    assert!(long_conversation(2000).state.should_compact(&model(0, window)));
    assert!(!long_conversation(500).state.should_compact(&model(0, window)));
    assert!(!long_conversation(2000).state.should_compact(&model(0, None)));
    assert!(!long_conversation(2000).state.should_compact(&model(0, Some(5000))));
    let mut stopped = long_conversation(2000);
    stopped.then(limit_reached(LimitKind::Time));
    assert!(!stopped.state.should_compact(&model(0, window)));
}

#[test]
fn conversation_is_compacted_when_it_leaves_no_room_for_a_reply() {
    // A quarter of the window is kept free for replies: 750 tokens, and nine tenths of them are 675.
    let model = CostModel { max_output: 5000, ..model(0, Some(1000)) };
    assert!(conversation(2000, 650).state.should_compact(&model));
    assert!(!conversation(2000, 550).state.should_compact(&model));
}

#[test]
fn compaction_needs_a_turn_that_need_not_stay() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    assert!(!scenario.state.can_compact());
    scenario.then(called(1, 1, Purpose::Turn)).then(replied(1, "Answer.", &[]));
    assert!(!scenario.state.can_compact(), "the only turn is the answer");
    assert!(worked_once().state.can_compact());
    scenario.then(heard("More?")).then(called(2, 1, Purpose::Turn)).then(replied(2, "Answer.", &[]));
    assert!(scenario.state.can_compact());
}

#[test]
fn compaction_input_without_a_known_window_has_half_the_estimated_tokens() {
    let mut scenario = Scenario::of([started(20, LARGE_BUDGET)]);
    for turn in 1..=9 {
        scenario.then(called(turn, 1, Purpose::Turn));
        scenario.then(replied_with(turn, reply(&"a".repeat(1000), &["x"]), 0));
        scenario.then(tool_ended(turn, 0, ""));
    }
    // About 9,000 bytes are 4,500 tokens, and half of that are the bytes of the input.
    let size = scenario.state.compaction_input(&model(0, None)).text.len();
    assert!((1_500..3_500).contains(&size), "{size}");
    let size = scenario.state.compaction_input(&model(0, Some(10_000))).text.len();
    assert!(size > 6_000, "{size}");
}

#[test]
fn requested_compaction_summarises_all_but_the_last_turn() {
    let window = model(0, Some(4000));
    let mut scenario = long_conversation(2000);
    assert_eq!(scenario.state.compaction_input(&window).keep_from, 2);
    let short = long_conversation(600);
    assert_eq!(short.state.compaction_input(&window).keep_from, 1);
    assert_eq!(short.state.compaction_input_on_request(&window).keep_from, 2);
    let whole = scenario.state.compaction_input_on_request(&model(0, None)).text;
    assert!(whole.contains(&"a".repeat(2000)));
    // After an overflow it is the same as an automatic one.
    let overflow = CallFault::Overflow { message: "too long".to_owned() };
    scenario.then(called(3, 1, Purpose::Turn)).then(failed(3, 1, overflow));
    let input = scenario.state.compaction_input_on_request(&window);
    assert_eq!(input, scenario.state.compaction_input(&window));
    assert_eq!(input.keep_from, 3);
}

#[test]
fn estimate_continues_from_what_the_model_has_counted() {
    let called = |turn, input| Event::Called {
        turn,
        attempt: 1,
        purpose: Purpose::Turn,
        reserved: tokens(input + 100),
        input,
        request: Hash::of(b"request"),
    };
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1000),
        replied_with(1, reply("Answer.", &[]), 1000),
        heard("More"),
        called(2, 1100),
    ]);
    scenario.then(replied_with(2, reply("More.", &[]), 1500));
    // 1,001 tokens were counted before, 99 were estimated and 499 reported: 400 are unexplained.
    let worst = scenario.state.worst_case(&model(0, None), Purpose::Turn).unwrap();
    assert_eq!(worst.input, 1501 + 400);
}

#[test]
fn single_generation_has_one_reply_whatever_it_calls() {
    let mut scenario = Scenario::of([single(), called(1, 1, Purpose::Turn)]);
    scenario.then(replied(1, "Answer.", &["shell"])).next(done("Answer."));
    assert_eq!(scenario.state.unanswered(), []);
    scenario.then(heard("More?")).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn report_is_requested_once_and_its_prompt_is_not_repeated() {
    let mut scenario = Scenario::of([reporting(1), called(1, 1, Purpose::Turn)]);
    scenario.refuses(called(2, 1, Purpose::Summary));
    scenario.then(replied(1, "Answer.", &[])).next(Step::CallModel(Purpose::Summary));
    scenario.then(called(2, 1, Purpose::Summary)).then(failed(2, 1, transient()));
    scenario.next(Step::CallModel(Purpose::Summary)).then(called(2, 2, Purpose::Summary));
    let prompt = Message::User("Summarise.".into());
    let prompts = scenario.state.messages().into_iter().filter(|message| *message == prompt).count();
    assert_eq!(prompts, 1);
    scenario.then(replied(2, "Report.", &[])).next(done("Report."));
}

#[test]
fn model_calls_are_admitted_only_for_their_purpose() {
    // No limit was reached: neither a wrap-up call, nor a summary of what must stay.
    let mut scenario = worked_once();
    scenario.refuses(called(2, 1, Purpose::Grace)).refuses(called(2, 1, Purpose::Summary));
    let mut fresh = Scenario::of([started(9, LARGE_BUDGET)]);
    fresh.refuses(called(1, 1, Purpose::Compaction)).refuses(called(1, 1, Purpose::Grace));
    fresh.then(limit_reached(LimitKind::Time)).refuses(called(1, 1, Purpose::Grace));
    let mut stopped = worked(LimitKind::Time);
    stopped.refuses(called(2, 1, Purpose::Turn)).refuses(called(2, 1, Purpose::Compaction));
    stopped.then(called(2, 1, Purpose::Grace));
    let mut answered = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    answered.then(replied(1, "Answer.", &[])).refuses(called(2, 1, Purpose::Turn));
}

#[test]
fn message_to_the_user_belongs_to_an_open_call() {
    let said = || Event::Said { call: call(1, 0), text: "Hello".into() };
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
    scenario.refuses(said()).then(replied(1, "", &["message"])).then(said());
    scenario.then(tool_ended(1, 0, "sent")).refuses(said());
}

#[test]
fn denied_permission_ends_a_round_as_incomplete() {
    let limit = |limit| ended(Status::Incomplete { limit }, "Answer.");
    let answered = |stop| {
        let reply = Reply { stop, ..reply("Answer.", &[]) };
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied_with(1, reply, 10)])
    };
    let mut denied = answered(Stop::Denied);
    denied.refuses(ended(Status::Done, "Answer.")).refuses(limit(LimitKind::Time));
    denied.next(incomplete(LimitKind::Permission, "Answer.")).then(limit(LimitKind::Permission));
    answered(Stop::End).refuses(limit(LimitKind::Permission)).then(ended(Status::Done, "Answer."));
    let mut continued = answered(Stop::Denied);
    continued.then(heard("Try again.")).refuses(limit(LimitKind::Permission));
}

#[test]
fn first_turn_has_the_first_attempt() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.state.next_attempt(), (1, 1));
    scenario.then(started(9, LARGE_BUDGET)).then(called(1, 1, Purpose::Turn));
    assert_eq!(scenario.state.next_attempt(), (1, 2));
    scenario.then(failed(1, 1, transient()));
    assert_eq!((scenario.state.next_attempt(), scenario.state.faults()), ((1, 2), 1));
    scenario.then(called(1, 2, Purpose::Turn)).then(replied(1, "", &["x"]));
    assert_eq!(scenario.state.next_attempt(), (2, 1));
}

#[test]
fn estimated_usage_and_summaries_do_not_change_the_estimates() {
    let called = |turn, purpose| Event::Called {
        turn,
        attempt: 1,
        purpose,
        reserved: tokens(1100),
        input: 1000,
        request: Hash::of(b"request"),
    };
    let replied = |turn, estimated| {
        let usage = Usage { input: 5000, ..Usage::default() };
        let spent = Spent { usage, estimated, ..Spent::default() };
        Event::Replied { turn, reply: reply("", &["x"]), spent, waited_ms: 0 }
    };
    let estimate = |events: Vec<Event>| {
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
        for event in events {
            scenario.then(event);
        }
        scenario.state.estimator
    };
    let turn = |estimated| vec![called(1, Purpose::Turn), replied(1, estimated)];
    assert_ne!(estimate(turn(0)), TokenEstimator::default());
    assert_eq!(estimate(turn(1)), TokenEstimator::default());
    let mut summary = turn(1);
    summary.extend([tool_ended(1, 0, ""), called(2, Purpose::Compaction), replied(2, 0)]);
    assert_eq!(estimate(summary), TokenEstimator::default());
}

#[test]
fn report_is_due_when_the_task_is_answered_or_a_limit_is_reached() {
    let mut scenario = Scenario::of([reporting(9), called(1, 1, Purpose::Turn)]);
    scenario.then(replied(1, "", &["x"])).then(tool_ended(1, 0, "")).next(Step::CallModel(Purpose::Turn));
    scenario.refuses(called(2, 1, Purpose::Summary)).then(limit_reached(LimitKind::Time));
    scenario.next(Step::CallModel(Purpose::Summary)).then(called(2, 1, Purpose::Summary));
    scenario.then(replied(2, "Report.", &[])).next(incomplete(LimitKind::Time, "Report."));
}

#[test]
fn report_that_failed_is_requested_again_after_a_limit() {
    let mut scenario = Scenario::of([reporting(9), called(1, 1, Purpose::Turn), replied(1, "Answer.", &[])]);
    scenario.then(called(2, 1, Purpose::Summary)).then(limit_reached(LimitKind::Time));
    scenario.then(failed(2, 1, transient())).next(Step::CallModel(Purpose::Summary));
    scenario.then(called(2, 2, Purpose::Summary));
}

#[test]
fn new_input_after_a_report_is_reported_again() {
    let mut scenario = Scenario::of([reporting(9), called(1, 1, Purpose::Turn), replied(1, "Answer.", &[])]);
    scenario.then(called(2, 1, Purpose::Summary)).then(replied(2, "Report.", &[]));
    scenario.then(heard("More?")).next(Step::CallModel(Purpose::Turn));
    scenario.then(called(3, 1, Purpose::Turn)).then(replied(3, "More.", &[]));
    scenario.next(Step::CallModel(Purpose::Summary));
}

#[test]
fn wrap_up_call_needs_work_to_report() {
    let call = |input: u64| {
        let (reserved, request) = (tokens(input + 100), Hash::of(b"request"));
        Event::Called { turn: 1, attempt: 1, purpose: Purpose::Turn, reserved, input, request }
    };
    let limited = |events: Vec<Event>| {
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET)].into_iter().chain(events));
        scenario.then(limit_reached(LimitKind::Time));
        scenario
    };
    // Only an external agent, for which nothing is estimated, works before its reply.
    limited(vec![call(1000), failed(1, 1, transient())]).next(incomplete(LimitKind::Time, ""));
    limited(vec![call(0), failed(1, 1, transient())]).next(Step::CallModel(Purpose::Grace));
    let worked = vec![call(1000), replied(1, "", &["x"]), tool_ended(1, 0, "")];
    limited(worked).next(Step::CallModel(Purpose::Grace));
}

#[test]
fn reply_without_calls_ends_a_series_of_repeats() {
    let mut scenario = Scenario::of([started(9, LARGE_BUDGET)]);
    for turn in 1..=2 {
        scenario.then(called(turn, 1, Purpose::Turn)).then(replied(turn, "", &["x"]));
        scenario.then(tool_ended(turn, 0, "same"));
        assert_eq!(scenario.state.repeats(), turn);
    }
    scenario.then(called(3, 1, Purpose::Turn)).then(replied(3, "Answer.", &[]));
    assert_eq!(scenario.state.repeats(), 0);
}

#[test]
fn single_generation_that_failed_is_not_answered() {
    let mut scenario = Scenario::of([single(), called(1, 1, Purpose::Turn)]);
    scenario.then(failed(1, 1, transient())).next(Step::CallModel(Purpose::Turn));
}

#[test]
fn next_round_counts_tokens_anew_after_a_fallback() {
    let given_up = CallFault::GivenUp { message: "gone".to_owned(), next: "other".to_owned() };
    let input = |fault: Option<CallFault>| {
        let mut scenario = Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn)]);
        let mut attempt = 1;
        if let Some(fault) = fault {
            scenario.then(failed(1, 1, fault)).then(called(1, 2, Purpose::Turn));
            attempt += 1;
        }
        assert_eq!(scenario.state.open_call().unwrap().attempt, attempt);
        scenario.then(replied_with(1, reply("Answer.", &[]), 5000)).ends();
        scenario.then(started(9, LARGE_BUDGET));
        scenario.state.worst_case(&model(0, None), Purpose::Turn).unwrap().input
    };
    assert_eq!(input(None), 5001 + 3, "the task of the next round has five bytes");
    assert_eq!(input(Some(given_up)), 9, "both tasks and the answer have 17 bytes");
}

#[test]
fn unstarted_calls_are_those_that_wait_or_were_decided() {
    let tools = ["shell"; 5];
    let mut scenario =
        Scenario::of([started(9, LARGE_BUDGET), called(1, 1, Purpose::Turn), replied(1, "", &tools)]);
    for index in [1, 2] {
        let (what, why, default) = ("shell {}".into(), String::new(), Answer::Deny { word: None });
        scenario.then(Event::Asked { call: call(1, index), what, why, always: None, until: 0, default });
    }
    let (answer, by) = (Answer::Once, "the user".to_owned());
    scenario.then(Event::Answered { call: call(1, 2), answer, by });
    scenario.then(tool_started(1, 3)).then(tool_ended(1, 4, "done"));
    let unstarted: Vec<CallId> = scenario.state.unstarted_calls().collect();
    assert_eq!(unstarted, [call(1, 0), call(1, 1), call(1, 2)]);
}

#[test]
fn answer_counts_only_for_an_open_request_of_a_running_round() {
    use crate::approval::AnswerError;
    let mut scenario = Scenario::of([
        started(9, LARGE_BUDGET),
        called(1, 1, Purpose::Turn),
        replied(1, "", &["shell", "shell"]),
    ]);
    let check = |scenario: &Scenario, index, answer| scenario.state.check_answer(call(1, index), &answer);
    assert_eq!(check(&scenario, 0, Answer::Once), Err(AnswerError::NotOpen));
    let (what, why, default) = ("shell {}".into(), String::new(), Answer::Deny { word: None });
    scenario.then(Event::Asked { call: call(1, 0), what, why, always: None, until: 0, default });
    assert_eq!(check(&scenario, 0, Answer::Once), Ok(()));
    assert_eq!(check(&scenario, 0, Answer::Deny { word: None }), Ok(()));
    assert_eq!(check(&scenario, 0, Answer::Always("shell(ls)".to_owned())), Ok(()));
    let other = check(&scenario, 0, Answer::Always("write_file(a)".to_owned()));
    assert!(matches!(other, Err(AnswerError::OtherTool { .. })), "{other:?}");
    assert_eq!(check(&scenario, 1, Answer::Once), Err(AnswerError::NotOpen));
    // The request of an ended round is not open.
    let ended = Event::Ended {
        outcome: Outcome::new(Status::Lost { cause: String::new() }, ""),
        spent: Spent::default(),
    };
    scenario.state.apply(&ended);
    assert_eq!(check(&scenario, 0, Answer::Once), Err(AnswerError::NotOpen));
}
