//! Ledgers balance: sessions that run at random, with nothing but admitted events.

use super::*;

/// Random choices. When they are used up, everything takes the simplest path.
pub(crate) struct RandomChoices {
    pub(crate) numbers: Vec<u32>,
    pub(crate) at: usize,
}

impl RandomChoices {
    pub(crate) fn has_more(&self) -> bool {
        self.at < self.numbers.len()
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        u64::from(number) % end.max(1)
    }

    fn limit(&mut self) -> Limit {
        match self.below(5) {
            0 => Limit::Unlimited,
            1 => Limit::AtMost(self.below(5)),
            2 => Limit::AtMost(self.below(60)),
            _ => Limit::AtMost(1000 + self.below(20_000)),
        }
    }

    pub(crate) fn budget(&mut self) -> Budget {
        Budget { tokens: self.limit(), usd: self.limit(), agents: self.limit() }
    }

    fn part_of(&mut self, amount: Resources) -> Resources {
        let mut part =
            |whole: u64| if self.below(3) == 0 { whole } else { self.below(whole.saturating_add(1)) };
        Resources { tokens: part(amount.tokens), usd: part(amount.usd), agents: 0 }
    }
}

/// Second implementation of the ledger, by the simplest means.
#[derive(Default)]
pub(crate) struct ShadowLedger {
    granted: Budget,
    spent: Resources,
    reserved: Resources,
    held_back: Resources,
    lent: BTreeMap<SessionId, Resources>,
    lent_to_tools: BTreeMap<CallId, Resources>,
    turns: BTreeSet<u32>,
    purpose: Option<Purpose>,
    wrap_up_replies: u32,
    max_turns: u32,
    is_running: bool,
    is_cancelled: bool,
    /// Usage above reserves, and of children above their loans.
    excess: Resources,
    open_calls: BTreeSet<CallId>,
    pub(crate) hosts: ShadowQuestions,
}

impl ShadowLedger {
    fn lent(&self) -> Resources {
        let loans = self.lent.values().chain(self.lent_to_tools.values());
        loans.fold(Resources::default(), |sum, loan| sum.plus(*loan))
    }

    fn used(&self) -> Resources {
        self.spent.plus(self.reserved).plus(self.held_back).plus(self.lent())
    }

    fn overrun(&self) -> Resources {
        self.granted.exceeded_by(self.used())
    }

    /// Charges usage in place of its reserve.
    fn book(&mut self, set_aside: Resources, spent: &Spent, itself: u64) {
        let used = spent.amount().plus(Resources { agents: itself, ..Resources::default() });
        self.excess = self.excess.plus(used.minus(set_aside));
        self.spent = self.spent.plus(used);
    }

