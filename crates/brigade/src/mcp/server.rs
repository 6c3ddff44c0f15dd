//! A server that is connected, and what it said about its tools when it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brigade_core::{Hash, ToolOutput};
use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorCode, JsonObject, PaginatedRequestParams,
    ServerCapabilities, Tool,
};
use tokio::sync::Mutex;

use super::connect::{Connection, short};
use super::extra::Extra;
use super::tool::ServerTool;
use super::{Definition, Way, content, name};
use crate::tool::{AnyTool, ToolContext};

/// The most tools of a server.
const MOST_TOOLS: usize = 256;
/// The most pages that a list may have.
const MOST_PAGES: usize = 64;
/// The most bytes of a description and a schema together.
const MOST_BYTES: usize = 32 << 10;

pub(super) const ASKS_BACK: &str = "it wants to ask back, which is not supported";

/// The tools that are offered, and what is left out.
pub(super) type Offer = (Vec<Arc<dyn AnyTool>>, Vec<String>);

/// A server that is connected.
pub(super) struct Server {
    name: String,
    connection: Connection,
    call_time: Duration,
    /// Whether calls leave this machine.
    pub(super) is_elsewhere: bool,
    /// What it said about each tool when it was connected.
    frozen: BTreeMap<String, Hash>,
    /// What it says now, once it said that something changed.
    now: Mutex<Option<BTreeMap<String, Hash>>>,
}

impl Server {
    /// Connects, and takes down what there is.
    pub(super) async fn start(name: String, definition: Definition) -> Result<Offer, String> {
        let limit = definition.start_time;
        let started = tokio::time::timeout(limit, async {
            let connection = Connection::open(&name, &definition.way).await?;
            let tools =
                list(&connection).await.map_err(|why| format!("its tools cannot be listed: {why}"))?;
            Ok((connection, tools))
        });
        let (connection, tools) = match started.await {
            Ok(Ok(started)) => started,
            Ok(Err(why)) => return Err(why),
            Err(_) => return Err(format!("it was not ready within {}", seconds(limit))),
        };
        let server = Arc::new(Server {
            name: definition.name,
            is_elsewhere: matches!(definition.way, Way::Http(_)),
            connection,
            call_time: definition.call_time,
            frozen: hashes(&tools),
            now: Mutex::default(),
        });
        Ok(server.offer(&name, tools))
    }

