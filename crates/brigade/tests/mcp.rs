//! Tests of MCP tools, against well-behaved and misbehaving servers. The guards and the servers are this test
//! binary.

mod authority;
mod fixture;
mod hostile;
mod http;
mod oauth;
mod sharing;
mod support;
mod tools;
