//! Scripts for the scripted model.

use std::fmt;
use std::path::{Path, PathBuf};

use brigade::core::{Purpose, Usage};
use serde::Serialize;
use serde_json::{Value, json};

/// A script for the scripted model, built in Rust.
///
/// It has the same meaning as a script file: each request gets the first reply whose conditions all match. Its
/// [`Display`](fmt::Display) form is the script file, in JSON.
///
/// ```
/// use brigade_testing::{Script, call, reply};
/// use serde_json::json;
///
/// let script = Script::new()
///     // The lead reads a file in its first turn. In all later turns it repeats the result of that call.
///     .agent("lead", [call("read_file", json!({ "path": "notes.txt" })), reply("It says: {result:0}")])
///     // All other agents are overloaded once, then they reply.
///     .reply(reply("done").attempt(2))
///     .reply(brigade_testing::fault(brigade_testing::Fault::Overloaded));
/// assert!(script.to_string().starts_with(r#"{"reply":[{"agent":"lead","turn":1,"#));
/// ```
#[derive(Debug, Clone, Default, Serialize)]
pub struct Script {
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<DollarsPerMillion>,
    reply: Vec<Reply>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct DollarsPerMillion {
    input: f64,
    output: f64,
}

impl Script {
    /// Creates a script without replies.
    pub fn new() -> Script {
        Script::default()
    }

    /// Adds a reply. Without conditions, it serves all requests that no earlier reply matches.
    pub fn reply(mut self, reply: impl Into<Reply>) -> Script {
        self.reply.push(reply.into());
        self
    }

    /// Adds replies.
    pub fn replies(mut self, replies: impl IntoIterator<Item = Reply>) -> Script {
        self.reply.extend(replies);
        self
    }

    /// Adds the replies of one agent, given by its id or role: one for each turn. The last serves all further turns.
    pub fn agent(self, agent: &str, replies: impl IntoIterator<Item = Reply>) -> Script {
        let replies = number_turns(replies);
        self.replies(replies.map(|reply| reply.agent(agent)))
    }

    /// Adds replies of all agents: one for each turn. The last serves all further turns.
    pub fn turns(self, replies: impl IntoIterator<Item = Reply>) -> Script {
        let replies = number_turns(replies);
        self.replies(replies)
    }

    /// Sets the context window in tokens. A request counts one token for every four bytes.
    pub fn window(mut self, tokens: u64) -> Script {
        self.window = Some(tokens);
        self
    }

    /// Sets the prices in dollars per million tokens. Without them, the model is free.
    pub fn price(mut self, input: f64, output: f64) -> Script {
        self.price = Some(DollarsPerMillion { input, output });
        self
    }

    /// Appends a line `session turn attempt` to this file for every request that reaches the model.
    pub fn journal(mut self, file: &Path) -> Script {
        self.journal = Some(file.to_owned());
        self
    }

    /// Creates the model that replies from this script.
    ///
    /// # Panics
    ///
    /// Panics if the script has no reply.
    pub fn model(&self) -> brigade::model::script::Script {
        brigade::model::script::Script::parse(&self.to_string()).expect("the script has a reply")
    }
}

fn number_turns(replies: impl IntoIterator<Item = Reply>) -> impl Iterator<Item = Reply> {
    let mut replies = replies.into_iter().peekable();
    let mut turn = 0;
    std::iter::from_fn(move || {
        let reply = replies.next()?;
        turn += 1;
        Some(if replies.peek().is_some() { reply.turn(turn) } else { reply })
    })
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("a script is JSON"))
    }
}

/// A reply of a [`Script`], and the conditions under which it is sent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<Purpose>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    call: Vec<Call>,
    #[serde(skip_serializing_if = "is_default")]
    delay_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    chunks: usize,
    #[serde(skip_serializing_if = "is_default")]
    chunk_delay_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Serialize)]
struct Call {
    tool: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<u32>,
}

/// A fault instead of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A transient error. The call is retried.
    Overloaded,
    /// A permanent error. The agent fails.
    Refused,
    /// The stream ends before its terminal event. The call is retried.
    Cut,
    /// The conversation exceeds the context window.
    Overflow,
    /// No reply ever arrives.
    Hang,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Creates a reply with a text. Placeholders such as `{task}` and `{result:0}` are filled in when it is sent.
