//! Random trees of delegations: spawns by every style, remote work, messages, resumes, crashes, cancels and changed
//! settings. The laws that every step checks are in `delegation.rs`.

use brigade_core::Agent;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::delegation_styles::{Caller, DelegationStyles, EnabledStyles};
use brigade_core::sandbox::SandboxMode;

use super::*;

/// Number of steps in a tree.
const STEPS: usize = 24;
/// Maximum depth that any setting of these trees permits.
pub(crate) const MAX_DEPTH: u32 = 5;

const TOOLS: [&str; 12] = [
    "read_file",
    "write_file",
    "shell",
    "web_fetch",
    "message",
    "grep",
    "delegate",
    "subagent",
    "parallel_subagent",
    "subagent_dispatch",
    "subagent_spawn",
    "mcp__x__y",
];
/// Values of `tools` in a call, most of them malformed.
const TOOL_ARGUMENTS: [&str; 16] = [
    r#"["read_file"]"#,
    r#"["shell", "write_file"]"#,
    r#"["read_file", "shell", "delegate", "nonsense"]"#,
    r#"["Shell", " shell", "shell\u0000", "SHELL"]"#,
    r#"["\u202ellehs", "s\u043dell"]"#,
    r#"["*"]"#,
    r#"["shell(*)", "read_file,shell"]"#,
    "[]",
    "null",
    r#""shell""#,
    "[1, true, null]",
    "{}",
    r#"{"shell": true}"#,
    r#"["shell", 1]"#,
    r#"[["shell"]]"#,
    "true",
];
/// Roles and names, some of which other programs fold to a preset.
const NAMES: [&str; 12] = [
    "Writer",
    "wRITER",
    "Writer ",
    "\u{212a}elvin",
    "kelvin",
    "KELVIN",
    "Wr\u{456}ter",
    "Poet",
    "a",
    "A",
    "lead",
    "[Lead]",
];

/// Deterministic random numbers (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn tools(&mut self) -> Vec<String> {
        TOOLS.iter().filter(|_| self.below(5) > 0).map(|tool| (*tool).to_owned()).collect()
    }

    fn depth(&mut self) -> u32 {
        if self.one_in(8) { 0 } else { 1 + self.below(MAX_DEPTH as usize) as u32 }
    }

    fn mode(&mut self) -> Mode {
        self.pick(&[Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto])
    }

    fn access(&mut self) -> Access {
        self.pick(&[Access::Denied, Access::Allowed])
    }

    fn sandbox(&mut self) -> Option<SandboxMode> {
        self.pick(&[None, Some(SandboxMode::ReadOnly), Some(SandboxMode::Workspace), Some(SandboxMode::Off)])
    }

    fn agent_names(&mut self) -> Names {
        if self.one_in(2) { Names::Any } else { Names::Only(["a", "b"].map(str::to_owned).into()) }
    }

    fn rules(&mut self) -> Vec<brigade_core::permission::Rule> {
        let rules = ["shell(git push)", "read_file(**/.env*)", "write_file", "shell", "web_fetch(*.example)"];
        rules.iter().filter(|_| self.one_in(4)).map(|rule| rule.parse().unwrap()).collect()
    }

    fn root(&mut self) -> Authority {
        let paths: BTreeSet<String> = [self.pick(&["", "src", "docs"]).to_owned()].into();
        Authority {
            tools: self.tools().into_iter().collect(),
            lend: self.tools().into_iter().collect(),
            permissions: Permissions {
                mode: self.mode(),
                allow: self.rules(),
                ask: self.rules(),
                deny: self.rules(),
            },
            max_depth: self.depth(),
            agents: self.agent_names(),
            models: Names::Any,
            workspace: "workspace".to_owned(),
            paths,
            network: self.access(),
            speak: self.access(),
            sandbox: self.sandbox(),
        }
    }

    fn definition(&mut self, id: &str) -> Agent {
        let list = |rng: &mut Rng| rng.one_in(2).then(|| rng.tools());
        Agent {
            id: id.to_owned(),
            name: id.to_owned(),
            description: id.to_owned(),
            prompt: id.to_owned(),
            tools: list(self),
            lend: list(self),
            mode: self.one_in(3).then(|| self.mode()),
            sandbox: self.sandbox(),
            ..Agent::default()
        }
    }

    fn styles(&mut self) -> DelegationStyles {
        let role = SwarmRole {
            tools: self.tools(),
            lend: self.one_in(2).then(|| self.tools()),
            locked: self.one_in(2),
            sandbox: self.sandbox(),
            ..SwarmRole::default()
        };
        let roles = BTreeMap::from([("Writer".to_owned(), role.clone()), ("kelvin".to_owned(), role)]);
        let mut styles = DelegationStyles {
            swarm: SwarmConfig { max_depth: self.depth(), roles, ..SwarmConfig::default() },
            subagent: Some(SubagentConfig { max_depth: self.depth(), ..SubagentConfig::default() }),
            spawn: Some(SpawnConfig { max_depth: self.depth(), ..SpawnConfig::default() }),
            ..DelegationStyles::default()
        };
        styles.delegation.styles = EnabledStyles::Auto;
        styles
    }
}