    fn enter(&mut self, event: &Event) {
        self.hosts.enter(event, self.is_cancelled);
        match event {
            Event::Started { grant, .. } => {
                assert!(!self.is_running, "a round began inside a round");
                *self = ShadowLedger {
                    granted: grant.budget,
                    max_turns: grant.turns,
                    is_running: true,
                    ..ShadowLedger::default()
                };
            }
            Event::Called { turn, purpose, reserved, .. } => {
                assert!(self.is_running && !self.is_cancelled && self.open_calls.is_empty());
                assert_eq!(self.reserved, Resources::default(), "two calls at once");
                self.reserved = *reserved;
                self.held_back = Resources::default();
                self.purpose = Some(*purpose);
                if *purpose == Purpose::Turn {
                    self.turns.insert(*turn);
                }
            }
            Event::Replied { turn, reply, spent, .. } => {
                let before = self.overrun();
                let reserved = std::mem::take(&mut self.reserved);
                self.held_back = spent.held_back;
                self.book(reserved, spent, 0);
                assert_eq!(spent.overrun, self.overrun().minus(before), "what the grant does not cover");
                if self.purpose == Some(Purpose::Grace) {
                    self.wrap_up_replies += 1;
                } else if self.purpose == Some(Purpose::Compaction) {
                    // A turn that did not fit starts again, and its calls do not count.
                    self.turns.remove(turn);
                } else if self.overrun() == Resources::default() {
                    let calls = (0..).zip(&reply.calls).map(|(index, _)| CallId { turn: *turn, index });
                    self.open_calls = calls.collect();
                }
                assert!(self.wrap_up_replies <= 1, "more than one wrap-up reply");
            }
            Event::CallFailed { spent, .. } => {
                let reserved = std::mem::take(&mut self.reserved);
                self.held_back = spent.held_back;
                self.book(reserved, spent, 0);
            }
            Event::ToolStarted { call, lent, .. } => {
                assert!(self.open_calls.contains(call) && !self.is_cancelled);
                let before = self.lent_to_tools.insert(*call, *lent).unwrap_or_default();
                assert!(before.is_zero(), "{call} is lent to twice");
            }
            Event::ToolEnded { call, spent, .. } => {
                assert!(self.open_calls.remove(call), "{call} is answered twice");
                let lent = self.lent_to_tools.remove(call).unwrap_or_default();
                self.book(lent, spent, 0);
            }
            Event::Delegated { child, grant, .. } => {
                assert!(self.is_running && !self.is_cancelled, "lent after a cancel");
                let of = |limit: Limit, granted: Limit| {
                    if granted == Limit::Unlimited { 0 } else { limit.number() }
                };
                let loan = Resources {
                    tokens: of(grant.budget.tokens, self.granted.tokens),
                    usd: of(grant.budget.usd, self.granted.usd),
                    agents: of(grant.budget.agents, self.granted.agents).saturating_add(1),
                };
                assert!(self.lent.insert(child.clone(), loan).is_none(), "{child} is lent to twice");
            }
            Event::Returned { child, spent, .. } => {
                let before = self.overrun();
                let loan = self.lent.remove(child).unwrap();
                self.book(loan, spent, 1);
                assert_eq!(spent.overrun, self.overrun().minus(before), "what the grant does not cover");
            }
            Event::CancelAsked { .. } => self.is_cancelled = true,
            Event::Ended { outcome, spent } => {
                assert!(self.is_running, "a second end");
                self.spent = self.spent.plus(std::mem::take(&mut self.held_back));
                assert_eq!(*spent, Spent { held_back: Resources::default(), ..*spent });
                assert_eq!(spent.amount(), self.spent, "an end that says something else than the books");
                assert!(self.open_calls.is_empty(), "an end with calls unanswered");
                let says_cancelled = matches!(outcome.status, Status::Cancelled { .. } | Status::Lost { .. });
                assert!(!self.is_cancelled || says_cancelled, "{outcome:?} after a cancel");
                assert!(self.lent_to_tools.is_empty(), "an end with loans of tools out");
                assert!(
                    self.lent.is_empty() && self.reserved == Resources::default(),
                    "an end with loans out"
                );
                self.is_running = false;
            }
            Event::Resumed { .. }
            | Event::Heard { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::HostAsked { .. }
            | Event::HostAnswered { .. }
            | Event::Said { .. }
            | Event::LimitReached { .. }
            | Event::Compacted { .. } => {}
        }
    }
}

/// Session that runs at random. Children run the same way when their loan is returned.
pub(crate) struct SimulatedSession {
    pub(crate) state: State,
    pub(crate) log: Vec<Event>,
    pub(crate) shadow: ShadowLedger,
    pub(crate) handed_out: BTreeSet<CallId>,
    pub(crate) children: u32,
    pub(crate) depth: u32,
}

impl SimulatedSession {
    fn begin(session: SessionId, round: &RoundSpec, sim: &mut Simulation) -> SimulatedSession {
        let mut run = SimulatedSession {
            state: State::new(session),
            log: Vec::new(),
            shadow: ShadowLedger::default(),
            handed_out: BTreeSet::new(),
            children: 0,
            depth: round.depth,
        };
        run.record(started(round), sim);
        run
    }

    /// Appends an event, if it is admitted.
    fn offer(&mut self, event: Event, sim: &mut Simulation) -> bool {
        let admitted = self.state.admits(&event);
        if admitted {
            self.state.apply(&event);
            let at = sim.records.len() as u64;
            let (session, seq) = (self.state.session().clone(), self.log.len() as u64);
            sim.records.push(Record {
                session,
                seq,
                pos: Cursor::new(at),
                at,
                v: VERSION,
                event: event.clone(),
            });
            self.shadow.enter(&event);
            self.log.push(event);
            self.check();
        }
        admitted
    }

