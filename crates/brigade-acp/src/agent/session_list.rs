//! `session/list`: the sessions that a client can open.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1 as acp;
use brigade::store::RootSummary;
use brigade::{Store, StoreError};
use brigade_core::grant::Authority;
use brigade_core::{Event, Record};

use super::{calls, errors, timestamp};

/// Number of sessions per page.
const PAGE_SIZE: usize = 50;

/// Returns a page of sessions, newest first. Unreadable sessions are left out, because they cannot be opened.
pub(super) async fn list(
    store: &dyn Store,
    request: &acp::ListSessionsRequest,
) -> Result<acp::ListSessionsResponse, acp::Error> {
    let failed = |error: StoreError| errors::failed(error.to_string());
    let roots = store.roots().await.map_err(failed)?;
    let mut rest = roots.iter();
    if let Some(cursor) = &request.cursor {
        rest.find(|summary| summary.root.as_str() == cursor)
            .ok_or_else(|| errors::params("invalid cursor. List the sessions again without a cursor."))?;
    }
    let wanted = request.cwd.as_deref().map(canonical);
    let mut sessions = Vec::new();
    let mut last = None;
    for summary in rest.by_ref() {
        if let Some(info) = info(store, summary).await
            && wanted.as_ref().is_none_or(|wanted| canonical(&info.cwd) == *wanted)
        {
            sessions.push(info);
        }
        if sessions.len() == PAGE_SIZE {
            last = Some(summary.root.to_string());
            break;
        }
    }
    let next = last.filter(|_| rest.next().is_some());
    Ok(acp::ListSessionsResponse::new(sessions).next_cursor(next))
}

async fn info(store: &dyn Store, summary: &RootSummary) -> Option<acp::SessionInfo> {
    let (first, last) = (summary.first.as_ref().ok()?, summary.last.as_ref().ok()?);
    let Event::Started { delegation, .. } = &first.event else { return None };
    let title = calls::brief(delegation.task.as_str());
    let info = acp::SessionInfo::new(summary.root.as_str().to_owned(), folder(store, first).await?)
        .title(title)
        .updated_at(timestamp::rfc3339(last.at));
    Some(info)
}

/// The directory in which a round ran.
async fn folder(store: &dyn Store, started: &Record) -> Option<PathBuf> {
    let Event::Started { grant, .. } = &started.event else { return None };
    let body = store.blob(grant.authority).await.ok().flatten()?;
    let authority: Authority = serde_json::from_str(&body).ok()?;
    Some(PathBuf::from(authority.workspace)).filter(|folder| folder.is_absolute())
}

/// Resolves symbolic links, as the recorded directories have them resolved.
fn canonical(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf())
}
