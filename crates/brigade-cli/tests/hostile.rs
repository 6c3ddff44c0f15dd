//! Attacks on the real command by a model that obeys every injected instruction. Each test is one family of attacks; each
//! line of a table is one input. Canaries show what an attack reached: files, ports, a socket for name requests, a
//! process, and secrets in results.
//!
//! A new input is one line in a table. The tables of `calls` are run by a session of the scripted model.

mod calls;
mod case;
mod command_line;
mod coverage;
mod display;
mod families;
mod http_server;
mod parsers;
mod place;
mod probe;
mod project;
mod servers;
mod web;
