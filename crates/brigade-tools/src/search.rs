//! `grep` and `glob`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use brigade_core::ToolOutput;
use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::Subject;
use globset::{GlobBuilder, GlobSet};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::{EntryKind, StopSignal, WalkLimit, blocking, escape_controls};
use super::read::workspace_itself;
use super::{CallTitle, FileError, Files, Tool, ToolContext};

const MAX_MATCHES: usize = 200;
const MAX_GLOB_RESULTS: usize = 1_000;
const MAX_NAMED_SECRETS: usize = 5;
const MAX_LINE_CHARS: usize = 300;
const MAX_PATTERN_BYTES: usize = 8 * 1024;
/// Maximum size of a compiled pattern and of its matcher's cache.
const MAX_REGEX_BYTES: usize = 4 << 20;
/// Maximum number of bytes searched in one file, and maximum length of a line.
const MAX_FILE_BYTES: u64 = 256 << 20;
const MAX_LINE_BYTES: usize = 16 << 20;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Searches the content of files.
#[derive(Debug, Clone, Copy)]
pub struct Grep;

/// The arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepInput {
    /// Regular expression (Rust syntax)
    pattern: String,
    /// File or directory
    #[serde(default = "workspace_itself")]
    path: String,
    /// File filter, e.g. `*.rs`
    glob: Option<String>,
    /// Ignore case
    #[serde(default)]
    case_insensitive: bool,
}

impl Tool for Grep {
    const NAME: &'static str = "grep";
    type Input = GrepInput;

    fn description(&self) -> Cow<'static, str> {
        "Search file contents, at most 200 lines. Skips binary and git-ignored files.".into()
    }

    fn category(&self) -> Category {
        Category::Search
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn subject<'a>(&self, input: &'a GrepInput) -> Subject<'a> {
        Subject::Path(&input.path)
    }

    fn title(&self, input: &GrepInput) -> Option<CallTitle> {
        Some(CallTitle::new("Search for", &input.pattern))
    }

    async fn run(&self, input: GrepInput, context: &ToolContext) -> ToolOutput {
        let files = context.files.clone();
        blocking(TIME_LIMIT, move |stop| grep(&files, &input, stop).unwrap_or_else(|output| output)).await
    }
}

fn grep(files: &Files, input: &GrepInput, stop: &StopSignal) -> Result<ToolOutput, ToolOutput> {
    let matcher = build_regex(&input.pattern, input.case_insensitive)?;
    let glob = input.glob.as_deref().map(|glob| file_glob(glob, AnyFolder::Yes)).transpose()?;
    let mut search = GrepSearch { matcher, searcher: build_searcher(), found: Vec::new(), full: false, stop };
    let mut secrets = SkippedSecrets::default();
    let walked = files.walk(&input.path, stop, &mut |found| {
        let named = |glob: &GlobSet| glob.is_match(found.path) || glob.is_match(found.below);
        let wanted = found.kind() == EntryKind::File && glob.as_ref().is_none_or(named);
        if !wanted {
            return ControlFlow::Continue(());
        }
        if !files.may_search(found.path) {
            secrets.add(found.path);
            return ControlFlow::Continue(());
        }
        // A file that was removed or may not be opened is skipped, as if it did not exist.
        match found.open() {
            Ok(file) => search.file(found.path, file),
            Err(_) => ControlFlow::Continue(()),
        }
    });
    let mut hit_limit = match walked {
        Ok(hit_limit) => hit_limit,
        Err(FileError::NotAFolder { .. }) => {
            let file = files.open(&input.path)?.file;
            let _ = search.file(&input.path, file);
            None
        }
        Err(error) => return Err(error.into()),
    };
    if stop.is_stopped() {
        hit_limit = Some(WalkLimit::Time);
    }
    let full = search.full.then(|| format!("(only the first {MAX_MATCHES} matches; narrow the search)"));
    Ok(ToolOutput::ok(render(search.found, full.into_iter().chain(secrets.note()), hit_limit)))
}

/// Files with secrets that were not searched.
#[derive(Default)]
struct SkippedSecrets {
    /// The first ones.
    named: Vec<String>,
    more: usize,
}

impl SkippedSecrets {
    fn add(&mut self, path: &str) {
        match self.named.len() < MAX_NAMED_SECRETS {
            true => self.named.push(escape_controls(path)),
            false => self.more += 1,
        }
    }

    /// Note for the model, if there are any.
    fn note(&self) -> Option<String> {
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        let named = self.named.join(", ");
        (!self.named.is_empty())
            .then(|| format!("(not searched, because they can contain secrets: {named}{more})"))
    }
}

fn build_regex(pattern: &str, case_insensitive: bool) -> Result<RegexMatcher, ToolOutput> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolOutput::error(format!(
            "The pattern is longer than {MAX_PATTERN_BYTES} bytes. Shorten it."
        )));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(case_insensitive)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build(pattern)
        .map_err(|cause| {
            let advice =
                "each line is matched separately; escape special characters such as `(`, `[`, `{` and `.` with a backslash";
            ToolOutput::error(format!("Invalid regular expression: {cause}\n({advice})"))
        })
}

