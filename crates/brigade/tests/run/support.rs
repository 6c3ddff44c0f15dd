//! Test harness for runs: a store that can crash, a model that counts, and checks of a finished tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::event::Answer;
use brigade::core::{Authority, Cursor, Event, Hash, Purpose, Record, Resources, SessionId};
use brigade::model::script::Script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::store::{
    Append, Appended, Expect, Followers, Lease, Owner, ReturnedChild, RootSummary, TreeTotals,
};
use brigade::{Models, Run, RunResult, Runtime, Settings, Store, StoreError, Task, Workspace};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::watch;

/// Time limit of every run.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Harness {
    pub(crate) store: Arc<CrashStore>,
    pub(crate) replies: Replies,
    pub(crate) folder: tempfile::TempDir,
    script: String,
    tweak: Box<dyn Fn(&mut Settings)>,
}

impl Harness {
    pub(crate) fn new(script: impl Display) -> Harness {
        Harness::with(script, |_| {})
    }

    pub(crate) fn with(script: impl Display, tweak: impl Fn(&mut Settings) + 'static) -> Harness {
        Harness {
            store: Arc::new(CrashStore::new(Arc::new(MemoryStore::new()))),
            replies: Replies::default(),
            folder: tempfile::tempdir().unwrap(),
            script: script.to_string(),
            tweak: Box::new(tweak),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A new runtime on the same store. It counts as a dead process, so that the next one takes over.
    pub(crate) fn runtime(&self) -> Runtime {
        let mut settings = Settings::new("script", Workspace::open(self.path()).unwrap());
        settings.limits.retry_pause = Duration::from_millis(5);
        (self.tweak)(&mut settings);
        let model =
            CountingModel { script: Script::parse(&self.script).unwrap(), replies: self.replies.clone() };
        let runtime = Runtime::new(self.store.clone(), settings, Models::default().with("script", model));
        runtime.with_owner(dead_owner())
    }

    pub(crate) async fn start(&self) -> Run {
        self.runtime().start(Task::new("the task")).await.unwrap()
    }

    pub(crate) async fn run(&self) -> RunResult {
        self.run_task(Task::new("the task")).await
    }

    pub(crate) async fn run_task(&self, task: Task) -> RunResult {
        let run = self.runtime().start(task).await.unwrap();
        end(run).await.unwrap()
    }

    /// All events of the tree, in store order.
    pub(crate) async fn log(&self, root: &SessionId) -> Vec<Record> {
        self.store.inner.tail(root, Cursor::START, usize::MAX).await.unwrap()
    }

    /// The log of one session.
    pub(crate) async fn events(&self, session: &SessionId) -> Vec<Event> {
        self.store.inner.read(session, 0).await.unwrap().into_iter().map(|record| record.event).collect()
    }

    /// Results of the calls of a session.
    pub(crate) async fn answers(&self, session: &SessionId) -> Vec<String> {
        let events = self.events(session).await;
        let mut answers: Vec<_> = events
            .into_iter()
            .filter_map(|event| match event {
                Event::ToolEnded { call, output, .. } => Some((call, output.text.to_string())),
                _ => None,
            })
            .collect();
        answers.sort_by_key(|(call, _)| *call);
        answers.into_iter().map(|(_, text)| text).collect()
    }
}

pub(crate) async fn end(run: Run) -> Result<RunResult, brigade::RunError> {
    tokio::time::timeout(TEST_TIMEOUT, run.result()).await.expect("the run hangs")
}

pub(crate) fn dead_owner() -> Owner {
    Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() }
}

/// Laws of every finished tree.
pub(crate) fn check_laws(log: &[Record]) {
    let mut sessions: BTreeMap<&SessionId, Vec<&Event>> = BTreeMap::new();
    for record in log {
        let events = sessions.entry(&record.session).or_default();
        assert_eq!(record.seq, events.len() as u64, "seq is dense");
        events.push(&record.event);
    }
    for (session, events) in sessions {
        let count = |wanted: &str| events.iter().filter(|event| event.kind() == wanted).count();
        assert_eq!(count("started"), count("ended"), "{session}: one end for each round");
        assert_eq!(count("delegated"), count("returned"), "{session}: every loan comes back");
        let calls: usize = events
            .iter()
            .filter_map(|event| match event {
                Event::Replied { reply, .. } => Some(reply.calls.len()),
                _ => None,
            })
            .sum();
        assert!(count("tool_ended") <= calls, "{session}: at most one answer for each call");
        let mut state = brigade::core::State::new(session.clone());
        let mut round = RoundLaws::default();
        for event in events {
            round.before(&state, event);
            assert!(
                state.admits(event) || event.is_external(),
                "{session}: {} may not stand at {}",
                event.kind(),
                state.length()
            );
            state.apply(event);
            let ledger = state.ledger();
            assert!(ledger.granted().fits(ledger.committed()), "{session}: more committed than granted");
            let planned = ledger.committed().plus(ledger.overrun()).minus(round.excess);
            assert!(ledger.granted().fits(planned), "{session}: more planned than granted");
        }
    }
}

/// Checks that no imported open work runs, and that no local round exceeds the configuration.
pub(crate) async fn check_import(store: &dyn Store, root: &SessionId, mark: Cursor, settings: &Settings) {
    let log = store.tail(root, Cursor::START, usize::MAX).await.unwrap();
    let mut foreign = BTreeSet::new();
    for record in &log {
        match &record.event {
            Event::Replied { turn, .. } if !store.is_after(record.pos, mark) => {
                foreign.insert((record.session.clone(), *turn));
            }
            Event::ToolStarted { call, .. } | Event::Delegated { call, .. }
                if store.is_after(record.pos, mark) =>
            {
                assert!(
                    !foreign.contains(&(record.session.clone(), call.turn)),
                    "{} ran {call}",
                    record.session
                );
            }
            Event::Started { grant, .. } if store.is_after(record.pos, mark) => {
                let body = store.blob(grant.authority).await.unwrap().unwrap();
                let authority: Authority = serde_json::from_str(&body).unwrap();
                assert!(authority.permissions.mode <= settings.permissions.mode, "{}", record.session);
                assert!(
                    settings.permissions.deny.iter().all(|rule| authority.permissions.deny.contains(rule))
                );
                assert_eq!(grant.budget.min(settings.budget), grant.budget, "{}", record.session);
                assert_eq!(authority.workspace, settings.workspace.root().to_string_lossy());
                assert!(authority.max_depth <= settings.limits.max_depth);
            }
            _ => {}
        }
    }
}

/// Laws of every round.
#[derive(Default)]
struct RoundLaws {
    /// Usage above its reserve. Only this may exceed the grant.
    excess: Resources,
    has_worked: bool,
}

impl RoundLaws {
    fn before(&mut self, state: &brigade::core::State, event: &Event) {
        match event {
            Event::Started { .. } => *self = RoundLaws::default(),
            Event::Called { purpose: Purpose::Grace | Purpose::Summary, input: 1.., .. } => {
                assert!(self.has_worked, "{}: a wrap-up call before any work", state.session());
            }
            Event::Replied { spent, .. } | Event::CallFailed { spent, .. } => {
                let reserved = state.open_call().map(|call| call.reserved).unwrap_or_default();
                self.excess = self.excess.plus(spent.amount().minus(reserved));
                let is_turn = state.open_call().is_some_and(|call| call.purpose == Purpose::Turn);
                self.has_worked |= is_turn && matches!(event, Event::Replied { .. });
            }
            Event::Returned { child, spent, .. } => {
                let used = spent.amount().plus(Resources { agents: 1, ..Resources::default() });
                let lent = state.loans().get(child).map(|loan| loan.amount).unwrap_or_default();
                self.excess = self.excess.plus(used.minus(lent));
            }
            _ => {}
        }
    }
}

/// Number of replies per session and turn that the model has begun, as an independent count.
#[derive(Clone, Default)]
pub(crate) struct Replies(Arc<Mutex<BTreeMap<(SessionId, u32), u32>>>);

impl Replies {
    pub(crate) fn count(&self) -> u32 {
        self.0.lock().unwrap().values().sum()
    }

