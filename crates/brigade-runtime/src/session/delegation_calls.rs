//! Delegation calls: parsing them, preparing their children, and answering them when all children have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_core::delegation::Execution as Wait;
use brigade_core::delegation_styles::{
    Caller, ChildResult, DelegationStyles, MESSAGE_TOOL, StyleInfo, failure_cause,
};
use brigade_core::grant::Access;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{
    Agent, CallId, Delegation, Event, Limit, Outcome, Record, SessionId, Status, ToolCall, ToolOutput, json,
};
use tokio::time::Instant;

use super::approvals::Permission;
use super::child_groups::{ChildGroup, UnstartedChild};
use super::child_queue::PendingChild;
use super::{Driver, DriverError};
use crate::agents::LoadError;
use crate::concurrency::ConcurrencyKey;
use crate::resolved_agent::ResolvedAgent;
use crate::schema::ResultSchema;

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
            depth: self.state().round().map_or(0, |round| round.depth),
            authority: &self.resolved.authority,
            agent: &self.resolved.agent,
            agents: self.tree.settings().agents.list(),
        }
    }

    fn styles(&self) -> &DelegationStyles {
        &self.tree.settings().delegation_styles
    }

    /// Parses a delegation call and queues its children.
    pub(super) async fn delegate(&mut self, call: CallId, tool_call: &ToolCall) -> Result<(), ToolOutput> {
        let plan = self.styles().plan(&tool_call.name, &self.caller(), tool_call.arguments.as_str());
        let plan = plan.map_err(|refusal| ToolOutput::error(refusal.to_string()))?;
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
        let is_parallel = self.styles().parallel(&tool_call.name).is_some();
        if is_parallel {
            self.check_agents(plan.delegations.len() as u64)?;
        }
        let mut backlog = VecDeque::new();
        for (index, request) in plan.delegations.into_iter().enumerate() {
            backlog.push_back(self.prepare_child(call, index, request).await?);
        }
        let (max_concurrent, fail_fast) = (plan.max_concurrent, plan.fail_fast);
        let group = ChildGroup { is_parallel, max_concurrent, fail_fast, backlog, ..ChildGroup::default() };
        self.children.open_group(call, group);
        Ok(())
    }

    /// Refuses a call with more tasks than the budget has agents for, before any of them starts. Lent agents that
    /// may be refunded count as available.
    fn check_agents(&self, tasks: u64) -> Result<(), ToolOutput> {
        let ledger = self.state().ledger();
        let Limit::AtMost(free) = ledger.free().agents else { return Ok(()) };
        let loans = self.state().loans().len() as u64;
        let unstarted = self.children.unstarted_count() as u64;
        // Each running child counts as used when it returns.
        let refundable = ledger.lent().agents.saturating_sub(loans);
        let left = free.saturating_add(refundable).saturating_sub(unstarted);
        if tasks <= left {
            return Ok(());
        }
        let advice = match left {
            0 => "Do the tasks yourself.".to_owned(),
            1 => "Send 1 task.".to_owned(),
            _ => format!("Send at most {left} tasks."),
        };
        let noun = if tasks == 1 { "task" } else { "tasks" };
        Err(ToolOutput::error(format!(
            "Not delegated: the call has {tasks} {noun}, but the agent budget covers only {left} \
             (`budget.agents` or --max-agents). No task was started. {advice}"
        )))
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
        let since = Instant::now();
        Ok(PendingChild { call, index, delegation: request.into(), resolved, concurrency_key, since })
    }

    /// Extends a label or description that looks like the name of the lead, so that messages of the child are not
    /// taken for the lead's.
    fn distinguish_from_lead(&self, request: &mut Delegation) {
        let extends_titles = self.styles().of(request).info().extends_titles;
        let Some(role) = request.role.as_mut().filter(|_| extends_titles) else { return };
        if self.tree.agents.is_name_of_lead(role) {
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
        if !self.tree.history.has_imports() {
            return Ok(());
        }
        let session = self.state().session();
        for child in [session.child(call), session.child_of_several(call, index)] {
            let records = self.tree.read(&child, 0).await;
            let records = records.map_err(|error| self.failed_output(request, error.to_string()))?;
            if !records.is_empty() && !self.state().loans().contains_key(&child) {
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
        let StyleInfo { always_resolves, always_lends_message, .. } = self.styles().of(request).info();
        if let Some(last) = &self.children.resolve_cache
            && !always_resolves
            && resolves_alike(&last.request, request)
        {
            return Ok((last.resolved.clone(), last.agent.clone(), last.warning.clone()));
        }
        let definition = self.definition_for(request).await?;
        // Otherwise messages of this child to the user would appear to come from the lead.
        if let Some(role) = request.role.as_deref().filter(|_| definition.is_none())
            && self.tree.agents.is_name_of_lead(role)
        {
            let text = format!("'{role}' is the name of the agent that leads this run. Choose another name.");
            return Err(ToolOutput::error(text));
        }
        let defined = definition.as_ref().map(|agent| agent.id.clone());
        let (agent, wanted) = self.styles().prepare_child(request, &self.caller(), definition);
        let depth = self.caller().depth + 1;
        let authority = &self.resolved.authority;
        let attenuated = authority
            .attenuate(&wanted, depth)
            .map_err(|refusal| self.failed_output(request, refusal.to_string()))?;
        let mut lent = attenuated.authority;
        let speaks = authority.speak == Access::Allowed && authority.lend.contains(MESSAGE_TOOL);
        if always_lends_message && speaks {
            lent.tools.insert(MESSAGE_TOOL.to_owned());
            lent.lend.insert(MESSAGE_TOOL.to_owned());
        }
        let warning = tool_warning(&attenuated.unknown_tools, &wanted.not_in_definition, &agent.name);
        let resolved = self
            .tree
            .agents
            .resolve(agent, lent, depth)
            .map_err(|cause| self.failed_output(request, cause.to_string()))?;
        resolved
            .check_budget(&self.state().ledger().granted())
            .map_err(|cause| self.failed_output(request, cause.to_string()))?;
        self.children.resolve_cache = Some(Box::new(ResolveCache {
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
        self.styles().render(request, &outcome, usize::MAX, "")
    }

    /// Definition that a delegation names.
    async fn definition_for(&self, request: &Delegation) -> Result<Option<Agent>, ToolOutput> {
        let id = self.styles().of(request).definition(request, &self.caller());
        let Some(id) = id else { return Ok(None) };
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
        self.children.close_group(call);
        let name = request.role.as_deref().or(request.agent.as_deref()).unwrap_or_default();
        let text = format!(
            "'{name}' runs in the background as {child}. You get its result when it ends. Send it messages with `tell`, \
             or end it with `stop`."
        );
        self.answer(call, ToolOutput::ok(text));
    }

    /// Records that a child was not started.
    pub(super) fn refuse_child(&mut self, pending: PendingChild, cause: String) {
        let call = pending.call;
        let answer = self.children.refuse(pending, cause, self.log.state());
        self.answer_complete(call, answer);
    }

    /// Records that a child has ended and its loan was returned.
    pub(super) fn child_ended(
        &mut self,
        call: CallId,
        child: &SessionId,
        request: &Delegation,
        outcome: &Outcome,
    ) {
        let failed = failure_cause(&outcome.status).is_some();
        let limit = self.tree.settings().limits.result_bytes;
        let styles = &self.tree.settings().delegation_styles;
        let output = || styles.render(request, outcome, limit, child.as_str());
        let answer = self.children.end(call, failed, output, self.log.state());
        self.answer_complete(call, answer);
    }

    /// Answers a call if its children are complete.
    fn answer_complete(&mut self, call: CallId, answer: Option<ToolOutput>) {
        if let Some(output) = answer {
            self.answer(call, output);
        }
    }

    /// Refuses all waiting children when nothing new may start.
    pub(super) fn drop_pending_children(&mut self, reason: &str) {
        for pending in self.children.take_unfunded() {
            self.refuse_child(pending, format!("Not started: {reason}"));
        }
    }

    /// Answers parallel calls whose children have all ended. The session's own log contains their outcomes.
    pub(super) async fn answer_finished_groups(&mut self) -> Result<(), DriverError> {
        while let Some((call, unstarted)) = self.children.pop_finished() {
            self.flush().await?;
            let records = self.tree.read(self.state().session(), 0).await?;
            let mut results = ended_children(&records, call);
            let (first, last) = time_span(&records, call);
            for UnstartedChild { delegation: request, index, cause } in unstarted {
                let outcome = Outcome::new(Status::Failed { cause }, "");
                results.push((index, request, ChildResult { outcome, tokens: 0, duration_ms: 0 }));
            }
            results.sort_by_key(|(index, _, _)| *index);
            let results: Vec<(Arc<Delegation>, ChildResult)> =
                results.into_iter().map(|(_, request, end)| (request, end)).collect();
            let tool = self.state().tool_call(call).and_then(|call| self.styles().parallel(&call.name));
            let Some(tool) = tool else { continue };
            let limit = self.tree.settings().limits.result_bytes;
            self.answer(call, tool.render_parallel(&results, last.saturating_sub(first), limit));
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
        let is_parallel = self.styles().parallel(&tool_call.name).is_some();
        let out = children.iter().filter(|child| self.state().loans().contains_key(*child)).count();
        let mut group = ChildGroup { is_parallel, busy: out, ..ChildGroup::default() };
        if is_parallel {
            self.plan_unstarted(call, tool_call, &children, &mut group).await?;
        }
        self.children.open_group(call, group);
        if is_parallel {
            if let Some(reason) = self.state().stop_reason() {
                self.drop_pending_children(&reason);
            }
            let answer = self.children.settle(call, None, self.log.state());
            self.answer_complete(call, answer);
        }
        for child in children {
            self.resume_child(&child).await?;
        }
        if !is_parallel && out == 0 {
            self.children.close_group(call);
            let text = "interrupted, outcome unknown: the sub-agent's outcome was not recorded";
            self.answer(call, ToolOutput::error(text));
        }
        Ok(())
    }

    /// Adds the children of a call that no runner has started yet.
    async fn plan_unstarted(
        &mut self,
        call: CallId,
        tool_call: &ToolCall,
        children: &[SessionId],
        group: &mut ChildGroup,
    ) -> Result<(), DriverError> {
        let plan = self.styles().plan(&tool_call.name, &self.caller(), tool_call.arguments.as_str());
        let records = self.tree.read(self.state().session(), 0).await?;
        let failed = ended_children(&records, call)
            .iter()
            .any(|(_, _, end)| failure_cause(&end.outcome.status).is_some());
        let Ok(plan) = plan else {
            // The current settings no longer allow the call, so nothing new starts. Children that were started
            // are awaited.
            return Ok(());
        };
        let started: Vec<usize> =
            children.iter().filter_map(|child| child.call()).map(|(_, index)| index).collect();
        for (index, request) in
            plan.delegations.into_iter().enumerate().filter(|(index, _)| !started.contains(index))
        {
            match self.prepare_child(call, index, request.clone()).await {
                Ok(pending) => group.backlog.push_back(pending),
                Err(output) => {
                    let (delegation, cause) = (request.into(), output.text.to_string());
                    group.unstarted.push(UnstartedChild { delegation, index, cause });
                }
            }
        }
        group.max_concurrent = plan.max_concurrent;
        group.fail_fast = plan.fail_fast;
        group.failed = failed;
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
            "tools not granted, because they are unknown or you cannot pass them on: {}",
            listed(unknown)
        ));
    }
    if !lacking.is_empty() {
        warnings.push(format!(
            "tools not granted, because '{}' does not have them: {}",
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
