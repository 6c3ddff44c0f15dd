//! Checks of a finished tree and of the store.

use std::collections::BTreeMap;
use std::path::Path;

use brigade::Runtime;
use brigade::core::{Cursor, Event, Record, SessionId, State};
use brigade::store::sqlite::{Integrity, SqliteStore};

/// Checks the invariants of a finished tree.
pub(crate) fn check_invariants(log: &[Record]) -> Result<(), String> {
    let mut sessions: BTreeMap<&SessionId, Vec<&Event>> = BTreeMap::new();
    for record in log {
        let events = sessions.entry(&record.session).or_default();
        if record.seq != events.len() as u64 {
            return Err(format!("{} has a gap before {}", record.session, record.seq));
        }
        events.push(&record.event);
    }
    sessions.into_iter().try_for_each(|(session, events)| check_session_invariants(session, &events))
}

fn check_session_invariants(session: &SessionId, events: &[&Event]) -> Result<(), String> {
    let count = |kind: &str| events.iter().filter(|event| event.kind() == kind).count();
    if count("started") != count("ended") {
        return Err(format!("{session}: {} rounds and {} ends", count("started"), count("ended")));
    }
    if count("delegated") != count("returned") {
        return Err(format!("{session}: {} loans and {} returns", count("delegated"), count("returned")));
    }
    let mut state = State::new(session.clone());
    for event in events {
        if !state.admits(event) && !event.is_external() {
            return Err(format!("{session}: {} is not allowed at {}", event.kind(), state.length()));
        }
        state.apply(event);
        let ledger = state.ledger();
        if !ledger.granted().fits(ledger.committed()) {
            return Err(format!("{session}: more committed than granted at {}", state.length()));
        }
    }
    let ledger = state.ledger();
    match ledger.reserved().is_zero() && ledger.lent().is_zero() {
        true => Ok(()),
        false => Err(format!("{session}: some budget is still reserved or lent")),
    }
}

/// Returns all problems of the store and of the trees that were kept in it.
pub(crate) async fn store(runtime: &Runtime, path: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    match SqliteStore::check_health(path, u64::MAX) {
        Ok(checkup) if checkup.integrity == Integrity::Intact => {}
        Ok(checkup) => faults.push(format!("the store is damaged: {checkup:?}")),
        Err(error) => faults.push(error.to_string()),
    }
    match runtime.store().roots().await {
        Ok(roots) => {
            for summary in roots {
                if let Some(owner) = summary.runner {
                    faults.push(format!("{} is still running (owner: {owner})", summary.root));
                }
                match runtime.store().tail(&summary.root, Cursor::START, usize::MAX).await {
                    Ok(log) => faults.extend(check_invariants(&log).err()),
                    Err(error) => faults.push(error.to_string()),
                }
            }
        }
        Err(error) => faults.push(error.to_string()),
    }
    faults
}
