//! Export of a tree as JSON lines, and import. Every line can be verified by itself, and the last line marks the
//! end, so that a truncated copy is detected.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use brigade_core::permission::Mode;
use brigade_core::{Agent, Authority, CallId, Cursor, Event, Hash, Record, SessionId, State};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::backend::{self, DecodeError, Encoded};
use super::{BrokenKind, Loans, Store, StoreError};

/// Format version of the lines.
const FORMAT: u32 = 1;
/// Number of records per read.
const PAGE_RECORDS: usize = 1_000;

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// Root session of the tree.
    pub root: SessionId,
    /// Number of records in the text, up to the truncation if there is one.
    pub records: u64,
    /// Number of records that the store did not have before.
    pub new: u64,
    /// Position at which the text stops being a valid export, if it does.
    pub cut: Option<Truncation>,
    /// Last round of the root session as the export describes it.
    pub round: Option<ImportedRound>,
    /// Calls that were open. They never run here.
    pub pending: Vec<PendingCall>,
}

/// Description of an imported round. It grants nothing beyond the local configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRound {
    /// Id of the agent.
    pub agent: String,
    /// Model of the agent, if it names one.
    pub model: Option<String>,
    /// Permission mode.
    pub mode: Mode,
    /// Working directory.
    pub folder: String,
}

/// A call that was open when the tree was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// Session that made the call.
    pub session: SessionId,
    /// Id of the call.
    pub call: CallId,
    /// Name of the tool.
    pub tool: String,
    /// Arguments as the model wrote them.
    pub arguments: String,
}

/// Place where a text stops being a valid export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncation {
    /// Line number, starting at 1. All lines before it were imported.
    pub line: u64,
    /// Cause of the failure.
    pub cause: String,
}

/// Error that prevented an import. Nothing was imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The first line is incomplete or is not the header of an export.
    #[error("cannot import the session: {0}. Create an export with `brigade sessions export`.")]
    NotAnExport(String),
    /// A newer version wrote the export.
    #[error(
        "cannot import this export: its format is {found}, and this version supports formats up to {known}. Upgrade Brigade."
    )]
    NewerFormat {
        /// Format of the export.
        found: u32,
        /// Newest format that this version knows.
        known: u32,
    },
    /// The store rejected the import.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
struct Header {
    brigade_export: u32,
    root: SessionId,
}

/// Content, placed before the first record that refers to it.
#[derive(Serialize, Deserialize)]
struct BlobLine {
    blob: Hash,
    text: Arc<str>,
}

/// A record. The event is kept as the bytes that the checksum covers.
#[derive(Serialize, Deserialize)]
struct RecordLine<'a> {
    session: SessionId,
    seq: u64,
    at: u64,
    v: u64,
    sum: String,
    #[serde(borrow)]
    event: &'a RawValue,
}

/// Last line, with the number of records.
#[derive(Serialize, Deserialize)]
struct EndLine {
    end: u64,
}

/// Exports a session and its descendants as JSON lines.
pub async fn export(store: &dyn Store, root: &SessionId) -> Result<String, StoreError> {
    let mut lines = ExportLines::default();
    lines.push(&Header { brigade_export: FORMAT, root: root.clone() })?;
    let mut exported: HashSet<Hash> = HashSet::new();
    let (mut after, mut count) = (Cursor::START, 0);
    let mut loans = Loans::default();
    loop {
        let page = store.tail(root, after, PAGE_RECORDS).await?;
        let Some(last) = page.last() else { break };
        after = last.pos;
        loans.take(&page);
        for record in page {
            for hash in backend::definitions(&record.event) {
                if exported.insert(hash) {
                    let text = store.blob(hash).await?.ok_or_else(|| missing_definition(&record, hash))?;
                    lines.push(&BlobLine { blob: hash, text })?;
                }
            }
            lines.record(&record, &mut exported)?;
            count += 1;
        }
    }
    if count == 0 {
        return Err(StoreError::UnknownSession(root.clone()));
    }
    store.verify(root, loans.returned()).await?;
    lines.push(&EndLine { end: count })?;
    Ok(lines.0)
}

