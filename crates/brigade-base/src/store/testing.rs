//! Laws that every store keeps, as tests. Available with the feature `store-testing`.
//!
//! Each law is an async function that gets a new, empty store and panics if the store breaks the law.
//! [`store_laws!`](crate::store_laws) makes a test of each:
//!
//! ```
//! use brigade_base::store::MemoryStore;
//!
//! async fn new_store() -> (MemoryStore, ()) {
//!     (MemoryStore::new(), ())
//! }
//!
//! brigade_base::store_laws!(new_store);
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a failed check panics, and the name of the check says what failed"
)]

pub mod appends;
pub mod fixtures;
pub mod follows;
pub mod imports;
pub mod leases;
pub mod reads;
pub mod removals;

use std::sync::Arc;

use super::Store;

/// Defines a test for each law, in the current module. The argument is an async function that returns a new, empty store
/// and a value that is dropped after the store, for example its directory.
#[macro_export]
macro_rules! store_laws {
    (@tests $check:ident $new_store:path; $($group:ident::$law:ident,)*) => {
        $(
            #[test]
            fn $law() {
                $crate::store::testing::$check($new_store, $crate::store::testing::$group::$law);
            }
        )*
    };
    ($new_store:path) => {
        $crate::store_laws! {
            @tests check $new_store;
            appends::log_is_dense_and_returns_what_was_appended,
            appends::conflicting_append_changes_nothing_and_fails_alone,
            appends::append_is_atomic,
            appends::batched_events_are_read_one_by_one,
            appends::external_events_need_only_a_session,
            appends::runner_events_need_a_lease_and_a_length,
            appends::only_external_appends_signal_changes,
            appends::blobs_are_stored_with_their_events,
            appends::long_texts_are_read_back_unchanged,
            appends::appending_nothing_changes_nothing,
            reads::positions_increase_in_every_tree,
            reads::tail_returns_the_tree_in_order_and_in_pages,
            reads::siblings_with_longer_ids_are_not_descendants,
            reads::external_events_return_session_and_position,
            reads::roots_are_the_newest_first,
            reads::reading_nothing_is_not_an_error,
            reads::totals_are_the_sum_of_rounds_and_of_open_branches,
            removals::remove_deletes_the_tree_and_its_own_blobs,
            removals::remove_keeps_detached_sessions,
            removals::positions_of_a_removed_tree_are_never_assigned_to_it_again,
            removals::verify_of_a_tree_whose_returned_child_has_no_log_fails,
            removals::edit_hashes_are_known_after_the_session_is_removed,
            leases::live_owner_keeps_its_lease,
            leases::dead_owner_is_replaced_at_once,
            leases::remote_owner_expires_after_thirty_seconds,
            leases::a_fenced_runner_stops,
            leases::released_lease_is_fenced,
            leases::epochs_always_increase,
            leases::a_lease_says_when_the_tree_last_ran,
            leases::lease_is_valid_for_its_own_tree_only,
            leases::a_removed_tree_fences_its_runner,
            leases::runner_is_the_live_owner_of_the_lease_of_that_tree,
            imports::restore_adds_missing_records_and_marks_the_tree,
            imports::restore_that_does_not_fit_writes_nothing,
        }
        $crate::store_laws! {
            @tests check_shared $new_store;
            follows::follower_under_64_writers_misses_nothing_and_sees_nothing_twice,
            follows::slow_follower_reads_the_rest_from_the_store,
            follows::follower_of_a_session_gets_only_its_own_tree,
            follows::restored_records_reach_followers,
        }
    };
}

/// Checks a law on a new store, in an async runtime of its own.
///
/// # Panics
///
/// If the store breaks the law.
pub fn check<S: Store, G>(
    new_store: impl AsyncFnOnce() -> (S, G),
    law: impl for<'a> AsyncFnOnce(&'a dyn Store),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an async runtime starts").block_on(async {
        let (store, guard) = new_store().await;
        law(&store).await;
        drop(store);
        drop(guard);
    });
}

/// Checks a law of a store that several tasks use, on two threads.
///
/// # Panics
///
/// If the store breaks the law.
pub fn check_shared<S: Store, G>(
    new_store: impl AsyncFnOnce() -> (S, G),
    law: impl AsyncFnOnce(Arc<dyn Store>),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("an async runtime starts").block_on(async {
        let (store, guard) = new_store().await;
        law(Arc::new(store)).await;
        drop(guard);
    });
}
