//! Keyboard input: key bindings, the line editor, and raw terminal mode.

pub(crate) mod editor;
mod fold;
pub(crate) mod keys;
mod raw;

pub(crate) use raw::RawTerminal;
