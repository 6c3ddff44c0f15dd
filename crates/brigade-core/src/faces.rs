//! The contracts for delegation, one file each: JSON to [`Delegation`], [`Outcome`] to text. What is common to them,
//! and which of them an agent is offered, stands here.

pub mod delegate;
pub mod dispatch;
mod guidance;
pub mod spawn;
pub mod subagent;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::agent::{Agent, Place};
use crate::alias;
use crate::amount;
use crate::delegation::{Delegation, Face, Outcome, Status, Waiting};
use crate::grant::{Authority, Budget, Wish};
use crate::message::{ToolOutput, ToolSpec};
use crate::text::{Text, cut};
use delegate::SwarmConfig;
pub use guidance::guidance;
use spawn::SpawnConfig;
use subagent::SubagentConfig;

/// The names of all tools that delegate. An agent at its depth limit has none of them that works, whatever its
/// whitelist says.
pub const DELEGATION_TOOLS: [&str; 6] =
    [delegate::NAME, subagent::NAME, subagent::PARALLEL, dispatch::NAME, spawn::NAME, spawn::DELEGATE];

/// The tool that speaks to the person.
pub const MESSAGE: &str = "message";

/// What the name of a model begins with that only passes a call on; the rest names the one that children use.
pub const RELAY: &str = "relay/";

/// How all faces are set up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faces {
    /// Face A: the section `swarm`.
    pub swarm: SwarmConfig,
    /// Face B: the section `subagent`, where there is one.
    pub subagent: Option<SubagentConfig>,
    /// Face D: the section `spawn`, where there is one.
    pub spawn: Option<SpawnConfig>,
    /// Which of them are offered: the section `delegation`.
    pub delegation: DelegationConfig,
}

/// The section `delegation` of the config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DelegationConfig {
    /// Which faces are offered.
    pub faces: Offer,
    /// Optional parameters beyond the contracts.
    pub extras: BTreeSet<Extra>,
}

/// Which faces are offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Offer {
    /// `delegate` while it is enabled, `dispatch` whenever another agent exists, the others when they have a section.
    #[default]
    Auto,
    /// Just these.
    Only(BTreeSet<Face>),
}

/// A parameter beyond the contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    /// The caller goes on while the child works.
    Background,
    /// The result has to fit a JSON Schema.
    Schema,
    /// The most tokens that the child may use up.
    Tokens,
    /// The most dollars that the child may use up.
    Usd,
}

impl Serialize for Offer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Offer::Auto => serializer.serialize_str("auto"),
            Offer::Only(faces) => serializer.collect_seq(faces),
        }
    }
}

impl<'de> Deserialize<'de> for Offer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Offer, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            List(Vec<String>),
        }
        let names = match Written::deserialize(deserializer)? {
            Written::Word(word) if word == "auto" => return Ok(Offer::Auto),
            Written::Word(word) => word.split(',').map(|name| name.trim().to_owned()).collect(),
            Written::List(names) => names,
        };
        names
            .iter()
            .map(|name| face_of(name))
            .collect::<Result<_, _>>()
            .map(Offer::Only)
            .map_err(serde::de::Error::custom)
    }
}

fn face_of(name: &str) -> Result<Face, String> {
    let faces = [Face::Delegate, Face::Subagent, Face::Dispatch, Face::Spawn];
    faces.into_iter().find(|face| face.name() == name).ok_or_else(|| {
        format!(
            "there is no face '{}': write `auto`, or some of delegate, subagent, dispatch, spawn",
            inert(name, 32)
        )
    })
}

/// The face that a delegation tool belongs to.
fn face_of_tool(tool: &str) -> Option<Face> {
    match tool {
        delegate::NAME => Some(Face::Delegate),
        subagent::NAME | subagent::PARALLEL => Some(Face::Subagent),
        dispatch::NAME => Some(Face::Dispatch),
        spawn::NAME | spawn::DELEGATE => Some(Face::Spawn),
        _ => None,
    }
}

/// Who delegates.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// How deep it is in the tree.
    pub depth: u32,
    /// What it may do.
    pub authority: &'a Authority,
    /// Who it is.
    pub agent: &'a Agent,
    /// The definitions there are.
    pub agents: &'a [Agent],
}

/// What one call of a delegation tool asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One child for each.
    pub parts: Vec<Delegation>,
    /// How many of them may be out at once.
    pub at_once: usize,
    /// Whether the first failure stops the others.
    pub fail_fast: bool,
}

