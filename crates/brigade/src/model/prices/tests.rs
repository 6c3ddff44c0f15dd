use super::*;

const DOLLAR: u64 = 1_000_000_000;

fn list() -> PriceList {
    PriceList::built_in()
}

fn price(name: &str) -> Option<(u64, u64)> {
    list().about(name).price.map(|price| (price.input, price.output))
}

#[test]
fn the_table_can_be_read() {
    let rows: Rows = toml::from_str(TEXT).unwrap();
    assert!(is_date(&rows.date), "{}", rows.date);
    assert_eq!(list().date(), Some(rows.date.as_str()));
    assert_eq!(PriceList::default().date(), None);
    let lines = TEXT.lines().filter(|line| line.contains("input = ")).count();
    assert_eq!((rows.models.len(), lines > 50), (lines, true));
    assert!(TEXT.len() < 40_000);
}

#[test]
fn every_row_makes_sense() {
    let rows = built_in();
    for (name, row) in &rows.models {
        let about = row.about();
        let (price, window, output) =
            (about.price.unwrap(), about.window.unwrap(), about.max_output.unwrap());
        assert!(rows.hosts.values().any(|provider| name.starts_with(&format!("{provider}/"))), "{name}");
        assert!((1_000..=3_000_000).contains(&window) && (1_000..=window).contains(&output), "{name}");
        assert!(price.output >= price.input && price.input >= DOLLAR / 100, "{name}");
        assert!(price.output <= 1_000 * DOLLAR, "{name}");
        assert!(0 < price.cache_read && price.cache_read <= price.input, "{name}");
        assert!((price.input..=dearer(price.input)).contains(&price.cache_write), "{name}");
    }
}

#[test]
fn prices_are_read_without_rounding() {
    let nano = |text: &str| Nano::try_from(text.to_owned()).map(|nano| nano.0);
    assert_eq!(nano("3"), Ok(3 * DOLLAR));
    assert_eq!(nano("0.003625"), Ok(3_625_000));
    assert_eq!(nano("0.1"), Ok(100_000_000));
    assert_eq!(nano("0.000000001"), Ok(1));
    for wrong in ["", "-1", "1.2.3", "1e3", "0.0000000001", "99999999999", "x", "1.-5"] {
        assert!(nano(wrong).is_err(), "{wrong}");
    }
    assert_eq!(list().about("deepseek/deepseek-v4-pro").price.unwrap().cache_read, 3_625_000);
}

#[test]
fn a_name_with_a_date_is_the_same_model() {
    let plain = list().about("anthropic/claude-sonnet-4-5");
    assert_eq!(plain.price.unwrap().input, 3 * DOLLAR);
    for dated in ["-20250929", "@20250929", "-2025-09-29", ":thinking", "-20250929:free"] {
        assert_eq!(list().about(&format!("anthropic/claude-sonnet-4-5{dated}")), plain, "{dated}");
    }
}

