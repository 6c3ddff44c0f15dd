//! Opening sessions: new ones, and those on record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol::v1::schema as acp;
use brigade_core::{Record, SessionId};
use serde_json::Value;

use super::super::narrator::{Narrator, When};
use super::super::{Desk, choices, peer, prompt, refusal, seat::Seat, servers};
use super::{Client, Office};

impl Office {
    pub(super) async fn open_new(
        &self,
        params: Value,
    ) -> Result<(Arc<Seat>, acp::NewSessionResponse), acp::Error> {
        let hop = prompt::hop(&params)?;
        let request: acp::NewSessionRequest = peer::params(params)?;
        let desk = self.desk(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let session = desk.runtime.new_session().map_err(|error| refusal::run(&error))?;
        let seat = self.sit(Seat::new(session, desk, hop))?;
        let response = acp::NewSessionResponse::new(seat.session.as_str().to_owned())
            .modes(choices::modes(&seat))
            .config_options(choices::options(&seat));
        Ok((seat, response))
    }

    /// Opens a session on record and tells what was said and done in it.
    pub(super) async fn load(
        &self,
        client: &Client,
        params: Value,
    ) -> Result<(Arc<Seat>, acp::LoadSessionResponse), acp::Error> {
        let request: acp::LoadSessionRequest = peer::params(params)?;
        let (session, records) = self.on_record(&request.session_id).await?;
        let desk = self.desk(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let workspace = desk.runtime.settings().workspace.root().to_path_buf();
        let seat = self.sit(Seat::recorded(session.clone(), desk, &records).await)?;
        let mut narrator = Narrator::new(session, workspace, client.children, When::Before);
        for update in narrator.tell(&records) {
            self.peer.update(&update).await;
        }
        let response = acp::LoadSessionResponse::new()
            .modes(choices::modes(&seat))
            .config_options(choices::options(&seat));
        Ok((seat, response))
    }

    /// Opens a session on record, for a client that knows what was said.
    pub(super) async fn resume(
        &self,
        params: Value,
    ) -> Result<(Arc<Seat>, acp::ResumeSessionResponse), acp::Error> {
        let request: acp::ResumeSessionRequest = peer::params(params)?;
        let (session, records) = self.on_record(&request.session_id).await?;
        let desk = self.desk(&request.cwd, &request.additional_directories, request.mcp_servers).await?;
        let seat = self.sit(Seat::recorded(session, desk, &records).await)?;
        let response = acp::ResumeSessionResponse::new()
            .modes(choices::modes(&seat))
            .config_options(choices::options(&seat));
        Ok((seat, response))
    }

    async fn on_record(&self, id: &acp::SessionId) -> Result<(SessionId, Vec<Record>), acp::Error> {
        let session = refusal::read_id(&id.0)?;
        let records = self.host.store().read(&session, 0).await;
        let records = records.map_err(|error| refusal::run(&error.into()))?;
        if records.is_empty() {
            return Err(refusal::session(&id.0));
        }
        Ok((session, records))
    }

    async fn desk(
        &self,
        folder: &Path,
        more_folders: &[PathBuf],
        servers: Vec<acp::McpServer>,
    ) -> Result<Desk, acp::Error> {
        if !folder.is_absolute() || !folder.is_dir() {
            let folder = folder.display();
            return Err(refusal::params(format!(
                "`cwd` is an absolute folder that is there; {folder} is not"
            )));
        }
        if !more_folders.is_empty() {
            return Err(refusal::params(
                "a session works in one folder; `additionalDirectories` are not supported",
            ));
        }
        let desk = self.host.desk(folder).await.map_err(refusal::failed)?;
        servers::add(desk, servers, &*self.host).await
    }

    /// Keeps the session open. One that is at work is not replaced.
    fn sit(&self, seat: Seat) -> Result<Arc<Seat>, acp::Error> {
        let mut seats = self.seats();
        if seats.get(&seat.session).is_some_and(|seat| seat.is_busy()) {
            return Err(refusal::request("the session is open already, and at work"));
        }
        let seat = Arc::new(seat);
        seats.insert(seat.session.clone(), seat.clone());
        Ok(seat)
    }
}
