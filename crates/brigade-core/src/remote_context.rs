//! Context that accompanies work in another process: over MCP and ACP, and back into Brigade.
//!
//! The sending process states its position in the tree and the remaining resources. The receiving process stays
//! within them, so that a loop through another program meets the same limits as one inside.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::grant::{Authority, Budget};
use crate::money::Resources;
use crate::permission::Mode;
use crate::sandbox::SandboxMode;

/// `_meta` key of the remote context.
const META_KEY: &str = "brigade/hop";

/// Maximum number of sessions in the lineage.
const MAX_LINEAGE_LEN: usize = 64;
/// Maximum length of a session's name.
const MAX_NAME_BYTES: usize = 512;

/// Lineage and remaining resources of remote work. An absent field limits nothing: another program may not know it,
/// and the receiver's own settings apply in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteContext {
    /// Ancestor sessions, root first; of each process the one that passed the work on.
    pub lineage: Vec<String>,
    /// Depth of the session that receives the work. A session that represents its caller, or an agent that its
    /// caller started, has the same depth.
    pub depth: u32,
    /// Maximum depth of any session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "deepest")]
    pub max_depth: Option<u32>,
    /// Deadline in UTC milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Remaining tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Remaining nano-dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<u64>,
    /// Number of agents that may still be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<u64>,
    /// Permission mode of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Widest sandbox of the caller's commands. Absent if the caller has none, or is of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
}

/// Error for an invalid entry of a `_meta` object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`_meta.{key}`: {cause}")]
pub struct InvalidMeta {
    pub(crate) key: &'static str,
    pub(crate) cause: String,
}

impl RemoteContext {
    /// Reads the context of a `_meta` object, if it contains one. An invalid context is an error: ignoring it would
    /// remove all limits.
    pub fn from_meta(meta: &Map<String, Value>) -> Result<Option<RemoteContext>, InvalidMeta> {
        let Some(value) = meta.get(META_KEY) else { return Ok(None) };
        let invalid = |cause| InvalidMeta { key: META_KEY, cause };
        let remote_context: RemoteContext =
            serde_json::from_value(value.clone()).map_err(|cause| invalid(cause.to_string()))?;
        if remote_context.lineage.len() > MAX_LINEAGE_LEN {
            return Err(invalid(format!("more than {MAX_LINEAGE_LEN} sessions in the lineage")));
        }
        let is_name = |name: &String| {
            (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !remote_context.lineage.iter().all(is_name) {
            return Err(invalid("the lineage contains an invalid session id".to_owned()));
        }
        Ok(Some(remote_context))
    }

    /// Writes the context into a `_meta` object.
    pub fn write_meta(&self, meta: &mut Map<String, Value>) {
        if let Ok(value) = serde_json::to_value(self) {
            meta.insert(META_KEY.to_owned(), value);
        }
    }

    /// Narrows the authority of the receiving session, which is never wider than `local`.
    pub fn narrow(&self, mut local: Authority) -> Authority {
        local.max_depth = self.max_depth.map_or(local.max_depth, |max_depth| max_depth.min(local.max_depth));
        if let Some(mode) = self.mode {
            local.permissions = local.permissions.narrowed_to(mode.min(local.permissions.mode));
        }
        local.sandbox = narrower(local.sandbox, self.sandbox);
        local
    }

    /// Returns the context that stays within both. Its lineage comes from the deeper of the two, or from `later` if
    /// both are equally deep.
    #[must_use]
    pub fn intersect(&self, later: &RemoteContext) -> RemoteContext {
        let from = if later.depth >= self.depth { later } else { self };
        RemoteContext {
            lineage: from.lineage.clone(),
            depth: from.depth,
            max_depth: narrower(self.max_depth, later.max_depth),
            deadline: narrower(self.deadline, later.deadline),
            tokens: narrower(self.tokens, later.tokens),
            usd: narrower(self.usd, later.usd),
            agents: narrower(self.agents, later.agents),
            mode: narrower(self.mode, later.mode),
            sandbox: narrower(self.sandbox, later.sandbox),
        }
    }

    /// Returns the context that stays within those of both that are present.
    pub fn intersect_present(
        first: Option<RemoteContext>,
        later: Option<&RemoteContext>,
    ) -> Option<RemoteContext> {
        match (first, later) {
            (Some(first), Some(later)) => Some(first.intersect(later)),
            (first, later) => first.or_else(|| later.cloned()),
        }
    }

    /// Replaces the remaining resources.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> RemoteContext {
        RemoteContext {
            tokens: budget.tokens.at_most(),
            usd: budget.usd.at_most(),
            agents: budget.agents.at_most(),
            ..self
        }
    }

    /// Returns the context with the resources left after `used`.
    #[must_use]
    pub fn minus(&self, used: Resources) -> RemoteContext {
        let left = |number: Option<u64>, used: u64| number.map(|number| number.saturating_sub(used));
        RemoteContext {
            tokens: left(self.tokens, used.tokens),
            usd: left(self.usd, used.usd),
            agents: left(self.agents, used.agents),
            ..self.clone()
        }
    }

    /// Caps the budget of the receiving session.
    pub fn cap_budget(&self, local: Budget) -> Budget {
        local.min(Budget { tokens: self.tokens.into(), usd: self.usd.into(), agents: self.agents.into() })
    }
}

/// Returns the narrower of two optional limits.
fn narrower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grant::Limit;

