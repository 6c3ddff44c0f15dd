//! A law over random trees: with the file tools alone, no written content is overwritten unseen.
//!
//! Several agents of one tree read, write and edit a few shared files at random, with crashes and resumes. All
//! content is unique, so that its hash identifies the write that left it. `FILE_TREES_SEED=N` runs the one tree
//! with that seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use brigade::core::message::{OutputStatus, Stop};
use brigade::core::{CallId, Cursor, Event, Extent, Hash, Record, SessionId, State, Usage, json};
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::Owner;
use brigade::store::memory::MemoryStore;
use brigade::{Models, ResumeOptions, RunError, Runtime, Settings, Task, Workspace};
use futures::stream::{self, BoxStream, StreamExt};

use crate::effort::some_or_all;
use crate::run::support::{CrashStore, check_laws, end};

/// Maximum number of crashes per tree.
const MAX_CRASHES: u32 = 4;
/// Turns of each agent.
const TURNS: u32 = 8;
const FILES: [&str; 3] = ["a.txt", "d/b.txt", "c.txt"];
/// Text that edits replace. It occurs once in every content.
const MARK: &str = "MARK";

/// Random numbers that depend only on a seed.
struct SeededRng(u64);

impl SeededRng {
    fn of(parts: &[&[u8]]) -> SeededRng {
        let hash = parts.iter().fold(Hash::of(b"dice"), |hash, part| hash.chain("part", &[part]));
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
}

/// A model whose lead delegates to three agents, which read and change files at random.
struct FileEditingModel {
    seed: u64,
}

impl Model for FileEditingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let place = request.session.as_str().split_once('.').map_or("", |(_, path)| path).to_owned();
        let mut rng =
            SeededRng::of(&[&self.seed.to_le_bytes(), place.as_bytes(), &request.turn.to_le_bytes()]);
        let mut chunks = vec![Chunk::Text("words".to_owned())];
        let mut call = |name: &str, arguments: String| {
            chunks.push(Chunk::Call { name: name.to_owned(), provider_id: None });
            chunks.push(Chunk::Arguments(arguments));
        };
        if request.tools.is_empty() || request.turn > TURNS {
            // The final reply.
        } else if place.is_empty() && request.turn == 1 {
            for role in ["Ada", "Bob", "Cyd"] {
                let tools = match rng.below(4) {
                    0 => r#", "tools": ["write_file", "edit_file"]"#,
                    _ => "",
                };
                call("delegate", format!(r#"{{"role": "{role}", "task": "go"{tools}}}"#));
            }
        } else {
            for index in 0..=rng.below(2) {
                let (name, arguments) = file_call(&mut rng, &format!("{place}-{}-{index}", request.turn));
                call(name, arguments);
            }
        }
        let usage = Usage { input: 50, output: 5, ..Usage::default() };
        chunks.extend([Chunk::Usage(usage), Chunk::Done(Stop::End)]);
        let pause = std::time::Duration::from_micros(rng.below(3_000));
        let first = stream::once(tokio::time::sleep(pause)).filter_map(|()| std::future::ready(None));
        first.chain(stream::iter(chunks.into_iter().map(Ok))).boxed()
    }

    fn model_info(&self, _model: &str) -> ModelInfo {
        ModelInfo::default()
    }
}

fn file_call(rng: &mut SeededRng, unique: &str) -> (&'static str, String) {
    let file = FILES[usize::try_from(rng.below(FILES.len() as u64)).unwrap()];
    let path = if rng.below(3) == 0 { format!("./{file}") } else { file.to_owned() };
    match rng.below(8) {
        0..=2 => ("read_file", format!(r#"{{"path": "{path}"}}"#)),
        3 => ("read_file", format!(r#"{{"path": "{path}", "offset": 2, "limit": 1}}"#)),
        4 | 5 => {
            let content = format!(r"{MARK} {unique}\nsecond of {unique}\nthird\n");
            ("write_file", format!(r#"{{"path": "{path}", "content": "{content}"}}"#))
        }
        _ => {
            let new = format!("{MARK} edited by {unique},");
            ("edit_file", format!(r#"{{"path": "{path}", "old": "{MARK}", "new": "{new}"}}"#))
        }
    }
}

fn runtime(store: &Arc<CrashStore>, seed: u64, workspace: &Workspace) -> Runtime {
    let mut settings = Settings::new("scribe", workspace.clone());
    settings.limits.child_turns = TURNS + 1;
    settings.limits.lead_turns = TURNS + 1;
    let owner = Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() };
    let models = Models::default().with("scribe", FileEditingModel { seed });
    Runtime::new(store.clone(), settings, models).with_owner(owner)
}

/// Runs one tree to its end and returns its log.
async fn one_tree(seed: u64, folder: &Path) -> Vec<Record> {
    let workspace = Workspace::open(folder).unwrap();
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let mut rng = SeededRng::of(&[b"crashes", &seed.to_le_bytes()]);
    let root = runtime(&store, seed, &workspace).new_session().unwrap();
    if rng.below(3) > 0 {
        store.crash_after(i64::try_from(1 + rng.below(60)).unwrap());
    }
    let task = Task::new("the task").session(root.clone());
    let mut ended = match runtime(&store, seed, &workspace).start(task).await {
        Ok(run) => end(run).await,
        Err(error) => Err(error),
    };
    for crash in 0..=MAX_CRASHES {
        let Err(error) = &ended else { break };
        assert!(matches!(error, RunError::Store(_)), "{error}");
        store.repair();
        if store.inner.read(&root, 0).await.unwrap().is_empty() {
            return Vec::new();
        }
        if crash < MAX_CRASHES && rng.below(2) == 0 {
            store.crash_after(i64::try_from(1 + rng.below(40)).unwrap());
        }
        ended = match runtime(&store, seed, &workspace).resume(&root, ResumeOptions::default()).await {
            Ok(run) => end(run).await,
            Err(error) => Err(error),
        };
    }
    ended.unwrap();
    store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap()
}

/// Effects of one tree on the files.
#[derive(Default)]
struct EditCounts {
    overwrites: usize,
    refusals: usize,
}

/// The law. `start` has the content of the files before the run.
fn check(log: &[Record], start: &BTreeMap<&str, String>, folder: &Path) -> EditCounts {
    let mut contents: BTreeMap<Hash, String> =
        start.values().map(|text| (Hash::of(text.as_bytes()), text.clone())).collect();
    let mut states: BTreeMap<&SessionId, State> = BTreeMap::new();
    let mut seen: BTreeSet<(&SessionId, String, Hash)> = BTreeSet::new();
    let mut intents: BTreeMap<(&SessionId, CallId), (Option<Hash>, Hash)> = BTreeMap::new();
    let mut overwritten: BTreeMap<(String, Hash), &SessionId> = BTreeMap::new();
    let mut count = EditCounts::default();
    for Record { session, event, .. } in log {
        let state = states.entry(session).or_insert_with(|| State::new(session.clone()));
        match event {
            Event::ToolStarted { call, before, after: Some(after), .. } => {
                intents.insert((session, *call), (*before, *after));
                let written = state.tool_call(*call).unwrap();
                let arguments = json::parse(written.arguments.as_str()).unwrap();
                let text = match arguments.get("content") {
                    Some(content) => content.as_str().unwrap().to_owned(),
                    None => {
                        let old = &contents[&before.expect("an edit of a file")];
                        old.replacen(MARK, arguments["new"].as_str().unwrap(), 1)
                    }
                };
                assert_eq!(Hash::of(text.as_bytes()), *after);
                contents.insert(*after, text);
            }
            Event::ToolEnded { call, output, seen: shown, .. } => {
                let written = state.tool_call(*call).unwrap();
                let intent = intents.get(&(session, *call));
                let is_edit = written.name != "read_file";
                count.refusals +=
                    usize::from(is_edit && intent.is_none() && output.status == OutputStatus::Error);
                if let (Some((before, after)), OutputStatus::Ok) = (intent, output.status) {
                    let file = shown.as_ref().expect("a write shows its file to the writer");
                    assert_eq!(file.hash, *after, "{session} {call}");
                    // A write of identical content loses nothing.
                    if let Some(before) = before.as_ref().filter(|before| *before != after) {
                        let knew = seen.contains(&(session, file.path.clone(), *before));
                        assert!(knew, "{session} {call}: {} was overwritten unseen", contents[before]);
                        let other = overwritten.insert((file.path.clone(), *before), session);
                        assert_eq!(other, None, "{session} {call}: another write of {} is lost", file.path);
                        count.overwrites += 1;
                    }
                }
                if let Some(file) = shown {
                    let text = &contents[&file.hash];
                    let is_shown = match file.extent {
                        Extent::Whole => output.text.as_str().contains(text.as_str()),
                        Extent::Part => text.lines().any(|line| output.text.as_str().contains(line)),
                        Extent::Inherited => false,
                    };
                    assert!(is_shown || intent.is_some(), "{session} {call}: {} was not shown", file.path);
                    seen.insert((session, file.path.clone(), file.hash));
                }
            }
            _ => {}
        }
        state.apply(event);
    }
    for file in FILES {
        let now = Hash::of(&std::fs::read(folder.join(file)).unwrap_or_default());
        let is_gone = overwritten.contains_key(&(file.to_owned(), now));
        assert!(!is_gone, "{file} has a content again that was overwritten");
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the environment says which tree to run")]
async fn random_edits_with_crashes_lose_no_unseen_content() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("FILE_TREES_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FILE_TREES").unwrap_or_else(|| some_or_all(15, 60)),
    };
    let mut total = EditCounts::default();
    for seed in seeds.clone() {
        let folder = tempfile::tempdir().unwrap();
        let start: BTreeMap<&str, String> =
            FILES[..2].iter().map(|file| (*file, format!("{MARK} at {file}\nsecond\nthird\n"))).collect();
        for (file, text) in &start {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let tree = std::panic::AssertUnwindSafe(async {
            let log = one_tree(seed, folder.path()).await;
            check_laws(&log);
            check(&log, &start, folder.path())
        });
        let done = futures::FutureExt::catch_unwind(tree).await;
        let count = done.unwrap_or_else(|_| panic!("the tree of FILE_TREES_SEED={seed}"));
        total.overwrites += count.overwrites;
        total.refusals += count.refusals;
    }
    if seeds.end - seeds.start > 10 {
        let trees = usize::try_from(seeds.end - seeds.start).unwrap();
        assert!(total.overwrites > trees && total.refusals > trees, "the agents have to meet");
    }
}