    /// Makes tools of ours from those that can be used.
    fn offer(self: &Arc<Server>, name: &str, tools: Vec<Tool>) -> Offer {
        let mut problems = Vec::new();
        let mut named: BTreeMap<String, Vec<Tool>> = BTreeMap::new();
        for tool in tools {
            match name::tool(name, &tool.name).and_then(|name| fits(&tool).map(|()| name)) {
                Ok(name) => named.entry(name).or_default().push(tool),
                Err(problem) => problems.push(problem),
            }
        }
        let mut offered: Vec<Arc<dyn AnyTool>> = Vec::new();
        for (name, mut same) in named {
            match same.pop() {
                Some(tool) if same.is_empty() => {
                    offered.push(Arc::new(ServerTool::new(self.clone(), name, tool)));
                }
                _ => problems
                    .push(format!("several of its tools would be called '{name}', so none is offered")),
            }
        }
        for extra in Extra::of(self, name) {
            let ours = extra.spec().name.clone();
            match offered.iter().any(|tool| tool.spec().name == ours) {
                true => {
                    problems.push(format!("it has a tool called '{ours}' itself, so ours is not offered"))
                }
                false => offered.push(Arc::new(extra)),
            }
        }
        (offered, problems)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the server says that it has.
    pub(super) fn capabilities(&self) -> ServerCapabilities {
        self.connection.peer().peer_info().map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Calls a tool. The server is told where nobody waits for the answer any more.
    pub(super) async fn call(&self, tool: &str, arguments: JsonObject, context: &ToolContext) -> ToolOutput {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let work = async {
            self.still_as_approved(tool).await?;
            let answer = self.connection.peer().call_tool_once(params).await;
            match answer {
                Ok(CallToolResponse::Complete(result)) => Ok(content::output(&result)),
                Ok(_) => Err(ASKS_BACK.to_owned()),
                Err(error) => Err(self.words(error).await),
            }
        };
        self.within_time(work, context).await
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn within_time(
        &self,
        work: impl Future<Output = Result<ToolOutput, String>>,
        context: &ToolContext,
    ) -> ToolOutput {
        let failed = |why: &str| ToolOutput::error(format!("MCP server '{}': {why}", self.name));
        tokio::select! {
            biased;
            answer = tokio::time::timeout(self.call_time, work) => match answer {
                Ok(Ok(output)) => output,
                Ok(Err(why)) => failed(&why),
                Err(_) => failed(&format!(
                    "no answer within {}; the call was cancelled, and whether it did anything is unknown",
                    seconds(self.call_time)
                )),
            },
            () = context.asked_to_stop() => failed("the call was cancelled"),
        }
    }

    /// Refuses a tool that is no longer what agents were told and people approved.
    async fn still_as_approved(&self, tool: &str) -> Result<(), String> {
        let mut now = self.now.lock().await;
        if self.connection.changed.swap(false, Ordering::SeqCst) {
            match list(&self.connection).await {
                Ok(tools) => *now = Some(hashes(&tools)),
                Err(why) => {
                    self.connection.changed.store(true, Ordering::SeqCst);
                    return Err(format!("its tools have changed and cannot be listed again: {why}"));
                }
            }
        }
        let Some(now) = now.as_ref() else { return Ok(()) };
        match now.get(tool) {
            Some(hash) if self.frozen.get(tool) == Some(hash) => Ok(()),
            Some(_) => Err(format!(
                "the definition of its tool '{tool}' has changed since it was approved, so the call is refused; \
                 a new run reads and shows the new one"
            )),
            None => Err(format!("it has no tool '{tool}' any more")),
        }
    }

    pub(super) async fn words(&self, error: ServiceError) -> String {
        words(&self.connection, error).await
    }
}

/// What failed, in words.
async fn words(connection: &Connection, error: ServiceError) -> String {
    match error {
        ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            format!("it does not know what was asked of it: {}", short(&error.message))
        }
        ServiceError::McpError(error) => format!("it answered with an error: {}", short(&error.message)),
        ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. } => {
            connection.lost(&error).await
        }
        ServiceError::UnexpectedResponse => "it answered with something else than what was asked".to_owned(),
        other => short(&other.to_string()),
    }
}

/// All tools.
async fn list(connection: &Connection) -> Result<Vec<Tool>, String> {
    let page = |params| async {
        let page = connection.peer().list_tools(Some(params)).await?;
        Ok((page.tools, page.next_cursor))
    };
    pages(connection, MOST_TOOLS, page).await
}

/// A list, page by page. A server that does not know the list has nothing on it.
pub(super) async fn pages<T, F>(
    connection: &Connection,
    most: usize,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, String>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let (more, next) = match page(PaginatedRequestParams::default().with_cursor(cursor.take())).await {
            Ok(page) => page,
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                return Ok(all);
            }
            Err(error) => return Err(words(connection, error).await),
        };
        all.extend(more);
        if all.len() > most {
            return Err(format!("they are more than {most}"));
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
    Err(format!("the list has more than {MOST_PAGES} pages"))
}

/// What tells definitions apart. Of tools that share a name no one can say which is meant, so that counts as well.
fn hashes(tools: &[Tool]) -> BTreeMap<String, Hash> {
    let mut hashes: BTreeMap<String, Hash> = BTreeMap::new();
    for tool in tools {
        let start = hashes.get(tool.name.as_ref()).copied().unwrap_or(Hash::of(b"a tool"));
        let parts = [
            serde_json::to_vec(&tool.title),
            serde_json::to_vec(&tool.description),
            serde_json::to_vec(&tool.input_schema),
            serde_json::to_vec(&tool.annotations),
        ];
        let parts: Vec<Vec<u8>> = parts.into_iter().map(Result::unwrap_or_default).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        hashes.insert(tool.name.to_string(), start.chain("definition", &parts));
    }
    hashes
}

/// Whether models can be told about a tool.
fn fits(tool: &Tool) -> Result<(), String> {
    let out = |why: &str| Err(format!("its tool '{}' is left out: {why}", short(&tool.name)));
    let schema = serde_json::to_vec(&tool.input_schema).map_or(usize::MAX, |bytes| bytes.len());
    if schema.saturating_add(tool.description.as_deref().map_or(0, str::len)) > MOST_BYTES {
        return out(&format!("its definition has more than {} KB", MOST_BYTES >> 10));
    }
    match tool.input_schema.get("type") {
        None => Ok(()),
        Some(kind) if kind == "object" => Ok(()),
        Some(_) => out("its arguments are no object"),
    }
}

fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        1_000 => "1 second".to_owned(),
        millis if millis % 1_000 == 0 => format!("{} seconds", millis / 1_000),
        millis => format!("{millis} ms"),
    }
}
