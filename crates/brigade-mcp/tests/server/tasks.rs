//! Calls as tasks, for clients that know them.

use std::time::Duration;

use brigade::core::Status;
use rmcp::model::{CallToolResponse, CancelTaskParams, GetTaskParams, TaskPayload};
use serde_json::json;

use crate::support::{Client, FOUR, HANGS, LIMIT, Stage, delegate, from, words};

type Connected = rmcp::service::RunningService<rmcp::RoleClient, Client>;

async fn begin(client: &Connected) -> String {
    let response = client.call_tool_once(delegate()).await.unwrap();
    let CallToolResponse::Task(created) = response else { panic!("{response:?}") };
    created.task.task_id
}

async fn over(client: &Connected, id: &str) -> TaskPayload {
    let poll = async {
        loop {
            let got = client.get_task(GetTaskParams::new(id)).await.unwrap().task;
            if got.status().is_terminal() {
                return got.payload;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, poll).await.unwrap()
}

fn knowing() -> Client {
    Client { knows_tasks: true, ..Client::default() }
}

#[tokio::test]
async fn a_task_is_answered_at_once_and_asked_for_later() {
    let stage = Stage::new(FOUR);
    let client = stage.newest_client(knowing()).await;
    let id = begin(&client).await;
    let TaskPayload::Completed { result } = over(&client, &id).await else { panic!("not completed") };
    assert_eq!(result["content"][0]["text"], "[Child]: Four.");
    assert_eq!(result["_meta"]["brigade/session"], id.as_str());
}

#[tokio::test]
async fn a_task_can_be_cancelled() {
    let stage = Stage::new(HANGS);
    let client = stage.newest_client(knowing()).await;
    let id = begin(&client).await;
    let (root, child) = stage.working().await;
    assert_eq!(root.as_str(), id);
    client.cancel_task(CancelTaskParams::new(id.as_str())).await.unwrap();
    assert_eq!(over(&client, &id).await, TaskPayload::Cancelled);
    assert!(matches!(stage.end_of(&child).await, Status::Cancelled { .. }));
    assert!(client.get_task(GetTaskParams::new("nonsense")).await.is_err());
}

#[tokio::test]
async fn a_session_of_an_older_version_has_no_tasks() {
    let stage = Stage::new(FOUR);
    // It says that it knows them all the same.
    let client = stage.client(knowing()).await;
    let response = client.call_tool_once(delegate()).await.unwrap();
    let CallToolResponse::Complete(result) = response else { panic!("{response:?}") };
    assert_eq!(words(&result), "[Child]: Four.");
}

#[tokio::test]
async fn an_agent_cannot_look_at_tasks_of_others() {
    let stage = Stage::new(HANGS);
    let client = stage.newest_client(knowing()).await;
    let id = begin(&client).await;
    let meta = from(json!({ "lineage": ["far"] }), delegate()).meta;
    let mut get = GetTaskParams::new(id.as_str());
    get.meta = meta.clone();
    assert!(client.get_task(get).await.is_err());
    let mut cancel = CancelTaskParams::new(id.as_str());
    cancel.meta = meta;
    assert!(client.cancel_task(cancel).await.is_err());
    assert_eq!(
        client.get_task(GetTaskParams::new(id.as_str())).await.unwrap().task.payload,
        TaskPayload::Working
    );
}
