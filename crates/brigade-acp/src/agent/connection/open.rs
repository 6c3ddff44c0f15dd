//! Opening new and recorded sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1 as acp;
use brigade::open_sessions::SessionOptions;
use brigade_core::{Record, SessionId};
use serde_json::Value;

use super::super::open_session::{self, OpenSession, SessionData};
use super::super::update_mapper::{Replay, UpdateMapper};
use super::super::{SessionEnvironment, config_options, errors, peer, prompt, servers};
use super::{Client, ClientConnection};

impl ClientConnection {
    pub(super) async fn open_new(
        &self,
        params: Value,
    ) -> Result<(Arc<OpenSession>, acp::NewSessionResponse), acp::Error> {
        let remote_context = prompt::remote_context(&params)?;
        let request: acp::NewSessionRequest = peer::params(params)?;
        let environment =
            self.environment(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let data = SessionData::new(&environment);
        let options = SessionOptions { remote_context, ..open_session::options(environment) };
        let open_session =
            self.open_sessions.open_new(options, data).map_err(|error| open_session::open_error(&error))?;
        open_session::set_first_mode(&open_session);
        let response = acp::NewSessionResponse::new(open_session.id().as_str().to_owned())
            .modes(config_options::modes(&open_session))
            .config_options(config_options::options(&open_session));
        Ok((open_session, response))
    }

    /// Opens a recorded session and replays its log to the client.
    pub(super) async fn load(
        &self,
        client: &Client,
        params: Value,
    ) -> Result<(Arc<OpenSession>, acp::LoadSessionResponse), acp::Error> {
        let request: acp::LoadSessionRequest = peer::params(params)?;
        let (session, records) = self.read_recorded(&request.session_id).await?;
        let environment =
            self.environment(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let open_session = self.open_stored(&session, environment).await?;
        let mut mapper = UpdateMapper::new(
            session,
            open_session.runtime().settings(),
            client.subagent_display,
            Replay::Yes,
        );
        for update in mapper.map_records(&records) {
            self.peer.update(&update).await;
        }
        let response = acp::LoadSessionResponse::new()
            .modes(config_options::modes(&open_session))
            .config_options(config_options::options(&open_session));
        Ok((open_session, response))
    }

    /// Opens a recorded session for a client that already has its history.
    pub(super) async fn resume(
        &self,
        params: Value,
    ) -> Result<(Arc<OpenSession>, acp::ResumeSessionResponse), acp::Error> {
        let request: acp::ResumeSessionRequest = peer::params(params)?;
        let (session, _) = self.read_recorded(&request.session_id).await?;
        let environment =
            self.environment(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let open_session = self.open_stored(&session, environment).await?;
        let response = acp::ResumeSessionResponse::new()
            .modes(config_options::modes(&open_session))
            .config_options(config_options::options(&open_session));
        Ok((open_session, response))
    }

    async fn read_recorded(&self, id: &acp::SessionId) -> Result<(SessionId, Vec<Record>), acp::Error> {
        let session = errors::parse_session_id(&id.0)?;
        let records = self.host.store().read(&session, 0).await;
        let records = records.map_err(|error| errors::run(&error.into()))?;
        if records.is_empty() {
            return Err(errors::session(&id.0));
        }
        Ok((session, records))
    }

    async fn environment(
        &self,
        folder: &Path,
        additional_directories: &[PathBuf],
        servers: Vec<acp::McpServer>,
    ) -> Result<SessionEnvironment, acp::Error> {
        if !folder.is_absolute() || !folder.is_dir() {
            let folder = folder.display();
            return Err(errors::params(format!(
                "invalid `cwd`: {folder} is not the absolute path of an existing directory"
            )));
        }
        if !additional_directories.is_empty() {
            return Err(errors::params(
                "`additionalDirectories` is not supported: a session has one working directory",
            ));
        }
        let environment = self.host.environment(folder).await.map_err(|error| errors::failed(error.0))?;
        servers::add(environment, servers, &*self.host).await
    }

    /// Opens a recorded session. It keeps its last model unless the user set one for all sessions.
    async fn open_stored(
        &self,
        session: &SessionId,
        environment: SessionEnvironment,
    ) -> Result<Arc<OpenSession>, acp::Error> {
        let data = SessionData::new(&environment);
        let model = environment.model.clone();
        let options = SessionOptions { model, ..open_session::options(environment) };
        let opened = self.open_sessions.open_stored(session.clone(), options, data).await;
        let open_session = opened.map_err(|error| open_session::open_error(&error))?;
        open_session::set_first_mode(&open_session);
        Ok(open_session)
    }
}
