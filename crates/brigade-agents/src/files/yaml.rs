//! YAML parsing with limits on expansion.

use serde_json::Value;
use serde_saphyr::Options;

use super::problem::DefinitionError;

/// Reason why a text was not parsed as YAML.
#[derive(Debug)]
pub(super) enum Error {
    /// The text is not valid YAML.
    Invalid(DefinitionError),
    /// The text is YAML that expands to more than any definition needs.
    Bomb(DefinitionError),
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_nodes: 20_000,
            max_depth: 24,
            flow_nesting_limit: 24,
            max_aliases: 64,
            max_anchors: 64,
            max_documents: 1,
            max_merge_keys: 16,
            max_recorded_anchor_events: 20_000,
            max_recorded_anchor_bytes: 1 << 20,
            max_total_scalar_bytes: 4 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        // `no` and `on` are strings here; keys that expect a boolean convert them.
        strict_booleans: true,
        // A snippet would show the text around the error, which may contain an API key.
        with_snippet: false,
    }
}

/// Parses YAML and distinguishes the kinds of errors.
pub(super) fn read(text: &str) -> Result<Value, Error> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let line = error.location().and_then(|place| u32::try_from(place.line()).ok());
        match is_bomb(&error) {
            true => Error::Bomb(DefinitionError {
                line,
                cause: "exceeds the YAML limits: nested too deeply, too many keys or too many aliases"
                    .to_owned(),
            }),
            false => Error::Invalid(DefinitionError {
                line,
                cause: format!("not valid YAML: {}", short_message(&error)),
            }),
        }
    })
}

/// Parses YAML with one kind of error.
pub(super) fn parse(text: &str) -> Result<Value, DefinitionError> {
    read(text).map_err(|error| match error {
        Error::Invalid(fault) | Error::Bomb(fault) => fault,
    })
}

fn is_bomb(error: &serde_saphyr::Error) -> bool {
    use serde_saphyr::Error::{
        AliasError, AliasExpansionLimitExceeded, AliasReplayCounterOverflow, AliasReplayLimitExceeded,
        AliasReplayStackDepthExceeded, Budget,
    };
    match error.without_snippet() {
        AliasError { error, .. } => is_bomb(error),
        Budget { .. }
        | AliasExpansionLimitExceeded { .. }
        | AliasReplayCounterOverflow { .. }
        | AliasReplayLimitExceeded { .. }
        | AliasReplayStackDepthExceeded { .. } => true,
        // The scanner has limits of its own and reports them only in the message.
        other => other.to_string().contains("limit exceeded"),
    }
}

/// Formats a parser error in one line, without its position, which is reported separately.
fn short_message(error: &serde_saphyr::Error) -> String {
    let shown = error.to_string();
    let first = shown.lines().next().unwrap_or_default();
    let cause = first.split(" at line ").next().unwrap_or(first);
    let cause = cause.strip_prefix("error: ").unwrap_or(cause);
    // Messages quote the input; keep only as much of it as helps.
    cause.chars().take(160).collect()
}
