//! Checks of the configuration files.

use super::Finding;
use crate::settings::{Layer, LayerState};
use crate::summary::shell_quoted;

/// One finding per configuration layer.
pub(super) fn findings(layers: &[Layer]) -> Vec<Finding> {
    layers.iter().map(finding).collect()
}

fn finding(layer: &Layer) -> Finding {
    let place = &layer.source;
    match &layer.state {
        LayerState::Used => Finding::ok(place),
        LayerState::Absent => Finding::note(format!("{place} is not there; brigade init writes one")),
        LayerState::Untrusted(reason) => Finding::warn(
            format!("{place}: {reason}"),
            format!("Look and decide: brigade trust {}", shell_quoted(place)),
        ),
        LayerState::Broken(cause) => {
            let text = if cause.contains(place) { cause.clone() } else { format!("{place}: {cause}") };
            Finding::problem(text, "Mend it; it was left out for the rest of this report")
        }
    }
}
