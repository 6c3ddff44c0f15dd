//! Attempts at a model call that failed.

use crate::support::Home;

const NOBODY: [&str; 6] = [
    "--set",
    "providers.llamacpp.base_url=http://127.0.0.1:9/v1",
    "--set",
    "limits.retry_pause=1ms",
    "--model",
    "llamacpp/none",
];

#[test]
fn every_further_attempt_is_announced_with_its_pause_and_the_cause() {
    let home = Home::new();
    let done = home.brigade(&[&["run", "x"], &NOBODY[..]].concat());
    done.exits(1);
    let attempts: Vec<&str> = done.stderr.lines().filter(|line| line.contains("attempt ")).collect();
    let cause = "again in 0.1 s: llamacpp cannot be reached: Connection refused (os error 111); check that it runs and \
                 that its base_url is right";
    let expected: Vec<String> =
        (2..=6).map(|number| format!("lead: attempt {number} of 6, {cause}")).collect();
    assert_eq!(attempts, expected);
    done.says("(after 6 attempts)");
    assert!(!done.stderr.contains("the model failed"), "each fault is told once: {}", done.stderr);
}

#[test]
fn programs_read_every_further_attempt() {
    let home = Home::new();
    let done = home.brigade(&[&["run", "x", "--output-format", "stream-json"], &NOBODY[..]].concat());
    let lines = done.exits(1).lines();
    let why = |line: &serde_json::Value| line["why"].as_str().map(str::to_owned);
    let waits: Vec<String> = lines.iter().filter(|line| line["type"] == "waiting").filter_map(why).collect();
    assert_eq!(waits.len(), 5, "{waits:?}");
    assert!(waits[0].starts_with("attempt 2 of 6, again in 0.1 s: llamacpp cannot be reached"), "{waits:?}");
}

#[test]
fn a_model_with_another_behind_it_has_fewer_attempts() {
    let home = Home::new();
    let second = home.script("[[reply]]\ntext = 'from the second'");
    let config =
        format!("model = 'llamacpp/none'\nfallbacks = ['{second}']\n[limits]\nretry_pause = '1ms'\n");
    home.write("home/config.toml", &config);
    let done = home.brigade(&["run", "x", "--set", "providers.llamacpp.base_url=http://127.0.0.1:9/v1"]);
    done.exits(0).prints("from the second");
    done.says("attempt 2 of 3, ").says("attempt 3 of 3, ").says("takes over");
    assert!(!done.stderr.contains("of 6"), "{}", done.stderr);
}