    fn record(&mut self, event: Event, sim: &mut Simulation) {
        assert!(self.offer(event.clone(), sim), "{event:?} is not admitted after {:?}", self.kinds());
    }

    fn check(&self) {
        let (ledger, shadow) = (self.state.ledger(), &self.shadow);
        assert_eq!(ledger.granted(), shadow.granted);
        assert_eq!(ledger.spent().amount(), shadow.spent);
        assert_eq!(ledger.reserved(), shadow.reserved);
        assert_eq!(ledger.lent(), shadow.lent());
        let committed = shadow.used().minus(shadow.overrun());
        assert_eq!((ledger.committed(), ledger.overrun()), (committed, shadow.overrun()));
        assert!(shadow.granted.fits(committed), "{committed:?} of {:?}", shadow.granted);
        // All other commitments had to fit: only usage above its reserve may exceed the grant.
        let planned = shadow.used().minus(shadow.excess);
        assert!(shadow.granted.fits(planned), "{planned:?} of {:?}", shadow.granted);
        assert!(
            shadow.turns.len() <= shadow.max_turns as usize,
            "more turns than {}: {:?}",
            shadow.max_turns,
            self.kinds()
        );
        assert_paired(&self.state.messages());
    }

    /// Short form of the log, for messages.
    fn kinds(&self) -> Vec<String> {
        let short = |event: &Event| match event {
            Event::Called { turn, attempt, purpose, .. } => format!("called {turn}/{attempt} {purpose:?}"),
            Event::Replied { turn, reply, .. } => format!("replied {turn} with {} calls", reply.calls.len()),
            Event::CallFailed { turn, attempt, cause, .. } => format!("failed {turn}/{attempt} {cause:?}"),
            Event::Started { grant, .. } => format!("started with {} turns, {:?}", grant.turns, grant.budget),
            event => event.kind().to_owned(),
        };
        self.log.iter().map(short).collect()
    }

    /// The runner is gone; another one reads the log and closes the open call.
    fn crash(&mut self, sim: &mut Simulation) {
        let folded = State::fold(self.state.session().clone(), &self.log);
        assert_eq!(
            observable_state(&folded),
            observable_state(&self.state),
            "a fold differs from what was applied"
        );
        self.state = folded;
        self.handed_out.clear();
        // The connections of running calls ended with the runner.
        for call in self.state.unanswered() {
            self.close_hosts(call, sim);
        }
        if let Some(open) = self.state.open_call().cloned() {
            let (cause, spent) = (CallFault::Interrupted, Spent::unconfirmed(open.reserved));
            self.record(Event::call_failed(open.turn, open.attempt, cause, spent), sim);
            // The same turn is repeated, with the next attempt.
            assert_eq!(self.state.next_attempt(), (open.turn, open.attempt + 1));
        }
    }

    /// Answers the open questions of a call.
    fn close_hosts(&mut self, call: CallId, sim: &mut Simulation) {
        for event in host_ends(self.state.call(call).unwrap()) {
            self.record(event, sim);
        }
    }

    fn run_randomly(&mut self, steps: u64, sim: &mut Simulation) {
        for _ in 0..steps {
            if !sim.choices.has_more() {
                return;
            }
            match sim.choices.below(16) {
                0..=9 => self.follow(sim),
                10..=12 => self.offer_random_event(sim),
                13 => self.crash(sim),
                14 => drop(self.offer(heard("by the way"), sim)),
                _ if sim.choices.below(4) > 0 => {}
                _ => {
                    let event = if sim.choices.below(2) == 0 {
                        Event::CancelAsked { by: "someone".to_owned() }
                    } else {
                        Event::limit_reached(LimitKind::Time)
                    };
                    self.offer(event, sim);
                }
            }
        }
    }

