//! Runs the examples. `quick_start.rs` runs in the tests of the models, because it needs a server.

use brigade_testing::{HttpResponse, HttpServer};

#[path = "../../examples/approvals.rs"]
mod approvals;
#[expect(dead_code, reason = "the test passes the webhook itself")]
#[path = "../../examples/chat_messages.rs"]
mod chat_messages;
#[path = "../../examples/custom_tool.rs"]
mod custom_tool;
#[path = "../../examples/embedded.rs"]
mod embedded;
#[path = "../../examples/lifecycle.rs"]
mod lifecycle;

#[test]
fn examples_run() {
    approvals::main().unwrap();
    custom_tool::main().unwrap();
    embedded::main().unwrap();
    lifecycle::main().unwrap();
}

#[tokio::test]
async fn chat_example_posts_the_messages_of_all_agents_in_order() {
    for status in ["200 OK", "503 Service Unavailable"] {
        let webhook = HttpServer::always(HttpResponse::new(status, ""));
        let result = chat_messages::run_with_chat(&webhook.url("/hooks/1")).await.unwrap();
        assert_eq!(result.text(), "Done.");
        let posted: Vec<String> =
            webhook.requests().into_iter().map(|request| String::from_utf8(request.body).unwrap()).collect();
        assert_eq!(
            posted,
            [r#"{"text":"[lead] I start with the tests."}"#, r#"{"text":"[Tester] Two of 40 tests fail."}"#],
            "{status}"
        );
    }
}
