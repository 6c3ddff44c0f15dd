//! A server that is connected, and what it said about its tools when it was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brigade_core::ToolOutput;
use rmcp::ServiceError;
use rmcp::model::{ErrorCode, JsonObject, PaginatedRequestParams, Tool};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::beside::Beside;
use super::book::{Book, Heard, Standing, fits};
use super::connect::{Connection, short};
use super::extra::Extra;
use super::news::{Mark, News};
use super::patience::{Listener, Patience};
use super::request::{self, Failure};
use super::tool::ServerTool;
use super::unreachable::Lost;
use super::{Definition, Way, content, name};
use crate::task::{AbortOnDrop, spawn};
use crate::tool::{AnyTool, Change, ToolContext};

/// The most tools of a server.
const MOST_TOOLS: usize = 256;
/// The most pages that a list may have.
const MOST_PAGES: usize = 64;

pub(super) const ASKS_BACK: &str = "it wants to ask back, which is not supported";

/// How often a server that ended soon after its start is started again.
const MOST_RESTARTS: u32 = 5;
/// How long is waited before it is started again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that ran this long ended for another reason than its start.
const STEADY: Duration = Duration::from_secs(60);
/// How long what changed is asked about after a call, while its answer waits.
const NEWS_TIME: Duration = Duration::from_secs(2);

/// The tools that are offered, and what is left out.
pub(super) type Offer = (Vec<Arc<dyn AnyTool>>, Vec<String>);

/// A server that is used.
pub(super) struct Server {
    /// What it is called in the names of its tools.
    plain: String,
    definition: Definition,
    beside: Beside,
    link: Mutex<Link>,
    book: StdMutex<Book>,
    news: Arc<News>,
    _heed: AbortOnDrop<()>,
}

/// The connection that is used now.
struct Link {
    connection: Arc<Connection>,
    since: Instant,
    /// How often it was started again without running long.
    restarts: u32,
}

impl Server {
    /// Connects, and takes down what there is.
    pub(super) async fn start(plain: String, definition: Definition) -> Result<Offer, String> {
        let news = Arc::new(News::default());
        let (connection, tools) = connected(&plain, &definition, &news).await?;
        let beside = Beside::of(&connection).await;
        let server = Arc::new_cyclic(|server: &Weak<Server>| Server {
            _heed: AbortOnDrop(spawn(heed(server.clone(), news.clone()))),
            beside,
            link: Mutex::new(Link { connection: Arc::new(connection), since: Instant::now(), restarts: 0 }),
            book: StdMutex::new(Book::new(Heard::of(&tools))),
            news,
            plain,
            definition,
        });
        Ok(server.offer(&server.plain, tools))
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

    /// Whether calls leave this machine.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.definition.way, Way::Http(_))
    }

    /// Whether the server has resources and prompts.
    pub(super) fn beside(&self) -> Beside {
        self.beside
    }