    /// Executes the next step.
    fn follow(&mut self, sim: &mut Simulation) {
        match self.state.next() {
            Step::Nothing => {
                if self.state.rounds() < 3 && self.depth == 0 {
                    let round = RoundSpec { grant: random_grant(sim), ..self.state.round().unwrap().clone() };
                    self.record(started(&round), sim);
                    self.handed_out.clear();
                }
            }
            Step::CallModel(purpose) => self.call_model(purpose, sim),
            Step::RunCalls => {
                let calls = self.state.unanswered();
                assert!(!calls.is_empty() && calls.len() == self.state.unanswered_count());
                let known = self.handed_out.len();
                self.handed_out.extend(calls);
                if self.handed_out.len() == known {
                    self.progress(sim);
                }
            }
            Step::Wait | Step::Detach(_) => self.progress(sim),
            Step::End(outcome) => {
                let spent = self.state.ledger().spent_at_end();
                self.record(Event::Ended { outcome, spent }, sim);
            }
        }
    }

    fn call_model(&mut self, purpose: Purpose, sim: &mut Simulation) {
        let (turn, attempt) = self.state.next_attempt();
        let ledger = self.state.ledger();
        let free = ledger.reservable();
        let most = |limit: Limit| limit.number().min(10_000);
        let reserved =
            sim.choices.part_of(Resources { tokens: most(free.tokens), usd: most(free.usd), agents: 0 });
        let request = self.state.fingerprint();
        let input = sim.choices.below(reserved.tokens.saturating_add(1));
        self.record(Event::Called { turn, attempt, purpose, reserved, input, request }, sim);
    }

    fn progress(&mut self, sim: &mut Simulation) {
        if self.state.open_call().is_some() {
            let event = self.random_model_result(sim);
            return self.take_reply(event, sim);
        }
        let calls = self.state.unanswered();
        let call = calls[sim.choices.below(calls.len() as u64) as usize];
        self.progress_call(call, sim);
    }

    /// Records the end of a call; a summary is applied at once.
    fn take_reply(&mut self, event: Event, sim: &mut Simulation) {
        let is_summary = matches!(event, Event::Replied { .. })
            && self.state.open_call().is_some_and(|open| open.purpose == Purpose::Compaction);
        self.record(event, sim);
        if is_summary {
            let keep_from = self.state.next_attempt().0.saturating_sub(sim.choices.below(3) as u32);
            self.record(Event::Compacted { summary: "so far".into(), keep_from }, sim);
        }
    }

    fn progress_call(&mut self, call: CallId, sim: &mut Simulation) {
        let progress = self.state.call(call).unwrap().progress.clone();
        let ended = self.ended(call, sim);
        let event = match progress {
            CallProgress::New | CallProgress::Decided(_) => match sim.choices.below(5) {
                0 => ended.clone(),
                1 => Event::Asked {
                    call,
                    what: "?".into(),
                    why: String::new(),
                    always: None,
                    until: 1,
                    default: Answer::Once,
                },
                2 => self.started(call, Effect::Opaque, sim),
                _ => self.delegated(call, sim),
            },
            CallProgress::AwaitingApproval => {
                let answer =
                    if sim.choices.below(2) == 0 { Answer::Once } else { Answer::Deny { word: None } };
                Event::Answered { call, answer, by: "me".to_owned() }
            }
            CallProgress::Delegated { outstanding, .. } if outstanding > 0 => return self.return_one(sim),
            CallProgress::Delegated { .. } if sim.choices.below(4) == 1 => self.delegated(call, sim),
            CallProgress::Started(_) => {
                host_event(self.state.call(call).unwrap(), &mut sim.choices).unwrap_or_else(|| ended.clone())
            }
            CallProgress::Delegated { .. } => ended.clone(),
            CallProgress::Answered => panic!("{call} is answered"),
        };
        if !self.offer(event, sim) && !matches!(progress, CallProgress::AwaitingApproval) {
            self.close_hosts(call, sim);
            // Denied, stopped or not covered by the budget: the model is told.
            self.record(ended, sim);
        }
    }

