//! Limits of work that another process passed on.

use brigade_core::permission::Mode;
use brigade_core::{Authority, Budget, Delegation, Limit, RemoteContext};

/// Depth of a root session. Work from another process keeps the depth that the process reports.
pub(crate) fn depth(delegation: &Delegation) -> u32 {
    delegation.remote_context.as_ref().map_or(0, |context| context.depth)
}

/// Sessions of other processes that a delegation comes from.
pub(crate) fn ancestors(delegation: &Delegation) -> Vec<String> {
    delegation.remote_context.as_ref().map(|context| context.lineage.clone()).unwrap_or_default()
}

/// Maximum mode of the work, if the caller has one.
pub(crate) fn max_mode(delegation: &Delegation) -> Option<Mode> {
    delegation.remote_context.as_ref().and_then(|context| context.mode)
}

/// Authority of the root session within that of the caller.
pub(crate) fn narrow(delegation: &Delegation, own: Authority) -> Authority {
    match &delegation.remote_context {
        Some(context) => context.narrow(own),
        None => own,
    }
}

/// Budget and deadline of a round within those of the caller.
pub(crate) fn cap(context: Option<&RemoteContext>, budget: Budget, deadline: Limit) -> (Budget, Limit) {
    let Some(context) = context else { return (budget, deadline) };
    (context.cap_budget(budget), deadline.min(context.deadline.map_or(Limit::Unlimited, Limit::AtMost)))
}

/// Context of a next round. Depth and authority were fixed when the work was first delegated and can only be
/// narrowed.
pub(crate) fn for_next_round(
    first: Option<Box<RemoteContext>>,
    now: Option<&RemoteContext>,
) -> Option<Box<RemoteContext>> {
    RemoteContext::intersect_present(first.map(|first| *first), now).map(Box::new)
}
