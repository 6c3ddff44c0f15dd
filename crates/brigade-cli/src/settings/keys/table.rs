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
const KEEP_ABOUT: &str = "How long sessions of children are kept: as long as their root, or until it ends";

/// All keys, each with its type and description.
pub(in crate::settings) static ROOT: &[KeySpec] = &[
    ("model", Text, "The model of agents that name none: PROVIDER/MODEL, or script:FILE for a scripted one"),
    ("fallbacks", Texts, "Models that take over, one after the other, where the model fails for good"),
    ("default_agent", Text, "The agent that takes a task where no other is named"),
    (
        "notify",
        Text,
        "A command that is run when a question opens or a run ends; variables NOTIFY_… say what happened",
    ),
    ("store", Text, "Where sessions are kept: `sqlite` is the usual place, anything else is a path"),
    ("agents", Section(&[("paths", Texts, "More folders with agent files")]), "Where agents are looked for"),
    ("skills", Section(&[("paths", Texts, "More folders with skills")]), "Where skills are looked for"),
    (
        "memory",
        Section(&[("enabled", Bool, "Whether agents have the tools that remember")]),
        "What agents store for later sessions",
    ),
    (
        "providers",
        Named(&PROVIDER),
        "Providers of models by name: new ones, and changes to those that are built in",
    ),
    (
        "prices",
        Models(&FIGURES),
        "What models cost, by PROVIDER/MODEL, where the built-in table is wrong or has no entry",
    ),
    (
        "delegation",
        Section(&[
            ("faces", TextOrTexts, "`auto`, or some of delegate, subagent, dispatch, spawn"),
            ("extras", Texts, "Parameters beyond the contracts: background, schema, tokens, usd"),
        ]),
        "In which ways agents may delegate",
    ),
    ("swarm", SWARM, "The face `delegate`"),
    ("subagent", SUBAGENT, "The face `subagent`; the section alone, even an empty one, switches it on"),
    ("spawn", SPAWN, "The face `spawn`; the section alone, even an empty one, switches it on"),
    (
        "budget",
        Section(&[
            ("tokens", Count, "Tokens, input and output together"),
            ("usd", Dollars, "Dollars"),
            ("agents", Count, "Agents that may be started below the lead"),
        ]),
        "What the whole tree of one task may use up",
    ),
    ("limits", LIMITS, "Limits of single sessions and of the tree"),
    (
        "permissions",
        Section(&[
            (
                "mode",
                OneOf(&MODES),
                "What is done without asking: only reading ever (plan), only reading (ask), edits too (edit), or all (auto)",
            ),
            (
                "questions",
                OneOf(&["auto", "wait", "refuse"]),
                "Who is asked: a person at the terminal, whoever runs `brigade answer`, or nobody",
            ),
            ("allow", Rules, "Calls that are allowed, such as shell(cargo test *)"),
            ("ask", Rules, "Calls that are asked about"),
            ("deny", Rules, "Calls that are refused, whatever allows them, such as read_file(**/.env*)"),
        ]),
        "What agents may do; deny beats ask beats allow",
    ),
    (
        "shell",
        Section(&[
            (
                "env",
                Texts,
                "Variables that commands get although they look like secrets, such as DATABASE_URL or AWS_*",
            ),
            ("deny_env", Texts, "Variables that commands do not get; this beats `env`"),
        ]),
        "The environment of commands: yours without secrets, changed by these lists",
    ),
    (
        "web",
        Section(&[
            ("allow_loopback", Bool, "Whether web_fetch may read from this machine"),
            ("search", Text, "The engine of web_search: brave, tavily, or the address of a SearXNG"),
            ("search_key_env", Text, "The variable that holds the key of the engine; never the key itself"),
            ("timeout", Time, "How long a fetch may take"),
            ("max_bytes", Number, "How many bytes of a page are read"),
        ]),
        "How the network is read",
    ),
    ("mcpServers", Named(&MCP_SERVER), "Servers of tools, by name"),
    (
        "acp",
        Section(&[("servers", Named(&ACP_SERVER), "Servers, by name")]),
        "Agents that other programs run",
    ),
];

const PROVIDER: ValueKind = Section(&[
    ("kind", OneOf(&KINDS), "The API that it speaks; openai is Chat Completions"),
    ("base_url", Text, "Where it is"),
    (
        "api_key_env",
        Text,
        "The variable that holds the key, never the key itself; empty where none is needed",
    ),
    ("concurrency", Positive, "How many requests may be under way at once"),
    ("requests_per_minute", Positive, "How many requests a minute may have"),
    ("tokens_per_minute", Positive, "How many tokens a minute may have"),
    ("connect_timeout", Time, "How long connecting may take"),
    ("first_byte_timeout", Time, "How long the first byte of a reply may take"),
    ("idle_timeout", Time, "How long a reply may pause"),
    ("total_timeout", Time, "How long a whole reply may take"),
    ("longest_wait", Time, "The longest wait for a provider that wants to be asked later"),
]);

const FIGURES: ValueKind = Section(&[
    ("input", Price, "Dollars for a million tokens of input"),
    ("output", Price, "Dollars for a million tokens of output"),
    ("cache_read", Price, "Dollars for a million tokens of input that were cached before"),
    ("cache_write", Price, "Dollars for a million tokens of input that are cached now"),
    ("context_window", Tokens, "How many tokens a request may have"),
    ("max_output", Tokens, "How many tokens a reply may have"),
]);