impl Plan {
    fn one(part: Delegation) -> Plan {
        Plan { parts: vec![part], at_once: 1, fail_fast: false }
    }
}

/// How one child of a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PartEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens that it and its children used.
    pub tokens: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl Faces {
    /// Whether a face is switched on.
    pub fn has(&self, face: Face) -> bool {
        let enabled = face != Face::Delegate || self.swarm.enabled;
        match &self.delegation.faces {
            Offer::Only(faces) => enabled && faces.contains(&face),
            Offer::Auto => match face {
                Face::Run => false,
                Face::Delegate => enabled,
                Face::Dispatch => true,
                Face::Subagent => self.subagent.is_some(),
                Face::Spawn => self.spawn.is_some(),
            },
        }
    }

    /// Sections whose face is not offered, in words for the person who wrote them.
    pub fn warnings(&self) -> Vec<String> {
        let sections = [
            ("subagent", Face::Subagent, self.subagent.is_some()),
            ("spawn", Face::Spawn, self.spawn.is_some()),
            ("swarm", Face::Delegate, self.swarm != SwarmConfig::default()),
        ];
        let unused = sections.into_iter().filter(|(_, face, is_there)| *is_there && !self.lists(*face));
        unused
            .map(|(section, face, _)| {
                format!("the section [{section}] has no effect: delegation.faces does not name {face}")
            })
            .collect()
    }

    fn lists(&self, face: Face) -> bool {
        match &self.delegation.faces {
            Offer::Auto => true,
            Offer::Only(faces) => faces.contains(&face),
        }
    }

    /// Face B's settings.
    pub fn subagent(&self) -> SubagentConfig {
        self.subagent.clone().unwrap_or_default()
    }

    /// Face D's settings.
    pub fn spawn(&self) -> SpawnConfig {
        self.spawn.clone().unwrap_or_default()
    }

    /// The depth of the deepest child that a face starts.
    pub fn levels(&self, face: Face) -> u32 {
        match face {
            Face::Run | Face::Dispatch => u32::MAX,
            Face::Delegate => self.swarm.max_depth,
            Face::Subagent => self.subagent().max_depth.saturating_sub(1),
            Face::Spawn => self.spawn().max_depth,
        }
    }

    /// The one predicate about depth: whether the caller may start a child through this face.
    pub fn may_start(&self, face: Face, caller: &Caller<'_>) -> bool {
        caller.depth < self.levels(face).min(caller.authority.deepest)
    }

    /// What the caller's model is told about the tools that delegate.
    pub fn specs(&self, caller: &Caller<'_>) -> Vec<ToolSpec> {
        let has = |name: &str| caller.authority.tools.contains(name);
        let mut specs = Vec::new();
        if self.has(Face::Delegate) && self.may_start(Face::Delegate, caller) && has(delegate::NAME) {
            specs.push(self.swarm.spec(&caller.others()));
        }
        // This face stays visible at its limit, and refuses there.
        if self.has(Face::Subagent) {
            let config = self.subagent();
            specs.extend(has(subagent::NAME).then(|| config.spec()));
            specs.extend(has(subagent::PARALLEL).then(|| config.parallel_spec()));
        }
        if self.has(Face::Dispatch) && self.may_start(Face::Dispatch, caller) && has(dispatch::NAME) {
            specs.extend(dispatch::spec(&caller.others()));
        }
        if self.has(Face::Spawn) && self.may_start(Face::Spawn, caller) {
            specs.extend(has(spawn::NAME).then(|| spawn::spec(&self.spawn())));
            specs.extend(has(spawn::DELEGATE).then(spawn::delegate_spec));
        }
        for spec in &mut specs {
            if spec.name != subagent::PARALLEL && spec.name != spawn::DELEGATE {
                self.add_extras(&mut spec.schema);
            }
        }
        specs
    }

    /// The tools among `offered` that start an agent if this caller calls them: all that delegate, without those that
    /// refuse at their depth limit.
    pub fn usable<'a>(&self, caller: &Caller<'_>, offered: &'a [ToolSpec]) -> Vec<&'a str> {
        let starts = |name: &&str| face_of_tool(name).is_some_and(|face| self.may_start(face, caller));
        offered.iter().map(|spec| spec.name.as_str()).filter(starts).collect()
    }

    fn add_extras(&self, schema: &mut Value) {
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
        for extra in &self.delegation.extras {
            match extra {
                Extra::Background => properties.insert(
                    "background".to_owned(),
                    json!({
                        "enum": [false, true, "detach"],
                        "description": "Go on at once; the end is told to you later. `tell` and `stop` reach the \
                                        sub-agent until then. Your own end waits for it, unless you write detach"
                    }),
                ),
                Extra::Schema => properties.insert(
                    "schema".to_owned(),
                    json!({ "type": "object", "description": "A JSON Schema that the result has to fit" }),
                ),
                Extra::Tokens => properties.insert(
                    "tokens".to_owned(),
                    json!({
                        "type": "integer",
                        "minimum": 1,
                        "description": "The most tokens that the sub-agent may use, input and output together"
                    }),
                ),
                Extra::Usd => properties.insert(
                    "usd".to_owned(),
                    json!({
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "description": "The most dollars that the sub-agent may spend"
                    }),
                ),
            };
        }
    }

    /// Reads a call of the delegation tool `tool`.
    pub fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<Plan, String> {
        let mut plan = match tool {
            delegate::NAME if self.lists(Face::Delegate) => {
                Plan::one(self.swarm.parse(caller.depth, caller.authority, arguments)?)
            }
            subagent::NAME if self.has(Face::Subagent) => {
                Plan::one(self.subagent().parse(caller, self.may_start(Face::Subagent, caller), arguments)?)
            }
            subagent::PARALLEL if self.has(Face::Subagent) => {
                self.subagent().parse_parallel(caller, self.may_start(Face::Subagent, caller), arguments)?
            }
            dispatch::NAME if self.has(Face::Dispatch) => {
                self.depth_guard(Face::Dispatch, caller)?;
                Plan::one(dispatch::parse(caller, arguments)?)
            }
            spawn::NAME if self.has(Face::Spawn) => {
                self.depth_guard(Face::Spawn, caller)?;
                Plan::one(self.spawn().parse(arguments)?)
            }
            spawn::DELEGATE if self.has(Face::Spawn) => {
                self.depth_guard(Face::Spawn, caller)?;
                Plan::one(self.spawn().parse_delegate(arguments)?)
            }
            _ => return Err(not_available(tool)),
        };
        if !caller.authority.tools.contains(tool) {
            return Err(not_available(tool));
        }
        if let [part] = plan.parts.as_mut_slice()
            && tool != spawn::DELEGATE
        {
            self.read_extras(part, arguments)?;
        }
        Ok(plan)
    }

    fn depth_guard(&self, face: Face, caller: &Caller<'_>) -> Result<(), String> {
        if self.may_start(face, caller) {
            return Ok(());
        }
        let settings = match face {
            Face::Run | Face::Dispatch => "limits.max_depth sets".to_owned(),
            Face::Delegate => "swarm.max_depth and limits.max_depth set".to_owned(),
            Face::Subagent | Face::Spawn => format!("{face}.max_depth and limits.max_depth set"),
        };
        Err(format!(
            "No agent may start below depth {} here (recursion limit; {settings} how deep a tree may get)",
            caller.depth
        ))
    }

    fn read_extras(&self, part: &mut Delegation, arguments: &str) -> Result<(), String> {
        if self.delegation.extras.is_empty() {
            return Ok(());
        }
        let value = crate::json::parse(arguments).map_err(|cause| cause.to_string())?;
        let (mut tokens, mut usd) = (None, None);
        for extra in &self.delegation.extras {
            match (extra, value.get(extra.name())) {
                (_, None | Some(Value::Null)) => {}
                (Extra::Background, Some(Value::Bool(true))) => part.waiting = Waiting::Background,
                (Extra::Background, Some(Value::Bool(false))) => {}
                (Extra::Background, Some(Value::String(word))) if word == "detach" => {
                    part.waiting = Waiting::Detachable;
                }
                (Extra::Background, Some(_)) => {
                    return Err(
                        "Invalid 'background' argument: expected true, false or \"detach\"".to_owned()
                    );
                }
                (Extra::Schema, Some(schema @ Value::Object(_))) => {
                    part.schema = Some(Text::from(schema.to_string()));
                }
                (Extra::Schema, Some(_)) => {
                    return Err(
                        "Invalid 'schema' argument: expected a JSON Schema, which is an object".to_owned()
                    );
                }
                (Extra::Tokens, Some(value)) => {
                    let invalid = |cause| format!("Invalid 'tokens' argument: {cause}");
                    tokens = Some(amount::tokens(value).map_err(invalid)?);
                }
                (Extra::Usd, Some(value)) => {
                    let invalid = |cause| format!("Invalid 'usd' argument: {cause}");
                    usd = Some(amount::dollars(value).map_err(invalid)?);
                }
            }
        }
        part.budget = Budget::of(tokens, usd).or(part.budget);
        Ok(())
    }

    /// The agent that does a part, and what it is to be given before that is cut down to what the caller may lend.
    /// `definition` is what the part names by id.
    pub fn equip(&self, part: &Delegation, caller: &Caller<'_>, definition: Option<Agent>) -> (Agent, Wish) {
        let (mut agent, mut wish) = match (part.face, definition) {
            (Face::Delegate, None) => (self.swarm.agent(part), self.swarm.wish(part, caller.authority)),
            (Face::Subagent, _) => subagent::equip(part, caller),
            (Face::Spawn, _) => self.spawn().equip(part, caller),
            (_, definition) => dispatch::equip(part, caller, definition.unwrap_or_default()),
        };
        wish.levels = self.levels(part.face);
        let at_the_limit = caller.depth + 1 >= wish.levels.min(caller.authority.deepest);
        if at_the_limit {
            let own =
                if part.face == Face::Subagent { &[subagent::NAME, subagent::PARALLEL][..] } else { &[] };
            let gone = DELEGATION_TOOLS.into_iter().filter(|name| !own.contains(name));
            wish.never.extend(gone.map(str::to_owned));
        }
        if matches!(agent.place, Place::Acp(_)) {
            // Another program chooses its model and has keys of its own.
            return (agent, wish);
        }
        settle_model(&mut agent, caller.agent);
        // An address and the key to it go together, and stay with their provider.
        let is_same_place = agent.api_base.is_none() && provider(&agent) == provider(caller.agent);
        if is_same_place {
            agent.api_base.clone_from(&caller.agent.api_base);
        }
        if is_same_place && agent.key_of.is_none() {
            agent.key_of.clone_from(&caller.agent.key_of);
        }
        wish.model = agent.model.clone().filter(|model| Some(model) != caller.agent.model.as_ref());
        (agent, wish)
    }

    /// What the caller's model reads when the only child of a call has ended.
    pub fn render(&self, part: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
        match part.face {
            Face::Run | Face::Delegate => delegate::render(part, outcome, limit, handle),
            Face::Subagent => self.subagent().render(part, outcome, limit, handle),
            Face::Dispatch => dispatch::render(part, outcome, limit, handle),
            Face::Spawn => spawn::render(part, outcome, limit, handle),
        }
    }
}

