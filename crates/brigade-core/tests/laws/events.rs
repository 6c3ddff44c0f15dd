//! Events survive a round trip through JSON, and unknown input is refused.

use super::*;

pub(crate) fn samples() -> Vec<Event> {
    let session = SessionId::root(u128::MAX);
    let call = CallId { turn: 3, index: 1 };
    let hash = Hash::of(b"x");
    let amount = Resources { tokens: 1, usd: u64::MAX, agents: 2 };
    let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: u64::MAX };
    let spent = Spent {
        usage,
        usd: 4,
        agents: 5,
        turns: 6,
        unconfirmed: amount,
        overrun: amount,
        excess: 7,
        estimated: 8,
        cost_unreported: 9,
        unpriced: 10,
        held_back: amount,
        reported: amount,
    };
    let budget = Budget { tokens: Limit::AtMost(u64::MAX), usd: Limit::Unlimited, agents: Limit::AtMost(0) };
    let grant = Grant { authority: hash, budget, turns: 7, deadline: Limit::AtMost(1) };
    let text = || Text::from("multi\nline \u{1f}\u{20ac} \"quoted\" \\ \u{0}");
    let delegation = Delegation {
        configured_mode: Some(brigade_core::permission::Mode::Ask),
        style: DelegationStyle::Spawn,
        external: Some("server/agent".to_owned()),
        agent: Some("a".to_owned()),
        role: Some("r".to_owned()),
        title: Some(text()),
        task: text(),
        context: Some(text()),
        tools: Some(vec![String::new()]),
        turns: Some(u32::MAX),
        budget: Some(budget),
        timeout: Some(u64::MAX),
        report_bytes: Some(4096),
        report: Some(text()),
        system_prompt: Some(Text::Spilled(Box::new(BlobRef { blob: hash, bytes: u64::MAX }))),
        schema: Some("{}".into()),
        execution: Execution::Background,
        single: true,
        number: Some(7),
        warnings: vec!["w".to_owned()],
        remote_context: Some(Box::new(RemoteContext {
            lineage: vec!["l".to_owned()],
            usd: Some(u64::MAX),
            ..RemoteContext::default()
        })),
        environment: Some(Box::new(Environment {
            system: "s".to_owned(),
            date: "d".to_owned(),
            git: Some("g".to_owned()),
        })),
    };
    let reply = Reply {
        text: text(),
        calls: vec![ToolCall {
            name: "n".to_owned(),
            arguments: "{".into(),
            provider_id: Some("p".to_owned()),
        }],
        opaque: vec![text()],
        stop: Stop::Refusal,
    };
    let mut events = vec![
        Event::Started {
            delegation: delegation.clone().into(),
            agent: hash,
            grant,
            parent: Some(session.clone()),
            depth: 9,
        },
        Event::Started {
            delegation: Delegation::default().into(),
            agent: hash,
            grant,
            parent: None,
            depth: 0,
        },
        Event::Resumed { epoch: u64::MAX, downtime: 0, mode: None },
        Event::Replied { turn: 1, reply, spent, waited_ms: 1200 },
        Event::Replied { turn: 1, reply: Reply::default(), spent: Spent::default(), waited_ms: 0 },
        Event::tool_ended(call, ToolOutput::error(text())),
        Event::ToolEnded { call, output: ToolOutput::ok(""), spent, seen: None },
        Event::ToolEnded {
            call,
            output: ToolOutput::ok(""),
            spent: Spent::default(),
            seen: Some(Box::new(SeenFile { path: "p".to_owned(), hash, extent: Extent::Part })),
        },
        Event::Delegated {
            call,
            child: session.child_of_several(call, 4),
            delegation: delegation.into(),
            agent: hash,
            grant,
        },
        Event::Said { call, text: Text::Spilled(Box::new(BlobRef { blob: hash, bytes: 0 })) },
        Event::Compacted { summary: text(), keep_from: u32::MAX },
        Event::CancelAsked { by: "b".to_owned() },
    ];
    let speakers = [Speaker::Person, Speaker::Parent, Speaker::Child(session.child(call)), Speaker::Runtime];
    events.extend(speakers.map(|from| Event::Heard { from, text: text() }));
    let purposes = [Purpose::Turn, Purpose::Grace, Purpose::Summary, Purpose::Compaction];
    events.extend(purposes.map(|purpose| Event::Called {
        turn: 1,
        attempt: 2,
        purpose,
        reserved: amount,
        input: 9,
        request: hash,
    }));
    let faults = [
        CallFault::Transient { message: "m".to_owned() },
        CallFault::Fatal { message: "m".to_owned() },
        CallFault::Overflow { message: "m".to_owned() },
        CallFault::GivenUp { message: "m".to_owned(), next: "n".to_owned() },
        CallFault::Interrupted,
        CallFault::Stopped,
        CallFault::Cut { message: "m".to_owned() },
        CallFault::Unaffordable,
    ];
    events.extend(faults.map(|cause| Event::call_failed(1, 2, cause, spent)));
    let partial = Some(text());
    events.push(Event::CallFailed {
        turn: 1,
        attempt: 2,
        cause: CallFault::Stopped,
        spent,
        partial,
        waited_ms: 9,
    });
    for effect in [Effect::Pure, Effect::Keyed, Effect::Edit, Effect::Opaque] {
        for (before, after) in [(None, None), (None, Some(hash)), (Some(hash), Some(hash))] {
            for lent in [Resources::default(), amount] {
                events.push(Event::ToolStarted { call, effect, before, after, lent, lines: None });
            }
        }
    }
    for answer in [
        Answer::Once,
        Answer::Always("shell(git *)".to_owned()),
        Answer::Deny { word: None },
        Answer::Deny { word: Some("no".to_owned()) },
    ] {
        events.push(Event::Asked {
            call,
            what: text(),
            why: "r".to_owned(),
            always: Some("shell".to_owned()),
            until: u64::MAX,
            default: answer.clone(),
        });
        let host: Target = "[::1]:443".parse().unwrap();
        events.push(Event::HostAsked {
            call,
            host: host.clone(),
            what: text(),
            why: "r".to_owned(),
            until: u64::MAX,
            default: answer.clone(),
        });
        events.push(Event::HostAnswered { call, host, answer: answer.clone(), by: "b".to_owned() });
        events.push(Event::Answered { call, answer, by: "b".to_owned() });
    }
    for which in [
        LimitKind::Turns,
        LimitKind::Tokens,
        LimitKind::Usd,
        LimitKind::Time,
        LimitKind::Agents,
        LimitKind::Loop,
    ] {
        events.push(Event::LimitReached { which, needed: amount });
    }
    for status in [
        Status::Done,
        Status::Incomplete { limit: LimitKind::Usd },
        Status::Failed { cause: "c".to_owned() },
        Status::Cancelled { by: "b".to_owned() },
        Status::Lost { cause: "c".to_owned() },
        Status::Detached,
    ] {
        let mut outcome = Outcome::new(status, text());
        outcome.warnings = vec!["w".to_owned()];
        events.push(Event::Returned {
            child: session.child(call),
            outcome: outcome.clone(),
            spent,
            waited_ms: 7,
        });
        events.push(Event::Ended { outcome, spent });
    }
    events
}

