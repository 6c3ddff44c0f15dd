//! The agent from a client's point of view: JSON lines over a pipe, a scripted model and an in-memory store.

mod children;
mod input;
mod permission_requests;
mod prompts;
mod remote_context;
mod sessions;
mod support;
