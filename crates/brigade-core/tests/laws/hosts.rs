//! Every question about a host has exactly one end.

use brigade_core::host_question::{HostQuestion, MAX_OPEN_HOST_QUESTIONS};
use brigade_core::state::CallState;

use super::*;

/// Questions of a log, by the simplest means.
#[derive(Default)]
pub(crate) struct ShadowQuestions {
    running: BTreeSet<CallId>,
    open: BTreeSet<(CallId, Target)>,
}

impl ShadowQuestions {
    pub(crate) fn enter(&mut self, event: &Event, is_cancelled: bool) {
        match event {
            Event::ToolStarted { call, .. } => {
                assert!(!self.has_open(*call), "{call} runs again with an open question");
                self.running.insert(*call);
            }
            Event::ToolEnded { call, .. } => {
                assert!(!self.has_open(*call), "{call} ended with an open question");
                self.running.remove(call);
            }
            Event::HostAsked { call, host, .. } => {
                assert!(self.running.contains(call) && !is_cancelled, "{call} does not run");
                assert!(self.open.insert((*call, host.clone())), "{call} asks twice for {host}");
                let open = self.open.iter().filter(|(other, _)| other == call).count();
                assert!(open <= MAX_OPEN_HOST_QUESTIONS);
            }
            Event::HostAnswered { call, host, .. } => {
                assert!(self.open.remove(&(*call, host.clone())), "{call} has no open question about {host}");
            }
            Event::Ended { .. } => assert!(self.open.is_empty(), "an end with open questions"),
            _ => {}
        }
    }

    fn has_open(&self, call: CallId) -> bool {
        self.open.iter().any(|(other, _)| *other == call)
    }
}

/// One of a few hosts, so that answers meet questions.
fn random_host(choices: &mut RandomChoices) -> Target {
    format!("h{}.example:443", choices.below(3)).parse().unwrap()
}

pub(crate) fn random_host_asked(call: CallId, choices: &mut RandomChoices) -> Event {
    let (what, why, default) = ("?".into(), String::new(), Answer::Deny { word: None });
    Event::HostAsked { call, host: random_host(choices), what, why, until: 1, default }
}

pub(crate) fn random_host_answered(call: CallId, choices: &mut RandomChoices) -> Event {
    let host = random_host(choices);
    let answer = match choices.below(3) {
        0 => Answer::Always(host.to_string()),
        1 => Answer::Once,
        _ => Answer::Deny { word: None },
    };
    Event::HostAnswered { call, host, answer, by: "me".to_owned() }
}

/// Next event of a running call; none if it ends. A call with an open question does not.
pub(crate) fn host_event(call: &CallState, choices: &mut RandomChoices) -> Option<Event> {
    let open = call.hosts.open().next();
    match (open, choices.below(4)) {
        (_, 1) => Some(random_host_asked(call.id, choices)),
        (_, 2) => Some(random_host_answered(call.id, choices)),
        (Some(_), _) => host_ends(call).pop(),
        (None, _) => None,
    }
}

/// Events that close the open questions of a call.
pub(crate) fn host_ends(call: &CallState) -> Vec<Event> {
    let end = |host: &Target| {
        let (host, by) = (host.clone(), "the end".to_owned());
        Event::HostAnswered { call: call.id, host, answer: Answer::Deny { word: None }, by }
    };
    call.hosts.open().map(end).collect()
}

/// Questions of all unanswered calls.
pub(crate) fn hosts_of(state: &State) -> Vec<Vec<HostQuestion>> {
    let calls = state.unanswered().into_iter().filter_map(|call| state.call(call));
    calls.map(|call| call.hosts.all().to_vec()).collect()
}

/// Session whose model called four tools, and what happens to them.
struct RunningCalls {
    state: State,
    log: Vec<Event>,
    shadow: ShadowQuestions,
    is_cancelled: bool,
}

