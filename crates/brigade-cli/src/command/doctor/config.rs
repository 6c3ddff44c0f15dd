//! Checks of the configuration files.

use super::Finding;
use crate::settings::{Layer, LayerKind, LayerState};
use crate::summary::shell_quoted;

/// One finding per configuration layer.
pub(super) fn findings(layers: &[Layer]) -> Vec<Finding> {
    layers.iter().map(finding).collect()
}

fn finding(layer: &Layer) -> Finding {
    let place = &layer.source;
    match &layer.state {
        LayerState::Used => Finding::ok(place),
        LayerState::Absent => Finding::note(format!("{place} does not exist. Create it with: brigade init")),
        LayerState::Untrusted(reason) => Finding::warn(
            format!("{place}: {reason}"),
            format!("Review it, then trust it with: brigade trust {}", shell_quoted(place)),
        ),
        LayerState::Broken(cause) => {
            let text = if cause.contains(place) { cause.clone() } else { format!("{place}: {cause}") };
            let fix = match layer.kind {
                LayerKind::File => "Fix this file; the rest of this report ignores it",
                LayerKind::Project => "Fix this problem; the rest of this report ignores the project",
                LayerKind::Variable => "Correct or unset this variable; the rest of this report ignores it",
                LayerKind::Flag => "Correct or omit this flag; the rest of this report ignores it",
            };
            Finding::problem(text, fix)
        }
    }
}
