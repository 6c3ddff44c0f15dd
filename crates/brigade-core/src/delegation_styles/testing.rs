//! Test helpers of the delegation styles: a delegating agent and its children.

use std::collections::BTreeSet;

use super::spawn::SpawnConfig;
use super::subagent::SubagentConfig;
use super::{Caller, DELEGATION_TOOLS, DelegationStyles, MESSAGE_TOOL};
use crate::agent::Agent;
use crate::delegation::Delegation;
use crate::grant::{Access, Authority, Names};

pub(super) const TOOLS: [&str; 8] =
    ["read_file", "list_dir", "grep", "write_file", "edit_file", "shell", "web_fetch", MESSAGE_TOOL];

/// Delegating agent.
#[derive(Clone)]
pub(super) struct TestAgent {
    pub(super) depth: u32,
    pub(super) authority: Authority,
    pub(super) agent: Agent,
    pub(super) agents: Vec<Agent>,
}

impl TestAgent {
    /// Root that may use and lend everything.
    pub(super) fn root() -> TestAgent {
        let mut all = set(&TOOLS);
        all.extend(DELEGATION_TOOLS.map(str::to_owned));
        let authority = Authority {
            tools: all.clone(),
            lend: all,
            max_depth: 10,
            agents: Names::Any,
            models: Names::Any,
            speak: Access::Allowed,
            ..Authority::default()
        };
        TestAgent { depth: 0, authority, agent: named("lead"), agents: Vec::new() }
    }

    pub(super) fn at(depth: u32) -> TestAgent {
        TestAgent { depth, ..TestAgent::root() }
    }

    pub(super) fn with_agents(agents: &[Agent]) -> TestAgent {
        TestAgent { agents: agents.to_vec(), ..TestAgent::root() }
    }

    pub(super) fn caller(&self) -> Caller<'_> {
        Caller { depth: self.depth, authority: &self.authority, agent: &self.agent, agents: &self.agents }
    }

    /// Creates the child of the only delegation of a call.
    pub(super) fn child(&self, styles: &DelegationStyles, tool: &str, arguments: &str) -> TestAgent {
        let plan = styles.plan(tool, &self.caller(), arguments).unwrap();
        let [delegation] = plan.delegations.as_slice() else { panic!("{} parts", plan.delegations.len()) };
        self.child_of(styles, delegation)
    }

    pub(super) fn child_of(&self, styles: &DelegationStyles, delegation: &Delegation) -> TestAgent {
        let definition = self.agents.iter().find(|agent| Some(&agent.id) == delegation.agent.as_ref());
        let (agent, request) = styles.prepare_child(delegation, &self.caller(), definition.cloned());
        let depth = self.depth + 1;
        let authority = self.authority.attenuate(&request, depth).unwrap().authority;
        assert!(authority.is_within(&self.authority), "a child is never wider than its parent");
        TestAgent { depth, authority, agent, agents: self.agents.clone() }
    }

    /// Returns the delegation tools that its model is offered.
    pub(super) fn offered(&self, styles: &DelegationStyles) -> Vec<String> {
        styles.specs(&self.caller()).into_iter().map(|spec| spec.name).collect()
    }

    /// Returns the reason why a call is refused.
    pub(super) fn refused(&self, styles: &DelegationStyles, tool: &str, arguments: &str) -> String {
        styles.plan(tool, &self.caller(), arguments).unwrap_err().to_string()
    }

    /// Returns its tools other than the delegation tools.
    pub(super) fn non_delegation_tools(&self) -> BTreeSet<String> {
        let plain = |name: &&String| !DELEGATION_TOOLS.contains(&name.as_str());
        self.authority.tools.iter().filter(plain).cloned().collect()
    }
}

pub(super) fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn named(id: &str) -> Agent {
    Agent {
        id: id.to_owned(),
        name: id.to_owned(),
        description: format!("Does {id}"),
        prompt: format!("You are {id}."),
        ..Agent::default()
    }
}

/// Returns all styles with their defaults.
pub(super) fn all_styles() -> DelegationStyles {
    DelegationStyles {
        subagent: Some(SubagentConfig::default()),
        spawn: Some(SpawnConfig::default()),
        ..DelegationStyles::default()
    }
}