    pub(crate) fn count_for(&self, session: &SessionId, turn: u32) -> u32 {
        self.0.lock().unwrap().get(&(session.clone(), turn)).copied().unwrap_or(0)
    }
}

struct CountingModel {
    script: Script,
    replies: Replies,
}

impl Model for CountingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let key = (request.session.clone(), request.turn);
        *self.replies.0.lock().unwrap().entry(key).or_default() += 1;
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}

/// A store that crashes before a chosen append, like a killed process.
pub(crate) struct CrashStore {
    pub(crate) inner: Arc<dyn Store>,
    appends_left: AtomicI64,
    pub(crate) appends: AtomicI64,
    /// Number of records and external events that were read.
    pub(crate) rows: AtomicUsize,
    /// Whether the user approves just before the time limit denies.
    pub(crate) is_answered_first: AtomicBool,
    /// Random faults, if they are switched on.
    faults: Mutex<Option<Faults>>,
    /// Appends until the store is out of reach for good.
    reachable_for: AtomicI64,
}

/// Seeded source of faults that a store on another machine can have.
struct Faults {
    state: u64,
    counts: BTreeMap<Fault, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Nothing is written, and the caller learns that.
    Unavailable,
    /// The append is written, but the answer is lost.
    AnswerLost,
    /// The append is lost, and so is the answer.
    RequestLost,
    /// The answer is lost, and the append is written a moment later.
    Late,
    /// A read finds no store.
    UnreadableNow,
}

