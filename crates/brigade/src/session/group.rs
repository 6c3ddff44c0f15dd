//! Calls that delegate: reading them, equipping their children, and answering them when all children have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_core::delegation::Waiting as Wait;
use brigade_core::faces::{Caller, PartEnd, delegate, failure, subagent};
use brigade_core::grant::Access;
use brigade_core::permission::{Action, Kind, Subject};
use brigade_core::{
    Agent, CallId, Delegation, Event, Face, Limit, Outcome, Record, SessionId, Status, ToolCall, ToolOutput,
    faces, json,
};

use super::ask::Leave;
use super::lend::Waiting;
use super::{Driver, Fatal, Inbox};
use crate::agents::LoadError;
use crate::schema::ResultSchema;
use crate::slots::Lane;
use crate::tree::Kit;

/// Why a sibling stops when one of a call has failed.
pub(super) const FAIL_FAST: &str = "the call, because another of its tasks failed (fail_fast)";

/// A call whose children wait, work or have ended.
pub(super) struct Group {
    /// Whether the call can have several children.
    several: bool,
    /// How many children may be out or in line.
    at_once: usize,
    fail_fast: bool,
    /// Children that are out or in line.
    busy: usize,
    /// Children that come after those.
    backlog: VecDeque<Waiting>,
    /// Those that never started, and why.
    unstarted: Vec<(Arc<Delegation>, usize, String)>,
    failed: bool,
}

/// The kit that was made last, and for what.
pub(super) struct LastKit {
    part: Delegation,
    kit: Arc<Kit>,
    agent: Option<String>,
    warning: Option<String>,
}