    /// Creates the start of a tool, sometimes with a loan.
    fn started(&self, call: CallId, effect: Effect, sim: &mut Simulation) -> Event {
        let ledger = self.state.ledger();
        let free = ledger.granted().minus(ledger.committed());
        let lent = match sim.choices.below(4) {
            0 => Resources::default(),
            1 => Resources { tokens: sim.choices.below(9000), usd: sim.choices.below(9000), agents: 1 },
            parts => free.share(parts).charged_to(&ledger.granted()),
        };
        Event::ToolStarted { call, effect, before: None, after: None, lent, lines: None }
    }

    /// Creates the result of a call; a part of its loan is spent, or all of it is unconfirmed.
    fn ended(&self, call: CallId, sim: &mut Simulation) -> Event {
        let lent = match self.state.call(call).map(|state| &state.progress) {
            Some(CallProgress::Started(intent)) => intent.lent,
            _ => Resources::default(),
        };
        let spent = match sim.choices.below(3) {
            0 => Spent::unconfirmed(lent),
            _ => {
                let used = sim.choices.part_of(lent);
                let usage = Usage { output: used.tokens, ..Usage::default() };
                Spent { usage, usd: used.usd, agents: lent.agents, ..Spent::default() }
            }
        };
        Event::ToolEnded { call, output: ToolOutput::ok("out"), spent, seen: None }
    }

    fn delegated(&mut self, call: CallId, sim: &mut Simulation) -> Event {
        self.children += 1;
        let mut grant = random_grant(sim);
        let ledger = self.state.ledger();
        let free =
            ledger.granted().minus(ledger.committed()).minus(Resources { agents: 1, ..Resources::default() });
        // Usually a part of what is available, sometimes any amount.
        match sim.choices.below(6) {
            0 => {}
            1 => grant.budget = free,
            parts => grant.budget = free.share(parts),
        }
        Event::Delegated {
            call,
            child: self.state.session().child_of_several(call, self.children as usize),
            delegation: Delegation {
                style: DelegationStyle::Delegate,
                task: "help".into(),
                ..Delegation::default()
            }
            .into(),
            agent: Hash::of(b"agent"),
            grant,
        }
    }

    /// Runs a child to its end and charges what it used.
    fn return_one(&mut self, sim: &mut Simulation) {
        let loans = self.state.loans();
        let at = sim.choices.below(loans.len() as u64) as usize;
        let Some((child, loan)) = loans.iter().nth(at).map(|(child, loan)| (child.clone(), loan.clone()))
        else {
            return;
        };
        assert_eq!(loan.round.depth, self.depth + 1);
        let mut run = SimulatedSession::begin(child.clone(), &loan.round, sim);
        let steps = if run.depth > 3 { 0 } else { sim.choices.below(25) };
        run.run_randomly(steps, sim);
        run.finish(sim);
        let spent = run.state.ledger().spent();
        let used = spent.amount().plus(Resources { agents: 1, ..Resources::default() });
        let granted = self.shadow.granted;
        let counted = |used: u64, lent: u64, granted: Limit| granted == Limit::Unlimited || used <= lent;
        let within = counted(used.tokens, loan.amount.tokens, granted.tokens)
            && counted(used.usd, loan.amount.usd, granted.usd)
            && counted(used.agents, loan.amount.agents, granted.agents);
        let overran = run.shadow.overrun() != Resources::default();
        assert!(within || overran, "{used:?} of the loan {:?}", loan.amount);
        let outcome = run.state.ended().unwrap().clone();
        // Usage that the child's grant did not cover is charged to the free budget of this session.
        let used = Spent { agents: spent.agents + 1, ..spent };
        let spent = Spent { overrun: self.state.ledger().uncovered(loan.amount, &used), ..spent };
        sim.overruns_returned += u32::from(overran);
        sim.overruns_covered += u32::from(overran && spent.overrun.is_zero());
        self.record(Event::Returned { child, outcome, spent, waited_ms: 0 }, sim);
    }

