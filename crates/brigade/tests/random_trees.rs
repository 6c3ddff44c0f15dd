//! Random trees over all delegation styles, with crashes, cancellations, external messages and background
//! children.
//!
//! Everything follows from a seed: `TREES_SEED=N cargo test --test it random_trees` runs the one tree with that
//! seed, and a failure names it. `TREES=N` sets the number of trees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::run::support::{CrashStore, check_import, check_laws};
use brigade::core::delegation_styles::delegate::SwarmRole;
use brigade::core::delegation_styles::spawn::SpawnConfig;
use brigade::core::delegation_styles::subagent::SubagentConfig;
use brigade::core::delegation_styles::{EnabledStyles, ExtraParameter};
use brigade::core::message::Stop;
use brigade::core::permission::Mode;
use brigade::core::{
    Agent, Authority, Budget, Cursor, Delegation, DelegationStyle, Event, Hash, Limit, Price, Record,
    SessionId, State, Status, Usage,
};
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::store::{Owner, export, import};
use brigade::{
    AgentCatalog, Models, ResumeOptions, Run, RunError, RunResult, Runtime, Settings, Store, Task, Workspace,
};
use futures::stream::{self, BoxStream, StreamExt};

/// Number of trees in a default test run.
const TREES: u64 = 200;
/// Maximum number of crashes per tree.
const MAX_CRASHES: u32 = 4;

/// Random numbers that depend only on a seed.
struct SeededRng(u64);

