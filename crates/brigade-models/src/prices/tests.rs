use super::*;

const DOLLAR: u64 = 1_000_000_000;

fn list() -> PriceList {
    PriceList::built_in()
}

fn price(name: &str) -> Option<(u64, u64)> {
    list().model_info(name).price.map(|price| (price.input, price.output))
}

#[test]
fn built_in_price_table_parses() {
    let rows: PriceTable = toml::from_str(TABLE_TOML).unwrap();
    assert!(is_date(&rows.date), "{}", rows.date);
    assert_eq!(list().date(), Some(rows.date.as_str()));
    assert_eq!(PriceList::default().date(), None);
    let lines = TABLE_TOML.lines().filter(|line| line.contains("input = ")).count();
    assert_eq!((rows.models.len(), lines > 50), (lines, true));
    assert!(TABLE_TOML.len() < 40_000);
}

#[test]
fn built_in_prices_are_plausible() {
    let rows = built_in();
    for (name, row) in &rows.models {
        let info = row.model_info();
        let (price, window, output) = (info.price.unwrap(), info.window.unwrap(), info.max_output.unwrap());
        assert!(rows.hosts.values().any(|provider| name.starts_with(&format!("{provider}/"))), "{name}");
        assert!((1_000..=3_000_000).contains(&window) && (1_000..=window).contains(&output), "{name}");
        assert!(price.output >= price.input && price.input >= DOLLAR / 100, "{name}");
        assert!(price.output <= 1_000 * DOLLAR, "{name}");
        assert!(0 < price.cache_read && price.cache_read <= price.input, "{name}");
        assert!((price.input..=cache_write_price(price.input)).contains(&price.cache_write), "{name}");
    }
}

#[test]
fn prices_are_parsed_without_rounding() {
    let nano = |text: &str| NanoDollars::try_from(text.to_owned()).map(|nano| nano.0);
    assert_eq!(nano("3"), Ok(3 * DOLLAR));
    assert_eq!(nano("0.003625"), Ok(3_625_000));
    assert_eq!(nano("0.1"), Ok(100_000_000));
    assert_eq!(nano("0.000000001"), Ok(1));
    for wrong in ["", "-1", "1.2.3", "1e3", "0.0000000001", "99999999999", "x", "1.-5"] {
        assert!(nano(wrong).is_err(), "{wrong}");
    }
    assert_eq!(list().model_info("deepseek/deepseek-v4-pro").price.unwrap().cache_read, 3_625_000);
}

#[test]
fn dated_name_matches_the_same_model() {
    let plain = list().model_info("anthropic/claude-sonnet-4-5");
    assert_eq!(plain.price.unwrap().input, 3 * DOLLAR);
    for dated in ["-20250929", "@20250929", "-2025-09-29", ":thinking", "-20250929:free"] {
        assert_eq!(list().model_info(&format!("anthropic/claude-sonnet-4-5{dated}")), plain, "{dated}");
    }
}

#[test]
fn longer_name_is_another_model() {
    for other in [
        "-mini-x",
        "-audio-preview",
        "-0613",
        "-2025",
        "-202509299",
        "x",
        ":online",
        ":nitro",
        "-",
        "@",
        "/x",
        "-2025-9-29",
    ] {
        assert_eq!(price(&format!("openai/gpt-4o{other}")), None, "{other}");
    }
    assert_ne!(price("openai/gpt-4o"), price("openai/gpt-4o-mini"));
    assert_eq!(price("gpt-4o"), None);
    assert_eq!(price("openai/"), None);
    assert_eq!(price(""), None);
    assert_eq!(price("openai/gpt-4o-\u{e4}\u{e4}\u{e4}\u{e4}"), None);
}

#[test]
fn dated_version_with_its_own_price_uses_it() {
    assert_eq!(price("openai/gpt-4o-2024-05-13"), Some((5 * DOLLAR, 15 * DOLLAR)));
    assert_eq!(price("openai/gpt-4o-2024-08-06"), price("openai/gpt-4o"));
    assert_ne!(price("openai/gpt-4o-2024-08-06"), price("openai/gpt-4o-2024-05-13"));
}

#[test]
fn price_is_that_of_long_requests() {
    assert_eq!(price("gemini/gemini-2.5-pro"), Some((2 * DOLLAR + DOLLAR / 2, 15 * DOLLAR)));
}

#[test]
fn openrouter_models_use_vendor_prices() {
    assert_eq!(price("openrouter/anthropic/claude-opus-4.5"), price("anthropic/claude-opus-4-5"));
    assert_eq!(price("openrouter/google/gemini-2.5-pro"), price("gemini/gemini-2.5-pro"));
    assert_eq!(price("openrouter/openai/gpt-4o-mini:floor"), price("openai/gpt-4o-mini"));
    assert_eq!(price("openrouter/anthropic/claude-sonnet-4.5").unwrap().0, 6 * DOLLAR);
    for unknown in ["openrouter/openai/gpt-oss-120b", "openrouter/deepseek/deepseek-chat", "openrouter/auto"]
    {
        assert_eq!(price(unknown), None, "{unknown}");
    }
}

#[test]
fn overrides_change_only_the_given_figures() {
    let table = list().model_info("openai/gpt-4o");
    let overrides = ModelOverrides { max_output: Some(7), ..ModelOverrides::default() };
    let info = list().with("openai/gpt-4o", overrides).model_info("openai/gpt-4o-2024-08-06");
    assert_eq!((info.price, info.window, info.max_output), (table.price, table.window, Some(7)));
    let overrides = ModelOverrides { output: Some(99), ..ModelOverrides::default() };
    let price = list().with("openai/gpt-4o", overrides).model_info("openai/gpt-4o").price.unwrap();
    assert_eq!(price, Price { output: 99, ..table.price.unwrap() });
}

