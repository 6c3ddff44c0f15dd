//! Price and limits of models, and the model lists of providers.

use std::time::Duration;

use brigade::Model;
use brigade::model::anthropic::Anthropic;
use brigade::model::openai::OpenAi;
use brigade::model::{
    Api, Endpoint, ListError, Locality, ModelInfo, ModelOverrides, PriceList, list, list_all,
};
use brigade_testing::{AfterResponse, HttpResponse};

use super::server::{KEY, Server, reply};

fn endpoint(name: &str, base_url: &str) -> Endpoint {
    Endpoint::new(name, base_url, None).unwrap()
}

#[test]
fn adapters_know_prices_at_official_hosts() {
    let anthropic = Anthropic::new(endpoint("anthropic", "https://api.anthropic.com"));
    let info = anthropic.model_info("claude-opus-4-5-20251101");
    let listed = PriceList::built_in().model_info("anthropic/claude-opus-4-5");
    assert_eq!(info, ModelInfo { framing: info.framing, ..listed });
    assert!(info.price.is_some() && info.window.is_some() && info.max_output.is_some());
    assert_eq!(anthropic.model_info("claude-of-tomorrow").price, None);
    let openai = OpenAi::new(endpoint("work", "https://api.openai.com/v1"));
    assert_eq!(openai.model_info("gpt-4o").price, PriceList::built_in().model_info("openai/gpt-4o").price);
}

#[test]
fn proxy_price_is_unknown_until_overridden() {
    let proxy = || endpoint("openai", "https://proxy.invalid/v1");
    assert_eq!(OpenAi::new(proxy()).model_info("gpt-4o").price, None);
    let overrides = ModelOverrides { input: Some(7), output: Some(8), ..ModelOverrides::default() };
    let prices = PriceList::built_in().with("openai/gpt-4o", overrides);
    let info = OpenAi::new(proxy().with_prices(prices)).model_info("gpt-4o");
    assert_eq!(info.price.map(|price| (price.input, price.output)), Some((7, 8)));
}

#[test]
fn local_models_are_free_until_overridden() {
    let here = || endpoint("openai", "http://localhost:8000/v1");
    assert_eq!(OpenAi::new(here()).model_info("gpt-4o").price.map(|price| price.output), Some(0));
    let overrides = ModelOverrides { input: Some(7), output: Some(8), ..ModelOverrides::default() };
    let info = OpenAi::new(here().with_prices(PriceList::default().with("openai/gpt-4o", overrides)))
        .model_info("gpt-4o");
    assert_eq!(info.price.map(|price| price.output), Some(8));
    assert_eq!(Locality::of("a", "http://[::1]/v1"), Ok(Locality::Local));
    assert_eq!(Locality::of("a", "http://localhost.example.com/v1"), Ok(Locality::Remote));
    assert!(Locality::of("a", "nowhere").is_err());
}

#[tokio::test]
async fn gemini_lists_with_its_own_header() {
    let server =
        Server::failing("200 OK", "", r#"{"models":[{"name":"models/gemini-x","inputTokenLimit":9}]}"#);
    let listed = list(&server.endpoint("/v1beta"), Api::Gemini).await.unwrap();
    assert_eq!(
        listed.iter().map(|listed| (listed.name.as_str(), listed.window)).collect::<Vec<_>>(),
        [("gemini-x", Some(9))]
    );
    let asked = &server.requests()[0];
    assert!(asked.starts_with("GET /v1beta/models?pageSize=1000 "), "{asked}");
    assert!(asked.contains(&format!("x-goog-api-key: {KEY}")), "{asked}");
}

#[tokio::test]
async fn list_all_returns_results_in_input_order() {
    let good = Server::failing("200 OK", "", r#"{"data":[{"id":"a"}]}"#);
    let denied =
        Server::failing("401 Unauthorized", "", r#"{"error":{"message":"no: sk-planted-0123456789abcdef"}}"#);
    let nobody = Endpoint::new("nobody", "http://127.0.0.1:1/v1", None).unwrap();
    let asked =
        [(denied.endpoint("/v1"), Api::OpenAi), (nobody, Api::OpenAi), (good.endpoint("/v1"), Api::OpenAi)];
    let answers = list_all(&asked).await;
    let cause = answers[0].as_ref().unwrap_err().to_string();
    assert!(matches!(answers[0], Err(ListError::Failed(_))) && cause.contains("no: (key)"), "{cause}");
    assert!(matches!(answers[1], Err(ListError::Unreachable(_))));
    assert_eq!(answers[2].as_ref().unwrap().len(), 1);
}

#[tokio::test]
async fn endless_model_list_is_refused() {
    let server = Server::start(|_| {
        let blanks = AfterResponse::Repeat { bytes: vec![b' '; 65536], pause: Duration::ZERO };
        HttpResponse::raw("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[").then(blanks)
    });
    let cause = list(&server.endpoint("/v1"), Api::OpenAi).await.unwrap_err().to_string();
    assert!(cause.contains("larger than"), "{cause}");
}

#[tokio::test]
async fn slow_model_list_times_out() {
    let server = Server::start(|_| reply("200 OK", "", "{}").truncated(30).then(AfterResponse::Stall));
    let endpoint = server.endpoint("/v1").with_total_timeout(Duration::from_millis(200));
    let cause = list(&endpoint, Api::OpenAi).await.unwrap_err().to_string();
    assert!(cause.contains("took longer than 0.2 s"), "{cause}");
}
