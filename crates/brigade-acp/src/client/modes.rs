//! Selection of an external agent's mode, so that the mode of the tree applies to it.

use agent_client_protocol_schema::v1::{NewSessionResponse, SessionConfigOptionCategory};
use brigade_core::permission::Mode;
use serde_json::Value;

/// Modes in which agents are known to change nothing without permission, strictest first.
const SAFE_IN_PLAN: [&str; 3] = ["read-only", "plan", "default"];
/// Safe modes if requests of the agent can be approved. Modes in which it requests permission come first.
/// `plan` comes last, because an agent in it cannot even do what was approved. `ask` is the mode of another
/// Brigade.
const SAFE_IN_ASK: [&str; 4] = ["ask", "read-only", "default", "plan"];

/// The mode to select. `None` keeps the agent's own default.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ModeChoice {
    /// A mode that is known to be safe, or no safe mode is needed.
    Known(Option<String>),
    /// A mode in which the agent may not request permission.
    Unknown(Option<String>),
}

/// Chooses a mode: the configured one, unless the tree runs in `plan` or `ask` and the agent offers a safe
/// one.
pub(super) fn choose(mode: Mode, configured: Option<&str>, offered: &[String]) -> ModeChoice {
    let safe: &[&str] = match mode {
        Mode::Plan => &SAFE_IN_PLAN,
        Mode::Ask => &SAFE_IN_ASK,
        Mode::Edit | Mode::Auto => return ModeChoice::Known(configured.map(str::to_owned)),
    };
    let is_offered = |name: &str| offered.iter().any(|offered| offered == name);
    let safe_configured = configured.filter(|name| safe.contains(name));
    let strictest = safe.iter().copied().find(|name| is_offered(name));
    match safe_configured.or(strictest) {
        Some(name) => ModeChoice::Known(Some(name.to_owned())),
        None => ModeChoice::Unknown(configured.map(str::to_owned)),
    }
}

/// The modes that an agent offers, as modes or as a config option.
pub(super) fn offered(answer: &NewSessionResponse) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let modes = answer.modes.iter().flat_map(|modes| &modes.available_modes);
    names.extend(modes.map(|mode| mode.id.0.to_string()));
    let options = answer.config_options.iter().flatten();
    for option in options.filter(|option| option.category == Some(SessionConfigOptionCategory::Mode)) {
        values(&serde_json::to_value(option).unwrap_or_default(), &mut names);
    }
    names
}

/// Collects the selectable values, including those in groups.
fn values(option: &Value, names: &mut Vec<String>) {
    for entry in option.get("options").and_then(Value::as_array).into_iter().flatten() {
        match entry.get("value").and_then(Value::as_str) {
            Some(value) => names.push(value.to_owned()),
            None => values(entry, names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(mode: Mode, configured: Option<&str>, offered: &[&str]) -> ModeChoice {
        let offered: Vec<String> = offered.iter().map(|name| (*name).to_owned()).collect();
        choose(mode, configured, &offered)
    }

    fn known(name: &str) -> ModeChoice {
        ModeChoice::Known(Some(name.to_owned()))
    }

    #[test]
    fn choose_in_plan_and_ask_takes_the_strictest_offered_mode() {
        for mode in [Mode::Plan, Mode::Ask] {
            assert_eq!(chosen(mode, None, &["auto", "full-access", "read-only"]), known("read-only"));
            assert_eq!(chosen(mode, None, &["default", "acceptEdits"]), known("default"));
            assert_eq!(chosen(mode, Some("full-access"), &["full-access", "read-only"]), known("read-only"));
            assert_eq!(chosen(mode, Some("default"), &["default", "plan"]), known("default"));
        }
        assert_eq!(chosen(Mode::Plan, None, &["default", "yolo", "plan"]), known("plan"));
        assert_eq!(chosen(Mode::Ask, None, &["default", "yolo", "plan"]), known("default"));
        assert_eq!(chosen(Mode::Ask, None, &["build", "plan"]), known("plan"));
        assert_eq!(chosen(Mode::Ask, None, &["plan", "ask", "auto"]), known("ask"));
        assert_eq!(chosen(Mode::Plan, None, &["plan", "ask", "auto"]), known("plan"));
    }

    #[test]
    fn choose_without_a_safe_mode_says_so() {
        for mode in [Mode::Plan, Mode::Ask] {
            assert_eq!(chosen(mode, None, &["auto", "yolo"]), ModeChoice::Unknown(None));
            assert_eq!(chosen(mode, Some("yolo"), &["yolo"]), ModeChoice::Unknown(Some("yolo".to_owned())));
            assert_eq!(chosen(mode, None, &[]), ModeChoice::Unknown(None));
        }
    }

    #[test]
    fn choose_in_edit_and_auto_takes_the_configured_mode() {
        for mode in [Mode::Edit, Mode::Auto] {
            assert_eq!(chosen(mode, None, &["read-only"]), ModeChoice::Known(None));
            assert_eq!(chosen(mode, Some("code"), &["code", "plan"]), known("code"));
        }
    }
}
