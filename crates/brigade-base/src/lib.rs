//! Interfaces that the parts of Brigade implement and use: [`Model`](model::Model) with the scripted model, and
//! [`Store`](store::Store) with the in-memory store, and what all parts with I/O share: clock, tasks, secrets,
//! processes and their sandbox.

pub mod clock;
pub mod event_stream;
pub mod fast_map;
mod follow;
pub mod jitter;
pub mod model;
pub mod pinned_files;
pub mod private_files;
pub mod process;
pub mod redactor;
pub mod sandbox;
mod secret;
pub mod store;
pub mod task;

pub use follow::Follow;
pub use secret::Secret;