impl Faults {
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    fn count(&mut self, fault: Fault) -> Fault {
        *self.counts.entry(fault).or_default() += 1;
        fault
    }
}

pub(crate) fn unavailable(retry: Option<Duration>) -> StoreError {
    StoreError::Unavailable { place: "elsewhere".into(), cause: "the connection was closed".into(), retry }
}

impl CrashStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> CrashStore {
        let (appends_left, appends) = (AtomicI64::new(i64::MAX), AtomicI64::new(0));
        CrashStore {
            inner,
            appends_left,
            appends,
            rows: AtomicUsize::new(0),
            is_answered_first: AtomicBool::new(false),
            faults: Mutex::default(),
            reachable_for: AtomicI64::new(i64::MAX),
        }
    }

    /// Makes about half of all appends and a third of all reads fail for a moment.
    pub(crate) fn fail_at_random(&self, seed: u64) {
        let state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *self.faults.lock().unwrap() = Some(Faults { state, counts: BTreeMap::new() });
    }

    /// Makes all appends fail after this many, without hope for a retry.
    pub(crate) fn fail_for_good_after(&self, appends: i64) {
        self.reachable_for.store(appends, Ordering::SeqCst);
    }

    /// Ends the faults and returns how many of each kind there were.
    pub(crate) fn faults(&self) -> BTreeMap<Fault, u32> {
        self.faults.lock().unwrap().take().map(|faults| faults.counts).unwrap_or_default()
    }

    fn append_fault(&self) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let faults = faults.as_mut()?;
        let fault = match faults.below(8) {
            0 => Fault::Unavailable,
            1 => Fault::AnswerLost,
            2 => Fault::RequestLost,
            3 => Fault::Late,
            _ => return None,
        };
        Some(faults.count(fault))
    }

    fn is_unreadable_now(&self) -> bool {
        let mut faults = self.faults.lock().unwrap();
        faults.as_mut().is_some_and(|faults| {
            let is_hit = faults.below(3) == 0;
            if is_hit {
                faults.count(Fault::UnreadableNow);
            }
            is_hit
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the late append outlives its caller on purpose")]
    async fn append_with(&self, fault: Fault, append: Append) -> Result<Appended, StoreError> {
        let Expect::Length(seq) = append.expect else { return self.inner.append(append).await };
        let unknown = StoreError::OutcomeUnknown { session: append.session.clone(), seq };
        match fault {
            Fault::Unavailable | Fault::UnreadableNow => return Err(unavailable(Some(Duration::ZERO))),
            Fault::RequestLost => {}
            // A refusal is an answer, which is lost too.
            Fault::AnswerLost => drop(self.inner.append(append).await),
            Fault::Late => {
                let inner = self.inner.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(append.at % 20)).await;
                    let _ = inner.append(append).await;
                });
            }
        }
        Err(unknown)
    }

    /// The user's approval for the request that an append answers.
    fn earlier_answer(&self, append: &Append) -> Option<Append> {
        let call = append.events.iter().find_map(|event| match event {
            Event::Answered { call, .. } if append.lease.is_some() => Some(*call),
            _ => None,
        })?;
        let answer = Event::Answered { call, answer: Answer::Once, by: "the user".to_owned() };
        let (expect, events, lease) = (Expect::Exists, Arc::new(vec![answer]), None);
        let is_asked_for = self.is_answered_first.swap(false, Ordering::SeqCst);
        is_asked_for.then(|| Append { expect, events, lease, blobs: Vec::new(), ..append.clone() })
    }

    /// Crashes after this many further appends.
    pub(crate) fn crash_after(&self, appends: i64) {
        self.appends_left.store(appends, Ordering::SeqCst);
    }

    pub(crate) fn repair(&self) {
        self.crash_after(i64::MAX);
    }

    fn is_down(&self) -> bool {
        self.appends_left.load(Ordering::SeqCst) < 0
    }

    fn guard<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        // A store may begin a write as soon as it is called.
        if self.is_down() { Box::pin(std::future::ready(Err(StoreError::Closed))) } else { work() }
    }
}

