//! Delegation calls: parsing them, preparing their children, and answering them when all children have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_core::delegation::Execution as Wait;
use brigade_core::delegation_styles::{Caller, ChildResult, delegate, failure_cause, subagent};
use brigade_core::grant::Access;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{
    Agent, CallId, Delegation, DelegationStyle, Event, Limit, Outcome, Record, SessionId, Status, ToolCall,
    ToolOutput, delegation_styles, json,
};

use super::approvals::Permission;
use super::children::PendingChild;
use super::{Driver, DriverError, DriverMessage};
use crate::agents::LoadError;
use crate::concurrency::ConcurrencyKey;
use crate::schema::ResultSchema;
use crate::tree::ResolvedAgent;

/// Cancellation reason of siblings after one task of a call failed.
pub(super) const FAIL_FAST: &str = "`fail_fast`, because another task of the call failed";

/// Children of one delegation call.
pub(super) struct ChildGroup {
    /// Whether the call can have several children.
    is_parallel: bool,
    /// Maximum number of children that are running or queued.
    max_concurrent: usize,
    fail_fast: bool,
    /// Number of children that are running or queued.
    busy: usize,
    /// Children that are not queued yet.
    backlog: VecDeque<PendingChild>,
    /// Children that were not started, with their index and the cause.
    unstarted: Vec<(Arc<Delegation>, usize, String)>,
    failed: bool,
}

/// The last resolved agent and the delegation it was resolved for.
pub(super) struct ResolveCache {
    request: Delegation,
    resolved: Arc<ResolvedAgent>,
    agent: Option<String>,
    warning: Option<String>,
}