    fn meta(remote_context: Value) -> Map<String, Value> {
        Map::from_iter([(META_KEY.to_owned(), remote_context)])
    }

    #[test]
    fn remote_context_round_trips_through_meta() {
        let remote_context = RemoteContext {
            lineage: vec!["abc".to_owned(), "abc.1-1".to_owned()],
            depth: 3,
            max_depth: Some(5),
            deadline: Some(7),
            tokens: Some(11),
            usd: None,
            agents: Some(0),
            mode: Some(Mode::Edit),
            sandbox: Some(SandboxMode::Workspace),
        };
        let mut meta = Map::new();
        assert_eq!(RemoteContext::from_meta(&meta), Ok(None));
        remote_context.write_meta(&mut meta);
        assert_eq!(RemoteContext::from_meta(&meta), Ok(Some(remote_context)));
    }

    #[test]
    fn invalid_remote_context_is_rejected() {
        for bad in [
            json!("deep"),
            json!({"depth": -1}),
            json!({"depth": 4_294_967_296_u64}),
            json!({"lineage": ["a b"]}),
            json!({"lineage": [""]}),
            json!({"lineage": vec!["a"; 65]}),
            json!({"tokens": "many"}),
            json!({"mode": "root"}),
            json!({"sandbox": "wide"}),
        ] {
            assert!(RemoteContext::from_meta(&meta(bad.clone())).is_err(), "{bad}");
        }
        assert_eq!(RemoteContext::from_meta(&meta(json!({}))), Ok(Some(RemoteContext::default())));
        assert!(RemoteContext::from_meta(&meta(json!({"later": 1}))).is_ok());
    }

    #[test]
    fn intersect_takes_the_narrower_of_both() {
        let one = RemoteContext {
            lineage: vec!["one".to_owned()],
            depth: 2,
            max_depth: Some(9),
            deadline: Some(100),
            tokens: Some(10),
            usd: None,
            agents: Some(3),
            mode: Some(Mode::Plan),
            sandbox: Some(SandboxMode::Workspace),
        };
        let two = RemoteContext {
            lineage: vec!["two".to_owned()],
            depth: 1,
            max_depth: Some(4),
            deadline: Some(200),
            tokens: None,
            usd: Some(7),
            agents: Some(5),
            mode: Some(Mode::Auto),
            sandbox: Some(SandboxMode::Off),
        };
        let both = RemoteContext { max_depth: Some(4), usd: Some(7), ..one.clone() };
        assert_eq!((one.intersect(&two), two.intersect(&one)), (both.clone(), both));
        assert_eq!(one.intersect(&RemoteContext::default()), one);
        assert_eq!(RemoteContext::default().intersect(&one), one);
        let alike = RemoteContext { depth: 2, ..two.clone() };
        assert_eq!(one.intersect(&alike).lineage, alike.lineage);
    }

    #[test]
    fn minus_subtracts_used_resources() {
        let remote_context =
            RemoteContext { tokens: Some(10), agents: Some(1), depth: 3, ..RemoteContext::default() };
        let left = remote_context.minus(Resources { tokens: 4, usd: 5, agents: 2 });
        assert_eq!(left, RemoteContext { tokens: Some(6), agents: Some(0), ..remote_context });
    }

