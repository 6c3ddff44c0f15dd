//! Table of configuration keys. Checks, the environment and `brigade config schema` use it, so a key is added here
//! and nowhere else.

use super::super::providers::KINDS;
use super::super::servers::OAUTH_GRANTS;
use super::ValueKind::{
    Bool, Count, Dollars, Models, Named, Number, OneOf, Positive, Price, Rules, Section, Text, TextOrTexts,
    Texts, Time, Tokens,
};
use super::{KeySpec, MODES, ValueKind};

const KEEP: ValueKind = OneOf(&["root", "none"]);
const KEEP_ABOUT: &str =
    "How long sub-agent sessions are kept: as long as the root session (root), or only until it ends (none)";

/// All keys, each with its type and description.
pub(in crate::settings) static ROOT: &[KeySpec] = &[
    ("model", Text, "Default model of agents: PROVIDER/MODEL, or script:FILE for a scripted model"),
    ("fallbacks", Texts, "Fallback models, tried in order if the model fails permanently"),
    ("default_agent", Text, "Agent that receives a task by default"),
    (
        "notify",
        Text,
        "Command to run when an approval is requested or a run ends; environment variables NOTIFY_… describe the event",
    ),
    ("store", Text, "File that stores the sessions: `sqlite` for the default location, or a path"),
    ("agents", Section(&[("paths", Texts, "Additional directories with agent files")]), "Agent definitions"),
    ("skills", Section(&[("paths", Texts, "Additional directories with skills")]), "Skills"),
    (
        "memory",
        Section(&[("enabled", Bool, "Whether agents have the memory tools")]),
        "Memory that agents keep across sessions",
    ),
    ("providers", Named(&PROVIDER), "Model providers by name: new ones, and changes to the built-in ones"),
    ("prices", Models(&FIGURES), "Model prices by PROVIDER/MODEL, to correct or extend the built-in table"),
    (
        "delegation",
        Section(&[
            (
                "faces",
                TextOrTexts,
                "Delegation styles: `auto`, or a list of delegate, subagent, dispatch, spawn",
            ),
            ("extras", Texts, "Additional tool parameters: background, schema, tokens, usd"),
        ]),
        "How agents may delegate",
    ),
    ("swarm", SWARM, "Delegation style `delegate`"),
    (
        "subagent",
        SUBAGENT,
        "Delegation style `subagent`; enabled if this section exists, even if it is empty",
    ),
    ("spawn", SPAWN, "Delegation style `spawn`; enabled if this section exists, even if it is empty"),
    (
        "budget",
        Section(&[
            ("tokens", Count, "Maximum tokens, input and output together"),
            ("usd", Dollars, "Maximum cost in dollars"),
            ("agents", Count, "Maximum number of sub-agents"),
        ]),
        "Budget of one task, including all sub-agents",
    ),
    ("limits", LIMITS, "Limits of single sessions and of the whole tree"),
    (
        "permissions",
        Section(&[
            (
                "mode",
                OneOf(&MODES),
                "Calls that run without approval: plan (reads; all others are denied), ask (reads), edit (reads and file edits), auto (all calls that no deny or ask rule matches)",
            ),
            (
                "questions",
                OneOf(&["auto", "wait", "refuse"]),
                "Handling of approval requests: prompt at the terminal (auto), wait for `brigade answer` (wait), or deny (refuse)",
            ),
            ("allow", Rules, "Calls to allow, such as shell(cargo test *)"),
            ("ask", Rules, "Calls that need approval"),
            ("deny", Rules, "Calls to deny, even if another rule allows them, such as read_file(**/.env*)"),
        ]),
        "Permissions of agents; deny overrides ask, and ask overrides allow",
    ),
    (
        "shell",
        Section(&[
            (
                "env",
                Texts,
                "Variables to pass to commands although they look like secrets, such as DATABASE_URL or AWS_*",
            ),
            ("deny_env", Texts, "Variables to withhold from commands; overrides `env`"),
        ]),
        "Environment variables of commands: yours without secrets, adjusted by these lists",
    ),
    (
        "web",
        Section(&[
            ("allow_loopback", Bool, "Whether `web_fetch` may access this machine"),
            (
                "search",
                Text,
                "Search engine of `web_search`: brave, tavily, or the URL of a SearXNG instance",
            ),
            (
                "search_key_env",
                Text,
                "Environment variable that contains the key of the search engine; never the key itself",
            ),
            ("timeout", Time, "Timeout of a fetch"),
            ("max_bytes", Number, "Maximum bytes read from a page"),
        ]),
        "Web access",
    ),
    ("mcpServers", Named(&MCP_SERVER), "MCP servers by name"),
    (
        "acp",
        Section(&[("servers", Named(&ACP_SERVER), "ACP servers by name")]),
        "External agents (Agent Client Protocol)",
    ),
];

