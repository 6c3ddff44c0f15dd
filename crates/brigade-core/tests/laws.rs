//! Laws of the core: grants only shrink, books balance, requests are valid whatever the log, facts survive JSON.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use std::collections::{BTreeMap, BTreeSet};

use brigade_core::delegation::{Waiting, Which};
use brigade_core::event::{Answer, CallFault, Effect, Speaker, TYPES, VERSION};
use brigade_core::faces::delegate::{SwarmConfig, SwarmRole};
use brigade_core::faces::{DELEGATION_TOOLS, delegate};
use brigade_core::grant::{Access, Names, Refusal, Wish};
use brigade_core::message::Stop;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::state::{CallProgress, Round};
use brigade_core::text::cut;
use brigade_core::view::Tree;
use brigade_core::{
    Amount, Authority, Budget, CallId, Delegation, Event, Face, Grant, Hash, Limit, Message, Outcome, Price,
    Purpose, Record, Reply, SessionId, Spent, State, Status, Step, Text, ToolCall, ToolOutput, Usage, json,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

// ---------------------------------------------------------------------------------------------------------------
// Grants only shrink.

fn tool_name() -> impl Strategy<Value = String> {
    let known = select(vec![
        "read_file",
        "write_file",
        "shell",
        "message",
        "delegate",
        "subagent_spawn",
        "web_fetch",
        "Read_File",
        " shell",
        "shell\0",
        "*",
        "",
        "../shell",
        "\u{202e}llehs",
        "she\u{301}ll",
        "shell(rm)",
        "s\u{43d}ell",
        "read_file,shell",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

fn names() -> impl Strategy<Value = Names> {
    let only = vec(select(vec!["a/one", "a/two", "b/three"]), 0..3);
    prop_oneof![
        Just(Names::Any),
        only.prop_map(|names| Names::Only(names.into_iter().map(str::to_owned).collect())),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    select(vec![Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto])
}

fn permissions() -> impl Strategy<Value = Permissions> {
    let rules = || vec(select(vec!["shell", "shell(git *)", "read_file(**/.env*)", "write_file"]), 0..3);
    (mode(), rules(), rules(), rules()).prop_map(|(mode, allow, ask, deny)| {
        let parsed = |rules: Vec<&str>| rules.into_iter().map(|rule| rule.parse().unwrap()).collect();
        Permissions { mode, allow: parsed(allow), ask: parsed(ask), deny: parsed(deny) }
    })
}

fn authority() -> impl Strategy<Value = Authority> {
    let tools = || vec(tool_name(), 0..12);
    let paths = vec(select(vec!["", "src", "docs"]), 0..3);
    let access = || select(vec![Access::Denied, Access::Allowed]);
    (tools(), tools(), permissions(), 0u32..8, names(), names(), paths, access(), access()).prop_map(
        |(tools, lend, permissions, deepest, agents, models, paths, network, speak)| Authority {
            tools: tools.into_iter().collect(),
            lend: lend.into_iter().collect(),
            permissions,
            deepest,
            agents,
            models,
            workspace: "workspace".to_owned(),
            paths: paths.into_iter().map(str::to_owned).collect(),
            network,
            speak,
        },
    )
}

fn wish() -> impl Strategy<Value = Wish> {
    let list = || prop::option::of(vec(tool_name(), 0..8));
    let model = prop::option::of(select(vec!["a/one", "b/three", "c/four"]).prop_map(str::to_owned));
    (list(), list(), 0u32..9, prop::option::of(mode()), model, vec(tool_name(), 0..3)).prop_map(
        |(tools, lend, levels, mode, model, never)| Wish { tools, lend, levels, mode, model, never },
    )
}

/// Whether `child` is nowhere wider than `parent`, said again in other words than the code's.
fn is_narrower(child: &Authority, parent: &Authority) -> bool {
    let names = |mine: &Names, theirs: &Names| {
        ["a/one", "a/two", "b/three", "anything"].into_iter().all(|name| !mine.has(name) || theirs.has(name))
    };
    child.tools.union(&child.lend).all(|tool| parent.lend.contains(tool))
        && child.permissions.mode <= parent.permissions.mode
        && child.permissions.deny == parent.permissions.deny
        && child.permissions.ask == parent.permissions.ask
        && child.permissions.allow == parent.permissions.allow
        && child.deepest <= parent.deepest
        && names(&child.agents, &parent.agents)
        && names(&child.models, &parent.models)
        && child.workspace == parent.workspace
        && child.paths.iter().all(|path| parent.paths.contains(path))
        && child.network <= parent.network
        && child.speak <= parent.speak
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn grants_only_shrink_over_any_tree(root in authority(), steps in vec((any::<prop::sample::Index>(), wish()), 1..25)) {
        // Each node: its authority, its depth, and the places of its ancestors.
        let mut nodes: Vec<(Authority, u32, Vec<usize>)> = vec![(root, 0, Vec::new())];
        for (at, wish) in steps {
            let at = at.index(nodes.len());
            let (parent, parent_depth, ancestors) = nodes[at].clone();
            let depth = parent_depth + 1;
            let deepest = parent.deepest.min(wish.levels);
            let attenuated = match parent.attenuate(&wish, depth) {
                Err(Refusal::Depth { deepest: named }) => {
                    prop_assert!(depth > deepest);
                    prop_assert_eq!(named, deepest);
                    continue;
                }
                Err(Refusal::Model(model)) => {
                    prop_assert!(!parent.models.has(&model));
                    continue;
                }
                Ok(attenuated) => attenuated,
            };
            let child = attenuated.authority;
            prop_assert!(depth <= deepest && depth <= child.deepest && child.deepest <= deepest);
            prop_assert!(wish.model.iter().all(|model| parent.models.has(model)));
            prop_assert!(child.tools.iter().chain(&child.lend).all(|tool| !wish.never.contains(tool)));
            if let Some(asked) = &wish.tools {
                prop_assert!(child.tools.iter().all(|tool| asked.contains(tool)));
                let vain: Vec<&String> = asked.iter().filter(|name| !parent.lend.contains(*name)).collect();
                prop_assert_eq!(attenuated.unknown.iter().collect::<Vec<_>>(), vain);
            }
            match &wish.lend {
                Some(asked) => prop_assert!(child.lend.iter().all(|tool| asked.contains(tool))),
                None => prop_assert_eq!(&child.lend, &child.tools),
            }
            let line: Vec<usize> = ancestors.into_iter().chain([at]).collect();
            for ancestor in &line {
                let ancestor = &nodes[*ancestor].0;
                prop_assert!(child.within(ancestor), "{:?} is wider than {:?}", child, ancestor);
                prop_assert!(is_narrower(&child, ancestor), "{:?} is wider than {:?}", child, ancestor);
            }
            nodes.push((child, depth, line));
        }
    }

    /// What the face asks for passes through the same narrowing, whatever stands in config and call.
    #[test]
    fn face_a_never_widens(
        parent in authority(),
        (max_depth, asked, fixed, lend, locked, depth) in
            (0u32..4, prop::option::of(vec(tool_name(), 0..6)), vec(tool_name(), 0..6),
             prop::option::of(vec(tool_name(), 0..6)), any::<bool>(), 0u32..4),
    ) {
        let preset = SwarmRole { tools: fixed.clone(), lend, locked, ..SwarmRole::default() };
        let roles = BTreeMap::from([("Writer".to_owned(), preset)]);
        let swarm = SwarmConfig { max_depth, roles, ..SwarmConfig::default() };
        let delegation = Delegation { role: Some("wRITER".to_owned()), tools: asked.clone(), ..Delegation::default() };
        let guarded = swarm.parse(depth, &parent, r#"{"role":"Writer","task":"x"}"#);
        let attenuated = parent.attenuate(&swarm.wish(&delegation, depth + 1, &parent), depth + 1);
        // The guard at call and the narrowing follow from one predicate.
        prop_assert_eq!(guarded.is_ok(), attenuated.is_ok());
        let Ok(attenuated) = attenuated else { return Ok(()) };
        let child = attenuated.authority;
        prop_assert!(child.within(&parent) && is_narrower(&child, &parent));
        if locked && !fixed.is_empty() {
            prop_assert!(child.tools.iter().all(|tool| fixed.contains(tool)));
        }
        if let Some(asked) = &asked {
            prop_assert!(child.tools.iter().all(|tool| asked.contains(tool)));
        }
        let offered = swarm.is_offered(depth + 1, &child);
        prop_assert_eq!(offered, child.tools.contains("delegate") && depth + 1 < max_depth.min(parent.deepest));
        if depth + 1 >= max_depth.min(parent.deepest) {
            prop_assert!(DELEGATION_TOOLS.iter().all(|tool| !child.tools.contains(*tool) && !child.lend.contains(*tool)));
        }
    }

    /// The comparison itself sees every field: one step wider anywhere is too wide.
    #[test]
    fn within_sees_every_field(parent in authority()) {
        let child = Authority { tools: parent.lend.clone(), ..parent.clone() };
        prop_assert!(child.within(&parent));
        let mut wider = vec![Authority { deepest: child.deepest + 1, ..child.clone() }];
        let new_tool = BTreeSet::from(["a tool that nobody has".to_owned()]);
        wider.push(Authority { tools: child.tools.union(&new_tool).cloned().collect(), ..child.clone() });
        wider.push(Authority { lend: child.lend.union(&new_tool).cloned().collect(), ..child.clone() });
        wider.push(Authority { paths: child.paths.union(&new_tool).cloned().collect(), ..child.clone() });
        let mut change = |change: &dyn Fn(&mut Authority)| {
            let mut changed = child.clone();
            change(&mut changed);
            wider.push(changed);
        };
        change(&|child| child.workspace.push_str("/elsewhere"));
        change(&|child| child.permissions.allow.push("teleport".parse().unwrap()));
        if parent.permissions.mode < Mode::Auto {
            change(&|child| child.permissions.mode = Mode::Auto);
        }
        if !parent.permissions.deny.is_empty() {
            change(&|child| child.permissions.deny.clear());
        }
        if !parent.permissions.ask.is_empty() {
            change(&|child| child.permissions.ask.clear());
        }
        if parent.agents != Names::Any {
            change(&|child| child.agents = Names::Any);
        }
        if parent.models != Names::Any {
            change(&|child| child.models = Names::Any);
        }
        if parent.network == Access::Denied {
            change(&|child| child.network = Access::Allowed);
        }
        if parent.speak == Access::Denied {
            change(&|child| child.speak = Access::Allowed);
        }
        for wider in wider {
            prop_assert!(!wider.within(&parent), "{:?} is within {:?}", wider, parent);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Books balance: sessions that are run by chance, over nothing but admitted facts.

/// What chance decides. When it has no more to say, everything goes the plainest way.
struct Chance {
    numbers: Vec<u32>,
    at: usize,
}

impl Chance {
    fn has_more(&self) -> bool {
        self.at < self.numbers.len()
    }

    fn below(&mut self, end: u64) -> u64 {
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

    fn budget(&mut self) -> Budget {
        Budget { tokens: self.limit(), usd: self.limit(), agents: self.limit() }
    }

    fn part_of(&mut self, amount: Amount) -> Amount {
        let mut part =
            |whole: u64| if self.below(3) == 0 { whole } else { self.below(whole.saturating_add(1)) };
        Amount { tokens: part(amount.tokens), usd: part(amount.usd), agents: 0 }
    }
}

/// The same books, kept a second time by the simplest means.
#[derive(Default)]
struct Books {
    granted: Budget,
    spent: Amount,
    reserved: Amount,
    lent: BTreeMap<SessionId, Amount>,
    turns: BTreeSet<u32>,
    purpose: Option<Purpose>,
    last_words: u32,
    may_turn: u32,
    is_running: bool,
    is_cancelled: bool,
    is_overrun: bool,
    open_calls: BTreeSet<CallId>,
}

impl Books {
    fn lent(&self) -> Amount {
        self.lent.values().fold(Amount::default(), |sum, loan| sum.plus(*loan))
    }

    fn enter(&mut self, event: &Event) {
        match event {
            Event::Started { grant, .. } => {
                assert!(!self.is_running, "a round began inside a round");
                *self = Books {
                    granted: grant.budget,
                    may_turn: grant.turns,
                    is_running: true,
                    ..Books::default()
                };
            }
            Event::Called { turn, purpose, reserved, .. } => {
                assert!(self.is_running && !self.is_cancelled && self.open_calls.is_empty());
                assert_eq!(self.reserved, Amount::default(), "two calls at once");
                self.reserved = *reserved;
                self.purpose = Some(*purpose);
                if *purpose == Purpose::Turn {
                    self.turns.insert(*turn);
                }
            }
            Event::Replied { turn, reply, spent } => {
                self.reserved = Amount::default();
                self.spent = self.spent.plus(spent.amount());
                self.is_overrun |= spent.overrun != Amount::default();
                if self.purpose == Some(Purpose::Grace) {
                    self.last_words += 1;
                } else if spent.overrun == Amount::default() {
                    let calls = (0..).zip(&reply.calls).map(|(index, _)| CallId { turn: *turn, index });
                    self.open_calls = calls.collect();
                }
                assert!(self.last_words <= 1, "more than one last word");
            }
            Event::CallFailed { spent, .. } => {
                self.reserved = Amount::default();
                self.spent = self.spent.plus(spent.amount());
            }
            Event::ToolEnded { call, .. } => {
                assert!(self.open_calls.remove(call), "{call} is answered twice")
            }
            Event::Delegated { child, grant, .. } => {
                assert!(self.is_running && !self.is_cancelled, "lent after a cancel");
                let of = |limit: Limit, granted: Limit| {
                    if granted == Limit::Unlimited { 0 } else { limit.number() }
                };
                let loan = Amount {
                    tokens: of(grant.budget.tokens, self.granted.tokens),
                    usd: of(grant.budget.usd, self.granted.usd),
                    agents: of(grant.budget.agents, self.granted.agents).saturating_add(1),
                };
                assert!(self.lent.insert(child.clone(), loan).is_none(), "{child} is lent to twice");
            }
            Event::Returned { child, spent, .. } => {
                assert!(self.lent.remove(child).is_some(), "{child} returned without a loan");
                self.spent = self.spent.plus(spent.amount()).plus(Amount { agents: 1, ..Amount::default() });
                self.is_overrun |= spent.overrun != Amount::default();
            }
            Event::CancelAsked { .. } => self.is_cancelled = true,
            Event::Ended { outcome, .. } => {
                assert!(self.is_running, "a second end");
                assert!(self.open_calls.is_empty(), "an end with calls unanswered");
                let says_cancelled = matches!(outcome.status, Status::Cancelled { .. } | Status::Lost { .. });
                assert!(!self.is_cancelled || says_cancelled, "{outcome:?} after a cancel");
                assert!(self.lent.is_empty() && self.reserved == Amount::default(), "an end with loans out");
                self.is_running = false;
            }
            Event::Resumed { .. }
            | Event::Heard { .. }
            | Event::ToolStarted { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::Said { .. }
            | Event::LimitReached { .. }
            | Event::Compacted { .. } => {}
        }
    }
}

/// One session that chance runs. Children are run the same way when their loan is given back.
struct Run {
    state: State,
    log: Vec<Event>,
    books: Books,
    named: BTreeSet<CallId>,
    children: u32,
    depth: u32,
}

impl Run {
    fn begin(session: SessionId, round: &Round, world: &mut World) -> Run {
        let mut run = Run {
            state: State::new(session),
            log: Vec::new(),
            books: Books::default(),
            named: BTreeSet::new(),
            children: 0,
            depth: round.depth,
        };
        run.record(started(round), world);
        run
    }

    /// Appends a fact, if it is admitted.
    fn offer(&mut self, event: Event, world: &mut World) -> bool {
        let admitted = self.state.admits(&event);
        if admitted {
            self.state.apply(&event);
            let pos = world.records.len() as u64;
            let (session, seq) = (self.state.session().clone(), self.log.len() as u64);
            world.records.push(Record { session, seq, pos, at: pos, v: VERSION, event: event.clone() });
            self.books.enter(&event);
            self.log.push(event);
            self.check();
        }
        admitted
    }

    fn record(&mut self, event: Event, world: &mut World) {
        assert!(self.offer(event.clone(), world), "{event:?} is not admitted after {:?}", self.kinds());
    }

    fn check(&self) {
        let (ledger, books) = (self.state.ledger(), &self.books);
        assert_eq!(ledger.granted(), books.granted);
        assert_eq!(ledger.spent().amount(), books.spent);
        assert_eq!(ledger.reserved(), books.reserved);
        assert_eq!(ledger.lent(), books.lent());
        let committed = books.spent.plus(books.reserved).plus(books.lent());
        assert!(books.is_overrun || books.granted.fits(committed), "{committed:?} of {:?}", books.granted);
        assert!(
            books.turns.len() <= books.may_turn as usize,
            "more turns than {}: {:?}",
            books.may_turn,
            self.kinds()
        );
        assert_paired(&self.state.messages());
    }

    /// The log in short, for messages.
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

    /// The runner is gone; another one reads the log and closes the call that was open.
    fn crash(&mut self, world: &mut World) {
        let folded = State::fold(self.state.session().clone(), &self.log);
        assert_eq!(observed(&folded), observed(&self.state), "a fold differs from what was applied");
        self.state = folded;
        self.named.clear();
        if let Some(open) = self.state.open_call().cloned() {
            let (cause, spent) = (CallFault::Interrupted, Spent::doubtful(open.reserved));
            self.record(Event::CallFailed { turn: open.turn, attempt: open.attempt, cause, spent }, world);
            // The same turn is asked again, with the next attempt.
            assert_eq!(self.state.upcoming(), (open.turn, open.attempt + 1));
        }
    }

    fn go_by_chance(&mut self, steps: u64, world: &mut World) {
        for _ in 0..steps {
            if !world.chance.has_more() {
                return;
            }
            match world.chance.below(16) {
                0..=9 => self.follow(world),
                10..=12 => self.try_anything(world),
                13 => self.crash(world),
                14 => drop(self.offer(heard("by the way"), world)),
                _ if world.chance.below(4) > 0 => {}
                _ => {
                    let event = if world.chance.below(2) == 0 {
                        Event::CancelAsked { by: "someone".to_owned() }
                    } else {
                        Event::LimitReached { which: Which::Time }
                    };
                    self.offer(event, world);
                }
            }
        }
    }

    /// Does what the state says.
    fn follow(&mut self, world: &mut World) {
        match self.state.next() {
            Step::Nothing => {
                if self.state.rounds() < 3 && self.depth == 0 {
                    let round = Round { grant: some_grant(world), ..self.state.round().unwrap().clone() };
                    self.record(started(&round), world);
                    self.named.clear();
                }
            }
            Step::CallModel(purpose) => self.call_model(purpose, world),
            Step::RunCalls(calls) => {
                assert!(!calls.is_empty());
                for call in calls {
                    assert!(self.named.insert(call), "{call} is named twice");
                }
            }
            Step::Wait => self.progress(world),
            Step::End(outcome) => {
                let spent = self.state.ledger().spent();
                self.record(Event::Ended { outcome, spent }, world);
            }
        }
    }

    fn call_model(&mut self, purpose: Purpose, world: &mut World) {
        let (turn, attempt) = self.state.upcoming();
        let ledger = self.state.ledger();
        let free = ledger.granted().less(ledger.committed());
        let most = |limit: Limit| limit.number().min(10_000);
        let reserved =
            world.chance.part_of(Amount { tokens: most(free.tokens), usd: most(free.usd), agents: 0 });
        let request = self.state.fingerprint();
        if self.offer(Event::Called { turn, attempt, purpose, reserved, request }, world) {
            return;
        }
        // What the step says is refused for one reason only: it cannot be paid, as a child has overrun.
        assert!(self.books.is_overrun, "{purpose:?} is not admitted after {:?}", self.kinds());
        let (cause, spent) = (CallFault::Unaffordable, Spent::default());
        self.record(
            match purpose {
                Purpose::Grace => Event::CallFailed { turn, attempt, cause, spent },
                _ => Event::LimitReached { which: Which::Tokens },
            },
            world,
        );
    }

    fn progress(&mut self, world: &mut World) {
        if self.state.open_call().is_some() {
            let event = self.answer_of_the_model(world);
            return self.record(event, world);
        }
        let calls = self.state.unanswered();
        let call = calls[world.chance.below(calls.len() as u64) as usize];
        self.see_to(call, world);
    }

    fn see_to(&mut self, call: CallId, world: &mut World) {
        let progress = self.state.call(call).unwrap().progress.clone();
        let ended = || Event::ToolEnded { call, output: ToolOutput::ok("out") };
        let event = match progress {
            CallProgress::New | CallProgress::Decided(_) => match world.chance.below(5) {
                0 => ended(),
                1 => Event::Asked { call, what: "?".into(), until: 1, default: Answer::Once },
                2 => Event::ToolStarted { call, effect: Effect::Opaque, before: None, after: None },
                _ => self.delegated(call, world),
            },
            CallProgress::Asked => {
                let answer =
                    if world.chance.below(2) == 0 { Answer::Once } else { Answer::Deny { word: None } };
                Event::Answered { call, answer, by: "me".to_owned() }
            }
            CallProgress::Delegated { out, .. } if out > 0 => return self.return_one(world),
            CallProgress::Delegated { .. } if world.chance.below(4) == 1 => self.delegated(call, world),
            CallProgress::Started { .. } | CallProgress::Delegated { .. } => ended(),
            CallProgress::Answered => panic!("{call} is answered"),
        };
        if !self.offer(event, world) && !matches!(progress, CallProgress::Asked) {
            // Denied, stopped or not to be paid: the model is told.
            self.record(ended(), world);
        }
    }

    fn delegated(&mut self, call: CallId, world: &mut World) -> Event {
        self.children += 1;
        let mut grant = some_grant(world);
        let ledger = self.state.ledger();
        let free = ledger.granted().less(ledger.committed()).less(Amount { agents: 1, ..Amount::default() });
        // Mostly a part of what is there, now and then anything.
        match world.chance.below(6) {
            0 => {}
            1 => grant.budget = free,
            parts => grant.budget = free.share(parts),
        }
        Event::Delegated {
            call,
            child: self.state.session().child_of_many(call, self.children),
            delegation: Delegation { face: Face::Delegate, task: "help".into(), ..Delegation::default() },
            agent: Hash::of(b"agent"),
            grant,
        }
    }

    /// Runs a child to its end and books what it gives back.
    fn return_one(&mut self, world: &mut World) {
        let loans = self.state.loans();
        let at = world.chance.below(loans.len() as u64) as usize;
        let Some((child, loan)) = loans.iter().nth(at).map(|(child, loan)| (child.clone(), loan.clone()))
        else {
            return;
        };
        assert_eq!(loan.round.depth, self.depth + 1);
        let mut run = Run::begin(child.clone(), &loan.round, world);
        let steps = if run.depth > 3 { 0 } else { world.chance.below(25) };
        run.go_by_chance(steps, world);
        run.finish(world);
        let spent = run.state.ledger().spent();
        let used = spent.amount().plus(Amount { agents: 1, ..Amount::default() });
        let granted = self.books.granted;
        let counted = |used: u64, lent: u64, granted: Limit| granted == Limit::Unlimited || used <= lent;
        let within = counted(used.tokens, loan.amount.tokens, granted.tokens)
            && counted(used.usd, loan.amount.usd, granted.usd)
            && counted(used.agents, loan.amount.agents, granted.agents);
        assert!(within || run.books.is_overrun, "{used:?} of the loan {:?}", loan.amount);
        let outcome = run.state.ended().unwrap().clone();
        self.record(Event::Returned { child, outcome, spent }, world);
    }

    fn answer_of_the_model(&mut self, world: &mut World) -> Event {
        let open = self.state.open_call().cloned().unwrap();
        let (turn, attempt) = (open.turn, open.attempt);
        let cause = match world.chance.below(12) {
            1 | 2 => CallFault::Transient { message: "busy".to_owned() },
            3 => CallFault::Stopped,
            4 => CallFault::Fatal { message: "gone".to_owned() },
            number => {
                let calls = if (5..=9).contains(&number) { world.chance.below(4) } else { 0 };
                let call = ToolCall { name: "tool".to_owned(), arguments: "{}".into(), provider_id: None };
                let calls = vec![call; calls as usize];
                let mut used = world.chance.part_of(open.reserved);
                if number == 11 && world.chance.below(3) == 0 {
                    used = open.reserved.plus(Amount {
                        tokens: world.chance.below(50),
                        usd: world.chance.below(50),
                        agents: 0,
                    });
                }
                let usage = Usage { input: used.tokens, ..Usage::default() };
                let overrun = used.minus(open.reserved);
                let spent = Spent { usage, usd: used.usd, turns: 1, overrun, ..Spent::default() };
                return Event::Replied {
                    turn,
                    reply: Reply { text: "said".into(), calls, ..Reply::default() },
                    spent,
                };
            }
        };
        let spent = match cause {
            CallFault::Stopped => Spent::doubtful(open.reserved),
            _ => Spent::default(),
        };
        Event::CallFailed { turn, attempt, cause, spent }
    }

    /// Offers a fact that nobody asked for; what is not admitted does not happen.
    fn try_anything(&mut self, world: &mut World) {
        let (turn, attempt) = self.state.upcoming();
        let near = |number: u32, world: &mut World| (number + 1).saturating_sub(world.chance.below(3) as u32);
        let call = CallId { turn: near(turn, world).saturating_sub(1), index: world.chance.below(4) as u32 };
        let purpose = if world.chance.below(2) == 0 { Purpose::Turn } else { Purpose::Grace };
        let spent = self.state.ledger().spent();
        let status = match world.chance.below(5) {
            0 => Status::Done,
            1 => Status::Incomplete { limit: Which::Turns },
            2 => Status::Failed { cause: "x".to_owned() },
            3 => Status::Cancelled { by: "x".to_owned() },
            _ => Status::Lost { cause: "x".to_owned() },
        };
        let event = match world.chance.below(14) {
            0 | 1 => {
                let reserved =
                    Amount { tokens: world.chance.below(9000), usd: world.chance.below(9000), agents: 0 };
                let (turn, attempt) = if world.chance.below(2) == 0 {
                    (turn, attempt)
                } else {
                    (near(turn, world), near(attempt, world))
                };
                Event::Called { turn, attempt, purpose, reserved, request: Hash::of(b"") }
            }
            2 if self.state.open_call().is_some() => self.answer_of_the_model(world),
            3 => Event::ToolStarted { call, effect: Effect::Pure, before: None, after: None },
            4 => Event::ToolEnded { call, output: ToolOutput::error("no") },
            5..=7 => self.delegated(call, world),
            8 if !self.state.loans().is_empty() => return self.return_one(world),
            9 | 10 => Event::Ended { outcome: Outcome::new(status, ""), spent },
            11 => Event::Asked { call, what: "?".into(), until: 0, default: Answer::Once },
            12 => Event::Compacted { summary: "so far".into(), keep_from: turn },
            13 => Event::Resumed { epoch: 1, downtime: 1 },
            _ => Event::CallFailed { turn, attempt, cause: CallFault::Unaffordable, spent: Spent::default() },
        };
        self.offer(event, world);
    }

    /// Goes the plainest way to the end of the round; there always is one.
    fn finish(&mut self, world: &mut World) {
        self.crash(world);
        for _ in 0..200 {
            match self.state.next() {
                Step::Nothing => return self.check_whole(),
                Step::CallModel(purpose) => {
                    self.call_model(purpose, world);
                    if let Some(open) = self.state.open_call() {
                        let (turn, reply) = (open.turn, Reply { text: "over".into(), ..Reply::default() });
                        self.record(
                            Event::Replied { turn, reply, spent: Spent { turns: 1, ..Spent::default() } },
                            world,
                        );
                    }
                }
                Step::RunCalls(_) | Step::Wait => {
                    while !self.state.loans().is_empty() {
                        self.return_one(world);
                    }
                    for call in self.state.unanswered() {
                        self.record(Event::ToolEnded { call, output: ToolOutput::ok("closed") }, world);
                    }
                }
                Step::End(outcome) => {
                    let spent = self.state.ledger().spent();
                    self.record(Event::Ended { outcome, spent }, world);
                }
            }
        }
        panic!("no end after {:?}", self.kinds());
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

struct World {
    chance: Chance,
    records: Vec<Record>,
}

fn heard(text: &str) -> Event {
    Event::Heard { from: Speaker::Person, text: text.into() }
}

fn some_grant(world: &mut World) -> Grant {
    let turns = world.chance.below(8) as u32;
    let authority = Authority::default().hash();
    Grant { authority, budget: world.chance.budget(), turns, deadline: Limit::Unlimited }
}

fn started(round: &Round) -> Event {
    let Round { delegation, agent, grant, parent, depth } = round.clone();
    Event::Started { delegation, agent, grant, parent, depth }
}

/// All that can be seen of a state from outside.
fn observed(state: &State) -> String {
    format!(
        "{:?}",
        (
            (
                state.length(),
                state.rounds(),
                state.round(),
                state.ended(),
                state.open_call(),
                state.upcoming()
            ),
            (state.ledger(), state.loans(), state.unanswered(), state.faults(), state.limit_due()),
            (state.stopping(), state.has_unheard_words(), state.messages(), state.fingerprint()),
        )
    )
}

/// A tree that chance ran to its end: the root and all facts in the order of the store.
fn run_a_tree(numbers: Vec<u32>) -> (Run, World) {
    let mut world = World { chance: Chance { numbers, at: 0 }, records: Vec::new() };
    let round = Round {
        delegation: Delegation { task: "go".into(), ..Delegation::default() },
        agent: Hash::of(b"agent"),
        grant: some_grant(&mut world),
        parent: None,
        depth: 0,
    };
    let mut run = Run::begin(SessionId::root(1), &round, &mut world);
    run.go_by_chance(200, &mut world);
    run.finish(&mut world);
    (run, world)
}

fn chances(most: usize) -> impl Strategy<Value = Vec<u32>> {
    vec(any::<u32>(), 0..most)
}

proptest! {
    #![proptest_config(cases(500))]

    /// Every law of the books is asserted in [`Run::offer`] and [`Run::finish`].
    #[test]
    fn books_balance_and_every_round_can_end(numbers in chances(400)) {
        run_a_tree(numbers);
    }

    /// What the projection of a whole tree adds up is what the root's books say.
    #[test]
    fn a_trees_cost_is_that_of_its_roots_rounds(numbers in chances(250)) {
        let (run, world) = run_a_tree(numbers);
        let mut booked = Spent::default();
        for event in &run.log {
            if let Event::Ended { spent, .. } = event {
                booked = booked.plus(*spent);
            }
        }
        let tree = Tree::fold(&world.records);
        prop_assert_eq!(tree.spent(run.state.session()), booked);
        let sessions: BTreeSet<&SessionId> = world.records.iter().map(|record| &record.session).collect();
        prop_assert_eq!(tree.walk(run.state.session()).len(), sessions.len());
    }
}

#[test]
fn chance_meets_every_kind_of_end() {
    let mut statuses = BTreeSet::new();
    let (mut overruns, mut deepest) = (0, 0);
    let mut number = 1u32;
    for _ in 0..400 {
        let mut numbers = Vec::new();
        for _ in 0..200 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            numbers.push(number >> 8);
        }
        let (_, world) = run_a_tree(numbers);
        for record in &world.records {
            match &record.event {
                Event::Ended { outcome, .. } => drop(statuses.insert(outcome.status.word())),
                Event::Replied { spent, .. } if spent.overrun != Amount::default() => overruns += 1,
                Event::Started { depth, .. } => deepest = deepest.max(*depth),
                _ => {}
            }
        }
    }
    // The laws above would be empty if chance never led anywhere.
    assert!(
        ["cancelled", "done", "failed", "incomplete"].iter().all(|word| statuses.contains(word)),
        "{statuses:?}"
    );
    assert!(overruns > 10 && deepest >= 3, "{overruns} overruns, depth {deepest}");
}

// ---------------------------------------------------------------------------------------------------------------
// The request is valid whatever the log looks like.

fn assert_paired(messages: &[Message]) {
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
enum Edit {
    Drop,
    Duplicate,
    Swap(prop::sample::Index),
    Truncate,
    Behead,
}

fn edit() -> impl Strategy<Value = Edit> {
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
    let mut world = World { chance: Chance { numbers: Vec::new(), at: 0 }, records: Vec::new() };
    let session = SessionId::root(1);
    let event = Event::Delegated {
        call: CallId { turn: 1, index: 0 },
        child: session.clone(),
        delegation: Delegation::default(),
        agent: Hash::of(b""),
        grant: some_grant(&mut world),
    };
    let record = |seq, event| Record { session: session.clone(), seq, pos: seq, at: 0, v: VERSION, event };
    let deepest = Event::Started {
        delegation: Delegation::default(),
        agent: Hash::of(b""),
        grant: some_grant(&mut world),
        parent: None,
        depth: u32::MAX,
    };
    let tree = Tree::fold(&[record(0, event.clone()), record(1, deepest), record(2, event)]);
    assert_eq!(tree.walk(&session).len(), 1);
}

// ---------------------------------------------------------------------------------------------------------------
// Facts survive JSON, and what is not understood is refused.

fn samples() -> Vec<Event> {
    let session = SessionId::root(u128::MAX);
    let call = CallId { turn: 3, index: 1 };
    let hash = Hash::of(b"x");
    let amount = Amount { tokens: 1, usd: u64::MAX, agents: 2 };
    let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: u64::MAX };
    let spent = Spent { usage, usd: 4, agents: 5, turns: 6, in_doubt: amount, overrun: amount };
    let budget = Budget { tokens: Limit::AtMost(u64::MAX), usd: Limit::Unlimited, agents: Limit::AtMost(0) };
    let grant = Grant { authority: hash, budget, turns: 7, deadline: Limit::AtMost(1) };
    let text = || Text::from("multi\nline \u{1f}\u{20ac} \"quoted\" \\ \u{0}");
    let delegation = Delegation {
        face: Face::Spawn,
        agent: Some("a".to_owned()),
        role: Some("r".to_owned()),
        task: text(),
        context: Some(text()),
        tools: Some(vec![String::new()]),
        turns: Some(u32::MAX),
        budget: Some(budget),
        timeout: Some(u64::MAX),
        report: Some(text()),
        system_prompt: Some(Text::Blob { blob: hash, bytes: u64::MAX }),
        schema: Some("{}".into()),
        waiting: Waiting::Background,
        warnings: vec!["w".to_owned()],
    };
    let reply = Reply {
        text: text(),
        calls: vec![ToolCall {
            name: "n".to_owned(),
            arguments: "{".into(),
            provider_id: Some("p".to_owned()),
        }],
        opaque: vec![text()],
        stop: Stop::Refusal,
    };
    let mut events = vec![
        Event::Started {
            delegation: delegation.clone(),
            agent: hash,
            grant,
            parent: Some(session.clone()),
            depth: 9,
        },
        Event::Started { delegation: Delegation::default(), agent: hash, grant, parent: None, depth: 0 },
        Event::Resumed { epoch: u64::MAX, downtime: 0 },
        Event::Replied { turn: 1, reply, spent },
        Event::Replied { turn: 1, reply: Reply::default(), spent: Spent::default() },
        Event::ToolEnded { call, output: ToolOutput::error(text()) },
        Event::ToolEnded { call, output: ToolOutput::ok("") },
        Event::Delegated { call, child: session.child_of_many(call, 4), delegation, agent: hash, grant },
        Event::Said { call, text: Text::Blob { blob: hash, bytes: 0 } },
        Event::Compacted { summary: text(), keep_from: u32::MAX },
        Event::CancelAsked { by: "b".to_owned() },
    ];
    let speakers = [Speaker::Person, Speaker::Parent, Speaker::Child(session.child(call)), Speaker::Runtime];
    events.extend(speakers.map(|from| Event::Heard { from, text: text() }));
    let purposes = [Purpose::Turn, Purpose::Grace, Purpose::Summary, Purpose::Compaction];
    events.extend(purposes.map(|purpose| Event::Called {
        turn: 1,
        attempt: 2,
        purpose,
        reserved: amount,
        request: hash,
    }));
    let faults = [
        CallFault::Transient { message: "m".to_owned() },
        CallFault::Fatal { message: "m".to_owned() },
        CallFault::Interrupted,
        CallFault::Stopped,
        CallFault::Unaffordable,
    ];
    events.extend(faults.map(|cause| Event::CallFailed { turn: 1, attempt: 2, cause, spent }));
    for effect in [Effect::Pure, Effect::Keyed, Effect::Edit, Effect::Opaque] {
        for (before, after) in [(None, None), (None, Some(hash)), (Some(hash), Some(hash))] {
            events.push(Event::ToolStarted { call, effect, before, after });
        }
    }
    for answer in [
        Answer::Once,
        Answer::Always("shell(git *)".to_owned()),
        Answer::Deny { word: None },
        Answer::Deny { word: Some("no".to_owned()) },
    ] {
        events.push(Event::Asked { call, what: text(), until: u64::MAX, default: answer.clone() });
        events.push(Event::Answered { call, answer, by: "b".to_owned() });
    }
    for which in [Which::Turns, Which::Tokens, Which::Usd, Which::Time, Which::Agents] {
        events.push(Event::LimitReached { which });
    }
    for status in [
        Status::Done,
        Status::Incomplete { limit: Which::Usd },
        Status::Failed { cause: "c".to_owned() },
        Status::Cancelled { by: "b".to_owned() },
        Status::Lost { cause: "c".to_owned() },
        Status::Detached,
    ] {
        let mut outcome = Outcome::new(status, text());
        outcome.warnings = vec!["w".to_owned()];
        events.push(Event::Returned { child: session.child(call), outcome: outcome.clone(), spent });
        events.push(Event::Ended { outcome, spent });
    }
    events
}

fn through_json(event: &Event) -> Event {
    serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap()
}

#[test]
fn every_kind_of_fact_survives_json() {
    let samples = samples();
    let kinds: BTreeSet<&str> = samples.iter().map(Event::kind).collect();
    assert_eq!(kinds, BTreeSet::from(TYPES));
    for event in &samples {
        assert_eq!(&through_json(event), event);
        let value = serde_json::to_value(event).unwrap();
        assert_eq!(value["type"], event.kind());
        // Through a tree of values as well, as an export would read it.
        assert_eq!(&serde_json::from_value::<Event>(value).unwrap(), event);
        // What we write names no key twice.
        assert!(json::parse(&serde_json::to_string(event).unwrap()).is_ok());
        let record =
            Record { session: SessionId::root(0), seq: 0, pos: 1, at: 2, v: VERSION, event: event.clone() };
        let again: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(again, record);
    }
}

#[test]
fn unknown_kinds_of_facts_are_refused() {
    for text in [r#"{"type":"renamed"}"#, r#"{"type":"Started"}"#, "{}", "null"] {
        assert!(serde_json::from_str::<Event>(text).is_err(), "{text}");
    }
}

#[test]
fn unknown_fields_inside_a_grant_are_refused() {
    let hash = Hash::of(b"x").to_string();
    let grant =
        serde_json::json!({ "authority": hash, "budget": { "tokens": 5 }, "turns": 1, "deadline": 9 });
    assert!(serde_json::from_value::<Grant>(grant.clone()).is_ok());
    let with = |pointer: &str, key: &str| {
        let mut grant = grant.clone();
        grant.pointer_mut(pointer).unwrap()[key] = 1.into();
        grant
    };
    for grant in [with("", "turn"), with("", "network"), with("/budget", "token"), with("/budget", "seconds")]
    {
        assert!(serde_json::from_value::<Grant>(grant.clone()).is_err(), "{grant}");
        let started = serde_json::json!({
            "type": "started", "delegation": {}, "agent": hash, "grant": grant, "depth": 0
        });
        assert!(serde_json::from_value::<Event>(started.clone()).is_err(), "{started}");
    }
    for authority in [r#"{"tool": []}"#, r#"{"permissions": {"alow": []}}"#, r#"{"sandbox": "strict"}"#] {
        assert!(serde_json::from_str::<Authority>(authority).is_err(), "{authority}");
    }
    for limit in ["-1", "1.5", "null", "true", "\"none\"", "[]", "\"Unlimited\""] {
        assert!(serde_json::from_str::<Limit>(limit).is_err(), "{limit}");
    }
}

#[test]
fn absent_fields_of_a_grant_read_as_the_narrowest() {
    let grant: Grant =
        serde_json::from_value(serde_json::json!({ "authority": Hash::of(b"x").to_string() })).unwrap();
    let nothing = Budget { tokens: Limit::AtMost(0), usd: Limit::AtMost(0), agents: Limit::AtMost(0) };
    assert_eq!(grant.budget, nothing);
    assert_eq!((grant.turns, grant.deadline), (0, Limit::AtMost(0)));
    assert_eq!(
        serde_json::from_str::<Budget>(r#"{"tokens":5}"#).unwrap(),
        Budget { tokens: Limit::AtMost(5), ..nothing }
    );
    assert_eq!(Limit::default(), Limit::AtMost(0));
    // There is no narrowest hash: a grant without one is not read at all.
    assert!(serde_json::from_str::<Grant>("{}").is_err());
    let authority: Authority = serde_json::from_str("{}").unwrap();
    assert!(authority.tools.is_empty() && authority.lend.is_empty() && authority.paths.is_empty());
    assert_eq!((authority.deepest, authority.network, authority.speak), (0, Access::Denied, Access::Denied));
    assert!(!authority.agents.has("x") && !authority.models.has("x"));
    assert_eq!(authority.permissions.mode, Mode::Plan);
    assert!(authority.permissions.allow.is_empty());
    assert!(authority.attenuate(&Wish { levels: 9, ..Wish::default() }, 1).is_err());
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn facts_of_any_run_survive_json(numbers in chances(60)) {
        let (_, world) = run_a_tree(numbers);
        for record in &world.records {
            prop_assert_eq!(&through_json(&record.event), &record.event);
        }
    }

    #[test]
    fn any_text_survives_json(words in any::<String>(), more in vec(any::<char>(), 0..20)) {
        let text: String = words.chars().chain(more).collect();
        let event = heard(&text);
        prop_assert_eq!(through_json(&event), event);
    }

    #[test]
    fn any_authority_survives_json_under_the_same_hash(authority in authority()) {
        let again: Authority = serde_json::from_str(&authority.encoded()).unwrap();
        prop_assert_eq!(again.hash(), authority.hash());
        prop_assert_eq!(again, authority);
    }

    #[test]
    fn ids_survive_text(bits in any::<u128>(), calls in vec((any::<u32>(), any::<u32>(), any::<Option<u32>>()), 0..6)) {
        let root = SessionId::root(bits);
        prop_assert_eq!(root.as_str().len(), 26);
        let mut session = root.clone();
        for (turn, index, k) in calls {
            let call = CallId { turn, index };
            prop_assert_eq!(call.to_string().parse::<CallId>().unwrap(), call);
            let child = match k {
                Some(k) => session.child_of_many(call, k),
                None => session.child(call),
            };
            prop_assert_eq!(child.parent(), Some(session.clone()));
            prop_assert!(session.contains(&child) && root.contains(&child) && !child.contains(&session));
            session = child;
        }
        prop_assert_eq!(session.root_id(), root);
        prop_assert_eq!(session.to_string().parse::<SessionId>().unwrap(), session.clone());
        let json = serde_json::to_string(&session).unwrap();
        prop_assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), session);
    }

    #[test]
    fn what_parses_as_an_id_is_its_own_text(text in "[a-z2-7+0.\\-]{0,40}", call in "[0-9+\\- ]{0,8}") {
        if let Ok(session) = text.parse::<SessionId>() {
            prop_assert_eq!(session.to_string(), text);
        }
        if let Ok(id) = call.parse::<CallId>() {
            prop_assert_eq!(id.to_string(), call);
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>()) {
        let _ = (text.parse::<SessionId>(), text.parse::<CallId>(), text.parse::<Hash>(), json::parse(&text));
        let _ = (delegate::fold(&text), delegate::is_role(&text));
        let _ = SwarmConfig::default().parse(0, &Authority { deepest: 1, ..Authority::default() }, &text);
    }

    #[test]
    fn a_role_that_is_taken_stands_on_one_line(role in any::<String>()) {
        let arguments = serde_json::json!({ "role": role, "task": "x" }).to_string();
        let authority = Authority { deepest: 1, ..Authority::default() };
        if let Ok(delegation) = SwarmConfig::default().parse(0, &authority, &arguments) {
            let shown = delegation.role.clone().unwrap();
            prop_assert_eq!(shown.as_str(), role.trim());
            prop_assert!(shown.chars().count() <= 64 && !shown.contains(['[', ']', '\n', '\r']));
            let output = delegate::render(&delegation, &Outcome::new(Status::Done, "text"), 99, "h");
            prop_assert_eq!(output.text.to_string(), format!("[{shown}]: text"));
        }
    }

    #[test]
    fn roles_are_compared_after_folding(role in any::<String>()) {
        prop_assert_eq!(delegate::fold(&delegate::fold(&role)), delegate::fold(&role));
        prop_assert_eq!(delegate::fold(&format!(" {role}\t")), delegate::fold(&role));
    }
}

#[test]
fn hostile_ids_are_refused() {
    let root = SessionId::root(5).to_string();
    let long = "a".repeat(300);
    let deep = format!("{root}{}", ".1-0".repeat(2000));
    let hostile = [
        "",
        " ",
        ".",
        "..",
        "../../x",
        "..\\..\\x",
        "/etc/passwd",
        "\0",
        "a\0b",
        &long,
        &deep,
        "\u{430}".repeat(13).leak(),
        "\u{e9}",
        "*",
        ">",
        "session.>",
        "%2e%2e%2f",
        "CON",
        "A".repeat(26).leak(),
        "1".repeat(26).leak(),
    ];
    for id in hostile {
        assert!(id.parse::<SessionId>().is_err(), "{id:?}");
        assert!(serde_json::from_value::<SessionId>(id.into()).is_err(), "{id:?}");
        assert!(id.parse::<CallId>().is_err() && id.parse::<Hash>().is_err(), "{id:?}");
    }
    let tails = [
        ".",
        ".1",
        ".1-",
        ".-1",
        ".1-0.",
        "..1-0",
        ".1-0-",
        ".1-0-1-2",
        ".a-b",
        ".1-0/..",
        "/../x",
        "\0",
        " ",
        "\n",
        ".1-\u{661}",
        ".+1-0",
        ".1--0",
        ".12345678901-0",
        "a",
        ".1_0",
    ];
    for tail in tails {
        assert!(format!("{root}{tail}").parse::<SessionId>().is_err(), "{tail:?}");
    }
    for call in
        ["+1-0", "1-+0", "01-0", "1-00", "-1-0", "1--0", "1-0-0", " 1-0", "1-0 ", "4294967296-0", "\u{661}-0"]
    {
        assert!(call.parse::<CallId>().is_err(), "{call:?}");
    }
    for hash in ["0".repeat(63), "0".repeat(65), "g".repeat(64), format!("{}\0", "0".repeat(63))] {
        assert!(hash.parse::<Hash>().is_err(), "{hash:?}");
    }
    // A refusal does not carry the whole of it, nor what would disturb a terminal.
    let refusal = format!("\u{1b}[2J{long}{long}").parse::<SessionId>().unwrap_err().to_string();
    assert!(refusal.len() < 400 && !refusal.contains('\u{1b}'));
}

#[test]
fn ids_of_neighbours_do_not_contain_each_other() {
    let root = SessionId::root(5);
    let (one, ten) = (root.child(CallId { turn: 1, index: 1 }), root.child(CallId { turn: 1, index: 10 }));
    assert!(!one.contains(&ten) && !ten.contains(&one));
    assert!(!SessionId::root(6).contains(&one));
}

fn json_depth() -> impl Strategy<Value = (String, String)> {
    // An object in which one key stands twice, wrapped in lists and objects, and the same without the second.
    let wrap = vec(select(vec!["list", "object", "second"]), 0..20);
    (
        wrap,
        select(vec![
            ("\"k\"", "\"k\""),
            ("\"a\"", "\"\\u0061\""),
            ("\"\"", "\"\""),
            ("\"\\n\"", "\"\\u000a\""),
        ]),
    )
        .prop_map(|(wrap, (key, again))| {
            let mut twice = format!("{{{key}:1,\"z\":2,{again}:3}}");
            let mut once = format!("{{{key}:1,\"z\":2}}");
            for wrapper in wrap {
                for text in [&mut twice, &mut once] {
                    *text = match wrapper {
                        "list" => format!("[{text}]"),
                        "object" => format!("{{\"o\":{text}}}"),
                        _ => format!("{{\"first\":[],\"o\":[0,{text}]}}"),
                    };
                }
            }
            (twice, once)
        })
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth((twice, once) in json_depth()) {
        prop_assert!(json::parse(&twice).is_err(), "{}", twice);
        prop_assert_eq!(json::parse(&once).unwrap(), serde_json::from_str::<serde_json::Value>(&once).unwrap());
    }

    #[test]
    fn prices_are_rounded_up(
        usage in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
        price in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
    ) {
        let usage = Usage { input: usage.0, output: usage.1, cache_read: usage.2, cache_write: usage.3 };
        let price = Price { input: price.0, output: price.1, cache_read: price.2, cache_write: price.3 };
        let exact = u128::from(usage.input) * u128::from(price.input)
            + u128::from(usage.output) * u128::from(price.output)
            + u128::from(usage.cache_read) * u128::from(price.cache_read)
            + u128::from(usage.cache_write) * u128::from(price.cache_write);
        let cost = u128::from(price.of(usage));
        let fits = exact <= u128::from(u64::MAX) * 1_000_000;
        prop_assert!(!fits || (cost * 1_000_000 >= exact && cost * 1_000_000 < exact + 1_000_000));
        // However the input was cached, the worst case covers it.
        let input = usage.input + usage.cache_read + usage.cache_write;
        prop_assert!(price.worst(input, usage.output) >= price.of(usage));
    }

    #[test]
    fn prices_do_not_overflow(numbers in prop::array::uniform8(select(vec![0, 1, 999_999, 1_000_001, u64::MAX - 1, u64::MAX]))) {
        let [input, output, cache_read, cache_write, a, b, c, d] = numbers;
        let price = Price { input: a, output: b, cache_read: c, cache_write: d };
        let usage = Usage { input, output, cache_read, cache_write };
        let cost = price.of(usage);
        let uncached = Usage { input, ..Usage::default() };
        prop_assert!(price.worst(usage.total(), output) >= price.of(uncached));
        prop_assert!(cost > 0 || numbers[..4].iter().zip(&numbers[4..]).all(|(tokens, price)| *tokens == 0 || *price == 0));
        let spent = Spent { usage, usd: cost, agents: a, turns: b, ..Spent::default() };
        let _ = spent.plus(spent).plus(Spent::doubtful(spent.amount())).amount();
    }

    #[test]
    fn cutting_never_breaks_a_character(text in any::<String>(), limit in 0usize..40, huge in any::<usize>()) {
        for limit in [limit, huge, text.len(), text.len().saturating_sub(1)] {
            let short = cut(&text, limit);
            prop_assert!(text.starts_with(short) && short.len() <= limit);
            // Nothing is cut that would have fitted.
            prop_assert!(short.len() == text.len() || short.len() + 4 > limit);
        }
    }

    #[test]
    fn budgets_only_shrink(numbers in vec(any::<u32>(), 12), used in any::<(u16, u16, u16)>(), of in 0u64..5) {
        let mut chance = Chance { numbers, at: 0 };
        let (one, other) = (chance.budget(), chance.budget());
        let used = Amount { tokens: used.0.into(), usd: used.1.into(), agents: used.2.into() };
        let fits_in = |narrow: Budget, wide: Budget| narrow.min(wide) == narrow;
        prop_assert!(fits_in(one.min(other), one) && fits_in(one.min(other), other));
        prop_assert!(fits_in(one.less(used), one) && fits_in(one.share(of), one));
        if one.fits(used) && one.less(used).fits(used) {
            prop_assert!(one.fits(used.plus(used)));
        }
        // What fits as a loan leaves the lender at least nothing, and an unlimited loan fits no limited lender.
        let loan = other.as_loan(&one);
        prop_assert!(loan.agents >= 1);
        if one.fits(loan) {
            prop_assert!(one.tokens == Limit::Unlimited || other.tokens != Limit::Unlimited);
            prop_assert!(one.usd == Limit::Unlimited || other.usd != Limit::Unlimited);
            prop_assert!(one.tokens == Limit::Unlimited || other.tokens.number() <= one.tokens.number());
            prop_assert!(one.agents == Limit::Unlimited || other.agents.number() < one.agents.number());
        }
    }
}