/// Session of a random tree.
pub(crate) struct Node {
    pub(crate) session: SessionId,
    pub(crate) authority: Authority,
    pub(crate) depth: u32,
    /// Indices of its ancestors, root first.
    pub(crate) ancestors: Vec<usize>,
    /// Delegation and definition that it came from, to derive its authority again.
    pub(crate) origin: Option<(Delegation, Option<Agent>)>,
    pub(crate) agent: Agent,
    pub(crate) state: State,
}

pub(crate) struct RandomTree {
    pub(crate) rng: Rng,
    pub(crate) styles: DelegationStyles,
    pub(crate) agents: Vec<Agent>,
    pub(crate) root: Authority,
    pub(crate) nodes: Vec<Node>,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
}

impl RandomTree {
    pub(crate) fn grow(seed: u64) -> RandomTree {
        let mut rng = Rng(seed);
        let (root, styles) = (rng.root(), rng.styles());
        let agents = ["a", "b", "c"].map(|id| rng.definition(id)).into();
        let mut tree =
            RandomTree { rng, styles, agents, root: root.clone(), nodes: Vec::new(), calls: 0, refused: 0 };
        let session = SessionId::root(u128::from(seed));
        tree.add(session, root, Vec::new(), None, Agent::default());
        for _ in 0..STEPS {
            let at = tree.rng.below(tree.nodes.len());
            match tree.rng.below(12) {
                0..=5 => tree.spawn(at),
                6 => tree.crash(at),
                7 => tree.change_settings(at),
                8 => tree.enter_again(at),
                9 => tree.pass_on(at),
                10 => tree.cancel(at),
                _ => tree.allow_always(at),
            }
        }
        tree
    }

    fn add(
        &mut self,
        session: SessionId,
        authority: Authority,
        ancestors: Vec<usize>,
        origin: Option<(Delegation, Option<Agent>)>,
        agent: Agent,
    ) {
        let depth = ancestors.len() as u32;
        let budget = Budget { agents: Limit::AtMost(9), ..Budget::UNLIMITED };
        let grant = Grant { authority: authority.hash(), budget, turns: 9, deadline: Limit::Unlimited };
        let delegation: Delegation =
            origin.as_ref().map_or_else(Delegation::default, |(made, _)| made.clone());
        let parent = session.parent();
        let mut state = State::new(session.clone());
        state.apply(&Event::Started {
            delegation: delegation.into(),
            agent: Hash::of(b""),
            grant,
            parent,
            depth,
        });
        self.nodes.push(Node { session, authority, depth, ancestors, origin, agent, state });
    }