const PROVIDER: ValueKind = Section(&[
    ("kind", OneOf(&KINDS), "API of the provider; openai is Chat Completions"),
    ("base_url", Text, "Base URL of the API"),
    (
        "api_key_env",
        Text,
        "Environment variable that contains the key, never the key itself; empty if no key is needed",
    ),
    ("concurrency", Positive, "Maximum concurrent requests"),
    ("requests_per_minute", Positive, "Maximum requests per minute"),
    ("tokens_per_minute", Positive, "Maximum tokens per minute"),
    ("connect_timeout", Time, "Timeout for connecting"),
    ("first_byte_timeout", Time, "Timeout for the first byte of a reply"),
    ("idle_timeout", Time, "Timeout for a pause within a reply"),
    ("total_timeout", Time, "Timeout for a whole reply"),
    ("longest_wait", Time, "Maximum wait before a retry that the provider requests"),
]);

const FIGURES: ValueKind = Section(&[
    ("input", Price, "Dollars per million input tokens"),
    ("output", Price, "Dollars per million output tokens"),
    ("cache_read", Price, "Dollars per million input tokens read from the cache"),
    ("cache_write", Price, "Dollars per million input tokens written to the cache"),
    ("context_window", Tokens, "Maximum tokens of a request"),
    ("max_output", Tokens, "Maximum tokens of a reply"),
]);

const SWARM: ValueKind = Section(&[
    ("enabled", Bool, "Whether agents have the tool `delegate`"),
    ("max_depth", Number, "Maximum depth of delegation; 1: only the lead delegates, 0: no agent does"),
    ("max_concurrent", Number, "Maximum concurrent sub-agents of `delegate`"),
    ("adhoc_prompt", Text, "System prompt of roles without a preset; {role} is replaced by the role"),
    ("keep", KEEP, KEEP_ABOUT),
    ("model", Text, "Default model of sub-agents"),
    ("roles", Named(&ROLE), "Role presets by name"),
]);

const ROLE: ValueKind = Section(&[
    ("system_prompt", Text, "System prompt of the role"),
    ("tools", Texts, "Tools of the role; by default those that its parent can pass on"),
    ("locked", Bool, "Whether a call may narrow the tools but not widen them"),
    ("lend", Texts, "Tools that the role may pass on to its own sub-agents"),
    ("model", Text, "Model of the role"),
    ("acp", Text, "External agent that takes the role"),
    ("tokens", Count, "Maximum tokens of the role, including its sub-agents"),
    ("usd", Dollars, "Maximum cost of the role in dollars, including its sub-agents"),
]);

const SUBAGENT: ValueKind = Section(&[
    ("max_depth", Number, "Maximum depth, including the root"),
    ("default_max_turns", Number, "Default maximum number of model calls of a sub-agent"),
    ("output_max_size", Number, "Maximum bytes of a report that the caller reads, at least 1"),
    ("keep", KEEP, KEEP_ABOUT),
]);

const SPAWN: ValueKind = Section(&[
    ("max_depth", Number, "Maximum depth"),
    ("default_max_turns", Number, "Default maximum number of model calls of a sub-agent"),
    ("server", Text, "Default server of `subagent_delegate`, by its name in `acp.servers`"),
    ("agent", Text, "Default agent of that server"),
    ("system_prompt", Text, "Default system prompt of `subagent_spawn`"),
]);