pub(crate) fn through_json(event: &Event) -> Event {
    serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap()
}

#[test]
fn every_event_round_trips_through_json() {
    let samples = samples();
    let kinds: BTreeSet<&str> = samples.iter().map(Event::kind).collect();
    assert_eq!(kinds, BTreeSet::from(TYPES));
    for event in &samples {
        assert_eq!(&through_json(event), event);
        let value = serde_json::to_value(event).unwrap();
        assert_eq!(value["type"], event.kind());
        // Through a tree of values as well, as an export would read it.
        assert_eq!(&serde_json::from_value::<Event>(value).unwrap(), event);
        // Written events contain no duplicate key.
        assert!(json::parse(&serde_json::to_string(event).unwrap()).is_ok());
        let record = Record {
            session: SessionId::root(0),
            seq: 0,
            pos: Cursor::new(1),
            at: 2,
            v: VERSION,
            event: event.clone(),
        };
        let again: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(again, record);
    }
}

#[test]
fn unknown_event_types_are_rejected() {
    for text in [r#"{"type":"renamed"}"#, r#"{"type":"Started"}"#, "{}", "null"] {
        assert!(serde_json::from_str::<Event>(text).is_err(), "{text}");
    }
}

#[test]
fn unknown_fields_in_a_grant_are_rejected() {
    let hash = Hash::of(b"x").to_string();
    let grant =
        serde_json::json!({ "authority": hash, "budget": { "tokens": 5 }, "turns": 1, "deadline": 9 });
    assert!(serde_json::from_value::<Grant>(grant.clone()).is_ok());
    let with = |pointer: &str, key: &str| {
        let mut grant = grant.clone();
        grant.pointer_mut(pointer).unwrap()[key] = 1.into();
        grant
    };
    for grant in [with("", "turn"), with("", "network"), with("/budget", "token"), with("/budget", "seconds")]
    {
        assert!(serde_json::from_value::<Grant>(grant.clone()).is_err(), "{grant}");
        let started = serde_json::json!({
            "type": "started", "delegation": {}, "agent": hash, "grant": grant, "depth": 0
        });
        assert!(serde_json::from_value::<Event>(started.clone()).is_err(), "{started}");
    }
    for authority in [r#"{"tool": []}"#, r#"{"permissions": {"alow": []}}"#, r#"{"sandbox": "strict"}"#] {
        assert!(serde_json::from_str::<Authority>(authority).is_err(), "{authority}");
    }
    for limit in ["-1", "1.5", "null", "true", "\"none\"", "[]", "\"Unlimited\""] {
        assert!(serde_json::from_str::<Limit>(limit).is_err(), "{limit}");
    }
}

