//! Parts that every store needs, for stores in crates of their own. Available with the feature `store-kit`.
//!
//! The contract is that of [`Store`](super::Store). The parts keep the rules that do not depend on where the data is:
//!
//! * Appends. [`check_external`] refuses events that need a lease, [`LeaseRow::check`] refuses an outdated lease, and
//!   [`Expect::check`](super::Expect::check) refuses a conflict. All three come before the first write, and the last two
//!   are in the transaction of the append.
//! * Encoding. [`Encoded`] turns events into rows and stores long texts as blobs. [`lines`], [`decode`] and [`hydrate`]
//!   read them back. They distinguish damaged rows from rows of a newer version. A store keeps [`checksum`] with each
//!   row and compares it before it decodes the row.
//! * Leases. [`LeaseRow`] decides who may run a tree. A store never deletes a row, and writes
//!   [`LeaseRow::tombstone`] if it removes the tree.
//! * Followers. A store tells [`Followers`](super::Followers) of its commits, and of changes whose events it does not know.
//! * Usage. [`EndedRounds`] and [`OpenRound`] add up the usage of a tree.
//!
//! The laws in `store::testing` verify a store.

mod codec;
mod lease;
mod totals;

pub(super) use codec::cause;
pub use codec::{
    DecodeError, EXTERNAL, Encoded, LISTED, Row, check_external, check_version, checksum,
    checksum_with_position, decode, definitions, edit, flag, hydrate, lines,
};
pub use lease::{LeaseRow, ancestors};
pub use totals::{EndedRounds, OpenRound, Totals};