impl CrashStore {
    /// Same, and counts the records that were read.
    fn counted<'a, T: Send + 'a>(
        &'a self,
        rows: fn(&T) -> usize,
        work: impl FnOnce() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let read = self.guard(work);
        Box::pin(async move {
            let read = read.await?;
            self.rows.fetch_add(rows(&read), Ordering::SeqCst);
            Ok(read)
        })
    }
}

impl Store for CrashStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        if self.appends_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.appends_left.store(-1, Ordering::SeqCst);
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        }
        if self.reachable_for.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Box::pin(std::future::ready(Err(unavailable(None))));
        }
        let first = self.earlier_answer(&append);
        if let Some(fault) = self.append_fault() {
            return Box::pin(self.append_with(fault, append));
        }
        Box::pin(async move {
            if let Some(first) = first {
                self.inner.append(first).await?;
            }
            self.inner.append(append).await
        })
    }
    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        if self.is_unreadable_now() {
            return Box::pin(std::future::ready(Err(unavailable(Some(Duration::ZERO)))));
        }
        self.counted(Vec::len, || self.inner.read(session, from))
    }
    fn read_prefix(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<(Vec<Record>, Option<StoreError>), StoreError>> {
        self.counted(|(records, _)| records.len(), || self.inner.read_prefix(session))
    }
    fn tail(
        &self,
        root: &SessionId,
        after: Cursor,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.counted(Vec::len, || self.inner.tail(root, after, limit))
    }
    fn external_events(
        &self,
        root: &SessionId,
        after: Cursor,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Cursor)>, StoreError>> {
        self.counted(Vec::len, || self.inner.external_events(root, after))
    }
    fn verify(
        &self,
        root: &SessionId,
        children: Vec<ReturnedChild>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.guard(|| self.inner.verify(root, children))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
    fn followers(&self) -> &Followers {
        self.inner.followers()
    }
    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>> {
        self.guard(|| self.inner.lease(root, owner, at))
    }
    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.guard(|| self.inner.renew(lease, at))
    }
    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>> {
        self.guard(|| self.inner.release(lease))
    }
    fn runner(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Owner>, StoreError>> {
        self.guard(|| self.inner.runner(root))
    }
    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>> {
        self.guard(|| self.inner.roots())
    }
    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>> {
        self.guard(|| self.inner.totals(roots))
    }
    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.guard(|| self.inner.has_edit(content))
    }
    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        self.guard(|| self.inner.sessions(root))
    }
    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.guard(|| self.inner.remove(root))
    }
    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>> {
        self.guard(|| self.inner.blob(hash))
    }
    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.guard(|| self.inner.restore(records, blobs))
    }
    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Cursor>, StoreError>> {
        self.guard(|| self.inner.imported(root))
    }
}
