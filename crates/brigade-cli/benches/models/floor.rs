//! A bare client that makes the same requests, and reads the same streams to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Client;

use crate::Work;

/// The connections of a pool.
const POOL: usize = 64;

pub(crate) fn run(base: &str, work: Work) {
    crate::threads().block_on(async {
        let client = Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(POOL)
            .tls_certs_only([])
            .build()
            .unwrap();
        let url = format!("{base}/v1/chat/completions");
        match work {
            Work::Fan(children) => fan(&client, base, &url, children, POOL).await,
            Work::Wide(children) => fan(&client, base, &url, children, children).await,
            Work::Stream(tokens) => {
                let body = format!(
                    r#"{{"messages":[{{"role":"user","content":"STREAM {tokens}"}}],"stream":true}}"#
                );
                // On a worker: the thread that blocks would be woken for each chunk.
                tokio::spawn(async move { ask(&client, &url, body.into()).await }).await.unwrap();
            }
            Work::Prompt => ask(&client, &url, br#"{"messages":[],"stream":true}"#.to_vec()).await,
        }
    });
}

async fn fan(client: &Client, base: &str, url: &str, children: usize, workers: usize) {
    // What the engine sent is not part of the work.
    let sample = |which: &str| {
        let url = format!("{}/0/{which}", base.rsplit_once('/').unwrap().0);
        async move { client.get(url).send().await.unwrap().bytes().await.unwrap().to_vec() }
    };
    let (child, lead) = (Arc::new(sample("child").await), sample("lead").await);
    let (client, url) = (client.clone(), url.to_owned());
    let all = async move {
        ask(&client, &url, format!(r#"{{"content":"FANOUT {children}"}}"#).into()).await;
        let next = Arc::new(AtomicUsize::new(0));
        let tasks = (0..workers).map(|_| {
            let (client, url, child, next) = (client.clone(), url.clone(), child.clone(), next.clone());
            tokio::spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < children {
                    ask(&client, &url, child.to_vec()).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        ask(&client, &url, lead).await;
    };
    tokio::spawn(all).await.unwrap();
}

async fn ask(client: &Client, url: &str, body: Vec<u8>) {
    let post = client.post(url).header("Content-Type", "application/json").body(body);
    let mut response = post.send().await.unwrap();
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes += chunk.len();
    }
    assert!(response.status().is_success() && bytes > 100);
}
