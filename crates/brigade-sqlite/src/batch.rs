//! Rows of events: decoding and integrity checks.

use std::fmt::Display;
use std::str::Split;

use brigade_core::{Cursor, Record, SessionId};
use rusqlite::{Row, params};

use super::Pos;
use super::reader::Snapshot;
use brigade_base::store::StoreError;
use brigade_base::store::backend::{self, DecodeError};

/// A decoded row: events of one session that were appended together.
pub(super) struct Batch<'r> {
    body: Split<'r, char>,
    /// `seq` of the first event.
    pub(super) first: u64,
    first_pos: Pos,
    at: u64,
    v: u64,
    flag: u64,
}

/// An event in its row.
pub(super) struct BatchEvent<'r> {
    pub(super) seq: u64,
    pub(super) pos: Pos,
    line: &'r str,
}

impl<'r> Batch<'r> {
    pub(super) fn events(&self) -> impl Iterator<Item = BatchEvent<'r>> + use<'r> {
        let (first, first_pos) = (self.first, self.first_pos);
        let event_line = move |(line, nth)| BatchEvent { seq: first + nth, pos: first_pos + nth, line };
        self.body.clone().zip(0..).map(event_line)
    }
}

/// Reason why a row cannot be read.
enum BatchFault {
    /// Records are missing, starting with this event.
    Hole(u64),
    Unread(DecodeError),
}

impl From<DecodeError> for BatchFault {
    fn from(error: DecodeError) -> BatchFault {
        BatchFault::Unread(error)
    }
}

/// Event that a row is expected to start with.
#[derive(Debug, Clone, Copy)]
pub(super) enum ExpectedSeq {
    /// Exactly this one.
    Exact(u64),
    /// This one or an earlier one.
    Covering(u64),
    Any,
}

impl ExpectedSeq {
    fn seq(self) -> Option<u64> {
        match self {
            ExpectedSeq::Exact(expected) | ExpectedSeq::Covering(expected) => Some(expected),
            ExpectedSeq::Any => None,
        }
    }
}

impl Snapshot<'_> {
    /// Decodes a row if it is the expected one and its checksum matches. The error of an unreadable row names the
    /// first event lost with it.
    pub(super) fn batch<'r>(
        &self,
        session: &SessionId,
        expected: ExpectedSeq,
        row: &'r Row<'_>,
    ) -> Result<Batch<'r>, StoreError> {
        let last = row.get::<_, u64>(2).map_err(|error| {
            DecodeError::Damaged(error.to_string()).of(session, expected.seq().unwrap_or_default())
        })?;
        read_batch(expected, session.as_str(), last, row).map_err(|fault| match (fault, expected) {
            (BatchFault::Hole(seq), _) => StoreError::MissingRecord { session: session.clone(), seq },
            (BatchFault::Unread(error), ExpectedSeq::Exact(first)) => error.of(session, first),
            (BatchFault::Unread(error), ExpectedSeq::Covering(_) | ExpectedSeq::Any) => {
                match self.end_before(session, last) {
                    Ok(first) => error.of(session, first),
                    Err(error) => error,
                }
            }
        })
    }

    /// Decodes one event of a row.
    pub(super) fn record(
        &self,
        session: &SessionId,
        batch: &Batch<'_>,
        BatchEvent { seq, pos, line }: BatchEvent<'_>,
    ) -> Result<Record, StoreError> {
        let read = || {
            let mut event = backend::decode(line, batch.v)?;
            let damaged = |error: rusqlite::Error| DecodeError::Damaged(error.to_string());
            backend::hydrate(&mut event, &mut |hash| self.content(hash).map_err(damaged))?;
            if batch.flag != backend::flag(&event) {
                return Err(DecodeError::Damaged("its index entry does not match its content".into()));
            }
            let v = u16::try_from(batch.v).map_err(|error| DecodeError::Damaged(error.to_string()))?;
            Ok(Record { session: session.clone(), seq, pos: Cursor::new(pos), at: batch.at, v, event })
        };
        read().map_err(|error| error.of(session, seq))
    }

    /// Finds where the rows of a session before an event end.
    pub(super) fn end_before(&self, session: &SessionId, seq: u64) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(seq) + 1, 0) FROM events WHERE session = ? AND seq < ?";
        let end = self.query_one(sql, params![session.as_str(), seq], |row| row.get(0))?;
        Ok(end.unwrap_or_default())
    }
}

fn read_batch<'r>(
    expected: ExpectedSeq,
    session: &str,
    last: u64,
    row: &'r Row<'_>,
) -> Result<Batch<'r>, BatchFault> {
    let damaged = |cause: &dyn Display| DecodeError::Damaged(cause.to_string());
    let number = |column: usize| row.get::<_, u64>(column).map_err(|error| damaged(&error));
    let (last_pos, at, v, flag) = (number(0)?, number(3)?, number(4)?, number(5)?);
    let bytes = |column: usize| {
        let value = row.get_ref(column).map_err(|error| damaged(&error))?;
        value.as_blob().map_err(|error| damaged(&error))
    };
    let body = bytes(6)?;
    let sum = bytes(7)?;
    if sum != backend::checksum(session, last, at, v, body)
        && sum != backend::checksum_with_position(session, last, last_pos, at, v, body)
    {
        return Err(damaged(&"its checksum does not match").into());
    }
    backend::check_version(v)?;
    let body = backend::lines(body)?;
    let preceding = body.clone().count() as u64 - 1;
    let first = last.checked_sub(preceding).zip(last_pos.checked_sub(preceding));
    let (first, first_pos) = first
        .ok_or_else(|| damaged(&"its sequence number does not match the number of events stored with it"))?;
    match expected {
        ExpectedSeq::Exact(expected) | ExpectedSeq::Covering(expected) if first > expected => {
            Err(BatchFault::Hole(expected))
        }
        ExpectedSeq::Exact(expected) if first < expected => {
            Err(damaged(&format!("it is stored at the position of record {first}")).into())
        }
        ExpectedSeq::Exact(_) | ExpectedSeq::Covering(_) | ExpectedSeq::Any => {
            Ok(Batch { body, first, first_pos, at, v, flag })
        }
    }
}