impl Extra {
    /// The parameter's name.
    pub fn name(self) -> &'static str {
        match self {
            Extra::Background => "background",
            Extra::Schema => "schema",
            Extra::Tokens => "tokens",
            Extra::Usd => "usd",
        }
    }
}

impl<'a> Caller<'a> {
    /// The definitions that the caller may name: all but itself.
    pub fn others(&self) -> Vec<&'a Agent> {
        let may_name = |agent: &&Agent| agent.id != self.agent.id && self.authority.agents.has(&agent.id);
        self.agents.iter().filter(may_name).collect()
    }
}

/// Makes whole names of the models of an agent, with what its caller uses where it names none.
pub fn settle_model(agent: &mut Agent, parent: &Agent) {
    if agent.model.is_none() && agent.provider.is_none() && agent.fallbacks.is_empty() {
        agent.fallbacks.clone_from(&parent.fallbacks);
    }
    agent.model = choose_model(agent, parent);
    agent.provider = None;
    let usual = Agent { model: agent.model.clone(), ..Agent::default() };
    for fallback in &mut agent.fallbacks {
        let named = Agent { model: Some(std::mem::take(fallback)), ..Agent::default() };
        *fallback = choose_model(&named, &usual).unwrap_or_default();
    }
}

/// `provider/model`, put together from what the definition says and what its caller uses.
fn choose_model(agent: &Agent, parent: &Agent) -> Option<String> {
    // What only passes a call on is no model for a child: that uses the one behind it.
    let inherited = parent.model.as_deref().map(|name| name.strip_prefix(RELAY).unwrap_or(name));
    // A name such as `script:/path` is all provider, whatever its path looks like.
    let parts = |name: &str| {
        let parts = name.split_once('/').filter(|(provider, _)| !provider.contains(':'));
        parts.map(|(provider, model)| (provider.to_owned(), model.to_owned()))
    };
    let model_of = |name: &str| parts(name).map_or_else(|| name.to_owned(), |(_, model)| model);
    let provider_of = |name: &str| parts(name).map(|(provider, _)| provider);
    match (&agent.provider, &agent.model) {
        (None, None) => inherited.map(str::to_owned),
        (Some(provider), Some(model)) if !model.starts_with(&format!("{provider}/")) => {
            Some(format!("{provider}/{model}"))
        }
        (Some(provider), None) => Some(match inherited.map(model_of) {
            Some(model) if model != *provider => format!("{provider}/{model}"),
            _ => provider.clone(),
        }),
        // A model without a provider is one of the caller's provider, where that has a name of its own.
        (None, Some(model)) if !model.contains('/') => match inherited.and_then(provider_of) {
            Some(provider) => Some(format!("{provider}/{model}")),
            None => Some(model.clone()),
        },
        (_, Some(model)) => Some(model.clone()),
    }
}

