//! Positions of records in a store.

use serde::{Deserialize, Serialize};

/// Position of a record in a store. It is opaque: only the store that assigned it knows which of two positions of a
/// tree comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(u64);

impl Cursor {
    /// Position before all records.
    pub const START: Cursor = Cursor(0);

    /// Creates the cursor with a number that is not 0. Only for stores, which alone assign positions.
    pub const fn new(number: u64) -> Cursor {
        Cursor(number)
    }

    /// Returns the number that the store assigned. Only for that store.
    pub const fn number(self) -> u64 {
        self.0
    }
}