pub fn reply(text: &str) -> Reply {
    Reply { text: text.to_owned(), ..Reply::default() }
}

/// Creates a reply with one tool call.
pub fn call(tool: &str, arguments: Value) -> Reply {
    Reply::default().call(tool, arguments)
}

/// Creates a reply that delegates a task to a sub-agent with this role.
pub fn delegate(role: &str, task: &str) -> Reply {
    Reply::default().delegate(role, task)
}

/// Creates a fault.
pub fn fault(fault: Fault) -> Reply {
    Reply { fault: Some(fault), ..Reply::default() }
}

impl Reply {
    /// Restricts the reply to this agent, given by its id or role.
    pub fn agent(mut self, agent: &str) -> Reply {
        self.agent = Some(agent.to_owned());
        self
    }

    /// Restricts the reply to this turn of a session. Turns are counted from 1.
    pub fn turn(mut self, turn: u32) -> Reply {
        self.turn = Some(turn);
        self
    }

    /// Restricts the reply to this attempt at a turn. Attempts are counted from 1.
    pub fn attempt(mut self, attempt: u32) -> Reply {
        self.attempt = Some(attempt);
        self
    }

    /// Restricts the reply to calls for this purpose.
    pub fn purpose(mut self, purpose: Purpose) -> Reply {
        self.purpose = Some(purpose);
        self
    }

    /// Restricts the reply to agents whose first message contains this text.
    pub fn task(mut self, part: &str) -> Reply {
        self.task = Some(part.to_owned());
        self
    }

    /// Sets the text.
    pub fn text(mut self, text: &str) -> Reply {
        self.text = text.to_owned();
        self
    }

    /// Adds a tool call.
    pub fn call(mut self, tool: &str, mut arguments: Value) -> Reply {
        // The order of the keys must not depend on the features with which `serde_json` is built.
        arguments.sort_all_objects();
        self.call.push(Call { tool: tool.to_owned(), arguments, raw: None, repeat: None });
        self
    }

    /// Adds a call of the `delegate` tool.
    pub fn delegate(self, role: &str, task: &str) -> Reply {
        self.call("delegate", json!({ "role": role, "task": task }))
    }

    /// Adds a tool call whose arguments are this text, which need not be valid JSON.
    pub fn raw_call(mut self, tool: &str, arguments: &str) -> Reply {
        let raw = Some(arguments.to_owned());
        self.call.push(Call { tool: tool.to_owned(), arguments: Value::Null, raw, repeat: None });
        self
    }

    /// Makes the last call this many times. `{n}` is its number, from 0.
    ///
    /// # Panics
    ///
    /// Panics if the reply has no call.
    pub fn repeat(mut self, times: u32) -> Reply {
        self.call.last_mut().expect("`repeat` follows a call").repeat = Some(times);
        self
    }

    /// Sets the pause before the reply, in milliseconds.
    pub fn delay_ms(mut self, milliseconds: u64) -> Reply {
        self.delay_ms = milliseconds;
        self
    }

    /// Streams the text in this many pieces.
    pub fn chunks(mut self, count: usize) -> Reply {
        self.chunks = count;
        self
    }

    /// Sets the pause before each further piece, in milliseconds.
    pub fn chunk_delay_ms(mut self, milliseconds: u64) -> Reply {
        self.chunk_delay_ms = milliseconds;
        self
    }

    /// Sets the reported usage. The default is one token for every four bytes.
    pub fn usage(mut self, usage: Usage) -> Reply {
        self.usage = Some(usage);
        self
    }

    /// Sets the reported input and output tokens.
    pub fn tokens(self, input: u64, output: u64) -> Reply {
        self.usage(Usage { input, output, ..Usage::default() })
    }

    /// Makes the reply a fault. [`Fault::Cut`] keeps its text and calls.
    pub fn fault(mut self, fault: Fault) -> Reply {
        self.fault = Some(fault);
        self
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        reply(text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Reply {
        reply(&text)
    }
}