/// The provider that an agent's model names.
fn provider(agent: &Agent) -> Option<&str> {
    agent.model.as_deref().map(|model| model.split_once('/').map_or(model, |(provider, _)| provider))
}

fn not_available(tool: &str) -> String {
    format!("'{tool}' is not available here (recursion limit or configuration)")
}

/// The longest title that is shown whole, in characters.
const TITLE_LENGTH: usize = 64;

/// A label or description that a model wrote.
struct Title {
    /// The title on one line: control characters and brackets escaped, shortened with `…`.
    shown: String,
    /// The title as it was written, if it is shown differently.
    written: Option<Text>,
}

impl Title {
    /// The title that a text stands for; none if it is blank.
    fn of(text: &str) -> Option<Title> {
        let text = text.trim();
        let mut shown: Vec<char> = Vec::new();
        // The last place at which the title can be cut to make room for the mark.
        let mut end = 0;
        for c in text.chars() {
            match c {
                '[' | ']' => shown.extend(['\\', c]),
                _ if delegate::is_plain(c) => shown.push(c),
                _ => shown.extend(c.escape_default()),
            }
            if shown.len() > TITLE_LENGTH {
                shown.truncate(end);
                shown.push('…');
                break;
            }
            if shown.len() < TITLE_LENGTH {
                end = shown.len();
            }
        }
        let shown: String = shown.into_iter().collect();
        let written = (shown != text).then(|| Text::from(text));
        (!text.is_empty()).then_some(Title { shown, written })
    }
}