const LIMITS: ValueKind = Section(&[
    ("lead_turns", Number, "Maximum number of model calls of the lead agent"),
    ("child_turns", Number, "Maximum number of model calls of a sub-agent"),
    ("child_timeout", Time, "Timeout of a sub-agent"),
    ("question_timeout", Time, "Time after which an unanswered approval request is denied"),
    ("retry_pause", Time, "Pause before a failed model call is retried; doubles with each failure"),
    ("shell_timeout", Time, "Timeout of a command"),
    ("max_depth", Number, "Maximum depth of the tree, across all delegation styles"),
    ("concurrency", Number, "Maximum concurrent agents of a tree"),
    ("result_bytes", Number, "Maximum bytes of a result that the caller reads at once"),
    ("max_tokens", Number, "Default maximum number of output tokens of a reply"),
    (
        "loop_warning",
        Number,
        "Number of turns with the same calls and results after which an agent is warned; 0: never",
    ),
    (
        "loop_limit",
        Number,
        "Number of turns with the same calls and results after which an agent is stopped; 0: never",
    ),
]);

const MCP_SERVER: ValueKind = Section(&[
    ("command", Text, "Program to start"),
    ("args", Texts, "Arguments of the program"),
    ("env", Named(&Text), "Environment variables of the program"),
    ("cwd", Text, "Directory in which the program starts; by default the working directory"),
    ("url", Text, "URL of a remote server"),
    ("headers", Named(&Text), "HTTP headers of requests"),
    ("oauth", OAUTH, "OAuth login, if the server requires one"),
    ("timeout", Time, "Timeout of a call; a plain number means seconds below 1000, otherwise milliseconds"),
    ("disabled", Bool, "Whether the server is disabled"),
    ("type", Text, "Transport: stdio or http; by default derived from `command` and `url`"),
]);

const OAUTH: ValueKind = Section(&[
    ("clientId", Text, "Id of a registered client, or the URL of a client metadata document"),
    ("clientSecret", Text, "Secret of the client; preferably a variable such as ${CLIENT_SECRET}"),
    ("scopes", Texts, "Scopes to request; by default those that the server names"),
    (
        "grant",
        OneOf(&OAUTH_GRANTS),
        "Login by you in a browser (authorization_code), or by the client with its secret (client_credentials)",
    ),
]);

const ACP_SERVER: ValueKind = Section(&[
    ("command", Text, "Program to start"),
    ("args", Texts, "Arguments of the program"),
    ("env", Named(&Text), "Environment variables of the program"),
    ("mode", Text, "Mode of its sessions, by the name that the server uses"),
    ("model", Text, "Model of its sessions, by the name that the server uses"),
    ("pool", Bool, "Whether one process serves several sessions; otherwise each session has its own process"),
    ("max_sessions", Positive, "Maximum concurrent sessions of one process"),
    ("start_timeout", Time, "Timeout for starting the program and opening a session"),
    ("timeout", Time, "Timeout of a session"),
    ("turns", Positive, "Maximum number of requests that a session may send to Brigade"),
    (
        "tokens",
        Tokens,
        "Tokens of the budget that a session may use; by default none, and the tokens that it reports are not counted",
    ),
    (
        "usd",
        Dollars,
        "Dollars of the budget that a session may use; by default none, and the cost that it reports is not counted",
    ),
    (
        "max_agents",
        Number,
        "Maximum number of sub-agents of a session, if the program is another Brigade; by default none",
    ),
    (
        "allow_in_plan",
        Bool,
        "Whether to start the program in plan mode even if none of its modes is known to be read-only",
    ),
    ("agents", Named(&ACP_AGENT), "Agents of the server by name"),
]);

const ACP_AGENT: ValueKind = Section(&[
    ("mode", Text, "Mode of the agent"),
    ("model", Text, "Model of the agent"),
    ("args", Texts, "Additional arguments of the program"),
]);
