//! Log of a session: its folded state, and the events that are not durable yet.

use std::sync::Arc;

use brigade_core::{Cursor, Event, Hash, State};

use super::DriverError;
use crate::clock;
use crate::event_stream::RunEvent;
use crate::fast_map::FastSet;
use crate::resolved_agent::ResolvedAgent;
use crate::store::{Append, Expect, StoreError, retry};
use crate::tree::Tree;

/// The only writer of a session's log, apart from external events. The state contains every recorded event, durable
/// or not.
pub(super) struct LogWriter {
    state: State,
    /// Events that are applied and not yet durable.
    pending: Vec<Event>,
    /// Definitions and old contents that the pending events refer to.
    blobs: Vec<(Hash, Arc<str>)>,
    /// Position of the last event that was written or read here.
    last_pos: Cursor,
}

impl LogWriter {
    /// Creates the writer of a log whose durable events are folded in `state`.
    pub(super) fn new(state: State) -> LogWriter {
        LogWriter { state, pending: Vec::new(), blobs: Vec::new(), last_pos: Cursor::START }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Number of durable events.
    fn committed(&self) -> u64 {
        self.state.length() - self.pending.len() as u64
    }

    /// Returns the state and the position of its last event, if all of it is durable and this writer knows where.
    pub(super) fn into_durable(self) -> Option<(State, Cursor)> {
        (self.pending.is_empty() && self.last_pos != Cursor::START).then_some((self.state, self.last_pos))
    }

    /// Applies an event and queues it for the next append. An event that the state does not admit is obsolete and
    /// is dropped.
    pub(super) fn record(&mut self, event: Event) -> bool {
        let admitted = self.state.admits(&event);
        if admitted {
            self.state.apply(&event);
            // An event is large, and most are appended in pairs.
            if self.pending.is_empty() {
                self.pending.reserve_exact(2);
            }
            self.pending.push(event);
        }
        admitted
    }

    /// Appends the definitions of an agent with the next events, unless the tree has made them durable.
    pub(super) fn add_definitions(&mut self, tree: &Tree, resolved: &ResolvedAgent) {
        tree.agents.add_unwritten(resolved, &mut self.blobs);
    }

    /// Appends a content with the next events.
    pub(super) fn add_content(&mut self, hash: Hash, content: Arc<str>) {
        self.blobs.push((hash, content));
    }

    /// Makes all recorded events durable.
    pub(super) async fn flush(&mut self, tree: &Tree) -> Result<(), DriverError> {
        while !self.pending.is_empty() {
            let at = clock::now();
            let seq = self.committed();
            let events = Arc::new(std::mem::take(&mut self.pending));
            let append = || Append {
                session: self.state.session().clone(),
                expect: Expect::Length(seq),
                events: events.clone(),
                blobs: self.blobs.iter().map(|(_, body)| body.clone()).collect(),
                lease: Some(tree.leases.covering(self.state.session())),
                at,
            };
            match retry::append(tree.store(), append).await {
                Ok(appended) => {
                    self.last_pos = appended.pos(events.len() as u64 - 1);
                    tree.observers().observe_append(self.state.session(), events, &appended, at);
                    tree.agents.mark_written(&self.blobs);
                    self.blobs.clear();
                }
                Err(StoreError::Conflict { .. }) => {
                    Box::pin(self.reconcile(tree, Arc::unwrap_or_clone(events), seq)).await?;
                }
                Err(error) => return Err(DriverError::Store(error)),
            }
        }
        Ok(())
    }

    /// Handles a conflict with another writer: folds the missed events and keeps only the own events that are
    /// still admitted. `known` is the number of events that were known to be durable.
    async fn reconcile(&mut self, tree: &Tree, unwritten: Vec<Event>, known: u64) -> Result<(), DriverError> {
        let session = self.state.session().clone();
        let records = tree.read(&session, 0).await?;
        self.state = tree.fold(&session, &records);
        self.last_pos = records.last().map_or(Cursor::START, |record| record.pos);
        for record in records.into_iter().skip(usize::try_from(known).unwrap_or(usize::MAX)) {
            tree.observers().observe_event(&RunEvent::Record(Arc::new(record)));
        }
        let mut overridden = FastSet::default();
        for event in unwritten {
            match event {
                // The model call was priced for another request. It is planned again.
                Event::Called { .. } => {}
                // The user answered before the time limit did, and that answer decides the call.
                Event::ToolEnded { call, .. } if overridden.contains(&call) => {}
                Event::Answered { call, .. } if !self.state.admits(&event) => {
                    overridden.insert(call);
                }
                event => {
                    self.record(event);
                }
            }
        }
        Ok(())
    }

    /// Reads external events.
    pub(super) async fn read_external_events(&mut self, tree: &Tree) -> Result<(), DriverError> {
        self.flush(tree).await?;
        let records = tree.read(self.state.session(), self.committed()).await?;
        for record in records {
            self.state.apply(&record.event);
            self.last_pos = record.pos;
            tree.observers().observe_event(&RunEvent::Record(Arc::new(record)));
        }
        Ok(())
    }
}