#[test]
fn absent_grant_fields_default_to_the_narrowest() {
    let grant: Grant =
        serde_json::from_value(serde_json::json!({ "authority": Hash::of(b"x").to_string() })).unwrap();
    let nothing = Budget { tokens: Limit::AtMost(0), usd: Limit::AtMost(0), agents: Limit::AtMost(0) };
    assert_eq!(grant.budget, nothing);
    assert_eq!((grant.turns, grant.deadline), (0, Limit::AtMost(0)));
    assert_eq!(
        serde_json::from_str::<Budget>(r#"{"tokens":5}"#).unwrap(),
        Budget { tokens: Limit::AtMost(5), ..nothing }
    );
    assert_eq!(Limit::default(), Limit::AtMost(0));
    // There is no narrowest hash: a grant without one is invalid.
    assert!(serde_json::from_str::<Grant>("{}").is_err());
    let authority: Authority = serde_json::from_str("{}").unwrap();
    assert!(authority.tools.is_empty() && authority.lend.is_empty() && authority.paths.is_empty());
    assert_eq!(
        (authority.max_depth, authority.network, authority.speak),
        (0, Access::Denied, Access::Denied)
    );
    assert!(!authority.agents.has("x") && !authority.models.has("x"));
    assert_eq!(authority.permissions.mode, Mode::Plan);
    assert!(authority.permissions.allow.is_empty());
    assert!(
        authority.attenuate(&AuthorityRequest { max_depth: 9, ..AuthorityRequest::default() }, 1).is_err()
    );
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn events_of_any_run_round_trip_through_json(numbers in random_numbers(60)) {
        let (_, sim) = run_random_tree(numbers);
        for record in &sim.records {
            prop_assert_eq!(&through_json(&record.event), &record.event);
        }
    }

    #[test]
    fn any_text_round_trips_through_json(words in any::<String>(), more in vec(any::<char>(), 0..20)) {
        let text: String = words.chars().chain(more).collect();
        let event = heard(&text);
        prop_assert_eq!(through_json(&event), event);
    }

    #[test]
    fn any_authority_round_trips_with_the_same_hash(authority in authority()) {
        let again: Authority = serde_json::from_str(&authority.encoded()).unwrap();
        prop_assert_eq!(again.hash(), authority.hash());
        prop_assert_eq!(again, authority);
    }

    #[test]
    fn ids_round_trip_through_text(bits in any::<u128>(), calls in vec((any::<u32>(), any::<u32>(), any::<Option<u32>>()), 0..6)) {
        let root = SessionId::root(bits);
        prop_assert_eq!(root.as_str().len(), 26);
        let mut session = root.clone();
        for (turn, index, k) in calls {
            let call = CallId { turn, index };
            prop_assert_eq!(call.to_string().parse::<CallId>().unwrap(), call);
            let child = match k {
                Some(k) => session.child_of_several(call, k as usize),
                None => session.child(call),
            };
            prop_assert_eq!(child.parent(), Some(session.clone()));
            prop_assert!(session.contains(&child) && root.contains(&child) && !child.contains(&session));
            session = child;
        }
        prop_assert_eq!(session.root_id(), root);
        prop_assert_eq!(session.to_string().parse::<SessionId>().unwrap(), session.clone());
        let json = serde_json::to_string(&session).unwrap();
        prop_assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), session);
    }

    #[test]
    fn parsed_id_prints_as_its_input(text in "[a-z2-7+0.\\-]{0,40}", call in "[0-9+\\- ]{0,8}") {
        if let Ok(session) = text.parse::<SessionId>() {
            prop_assert_eq!(session.to_string(), text);
        }
        if let Ok(id) = call.parse::<CallId>() {
            prop_assert_eq!(id.to_string(), call);
        }
    }

    #[test]
    fn parsers_never_panic_on_any_text(text in any::<String>()) {
        let _ = (text.parse::<SessionId>(), text.parse::<CallId>(), text.parse::<Hash>(), json::parse(&text));
        let _ = (delegate::fold(&text), delegate::is_role(&text));
        let _ = SwarmConfig::default().parse(0, &Authority { max_depth: 1, ..Authority::default() }, &text);
    }

    #[test]
    fn accepted_role_is_a_single_line(role in any::<String>()) {
        let arguments = serde_json::json!({ "role": role, "task": "x" }).to_string();
        let authority = Authority { max_depth: 1, ..Authority::default() };
        if let Ok(delegation) = SwarmConfig::default().parse(0, &authority, &arguments) {
            let shown = delegation.role.clone().unwrap();
            prop_assert_eq!(shown.as_str(), role.trim());
            prop_assert!(shown.chars().count() <= 64 && !shown.contains(['[', ']', '\n', '\r']));
            let output = delegate::render(&delegation, &Outcome::new(Status::Done, "text"), 99, "h");
            prop_assert_eq!(output.text.to_string(), format!("[{shown}]: text"));
        }
    }

    #[test]
    fn roles_are_compared_after_folding(role in any::<String>()) {
        prop_assert_eq!(delegate::fold(&delegate::fold(&role)), delegate::fold(&role));
        prop_assert_eq!(delegate::fold(&format!(" {role}\t")), delegate::fold(&role));
    }
}