#[test]
fn a_longer_name_is_another_model() {
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
fn a_version_with_a_price_of_its_own_has_it() {
    assert_eq!(price("openai/gpt-4o-2024-05-13"), Some((5 * DOLLAR, 15 * DOLLAR)));
    assert_eq!(price("openai/gpt-4o-2024-08-06"), price("openai/gpt-4o"));
    assert_ne!(price("openai/gpt-4o-2024-08-06"), price("openai/gpt-4o-2024-05-13"));
}

#[test]
fn long_requests_make_the_price() {
    assert_eq!(price("gemini/gemini-2.5-pro"), Some((2 * DOLLAR + DOLLAR / 2, 15 * DOLLAR)));
}

#[test]
fn openrouter_passes_on_what_makers_take() {
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
fn people_change_what_they_name() {
    let table = list().about("openai/gpt-4o");
    let said = Figures { max_output: Some(7), ..Figures::default() };
    let about = list().with("openai/gpt-4o", said).about("openai/gpt-4o-2024-08-06");
    assert_eq!((about.price, about.window, about.max_output), (table.price, table.window, Some(7)));
    let said = Figures { output: Some(99), ..Figures::default() };
    let price = list().with("openai/gpt-4o", said).about("openai/gpt-4o").price.unwrap();
    assert_eq!(price, Price { output: 99, ..table.price.unwrap() });
}

#[test]
fn the_price_of_a_cache_is_never_taken_too_low() {
    let said = Figures { input: Some(10), output: Some(20), ..Figures::default() };
    let price = PriceList::default().with("a/b", said).about("a/b").price.unwrap();
    assert_eq!(price, Price { input: 10, output: 20, cache_read: 10, cache_write: 13 });
    let table = list().about("anthropic/claude-opus-5").price.unwrap();
    let said = Figures { input: Some(DOLLAR), ..Figures::default() };
    let price = list().with("anthropic/claude-opus-5", said).about("anthropic/claude-opus-5").price.unwrap();
    assert_eq!((price.cache_read, price.cache_write), (DOLLAR, table.cache_write));
    let said = Figures { cache_read: Some(1), cache_write: Some(2), ..said };
    let price = list().with("anthropic/claude-opus-5", said).about("anthropic/claude-opus-5").price.unwrap();
    assert_eq!((price.cache_read, price.cache_write), (1, 2));
}

#[test]
fn half_a_price_is_none() {
    let said = Figures { input: Some(10), window: Some(5), ..Figures::default() };
    let about = PriceList::default().with("a/b", said).about("a/b");
    assert_eq!(about, About { window: Some(5), ..About::default() });
}

#[test]
fn what_is_said_of_a_model_is_not_said_of_a_version_that_the_table_has() {
    let said = Figures { input: Some(1), output: Some(1), ..Figures::default() };
    let prices = list().with("openai/gpt-4o", said);
    assert_eq!(prices.about("openai/gpt-4o").price.unwrap().input, 1);
    assert_eq!(prices.about("openai/gpt-4o-2024-11-20").price.unwrap().input, 1);
    assert_eq!(prices.about("openai/gpt-4o-2024-05-13").price.unwrap().input, 5 * DOLLAR);
    let prices = prices.with("openai/gpt-4o-2024-05-13", said);
    assert_eq!(prices.about("openai/gpt-4o-2024-05-13").price.unwrap().input, 1);
}

#[test]
fn the_table_holds_at_the_addresses_it_was_made_for() {
    const OPENAI: &str = "https://api.openai.com/v1";
    const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta";
    let at = |base, provider, model| {
        list().about_at(base, provider, model, Auth::Keyless).price.map(|price| price.input)
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
    let said = Figures { input: Some(1), output: Some(2), ..Figures::default() };
    let work = list().with("work/gpt-4o", said);
    for base in [OPENAI, "https://proxy.example.com", "http://localhost:1/v1", "nowhere"] {
        let price = work.about_at(base, "work", "gpt-4o-2024-08-06", Auth::Keyed).price.unwrap();
        assert_eq!((price.input, price.output), (1, 2), "{base}");
    }
    assert_eq!(
        work.about_at(OPENAI, "work", "gpt-4o-2024-05-13", Auth::Keyed).price.unwrap().input,
        5 * DOLLAR
    );
}

#[test]
fn a_server_on_this_machine_that_is_sent_a_key_has_no_known_price() {
    let at = |provider, auth| {
        let about = list().about_at("http://127.0.0.1:4000/v1", provider, "gpt-4o", auth);
        about.price.map(|price| price.input)
    };
    assert_eq!((at("litellm", Auth::Keyless), at("litellm", Auth::Keyed)), (Some(0), None));
    assert_eq!(at("openai", Auth::Keyed), None);
    for local in ["ollama", "lmstudio", "llamacpp", "vllm"] {
        assert_eq!(at(local, Auth::Keyed), Some(0), "{local}");
    }
}

#[test]
fn a_provider_has_the_entries_below_its_name() {
    assert!(list().models("openai").all(|name| name.starts_with("openai/")));
    assert!(list().models("openai").any(|name| name == "openai/gpt-4o"));
    assert_eq!(list().models("open").count() + list().models("work").count(), 0);
    assert_eq!(PriceList::default().models("openai").count(), 0);
    let own = PriceList::default().with("work/x", Figures::default());
    assert_eq!(own.models("work").collect::<Vec<_>>(), ["work/x"]);
}