    fn random_model_result(&mut self, sim: &mut Simulation) -> Event {
        let open = self.state.open_call().cloned().unwrap();
        let (turn, attempt) = (open.turn, open.attempt);
        let cause = match sim.choices.below(12) {
            1 | 2 => CallFault::Transient { message: "busy".to_owned() },
            3 => CallFault::Stopped,
            4 => match sim.choices.below(3) {
                0 => CallFault::Fatal { message: "gone".to_owned() },
                1 => CallFault::GivenUp { message: "gone".to_owned(), next: "another".to_owned() },
                _ => CallFault::Overflow { message: "long".to_owned() },
            },
            number => {
                let calls = if (5..=9).contains(&number) { sim.choices.below(4) } else { 0 };
                let call = ToolCall { name: "tool".to_owned(), arguments: "{}".into(), provider_id: None };
                let calls = vec![call; calls as usize];
                let mut used = sim.choices.part_of(open.reserved);
                if number >= 9 && sim.choices.below(3) > 0 {
                    let most = if sim.choices.below(2) == 0 { 50 } else { 5_000 };
                    used = open.reserved.plus(Resources {
                        tokens: sim.choices.below(most),
                        usd: sim.choices.below(most),
                        agents: 0,
                    });
                }
                let usage = Usage { input: used.tokens, ..Usage::default() };
                let excess = used.minus(open.reserved).tokens;
                let held_back = random_held(open.reserved.minus(used), sim);
                let spent = Spent { usage, usd: used.usd, turns: 1, excess, held_back, ..Spent::default() };
                let overrun = self.state.ledger().uncovered(open.reserved, &spent);
                let spent = Spent { overrun, ..spent };
                return Event::Replied {
                    turn,
                    reply: Reply { text: "said".into(), calls, ..Reply::default() },
                    spent,
                    waited_ms: 0,
                };
            }
        };
        let spent = match cause {
            CallFault::Stopped => Spent::unconfirmed(open.reserved),
            _ => Spent { held_back: random_held(open.reserved, sim), ..Spent::default() },
        };
        Event::call_failed(turn, attempt, cause, spent)
    }

    /// Offers an unprompted event; one that is not admitted has no effect.
    fn offer_random_event(&mut self, sim: &mut Simulation) {
        let (turn, attempt) = self.state.next_attempt();
        let near =
            |number: u32, sim: &mut Simulation| (number + 1).saturating_sub(sim.choices.below(3) as u32);
        let call = CallId { turn: near(turn, sim).saturating_sub(1), index: sim.choices.below(4) as u32 };
        let purpose = if sim.choices.below(2) == 0 { Purpose::Turn } else { Purpose::Grace };
        let spent = self.state.ledger().spent_at_end();
        let status = match sim.choices.below(5) {
            0 => Status::Done,
            1 => Status::Incomplete { limit: LimitKind::Turns },
            2 => Status::Failed { cause: "x".to_owned() },
            3 => Status::Cancelled { by: "x".to_owned() },
            _ => Status::Lost { cause: "x".to_owned() },
        };
        let event = match sim.choices.below(16) {
            0 | 1 => {
                let reserved =
                    Resources { tokens: sim.choices.below(9000), usd: sim.choices.below(9000), agents: 0 };
                let (turn, attempt) = if sim.choices.below(2) == 0 {
                    (turn, attempt)
                } else {
                    (near(turn, sim), near(attempt, sim))
                };
                Event::Called { turn, attempt, purpose, reserved, input: 0, request: Hash::of(b"") }
            }
            2 if self.state.open_call().is_some() => self.random_model_result(sim),
            3 => self.started(call, Effect::Pure, sim),
            4 => self.ended(call, sim),
            5..=7 => self.delegated(call, sim),
            8 if !self.state.loans().is_empty() => return self.return_one(sim),
            9 | 10 => Event::Ended { outcome: Outcome::new(status, ""), spent },
            11 => Event::Asked {
                call,
                what: "?".into(),
                why: String::new(),
                always: None,
                until: 0,
                default: Answer::Once,
            },
            12 => Event::Compacted { summary: "so far".into(), keep_from: turn },
            13 => Event::Resumed { epoch: 1, downtime: 1, mode: None },
            14 => random_host_asked(call, &mut sim.choices),
            15 => random_host_answered(call, &mut sim.choices),
            _ => Event::call_failed(turn, attempt, CallFault::Unaffordable, Spent::default()),
        };
        self.offer(event, sim);
    }

