//! Session options that the user can choose: the mode and the model.

use agent_client_protocol_schema::v1 as acp;
use brigade_core::permission::Mode;

use super::errors;
use super::open_session::OpenSession;

const MODE: &str = "mode";
const MODEL: &str = "model";

const MODES: [(Mode, &str, &str); 4] = [
    (Mode::Plan, "Plan", "Read only; everything else is refused"),
    (Mode::Ask, "Ask", "Read freely; request approval for everything else"),
    (Mode::Edit, "Edit", "Read and edit files freely; request approval for commands and everything else"),
    (Mode::Auto, "Auto", "Do everything unless a rule denies it or requires approval"),
];

/// The modes that the session may use.
fn allowed_modes(open_session: &OpenSession) -> impl Iterator<Item = (Mode, &'static str, &'static str)> {
    let max_mode = open_session.max_mode();
    MODES.into_iter().filter(move |(mode, _, _)| *mode <= max_mode)
}

/// The modes, for clients that do not support config options.
pub(super) fn modes(open_session: &OpenSession) -> acp::SessionModeState {
    let modes = allowed_modes(open_session)
        .map(|(mode, name, about)| acp::SessionMode::new(mode.as_str(), name).description(about.to_owned()));
    acp::SessionModeState::new(open_session.mode().as_str(), modes.collect())
}

/// The config options: the mode and the model.
pub(super) fn options(open_session: &OpenSession) -> Vec<acp::SessionConfigOption> {
    let modes: Vec<_> = allowed_modes(open_session)
        .map(|(mode, name, about)| {
            acp::SessionConfigSelectOption::new(mode.as_str(), name).description(about.to_owned())
        })
        .collect();
    let current = open_session.model();
    let other_models = open_session.data().models.iter().filter(|model| **model != current);
    let models: Vec<_> = std::iter::once(&current)
        .chain(other_models)
        .map(|model| acp::SessionConfigSelectOption::new(model.clone(), model.clone()))
        .collect();
    vec![
        acp::SessionConfigOption::select(MODE, "Mode", open_session.mode().as_str(), modes)
            .description("Which actions need approval; a change takes effect with the next prompt".to_owned())
            .category(acp::SessionConfigOptionCategory::Mode),
        acp::SessionConfigOption::select(MODEL, "Model", current, models)
            .description("The model to use; a change takes effect with the next prompt".to_owned())
            .category(acp::SessionConfigOptionCategory::Model),
    ]
}

/// Sets the mode of the next round.
pub(super) fn set_mode(open_session: &OpenSession, name: &str) -> Result<(), acp::Error> {
    let mode = allowed_modes(open_session).find(|(mode, _, _)| mode.as_str() == name);
    let Some((mode, _, _)) = mode else {
        let known: Vec<_> = allowed_modes(open_session).map(|(mode, _, _)| mode.as_str()).collect();
        return Err(errors::params(format!("unknown mode. Available modes: {}", known.join(", "))));
    };
    open_session.set_mode(mode);
    Ok(())
}

/// Sets the model of the next round.
pub(super) fn set_model(open_session: &OpenSession, name: &str) -> Result<(), acp::Error> {
    if !open_session.set_model(name) {
        return Err(errors::params(format!(
            "unknown model '{}'. List the available models with `brigade models`.",
            super::calls::brief(name)
        )));
    }
    Ok(())
}

/// Sets a config option.
pub(super) fn set(
    open_session: &OpenSession,
    request: &acp::SetSessionConfigOptionRequest,
) -> Result<(), acp::Error> {
    let value = request.value.as_value_id().map(|value| &*value.0);
    match (&*request.config_id.0, value) {
        (MODE, Some(mode)) => set_mode(open_session, mode),
        (MODEL, Some(model)) => set_model(open_session, model),
        (MODE | MODEL, None) => Err(errors::params("invalid value. Choose a value that the option offers.")),
        _ => Err(errors::params("unknown option. Available options: mode, model")),
    }
}
