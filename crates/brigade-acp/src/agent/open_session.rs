//! Sessions that the client has open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1 as acp;
use brigade::open_sessions::{OpenError, PromptError, SessionOptions};
use brigade::{RunError, StoreError};

use super::update_mapper::UpdateMapper;
use super::{SessionEnvironment, errors};

/// A session that the client has open.
pub(super) type OpenSession = brigade::OpenSession<SessionData>;

/// Data of the protocol for an open session.
pub(super) struct SessionData {
    /// The models that the user may choose from, in addition to the current one.
    pub(super) models: Vec<String>,
    /// The prompt that began last.
    prompt: Mutex<Option<acp::RequestId>>,
    /// The update mapper of the last round. It knows which updates the client has received.
    mapper: Mutex<Option<UpdateMapper>>,
}

impl SessionData {
    pub(super) fn new(environment: &SessionEnvironment) -> SessionData {
        let models = environment.models.clone();
        SessionData { models, prompt: Mutex::default(), mapper: Mutex::default() }
    }

    /// The update mapper of the last round, if one ran in this process.
    pub(super) fn mapper(&self) -> MutexGuard<'_, Option<UpdateMapper>> {
        self.mapper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The prompt that began last.
    pub(super) fn prompt(&self) -> MutexGuard<'_, Option<acp::RequestId>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Options of a session in this environment.
pub(super) fn options(environment: SessionEnvironment) -> SessionOptions {
    let SessionEnvironment { runtime, agent, timeout, .. } = environment;
    SessionOptions { agent, timeout, ..SessionOptions::new(runtime) }
}

/// Sets the first mode: that of the session, but not more permissive than the current setting.
pub(super) fn set_first_mode(open_session: &OpenSession) {
    let configured = open_session.runtime().settings().permissions.mode;
    open_session.set_mode(open_session.mode().min(configured));
}

/// Error of a session that is not opened.
pub(super) fn open_error(error: &OpenError) -> acp::Error {
    match error {
        OpenError::Busy => errors::request("the session is already open and running"),
        OpenError::Unknown(session) => errors::session(session.as_str()),
        OpenError::Run(error) => errors::run(error),
        OpenError::Full | OpenError::Closed => errors::request(error.to_string()),
    }
}

/// Error of a prompt that is not run. The text of a prompt is recorded before its session is found to be running
/// elsewhere.
pub(super) fn prompt_error(error: &PromptError, has_text: bool) -> acp::Error {
    match error {
        PromptError::Run(error @ RunError::Store(StoreError::Held { .. })) if has_text => {
            errors::request(format!(
                "{error}. Your message will be delivered before the agent's next turn. To see the result, load the session after it has ended."
            ))
        }
        PromptError::Run(error) => errors::run(error),
        PromptError::CallerTooDeep { .. } | PromptError::TooDeep(_) => errors::request(error.to_string()),
    }
}
