//! Front door of HTTP servers: access checks and limits that every request passes before a handler sees it.
//!
//! A server brings a `Router` and a [`Policy`]: the token, the allowed hosts and origins, and the limits on
//! connections, headers and bodies. [`Listener::serve`] serves the router behind them until it is stopped. The crate
//! knows no protocol above HTTP. It never prints, and it reads neither the environment nor the home directory.

mod checks;
mod connection_limits;
mod connections;
mod cors;
mod listener;
mod middleware;
mod policy;
mod token;

pub use checks::Rejected;
pub use cors::Cors;
pub use listener::{ListenError, Listener, Reach};
pub use policy::Policy;
pub use token::{Token, TokenError};
