//! Sessions that are started by another Brigade.

use brigade::Store;
use brigade_core::permission::Mode;
use brigade_core::{Event, Limit};
use brigade_testing::Script;
use serde_json::json;

use crate::agent::support::TestEnv;

fn meta_at_depth(depth: u32) -> serde_json::Value {
    json!({"brigade/hop": {"lineage": ["abc"], "depth": depth, "tokens": 100_000}})
}

#[tokio::test]
async fn remote_context_depth_and_budget_apply() {
    let env = TestEnv::new(Script::new().reply("x")).with_max_depth(3);
    let mut client = env.client().await;
    let new = json!({"cwd": env.path(), "mcpServers": [], "_meta": meta_at_depth(3)});
    let opened = client.call("session/new", new).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "go").await.unwrap();
    let records = env.store.read(&session.parse().unwrap(), 0).await.unwrap();
    let Event::Started { depth, delegation, grant, .. } = &records[0].event else { panic!() };
    assert_eq!((*depth, delegation.remote_context.as_ref().unwrap().lineage.len()), (3, 1));
    assert_eq!(grant.budget.tokens, brigade_core::Limit::AtMost(100_000));
    // A later prompt from a greater depth cannot resume it.
    let later =
        json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "_meta": meta_at_depth(7)});
    assert_eq!(client.call("session/prompt", later).await.unwrap_err()["code"], -32600);
}

#[tokio::test]
async fn session_remote_context_limits_every_round() {
    let env = TestEnv::new(Script::new().reply("x")).in_mode(Mode::Auto);
    let mut client = env.client().await;
    let end = 4_000_000_000_000_u64;
    let remote_context = json!({"brigade/hop": {"depth": 3, "deepest": 7, "tokens": 100_000, "deadline": end, "mode": "plan"}});
    let new = json!({"cwd": env.path(), "mcpServers": [], "_meta": remote_context});
    let opened = client.call("session/new", new).await.unwrap();
    assert_eq!(opened["modes"]["currentModeId"], "plan");
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "go").await.unwrap();
    let freer = json!({"sessionId": session, "modeId": "auto"});
    assert_eq!(client.call("session/set_mode", freer).await.unwrap_err()["code"], -32602);
    client.prompt(&session, "go on").await.unwrap();
    let rounds = env.rounds(&session).await;
    assert_eq!(rounds.len(), 2);
    for (authority, grant) in &rounds {
        assert_eq!((authority.permissions.mode, authority.max_depth), (Mode::Plan, 7));
        assert_eq!(grant.deadline, Limit::AtMost(end));
    }
    let tokens: Vec<u64> = rounds.iter().map(|(_, grant)| grant.budget.tokens.number()).collect();
    // Tokens that the first prompt used are not available to the second.
    assert!(tokens[0] == 100_000 && (1..100_000).contains(&tokens[1]), "{tokens:?}");
}

#[tokio::test]
async fn prompt_remote_context_limits_its_round_and_later_mode_and_depth() {
    let env = TestEnv::new(Script::new().reply("x")).in_mode(Mode::Auto);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let prompt = |remote_context| {
        let meta = json!({"brigade/hop": remote_context});
        json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "_meta": meta})
    };
    let remote_context = json!({"depth": 3, "tokens": 100_000, "mode": "edit"});
    client.call("session/prompt", prompt(remote_context)).await.unwrap();
    client.call("session/set_mode", json!({"sessionId": session, "modeId": "auto"})).await.unwrap();
    client.prompt(&session, "go on").await.unwrap();
    let id = session.parse().unwrap();
    let records = env.store.read(&id, 0).await.unwrap().len();
    let shallow = client.call("session/prompt", prompt(json!({"depth": 3, "deepest": 2}))).await.unwrap_err();
    assert!(shallow["message"].as_str().unwrap().contains("maximum depth (2)"), "{shallow}");
    assert_eq!(env.store.read(&id, 0).await.unwrap().len(), records, "a refused message is not recorded");
    let remote_context = json!({"depth": 3, "deepest": 4, "tokens": 50_000, "mode": "plan"});
    client.call("session/prompt", prompt(remote_context)).await.unwrap();
    let rounds = env.rounds(&session).await;
    let modes: Vec<Mode> = rounds.iter().map(|(authority, _)| authority.permissions.mode).collect();
    assert_eq!(modes, [Mode::Edit, Mode::Edit, Mode::Plan]);
    let max_depth: Vec<u32> = rounds.iter().map(|(authority, _)| authority.max_depth).collect();
    assert_eq!(max_depth, [10, 10, 4]);
    let usual = env.runtime().settings().budget.tokens;
    let tokens: Vec<Limit> = rounds.iter().map(|(_, grant)| grant.budget.tokens).collect();
    assert_eq!(tokens, [Limit::AtMost(100_000), usual, Limit::AtMost(50_000)]);
}

#[tokio::test]
async fn remote_context_too_deep_or_malformed_stores_nothing() {
    let env = TestEnv::new(Script::new().reply("x")).with_max_depth(3);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let prompt =
        |meta| json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "_meta": meta});
    let deep = client.call("session/prompt", prompt(meta_at_depth(4))).await.unwrap_err();
    assert!(deep["message"].as_str().unwrap().contains("depth"), "{deep}");
    let broken = client.call("session/prompt", prompt(json!({"brigade/hop": 7}))).await.unwrap_err();
    assert_eq!(broken["code"], -32602);
    let broken = json!({"cwd": env.path(), "mcpServers": [], "_meta": {"brigade/hop": {"depth": -1}}});
    assert_eq!(client.call("session/new", broken).await.unwrap_err()["code"], -32602);
    assert!(env.store.roots().await.unwrap().is_empty());
    assert_eq!(client.prompt(&session, "x").await.unwrap()["stopReason"], "end_turn");
}