const SWARM: ValueKind = Section(&[
    ("enabled", Bool, "Whether `delegate` is offered"),
    ("max_depth", Number, "How deep agents may delegate; 1 is the lead only, 0 nobody"),
    ("max_concurrent", Number, "How many children of `delegate` may be active at once"),
    ("adhoc_prompt", Text, "The prompt of roles that are not prepared, with {role} in it"),
    ("keep", KEEP, KEEP_ABOUT),
    ("model", Text, "The model of children that name none"),
    ("roles", Named(&ROLE), "Prepared roles, by name"),
]);

const ROLE: ValueKind = Section(&[
    ("system_prompt", Text, "What the role is told"),
    ("tools", Texts, "The tools of the role; left out, those that its parent lends"),
    ("locked", Bool, "Whether a call may not change the tools"),
    ("lend", Texts, "The tools that the role may lend to its own children"),
    ("model", Text, "The model of the role"),
    ("acp", Text, "The agent of another program that plays the role"),
    ("tokens", Count, "Tokens that the role may use up, its children included"),
    ("usd", Dollars, "Dollars that the role may spend, its children included"),
]);

const SUBAGENT: ValueKind = Section(&[
    ("max_depth", Number, "How deep agents may go, the root counted"),
    ("default_max_turns", Number, "Model calls of a child where a call names no other number"),
    ("output_max_size", Number, "How many bytes of a report the caller reads, at least 1"),
    ("keep", KEEP, KEEP_ABOUT),
]);

const SPAWN: ValueKind = Section(&[
    ("max_depth", Number, "How deep agents may go"),
    ("default_max_turns", Number, "Model calls of a child where a call names no other number"),
    (
        "server",
        Text,
        "The server that `subagent_delegate` asks if a call names none, by its name in acp.servers",
    ),
    ("agent", Text, "The agent of that server"),
    ("system_prompt", Text, "The system prompt of `subagent_spawn` if a call has none"),
]);

const LIMITS: ValueKind = Section(&[
    ("lead_turns", Number, "Model calls of the lead"),
    ("child_turns", Number, "Model calls of a child"),
    ("child_timeout", Time, "How long a child may take"),
    ("question_timeout", Time, "How long a question waits for its answer"),
    ("retry_pause", Time, "The pause after a model failed; it doubles with each failure that follows"),
    ("shell_timeout", Time, "How long a command may take"),
    ("max_depth", Number, "How deep the tree may be, whatever faces led there"),
    ("concurrency", Number, "How many agents of a tree may be active at once"),
    ("result_bytes", Number, "How many bytes of a result its caller reads at once"),
    ("max_tokens", Number, "Output tokens of one reply, at most, for agents that set none"),
    (
        "loop_warning",
        Number,
        "Turns with the same calls and results after which an agent is warned; 0 for never",
    ),
    (
        "loop_limit",
        Number,
        "Turns with the same calls and results after which an agent is stopped; 0 for never",
    ),
]);

const MCP_SERVER: ValueKind = Section(&[
    ("command", Text, "The program that is started"),
    ("args", Texts, "Its arguments"),
    ("env", Named(&Text), "Its variables"),
    ("cwd", Text, "The folder that it starts in, if that is not the one that is worked in"),
    ("url", Text, "Where it is, if it is not started here"),
    ("headers", Named(&Text), "Headers of requests to it"),
    ("oauth", OAUTH, "How you are logged in to it, where it asks for that"),
    ("timeout", Time, "How long a call may take; a plain number is seconds, from 1000 on milliseconds"),
    ("disabled", Bool, "Whether it is left alone: it is not started, and its tools are missing"),
    ("type", Text, "How it is spoken to: stdio or http; it also follows from command and url"),
]);

const OAUTH: ValueKind = Section(&[
    ("clientId", Text, "A client that the server knows, or the address of a document about one"),
    ("clientSecret", Text, "Its secret; best written as a variable"),
    ("scopes", Texts, "What is asked for; the server says so where this is absent"),
    ("grant", OneOf(&OAUTH_GRANTS), "Who logs in: you in a browser, or the client with its secret"),
]);

const ACP_SERVER: ValueKind = Section(&[
    ("command", Text, "The program that is started"),
    ("args", Texts, "Its arguments"),
    ("env", Named(&Text), "Its variables"),
    ("mode", Text, "The mode that its sessions are put into, by the name that it has there"),
    ("model", Text, "The model that it is told to use, by the name that it has there"),
    ("pool", Bool, "Whether one process serves many sessions; if not, each session has its own"),
    ("max_sessions", Positive, "How many sessions one process serves at once"),
    ("start_timeout", Time, "How long starting it and opening a session may take"),
    ("timeout", Time, "How long one of its sessions may take"),
    ("turns", Positive, "How often one of its sessions may ask something of us"),
    (
        "tokens",
        Tokens,
        "Tokens that a session of it is lent; left out, none, and those that it reports count for nothing",
    ),
    (
        "usd",
        Dollars,
        "Dollars that a session of it is lent; left out, none, and those that it reports count for nothing",
    ),
    (
        "max_agents",
        Number,
        "Agents that a session of it is lent, where it is a Brigade that delegates in its turn; left out, none",
    ),
    ("allow_in_plan", Bool, "Whether to start it in plan mode even if none of its modes is known to be safe"),
    ("agents", Named(&ACP_AGENT), "Its agents, by name"),
]);

const ACP_AGENT: ValueKind = Section(&[
    ("mode", Text, "The mode that it is put into"),
    ("model", Text, "The model that it is told to use"),
    ("args", Texts, "More arguments of the program"),
]);
