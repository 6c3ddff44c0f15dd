//! Work that another Brigade hands on.

use brigade::Store;
use brigade_core::Event;
use serde_json::json;

use crate::support::World;

fn hop(depth: u32) -> serde_json::Value {
    json!({"brigade/hop": {"lineage": ["abc"], "depth": depth, "tokens": 100_000}})
}

#[tokio::test]
async fn depth_and_budget_of_a_hop_count() {
    let world = World::new("[[reply]]\ntext = 'x'\n").no_deeper_than(3);
    let mut client = world.client().await;
    let new = json!({"cwd": world.path(), "mcpServers": [], "_meta": hop(2)});
    let opened = client.call("session/new", new).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "go").await.unwrap();
    let records = world.store.read(&session.parse().unwrap(), 0).await.unwrap();
    let Event::Started { depth, delegation, grant, .. } = &records[0].event else { panic!() };
    assert_eq!((*depth, delegation.hop.as_ref().unwrap().lineage.len()), (3, 1));
    assert_eq!(grant.budget.tokens, brigade_core::Limit::AtMost(100_000));
    // A later prompt from further down cannot go on with it.
    let later = json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "_meta": hop(7)});
    assert_eq!(client.call("session/prompt", later).await.unwrap_err()["code"], -32600);
}

#[tokio::test]
async fn a_hop_that_is_too_deep_or_broken_is_refused_and_leaves_nothing() {
    let world = World::new("[[reply]]\ntext = 'x'\n").no_deeper_than(3);
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let prompt =
        |meta| json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "_meta": meta});
    let deep = client.call("session/prompt", prompt(hop(3))).await.unwrap_err();
    assert!(deep["message"].as_str().unwrap().contains("depth"), "{deep}");
    let broken = client.call("session/prompt", prompt(json!({"brigade/hop": 7}))).await.unwrap_err();
    assert_eq!(broken["code"], -32602);
    let broken = json!({"cwd": world.path(), "mcpServers": [], "_meta": {"brigade/hop": {"depth": -1}}});
    assert_eq!(client.call("session/new", broken).await.unwrap_err()["code"], -32602);
    assert!(world.store.roots().await.unwrap().is_empty());
    assert_eq!(client.prompt(&session, "x").await.unwrap()["stopReason"], "end_turn");
}
