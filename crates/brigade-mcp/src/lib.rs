//! Brigade as a server of the Model Context Protocol.
//!
//! [`Server`] offers the faces as tools. A call of one is a session of its own at the top of a tree: it is on record, has
//! a budget and a depth, and can be resumed. [`stdio`] and [`http`] carry it; [`http`] carries any other server as well.
//! The library never prints and reads neither the environment nor the home folder.

mod approvals;
mod call;
pub mod http;
mod progress;
mod results;
mod server;
mod sessions;
pub mod stdio;
mod task;
mod text;
mod timestamp;
mod visibility;

pub use server::{AGENT, Server, SetupError};