    /// Makes a call of a delegation tool with arguments that a model may have made up.
    fn spawn(&mut self, at: usize) {
        let (tool, arguments) = self.call();
        let node = &self.nodes[at];
        let (authority, depth, agent) = (node.authority.clone(), node.depth, node.agent.clone());
        let caller = Caller { depth, authority: &authority, agent: &agent, agents: &self.agents };
        let Ok(plan) = self.styles.plan(tool, &caller, &arguments) else {
            self.refused += 1;
            return;
        };
        assert!(authority.tools.contains(tool), "D01: {tool} was called by an agent without it");
        self.calls += 1;
        let call = CallId { turn: self.calls, index: 0 };
        for (number, delegation) in plan.delegations.into_iter().enumerate() {
            let definition = self.definition(&delegation, at);
            let Some((child, agent)) = self.derive(&delegation, definition.clone(), at, depth) else {
                continue;
            };
            let session = self.nodes[at].session.child_of_several(call, number);
            let ancestors: Vec<usize> = self.nodes[at].ancestors.iter().copied().chain([at]).collect();
            self.d03_malformed_tools_never_widen(&arguments, &child, at, &delegation, definition.is_some());
            self.d04_names_lead_to_a_preset_only_if_they_are_its_name(
                &delegation,
                definition.is_some(),
                &child,
                at,
            );
            self.d15_messages_are_lent(&child, at);
            self.add(session, child, ancestors, Some((delegation, definition)), agent);
            self.check(self.nodes.len() - 1);
        }
    }

