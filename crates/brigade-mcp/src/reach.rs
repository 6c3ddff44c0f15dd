//! Which sessions a caller may name, and in whose name it speaks to them.

use brigade_core::event::Speaker;
use brigade_core::{Event, Hop, SessionId};

/// How far a caller reaches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A client that is no agent of Brigade: to all that was started through a server.
    All,
    /// An agent, by its lineage: to what was started by it or below it, as inside a tree.
    Below(Vec<String>),
}

impl Reach {
    /// The reach of who calls from here.
    pub(crate) fn of(hop: Option<&Hop>) -> Reach {
        hop.map_or(Reach::All, |hop| Reach::Below(hop.lineage.clone()))
    }

    /// Whether the tree that began with this fact is within it.
    pub(crate) fn covers(&self, first: &Event) -> bool {
        let Reach::Below(lineage) = self else { return true };
        let Event::Started { delegation, .. } = first else { return false };
        let Some(begun) = &delegation.hop else { return false };
        // An agent that does not say who it is has started nothing.
        let Some((own, above)) = lineage.split_last() else { return false };
        let starter = begun.lineage.get(above.len());
        begun.lineage.starts_with(above) && starter.is_some_and(|starter| is_below(own, starter))
    }

    /// Who is heard where the caller speaks.
    pub(crate) fn speaker(&self) -> Speaker {
        match self {
            Reach::All => Speaker::Person,
            Reach::Below(_) => Speaker::Parent,
        }
    }
}

/// Whether this is the session itself, or one below it in the same tree.
fn is_below(own: &str, other: &str) -> bool {
    match (own.parse::<SessionId>(), other.parse()) {
        (Ok(own), Ok(other)) => own.contains(&other),
        _ => own == other,
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::grant::Grant;
    use brigade_core::{Budget, Delegation, Hash, Limit};

    use super::*;

    fn begun(lineage: Option<&[&str]>) -> Event {
        let names = |lineage: &[&str]| lineage.iter().map(|name| (*name).to_owned()).collect();
        let hop = lineage.map(|lineage| Box::new(Hop { lineage: names(lineage), ..Hop::default() }));
        Event::Started {
            delegation: Delegation { hop, ..Delegation::default() }.into(),
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
    fn an_agent_reaches_what_was_started_by_it_or_below_it() {
        let (tree, other) = (SessionId::root(1).to_string(), SessionId::root(2).to_string());
        let (child, sibling) = (format!("{tree}.1-0"), format!("{tree}.1-1"));
        let reach = Reach::Below(vec!["far".to_owned(), child.clone()]);
        let below = format!("{child}.2-0");
        for within in [&["far", &child][..], &["far", &child, &other], &["far", &below]] {
            assert!(reach.covers(&begun(Some(within))), "{within:?}");
        }
        for beyond in [
            &["far"][..],
            &[],
            &["far", &tree],
            &["far", &sibling],
            &["near", &child],
            &[&child],
            &["far", &other, &child],
        ] {
            assert!(!reach.covers(&begun(Some(beyond))), "{beyond:?}");
        }
        assert!(!reach.covers(&begun(None)));
        assert!(!Reach::Below(Vec::new()).covers(&begun(Some(&["far"]))));
        assert!(Reach::All.covers(&begun(None)));
    }
}
