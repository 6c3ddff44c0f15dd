//! A server for the MCP conformance suite, with the tools, resources and prompts that the suite expects. It
//! uses the same HTTP layer as `brigade mcp`. It prints its address and exits when its input ends.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "support of tests")]
// Sampling, roots and logging are deprecated in the newest version of the protocol, but part of the older
// ones.
#![expect(deprecated, reason = "the suite asks for older versions too")]

mod catalog;
mod fixture;
mod input_required;
mod jobs;
mod legacy;

use brigade_http::{Listener, Policy, Reach};
use brigade_mcp::http::{PATH, serve};
use tokio::io::AsyncReadExt;

use fixture::Fixture;

#[tokio::main]
async fn main() {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Reach::Loopback).await.unwrap();
    println!("http://{}{PATH}", listener.address());
    let fixture = Fixture::default();
    let stop = async {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    serve(listener, move || fixture.clone(), Policy::without_token(), stop).await;
}