    fn call(&mut self) -> (&'static str, String) {
        let name = self.rng.pick(&NAMES);
        let id = if self.rng.one_in(4) { name } else { self.rng.pick(&["a", "b", "c"]) };
        let tools = match self.rng.below(4) {
            0 | 1 => String::new(),
            2 => self.rng.pick(&TOOL_ARGUMENTS[..3]).to_owned(),
            _ => self.rng.pick(&TOOL_ARGUMENTS).to_owned(),
        };
        let tools = match tools.as_str() {
            "" => String::new(),
            tools => format!(r#", "tools": {tools}, "allowed_tools": {tools}"#),
        };
        let task = r#""task": "go", "task_prompt": "go", "label": "h", "description": "d""#;
        match self.rng.below(5) {
            0 | 1 => ("delegate", format!(r#"{{"role": "{name}", "task": "go"{tools}}}"#)),
            2 => ("subagent", format!("{{{task}{tools}}}")),
            3 => ("subagent_dispatch", format!(r#"{{"agent_id": "{id}", "task": "go"{tools}}}"#)),
            _ => ("subagent_spawn", format!("{{{task}{tools}}}")),
        }
    }

    fn definition(&self, delegation: &Delegation, at: usize) -> Option<Agent> {
        let node = &self.nodes[at];
        let caller = Caller {
            depth: node.depth,
            authority: &node.authority,
            agent: &node.agent,
            agents: &self.agents,
        };
        let id = self.styles.of(delegation).definition(delegation, &caller)?;
        self.agents.iter().find(|agent| agent.id == id).cloned()
    }

    /// Derives the authority of a child from its parent's.
    fn derive(
        &self,
        delegation: &Delegation,
        definition: Option<Agent>,
        at: usize,
        depth: u32,
    ) -> Option<(Authority, Agent)> {
        let node = &self.nodes[at];
        let caller = Caller { depth, authority: &node.authority, agent: &node.agent, agents: &self.agents };
        let (agent, request) = self.styles.prepare_child(delegation, &caller, definition);
        let attenuated = node.authority.attenuate(&request, depth + 1).ok()?;
        Some((attenuated.authority, agent))
    }

    fn check(&self, at: usize) {
        self.d01_child_is_within_its_parent(at);
        self.d02_child_is_within_every_ancestor(at);
        self.d06_depth_is_bounded_whatever_the_style(at);
        self.d16_session_addresses_its_own_subtree(at);
    }

    /// The process is gone: authority and state are read again.
    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let again: Authority = serde_json::from_str(&node.authority.encoded()).unwrap();
        assert_eq!(again, node.authority, "D05: an authority changes when it is read");
        self.check(at);
    }

    /// The user narrows the settings while the tree runs. All sessions are derived again when they are entered.
    fn change_settings(&mut self, at: usize) {
        if at == 0 {
            let mode = self.rng.mode().min(self.nodes[0].authority.permissions.mode);
            let deny = self.rng.rules();
            let access = self.rng.access();
            let sandbox = self.rng.sandbox();
            let root = &mut self.nodes[0].authority;
            root.permissions = root.permissions.narrowed_to(mode);
            root.permissions.deny.extend(deny);
            root.network = root.network.min(access);
            root.sandbox = root.sandbox.into_iter().chain(sandbox).min();
            assert!(root.is_within(&Authority {
                lend: self.root.lend.union(&root.tools).cloned().collect(),
                ..self.root.clone()
            }));
        }
        for node in 1..self.nodes.len() {
            self.enter_again(node);
        }
    }

    /// D05: a message or a resume derives the authority again, from what the parent has now.
    fn enter_again(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (Some((delegation, definition)), Some(parent)) =
            (node.origin.clone(), node.ancestors.last().copied())
        else {
            return;
        };
        let depth = self.nodes[parent].depth;
        let derived = self.derive(&delegation, definition, parent, depth);
        // A session whose parent can no longer give anything keeps nothing.
        self.nodes[at].authority = derived.map_or_else(Authority::default, |(authority, _)| authority);
        if self.nodes[at].authority != Authority::default() {
            self.check(at);
        }
    }

    /// D06: work for another process carries its depth and mode, and what it returns to is never wider.
    fn pass_on(&mut self, at: usize) {
        let (mode, max_depth) = (self.rng.mode(), self.rng.depth());
        let other = self.rng.root();
        let node = &self.nodes[at];
        let sent = RemoteContext {
            lineage: vec![node.session.to_string()],
            depth: node.depth,
            max_depth: Some(node.authority.max_depth),
            mode: Some(node.authority.permissions.mode),
            ..RemoteContext::default()
        };
        let mut meta = serde_json::Map::new();
        sent.write_meta(&mut meta);
        let received = RemoteContext::from_meta(&meta).unwrap().unwrap();
        let later = RemoteContext {
            mode: Some(mode),
            max_depth: Some(max_depth),
            depth: node.depth + 1,
            ..received.clone()
        };
        for context in [received.clone(), received.intersect(&later), later.intersect(&received)] {
            let there = context.narrow(other.clone());
            assert!(there.max_depth <= node.authority.max_depth && there.max_depth <= other.max_depth, "D06");
            assert!(there.permissions.mode <= node.authority.permissions.mode, "D06: a wider mode elsewhere");
            assert!(context.depth >= node.depth, "D06: a hop starts again at a lower depth");
            let reference =
                Authority { lend: other.lend.union(&other.tools).cloned().collect(), ..other.clone() };
            assert!(there.is_within(&reference), "D06: another process got more than its own settings");
        }
    }

    /// D10: after a cancel, nothing starts.
    fn cancel(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.state.cancelled().is_none() {
            node.state.apply(&Event::CancelAsked { by: "user".to_owned() });
        }
        let call = CallId { turn: 1, index: 0 };
        let grant = Grant {
            authority: node.authority.hash(),
            budget: Budget::default(),
            turns: 1,
            deadline: Limit::Unlimited,
        };
        let events = [
            Event::Delegated {
                call,
                child: node.session.child(call),
                delegation: Delegation::default().into(),
                agent: Hash::of(b""),
                grant,
            },
            Event::Called {
                turn: 1,
                attempt: 1,
                purpose: Purpose::Turn,
                reserved: Resources::default(),
                input: 0,
                request: Hash::of(b""),
            },
            Event::ToolStarted {
                call,
                effect: Effect::Opaque,
                before: None,
                after: None,
                lent: Resources::default(),
                lines: None,
            },
        ];
        for event in events {
            assert!(!node.state.admits(&event), "D10: {event:?} after a cancel");
        }
    }

    /// D17: an approval for good belongs to one session.
    fn allow_always(&mut self, at: usize) {
        let call = CallId { turn: 1, index: 0 };
        let answer = Answer::Always("shell".to_owned());
        let before: Vec<usize> = self.nodes.iter().map(|node| node.state.always_allowed().len()).collect();
        self.nodes[at].state.apply(&Event::Answered { call, answer, by: "user".to_owned() });
        for (other, node) in self.nodes.iter().enumerate().filter(|(other, _)| *other != at) {
            assert_eq!(
                node.state.always_allowed().len(),
                before[other],
                "D17: an approval for another session"
            );
        }
    }
}
