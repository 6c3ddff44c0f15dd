//! Sessions that a caller may access, and the sender of its messages.

use brigade_core::event::Speaker;
use brigade_core::{Event, RemoteContext, SessionId};

/// Sessions that a caller may access.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Every session that was started through a server, for clients that are not Brigade agents.
    All,
    /// Those that the agent with this lineage or its descendants started.
    Descendants(Vec<String>),
}

impl Visibility {
    /// The visibility for a caller with this remote context.
    pub(crate) fn of(remote_context: Option<&RemoteContext>) -> Visibility {
        remote_context
            .map_or(Visibility::All, |remote_context| Visibility::Descendants(remote_context.lineage.clone()))
    }

    /// Whether the tree that starts with this event is visible.
    pub(crate) fn covers(&self, first: &Event) -> bool {
        let Visibility::Descendants(lineage) = self else { return true };
        let Event::Started { delegation, .. } = first else { return false };
        let Some(started_from) = &delegation.remote_context else { return false };
        // An agent without a lineage has started nothing.
        let Some((caller, above)) = lineage.split_last() else { return false };
        let starter = started_from.lineage.get(above.len());
        started_from.lineage.starts_with(above) && starter.is_some_and(|starter| is_below(caller, starter))
    }

    /// The sender of the caller's messages.
    pub(crate) fn speaker(&self) -> Speaker {
        match self {
            Visibility::All => Speaker::Person,
            Visibility::Descendants(_) => Speaker::Parent,
        }
    }
}

/// Whether this is the session itself or one of its descendants.
fn is_below(caller: &str, other: &str) -> bool {
    match (caller.parse::<SessionId>(), other.parse()) {
        (Ok(caller), Ok(other)) => caller.contains(&other),
        _ => caller == other,
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::grant::Grant;
    use brigade_core::{Budget, Delegation, Hash, Limit};

    use super::*;

    fn started(lineage: Option<&[&str]>) -> Event {
        let names = |lineage: &[&str]| lineage.iter().map(|name| (*name).to_owned()).collect();
        let remote_context = lineage
            .map(|lineage| Box::new(RemoteContext { lineage: names(lineage), ..RemoteContext::default() }));
        Event::Started {
            delegation: Delegation { remote_context, ..Delegation::default() }.into(),
            agent: Hash::of(b""),
            grant: Grant {
                authority: Hash::of(b""),
                budget: Budget::UNLIMITED,
                turns: 1,
                deadline: Limit::Unlimited,
            },
            parent: None,
            depth: 1,
        }
    }

    #[test]
    fn agent_sees_sessions_started_by_it_or_below() {
        let (tree, other) = (SessionId::root(1).to_string(), SessionId::root(2).to_string());
        let (child, sibling) = (format!("{tree}.1-0"), format!("{tree}.1-1"));
        let visibility = Visibility::Descendants(vec!["far".to_owned(), child.clone()]);
        let below = format!("{child}.2-0");
        for within in [&["far", &child][..], &["far", &child, &other], &["far", &below]] {
            assert!(visibility.covers(&started(Some(within))), "{within:?}");
        }
        for outside in [
            &["far"][..],
            &[],
            &["far", &tree],
            &["far", &sibling],
            &["near", &child],
            &[&child],
            &["far", &other, &child],
        ] {
            assert!(!visibility.covers(&started(Some(outside))), "{outside:?}");
        }
        assert!(!visibility.covers(&started(None)));
        assert!(!Visibility::Descendants(Vec::new()).covers(&started(Some(&["far"]))));
        assert!(Visibility::All.covers(&started(None)));
    }
}
