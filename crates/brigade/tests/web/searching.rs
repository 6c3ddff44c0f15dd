//! Search engines, as documented by their vendors.

use brigade::Secret;
use brigade::Toolbox;
use brigade::tool::SearchEngine;
use brigade_testing::{AfterResponse, HttpResponse};
use serde_json::{Value, json};

use super::server::{Server, call, fetch_error, reply, searching, settings};

const KEY: &str = "key-that-nobody-sees";

fn engine(answer: Value) -> Server {
    Server::page("application/json", answer.to_string())
}

fn brave(server: &Server) -> SearchEngine {
    SearchEngine::brave(Secret::new(KEY)).unwrap().at(&server.url("/res/v1/web/search")).unwrap()
}

fn tavily(server: &Server) -> SearchEngine {
    SearchEngine::tavily(Secret::new(KEY)).unwrap().at(&server.url("/search")).unwrap()
}

fn search(engine: SearchEngine, arguments: Value) -> (bool, String) {
    let output = call(&searching(engine), &[], "web_search", arguments);
    assert!(!output.text.as_str().contains(KEY), "{}", output.text);
    (output.is_error(), output.text.to_string())
}

#[test]
fn brave_request_and_results() {
    let server = engine(json!({ "type": "search", "web": { "type": "search", "results": [
        { "title": "Rust &amp; tea", "url": "https://a.example/1", "description": "about <strong>rust</strong>\nand tea" },
        { "title": "Second", "url": "https://b.example/2", "description": "" },
        { "title": "not a page", "url": "javascript:alert(1)", "description": "x" },
    ] } }));
    let (failed, text) = search(brave(&server), json!({ "query": "rust tea?", "count": 3 }));
    let expected = "1. **Rust & tea**\n   https://a.example/1\n   about rust and tea\n2. **Second**\n   https://b.example/2\n";
    assert_eq!((failed, text.as_str()), (false, expected));
    let request = server.requests().remove(0);
    assert!(request.starts_with("GET /res/v1/web/search?q=rust+tea%3F&count=3 HTTP/1.1"), "{request}");
    assert!(request.contains(&format!("x-subscription-token: {KEY}\r\n")), "{request}");
    assert!(!request.lines().next().unwrap().contains(KEY));
    let (failed, text) = search(brave(&engine(json!({ "type": "search" }))), json!({ "query": "x" }));
    assert_eq!((failed, text.as_str()), (false, "(no results for `x`; try other words)\n"));
}

#[test]
fn tavily_request_and_results() {
    let results: Vec<Value> = (1..=12)
        .map(|n| json!({ "title": format!("t{n}"), "url": format!("https://a.example/{n}"), "content": "c", "score": 0.5 }))
        .collect();
    let server = engine(json!({ "query": "q", "results": results, "response_time": 1.2 }));
    let (failed, text) = search(tavily(&server), json!({ "query": "q", "count": 11 }));
    assert!(
        !failed
            && text.contains("10. **t10**\n    https://a.example/10\n    c\n11. ")
            && !text.contains("t12")
    );
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST /search HTTP/1.1"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), json!({ "query": "q", "max_results": 11 }));
}

#[test]
fn searxng_request_and_results() {
    let answer = json!({ "query": "q", "number_of_results": 0, "results": [
        { "title": "Vec<T>", "url": "http://a.example/?a=1&lt=2", "content": "c", "engine": "x" },
    ] });
    let server = engine(answer);
    for base in ["/", "/deep/", "/search"] {
        let (failed, text) =
            search(SearchEngine::searxng(&server.url(base)).unwrap(), json!({ "query": "a&b" }));
        assert_eq!((failed, text.as_str()), (false, "1. **Vec<T>**\n   http://a.example/?a=1&lt=2\n   c\n"));
    }
    let lines: Vec<String> =
        server.requests().iter().map(|text| text.lines().next().unwrap().to_owned()).collect();
    assert_eq!(
        lines,
        [
            "GET /search?q=a%26b&format=json HTTP/1.1",
            "GET /deep/search?q=a%26b&format=json HTTP/1.1",
            "GET /search?q=a%26b&format=json HTTP/1.1"
        ]
    );
}

#[test]
fn search_errors_hide_the_key() {
    let answering = |status: &'static str, body: &'static str| {
        Server::always(reply(status, "Content-Type: text/html\r\n", body))
    };
    let asked = json!({ "query": "secret words" });
    for (status, expected) in
        [("401 No", "rejected the API key"), ("429 Slow", "Wait before"), ("500 Oh", "The server failed")]
    {
        let server = answering(status, KEY);
        for engine in [brave(&server), tavily(&server)] {
            let (failed, text) = search(engine, asked.clone());
            assert!(failed && text.contains(expected) && text.contains("127.0.0.1"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
    let (failed, text) =
        search(SearchEngine::searxng(&answering("403 No", "").url("/")).unwrap(), asked.clone());
    assert!(failed && text.contains("search.formats"), "{text}");
    let (failed, text) = search(tavily(&answering("200 OK", "<html>")), asked.clone());
    assert!(failed && text.contains("did not return a list of results"), "{text}");
    let (failed, text) = search(tavily(&Server::redirect("http://127.0.0.1:1/")), asked.clone());
    assert!(failed && text.contains("302"), "{text}");
    let silent = Server::always(HttpResponse::nothing().then(AfterResponse::Stall));
    let (failed, text) = search(brave(&silent), asked.clone());
    assert!(failed && text.contains("did not respond within"), "{text}");
    let broken = SearchEngine::brave(Secret::new("a\nb")).unwrap().at(&silent.url("/")).unwrap();
    assert!(search(broken, asked).1.contains("rejected the API key"));
    for query in [String::new(), " ".to_owned(), "x".repeat(401)] {
        assert!(search(brave(&silent), json!({ "query": query })).0);
    }
}

#[test]
fn search_keys_are_not_printed() {
    let search = SearchEngine::brave(Secret::new(KEY)).unwrap();
    let shown = format!("{search:?} {:?}", searching(search.clone()));
    assert!(!shown.contains(KEY) && shown.contains("Secret"), "{shown}");
    let error = SearchEngine::searxng("https://user:hunter2@searx.example").unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    assert!(SearchEngine::searxng("ftp://x").is_err() && SearchEngine::searxng("searx").is_err());
}

/// The user chooses the URL of an engine; a model chooses what it fetches.
#[test]
fn web_search_needs_a_configured_engine() {
    assert!(Toolbox::new().with_web(settings()).get("web_search").is_none());
    let server = engine(json!({ "results": [] }));
    let settings = searching(SearchEngine::searxng(&server.url("/")).unwrap());
    assert!(Toolbox::new().with_web(settings.clone()).get("web_search").is_some());
    assert!(fetch_error(&settings, "http://127.0.0.1/").contains("web.allow_loopback"));
}