impl Driver {
    fn caller(&self) -> Caller<'_> {
        Caller {
            depth: self.state.round().map_or(0, |round| round.depth),
            authority: &self.resolved.authority,
            agent: &self.resolved.agent,
            agents: self.tree.settings().agents.list(),
        }
    }

    /// Parses a delegation call and queues its children.
    pub(super) async fn delegate(&mut self, call: CallId, tool_call: &ToolCall) -> Result<(), ToolOutput> {
        let delegation_styles = &self.tree.settings().delegation_styles;
        let plan = delegation_styles.plan(&tool_call.name, &self.caller(), tool_call.arguments.as_str());
        let plan = plan.map_err(ToolOutput::error)?;
        let action = Action { tool: &tool_call.name, kind: ActionKind::Pure, subject: Subject::Nothing };
        let decision = self.decide(&action);
        let arguments = || json::parse(tool_call.arguments.as_str()).unwrap_or_default();
        if self.authorize(call, &tool_call.name, arguments, decision)? == Permission::Pending {
            return Ok(());
        }
        if let Some(schema) = plan.delegations.iter().find_map(|request| request.schema.as_ref()) {
            ResultSchema::parse(schema.as_str())
                .map_err(|cause| ToolOutput::error(format!("Invalid 'schema' argument: {cause}")))?;
        }
        let is_parallel = tool_call.name == subagent::PARALLEL_NAME;
        if is_parallel {
            self.check_agents(plan.delegations.len() as u64)?;
        }
        let mut backlog = VecDeque::new();
        for (index, request) in plan.delegations.into_iter().enumerate() {
            backlog.push_back(self.prepare_child(call, index, request).await?);
        }
        self.open_group(call, is_parallel, plan.max_concurrent, plan.fail_fast, backlog);
        Ok(())
    }

    /// Refuses a call with more tasks than the budget has agents for, before any of them starts. Lent agents that
    /// may be refunded count as available.
    fn check_agents(&self, tasks: u64) -> Result<(), ToolOutput> {
        let ledger = self.state.ledger();
        let Limit::AtMost(free) = ledger.free().agents else { return Ok(()) };
        let loans = self.state.loans().len() as u64;
        let queued: usize = self.waiting.values().map(VecDeque::len).sum();
        let backlogged: usize = self.groups.values().map(|group| group.backlog.len()).sum();
        // Each running child counts as used when it returns.
        let refundable = ledger.lent().agents.saturating_sub(loans);
        let left = free.saturating_add(refundable).saturating_sub((queued + backlogged) as u64);
        if tasks <= left {
            return Ok(());
        }
        let advice = match left {
            0 => "Do the tasks yourself.".to_owned(),
            1 => "Send 1 task.".to_owned(),
            _ => format!("Send at most {left} tasks."),
        };
        Err(ToolOutput::error(format!(
            "Not delegated: the call has {tasks} tasks, but the agent budget covers only {left} \
             (`budget.agents` or --max-agents). No task was started. {advice}"
        )))
    }

    fn open_group(
        &mut self,
        call: CallId,
        is_parallel: bool,
        max_concurrent: usize,
        fail_fast: bool,
        backlog: VecDeque<PendingChild>,
    ) {
        let (busy, unstarted, failed) = (0, Vec::new(), false);
        self.groups.insert(
            call,
            ChildGroup { is_parallel, max_concurrent, fail_fast, busy, backlog, unstarted, failed },
        );
        self.fill_queue(call);
    }

    /// Queues as many children of a call as may run at once.
    fn fill_queue(&mut self, call: CallId) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        while group.busy < group.max_concurrent
            && let Some(pending) = group.backlog.pop_front()
        {
            group.busy += 1;
            self.waiting.entry(pending.concurrency_key.clone()).or_default().push_back(pending);
        }
    }

    /// Resolves one child of a call, so that it is ready for a loan.
    async fn prepare_child(
        &mut self,
        call: CallId,
        index: usize,
        mut request: Delegation,
    ) -> Result<PendingChild, ToolOutput> {
        self.distinguish_from_lead(&mut request);
        let (resolved, agent, warning) = self.resolve_child(&request).await?;
        self.refuse_imported_child(call, index, &request).await?;
        request.agent = request.agent.or(agent);
        request.warnings.extend(warning);
        let cap = resolved.agent.max_concurrency.map(|cap| (Arc::from(resolved.agent.id.as_str()), cap));
        let concurrency_key = ConcurrencyKey { style: request.style, agent: cap };
        Ok(PendingChild { call, index, delegation: request.into(), resolved, concurrency_key })
    }

    /// Extends a label or description that looks like the name of the lead, so that messages of the child are not
    /// taken for the lead's.
    fn distinguish_from_lead(&self, request: &mut Delegation) {
        let Some(role) = request
            .role
            .as_mut()
            .filter(|_| matches!(request.style, DelegationStyle::Subagent | DelegationStyle::Spawn))
        else {
            return;
        };
        if self.tree.is_name_of_lead(role) {
            request.title.get_or_insert_with(|| role.as_str().into());
            role.push_str(" (sub-agent)");
        }
    }

    /// Refuses a child whose log would begin with imported records, because open work in them must not run.
    async fn refuse_imported_child(
        &self,
        call: CallId,
        index: usize,
        request: &Delegation,
    ) -> Result<(), ToolOutput> {
        if self.tree.imported.is_none() {
            return Ok(());
        }
        let session = self.state.session();
        for child in [session.child(call), session.child_of_several(call, index)] {
            let records = self.tree.store().read(&child, 0).await;
            let records = records.map_err(|error| self.failed_output(request, error.to_string()))?;
            if !records.is_empty() && !self.state.loans().contains_key(&child) {
                let cause = format!(
                    "cannot start the sub-agent: the imported tree already contains the session {child}"
                );
                return Err(self.failed_output(request, cause));
            }
        }
        Ok(())
    }

    /// Resolved agent of a child, the definition it runs, and a warning for the caller. Calls of one reply are
    /// often alike, so the last result is cached.
    async fn resolve_child(
        &mut self,
        request: &Delegation,
    ) -> Result<(Arc<ResolvedAgent>, Option<String>, Option<String>), ToolOutput> {
        if let Some(last) = &self.resolve_cache
            && resolves_alike(&last.request, request)
        {
            return Ok((last.resolved.clone(), last.agent.clone(), last.warning.clone()));
        }
        let definition = self.definition_for(request).await?;
        // Otherwise messages of this child to the user would appear to come from the lead.
        if let Some(role) = request.role.as_deref().filter(|_| definition.is_none())
            && self.tree.is_name_of_lead(role)
        {
            let text = format!("'{role}' is the name of the agent that leads this run. Choose another name.");
            return Err(ToolOutput::error(text));
        }
        let defined = definition.as_ref().map(|agent| agent.id.clone());
        let (agent, wanted) =
            self.tree.settings().delegation_styles.prepare_child(request, &self.caller(), definition);
        let depth = self.caller().depth + 1;
        let authority = &self.resolved.authority;
        let attenuated = authority
            .attenuate(&wanted, depth)
            .map_err(|refusal| self.failed_output(request, refusal.to_string()))?;
        let mut lent = attenuated.authority;
        let speaks =
            authority.speak == Access::Allowed && authority.lend.contains(delegation_styles::MESSAGE_TOOL);
        if request.style == DelegationStyle::Delegate && speaks {
            lent.tools.insert(delegation_styles::MESSAGE_TOOL.to_owned());
            lent.lend.insert(delegation_styles::MESSAGE_TOOL.to_owned());
        }
        let warning = tool_warning(&attenuated.unknown_tools, &wanted.not_in_definition, &agent.name);
        let resolved =
            self.tree.resolve(agent, lent, depth).map_err(|cause| self.failed_output(request, cause))?;
        resolved
            .check_budget(&self.state.ledger().granted())
            .map_err(|cause| self.failed_output(request, cause))?;
        self.resolve_cache = Some(Box::new(ResolveCache {
            request: request.clone(),
            resolved: resolved.clone(),
            agent: defined.clone(),
            warning: warning.clone(),
        }));
        Ok((resolved, defined, warning))
    }

    /// Failure of a child that could not be resolved, in the format of its delegation style.
    fn failed_output(&self, request: &Delegation, cause: String) -> ToolOutput {
        let outcome = Outcome::new(Status::Failed { cause }, "");
        self.tree.settings().delegation_styles.render(request, &outcome, usize::MAX, "")
    }

    /// Definition that a delegation names: by id, or as a role without a preset.
    async fn definition_for(&self, request: &Delegation) -> Result<Option<Agent>, ToolOutput> {
        let id = match (request.style, &request.agent, &request.role) {
            (DelegationStyle::Dispatch, Some(id), _) => id.clone(),
            (DelegationStyle::Delegate, _, Some(role))
                if self.tree.settings().delegation_styles.swarm.preset(role).is_none() =>
            {
                let wanted = delegate::fold(role);
                let others = self.caller().callable_agents();
                let is_meant = |agent: &&&Agent| {
                    delegate::fold(&agent.id) == wanted || delegate::fold(&agent.name) == wanted
                };
                match others.iter().find(is_meant) {
                    Some(agent) => agent.id.clone(),
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let core = self.tree.core.clone();
        // Definitions are files, so they are read on a thread that may block.
        let loaded = tokio::task::spawn_blocking(move || core.settings.agents.load(&id)).await;
        match loaded {
            Ok(Ok(agent)) => Ok(Some(agent)),
            Ok(Err(error @ LoadError::NotFound(_))) => Err(ToolOutput::error(error.to_string())),
            Ok(Err(LoadError::Invalid(problem))) => Err(self.failed_output(request, problem.to_string())),
            Err(error) => Err(self.failed_output(request, format!("cannot read its definition: {error}"))),
        }
    }

    /// Answers a call whose child runs in the background.
    pub(super) fn answer_background(&mut self, call: CallId, child: &SessionId, request: &Delegation) {
        self.groups.remove(&call);
        let name = request.role.as_deref().or(request.agent.as_deref()).unwrap_or_default();
        let text = format!(
            "'{name}' runs in the background as {child}. You get its result when it ends. Send it messages with `tell`, \
             or end it with `stop`."
        );
        self.answer(call, ToolOutput::ok(text));
    }

    /// Records that a child was not started.
    pub(super) fn refuse_child(&mut self, pending: PendingChild, cause: String) {
        let Some(group) = self.groups.get_mut(&pending.call) else { return };
        group.busy = group.busy.saturating_sub(1);
        group.unstarted.push((pending.delegation, pending.index, cause));
        group.failed = true;
        self.child_settled(pending.call, None);
    }

    /// Records that a child has ended and its loan was returned.
    pub(super) fn child_ended(
        &mut self,
        call: CallId,
        child: &SessionId,
        request: &Delegation,
        outcome: &Outcome,
    ) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        group.busy = group.busy.saturating_sub(1);
        group.failed |= failure_cause(&outcome.status).is_some();
        let limit = self.tree.settings().limits.result_bytes;
        let output = self.tree.settings().delegation_styles.render(request, outcome, limit, child.as_str());
        self.child_settled(call, Some(output));
    }

    fn child_settled(&mut self, call: CallId, output: Option<ToolOutput>) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        if !group.is_parallel {
            let cause = group.unstarted.pop().map(|(_, _, cause)| ToolOutput::error(cause));
            self.groups.remove(&call);
            if let Some(output) = output.or(cause) {
                self.answer(call, output);
            }
            return;
        }
        if group.failed && group.fail_fast {
            self.stop_group(call);
        } else {
            self.fill_queue(call);
        }
        if self.groups.get(&call).is_some_and(|group| group.busy == 0 && group.backlog.is_empty()) {
            self.finished.push(call);
        }
    }

    /// Cancels the running children of a call and drops the others.
    fn stop_group(&mut self, call: CallId) {
        let mut dropped: Vec<PendingChild> = Vec::new();
        for queue in self.waiting.values_mut() {
            let all = std::mem::take(queue).into_iter();
            let (of_call, others): (VecDeque<_>, _) = all.partition(|pending| pending.call == call);
            *queue = others;
            dropped.extend(of_call);
        }
        let Some(group) = self.groups.get_mut(&call) else { return };
        group.busy = group.busy.saturating_sub(dropped.len());
        dropped.extend(std::mem::take(&mut group.backlog));
        let cause = "not started: another task of the call failed (`fail_fast`)".to_owned();
        group.unstarted.extend(dropped.into_iter().map(|one| (one.delegation, one.index, cause.clone())));
        for (child, inbox) in &self.children {
            if self.state.loans().get(child).is_some_and(|loan| loan.call == call) {
                let _ = inbox.unbounded_send(DriverMessage::Cancel(FAIL_FAST.into()));
            }
        }
    }

    /// Whether a call can have several children.
    pub(super) fn is_parallel(&self, call: CallId) -> bool {
        self.groups.get(&call).is_some_and(|group| group.is_parallel)
    }

    /// Whether a child has to stop because another child of its call failed.
    pub(super) fn is_stopped_with_its_group(&self, child: &SessionId) -> bool {
        let group = self.state.loans().get(child).and_then(|loan| self.groups.get(&loan.call));
        group.is_some_and(|group| group.failed && group.fail_fast)
    }

    /// Refuses all waiting children when nothing new may start.
    pub(super) fn drop_pending_children(&mut self, reason: &str) {
        let mut dropped: Vec<PendingChild> =
            std::mem::take(&mut self.waiting).into_values().flatten().collect();
        for group in self.groups.values_mut() {
            group.busy += group.backlog.len();
            dropped.extend(std::mem::take(&mut group.backlog));
        }
        for pending in dropped {
            self.refuse_child(pending, format!("Not started: {reason}"));
        }
    }

    /// Answers parallel calls whose children have all ended. The session's own log contains their outcomes.
    pub(super) async fn answer_finished_groups(&mut self) -> Result<(), DriverError> {
        while let Some(call) = self.finished.pop() {
            let Some(group) = self.groups.remove(&call) else { continue };
            self.flush().await?;
            let records = self.tree.store().read(&self.state.session().clone(), 0).await?;
            let mut results = ended_children(&records, call);
            let (first, last) = time_span(&records, call);
            for (request, index, cause) in group.unstarted {
                let outcome = Outcome::new(Status::Failed { cause }, "");
                results.push((index, request, ChildResult { outcome, tokens: 0, duration_ms: 0 }));
            }
            results.sort_by_key(|(index, _, _)| *index);
            let results: Vec<(Arc<Delegation>, ChildResult)> =
                results.into_iter().map(|(_, request, end)| (request, end)).collect();
            let settings = self.tree.settings();
            let (config, limit) = (settings.delegation_styles.subagent(), settings.limits.result_bytes);
            self.answer(call, config.render_parallel(&results, last.saturating_sub(first), limit));
        }
        Ok(())
    }

    /// Resumes the children of a call that an earlier runner had started, and starts the others.
    pub(super) async fn reattach(
        &mut self,
        call: CallId,
        tool_call: &ToolCall,
        children: Vec<SessionId>,
    ) -> Result<(), DriverError> {
        let is_parallel = tool_call.name == subagent::PARALLEL_NAME;
        let out = children.iter().filter(|child| self.state.loans().contains_key(*child)).count();
        self.open_group(call, is_parallel, 1, false, VecDeque::new());
        if let Some(group) = self.groups.get_mut(&call) {
            group.busy = out;
        }
        if is_parallel {
            self.plan_unstarted(call, tool_call, &children).await?;
        }
        for child in children {
            self.resume_child(&child).await?;
        }
        if !is_parallel && out == 0 {
            self.groups.remove(&call);
            let text = "interrupted, outcome unknown: the sub-agent's outcome was not recorded";
            self.answer(call, ToolOutput::error(text));
        }
        Ok(())
    }

    /// Queues the children of a call that no runner has started yet.
    async fn plan_unstarted(
        &mut self,
        call: CallId,
        tool_call: &ToolCall,
        children: &[SessionId],
    ) -> Result<(), DriverError> {
        let delegation_styles = &self.tree.settings().delegation_styles;
        let plan = delegation_styles.plan(&tool_call.name, &self.caller(), tool_call.arguments.as_str());
        let records = self.tree.store().read(&self.state.session().clone(), 0).await?;
        let failed = ended_children(&records, call)
            .iter()
            .any(|(_, _, end)| failure_cause(&end.outcome.status).is_some());
        let Ok(plan) = plan else {
            // The current settings no longer allow the call, so nothing new starts. Children that were started
            // are awaited.
            self.child_settled(call, None);
            return Ok(());
        };
        let started: Vec<usize> =
            children.iter().filter_map(|child| child.call()).map(|(_, index)| index).collect();
        let mut backlog = VecDeque::new();
        let mut unstarted = Vec::new();
        for (index, request) in
            plan.delegations.into_iter().enumerate().filter(|(index, _)| !started.contains(index))
        {
            match self.prepare_child(call, index, request.clone()).await {
                Ok(pending) => backlog.push_back(pending),
                Err(output) => unstarted.push((request.into(), index, output.text.to_string())),
            }
        }
        if let Some(group) = self.groups.get_mut(&call) {
            group.max_concurrent = plan.max_concurrent;
            group.fail_fast = plan.fail_fast;
            group.backlog = backlog;
            group.unstarted = unstarted;
            group.failed = failed;
        }
        if let Some(reason) = self.state.stop_reason() {
            self.drop_pending_children(&reason);
        }
        self.child_settled(call, None);
        Ok(())
    }
}

