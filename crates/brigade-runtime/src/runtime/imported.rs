//! Authority of resumed rounds. Imported records grant none, and the narrower of two modes applies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brigade_core::delegation_styles::{PASSTHROUGH_PREFIX, resolve_model};
use brigade_core::grant::Authority;
use brigade_core::permission::Mode;
use brigade_core::state::RoundSpec;
use brigade_core::{Agent, Cursor, Event, Outcome, Record, SessionId, Spent};

use super::{CachedSession, ResumeOptions, RunError, Runtime, fold};
use crate::settings::ModeOrigin;
use crate::store::{Append, Expect, Lease, Store, StoreError, retry};
use crate::tree::Tree;

/// Message that begins the first local round of an imported session.
pub(super) const RESUME_IMPORTED_MESSAGE: &str = "This session was imported. Calls that had not finished when it was exported were not \
repeated, and their outcome is unknown. Continue the task where you left off and finish it.";

/// Cause recorded when open work of an imported tree is closed.
const CLOSED_BY_IMPORT: &str = "it was open when this session was imported and was not run again";

/// Most permissive mode that applies if the user sets none.
const MAX_DEFAULT_MODE: Mode = Mode::Edit;

/// Agent and authority of the last round.
pub(super) struct LastRound {
    pub(super) agent: Agent,
    pub(super) authority: Authority,
}

impl Runtime {
    /// Ends the rounds of an imported tree that were open at the import, so that none of their calls runs here.
    /// Returns the last imported position, if the tree was imported.
    pub(super) async fn close_imported(
        &self,
        session: &SessionId,
        lease: &Lease,
        cached: &CachedSession,
        now: u64,
    ) -> Result<Option<Cursor>, StoreError> {
        let store = &self.core.store;
        let Some(import_pos) = store.imported(&session.root_id()).await? else { return Ok(None) };
        let is_ours = store.is_after(cached.started, import_pos) || !cached.state.is_running();
        if cached.imported == Some(import_pos) && is_ours {
            return Ok(Some(import_pos));
        }
        let mut waiting = vec![session.clone()];
        let mut open = BTreeSet::new();
        while let Some(next) = waiting.pop() {
            let records = store.read(&next, 0).await?;
            if is_open(&**store, &next, &records, import_pos) && open.insert(next.clone()) {
                let state = fold(&next, &records);
                let below = state.loans().keys().filter(|child| next.contains(child) && **child != next);
                waiting.extend(below.cloned());
            }
        }
        let mut ended = BTreeMap::new();
        // An id begins with that of its parent, so the reverse order closes children before the parents that wait
        // for them.
        for session in open.iter().rev() {
            self.close(session, lease, import_pos, now, &mut ended).await?;
        }
        Ok(Some(import_pos))
    }