#[test]
fn hostile_ids_are_rejected() {
    let root = SessionId::root(5).to_string();
    let long = "a".repeat(300);
    let deep = format!("{root}{}", ".1-0".repeat(2000));
    let hostile = [
        "",
        " ",
        ".",
        "..",
        "../../x",
        "..\\..\\x",
        "/etc/passwd",
        "\0",
        "a\0b",
        &long,
        &deep,
        "\u{430}".repeat(13).leak(),
        "\u{e9}",
        "*",
        ">",
        "session.>",
        "%2e%2e%2f",
        "CON",
        "A".repeat(26).leak(),
        "1".repeat(26).leak(),
    ];
    for id in hostile {
        assert!(id.parse::<SessionId>().is_err(), "{id:?}");
        assert!(serde_json::from_value::<SessionId>(id.into()).is_err(), "{id:?}");
        assert!(id.parse::<CallId>().is_err() && id.parse::<Hash>().is_err(), "{id:?}");
    }
    let tails = [
        ".",
        ".1",
        ".1-",
        ".-1",
        ".1-0.",
        "..1-0",
        ".1-0-",
        ".1-0-1-2",
        ".a-b",
        ".1-0/..",
        "/../x",
        "\0",
        " ",
        "\n",
        ".1-\u{661}",
        ".+1-0",
        ".1--0",
        ".12345678901-0",
        "a",
        ".1_0",
    ];
    for tail in tails {
        assert!(format!("{root}{tail}").parse::<SessionId>().is_err(), "{tail:?}");
    }
    for call in
        ["+1-0", "1-+0", "01-0", "1-00", "-1-0", "1--0", "1-0-0", " 1-0", "1-0 ", "4294967296-0", "\u{661}-0"]
    {
        assert!(call.parse::<CallId>().is_err(), "{call:?}");
    }
    for hash in ["0".repeat(63), "0".repeat(65), "g".repeat(64), format!("{}\0", "0".repeat(63))] {
        assert!(hash.parse::<Hash>().is_err(), "{hash:?}");
    }
    // The error contains neither the whole text nor control characters.
    let refusal = format!("\u{1b}[2J{long}{long}").parse::<SessionId>().unwrap_err().to_string();
    assert!(refusal.len() < 400 && !refusal.contains('\u{1b}'));
}

#[test]
fn sibling_ids_do_not_contain_each_other() {
    let root = SessionId::root(5);
    let (one, ten) = (root.child(CallId { turn: 1, index: 1 }), root.child(CallId { turn: 1, index: 10 }));
    assert!(!one.contains(&ten) && !ten.contains(&one));
    assert!(!SessionId::root(6).contains(&one));
}