/// Warning about requested tools that a child did not get: unknown ones, and ones missing from its definition.
fn tool_warning(unknown: &[String], lacking: &[String], agent: &str) -> Option<String> {
    let shown = |name: &str| name.chars().filter(|c| !c.is_control()).take(64).collect::<String>();
    let listed = |names: &[String]| names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        warnings.push(format!(
            "not granted, because they are unknown or you cannot lend them: {}",
            listed(unknown)
        ));
    }
    if !lacking.is_empty() {
        warnings.push(format!(
            "not granted, because '{}' does not have them: {}",
            shown(agent),
            listed(lacking)
        ));
    }
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// Whether two delegations resolve to the same agent.
fn resolves_alike(one: &Delegation, other: &Delegation) -> bool {
    one.style == other.style
        && one.role == other.role
        && one.agent == other.agent
        && one.external == other.external
        && one.tools == other.tools
        && one.single == other.single
        && one.system_prompt == other.system_prompt
        && other.style != DelegationStyle::Dispatch
}

/// Returned children of a call, read from the log.
fn ended_children(records: &[Record], call: CallId) -> Vec<(usize, Arc<Delegation>, ChildResult)> {
    let mut results = Vec::new();
    let mut begun: Vec<(&SessionId, &Arc<Delegation>, u64)> = Vec::new();
    for record in records {
        match &record.event {
            Event::Delegated { call: of, child, delegation, .. } if *of == call => {
                begun.push((child, delegation, record.at));
            }
            Event::Returned { child, outcome, spent, .. } => {
                let Some((_, request, at)) = begun.iter().find(|(begun, ..)| *begun == child) else {
                    continue;
                };
                let end = ChildResult {
                    outcome: outcome.clone(),
                    tokens: spent.usage.total(),
                    duration_ms: record.at.saturating_sub(*at),
                };
                results.push((child.call().map_or(0, |(_, index)| index), (*request).clone(), end));
            }
            _ => {}
        }
    }
    results
}

/// Time of the first start and the last return among the children of a call.
fn time_span(records: &[Record], call: CallId) -> (u64, u64) {
    let mut first = u64::MAX;
    let mut last = 0;
    for record in records {
        match &record.event {
            Event::Delegated { call: of, .. } if *of == call => first = first.min(record.at),
            Event::Returned { child, .. } if child.call().is_some_and(|(of, _)| of == call) => {
                last = last.max(record.at);
            }
            _ => {}
        }
    }
    (first.min(last), last)
}

/// Whether a child runs in the background.
pub(super) fn is_background(request: &Delegation) -> bool {
    request.execution != Wait::Foreground
}