/// A title that a model wrote, as it can be shown: one line, without what could pass for a prefix of ours.
fn inert(text: &str, length: usize) -> String {
    let plain = |c: char| if delegate::is_plain(c) { c } else { ' ' };
    let line: String = text.chars().map(plain).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(length).collect()
}

/// The text that is there, cut on a character boundary, with a last line that says where the rest is.
fn shown(text: &str, limit: usize, handle: &str) -> String {
    let mut shown = cut(text, limit).to_owned();
    if text.len() > limit {
        shown.push_str(&format!(
            "\n(cut after {limit} bytes; `read_result` with handle {handle} has the rest)"
        ));
    }
    shown
}

/// The cause of an end that is no success.
pub fn failure(status: &Status) -> Option<String> {
    match status {
        Status::Done | Status::Incomplete { .. } | Status::Detached => None,
        Status::Failed { cause } => Some(cause.clone()),
        Status::Cancelled { by } => Some(format!("cancelled by {by}")),
        Status::Lost { cause } => Some(format!("outcome unknown: {cause}")),
    }
}

/// What there is of a result that failed, for the model.
fn so_far(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\nWhat there is so far:\n{text}") }
}

/// The tools that a whitelist names, by any of their names. What cannot be lent stays as it was written, so that it is
/// reported.
fn names(list: &[String], lend: &BTreeSet<String>) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    for written in list {
        let known = alias::tools(written).into_iter().filter(|name| lend.contains(*name));
        let mut known: Vec<String> = known.map(str::to_owned).collect();
        let name = alias::canonical(written.trim());
        if let Some(start) = alias::pattern(&name) {
            known = lend.iter().filter(|name| name.starts_with(start)).cloned().collect();
        } else if lend.contains(&*name) {
            known = vec![name.into_owned()];
        }
        if known.is_empty() || lend.contains(written) {
            known = vec![written.clone()];
        }
        known.retain(|name| !tools.contains(name));
        tools.append(&mut known);
    }
    tools
}

#[cfg(test)]
mod testing;