    /// Ends the open round of one session, and notes how its last round ended.
    async fn close(
        &self,
        session: &SessionId,
        lease: &Lease,
        import_pos: Cursor,
        now: u64,
        ended: &mut BTreeMap<SessionId, (Outcome, Spent)>,
    ) -> Result<(), StoreError> {
        loop {
            let records = self.core.store.read(session, 0).await?;
            let state = fold(session, &records);
            if !is_open(&*self.core.store, session, &records, import_pos) {
                let end = state.ended().map(|outcome| (outcome.clone(), state.ledger().spent()));
                ended.extend(end.map(|end| (session.clone(), end)));
                return Ok(());
            }
            let events = state.abandon(CLOSED_BY_IMPORT, ended);
            if !matches!(events.last(), Some(Event::Ended { .. })) {
                let cause = "the session is inconsistent at this point".to_owned();
                return Err(StoreError::Damaged { session: session.clone(), seq: state.length(), cause });
            }
            let append = Append {
                session: session.clone(),
                expect: Expect::Length(state.length()),
                events: Arc::new(events),
                blobs: Vec::new(),
                lease: Some(lease.clone()),
                at: now,
            };
            match retry::append(&*self.core.store, || append.clone()).await {
                // A message from outside may be appended in between. The append is then retried.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Agent and authority that the next round is based on. An imported round is untrusted data: the address and
    /// key of a model count only if the user's own definition has them.
    pub(super) async fn last_round(
        &self,
        tree: &Tree,
        round: &RoundSpec,
        is_imported: bool,
        options: &ResumeOptions,
    ) -> Result<LastRound, RunError> {
        if !is_imported {
            let resolved =
                tree.agents.resolve_recorded(round.agent, round.grant.authority, round.depth).await?;
            return Ok(LastRound { agent: resolved.agent.clone(), authority: resolved.authority.clone() });
        }
        let mut agent: Agent = tree.agents.definition(round.agent).await?;
        let authority: Authority = tree.agents.definition(round.grant.authority).await?;
        let settings = &self.core.settings;
        let mut own = settings.agents.load(&agent.id).unwrap_or_default();
        resolve_model(&mut own, &Agent { model: Some(settings.model.clone()), ..Agent::default() });
        if (&own.api_base, &own.key_of, &own.model) != (&agent.api_base, &agent.key_of, &agent.model) {
            agent.api_base = None;
            agent.key_of = None;
        }
        // A name that refers to a file or to a passthrough call is not a model that an import may choose.
        let is_model =
            |name: &String| !name.starts_with(PASSTHROUGH_PREFIX) && !self.core.models.is_local_name(name);
        let named = agent.model.take();
        agent.model = named.clone().filter(is_model);
        let has_none = agent.model.is_none() && options.model.is_none() && settings.model.is_empty();
        if let Some(name) = named.filter(|_| has_none) {
            return Err(RunError::Config(format!(
                "cannot resume this imported session: its model '{name}' does not belong to a provider. Choose another with --model."
            )));
        }
        agent.fallbacks.retain(is_model);
        let limits = &settings.limits;
        agent.max_turns = agent.max_turns.map(|turns| turns.min(limits.lead_turns));
        agent.max_tokens = agent.max_tokens.map(|tokens| tokens.min(limits.max_tokens));
        let model = options.model.as_ref().or(agent.model.as_ref());
        match model.filter(|model| !settings.models.has(model)) {
            Some(model) => Err(RunError::Config(format!(
                "cannot resume this imported session: its model '{model}' is not allowed. \
                 Choose another with --model."
            ))),
            None => Ok(LastRound { agent, authority }),
        }
    }

    /// Mode that a new round records as configured, or none if the user chose the mode for this run.
    pub(super) fn configured_mode(&self) -> Option<Mode> {
        let settings = &self.core.settings;
        (settings.mode_origin != ModeOrigin::Choice).then_some(settings.permissions.mode)
    }

    /// Mode that narrows an open round: the one the user chose when resuming it, now or earlier, or else the
    /// configured one if the round started with a configured mode.
    pub(super) fn mode_of_open_round(&self, cached: &CachedSession, options: &ResumeOptions) -> Option<Mode> {
        let configured = cached.state.round().and_then(|round| round.delegation.configured_mode);
        options.mode.or(cached.mode).or_else(|| configured.and_then(|_| self.narrowing_mode()))
    }

    /// Mode of a next round: the chosen one, or the recorded one bounded by the configuration.
    pub(super) fn mode_of_next_round(
        &self,
        then: &Authority,
        configured: Option<Mode>,
        is_imported: bool,
        options: &ResumeOptions,
    ) -> Mode {
        let recorded = then.permissions.mode;
        let bound = match (is_imported, configured) {
            (true, _) => Some(self.core.settings.permissions.mode),
            (false, Some(_)) => self.narrowing_mode(),
            (false, None) => None,
        };
        options.mode.unwrap_or_else(|| bound.map_or(recorded, |bound| recorded.min(bound)))
    }

    fn narrowing_mode(&self) -> Option<Mode> {
        let mode = self.core.settings.permissions.mode;
        match self.core.settings.mode_origin {
            ModeOrigin::Configuration => Some(mode),
            // The default depends on whether the user can be asked here, which says nothing about the session. A
            // mode more permissive than any default came from a configuration that no longer sets it.
            ModeOrigin::Default => Some(mode.max(MAX_DEFAULT_MODE)),
            ModeOrigin::Choice => None,
        }
    }
}

/// Whether the last round of a session is open and was imported.
fn is_open(store: &dyn Store, session: &SessionId, records: &[Record], import_pos: Cursor) -> bool {
    let started = records.iter().rev().find(|record| matches!(record.event, Event::Started { .. }));
    started.is_some_and(|record| !store.is_after(record.pos, import_pos))
        && fold(session, records).is_running()
}