    /// Takes the simplest path to the end of the round; there always is one.
    fn finish(&mut self, sim: &mut Simulation) {
        self.check_abandon();
        self.crash(sim);
        for _ in 0..200 {
            match self.state.next() {
                Step::Nothing => return self.check_whole(),
                Step::CallModel(purpose) => {
                    self.call_model(purpose, sim);
                    if let Some(open) = self.state.open_call() {
                        let (turn, reply) = (open.turn, Reply { text: "over".into(), ..Reply::default() });
                        self.take_reply(
                            Event::Replied {
                                turn,
                                reply,
                                spent: Spent { turns: 1, ..Spent::default() },
                                waited_ms: 0,
                            },
                            sim,
                        );
                    }
                }
                Step::RunCalls | Step::Wait | Step::Detach(_) => {
                    while !self.state.loans().is_empty() {
                        self.return_one(sim);
                    }
                    for call in self.state.unanswered() {
                        self.close_hosts(call, sim);
                        self.record(Event::tool_ended(call, ToolOutput::ok("closed")), sim);
                    }
                }
                Step::End(outcome) => {
                    let spent = self.state.ledger().spent_at_end();
                    self.record(Event::Ended { outcome, spent }, sim);
                }
            }
        }
        panic!("no end after {:?}", self.kinds());
    }

    /// A round can be ended as lost at any moment, with an end for everything that is open.
    fn check_abandon(&self) {
        let mut state = self.state.clone();
        let mut hosts = hosts_of(&state).concat();
        hosts.retain(|question| question.answer.is_none());
        let events = state.abandon("lost", &BTreeMap::new());
        let ends = events.iter().filter(|event| matches!(event, Event::HostAnswered { .. })).count();
        assert_eq!(ends, hosts.len());
        events.iter().for_each(|event| state.apply(event));
        assert!(!state.is_running(), "abandoned after {:?}", self.kinds());
    }

