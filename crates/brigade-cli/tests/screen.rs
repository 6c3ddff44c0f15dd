//! Tests of the command on a pseudo-terminal, whose output is parsed as a terminal does and compared as a screen.

mod chat;
mod chat_keys;
mod demo;
mod drawing;
mod ends;
mod eval;
mod init;
mod picture;
mod questions;
mod recording;
mod retries;
mod support;
mod suspend;
mod tree;
