//! Laws of records that come from another store.

use brigade_core::{Cursor, Record, SessionId};

use super::fixtures::*;
use crate::store::{MemoryStore, Store, StoreError};

/// Records of a tree of two sessions in another store.
async fn foreign_tree(top: &SessionId) -> Vec<Record> {
    let elsewhere = MemoryStore::new();
    let lease = begin_session(&elsewhere, top, 2).await;
    append_events(&elsewhere, &lease, &child(top, 0), 0, 2).await.unwrap();
    append_events(&elsewhere, &lease, top, 2, 1).await.unwrap();
    elsewhere.tail(top, Cursor::START, usize::MAX).await.unwrap()
}

/// Records without what the store assigns.
fn without_positions(records: &[Record]) -> Vec<Record> {
    records.iter().map(|record| Record { pos: Cursor::START, ..record.clone() }).collect()
}

pub async fn restore_adds_missing_records_and_marks_the_tree(store: &dyn Store) {
    let top = root(1);
    let records = foreign_tree(&top).await;
    begin_session(store, &root(2), 3).await;
    assert_eq!(store.imported(&top).await.unwrap(), None);
    assert_eq!(store.restore(records[..3].to_vec(), Vec::new()).await.unwrap(), 3);
    let first_mark = store.imported(&top).await.unwrap().unwrap();
    assert_eq!(store.restore(records.clone(), vec![content("definition")]).await.unwrap(), 2);
    let tree = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(without_positions(&tree), without_positions(&records));
    let mark = store.imported(&top).await.unwrap();
    assert_eq!(mark, tree.last().map(|record| record.pos));
    assert!(mark.is_some_and(|mark| store.is_after(mark, first_mark)));
    assert_eq!(store.restore(records, Vec::new()).await.unwrap(), 0, "a repeated import adds nothing");
    assert_eq!(store.imported(&top).await.unwrap(), mark);
    assert_eq!(store.imported(&root(2)).await.unwrap(), None);
    // Local records are after the mark.
    let lease = lease(store, &top).await;
    let local = append_events(store, &lease, &top, 3, 1).await.unwrap().unwrap();
    assert!(mark.is_some_and(|mark| store.is_after(local.first_pos, mark)));
    store.release(&lease).await.unwrap();
    store.remove(&top).await.unwrap();
    assert_eq!(store.imported(&top).await.unwrap(), None);
}

pub async fn restore_that_does_not_fit_writes_nothing(store: &dyn Store) {
    let top = root(1);
    let records = foreign_tree(&top).await;
    let gap = [&records[..1], &records[4..]].concat();
    let missing = StoreError::MissingRecord { session: top.clone(), seq: 1 };
    assert_eq!(store.restore(gap, Vec::new()).await, Err(missing));
    assert_eq!(store.sessions(&top).await.unwrap(), []);
    store.restore(records[..1].to_vec(), Vec::new()).await.unwrap();
    let mut other = records.clone();
    other[0].event = said_event("something else");
    let differs = StoreError::Differs { session: top.clone(), seq: 0 };
    assert_eq!(store.restore(other, Vec::new()).await, Err(differs));
    let held = lease(store, &top).await;
    let refused = store.restore(records.clone(), Vec::new()).await;
    assert!(matches!(refused, Err(StoreError::Held { .. })), "{refused:?}");
    assert_eq!(store.sessions(&top).await.unwrap(), std::slice::from_ref(&top));
    store.release(&held).await.unwrap();
    assert_eq!(store.restore(records, Vec::new()).await.unwrap(), 4);
}
