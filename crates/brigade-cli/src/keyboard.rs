//! Typing at a terminal: keys and what they mean, the text that is typed, and the terminal that hands over each key.

pub(crate) mod editor;
mod fold;
pub(crate) mod keys;
mod raw;

pub(crate) use raw::RawTerminal;
