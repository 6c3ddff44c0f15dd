//! Brigade as a server of the Model Context Protocol.
//!
//! [`http`] carries any server over streamable HTTP, behind a token and checks of where a request comes from.
//! The library never prints and reads neither the environment nor the home folder.

pub mod http;
