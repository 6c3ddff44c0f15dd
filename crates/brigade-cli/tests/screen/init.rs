//! `brigade init` at a terminal.

use insta::assert_snapshot;

use crate::cli::support::{Home, text};
use crate::screen::support::Window;

/// Environment without the local servers of the machine that runs the tests.
const NO_SERVERS: [(&str, &str); 4] = [
    ("BRIGADE_PROVIDERS__OLLAMA__BASE_URL", "http://127.0.0.1:9/v1"),
    ("BRIGADE_PROVIDERS__LMSTUDIO__BASE_URL", "http://127.0.0.1:9/v1"),
    ("BRIGADE_PROVIDERS__LLAMACPP__BASE_URL", "http://127.0.0.1:9/v1"),
    ("BRIGADE_PROVIDERS__VLLM__BASE_URL", "http://127.0.0.1:9/v1"),
];

#[test]
fn init_without_keys_says_what_each_provider_needs() {
    for (name, columns) in [("wide", 100), ("narrow", 60)] {
        let home = Home::new();
        let mut window = Window::start(&home, (columns, 30), &["init"], &NO_SERVERS);
        window.wait_for("Number or PROVIDER/MODEL:");
        assert_snapshot!(format!("init_needs_{name}"), window.screen());
        // Neither Enter nor "none for now" writes anything.
        window.press("\r");
        window.wait_for("choose a number from 1 to 9");
        window.press("9\r");
        assert_eq!(window.end(), 130, "{}", window.text());
        assert!(window.text().contains("Nothing was written."), "{}", window.text());
        assert_eq!(home.files(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn custom_server_is_written_to_the_configuration() {
    let home = Home::new();
    let mut window = Window::start(&home, (100, 40), &["init"], &NO_SERVERS);
    window.wait_for("Number or PROVIDER/MODEL:");
    window.press("8\r");
    window.wait_for("URL, such as");
    window.press("ftp://nowhere\r");
    window.wait_for("invalid `base_url`");
    window.press("http://127.0.0.1:9/v1\r");
    window.wait_for("Model name on that server:");
    window.press("big one\r");
    window.wait_for("Environment variable with its key (Enter for none):");
    window.press("WORK_API_KEY\r");
    window.wait_for("What may agents do without your approval?");
    window.press("\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_snapshot!("init_server", window.screen().replace(home.home().to_str().unwrap(), "HOME"));
    let config = text(home.home().join("config.toml"));
    assert!(config.contains("model = \"custom/big one\""), "{config}");
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    let provider = &shown["config"]["providers"]["custom"];
    assert_eq!(provider["base_url"], "http://127.0.0.1:9/v1");
    assert_eq!((&provider["kind"], &provider["api_key_env"]), (&"openai".into(), &"WORK_API_KEY".into()));
}