    fn check_whole(&self) {
        let count = |kind: &str| self.log.iter().filter(|event| event.kind() == kind).count();
        assert_eq!(count("started"), count("ended"));
        let mut loans: BTreeMap<&SessionId, (u32, u32)> = BTreeMap::new();
        for event in &self.log {
            match event {
                Event::Delegated { child, .. } => loans.entry(child).or_default().0 += 1,
                Event::Returned { child, .. } => loans.entry(child).or_default().1 += 1,
                _ => {}
            }
        }
        assert!(loans.values().all(|counts| *counts == (1, 1)), "{loans:?}");
    }
}

pub(crate) struct Simulation {
    pub(crate) choices: RandomChoices,
    pub(crate) records: Vec<Record>,
    /// Children that used more than their loan, and those of them that their parents could cover.
    pub(crate) overruns_returned: u32,
    pub(crate) overruns_covered: u32,
}

impl Simulation {
    pub(crate) fn new(numbers: Vec<u32>) -> Simulation {
        let choices = RandomChoices { numbers, at: 0 };
        Simulation { choices, records: Vec::new(), overruns_returned: 0, overruns_covered: 0 }
    }
}

/// Usually nothing, sometimes everything that is left.
fn random_held(left: Resources, sim: &mut Simulation) -> Resources {
    if sim.choices.below(4) == 1 { left } else { Resources::default() }
}

pub(crate) fn heard(text: &str) -> Event {
    Event::Heard { from: Speaker::Person, text: text.into() }
}

pub(crate) fn random_grant(sim: &mut Simulation) -> Grant {
    let turns = sim.choices.below(8) as u32;
    let authority = Authority::default().hash();
    Grant { authority, budget: sim.choices.budget(), turns, deadline: Limit::Unlimited }
}

pub(crate) fn started(round: &RoundSpec) -> Event {
    let RoundSpec { delegation, agent, grant, parent, depth } = round.clone();
    Event::Started { delegation, agent, grant, parent, depth }
}

/// Everything that is observable of a state.
pub(crate) fn observable_state(state: &State) -> String {
    format!(
        "{:?}",
        (
            (
                state.length(),
                state.rounds(),
                state.round(),
                state.ended(),
                state.open_call(),
                state.next_attempt()
            ),
            (state.ledger(), state.loans(), state.unanswered(), state.faults(), state.exceeded_limit()),
            (hosts_of(state), state.has_allowed_hosts()),
            (
                state.stop_reason(),
                state.has_unread_input(),
                state.messages(),
                state.fingerprint(),
                state.next()
            ),
        )
    )
}

/// Runs a random tree to its end: the root and all events in the order of the store.
pub(crate) fn run_random_tree(numbers: Vec<u32>) -> (SimulatedSession, Simulation) {
    let mut sim = Simulation::new(numbers);
    let round = RoundSpec {
        delegation: Delegation { task: "go".into(), ..Delegation::default() }.into(),
        agent: Hash::of(b"agent"),
        grant: random_grant(&mut sim),
        parent: None,
        depth: 0,
    };
    let mut run = SimulatedSession::begin(SessionId::root(1), &round, &mut sim);
    run.run_randomly(200, &mut sim);
    run.finish(&mut sim);
    (run, sim)
}

pub(crate) fn random_numbers(most: usize) -> impl Strategy<Value = Vec<u32>> {
    vec(any::<u32>(), 0..most)
}

proptest! {
    #![proptest_config(cases(500))]

    /// Every law of the ledger is asserted in [`SimulatedSession::offer`] and [`SimulatedSession::finish`].
    #[test]
    fn ledger_balances_and_every_round_can_end(numbers in random_numbers(400)) {
        run_random_tree(numbers);
    }

    /// The totals in the projection of a whole tree equal the root's ledger.
    #[test]
    fn tree_cost_equals_the_sum_of_root_rounds(numbers in random_numbers(250)) {
        let (run, sim) = run_random_tree(numbers);
        let mut booked = Spent::default();
        for event in &run.log {
            if let Event::Ended { spent, .. } = event {
                booked = booked.plus(*spent);
            }
        }
        let tree = Tree::fold(&sim.records);
        // An overrun belongs to one session: the ledger of the root does not repeat those of its children.
        let without = |spent: Spent| Spent { overrun: Resources::default(), ..spent };
        prop_assert_eq!(without(tree.spent(run.state.session())), without(booked));
        let sessions: BTreeSet<&SessionId> = sim.records.iter().map(|record| &record.session).collect();
        prop_assert_eq!(tree.walk(run.state.session()).len(), sessions.len());
    }
}

#[test]
fn random_runs_reach_every_status() {
    let mut statuses = BTreeSet::new();
    let (mut overruns, mut covered, mut max_depth, mut lent) = (0, 0, 0, 0);
    let mut children = (0, 0);
    let mut number = 1u32;
    for _ in 0..400 {
        let mut numbers = Vec::new();
        for _ in 0..300 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            numbers.push(number >> 8);
        }
        let (_, sim) = run_random_tree(numbers);
        children = (children.0 + sim.overruns_returned, children.1 + sim.overruns_covered);
        for record in &sim.records {
            match &record.event {
                Event::Ended { outcome, .. } => drop(statuses.insert(outcome.status.as_str())),
                Event::Replied { spent, .. } if spent.overrun != Resources::default() => overruns += 1,
                Event::Replied { spent, .. } if spent.excess > 0 => covered += 1,
                Event::ToolStarted { lent: loan, .. } => lent += u32::from(!loan.is_zero()),
                Event::Started { depth, .. } => max_depth = max_depth.max(*depth),
                _ => {}
            }
        }
    }
    // The laws above would be vacuous if the random runs never led anywhere.
    assert!(
        ["cancelled", "done", "failed", "incomplete"].iter().all(|word| statuses.contains(word)),
        "{statuses:?}"
    );
    assert!(
        overruns > 10 && covered > 10 && max_depth >= 3 && lent > 50,
        "{overruns} overruns, {covered} covered, depth {max_depth}, {lent} loans of tools"
    );
    assert!(
        children.1 > 5 && children.0 > children.1 + 5,
        "{children:?}: overruns of children, and covered ones"
    );
}