    /// A connection that can be used. A server that ended is started again, unless it was ended for what it did.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut link = self.link.lock().await;
        if !link.connection.is_over() {
            return Ok(link.connection.clone());
        }
        let fate = &link.connection.fate;
        let why = fate.reason().unwrap_or("it closed the connection").to_owned();
        if fate.is_misdeed() {
            return Err(format!("{why}; its tools cannot be used any more in this run"));
        }
        if link.since.elapsed() >= STEADY {
            link.restarts = 0;
        }
        if link.restarts >= MOST_RESTARTS {
            return Err(format!(
                "{why}; it was started again {MOST_RESTARTS} times, so its tools cannot be used any more in this run"
            ));
        }
        tokio::time::sleep(PAUSE * (1 << link.restarts)).await;
        link.restarts += 1;
        let mark = self.news.mark();
        let (connection, tools) = connected(&self.plain, &self.definition, &self.news)
            .await
            .map_err(|again| format!("{why}; it cannot be started again: {again}"))?;
        self.hear(&tools, mark);
        link.connection = Arc::new(connection);
        link.since = Instant::now();
        Ok(link.connection.clone())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a tool. The server is told where nobody waits for the answer any more.
    pub(super) async fn call(
        &self,
        ours: &str,
        theirs: &str,
        arguments: JsonObject,
        context: &ToolContext,
    ) -> ToolOutput {
        let patience = Arc::new(match context.purse.is_lent() {
            // It keeps to the time that it is told, and who does not hear its account counts all of the loan as used.
            true => Patience::until(context.hop.deadline, self.definition.call_time),
            false => Patience::new(self.definition.call_time),
        });
        let listener = Arc::new(Listener {
            tool: ours.to_owned(),
            patience: patience.clone(),
            teller: context.teller.clone(),
            told: StdMutex::default(),
        });
        let work = async {
            let connection = self.connection().await?;
            self.ask_what_changed(&connection).await?;
            self.still_as_approved(theirs)?;
            let answer = request::call_tool(&connection, theirs, arguments, context, &listener).await;
            match answer {
                Ok(result) => Ok(content::output(&result)),
                Err(Failure::Service(error)) => Err(match connection_lost(&connection, &error).await {
                    Some(Lost::Sent(why)) => outcome_unknown(&why),
                    Some(Lost::Unsent(what)) => what,
                    None => words(&connection, error).await,
                }),
                Err(Failure::Words(why)) => Err(why.to_owned()),
            }
        };
        let output = self.within(&patience, work, context).await;
        // What the call changed is known before the next one is judged.
        tokio::select! {
            () = self.catch_up() => {}
            () = context.asked_to_stop() => {}
        }
        output
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn within_time(
        &self,
        work: impl Future<Output = Result<ToolOutput, String>>,
        context: &ToolContext,
    ) -> ToolOutput {
        self.within(&Patience::new(self.definition.call_time), work, context).await
    }

    async fn within(
        &self,
        patience: &Patience,
        work: impl Future<Output = Result<ToolOutput, String>>,
        context: &ToolContext,
    ) -> ToolOutput {
        let failed = |why: &str| ToolOutput::error(format!("MCP server '{}': {why}", self.definition.name));
        tokio::select! {
            biased;
            answer = work => answer.unwrap_or_else(|why| failed(&why)),
            limit = patience.over() => failed(&outcome_unknown(&format!(
                "there was no answer within {}, and the call was cancelled",
                seconds(limit)
            ))),
            () = context.asked_to_stop() => failed("the call was cancelled"),
        }
    }

    /// How a tool differs from what was approved, as far as the server has said so.
    pub(super) fn change(&self, tool: &str) -> Option<Change> {
        match self.book().standing(tool) {
            Standing::Changed(change) => Some(change),
            Standing::AsApproved | Standing::Gone(_) => None,
        }
    }

    /// A person wants a tool as it is now.
    pub(super) fn accept(&self, tool: &str, change: &Change) {
        self.book().accept(tool, change);
    }

    /// Lists the tools again if the server said that they changed. Until it has answered, that stays to be done, also
    /// where nobody waits for it any more.
    async fn ask_what_changed(&self, connection: &Connection) -> Result<(), String> {
        // Whoever asks at the same time waits for what is being listed.
        let _link = self.link.lock().await;
        if let Some(mark) = self.news.due() {
            let tools = list(connection).await;
            let cannot = |why| format!("its tools have changed and cannot be listed again: {why}");
            self.hear(&tools.map_err(cannot)?, mark);
        }
        Ok(())
    }

    /// Takes down what the server says now.
    fn hear(&self, tools: &[Tool], mark: Mark) {
        let heard = Heard::of(tools);
        self.book().hear(heard);
        self.news.follow(mark);
    }

    /// Asks what changed, but not for long. A call asks again before it is made.
    async fn catch_up(&self) {
        let _ = tokio::time::timeout(NEWS_TIME, async {
            let connection = self.link.lock().await.connection.clone();
            match connection.is_over() {
                true => Ok(()),
                false => self.ask_what_changed(&connection).await,
            }
        })
        .await;
    }

    /// Refuses a tool that is no longer what agents were told and people approved: it changed since the call was
    /// judged.
    fn still_as_approved(&self, tool: &str) -> Result<(), String> {
        match self.book().standing(tool) {
            Standing::AsApproved => Ok(()),
            Standing::Changed(_) => Err(format!(
                "the definition of its tool '{tool}' has changed since it was approved, so it was not called; call it \
                 again, and the person is asked"
            )),
            Standing::Gone(why) => Err(why),
        }
    }
}

/// Hears of changes while no call is under way.
async fn heed(server: Weak<Server>, news: Arc<News>) {
    loop {
        news.heard().await;
        let Some(server) = server.upgrade() else { return };
        server.catch_up().await;
    }
}

/// Connects, and asks for the tools.
async fn connected(
    plain: &str,
    definition: &Definition,
    news: &Arc<News>,
) -> Result<(Connection, Vec<Tool>), String> {
    let limit = definition.start_time;
    let started = tokio::time::timeout(limit, async {
        let connection = Connection::open(plain, &definition.way, news).await?;
        let tools = list(&connection).await.map_err(|why| format!("its tools cannot be listed: {why}"))?;
        Ok((connection, tools))
    });
    started.await.unwrap_or_else(|_| Err(format!("it was not ready within {}", seconds(limit))))
}

/// Message about a call that may have had an effect.
fn outcome_unknown(why: &str) -> String {
    format!("outcome unknown: {why}. Check whether the call took effect before you repeat it.")
}

/// The lost connection that an error is about, if it is about one.
async fn connection_lost(connection: &Connection, error: &ServiceError) -> Option<Lost> {
    match error {
        ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. } => {
            Some(connection.lost(error).await)
        }
        _ => None,
    }
}

/// What failed, in words. What was asked for changes nothing.
pub(super) async fn words(connection: &Connection, error: ServiceError) -> String {
    if let Some(Lost::Unsent(why) | Lost::Sent(why)) = connection_lost(connection, &error).await {
        return why;
    }
    match error {
        ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            format!("it does not know what was asked of it: {}", short(&error.message))
        }
        ServiceError::McpError(error) => format!("it answered with an error: {}", short(&error.message)),
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

fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        1_000 => "1 second".to_owned(),
        millis if millis % 1_000 == 0 => format!("{} seconds", millis / 1_000),
        millis => format!("{millis} ms"),
    }
}