impl RunningCalls {
    fn new() -> RunningCalls {
        let grant = Grant {
            authority: Hash::of(b"authority"),
            budget: Budget::UNLIMITED,
            turns: 9,
            deadline: Limit::Unlimited,
        };
        let (delegation, agent, parent) = (Delegation::default().into(), Hash::of(b"agent"), None);
        let (reserved, request, purpose) = (Resources::default(), Hash::of(b""), Purpose::Turn);
        let call = ToolCall { name: "shell".to_owned(), arguments: "{}".into(), provider_id: None };
        let reply = Reply { calls: vec![call; 4], ..Reply::default() };
        let mut session = RunningCalls {
            state: State::new(SessionId::root(1)),
            log: Vec::new(),
            shadow: ShadowQuestions::default(),
            is_cancelled: false,
        };
        session.offer(Event::Started { delegation, agent, grant, parent, depth: 0 });
        session.offer(Event::Called { turn: 1, attempt: 1, purpose, reserved, input: 0, request });
        session.offer(Event::Replied { turn: 1, reply, spent: Spent::default(), waited_ms: 0 });
        session
    }

    /// Appends an event, if it is admitted.
    fn offer(&mut self, event: Event) {
        if self.state.admits(&event) {
            self.state.apply(&event);
            self.shadow.enter(&event, self.is_cancelled);
            self.is_cancelled |= matches!(event, Event::CancelAsked { .. });
            self.log.push(event);
        }
        let open: usize = self.state.unanswered().iter().map(|call| self.open_questions(*call)).sum();
        assert_eq!(open, self.shadow.open.len());
    }

    fn open_questions(&self, call: CallId) -> usize {
        self.state.call(call).map_or(0, |call| call.hosts.open().count())
    }

    fn run(&mut self, mut choices: RandomChoices) {
        while choices.has_more() {
            let call = CallId { turn: 1, index: choices.below(4) as u32 };
            let event = match choices.below(20) {
                0..=3 => Event::tool_started(call, Effect::Pure),
                4 => Event::tool_ended(call, ToolOutput::ok("")),
                5..=11 => random_host_asked(call, &mut choices),
                12..=18 => random_host_answered(call, &mut choices),
                _ if choices.below(8) == 0 => Event::CancelAsked { by: "me".to_owned() },
                _ => {
                    let folded = State::fold(self.state.session().clone(), &self.log);
                    assert_eq!(observable_state(&folded), observable_state(&self.state));
                    continue;
                }
            };
            // An answer from another process is in the log, whether it counts or not.
            if matches!(event, Event::HostAnswered { .. }) && !self.state.admits(&event) {
                let before = hosts_of(&self.state);
                self.state.apply(&event);
                self.log.push(event);
                assert_eq!(hosts_of(&self.state), before, "a late answer changes nothing");
                continue;
            }
            self.offer(event);
        }
        for event in self.state.abandon("lost", &BTreeMap::new()) {
            assert!(self.state.admits(&event), "{event:?}");
            self.offer(event);
        }
        assert!(!self.state.is_running() && self.shadow.open.is_empty());
    }
}

proptest! {
    #![proptest_config(cases(500))]

    /// The law is asserted in [`ShadowQuestions::enter`].
    #[test]
    fn every_question_about_a_host_has_one_end(numbers in random_numbers(200)) {
        RunningCalls::new().run(RandomChoices { numbers, at: 0 });
    }
}

#[test]
fn random_calls_ask_and_ask_again() {
    let (mut asked, mut allowed, mut again) = (0, 0, 0);
    let mut number = 7u32;
    for _ in 0..100 {
        let mut numbers = Vec::new();
        for _ in 0..200 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            numbers.push(number >> 8);
        }
        let mut session = RunningCalls::new();
        session.run(RandomChoices { numbers, at: 0 });
        let mut questions = BTreeSet::new();
        for event in &session.log {
            if let Event::HostAsked { call, host, .. } = event {
                asked += 1;
                again += u32::from(!questions.insert((*call, host)));
            }
        }
        allowed += u32::from(session.state.has_allowed_hosts());
    }
    // The law would be vacuous if nothing was asked.
    assert!(asked > 300 && allowed > 30 && again > 10, "{asked} questions, {allowed} rules, {again} again");
}