impl SeededRng {
    fn of(parts: &[&[u8]]) -> SeededRng {
        let mut hash = Hash::of(b"dice");
        for part in parts {
            hash = hash.chain("part", &[part]);
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.as_bytes()[..8]);
        SeededRng(u64::from_le_bytes(bytes) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// Model with random replies that depend on the place in the tree.
struct RandomModel {
    seed: u64,
}

impl Model for RandomModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let place = request.session.as_str().split_once('.').map_or("", |(_, path)| path).to_owned();
        let mut rng = SeededRng::of(&[
            &self.seed.to_le_bytes(),
            place.as_bytes(),
            &request.turn.to_le_bytes(),
            &[request.tools.len() as u8],
        ]);
        if rng.one_in(40) {
            return stream::iter([Err(ModelError::Fatal("no luck".to_owned()))]).boxed();
        }
        let mut chunks = vec![Chunk::Text(format!("words of {place} at {}", request.turn))];
        if !request.tools.is_empty() && !rng.one_in(3) {
            for _ in 0..=rng.below(3) {
                let (name, arguments) = call(&mut rng, &request.session);
                chunks.push(Chunk::Call { name, provider_id: None });
                chunks.push(Chunk::Arguments(arguments));
            }
        }
        let mut usage = Usage { input: 50 + rng.below(100), output: 5 + rng.below(20), ..Usage::default() };
        if rng.one_in(10) {
            // A server that ignores the output limit, and a proxy that adds its own prompt.
            usage.output = request.max_tokens.saturating_mul(rng.below(3)).saturating_add(rng.below(500));
            usage.input += rng.below(5_000);
        }
        chunks.extend([Chunk::Usage(usage), Chunk::Done(Stop::End)]);
        stream::iter(chunks.into_iter().map(Ok)).boxed()
    }

    fn model_info(&self, _model: &str) -> ModelInfo {
        let price = Price { input: 1_000_000, output: 5_000_000, ..Price::default() };
        ModelInfo { price: Some(price), ..ModelInfo::default() }
    }
}

fn call(rng: &mut SeededRng, session: &SessionId) -> (String, String) {
    let role = rng.pick(&["Ada", "Bob", "a", "Zo\u{eb}"]).to_owned();
    let background = match rng.below(8) {
        0 | 1 => r#", "background": true"#,
        2 => r#", "background": "detach""#,
        _ => "",
    };
    let tools = match rng.below(5) {
        0 => r#", "tools": ["echo"]"#,
        1 => r#", "tools": []"#,
        2 => r#", "tools": ["echo", "delegate", "grep", "glob", "nonsense"]"#,
        _ => "",
    };
    let budget = match rng.below(6) {
        0 => r#", "tokens": 9000"#,
        1 => r#", "tokens": "2k", "usd": 0.01"#,
        _ => "",
    };
    let helper = |rng: &mut SeededRng| {
        let allowed = rng.pick(&[
            "",
            r#", "allowed_tools": []"#,
            r#", "allowed_tools": ["echo"]"#,
            r#", "allowed_tools": ["grep"]"#,
        ]);
        format!(r#"{{"label": "h", "task_prompt": "help", "max_turns": {}{allowed}"#, 1 + rng.below(3))
    };
    let some_child = format!("{session}.{}-{}", 1 + rng.below(3), rng.below(3));
    let (name, arguments) = match rng.below(12) {
        0 | 1 => ("echo", r#"{"text": "x"}"#.to_owned()),
        2 | 3 => ("delegate", format!(r#"{{"role": "{role}", "task": "go"{tools}{background}{budget}}}"#)),
        4 | 5 => ("subagent", format!("{}{background}}}", helper(rng))),
        6 => {
            let tasks: Vec<String> = (0..1 + rng.below(3)).map(|_| helper(rng) + "}").collect();
            let fast = rng.one_in(2);
            let most = 1 + rng.below(3);
            let tasks = tasks.join(",");
            (
                "parallel_subagent",
                format!(r#"{{"tasks": [{tasks}], "max_concurrent": {most}, "fail_fast": {fast}}}"#),
            )
        }
        7 => {
            let id = rng.pick(&["a", "b", "c", "d", "nobody"]);
            ("subagent_dispatch", format!(r#"{{"agent_id": "{id}", "task": "go"{background}}}"#))
        }
        8 => {
            ("subagent_spawn", format!(r#"{{"task": "go", "description": "d", "maxTurns": 2{background}}}"#))
        }
        9 => ("subagent_delegate", r#"{"task": "go", "description": "one"}"#.to_owned()),
        10 => match rng.below(3) {
            0 => ("tell", format!(r#"{{"session_id": "{some_child}", "text": "well?"}}"#)),
            1 => ("stop", format!(r#"{{"session_id": "{some_child}"}}"#)),
            _ => ("read_result", format!(r#"{{"handle": "{some_child}"}}"#)),
        },
        _ => ("message", r#"{"text": "hello"}"#.to_owned()),
    };
    let arguments = if rng.one_in(25) { arguments.replace('}', "") } else { arguments };
    (name.to_owned(), arguments)
}

fn settings(rng: &mut SeededRng, workspace: &Workspace) -> Settings {
    let mut settings = Settings::new("babble", workspace.clone());
    let agent = |id: &str, cap: u64, tools: Option<&[&str]>| Agent {
        id: id.to_owned(),
        name: id.to_owned(),
        description: id.to_owned(),
        prompt: id.to_owned(),
        max_concurrency: u32::try_from(cap).ok().filter(|cap| *cap > 0),
        tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
        ..Agent::default()
    };
    settings.agents = AgentCatalog::new()
        .with(agent("a", rng.below(3), None))
        .with(agent("b", 1, Some(&["echo", "subagent_dispatch"])))
        .with(agent("c", 0, Some(&["echo", "message"])))
        .with(Agent {
            lend: Some(vec!["echo".to_owned(), "grep".to_owned()]),
            ..agent("d", 0, Some(&["glob"]))
        });
    if rng.one_in(2) {
        // A root from an agent file, which may lend more than it may use.
        settings.lead.tools = Some(["echo", "message"].map(str::to_owned).to_vec());
    }
    let preset = SwarmRole {
        tools: ["echo", "grep"].map(str::to_owned).to_vec(),
        locked: rng.one_in(2),
        tokens: rng.one_in(3).then_some(20_000),
        ..SwarmRole::default()
    };
    settings.delegation_styles.swarm.roles = BTreeMap::from([("Bob".to_owned(), preset)]);
    settings.delegation_styles.swarm.max_depth = u32::try_from(rng.below(4)).unwrap();
    settings.delegation_styles.swarm.max_concurrent = u32::try_from(rng.below(4)).unwrap();
    settings.delegation_styles.subagent =
        Some(SubagentConfig { max_depth: u32::try_from(rng.below(5)).unwrap(), ..SubagentConfig::default() });
    settings.delegation_styles.spawn =
        Some(SpawnConfig { max_depth: u32::try_from(rng.below(4)).unwrap(), ..SpawnConfig::default() });
    settings.delegation_styles.delegation.styles = EnabledStyles::Auto;
    settings.delegation_styles.delegation.extras =
        [ExtraParameter::Background, ExtraParameter::Tokens, ExtraParameter::Usd].into();
    settings.limits.max_depth = u32::try_from(1 + rng.below(4)).unwrap();
    settings.limits.concurrency = usize::try_from(1 + rng.below(4)).unwrap();
    settings.limits.lead_turns = 4;
    settings.limits.child_turns = 3;
    settings.limits.result_bytes = 20;
    let tokens = match rng.below(3) {
        0 => Limit::AtMost(3_000 + rng.below(30_000)),
        _ => Limit::AtMost(3_000_000),
    };
    settings.budget = Budget { tokens, usd: Limit::Unlimited, agents: Limit::AtMost(rng.below(30)) };
    settings
}

/// Creates a runtime that counts as a dead process, so that the next one takes over.
fn runtime(store: &Arc<CrashStore>, seed: u64, workspace: &Workspace) -> Runtime {
    let mut rng = SeededRng::of(&[b"settings", &seed.to_le_bytes()]);
    let models = Models::default().with("babble", RandomModel { seed });
    let owner = Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() };
    Runtime::new(store.clone(), settings(&mut rng, workspace), models).with_owner(owner)
}

/// Time limit for every tree.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for the end of a run. A run that hangs prints its log.
async fn end(run: Run, store: &CrashStore) -> Result<RunResult, RunError> {
    let root = run.session().clone();
    match tokio::time::timeout(TEST_TIMEOUT, run.result()).await {
        Ok(ended) => ended,
        Err(_) => {
            for record in store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap() {
                let line = serde_json::to_string(&record.event).unwrap();
                let session = record.session.as_str().trim_start_matches(root.as_str());
                println!("{session:12} {:3} {}", record.seq, line.chars().take(200).collect::<String>());
            }
            panic!("the run hangs");
        }
    }
}

async fn one_tree(seed: u64, workspace: &Workspace) -> usize {
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let mut rng = SeededRng::of(&[b"fate", &seed.to_le_bytes()]);
    let max_depth = runtime(&store, seed, workspace).settings().limits.max_depth;
    let root = runtime(&store, seed, workspace).new_session().unwrap();
    let crashes = rng.one_in(2);
    if crashes {
        store.crash_after(i64::try_from(1 + rng.below(60)).unwrap());
    }
    let interference = rng.one_in(2).then(|| {
        let (root, moment, cancels) = (root.clone(), rng.below(25), rng.one_in(2));
        let runtime = runtime(&store, seed, workspace);
        let store = store.clone();
        let child = rng.below(3);
        async move {
            while store.appends.load(Ordering::SeqCst) < i64::try_from(moment).unwrap() {
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
            let child: SessionId = format!("{root}.1-{child}").parse().unwrap();
            let _ = runtime.tell(&child, "words from outside").await;
            let _ = if cancels {
                runtime.cancel(&root, "the dice").await
            } else {
                runtime.tell(&root, "more").await
            };
        }
    });
    let interference = interference.map(tokio::spawn);
    let task = Task::new("the task").session(root.clone());
    let mut ended = match runtime(&store, seed, workspace).start(task).await {
        Ok(run) => end(run, &store).await,
        Err(error) => Err(error),
    };
    for crash in 0.. {
        match ended {
            Ok(result) => {
                let left = result.detached.ended();
                tokio::time::timeout(TEST_TIMEOUT, left).await.expect("a detached child hangs");
                break;
            }
            Err(RunError::Store(_)) if crash <= MAX_CRASHES => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        store.repair();
        if crash < MAX_CRASHES && rng.one_in(2) {
            store.crash_after(i64::try_from(1 + rng.below(30)).unwrap());
        }
        if store.inner.read(&root, 0).await.unwrap().is_empty() {
            return 0;
        }
        ended = match runtime(&store, seed, workspace).resume(&root, ResumeOptions::default()).await {
            Ok(run) => end(run, &store).await,
            Err(error) => Err(error),
        };
    }
    if let Some(interference) = interference {
        interference.abort();
    }
    store.repair();
    // A message that arrived at the very end requests a next round.
    if let Ok(run) = runtime(&store, seed, workspace).resume(&root, ResumeOptions::default()).await {
        let result = end(run, &store).await.unwrap();
        tokio::time::timeout(TEST_TIMEOUT, result.detached.ended()).await.expect("a detached child hangs");
    }
    finish_detached(&store, seed, workspace, &root).await;
    let log = store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap();
    check_laws(&log);
    check_tree(seed, &*store.inner, &log, max_depth).await;
    log.iter().filter(|record| matches!(record.event, Event::Delegated { .. })).count()
}

/// Resumes detached sessions that lost their runner in a crash, and the sessions that those detached.
async fn finish_detached(store: &Arc<CrashStore>, seed: u64, workspace: &Workspace, root: &SessionId) {
    for _ in 0..20 {
        let log = store.inner.tail(root, Cursor::START, usize::MAX).await.unwrap();
        let mut open = None;
        for record in &log {
            let Event::Returned { child, outcome, .. } = &record.event else { continue };
            let events: Vec<Event> =
                store.inner.read(child, 0).await.unwrap().into_iter().map(|record| record.event).collect();
            if outcome.status == Status::Detached && State::fold(child.clone(), &events).is_running() {
                open = Some(child.clone());
            }
        }
        let Some(open) = open else { return };
        let run = runtime(store, seed, workspace).resume(&open, ResumeOptions::default()).await.unwrap();
        let result = end(run, store).await.unwrap();
        tokio::time::timeout(TEST_TIMEOUT, result.detached.ended()).await.expect("a detached child hangs");
    }
    panic!("seed {seed}: there is always something left");
}

/// Checks depth and authority: no child is deeper or wider than its parent allows.
async fn check_tree(seed: u64, store: &dyn Store, log: &[Record], max_depth: u32) {
    let mut grants: BTreeMap<&SessionId, (Authority, u32)> = BTreeMap::new();
    for record in log {
        let Event::Started { delegation, grant, depth, parent, .. } = &record.event else { continue };
        let body = store.blob(grant.authority).await.unwrap().expect("an authority is kept with who has it");
        let authority: Authority = serde_json::from_str(&body).unwrap();
        assert!(*depth <= max_depth, "seed {seed}: {} is at depth {depth}", record.session);
        if let Some((lender, at)) = parent.as_ref().and_then(|parent| grants.get(parent)) {
            assert!(authority.is_within(lender), "seed {seed}: {} has more than its parent", record.session);
            assert_eq!(*depth, at + 1, "seed {seed}");
            assert!(*depth <= lender.max_depth, "seed {seed}: deeper than its path allows");
            let more: Vec<&String> = authority.tools.difference(&lender.tools).collect();
            // `message` depends on whether the parent may lend it, for every role.
            let is_own = |tool: &&String| delegation.style == DelegationStyle::Delegate && *tool == "message";
            assert!(
                !is_made_up(delegation) || more.iter().all(is_own),
                "seed {seed}: {} was made up by a model and has {more:?}, which its caller lacks",
                record.session
            );
        }
        let mut above = parent.clone();
        while let Some(ancestor) = above {
            if let Some((ancestor, _)) = grants.get(&ancestor) {
                assert!(authority.tools.union(&authority.lend).all(|tool| ancestor.lend.contains(tool)));
            }
            above = ancestor.parent();
        }
        grants.insert(&record.session, (authority, *depth));
    }
}

/// Whether a child comes from neither a preset nor an agent definition.
fn is_made_up(delegation: &Delegation) -> bool {
    let is_preset =
        delegation.style == DelegationStyle::Delegate && delegation.role.as_deref() == Some("Bob");
    delegation.agent.is_none() && !is_preset
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a tree until its process is killed, imports it into another store under narrower settings, and resumes it
/// there. Returns the number of calls that were open at the import.
async fn one_import(seed: u64, workspace: &Workspace) -> usize {
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let mut rng = SeededRng::of(&[b"import", &seed.to_le_bytes()]);
    let root = runtime(&store, seed, workspace).new_session().unwrap();
    store.crash_after(i64::try_from(3 + rng.below(8)).unwrap());
    let task = Task::new("the task").session(root.clone());
    if let Ok(run) = runtime(&store, seed, workspace).start(task).await {
        let _ = end(run, &store).await;
    }
    store.repair();
    if store.inner.read(&root, 0).await.unwrap().is_empty() {
        return 0;
    }
    let text = export(&*store.inner, &root).await.unwrap();
    let there = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let imported = import(&*there.inner, &text).await.unwrap();
    let mark = there.inner.imported(&root).await.unwrap().unwrap();
    let mut settings = runtime(&there, seed, workspace).settings().clone();
    settings.permissions.mode = Mode::Plan;
    settings.permissions.deny = vec!["grep".parse().unwrap()];
    settings.budget = Budget { tokens: Limit::AtMost(40_000), ..settings.budget.share(2) };
    settings.limits.max_depth = settings.limits.max_depth.min(2);
    if rng.one_in(2) {
        there.crash_after(i64::try_from(1 + rng.below(10)).unwrap());
    }
    for _ in 0..3 {
        let runtime = runtime(&there, seed, workspace).with_settings(settings.clone());
        let ended = match runtime.resume(&root, ResumeOptions::default()).await {
            Ok(run) => end(run, &there).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(result) => result.detached.ended().await,
            Err(RunError::Store(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        there.repair();
    }
    check_import(&*there.inner, &root, mark, &settings).await;
    imported.pending.len()
}

#[test]
fn imported_random_trees_run_no_open_call() {
    let seeds = match number("TREES_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TREES").unwrap_or(TREES) / 2,
    };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let mut pending = 0;
    for seed in seeds.clone() {
        let tree = std::panic::AssertUnwindSafe(one_import(seed, &workspace));
        let done = runtime.block_on(futures::FutureExt::catch_unwind(tree));
        pending += done.unwrap_or_else(|_| panic!("the tree of TREES_SEED={seed}"));
    }
    if seeds.end - seeds.start > 100 {
        assert!(pending as u64 > (seeds.end - seeds.start) / 2, "too few calls were open: {pending}");
    }
}

#[test]
fn random_trees_over_all_delegation_styles_keep_the_laws() {
    let seeds = match number("TREES_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TREES").unwrap_or(TREES),
    };
    let folder = tempfile::tempdir().unwrap();
    let workers: Vec<_> = (0..2u64)
        .map(|worker| {
            let (seeds, folder) = (seeds.clone(), folder.path().to_owned());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let workspace = Workspace::open(&folder).unwrap();
                let mut children = 0;
                for seed in seeds.filter(|seed| seed % 2 == worker) {
                    let tree = std::panic::AssertUnwindSafe(one_tree(seed, &workspace));
                    let done = runtime.block_on(futures::FutureExt::catch_unwind(tree));
                    children += done.unwrap_or_else(|_| panic!("the tree of TREES_SEED={seed}"));
                }
                children
            })
        })
        .collect();
    let children: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    if seeds.end - seeds.start > 100 {
        assert!(children as u64 > seeds.end - seeds.start, "the trees have to be trees: {children} children");
    }
}