    #[test]
    fn remote_context_only_narrows() {
        let local = Authority { max_depth: 4, ..Authority::default() };
        let wide = RemoteContext { max_depth: Some(9), mode: Some(Mode::Auto), ..RemoteContext::default() };
        assert_eq!(wide.narrow(local.clone()), local);
        let deep = RemoteContext { max_depth: Some(2), ..RemoteContext::default() };
        assert_eq!(deep.narrow(local).max_depth, 2);
        let budget = Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED };
        let remote_context = RemoteContext { tokens: Some(20), agents: Some(1), ..RemoteContext::default() };
        let within = remote_context.cap_budget(budget);
        assert_eq!((within.tokens, within.agents), (Limit::AtMost(10), Limit::AtMost(1)));
    }

    #[test]
    fn lineage_is_bounded() {
        let read = |names: Vec<String>| RemoteContext::from_meta(&meta(json!({ "lineage": names })));
        let lineage = |names| read(names).map_err(|error| error.to_string());
        let names = |count: usize, length: usize| vec!["n".repeat(length); count];
        assert_eq!(lineage(names(64, 512)).unwrap().unwrap().lineage, names(64, 512));
        let too_many = "`_meta.brigade/hop`: more than 64 sessions in the lineage";
        assert_eq!(lineage(names(65, 1)), Err(too_many.to_owned()));
        let invalid = "`_meta.brigade/hop`: the lineage contains an invalid session id";
        for bad in ["n".repeat(513), String::new(), "a\u{7f}".to_owned(), "\u{e9}".to_owned()] {
            assert_eq!(lineage(vec!["good".to_owned(), bad]), Err(invalid.to_owned()));
        }
    }

    #[test]
    fn absent_limits_are_not_written() {
        let mut meta = Map::new();
        RemoteContext { lineage: vec!["a".to_owned()], depth: 2, ..RemoteContext::default() }
            .write_meta(&mut meta);
        assert_eq!(Value::Object(meta), json!({"brigade/hop": {"lineage": ["a"], "depth": 2}}));
    }

    #[test]
    fn narrower_mode_applies() {
        let mode_of = |local: Mode, remote: Option<Mode>| {
            let mut authority = Authority::default();
            authority.permissions.mode = local;
            let remote_context = RemoteContext { mode: remote, ..RemoteContext::default() };
            remote_context.narrow(authority).permissions.mode
        };
        assert_eq!(mode_of(Mode::Auto, Some(Mode::Ask)), Mode::Ask);
        assert_eq!(mode_of(Mode::Ask, Some(Mode::Auto)), Mode::Ask);
        assert_eq!(mode_of(Mode::Edit, None), Mode::Edit);
    }

    #[test]
    fn narrower_sandbox_applies() {
        use SandboxMode::{Off, ReadOnly, Workspace};
        let sandbox_of = |local: Option<SandboxMode>, remote: Option<SandboxMode>| {
            let authority = Authority { sandbox: local, ..Authority::default() };
            RemoteContext { sandbox: remote, ..RemoteContext::default() }.narrow(authority).sandbox
        };
        assert_eq!(sandbox_of(Some(Off), Some(Workspace)), Some(Workspace));
        assert_eq!(sandbox_of(Some(ReadOnly), Some(Workspace)), Some(ReadOnly));
        assert_eq!(sandbox_of(None, Some(ReadOnly)), Some(ReadOnly));
        // An older version does not send it.
        assert_eq!(sandbox_of(Some(Workspace), None), Some(Workspace));
        assert_eq!(sandbox_of(None, None), None);
    }

    #[test]
    fn budget_round_trips_through_the_context() {
        let at_most = Limit::AtMost;
        let budget = Budget { tokens: at_most(1), usd: at_most(2), agents: at_most(3) };
        let before =
            RemoteContext { depth: 4, tokens: Some(9), deadline: Some(5), ..RemoteContext::default() };
        let limited = before.clone().with_budget(budget);
        let (tokens, usd, agents) = (Some(1), Some(2), Some(3));
        assert_eq!(limited, RemoteContext { tokens, usd, agents, ..before.clone() });
        assert_eq!(limited.cap_budget(Budget::UNLIMITED), budget);
        let unlimited = before.clone().with_budget(Budget::UNLIMITED);
        assert_eq!(unlimited, RemoteContext { tokens: None, ..before });
        let local = Budget { tokens: at_most(0), usd: at_most(7), agents: Limit::Unlimited };
        assert_eq!(unlimited.cap_budget(local), local);
        assert_eq!(limited.cap_budget(local), Budget { tokens: at_most(0), ..budget });
        let (tokens, usd, agents) = (Some(10), Some(20), Some(30));
        let left = RemoteContext { tokens, usd, agents, ..limited }.minus(Resources {
            tokens: 1,
            usd: 2,
            agents: 3,
        });
        assert_eq!((left.tokens, left.usd, left.agents), (Some(9), Some(18), Some(27)));
    }
}
