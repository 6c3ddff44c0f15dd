//! Servers that ask for a login.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use brigade::Secret;
use brigade::mcp::login::{Attempt, Client, Login, Who, logout};
use brigade::mcp::{Address, Definition, Servers, Way};
use brigade::model::Proxies;

use super::authority::{Authority, Manners, browse, parameter};
use super::world::World;

const HOW: &str = "type: login";

fn address(world: &World, authority: &Authority) -> Address {
    let login =
        Login { file: Some(world.root().join("logins/s.json")), how: HOW.to_owned(), ..Login::default() };
    Address { url: Secret::new(authority.url()), headers: Vec::new(), login, proxies: Proxies::default() }
}

async fn start(address: &Address) -> Servers {
    let way = Way::Http(address.clone());
    let time = Duration::from_secs(20);
    Servers::start(vec![Definition { name: "s".to_owned(), way, call_time: time, start_time: time }]).await
}

/// Logs in with a browser that goes where it is led.
async fn log_in(address: &Address) -> Result<String, String> {
    let attempt = Attempt::begin(address).await.map_err(|error| error.to_string())?;
    let url = attempt.url().to_owned();
    let browser = tokio::task::spawn_blocking(move || browse(&url));
    attempt.finish().await.map_err(|error| error.to_string())?;
    Ok(browser.await.unwrap())
}

async fn used(world: &World, address: &Address) -> String {
    let servers = start(address).await;
    assert_eq!(servers.problems(), []);
    world.ok(&servers, "mcp__s__echo").await
}

#[tokio::test]
async fn a_person_logs_in_once_and_the_server_is_used() {
    let (world, authority) = (World::new(), Authority::start(Manners::Good));
    let address = address(&world, &authority);
    let servers = start(&address).await;
    assert_eq!(servers.problems()[0].what, "it asks you to log in (OAuth); type: login");
    let page = log_in(&address).await.unwrap();
    assert!(page.contains("You are logged in"), "{page}");
    assert_eq!(used(&world, &address).await, "with read");
    assert_eq!(used(&world, &address).await, "with read");
    assert_eq!(authority.grants(), ["authorization_code"]);
    let file = address.login.file.as_ref().unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(logout(&address).await.unwrap());
    assert!(!logout(&address).await.unwrap());
    assert_eq!(start(&address).await.problems().len(), 1);
}

#[tokio::test]
async fn a_login_is_renewed_in_silence_and_asked_for_anew_where_that_fails() {
    let (world, authority) = (World::new(), Authority::start(Manners::Hurries));
    let address = address(&world, &authority);
    log_in(&address).await.unwrap();
    let servers = start(&address).await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "with read");
    assert!(authority.grants().contains(&"refresh_token".to_owned()), "{:?}", authority.grants());
    // The server forgets what it gave: the next call renews it.
    authority.revoke();
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "with read");
    authority.books.lock().unwrap().is_strict = true;
    authority.revoke();
    let text = world.error(&servers, "mcp__s__echo").await;
    assert!(
        text.contains("it asks you to log in (OAuth); type: login") && !text.contains("sesame"),
        "{text}"
    );
}

#[tokio::test]
async fn a_login_that_does_not_reach_far_enough_is_widened_by_the_next() {
    let (world, authority) = (World::new(), Authority::start(Manners::Good));
    let address = address(&world, &authority);
    log_in(&address).await.unwrap();
    let text = world.error(&start(&address).await, "mcp__s__erase").await;
    assert!(text.contains("your login does not reach this far (admin); type: login"), "{text}");
    log_in(&address).await.unwrap();
    assert_eq!(world.ok(&start(&address).await, "mcp__s__erase").await, "with read admin");
}

#[tokio::test]
async fn a_refusal_is_said() {
    let (world, authority) = (World::new(), Authority::start(Manners::Refuses));
    let address = address(&world, &authority);
    assert_eq!(log_in(&address).await.unwrap_err(), "the login was refused: not today");
    assert!(!address.login.file.as_ref().unwrap().exists());
}

#[tokio::test]
async fn an_answer_to_another_question_is_no_login() {
    let (world, authority) = (World::new(), Authority::start(Manners::Good));
    let address = address(&world, &authority);
    let attempt = Attempt::begin(&address).await.unwrap();
    let (url, place) = (attempt.url().to_owned(), parameter(attempt.url(), "redirect_uri").unwrap());
    let browser = tokio::task::spawn_blocking(move || {
        let strange = browse(&format!("{place}?code=code-of-another&state=made-up"));
        (strange, browse(&url))
    });
    attempt.finish().await.unwrap();
    let (strange, own) = browser.await.unwrap();
    assert!(strange.contains("404") && strange.contains("not the login that was begun"), "{strange}");
    assert!(own.contains("You are logged in"), "{own}");
    assert_eq!(authority.grants(), ["authorization_code"]);
}

#[tokio::test]
async fn a_browser_that_says_nothing_keeps_nobody_waiting() {
    let (world, authority) = (World::new(), Authority::start(Manners::Good));
    let attempt = Attempt::begin(&address(&world, &authority)).await.unwrap();
    let (url, place) = (attempt.url().to_owned(), parameter(attempt.url(), "redirect_uri").unwrap());
    let host = place.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let silent = std::net::TcpStream::connect(host).unwrap();
    let browser = tokio::task::spawn_blocking(move || browse(&url));
    // The silent one would be given up after ten seconds.
    tokio::time::timeout(Duration::from_secs(8), attempt.finish()).await.unwrap().unwrap();
    drop(silent);
    assert!(browser.await.unwrap().contains("You are logged in"));
}

#[tokio::test]
async fn a_client_that_is_not_known_there_is_said_to_be_needed() {
    let (world, authority) = (World::new(), Authority::start(Manners::KnowsNobody));
    let mut address = address(&world, &authority);
    let why = log_in(&address).await.unwrap_err();
    assert!(why.contains("`clientId`"), "{why}");
    address.login.client = Some(Client { id: "ours".to_owned(), secret: None });
    log_in(&address).await.unwrap();
    assert_eq!(used(&world, &address).await, "with read");
}

#[tokio::test]
async fn a_client_logs_in_itself_and_again_when_that_ran_out() {
    let (world, authority) = (World::new(), Authority::start(Manners::Good));
    let mut address = address(&world, &authority);
    address.login.who = Who::Client;
    let problems = start(&address).await.problems().to_vec();
    assert!(problems[0].what.contains("`clientSecret`"), "{problems:?}");
    let client = |secret: &str| Some(Client { id: "robot".to_owned(), secret: Some(Secret::new(secret)) });
    address.login.client = client("wrong-secret-1");
    let problems = start(&address).await.problems().to_vec();
    assert!(problems[0].what.contains("the login did not come about"), "{problems:?}");
    assert!(!problems[0].what.contains("wrong-secret-1"), "{problems:?}");
    address.login.client = client("robot-secret-1");
    let servers = start(&address).await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "with robot");
    authority.revoke();
    world.error(&servers, "mcp__s__echo").await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "with robot");
}
