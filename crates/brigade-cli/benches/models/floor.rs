//! A bare client that makes the same requests, and reads the same streams to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Client;

use crate::Work;

/// The connections of a pool.
const POOL_CONNECTIONS: usize = 64;

/// What the engine sent last.
#[derive(Default)]
pub(crate) struct RecordedRequests {
    child: Vec<u8>,
    lead: Vec<u8>,
    stream: Vec<u8>,
}

impl RecordedRequests {
    /// Fetches it, unless the work is one prompt, whose whole process is timed.
    pub(crate) fn fetch(base: &str, work: Work) -> RecordedRequests {
        if matches!(work, Work::Prompt) {
            return RecordedRequests::default();
        }
        let server = base.rsplit_once('/').unwrap().0;
        let get = async |which: &str| {
            let response = client().get(format!("{server}/0/{which}")).send().await.unwrap();
            response.bytes().await.unwrap().to_vec()
        };
        crate::threads().block_on(async {
            RecordedRequests {
                child: get("child").await,
                lead: get("lead").await,
                stream: get("stream").await,
            }
        })
    }
}

pub(crate) fn run(base: &str, work: Work, sent: RecordedRequests) {
    crate::threads().block_on(async {
        let (client, url) = (client(), format!("{base}/v1/chat/completions"));
        match work {
            Work::Fan(children) => fan(client, url, children, POOL_CONNECTIONS, sent).await,
            Work::Wide(children) => fan(client, url, children, children, sent).await,
            // On a worker: the thread that blocks would be woken for each chunk.
            Work::Stream(_) => {
                tokio::spawn(async move { ask(&client, &url, sent.stream).await }).await.unwrap();
            }
            Work::Prompt => ask(&client, &url, br#"{"messages":[],"stream":true}"#.to_vec()).await,
        }
    });
}

fn client() -> Client {
    // Clients of `reqwest` panic without a crypto provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().tcp_nodelay(true).pool_max_idle_per_host(POOL_CONNECTIONS);
    client.tls_certs_only([]).build().unwrap()
}

async fn fan(client: Client, url: String, children: usize, workers: usize, sent: RecordedRequests) {
    let all = async move {
        ask(&client, &url, format!(r#"{{"content":"FANOUT {children}"}}"#).into()).await;
        let (next, child) = (Arc::new(AtomicUsize::new(0)), Arc::new(sent.child));
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
        ask(&client, &url, sent.lead).await;
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
