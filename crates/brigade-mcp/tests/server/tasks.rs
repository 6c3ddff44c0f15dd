//! Calls as tasks, for clients that support them.

use std::time::Duration;

use brigade::core::Status;
use rmcp::model::{CallToolResponse, CancelTaskParams, GetTaskParams, TaskPayload};
use serde_json::json;

use crate::support::{Client, TEST_TIMEOUT, TestServer, delegate, four, from, hangs, result_text};

type Connected = rmcp::service::RunningService<rmcp::RoleClient, Client>;

async fn begin(client: &Connected) -> String {
    let response = client.call_tool_once(delegate()).await.unwrap();
    let CallToolResponse::Task(created) = response else { panic!("{response:?}") };
    created.task.task_id
}

async fn wait_until_done(client: &Connected, id: &str) -> TaskPayload {
    let poll = async {
        loop {
            let got = client.get_task(GetTaskParams::new(id)).await.unwrap().task;
            if got.status().is_terminal() {
                return got.payload;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.unwrap()
}

fn task_client() -> Client {
    Client { supports_tasks: true, ..Client::default() }
}

#[tokio::test]
async fn task_is_created_at_once_and_polled_later() {
    let test = TestServer::new(four());
    let client = test.stateless_client(task_client()).await;
    let id = begin(&client).await;
    let TaskPayload::Completed { result } = wait_until_done(&client, &id).await else {
        panic!("not completed")
    };
    assert_eq!(result["content"][0]["text"], "[Child]: Four.");
    assert_eq!(result["_meta"]["brigade/session"], id.as_str());
}

#[tokio::test]
async fn task_can_be_cancelled() {
    let test = TestServer::new(hangs());
    let client = test.stateless_client(task_client()).await;
    let id = begin(&client).await;
    let (root, child) = test.running_child().await;
    assert_eq!(root.as_str(), id);
    client.cancel_task(CancelTaskParams::new(id.as_str())).await.unwrap();
    assert_eq!(wait_until_done(&client, &id).await, TaskPayload::Cancelled);
    assert!(matches!(test.status_of(&child).await, Status::Cancelled { .. }));
    assert!(client.get_task(GetTaskParams::new("nonsense")).await.is_err());
}

#[tokio::test]
async fn older_protocol_version_has_no_tasks() {
    let test = TestServer::new(four());
    // The client announces tasks nevertheless.
    let client = test.client(task_client()).await;
    let response = client.call_tool_once(delegate()).await.unwrap();
    let CallToolResponse::Complete(result) = response else { panic!("{response:?}") };
    assert_eq!(result_text(&result), "[Child]: Four.");
}

#[tokio::test]
async fn agent_cannot_see_tasks_of_others() {
    let test = TestServer::new(hangs());
    let client = test.stateless_client(task_client()).await;
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
