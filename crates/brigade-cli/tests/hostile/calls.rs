//! Calls of the model, by what they attack.

mod files;
mod network;
mod rules;
mod shell;

use crate::hostile::case::Case;

/// All tables.
pub(crate) const TABLES: [&[Case]; 4] = [files::CASES, network::CASES, rules::CASES, shell::CASES];

/// The calls of one family of attacks.
pub(crate) fn of_family(family: u8) -> Vec<Case> {
    TABLES.into_iter().flatten().filter(|case| case.family == family).copied().collect()
}
