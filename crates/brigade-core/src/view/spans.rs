//! Working time: the rounds of every session, without the pauses in which no process ran the tree.

use std::collections::HashMap;

use crate::event::{Event, Record};
use crate::id::SessionId;

/// Start and end, in UTC milliseconds.
type Span = (u64, u64);

/// Rounds of the sessions of a tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    rounds: HashMap<SessionId, Vec<RoundSpan>>,
    pauses: Vec<Span>,
}

#[derive(Debug, Clone)]
struct RoundSpan {
    from: u64,
    /// End, or the last known time.
    to: u64,
    is_over: bool,
}

impl Spans {
    /// Applies an event.
    pub(super) fn apply(&mut self, record: &Record) {
        let at = record.at;
        if let Event::Resumed { downtime, .. } = &record.event {
            self.pauses.push((at.saturating_sub(*downtime), at));
        }
        if let Event::Started { .. } = &record.event {
            let round = RoundSpan { from: at, to: at, is_over: false };
            self.rounds.entry(record.session.clone()).or_default().push(round);
        } else if let Some(round) = self.rounds.get_mut(&record.session).and_then(|rounds| rounds.last_mut())
            && !round.is_over
        {
            round.to = round.to.max(at);
            round.is_over = matches!(record.event, Event::Ended { .. });
        }
    }

    /// Returns the time in which at least one of these sessions was working, in milliseconds. An open round lasts
    /// until `now`, or until its last known time.
    pub(super) fn time<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
        now: Option<u64>,
    ) -> u64 {
        let rounds = sessions.into_iter().filter_map(|session| self.rounds.get(session)).flatten();
        let end = |round: &RoundSpan| match now {
            Some(now) if !round.is_over => round.to.max(now),
            Some(_) | None => round.to,
        };
        let busy = merged(rounds.map(|round| (round.from, end(round))).collect());
        let pauses = merged(self.pauses.clone());
        let all: u64 = busy.iter().map(|(from, to)| to - from).sum();
        let both = busy.iter().flat_map(|span| pauses.iter().map(|pause| overlap(*span, *pause)));
        all.saturating_sub(both.sum())
    }
}

fn overlap(one: Span, other: Span) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// Merges spans into disjoint ones, in order.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to.max(from))),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, CallId, Delegation, Grant, Hash, Limit, Outcome, Spent, Status};

    fn spans(events: &[(&SessionId, u64, Event)]) -> Spans {
        let mut spans = Spans::default();
        for (session, at, event) in events {
            let session = (*session).clone();
            spans.apply(&Record {
                session,
                seq: 0,
                pos: crate::Cursor::START,
                at: *at,
                v: 1,
                event: event.clone(),
            });
        }
        spans
    }

    fn started() -> Event {
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        Event::Started {
            delegation: Delegation::default().into(),
            agent: hash,
            grant,
            parent: None,
            depth: 0,
        }
    }

    fn ended() -> Event {
        Event::Ended { outcome: Outcome::new(Status::Done, ""), spent: Spent::default() }
    }

    #[test]
    fn time_between_rounds_does_not_count() {
        let root = SessionId::root(1);
        let cancel = Event::CancelAsked { by: "nobody".to_owned() };
        let events = [
            (&root, 0, started()),
            (&root, 10, ended()),
            (&root, 500, cancel),
            (&root, 1000, started()),
            (&root, 1005, ended()),
        ];
        assert_eq!(spans(&events).time([&root], None), 15);
    }

    #[test]
    fn downtime_inside_a_round_does_not_count() {
        let root = SessionId::root(1);
        let child = root.child(CallId { turn: 1, index: 0 });
        let events = [
            (&root, 0, started()),
            (&child, 10, started()),
            (&root, 1000, Event::Resumed { epoch: 2, downtime: 900, mode: None }),
            (&child, 1050, ended()),
            (&root, 1060, ended()),
        ];
        let spans = spans(&events);
        assert_eq!((spans.time([&child], None), spans.time([&root, &child], None)), (140, 160));
    }

    #[test]
    fn overlapping_rounds_count_once() {
        let root = SessionId::root(1);
        let children = [0, 1].map(|index| root.child(CallId { turn: 1, index }));
        let events = [
            (&children[0], 0, started()),
            (&children[1], 5, started()),
            (&children[0], 10, ended()),
            (&children[1], 20, ended()),
        ];
        assert_eq!(spans(&events).time(&children, None), 20);
    }

    #[test]
    fn open_round_lasts_until_now_or_its_last_event() {
        let (root, child) = (SessionId::root(1), SessionId::root(2));
        let cancel = Event::CancelAsked { by: "the user".to_owned() };
        let events = [(&root, 100, started()), (&root, 140, cancel), (&child, 100, started())];
        let spans = spans(&events);
        assert_eq!((spans.time([&root], None), spans.time([&root], Some(190))), (40, 90));
        // A clock that is behind the log does not shorten a round.
        assert_eq!((spans.time([&root], Some(120)), spans.time([&child], Some(90))), (40, 0));
        assert_eq!(spans.time([&SessionId::root(3)], Some(500)), 0);
    }

    #[test]
    fn ended_round_does_not_last_until_now() {
        let root = SessionId::root(1);
        let spans = spans(&[(&root, 10, started()), (&root, 30, ended())]);
        assert_eq!(spans.time([&root], Some(900)), 20);
    }

    #[test]
    fn separate_rounds_are_summed_and_pauses_outside_ignored() {
        let (root, other) = (SessionId::root(1), SessionId::root(2));
        let events = [
            (&root, 0, started()),
            (&root, 10, ended()),
            (&other, 300, Event::Resumed { epoch: 2, downtime: 200, mode: None }),
            (&other, 400, started()),
            (&other, 450, Event::Resumed { epoch: 3, downtime: 20, mode: None }),
            (&other, 460, Event::Resumed { epoch: 4, downtime: 20, mode: None }),
            (&other, 500, ended()),
        ];
        // Two overlapping pauses, from 430 to 460.
        assert_eq!(spans(&events).time([&root, &other], None), 10 + 100 - 30);
    }
}