impl Driver {
    fn caller(&self) -> Caller<'_> {
        Caller {
            depth: self.state.round().map_or(0, |round| round.depth),
            authority: &self.kit.authority,
            agent: &self.kit.agent,
            agents: self.tree.settings().agents.list(),
        }
    }

    /// Reads a call that delegates and puts its children in line.
    pub(super) async fn ask_for_children(
        &mut self,
        call: CallId,
        written: &ToolCall,
    ) -> Result<(), ToolOutput> {
        let faces = &self.tree.settings().faces;
        let plan = faces.plan(&written.name, &self.caller(), written.arguments.as_str());
        let plan = plan.map_err(ToolOutput::error)?;
        let action = Action { tool: &written.name, kind: Kind::Pure, subject: Subject::Nothing };
        let judgement = self.judge(&action);
        let arguments = || json::parse(written.arguments.as_str()).unwrap_or_default();
        if self.allow(call, &written.name, arguments, judgement)? == Leave::Asked {
            return Ok(());
        }
        if let Some(schema) = plan.parts.iter().find_map(|part| part.schema.as_ref()) {
            ResultSchema::parse(schema.as_str())
                .map_err(|cause| ToolOutput::error(format!("Invalid 'schema' argument: {cause}")))?;
        }
        let several = written.name == subagent::PARALLEL;
        if several {
            self.check_agents(plan.parts.len() as u64)?;
        }
        let mut backlog = VecDeque::new();
        for (index, part) in plan.parts.into_iter().enumerate() {
            backlog.push_back(self.equip(call, index, part).await?);
        }
        self.open_group(call, several, plan.at_once, plan.fail_fast, backlog);
        Ok(())
    }

    /// Refuses a call with more tasks than the budget has agents for, before any of them starts. Agents that were lent
    /// and may come back count as there.
    fn check_agents(&self, tasks: u64) -> Result<(), ToolOutput> {
        let ledger = self.state.ledger();
        let Limit::AtMost(free) = ledger.free().agents else { return Ok(()) };
        let loans = self.state.loans().len() as u64;
        let in_line: usize = self.waiting.values().map(VecDeque::len).sum();
        let behind: usize = self.groups.values().map(|group| group.backlog.len()).sum();
        // Each child that is out counts as used when it returns.
        let refundable = ledger.lent().agents.saturating_sub(loans);
        let left = free.saturating_add(refundable).saturating_sub((in_line + behind) as u64);
        if tasks <= left {
            return Ok(());
        }
        let advice = match left {
            0 => "Do the work yourself.".to_owned(),
            1 => "Send 1 task.".to_owned(),
            _ => format!("Send at most {left} tasks."),
        };
        Err(ToolOutput::error(format!(
            "Not delegated: the call has {tasks} tasks, and the budget has agents for {left} \
             (budget.agents, or --max-agents). No task was started. {advice}"
        )))
    }

    fn open_group(
        &mut self,
        call: CallId,
        several: bool,
        at_once: usize,
        fail_fast: bool,
        backlog: VecDeque<Waiting>,
    ) {
        let (busy, unstarted, failed) = (0, Vec::new(), false);
        self.groups.insert(call, Group { several, at_once, fail_fast, busy, backlog, unstarted, failed });
        self.fill_line(call);
    }

    /// Puts as many children of a call in line as may be out at once.
    fn fill_line(&mut self, call: CallId) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        while group.busy < group.at_once
            && let Some(waiting) = group.backlog.pop_front()
        {
            group.busy += 1;
            self.waiting.entry(waiting.lane.clone()).or_default().push_back(waiting);
        }
    }

    /// A child of a call, equipped and ready to be lent to.
    async fn equip(
        &mut self,
        call: CallId,
        index: usize,
        mut part: Delegation,
    ) -> Result<Waiting, ToolOutput> {
        self.tell_from_lead(&mut part);
        let (kit, agent, warning) = self.kit_for(&part).await?;
        self.refuse_imported_child(call, index, &part).await?;
        part.agent = part.agent.or(agent);
        part.warnings.extend(warning);
        let cap = kit.agent.max_concurrency.map(|cap| (Arc::from(kit.agent.id.as_str()), cap));
        let lane = Lane { face: part.face, agent: cap };
        Ok(Waiting { call, index, delegation: part.into(), kit, lane })
    }

    /// Adds to a label or description that looks like the name of the lead, so that the words of the child are not taken
    /// for the lead's.
    fn tell_from_lead(&self, part: &mut Delegation) {
        let Some(role) = part.role.as_mut().filter(|_| matches!(part.face, Face::Subagent | Face::Spawn))
        else {
            return;
        };
        if self.tree.is_name_of_lead(role) {
            part.title.get_or_insert_with(|| role.as_str().into());
            role.push_str(" (sub-agent)");
        }
    }

    /// Refuses a child whose log would begin with records of an import: what is open in them must not run.
    async fn refuse_imported_child(
        &self,
        call: CallId,
        index: usize,
        part: &Delegation,
    ) -> Result<(), ToolOutput> {
        if self.tree.imported.is_none() {
            return Ok(());
        }
        let session = self.state.session();
        for child in [session.child(call), session.child_of_several(call, index)] {
            let records = self.tree.store().read(&child, 0).await;
            let records = records.map_err(|error| self.failed(part, error.to_string()))?;
            if !records.is_empty() && !self.state.loans().contains_key(&child) {
                let cause = format!("cannot start it: the imported tree already has a session {child}");
                return Err(self.failed(part, cause));
            }
        }
        Ok(())
    }

    /// What a child is equipped with, the definition it runs, and what the caller should know about it. Calls of one
    /// reply are often alike, so the last answer is kept.
    async fn kit_for(
        &mut self,
        part: &Delegation,
    ) -> Result<(Arc<Kit>, Option<String>, Option<String>), ToolOutput> {
        if let Some(last) = &self.last_kit
            && same_equipment(&last.part, part)
        {
            return Ok((last.kit.clone(), last.agent.clone(), last.warning.clone()));
        }
        let definition = self.definition_for(part).await?;
        // What it says to the user would stand there as if the lead had said it.
        if let Some(role) = part.role.as_deref().filter(|_| definition.is_none())
            && self.tree.is_name_of_lead(role)
        {
            let text = format!("'{role}' is the name of the agent that leads this run. Choose another name.");
            return Err(ToolOutput::error(text));
        }
        let defined = definition.as_ref().map(|agent| agent.id.clone());
        let (agent, wish) = self.tree.settings().faces.equip(part, &self.caller(), definition);
        let depth = self.caller().depth + 1;
        let authority = &self.kit.authority;
        let attenuated =
            authority.attenuate(&wish, depth).map_err(|refusal| self.failed(part, refusal.to_string()))?;
        let mut lent = attenuated.authority;
        let speaks = authority.speak == Access::Allowed && authority.lend.contains(faces::MESSAGE);
        if part.face == Face::Delegate && speaks {
            lent.tools.insert(faces::MESSAGE.to_owned());
            lent.lend.insert(faces::MESSAGE.to_owned());
        }
        let warning = tool_warning(&attenuated.unknown, &wish.lacking, &agent.name);
        let kit = self.tree.kit(agent, lent, depth).map_err(|cause| self.failed(part, cause))?;
        kit.can_keep(&self.state.ledger().granted()).map_err(|cause| self.failed(part, cause))?;
        self.last_kit = Some(Box::new(LastKit {
            part: part.clone(),
            kit: kit.clone(),
            agent: defined.clone(),
            warning: warning.clone(),
        }));
        Ok((kit, defined, warning))
    }

    /// A child that cannot be equipped has failed, and is spoken of as its face does.
    fn failed(&self, part: &Delegation, cause: String) -> ToolOutput {
        let outcome = Outcome::new(Status::Failed { cause }, "");
        self.tree.settings().faces.render(part, &outcome, usize::MAX, "")
    }

    /// The definition that a part names: by id, or as a role that no preset has.
    async fn definition_for(&self, part: &Delegation) -> Result<Option<Agent>, ToolOutput> {
        let id = match (part.face, &part.agent, &part.role) {
            (Face::Dispatch, Some(id), _) => id.clone(),
            (Face::Delegate, _, Some(role)) if self.tree.settings().faces.swarm.preset(role).is_none() => {
                let wanted = delegate::fold(role);
                let others = self.caller().others();
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
        // Definitions are files: they are read where waiting for a disk holds nobody up.
        let loaded = tokio::task::spawn_blocking(move || core.settings.agents.load(&id)).await;
        match loaded {
            Ok(Ok(agent)) => Ok(Some(agent)),
            Ok(Err(error @ LoadError::NotFound(_))) => Err(ToolOutput::error(error.to_string())),
            Ok(Err(LoadError::Invalid(problem))) => Err(self.failed(part, problem.to_string())),
            Err(error) => Err(self.failed(part, format!("its definition could not be read: {error}"))),
        }
    }

    /// The answer to a call whose child goes on in the background.
    pub(super) fn answer_background(&mut self, call: CallId, child: &SessionId, part: &Delegation) {
        self.groups.remove(&call);
        let name = part.role.as_deref().or(part.agent.as_deref()).unwrap_or_default();
        let text = format!(
            "'{name}' works in the background as {child}. You will be told when it ends; until then `tell` and \
             `stop` reach it."
        );
        self.answer(call, ToolOutput::ok(text));
    }

    /// A child was not started.
    pub(super) fn refuse_part(&mut self, waiting: Waiting, cause: String) {
        let Some(group) = self.groups.get_mut(&waiting.call) else { return };
        group.busy = group.busy.saturating_sub(1);
        group.unstarted.push((waiting.delegation, waiting.index, cause));
        group.failed = true;
        self.part_done(waiting.call, None);
    }

    /// A child has ended and its loan is back.
    pub(super) fn part_ended(
        &mut self,
        call: CallId,
        child: &SessionId,
        part: &Delegation,
        outcome: &Outcome,
    ) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        group.busy = group.busy.saturating_sub(1);
        group.failed |= failure(&outcome.status).is_some();
        let limit = self.tree.settings().limits.result_bytes;
        let output = self.tree.settings().faces.render(part, outcome, limit, child.as_str());
        self.part_done(call, Some(output));
    }

    fn part_done(&mut self, call: CallId, output: Option<ToolOutput>) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        if !group.several {
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
            self.fill_line(call);
        }
        if self.groups.get(&call).is_some_and(|group| group.busy == 0 && group.backlog.is_empty()) {
            self.finished.push(call);
        }
    }

    /// Cancels the children of a call that are out and drops those that are not.
    fn stop_group(&mut self, call: CallId) {
        let mut dropped: Vec<Waiting> = Vec::new();
        for queue in self.waiting.values_mut() {
            let all = std::mem::take(queue).into_iter();
            let (own, others): (VecDeque<_>, _) = all.partition(|waiting| waiting.call == call);
            *queue = others;
            dropped.extend(own);
        }
        let Some(group) = self.groups.get_mut(&call) else { return };
        group.busy = group.busy.saturating_sub(dropped.len());
        dropped.extend(std::mem::take(&mut group.backlog));
        let cause = format!("not started by {FAIL_FAST}");
        group.unstarted.extend(dropped.into_iter().map(|one| (one.delegation, one.index, cause.clone())));
        for (child, inbox) in &self.children {
            if self.state.loans().get(child).is_some_and(|loan| loan.call == call) {
                let _ = inbox.unbounded_send(Inbox::Cancel(FAIL_FAST.into()));
            }
        }
    }

    /// Whether a call can have several children.
    pub(super) fn has_several(&self, call: CallId) -> bool {
        self.groups.get(&call).is_some_and(|group| group.several)
    }

    /// Whether a child is to stop because another of its call has failed.
    pub(super) fn is_stopped_with_its_group(&self, child: &SessionId) -> bool {
        let group = self.state.loans().get(child).and_then(|loan| self.groups.get(&loan.call));
        group.is_some_and(|group| group.failed && group.fail_fast)
    }

    /// Everything that waits is answered when nothing new may start.
    pub(super) fn drop_waiting(&mut self, reason: &str) {
        let mut dropped: Vec<Waiting> = std::mem::take(&mut self.waiting).into_values().flatten().collect();
        for group in self.groups.values_mut() {
            group.busy += group.backlog.len();
            dropped.extend(std::mem::take(&mut group.backlog));
        }
        for waiting in dropped {
            self.refuse_part(waiting, format!("Not started: {reason}"));
        }
    }

    /// Answers calls whose several children have all ended. How each of them ended stands in this session's own log.
    pub(super) async fn answer_finished(&mut self) -> Result<(), Fatal> {
        while let Some(call) = self.finished.pop() {
            let Some(group) = self.groups.remove(&call) else { continue };
            self.flush().await?;
            let records = self.tree.store().read(&self.state.session().clone(), 0).await?;
            let mut parts = ended_parts(&records, call);
            let (first, last) = times(&records, call);
            for (part, index, cause) in group.unstarted {
                let outcome = Outcome::new(Status::Failed { cause }, "");
                parts.push((index, part, PartEnd { outcome, tokens: 0, duration_ms: 0 }));
            }
            parts.sort_by_key(|(index, _, _)| *index);
            let parts: Vec<(Arc<Delegation>, PartEnd)> =
                parts.into_iter().map(|(_, part, end)| (part, end)).collect();
            let settings = self.tree.settings();
            let (config, limit) = (settings.faces.subagent(), settings.limits.result_bytes);
            self.answer(call, config.render_parallel(&parts, last.saturating_sub(first), limit));
        }
        Ok(())
    }

    /// Takes up the children of a call that an earlier runner had started, and starts those that it had not.
    pub(super) async fn reattach(
        &mut self,
        call: CallId,
        written: &ToolCall,
        children: Vec<SessionId>,
    ) -> Result<(), Fatal> {
        let several = written.name == subagent::PARALLEL;
        let out = children.iter().filter(|child| self.state.loans().contains_key(*child)).count();
        self.open_group(call, several, 1, false, VecDeque::new());
        if let Some(group) = self.groups.get_mut(&call) {
            group.busy = out;
        }
        if several {
            self.plan_the_rest(call, written, &children).await?;
        }
        for child in children {
            self.take_up_child(&child).await?;
        }
        if !several && out == 0 {
            self.groups.remove(&call);
            let text = "interrupted, outcome unknown: the sub-agent's end was not recorded";
            self.answer(call, ToolOutput::error(text));
        }
        Ok(())
    }

    /// Puts the children of a call in line that no runner has started yet.
    async fn plan_the_rest(
        &mut self,
        call: CallId,
        written: &ToolCall,
        children: &[SessionId],
    ) -> Result<(), Fatal> {
        let faces = &self.tree.settings().faces;
        let plan = faces.plan(&written.name, &self.caller(), written.arguments.as_str());
        let records = self.tree.store().read(&self.state.session().clone(), 0).await?;
        let failed =
            ended_parts(&records, call).iter().any(|(_, _, end)| failure(&end.outcome.status).is_some());
        let Ok(plan) = plan else {
            // What the settings do not allow any more is not started; what was started is waited for.
            self.part_done(call, None);
            return Ok(());
        };
        let started: Vec<usize> =
            children.iter().filter_map(|child| child.call()).map(|(_, index)| index).collect();
        let mut backlog = VecDeque::new();
        let mut unstarted = Vec::new();
        for (index, part) in plan.parts.into_iter().enumerate().filter(|(index, _)| !started.contains(index))
        {
            match self.equip(call, index, part.clone()).await {
                Ok(waiting) => backlog.push_back(waiting),
                Err(output) => unstarted.push((part.into(), index, output.text.to_string())),
            }
        }
        if let Some(group) = self.groups.get_mut(&call) {
            group.at_once = plan.at_once;
            group.fail_fast = plan.fail_fast;
            group.backlog = backlog;
            group.unstarted = unstarted;
            group.failed = failed;
        }
        if let Some(reason) = self.state.stopping() {
            self.drop_waiting(&reason);
        }
        self.part_done(call, None);
        Ok(())
    }
}

