//! Protocol between runner and guard: a ready byte, a job, a report.
//!
//! Job and report consist of a length (four bytes, little endian) and that many bytes of JSON. The output
//! follows the report as raw bytes, because JSON would make it several times as long.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Confinement, Enforcement, ExitReason, Job, OutputPiece, ResourceLimits};

/// Standard streams of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Streams {
    /// No input. Output and errors are kept for the report.
    #[default]
    Reported,
    /// Input and output are the socket that the guard got as its standard error. Errors are kept for the
    /// report.
    Carried,
}

/// The guard's first byte. It means that the guard is in the process table with its tag and waits for the
/// job.
pub(crate) const READY: u8 = b'R';

/// Byte that comes with the listener of a proxy, on the guard's standard input.
pub(crate) const PROXY: u8 = b'P';

/// Byte that comes with the namespaces of shared layers.
pub(crate) const LAYERS: u8 = b'L';

/// The guard's exit code if no complete job arrived and nothing was run.
pub(crate) const EXIT_NO_JOB: i32 = 3;

/// Maximum length of a job or report header. A longer one comes from a program that is not a guard.
pub(crate) const MAX_FRAME_BYTES: usize = 64 << 20;

/// The message to a guard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run a job. The namespaces of its shared layers come with the message.
    Run(Box<JobMessage>),
    /// Create shared layers.
    CreateLayers(LayersMessage),
}

/// Shared layers to create.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayersMessage {
    /// Directory for the changes.
    pub(crate) directory: OsString,
    /// Directories whose changes are shared.
    pub(crate) shared: Vec<OsString>,
}

/// Layers that a job uses.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobLayers {
    /// Directory for the changes of the command alone.
    pub(crate) directory: OsString,
    /// Directories with shared layers, in the order of their creation.
    pub(crate) shared: Vec<OsString>,
}

/// A job on the wire. Paths are bytes, because not every path is UTF-8.
///
/// An unknown or missing field is an error, because a job must not run with more rights than its sender meant.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobMessage {
    pub(crate) command: String,
    directory: Vec<u8>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) time_limit: Duration,
    pub(crate) output_limit: usize,
    pub(crate) limits: ResourceLimits,
    pub(crate) confinement: Confinement,
    #[serde(default)]
    pub(crate) streams: Streams,
    #[serde(default)]
    pub(crate) layers: Option<JobLayers>,
}

impl JobMessage {
    pub(crate) fn new(job: &Job, streams: Streams, layers: Option<JobLayers>) -> Self {
        Self {
            command: job.command.clone(),
            directory: job.directory.as_os_str().as_bytes().to_vec(),
            environment: job.environment.clone(),
            time_limit: job.time_limit,
            output_limit: job.output_limit,
            limits: job.limits,
            confinement: job.confinement.clone(),
            streams,
            layers,
        }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.directory.clone()))
    }
}

/// The guard's final report.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The command ran and all its processes have exited. `output_bytes` bytes of output follow.
    Finished {
        end: ExitReason,
        dropped_bytes: u64,
        duration: Duration,
        output_bytes: usize,
        #[serde(default)]
        recent: Vec<OutputPiece>,
        #[serde(default)]
        enforcement: Enforcement,
        #[serde(default)]
        removed: Vec<OsString>,
    },
    /// The shared layers of these directories exist. Their namespaces were sent.
    LayersCreated { shared: Vec<OsString> },
    /// The guard cannot enforce the confinement.
    CannotConfine { reason: String },
    /// The working directory cannot be used.
    Directory { reason: String },
    /// The command could not be started.
    CannotRun { reason: String },
}

/// Prefixes the JSON with its length.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    if body.len() > MAX_FRAME_BYTES {
        let text = format!("the message has {} bytes; the limit is {MAX_FRAME_BYTES}", body.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    Ok(frame)
}

/// Decodes the length prefix of a frame.
pub(crate) fn body_length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_FRAME_BYTES {
        let text = format!("the announced length is {length} bytes; the limit is {MAX_FRAME_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(length)
}

/// Parses the JSON of a frame.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_message_with_unknown_restriction_is_refused() {
        let confinement = Confinement::Sandbox(Box::default());
        let job = Job::new("true", "/", "tag", confinement.clone());
        let mut message = serde_json::to_value(JobMessage::new(&job, Streams::Reported, None)).unwrap();
        let read = |message: &serde_json::Value| parse::<JobMessage>(message.to_string().as_bytes());
        assert_eq!(read(&message).unwrap().confinement, confinement);
        message["confinement"]["sandbox"]["devices"] = "none".into();
        assert!(read(&message).unwrap_err().to_string().contains("devices"));
    }
}