fn build_searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .build()
}

struct GrepSearch<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    found: Vec<String>,
    full: bool,
    stop: &'a StopSignal,
}

impl GrepSearch<'_> {
    fn file(&mut self, path: &str, file: File) -> ControlFlow<()> {
        let reader = BoundedFile { file, remaining_bytes: MAX_FILE_BYTES, stop: self.stop };
        let sink = MatchSink { path, found: &mut self.found, full: &mut self.full };
        // Matches found before an error, such as an endless line, still count.
        let _ = self.searcher.search_reader(&self.matcher, reader, sink);
        if self.full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// File that ends when the time limit is reached.
struct BoundedFile<'a> {
    file: File,
    remaining_bytes: u64,
    stop: &'a StopSignal,
}

impl Read for BoundedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_stopped() {
            return Ok(0);
        }
        let length = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(&mut buffer[..length])?;
        self.remaining_bytes -= count as u64;
        Ok(count)
    }
}

struct MatchSink<'a> {
    path: &'a str,
    found: &'a mut Vec<String>,
    full: &'a mut bool,
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, matched: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.len() == MAX_MATCHES {
            *self.full = true;
            return Ok(false);
        }
        let line = matched.line_number().unwrap_or(0);
        self.found.push(format!("{}:{line}: {}", escape_controls(self.path), excerpt(matched.bytes())));
        Ok(true)
    }
}

fn excerpt(line: &[u8]) -> String {
    // A character has at most four bytes, so this is enough of a line of any length.
    let line = &line[..line.len().min(4 * MAX_LINE_CHARS + 4)];
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Finds files by name.
#[derive(Debug, Clone, Copy)]
pub struct Glob;

/// The arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobInput {
    /// Relative to `path`, e.g. `**/*.rs`
    pattern: String,
    /// Directory
    #[serde(default = "workspace_itself")]
    path: String,
}

impl Tool for Glob {
    const NAME: &'static str = "glob";
    type Input = GlobInput;

    fn description(&self) -> Cow<'static, str> {
        "Find files by name, at most 1,000. Skips git-ignored files.".into()
    }

    fn category(&self) -> Category {
        Category::Search
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn subject<'a>(&self, input: &'a GlobInput) -> Subject<'a> {
        Subject::Path(&input.path)
    }

    fn title(&self, input: &GlobInput) -> Option<CallTitle> {
        Some(CallTitle::new("Find", &input.pattern))
    }

    async fn run(&self, input: GlobInput, context: &ToolContext) -> ToolOutput {
        let files = context.files.clone();
        blocking(TIME_LIMIT, move |stop| glob(&files, &input, stop).unwrap_or_else(|output| output)).await
    }
}

fn glob(files: &Files, input: &GlobInput, stop: &StopSignal) -> Result<ToolOutput, ToolOutput> {
    let glob = file_glob(&input.pattern, AnyFolder::No)?;
    let mut paths = Vec::new();
    let mut full = None;
    let hit_limit = files.walk(&input.path, stop, &mut |found| {
        if glob.is_match(found.below) {
            if paths.len() == MAX_GLOB_RESULTS {
                full = Some(format!("(only the first {MAX_GLOB_RESULTS} files; narrow the pattern)"));
                return ControlFlow::Break(());
            }
            paths.push(escape_controls(found.path));
        }
        ControlFlow::Continue(())
    })?;
    Ok(ToolOutput::ok(render(paths, full, hit_limit)))
}

/// Whether a pattern without a folder matches files in every folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnyFolder {
    Yes,
    No,
}

fn file_glob(pattern: &str, any_folder: AnyFolder) -> Result<GlobSet, ToolOutput> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolOutput::error(format!(
            "The glob is empty or longer than {MAX_PATTERN_BYTES} bytes. `**/*` matches every file."
        )));
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let pattern = match any_folder {
        AnyFolder::Yes if !pattern.contains('/') => format!("**/{pattern}"),
        AnyFolder::Yes | AnyFolder::No => pattern.to_owned(),
    };
    // A set of one glob, because a single glob panics if its compiled form is too large.
    let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
    glob.and_then(|glob| GlobSet::builder().add(glob).build()).map_err(|cause| {
        let advice = "Use `*` within a name, `**` for any directories and `{a,b}` for alternatives.";
        ToolOutput::error(format!("Invalid glob: {cause}. {advice}"))
    })
}

fn render(
    lines: Vec<String>,
    notes: impl IntoIterator<Item = String>,
    hit_limit: Option<WalkLimit>,
) -> String {
    let mut lines = if lines.is_empty() { vec!["(nothing found)".to_owned()] } else { lines };
    lines.extend(notes);
    lines.extend(hit_limit.map(|hit_limit| match hit_limit {
        WalkLimit::Time => {
            format!("(stopped after {} seconds; narrow the search)", TIME_LIMIT.as_secs())
        }
        WalkLimit::Size => {
            "(incomplete: too many or too deeply nested directories; search a subdirectory)".to_owned()
        }
    }));
    lines.push(String::new());
    lines.join("\n")
}
