//! Context and loan of work that is delegated to another process.

use brigade_core::delegation_styles::DELEGATION_TOOLS;
use brigade_core::{Budget, CallId, Limit, RemoteContext};

use super::Driver;
use crate::remote;
use crate::sandbox::SandboxMode;

impl Driver {
    /// Depth and remaining limits of this session.
    pub(super) fn remote_context(&self) -> RemoteContext {
        let (depth, is_root) =
            self.state().round().map_or((0, true), |round| (round.depth, round.parent.is_none()));
        let mut lineage = self.tree.remote_ancestors.clone();
        lineage.push(self.state().session().to_string());
        RemoteContext {
            lineage,
            depth: remote::depth_of_work(&self.resolved.kind, depth, is_root),
            max_depth: Some(self.resolved.authority.max_depth),
            // Early enough for the result to arrive in time.
            deadline: match self.child_deadline() {
                Limit::AtMost(deadline) => Some(deadline),
                Limit::Unlimited => None,
            },
            mode: Some(self.resolved.authority.permissions.mode),
            sandbox: match self.tree.settings().sandbox.mode_of(&self.resolved.authority) {
                SandboxMode::Off => None,
                sandbox => Some(sandbox),
            },
            ..RemoteContext::default()
        }
        .with_budget(remote::lendable_rest(&self.resolved.kind, self.state().ledger()))
    }

    /// Loan of a call that delegates to another Brigade process.
    pub(super) fn remote_share(&self) -> Budget {
        remote::share(self.state().lendable(self.cost_model()), self.calls_needing_loan())
    }

    /// Number of calls of this reply that need a loan and have not started.
    fn calls_needing_loan(&self) -> u64 {
        let needs_loan = |call: &CallId| {
            let Some(tool_call) = self.state().tool_call(*call) else { return false };
            DELEGATION_TOOLS.contains(&tool_call.name.as_str())
                || self
                    .tree
                    .agents
                    .tool(&self.resolved, &tool_call.name)
                    .is_some_and(|tool| tool.delegates_remotely())
        };
        self.state().unstarted_calls().filter(needs_loan).count() as u64
    }
}