#[test]
fn cache_price_is_never_underestimated() {
    let overrides = ModelOverrides { input: Some(10), output: Some(20), ..ModelOverrides::default() };
    let price = PriceList::default().with("a/b", overrides).model_info("a/b").price.unwrap();
    assert_eq!(price, Price { input: 10, output: 20, cache_read: 10, cache_write: 13 });
    let table = list().model_info("anthropic/claude-opus-5").price.unwrap();
    let overrides = ModelOverrides { input: Some(DOLLAR), ..ModelOverrides::default() };
    let price = list()
        .with("anthropic/claude-opus-5", overrides)
        .model_info("anthropic/claude-opus-5")
        .price
        .unwrap();
    assert_eq!((price.cache_read, price.cache_write), (DOLLAR, table.cache_write));
    let overrides = ModelOverrides { cache_read: Some(1), cache_write: Some(2), ..overrides };
    let price = list()
        .with("anthropic/claude-opus-5", overrides)
        .model_info("anthropic/claude-opus-5")
        .price
        .unwrap();
    assert_eq!((price.cache_read, price.cache_write), (1, 2));
}

#[test]
fn price_without_output_is_unknown() {
    let overrides = ModelOverrides { input: Some(10), window: Some(5), ..ModelOverrides::default() };
    let info = PriceList::default().with("a/b", overrides).model_info("a/b");
    assert_eq!(info, ModelInfo { window: Some(5), ..ModelInfo::default() });
}

#[test]
fn override_does_not_apply_to_a_version_in_the_table() {
    let overrides = ModelOverrides { input: Some(1), output: Some(1), ..ModelOverrides::default() };
    let prices = list().with("openai/gpt-4o", overrides);
    assert_eq!(prices.model_info("openai/gpt-4o").price.unwrap().input, 1);
    assert_eq!(prices.model_info("openai/gpt-4o-2024-11-20").price.unwrap().input, 1);
    assert_eq!(prices.model_info("openai/gpt-4o-2024-05-13").price.unwrap().input, 5 * DOLLAR);
    let prices = prices.with("openai/gpt-4o-2024-05-13", overrides);
    assert_eq!(prices.model_info("openai/gpt-4o-2024-05-13").price.unwrap().input, 1);
}

#[test]
fn table_prices_apply_only_at_known_hosts() {
    const OPENAI: &str = "https://api.openai.com/v1";
    const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta";
    let at = |base, provider, model| {
        list().model_info_at(base, provider, model, Auth::Keyless).price.map(|price| price.input)
    };
    assert_eq!(at(OPENAI, "openai", "gpt-4o"), Some(DOLLAR * 5 / 2));
    assert_eq!(at(OPENAI, "work", "gpt-4o"), Some(DOLLAR * 5 / 2));
    assert_eq!(at("https://proxy.example.com/v1", "openai", "gpt-4o"), None);
    assert_eq!(at("https://eu.api.openai.com/v1", "openai", "gpt-4o"), None);
    assert_eq!(at("nowhere", "openai", "gpt-4o"), None);
    assert_eq!(at("http://127.0.0.1:8000/v1", "openai", "gpt-4o"), Some(0));
    assert_eq!(at("http://[::1]:8000/v1", "openai", "gpt-4o"), Some(0));
    assert_eq!(at(GEMINI, "gemini", "models/gemini-2.5-flash"), at(GEMINI, "gemini", "gemini-2.5-flash"));
    assert!(at(GEMINI, "gemini", "gemini-2.5-flash").is_some());
    let overrides = ModelOverrides { input: Some(1), output: Some(2), ..ModelOverrides::default() };
    let work = list().with("work/gpt-4o", overrides);
    for base in [OPENAI, "https://proxy.example.com", "http://localhost:1/v1", "nowhere"] {
        let price = work.model_info_at(base, "work", "gpt-4o-2024-08-06", Auth::Keyed).price.unwrap();
        assert_eq!((price.input, price.output), (1, 2), "{base}");
    }
    assert_eq!(
        work.model_info_at(OPENAI, "work", "gpt-4o-2024-05-13", Auth::Keyed).price.unwrap().input,
        5 * DOLLAR
    );
}

#[test]
fn local_server_with_a_key_has_no_known_price() {
    let at = |provider, auth| {
        let info = list().model_info_at("http://127.0.0.1:4000/v1", provider, "gpt-4o", auth);
        info.price.map(|price| price.input)
    };
    assert_eq!((at("litellm", Auth::Keyless), at("litellm", Auth::Keyed)), (Some(0), None));
    assert_eq!(at("openai", Auth::Keyed), None);
    for local in ["ollama", "lmstudio", "llamacpp", "vllm"] {
        assert_eq!(at(local, Auth::Keyed), Some(0), "{local}");
    }
}

#[test]
fn models_lists_only_entries_of_the_provider() {
    assert!(list().models("openai").all(|name| name.starts_with("openai/")));
    assert!(list().models("openai").any(|name| name == "openai/gpt-4o"));
    assert_eq!(list().models("open").count() + list().models("work").count(), 0);
    assert_eq!(PriceList::default().models("openai").count(), 0);
    let own = PriceList::default().with("work/x", ModelOverrides::default());
    assert_eq!(own.models("work").collect::<Vec<_>>(), ["work/x"]);
}