/// Error for a definition that is missing although it was written with the events that refer to it.
fn missing_definition(record: &Record, hash: Hash) -> StoreError {
    DecodeError::Damaged(format!("its definition {hash} is missing")).of(&record.session, record.seq)
}

#[derive(Default)]
struct ExportLines(String);

impl ExportLines {
    fn push(&mut self, line: &impl Serialize) -> Result<(), StoreError> {
        self.0.push_str(&serde_json::to_string(line).map_err(encode_error)?);
        self.0.push('\n');
        Ok(())
    }

    fn record(&mut self, record: &Record, exported: &mut HashSet<Hash>) -> Result<(), StoreError> {
        let mut encoded = Encoded::default();
        encoded.push(&record.event).map_err(encode_error)?;
        for (blob, text) in &encoded.blobs {
            if exported.insert(*blob) {
                self.push(&BlobLine { blob: *blob, text: text.clone() })?;
            }
        }
        for row in encoded.rows() {
            let event: &RawValue = serde_json::from_slice(row.body).map_err(encode_error)?;
            let Record { session, seq, at, v, .. } = record;
            let v = u64::from(*v);
            let sum = sum(session, *seq, *at, v, event);
            self.push(&RecordLine { session: session.clone(), seq: *seq, at: *at, v, sum, event })?;
        }
        Ok(())
    }
}

fn encode_error(error: serde_json::Error) -> StoreError {
    StoreError::Broken { place: "this export".into(), kind: BrokenKind::Other, cause: error.to_string() }
}

/// Checksum of a line.
fn sum(session: &SessionId, seq: u64, at: u64, v: u64, event: &RawValue) -> String {
    let sum = backend::checksum(session.as_str(), seq, at, v, event.get().as_bytes());
    format!("{:016x}", u64::from_be_bytes(sum))
}

/// Imports an exported tree into a store. The valid lines before a truncation or the first bad line are imported
/// in one transaction, and the truncation is reported. A session that the store already has must be identical as
/// far as both go.
pub async fn import(store: &dyn Store, text: &str) -> Result<ImportReport, ImportError> {
    let mut lines = text.split_inclusive('\n');
    let header = lines.next().and_then(|line| line.strip_suffix('\n'));
    let header = header.ok_or_else(|| ImportError::NotAnExport("the first line is incomplete".into()))?;
    let header: Header = serde_json::from_str(header).map_err(|error| {
        ImportError::NotAnExport(match error.is_data() {
            true => "the first line is not an export header".to_owned(),
            false => "the first line is not JSON".to_owned(),
        })
    })?;
    if header.brigade_export > FORMAT {
        return Err(ImportError::NewerFormat { found: header.brigade_export, known: FORMAT });
    }
    let mut tree = ImportedTree {
        root: header.root,
        records: Vec::new(),
        blobs: HashMap::new(),
        end: EndMarker::Missing,
    };
    let mut cut = None;
    let mut number = 1;
    for line in lines {
        number += 1;
        match tree.take(line) {
            Ok(()) => {}
            Err(LineError::Line(cause)) => {
                cut = Some(Truncation { line: number, cause });
                break;
            }
            Err(LineError::Newer(error)) => return Err(error.into()),
        }
    }
    if cut.is_none() && tree.end == EndMarker::Missing {
        cut = Some(Truncation { line: number + 1, cause: "the last line of the export is missing".into() });
    }
    let records = tree.records.len() as u64;
    let (round, pending) = (tree.round(), tree.pending());
    let new = store.restore(tree.records, tree.blobs.into_values().collect()).await?;
    Ok(ImportReport { root: tree.root, records, new, cut, round, pending })
}

/// Part of a text that was read so far.
struct ImportedTree {
    root: SessionId,
    records: Vec<Record>,
    blobs: HashMap<Hash, Arc<str>>,
    end: EndMarker,
}