pub(crate) fn json_depth() -> impl Strategy<Value = (String, String)> {
    // An object with a duplicate key, wrapped in lists and objects, and the same without the duplicate.
    let wrap = vec(select(vec!["list", "object", "second"]), 0..20);
    (
        wrap,
        select(vec![
            ("\"k\"", "\"k\""),
            ("\"a\"", "\"\\u0061\""),
            ("\"\"", "\"\""),
            ("\"\\n\"", "\"\\u000a\""),
        ]),
    )
        .prop_map(|(wrap, (key, again))| {
            let mut twice = format!("{{{key}:1,\"z\":2,{again}:3}}");
            let mut once = format!("{{{key}:1,\"z\":2}}");
            for wrapper in wrap {
                for text in [&mut twice, &mut once] {
                    *text = match wrapper {
                        "list" => format!("[{text}]"),
                        "object" => format!("{{\"o\":{text}}}"),
                        _ => format!("{{\"first\":[],\"o\":[0,{text}]}}"),
                    };
                }
            }
            (twice, once)
        })
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn duplicate_key_is_rejected_at_any_depth((twice, once) in json_depth()) {
        prop_assert!(json::parse(&twice).is_err(), "{}", twice);
        prop_assert_eq!(json::parse(&once).unwrap(), serde_json::from_str::<serde_json::Value>(&once).unwrap());
    }

    #[test]
    fn prices_are_rounded_up(
        usage in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
        price in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
    ) {
        let usage = Usage { input: usage.0, output: usage.1, cache_read: usage.2, cache_write: usage.3 };
        let price = Price { input: price.0, output: price.1, cache_read: price.2, cache_write: price.3 };
        let exact = u128::from(usage.input) * u128::from(price.input)
            + u128::from(usage.output) * u128::from(price.output)
            + u128::from(usage.cache_read) * u128::from(price.cache_read)
            + u128::from(usage.cache_write) * u128::from(price.cache_write);
        let cost = u128::from(price.of(usage));
        let fits = exact <= u128::from(u64::MAX) * 1_000_000;
        prop_assert!(!fits || (cost * 1_000_000 >= exact && cost * 1_000_000 < exact + 1_000_000));
        // The worst case covers the cost however the input was cached.
        let input = usage.input + usage.cache_read + usage.cache_write;
        prop_assert!(price.worst_case(input, usage.output) >= price.of(usage));
    }

    #[test]
    fn prices_do_not_overflow(numbers in prop::array::uniform8(select(vec![0, 1, 999_999, 1_000_001, u64::MAX - 1, u64::MAX]))) {
        let [input, output, cache_read, cache_write, a, b, c, d] = numbers;
        let price = Price { input: a, output: b, cache_read: c, cache_write: d };
        let usage = Usage { input, output, cache_read, cache_write };
        let cost = price.of(usage);
        let uncached = Usage { input, ..Usage::default() };
        prop_assert!(price.worst_case(usage.total(), output) >= price.of(uncached));
        prop_assert!(cost > 0 || numbers[..4].iter().zip(&numbers[4..]).all(|(tokens, price)| *tokens == 0 || *price == 0));
        let spent = Spent { usage, usd: cost, agents: a, turns: b, ..Spent::default() };
        let _ = spent.plus(spent).plus(Spent::unconfirmed(spent.amount())).amount();
    }

    #[test]
    fn truncate_bytes_never_splits_a_character(text in any::<String>(), limit in 0usize..40, huge in any::<usize>()) {
        for limit in [limit, huge, text.len(), text.len().saturating_sub(1)] {
            let short = truncate_bytes(&text, limit);
            prop_assert!(text.starts_with(short) && short.len() <= limit);
            // Nothing is cut that would have fitted.
            prop_assert!(short.len() == text.len() || short.len() + 4 > limit);
        }
    }

    #[test]
    fn budgets_only_shrink(numbers in vec(any::<u32>(), 12), used in any::<(u16, u16, u16)>(), of in 0u64..5) {
        let mut choices = RandomChoices { numbers, at: 0 };
        let (one, other) = (choices.budget(), choices.budget());
        let used = Resources { tokens: used.0.into(), usd: used.1.into(), agents: used.2.into() };
        let fits_in = |narrow: Budget, wide: Budget| narrow.min(wide) == narrow;
        prop_assert!(fits_in(one.min(other), one) && fits_in(one.min(other), other));
        prop_assert!(fits_in(one.minus(used), one) && fits_in(one.share(of), one));
        if one.fits(used) && one.minus(used).fits(used) {
            prop_assert!(one.fits(used.plus(used)));
        }
        // A loan that fits leaves the lender at least nothing, and an unlimited loan fits no limited lender.
        let loan = other.as_loan(&one);
        prop_assert!(loan.agents >= 1);
        if one.fits(loan) {
            prop_assert!(one.tokens == Limit::Unlimited || other.tokens != Limit::Unlimited);
            prop_assert!(one.usd == Limit::Unlimited || other.usd != Limit::Unlimited);
            prop_assert!(one.tokens == Limit::Unlimited || other.tokens.number() <= one.tokens.number());
            prop_assert!(one.agents == Limit::Unlimited || other.agents.number() < one.agents.number());
        }
    }
}
