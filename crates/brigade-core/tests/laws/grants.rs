//! Grants only shrink.

use super::*;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::delegation_styles::{Caller, DelegationStyles};
use brigade_core::sandbox::SandboxMode;
use brigade_core::{Agent, DelegationStyle};

pub(crate) fn tool_name() -> impl Strategy<Value = String> {
    let known = select(vec![
        "read_file",
        "write_file",
        "shell",
        "message",
        "delegate",
        "subagent_spawn",
        "web_fetch",
        "Read_File",
        " shell",
        "shell\0",
        "*",
        "",
        "../shell",
        "\u{202e}llehs",
        "she\u{301}ll",
        "shell(rm)",
        "s\u{43d}ell",
        "read_file,shell",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

pub(crate) fn names() -> impl Strategy<Value = Names> {
    let only = vec(select(vec!["a/one", "a/two", "b/three"]), 0..3);
    prop_oneof![
        Just(Names::Any),
        only.prop_map(|names| Names::Only(names.into_iter().map(str::to_owned).collect())),
    ]
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    select(vec![Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto])
}

pub(crate) fn permissions() -> impl Strategy<Value = Permissions> {
    let rules = || vec(select(vec!["shell", "shell(git *)", "read_file(**/.env*)", "write_file"]), 0..3);
    (mode(), rules(), rules(), rules()).prop_map(|(mode, allow, ask, deny)| {
        let parsed = |rules: Vec<&str>| rules.into_iter().map(|rule| rule.parse().unwrap()).collect();
        Permissions { mode, allow: parsed(allow), ask: parsed(ask), deny: parsed(deny) }
    })
}

pub(crate) fn authority() -> impl Strategy<Value = Authority> {
    let tools = || vec(tool_name(), 0..12);
    let paths = vec(select(vec!["", "src", "docs"]), 0..3);
    let access = || select(vec![Access::Denied, Access::Allowed]);
    (tools(), tools(), permissions(), 0u32..8, names(), names(), paths, access(), (access(), sandbox()))
        .prop_map(
            |(tools, lend, permissions, max_depth, agents, models, paths, network, (speak, sandbox))| {
                Authority {
                    tools: tools.into_iter().collect(),
                    lend: lend.into_iter().collect(),
                    permissions,
                    max_depth,
                    agents,
                    models,
                    workspace: "workspace".to_owned(),
                    paths: paths.into_iter().map(str::to_owned).collect(),
                    network,
                    speak,
                    sandbox,
                }
            },
        )
}

pub(crate) fn authority_request() -> impl Strategy<Value = AuthorityRequest> {
    let list = || prop::option::of(vec(tool_name(), 0..8));
    let model = prop::option::of(select(vec!["a/one", "b/three", "c/four"]).prop_map(str::to_owned));
    let names = || vec(tool_name(), 0..3);
    (list(), list(), 0u32..9, prop::option::of(mode()), model, names(), names(), sandbox()).prop_map(
        |(tools, lend, max_depth, mode, model, excluded, defined, sandbox)| AuthorityRequest {
            sandbox,
            tools,
            defined,
            lend,
            max_depth,
            mode,
            model,
            excluded,
            ..AuthorityRequest::default()
        },
    )
}

/// Whether `child` is in no field wider than `parent`; a second implementation, independent of the code's.
pub(crate) fn is_narrower(child: &Authority, parent: &Authority) -> bool {
    let names = |mine: &Names, theirs: &Names| {
        ["a/one", "a/two", "b/three", "anything"].into_iter().all(|name| !mine.has(name) || theirs.has(name))
    };
    child.tools.union(&child.lend).all(|tool| parent.lend.contains(tool))
        && child.permissions.mode <= parent.permissions.mode
        && child.permissions.deny == parent.permissions.deny
        && child.permissions.ask == parent.permissions.ask
        && child.permissions.allow == parent.permissions.allow
        && child.max_depth <= parent.max_depth
        && names(&child.agents, &parent.agents)
        && names(&child.models, &parent.models)
        && child.workspace == parent.workspace
        && child.paths.iter().all(|path| parent.paths.contains(path))
        && child.network <= parent.network
        && child.speak <= parent.speak
        && width(child.sandbox) <= width(parent.sandbox)
}

/// Position of a sandbox from narrow to wide. Without one, the configuration decides alone.
fn width(sandbox: Option<SandboxMode>) -> u8 {
    match sandbox {
        Some(SandboxMode::ReadOnly) => 0,
        Some(SandboxMode::Workspace) => 1,
        Some(SandboxMode::Off) => 2,
        None => 3,
    }
}

fn sandbox() -> impl Strategy<Value = Option<SandboxMode>> {
    prop::option::of(select(vec![SandboxMode::ReadOnly, SandboxMode::Workspace, SandboxMode::Off]))
}

/// Origin of a child: ad hoc by the model, or defined by the user.
#[derive(Debug, Clone, Copy)]
enum ChildKind {
    Adhoc,
    Helper,
    Spawned,
    Preset,
    Defined,
}

fn child_kind() -> impl Strategy<Value = ChildKind> {
    use ChildKind::{Adhoc, Defined, Helper, Preset, Spawned};
    select(vec![Adhoc, Helper, Spawned, Preset, Defined])
}

/// Returns the delegation of a child of this kind, and whether it runs the definition.
fn delegation_of(kind: ChildKind, tools: Option<Vec<String>>) -> (Delegation, bool) {
    let (style, role, named) = match kind {
        ChildKind::Adhoc => (DelegationStyle::Delegate, "Poet", false),
        ChildKind::Preset => (DelegationStyle::Delegate, "Writer", false),
        ChildKind::Helper => (DelegationStyle::Subagent, "helper", false),
        ChildKind::Spawned => (DelegationStyle::Spawn, "spawned", false),
        ChildKind::Defined => (DelegationStyle::Delegate, "coder", true),
    };
    (Delegation { style, role: Some(role.to_owned()), tools, ..Delegation::default() }, named)
}

/// Whether a list contains an alias of a tool.
fn names_tool(list: &[String], tool: &str) -> bool {
    list.iter().any(|name| brigade_core::tool_names::resolve(name).contains(&tool))
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn grants_only_shrink_over_any_tree(root in authority(), steps in vec((any::<prop::sample::Index>(), authority_request()), 1..25)) {
        // Each node: its authority, its depth, and the indices of its ancestors.
        let mut nodes: Vec<(Authority, u32, Vec<usize>)> = vec![(root, 0, Vec::new())];
        for (at, request) in steps {
            let at = at.index(nodes.len());
            let (parent, parent_depth, ancestors) = nodes[at].clone();
            let depth = parent_depth + 1;
            let max_depth = parent.max_depth.min(request.max_depth);
            let attenuated = match parent.attenuate(&request, depth) {
                Err(AttenuateError::Depth { max_depth: named }) => {
                    prop_assert!(depth > max_depth);
                    prop_assert_eq!(named, max_depth);
                    continue;
                }
                Err(AttenuateError::Model(model)) => {
                    prop_assert!(!parent.models.has(&model));
                    continue;
                }
                Ok(attenuated) => attenuated,
            };
            let child = attenuated.authority;
            prop_assert!(depth <= max_depth && depth <= child.max_depth && child.max_depth <= max_depth);
            prop_assert!(request.model.iter().all(|model| parent.models.has(model)));
            prop_assert!(child.tools.iter().chain(&child.lend).all(|tool| !request.excluded.contains(tool)));
            let has = |name: &String| parent.tools.contains(name) || request.defined.contains(name);
            prop_assert!(child.tools.iter().all(has), "a tool that neither the parent nor a definition has");
            if let Some(requested) = &request.tools {
                prop_assert!(child.tools.iter().all(|tool| requested.contains(tool)));
                let vain: Vec<&String> =
                    requested.iter().filter(|name| !parent.lend.contains(*name) || !has(name)).collect();
                prop_assert_eq!(attenuated.unknown_tools.iter().collect::<Vec<_>>(), vain);
            }
            match &request.lend {
                Some(requested) => prop_assert!(child.lend.iter().all(|tool| requested.contains(tool))),
                None => prop_assert_eq!(&child.lend, &child.tools),
            }
            let line: Vec<usize> = ancestors.into_iter().chain([at]).collect();
            for ancestor in &line {
                let ancestor = &nodes[*ancestor].0;
                prop_assert!(child.is_within(ancestor), "{:?} is wider than {:?}", child, ancestor);
                prop_assert!(is_narrower(&child, ancestor), "{:?} is wider than {:?}", child, ancestor);
            }
            nodes.push((child, depth, line));
        }
    }

    /// The authority that a style requests is always attenuated, whatever the config and the call contain.
    #[test]
    fn delegate_never_widens_authority(
        parent in authority(),
        (max_depth, requested, fixed, lend, locked, depth) in
            (0u32..4, prop::option::of(vec(tool_name(), 0..6)), vec(tool_name(), 0..6),
             prop::option::of(vec(tool_name(), 0..6)), any::<bool>(), 0u32..4),
    ) {
        let preset = SwarmRole { tools: fixed.clone(), lend, locked, ..SwarmRole::default() };
        let roles = BTreeMap::from([("Writer".to_owned(), preset)]);
        let swarm = SwarmConfig { max_depth, roles, ..SwarmConfig::default() };
        let (style, role) = (DelegationStyle::Delegate, Some("wRITER".to_owned()));
        let delegation = Delegation { style, role, tools: requested.clone(), ..Delegation::default() };
        let guarded = swarm.parse(depth, &parent, r#"{"role":"Writer","task":"x"}"#);
        let styles = DelegationStyles { swarm: swarm.clone(), ..DelegationStyles::default() };
        let agent = Agent::default();
        let caller = Caller { depth, authority: &parent, agent: &agent, agents: &[] };
        let (_, request) = styles.prepare_child(&delegation, &caller, None);
        let attenuated = parent.attenuate(&request, depth + 1);
        // The check at the call and the attenuation follow from one predicate.
        prop_assert_eq!(guarded.is_ok(), attenuated.is_ok());
        let Ok(attenuated) = attenuated else { return Ok(()) };
        let child = attenuated.authority;
        prop_assert!(child.is_within(&parent) && is_narrower(&child, &parent));
        if locked && !fixed.is_empty() {
            let named: Vec<&str> = fixed.iter().flat_map(|name| brigade_core::tool_names::resolve(name)).collect();
            prop_assert!(child.tools.iter().all(|tool| named.contains(&tool.as_str()) || fixed.contains(tool)));
        }
        if let Some(requested) = &requested {
            prop_assert!(child.tools.iter().all(|tool| requested.contains(tool)));
        }
        let below = Caller { depth: depth + 1, authority: &child, ..caller };
        let offered = styles.specs(&below).iter().any(|spec| spec.name == "delegate");
        prop_assert_eq!(offered, child.tools.contains("delegate") && depth + 1 < max_depth.min(parent.max_depth));
        if depth + 1 >= max_depth.min(parent.max_depth) {
            prop_assert!(DELEGATION_TOOLS.iter().all(|tool| !child.tools.contains(*tool) && !child.lend.contains(*tool)));
        }
    }

    /// An ad-hoc child has no tool that its caller lacks; one that the user defined has in addition only what its
    /// definition names; every descendant is within what every ancestor may lend.
    #[test]
    fn adhoc_children_have_no_tool_that_their_caller_lacks(
        root in authority(),
        (preset, defined, lend) in (
            (vec(tool_name(), 0..6), any::<bool>()),
            prop::option::of(vec(tool_name(), 0..6)),
            prop::option::of(vec(tool_name(), 0..6)),
        ),
        steps in vec((any::<prop::sample::Index>(), child_kind(), prop::option::of(vec(tool_name(), 0..6))), 1..20),
    ) {
        let (tools, locked) = preset;
        let role = SwarmRole { tools: tools.clone(), locked, lend: lend.clone(), ..SwarmRole::default() };
        let roles = BTreeMap::from([("Writer".to_owned(), role)]);
        let styles = DelegationStyles {
            swarm: SwarmConfig { max_depth: 9, roles, ..SwarmConfig::default() },
            subagent: Some(SubagentConfig { max_depth: 9, ..SubagentConfig::default() }),
            spawn: Some(SpawnConfig { max_depth: 9, ..SpawnConfig::default() }),
            ..DelegationStyles::default()
        };
        let definition = Agent { id: "coder".to_owned(), tools: defined.clone(), lend, ..Agent::default() };
        let mut nodes: Vec<(Authority, u32, Vec<usize>)> = vec![(root, 0, Vec::new())];
        for (at, kind, requested) in steps {
            let at = at.index(nodes.len());
            let (parent, depth, ancestors) = nodes[at].clone();
            let agent = Agent::default();
            let caller = Caller { depth, authority: &parent, agent: &agent, agents: &[] };
            let (delegation, named) = delegation_of(kind, requested);
            let (_, request) = styles.prepare_child(&delegation, &caller, named.then(|| definition.clone()));
            let Ok(attenuated) = parent.attenuate(&request, depth + 1) else { continue };
            let child = attenuated.authority;
            let defined_names = match kind {
                ChildKind::Preset => tools.clone(),
                ChildKind::Defined => defined.clone().unwrap_or_default(),
                ChildKind::Adhoc | ChildKind::Helper | ChildKind::Spawned => Vec::new(),
            };
            // White space around a name is ignored.
            let meant = |tool: &String| {
                defined_names.iter().any(|name| name == tool || name.trim() == tool) || names_tool(&defined_names, tool)
            };
            for tool in &child.tools {
                prop_assert!(parent.tools.contains(tool) || meant(tool), "{:?} got {:?} from nobody", kind, tool);
            }
            if matches!(kind, ChildKind::Adhoc | ChildKind::Helper | ChildKind::Spawned) {
                prop_assert!(child.tools.is_subset(&parent.tools) && child.lend == child.tools);
            }
            let line: Vec<usize> = ancestors.into_iter().chain([at]).collect();
            for ancestor in &line {
                let lent = &nodes[*ancestor].0.lend;
                prop_assert!(child.tools.is_subset(lent) && child.lend.is_subset(lent));
            }
            nodes.push((child, depth + 1, line));
        }
    }

    /// The comparison covers every field: one step wider in any of them is too wide.
    #[test]
    fn is_within_compares_every_field(parent in authority()) {
        let child = Authority { tools: parent.lend.clone(), ..parent.clone() };
        prop_assert!(child.is_within(&parent));
        let mut wider = vec![Authority { max_depth: child.max_depth + 1, ..child.clone() }];
        let new_tool = BTreeSet::from(["a tool that nobody has".to_owned()]);
        wider.push(Authority { tools: child.tools.union(&new_tool).cloned().collect(), ..child.clone() });
        wider.push(Authority { lend: child.lend.union(&new_tool).cloned().collect(), ..child.clone() });
        wider.push(Authority { paths: child.paths.union(&new_tool).cloned().collect(), ..child.clone() });
        let mut change = |change: &dyn Fn(&mut Authority)| {
            let mut changed = child.clone();
            change(&mut changed);
            wider.push(changed);
        };
        change(&|child| child.workspace.push_str("/elsewhere"));
        change(&|child| child.permissions.allow.push("teleport".parse().unwrap()));
        if parent.permissions.mode < Mode::Auto {
            change(&|child| child.permissions.mode = Mode::Auto);
        }
        if !parent.permissions.deny.is_empty() {
            change(&|child| child.permissions.deny.clear());
        }
        if !parent.permissions.ask.is_empty() {
            change(&|child| child.permissions.ask.clear());
        }
        if parent.agents != Names::Any {
            change(&|child| child.agents = Names::Any);
        }
        if parent.models != Names::Any {
            change(&|child| child.models = Names::Any);
        }
        if parent.network == Access::Denied {
            change(&|child| child.network = Access::Allowed);
        }
        if parent.speak == Access::Denied {
            change(&|child| child.speak = Access::Allowed);
        }
        for wider in wider {
            prop_assert!(!wider.is_within(&parent), "{:?} is within {:?}", wider, parent);
        }
    }
}
