//! Usage of trees without reading whole logs. For a session with one round the last event contains it. For
//! others, only the ends of the rounds are read.

use brigade_core::{Event, Record, SessionId};
use rusqlite::params;

use super::Pos;
use super::batch::ExpectedSeq;
use super::reader::{Snapshot, SubtreeRange, columns};
use brigade_base::store::backend::{EndedRounds, OpenRound};
use brigade_base::store::{StoreError, Totals};

impl Snapshot<'_> {
    /// Usage of a tree.
    pub(super) fn totals(&self, root: &SessionId) -> Result<Totals, StoreError> {
        let sessions = self.count(root)?;
        let mut ended = EndedRounds::default();
        // Every round but the first begins with a message.
        if !self.has_external_events(root)?
            && let Record { event: event @ Event::Ended { .. }, .. } = self.last_of(root)?
        {
            ended.take(&event);
            return Ok(ended.with(root, &OpenRound::default(), sessions));
        }
        let until = self.ended_rounds(root, &mut ended)?;
        let mut open = OpenRound::default();
        self.for_each_record_after(root, until, |record| open.take(&record))?;
        Ok(ended.with(root, &open, sessions))
    }

    fn count(&self, root: &SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT count(DISTINCT session) FROM events INDEXED BY events_by_session
            WHERE session >= ?1 AND session < ?3 AND (+session = ?1 OR +session > ?2)";
        let below = SubtreeRange::of(root);
        let found = self.query_one(sql, params![root.as_str(), below.first, below.end], |row| row.get(0))?;
        Ok(found.unwrap_or_default())
    }

    fn has_external_events(&self, session: &SessionId) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM events INDEXED BY events_outside
            WHERE outside = 1 AND session = ?)";
        self.query_one(sql, params![session.as_str()], |row| row.get(0)).map(|found| found.unwrap_or(false))
    }

    /// Reads the ends of rounds and returns the position of the last.
    fn ended_rounds(&self, session: &SessionId, ended: &mut EndedRounds) -> Result<Pos, StoreError> {
        // JSON escapes quotation marks inside texts, so these bytes occur only in the structure of an event.
        let sql =
            columns!(r#"WHERE session = ? AND instr(body, CAST('"type":"ended"' AS BLOB)) > 0 ORDER BY seq"#);
        let mut until = 0;
        self.for_each_record(session, sql, params![session.as_str()], |record| {
            if let Event::Ended { .. } = record.event {
                ended.take(&record.event);
                until = record.pos.number();
            }
        })?;
        Ok(until)
    }

    /// Visits all events of a tree after a position, session by session.
    fn for_each_record_after(
        &self,
        root: &SessionId,
        after: Pos,
        mut take: impl FnMut(Record),
    ) -> Result<(), StoreError> {
        let sql = columns!("WHERE session = ? AND +pos > ? ORDER BY seq");
        for session in self.sessions(root)? {
            self.for_each_record(&session, sql, params![session.as_str(), after], |record| {
                if record.pos.number() > after {
                    take(record);
                }
            })?;
        }
        Ok(())
    }

    fn for_each_record(
        &self,
        session: &SessionId,
        sql: &str,
        parameters: impl rusqlite::Params,
        mut take: impl FnMut(Record),
    ) -> Result<(), StoreError> {
        let explain = |error| self.explain(error);
        let mut statement = self.connection.prepare_cached(sql).map_err(explain)?;
        let mut rows = statement.query(parameters).map_err(explain)?;
        while let Some(row) = rows.next().map_err(explain)? {
            let batch = self.batch(session, ExpectedSeq::Any, row)?;
            for event_line in batch.events() {
                take(self.record(session, &batch, event_line)?);
            }
        }
        Ok(())
    }
}