/// The warning about requested tools that a child did not get: unknown ones, and those that its definition lacks.
fn tool_warning(unknown: &[String], lacking: &[String], agent: &str) -> Option<String> {
    let shown = |name: &str| name.chars().filter(|c| !c.is_control()).take(64).collect::<String>();
    let listed = |names: &[String]| names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        warnings.push(format!("no such tool to lend: {}", listed(unknown)));
    }
    if !lacking.is_empty() {
        warnings.push(format!("not among the tools of '{}': {}", shown(agent), listed(lacking)));
    }
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// Whether two parts get the same kit.
fn same_equipment(one: &Delegation, other: &Delegation) -> bool {
    one.face == other.face
        && one.role == other.role
        && one.agent == other.agent
        && one.external == other.external
        && one.tools == other.tools
        && one.single == other.single
        && one.system_prompt == other.system_prompt
        && other.face != Face::Dispatch
}

/// The children of a call that have returned, as the log has them.
fn ended_parts(records: &[Record], call: CallId) -> Vec<(usize, Arc<Delegation>, PartEnd)> {
    let mut parts = Vec::new();
    let mut begun: Vec<(&SessionId, &Arc<Delegation>, u64)> = Vec::new();
    for record in records {
        match &record.event {
            Event::Delegated { call: of, child, delegation, .. } if *of == call => {
                begun.push((child, delegation, record.at));
            }
            Event::Returned { child, outcome, spent, .. } => {
                let Some((_, part, at)) = begun.iter().find(|(begun, ..)| *begun == child) else { continue };
                let end = PartEnd {
                    outcome: outcome.clone(),
                    tokens: spent.usage.total(),
                    duration_ms: record.at.saturating_sub(*at),
                };
                parts.push((child.call().map_or(0, |(_, index)| index), (*part).clone(), end));
            }
            _ => {}
        }
    }
    parts
}

/// When the first child of a call began and the last one returned.
fn times(records: &[Record], call: CallId) -> (u64, u64) {
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

/// Whether a part goes on while its caller does.
pub(super) fn is_background(part: &Delegation) -> bool {
    part.waiting != Wait::Foreground
}
