//! Advice for errors of the session store. The library states the cause; the commands that help are known here.

use brigade::store::{Blocker, BlockerState, BrokenKind};
use brigade::{RunError, StoreError};

/// Cause of a store error, and what the user can do about it.
pub(crate) fn describe(error: &StoreError) -> String {
    match advice(error) {
        Some(advice) => format!("{error}. {advice}"),
        None => error.to_string(),
    }
}

/// Cause of an error that ended a run, and what the user can do about it.
pub(crate) fn describe_run(error: &RunError) -> String {
    match error {
        RunError::Store(error) => describe(error),
        _ => error.to_string(),
    }
}

fn advice(error: &StoreError) -> Option<String> {
    let advice = match error {
        StoreError::Held { root, .. } => {
            return Some(format!("Wait for it to end, or stop it with `brigade cancel {root}`."));
        }
        StoreError::OutcomeUnknown { session, .. } => {
            return Some(format!("Check the session with `brigade sessions show {session}`."));
        }
        StoreError::Locked { by, .. } => return Some(lock_advice(by.as_ref())),
        StoreError::Differs { .. } => "Remove the existing session with `brigade sessions rm` first.",
        StoreError::UnknownSession(_) => "List all sessions with `brigade sessions list`.",
        StoreError::Damaged { .. } | StoreError::MissingRecord { .. } | StoreError::MissingSession { .. } => {
            "Restore the store from a backup."
        }
        StoreError::Newer { .. } | StoreError::NewerStore { .. } => "Upgrade Brigade.",
        StoreError::Full { .. } => "Free some space, then run `brigade resume`. All recorded steps are kept.",
        StoreError::ReadOnly { .. } => "Choose another store with --store.",
        StoreError::Unavailable { .. } => {
            "Check the store, then run `brigade resume`. All recorded steps are kept."
        }
        StoreError::Broken { kind, .. } => match kind {
            BrokenKind::Foreign => "Choose another store with --store.",
            BrokenKind::NotAStore => "Move or rename it, or choose another store with --store.",
            BrokenKind::Format => "Restore the file from a backup.",
            BrokenKind::Corrupt => "Export the readable sessions with `brigade sessions export`.",
            BrokenKind::Disk => "Check the disk with `brigade doctor`.",
            BrokenKind::Other => return None,
        },
        StoreError::Conflict { .. }
        | StoreError::Fenced { .. }
        | StoreError::LeaseRequired { .. }
        | StoreError::Closed => return None,
    };
    Some(advice.to_owned())
}

fn lock_advice(by: Option<&Blocker>) -> String {
    let Some(Blocker { pid, state }) = by else {
        return "Check the other containers and machines that use this store.".to_owned();
    };
    match state {
        BlockerState::Stopped => format!("Resume it with: kill -CONT {pid}"),
        BlockerState::Traced => "Continue it in the debugger, or detach it.".to_owned(),
        BlockerState::Paused => "Resume its container, or its control group.".to_owned(),
        BlockerState::Running => format!("Wait for it, or end it with: kill {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use brigade::store::Owner;
    use brigade_core::SessionId;

    use super::*;

    fn broken(kind: BrokenKind) -> StoreError {
        StoreError::Broken { place: "s.db".into(), kind, cause: "it is so".into() }
    }

    fn locked(state: Option<BlockerState>) -> StoreError {
        StoreError::Locked { place: "s.db".into(), by: state.map(|state| Blocker { pid: 7, state }) }
    }

    #[test]
    fn every_store_error_is_described_with_its_cause_and_its_advice() {
        let id = SessionId::root(1);
        let (session, seq, place) = (id.clone(), 3, "s.db".to_owned());
        let owner = Owner { host: "h".into(), boot_id: String::new(), pid: 7, start_time: 0 };
        let cause = || "it is so".to_owned();
        let cases = [
            (
                StoreError::Held { root: id.clone(), owner },
                format!("{id} is running in process 7 on h. Wait for it to end, or stop it with `brigade cancel {id}`."),
            ),
            (
                StoreError::Differs { session: session.clone(), seq },
                format!(
                    "cannot import session {id}: the store already has it, and record 3 differs. Remove the existing session with `brigade sessions rm` first."
                ),
            ),
            (
                StoreError::UnknownSession(id.clone()),
                format!("session {id} does not exist. List all sessions with `brigade sessions list`."),
            ),
            (
                StoreError::Damaged { session: session.clone(), seq, cause: cause() },
                format!(
                    "cannot read session {id}: record 3 is damaged (it is so). The records before it are intact. Restore the store from a backup."
                ),
            ),
            (
                StoreError::MissingRecord { session: session.clone(), seq },
                format!(
                    "cannot read session {id}: record 3 is missing. The records before it are intact. Restore the store from a backup."
                ),
            ),
            (
                StoreError::MissingSession { child: id.clone(), parent: id.clone() },
                format!(
                    "session {id} is missing: {id} delegated to it, but the store does not contain it. Restore the store from a backup."
                ),
            ),
            (
                StoreError::Newer { session, seq, what: cause() },
                format!(
                    "cannot run session {id}: a newer version of Brigade wrote it (record 3: it is so). Upgrade Brigade."
                ),
            ),
            (
                StoreError::NewerStore { place: place.clone(), found: 9, known: 2 },
                "cannot open the store s.db: its format is 9, and this version supports formats up to 2. Upgrade Brigade.".into(),
            ),
            (
                StoreError::Full { place: place.clone() },
                "cannot write to s.db: the disk is full. Free some space, then run `brigade resume`. All recorded steps are kept.".into(),
            ),
            (
                StoreError::ReadOnly { place, cause: cause() },
                "cannot write to s.db: it is so. Choose another store with --store.".into(),
            ),
            (
                locked(None),
                "cannot write to the store s.db: an unknown process holds the lock. Check the other containers and machines that use this store.".into(),
            ),
            (
                locked(Some(BlockerState::Stopped)),
                "cannot write to the store s.db: process 7 (stopped) holds the lock. Resume it with: kill -CONT 7".into(),
            ),
            (
                locked(Some(BlockerState::Traced)),
                "cannot write to the store s.db: process 7 (stopped by a debugger) holds the lock. Continue it in the debugger, or detach it.".into(),
            ),
            (
                locked(Some(BlockerState::Paused)),
                "cannot write to the store s.db: process 7 (paused) holds the lock. Resume its container, or its control group.".into(),
            ),
            (
                locked(Some(BlockerState::Running)),
                "cannot write to the store s.db: process 7 (running) holds the lock. Wait for it, or end it with: kill 7".into(),
            ),
            (broken(BrokenKind::Foreign), "cannot use s.db: it is so. Choose another store with --store.".into()),
            (
                broken(BrokenKind::NotAStore),
                "cannot use s.db: it is so. Move or rename it, or choose another store with --store.".into(),
            ),
            (broken(BrokenKind::Format), "cannot use s.db: it is so. Restore the file from a backup.".into()),
            (
                broken(BrokenKind::Corrupt),
                "cannot use s.db: it is so. Export the readable sessions with `brigade sessions export`.".into(),
            ),
            (broken(BrokenKind::Disk), "cannot use s.db: it is so. Check the disk with `brigade doctor`.".into()),
            (broken(BrokenKind::Other), "cannot use s.db: it is so".into()),
            (StoreError::Closed, "the store is closed".into()),
        ];
        for (error, text) in cases {
            assert_eq!(describe(&error), text);
            assert_eq!(describe_run(&RunError::Store(error)), text);
        }
    }
}
