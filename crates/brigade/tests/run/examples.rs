//! Runs the examples.

#[path = "../../examples/custom_tool.rs"]
mod custom_tool;
#[path = "../../examples/embedded.rs"]
mod embedded;
#[path = "../../examples/lifecycle.rs"]
mod lifecycle;

#[test]
fn examples_run() {
    custom_tool::main().unwrap();
    embedded::main().unwrap();
    lifecycle::main().unwrap();
}
