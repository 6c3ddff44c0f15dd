use serde_json::json;

use super::*;

#[test]
fn stored_delegation_contains_only_fields_that_were_set() {
    let stored = serde_json::to_value(Delegation::default()).unwrap();
    assert_eq!(stored, json!({ "face": "run", "task": "" }));
    let delegation = Delegation {
        style: DelegationStyle::Spawn,
        task: "Go".into(),
        execution: Execution::Background,
        single: true,
        ..Delegation::default()
    };
    let stored = serde_json::to_value(&delegation).unwrap();
    assert_eq!((&stored["face"], &stored["single"]), (&json!("spawn"), &json!(true)));
    assert_eq!(stored.as_object().unwrap().len(), 4, "{stored}");
    assert_eq!(serde_json::from_value::<Delegation>(stored).unwrap(), delegation);
}

#[test]
fn delegation_is_shown_by_its_role_agent_or_position() {
    let text = |text: &str| Some(text.to_owned());
    let mut delegation = Delegation::default();
    assert_eq!((delegation.label(), delegation.full_title()), ("lead", ""));
    delegation.agent = text("reader");
    assert_eq!((delegation.label(), delegation.full_title()), ("reader", ""));
    delegation.role = text("Look");
    assert_eq!((delegation.label(), delegation.full_title()), ("Look", "Look"));
    delegation.title = Some("Look\n[here]".into());
    assert_eq!((delegation.label(), delegation.full_title()), ("Look", "Look\n[here]"));
}

#[test]
fn styles_and_limits_are_shown_by_name() {
    let styles = [DelegationStyle::Run, DelegationStyle::Dispatch].map(|style| style.to_string());
    assert_eq!(styles, ["run", "dispatch"]);
    assert_eq!((LimitKind::Usd.to_string().as_str(), LimitKind::Usd.label()), ("usd", "cost limit"));
}

#[test]
fn note_names_the_limit_and_the_warnings() {
    let mut outcome = Outcome::new(Status::Done, "");
    assert_eq!(outcome.note(), None);
    outcome.warnings = vec!["unknown tool".to_owned()];
    assert_eq!(outcome.note().as_deref(), Some("(warning: unknown tool)"));
    outcome.status = Status::Incomplete { limit: LimitKind::Turns };
    assert_eq!(outcome.note().as_deref(), Some("(incomplete: turns) (warning: unknown tool)"));
}
