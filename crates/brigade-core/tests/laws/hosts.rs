//! Every question about a host has exactly one end.

use brigade_core::host_question::{HostQuestion, MAX_OPEN_HOST_QUESTIONS};
use brigade_core::state::CallState;

use super::*;

/// Questions of a log, by the simplest means.
#[derive(Default)]
pub(crate) struct ShadowQuestions {
    running: BTreeSet<CallId>,
    open: BTreeSet<(CallId, HostPort)>,
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
fn random_host(choices: &mut RandomChoices) -> HostPort {
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
    let end = |host: &HostPort| {
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

#[test]
fn random_runs_ask_and_answer() {
    let (mut asked, mut allowed, mut again) = (0, 0, 0);
    let mut number = 7u32;
    for _ in 0..1500 {
        let mut numbers = Vec::new();
        for _ in 0..300 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            numbers.push(number >> 8);
        }
        let (_, sim) = run_random_tree(numbers);
        let mut questions = BTreeSet::new();
        for record in &sim.records {
            match &record.event {
                Event::HostAsked { call, host, .. } => {
                    asked += 1;
                    again += u32::from(!questions.insert((&record.session, *call, host)));
                }
                Event::HostAnswered { answer: Answer::Always(_), .. } => allowed += 1,
                _ => {}
            }
        }
        let ends = sim.records.iter().filter(|record| matches!(record.event, Event::HostAnswered { .. }));
        let asks = sim.records.iter().filter(|record| matches!(record.event, Event::HostAsked { .. }));
        assert_eq!(ends.count(), asks.count(), "every question has one end");
    }
    // The laws would be vacuous if the random runs never asked.
    assert!(asked > 100 && allowed > 10 && again > 0, "{asked} questions, {allowed} rules, {again} again");
}
