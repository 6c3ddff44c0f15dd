//! Failed attempts of a model call.

use brigade_testing::Script;

use crate::cli::support::Home;

const UNREACHABLE_MODEL: [&str; 6] = [
    "--set",
    "providers.llamacpp.base_url=http://127.0.0.1:9/v1",
    "--set",
    "limits.retry_pause=1ms",
    "--model",
    "llamacpp/none",
];

#[test]
fn retries_are_announced_with_delay_and_cause() {
    let home = Home::new();
    let done = home.brigade(&[&["run", "x"], &UNREACHABLE_MODEL[..]].concat());
    done.exits_with(1);
    let attempts: Vec<&str> = done.stderr.lines().filter(|line| line.contains("attempt ")).collect();
    let cause = "retrying in 0.1 s: cannot reach llamacpp: Connection refused (os error 111). Check that it is running \
                 and that its `base_url` is correct.";
    let expected: Vec<String> =
        (2..=6).map(|number| format!("lead: attempt {number} of 6, {cause}")).collect();
    assert_eq!(attempts, expected);
    done.stderr_contains("(after 6 attempts)");
    assert!(!done.stderr.contains("model error"), "each fault is told once: {}", done.stderr);
}

#[test]
fn stream_json_contains_every_retry() {
    let home = Home::new();
    let done =
        home.brigade(&[&["run", "x", "--output-format", "stream-json"], &UNREACHABLE_MODEL[..]].concat());
    let lines = done.exits_with(1).lines();
    let why = |line: &serde_json::Value| line["why"].as_str().map(str::to_owned);
    let waits: Vec<String> = lines.iter().filter(|line| line["type"] == "waiting").filter_map(why).collect();
    assert_eq!(waits.len(), 5, "{waits:?}");
    assert!(waits[0].starts_with("attempt 2 of 6, retrying in 0.1 s: cannot reach llamacpp"), "{waits:?}");
}

#[test]
fn model_with_a_fallback_has_fewer_attempts() {
    let home = Home::new();
    let second = home.script(Script::new().reply("from the second"));
    let config =
        format!("model = 'llamacpp/none'\nfallbacks = ['{second}']\n[limits]\nretry_pause = '1ms'\n");
    home.write("home/config.toml", &config);
    let done = home.brigade(&["run", "x", "--set", "providers.llamacpp.base_url=http://127.0.0.1:9/v1"]);
    done.exits_with(0).stdout_contains("from the second");
    done.stderr_contains("attempt 2 of 3, ")
        .stderr_contains("attempt 3 of 3, ")
        .stderr_contains("falling back to");
    assert!(!done.stderr.contains("of 6"), "{}", done.stderr);
}