#[derive(PartialEq, Eq)]
enum EndMarker {
    Missing,
    Seen,
}

/// Reason to reject a line.
enum LineError {
    /// The line is truncated or damaged. Earlier lines are valid.
    Line(String),
    /// A newer version wrote the session, so this version must not write it.
    Newer(StoreError),
}

impl From<serde_json::Error> for LineError {
    fn from(error: serde_json::Error) -> LineError {
        LineError::Line(backend::cause(&error))
    }
}

impl From<DecodeError> for LineError {
    fn from(error: DecodeError) -> LineError {
        LineError::Line(error.to_string())
    }
}

impl ImportedTree {
    /// Last round of the root session.
    fn round(&self) -> Option<ImportedRound> {
        let own = self.records.iter().rev().filter(|record| record.session == self.root);
        let (agent, authority) = own.into_iter().find_map(|record| match &record.event {
            Event::Started { agent, grant, .. } => Some((*agent, grant.authority)),
            _ => None,
        })?;
        let agent: Agent = serde_json::from_str(self.blobs.get(&agent)?).ok()?;
        let authority: Authority = serde_json::from_str(self.blobs.get(&authority)?).ok()?;
        let (mode, folder) = (authority.permissions.mode, authority.workspace);
        Some(ImportedRound { agent: agent.id, model: agent.model, mode, folder })
    }

    /// Open calls of all sessions.
    fn pending(&self) -> Vec<PendingCall> {
        let mut states: BTreeMap<&SessionId, State> = BTreeMap::new();
        for record in &self.records {
            let state = states.entry(&record.session).or_insert_with(|| State::new(record.session.clone()));
            state.apply(&record.event);
        }
        let mut pending = Vec::new();
        for (session, state) in states.into_iter().filter(|(_, state)| state.is_running()) {
            for call in state.unanswered() {
                let Some(tool_call) = state.tool_call(call) else { continue };
                let (tool, arguments) = (tool_call.name.clone(), tool_call.arguments.to_string());
                pending.push(PendingCall { session: session.clone(), call, tool, arguments });
            }
        }
        pending
    }

    fn take(&mut self, line: &str) -> Result<(), LineError> {
        let bad = |cause: &str| Err(LineError::Line(cause.into()));
        let Some(line) = line.strip_suffix('\n') else { return bad("the line is truncated") };
        if self.end == EndMarker::Seen {
            return bad("there is text after the last line of the export");
        }
        if line.starts_with(r#"{"blob":"#) {
            let BlobLine { blob, text } = serde_json::from_str(line)?;
            if Hash::of(text.as_bytes()) != blob {
                return bad("the content does not match its hash");
            }
            self.blobs.insert(blob, text);
        } else if line.starts_with(r#"{"end":"#) {
            let EndLine { end } = serde_json::from_str(line)?;
            if end != self.records.len() as u64 {
                return bad("the number of records does not match");
            }
            self.end = EndMarker::Seen;
        } else {
            self.record(serde_json::from_str(line)?)?;
        }
        Ok(())
    }

    fn record(&mut self, line: RecordLine<'_>) -> Result<(), LineError> {
        let RecordLine { session, seq, at, v, event, .. } = line;
        if line.sum != sum(&session, seq, at, v, event) {
            return Err(LineError::Line("the checksum does not match".into()));
        }
        if !self.root.contains(&session) {
            return Err(LineError::Line(format!("session {session} does not belong to this tree")));
        }
        let mut event = backend::decode(event.get(), v).map_err(|error| match error {
            DecodeError::Newer(_) => LineError::Newer(error.of(&session, seq)),
            DecodeError::Damaged(cause) => LineError::Line(cause),
        })?;
        backend::hydrate(&mut event, &mut |hash| Ok::<_, LineError>(self.blobs.get(&hash).cloned()))?;
        let v = u16::try_from(v).map_err(|error| LineError::Line(error.to_string()))?;
        self.records.push(Record { session, seq, pos: Cursor::START, at, v, event });
        Ok(())
    }
}
