//! Children that an earlier runner left unstarted, running or ended.

use std::sync::Arc;

use brigade_core::state::RoundSpec;
use brigade_core::{Cursor, Event, Limit, SessionId};

use super::delegation_calls::is_background;
use super::{ChildEnd, Driver, DriverError, RoundEnd};
use crate::tree::Tree;

impl Driver {
    /// Resumes one child that an earlier runner had started or was about to start.
    pub(super) async fn resume_child(&mut self, child: &SessionId) -> Result<(), DriverError> {
        let Some(loan) = self.state().loans().get(child).cloned() else { return Ok(()) };
        match restore_child(&self.tree, child, *loan.round).await? {
            RestoredChild::Ended(end) => {
                self.child_done(ChildEnd { child: child.clone(), result: Ok(*end) })?
            }
            RestoredChild::Running(mut driver) => {
                self.persist_start(child, &mut driver).await?;
                self.start_child(child.clone(), driver);
            }
        }
        Ok(())
    }

    /// Resumes the background children of this session.
    pub(super) async fn resume_background_children(&mut self) -> Result<(), DriverError> {
        let loans = self.state().loans().iter();
        let background = loans.filter(|(_, loan)| is_background(&loan.round.delegation));
        let children: Vec<SessionId> = background.map(|(child, _)| child.clone()).collect();
        for child in children {
            self.resume_child(&child).await?;
        }
        Ok(())
    }
}

enum RestoredChild {
    Ended(Box<RoundEnd>),
    Running(Box<Driver>),
}

/// Restores a child that an earlier runner left unstarted, running or ended.
async fn restore_child(
    tree: &Arc<Tree>,
    child: &SessionId,
    mut round: RoundSpec,
) -> Result<RestoredChild, DriverError> {
    let records = tree.store().read(child, 0).await?;
    let resolved = tree.agents.resolve_recorded(round.agent, round.grant.authority, round.depth).await?;
    if records.is_empty() {
        // Time without a runner does not count. The child's own log cannot contain it, because it starts only
        // now.
        let downtime = tree.history.last_downtime();
        if let Limit::AtMost(at) = round.grant.deadline {
            round.grant.deadline = Limit::AtMost(at.saturating_add(downtime));
        }
        return Ok(RestoredChild::Running(Driver::begin(tree.clone(), child.clone(), round, resolved, None)));
    }
    let started = records.iter().rev().find(|record| matches!(record.event, Event::Started { .. }));
    let started_pos = started.map_or(Cursor::START, |record| record.pos);
    let state = tree.fold(child, &records);
    match state.ended() {
        Some(outcome) => {
            let end = RoundEnd { outcome: outcome.clone(), spent: state.ledger().spent() };
            Ok(RestoredChild::Ended(Box::new(end)))
        }
        None => Ok(RestoredChild::Running(Driver::resume(tree.clone(), state, resolved, started_pos))),
    }
}
