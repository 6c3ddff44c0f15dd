//! Section `shell`: environment variables of the user that agents' commands get.
//!
//! Commands get the user's environment, so that tests find their tools. Variables that look like secrets are
//! withheld: by their name, by their value, or because a provider uses them. `shell.env` adds variables, and
//! `shell.deny_env` removes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use brigade::Secret;

use super::{Environment, Settings};
use crate::error::CliError;

/// Parts of names that mark the value as a secret.
const SECRET_PARTS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];
/// Suffixes of names that mark the value as a secret.
const SECRET_SUFFIXES: [&str; 4] = ["_PASS", "_PWD", "_PAT", "_AUTH"];
/// Suffixes of variables whose value is no secret, but names one.
const NAMING_SUFFIXES: [&str; 5] = ["_DIR", "_ENV", "_FILE", "_NAME", "_PATH"];
/// Prefix of our own variables.
pub(super) const BRIGADE_PREFIX: &str = "BRIGADE_";
/// Variables that describe the user's shell and are wrong for another one.
const SHELL_STATE_VARIABLES: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

/// Section `shell`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawShell {
    /// Variables to pass to commands although they look like secrets, such as DATABASE_URL or AWS_*.
    env: Vec<String>,
    /// Variables to withhold from commands; overrides `env`.
    deny_env: Vec<String>,
}

impl RawShell {
    pub(super) fn resolve(self) -> Result<ShellEnv, CliError> {
        let RawShell { env, deny_env } = self;
        for (key, names) in [("env", &env), ("deny_env", &deny_env)] {
            if let Some(name) = names.iter().find(|name| !is_pattern(name)) {
                return Err(CliError::usage(format!(
                    "shell.{key}: `{name}` is not the name of a variable. Use names such as DATABASE_URL, or \
                     prefixes such as AWS_*."
                )));
            }
        }
        Ok(ShellEnv { env, deny_env })
    }
}

/// Changes to the environment of commands.
#[derive(Debug, Clone)]
pub(crate) struct ShellEnv {
    env: Vec<String>,
    deny_env: Vec<String>,
}

/// Reason why commands do not get a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// Its name marks it as a secret.
    Name,
    /// Its value contains a user name and a password.
    Value,
    /// It is one of our own.
    BrigadeVariable,
    /// It contains the key of a provider or of the search engine.
    Provider,
    /// `shell.deny_env` names it.
    Denied,
}

impl ShellEnv {
    /// Variables that commands get. Values that `shell.env` adds are read now and not stored.
    pub(crate) fn variables(
        &self,
        environment: &Environment,
        is_key: impl Fn(&str) -> bool,
    ) -> Vec<(String, String)> {
        let value = |name: &str| environment.variable(name).map(|value| (name.to_owned(), value));
        let names = environment.variable_names.iter().map(|(name, _)| name.as_str());
        names.filter(|name| self.withheld(environment, name, &is_key).is_none()).filter_map(value).collect()
    }

    /// Variables that commands do not get, by name, each with the reason.
    pub(crate) fn all_withheld<'e>(
        &self,
        environment: &'e Environment,
        is_key: impl Fn(&str) -> bool,
    ) -> Vec<(&'e str, Withheld)> {
        let names = environment.variable_names.iter().map(|(name, _)| name.as_str());
        names.filter_map(|name| Some((name, self.withheld(environment, name, &is_key)?))).collect()
    }

    /// Names in `shell.env` that are not set, and so have no effect.
    pub(crate) fn missing<'s>(&'s self, environment: &Environment) -> Vec<&'s str> {
        let is_set =
            |pattern: &str| environment.variable_names.iter().any(|(name, _)| matches_pattern(pattern, name));
        self.env.iter().map(String::as_str).filter(|pattern| !is_set(pattern)).collect()
    }

    fn withheld(
        &self,
        environment: &Environment,
        name: &str,
        is_key: &impl Fn(&str) -> bool,
    ) -> Option<Withheld> {
        let is_in = |list: &[String]| list.iter().any(|pattern| matches_pattern(pattern, name));
        if is_in(&self.deny_env) {
            return Some(Withheld::Denied);
        }
        if is_in(&self.env) {
            return None;
        }
        let found = environment.variable_names.iter().find(|(known, _)| known == name);
        let by_itself = found.and_then(|(_, withheld)| *withheld);
        by_itself.or_else(|| is_key(name).then_some(Withheld::Provider))
    }
}

impl Settings {
    /// Secrets in the environment: keys, and values of variables that commands do not get.
    pub(crate) fn environment_secrets(&self) -> Vec<Secret> {
        let is_key = |name: &str| self.has_key_in(name);
        let withheld = self.shell.all_withheld(&self.environment, is_key);
        let secret_names = withheld.into_iter().filter(|(name, reason)| match reason {
            Withheld::Provider => true,
            Withheld::Name | Withheld::Value | Withheld::Denied | Withheld::BrigadeVariable => {
                let value = self.environment.variable(name).unwrap_or_default();
                is_secret_variable(name, &value) && !NAMING_SUFFIXES.iter().any(|end| name.ends_with(end))
            }
        });
        let names = self.environment.variable_names.iter().map(|(name, _)| name.as_str());
        let names = secret_names.map(|(name, _)| name).chain(names.filter(|name| is_key(name)));
        names.filter_map(|name| self.environment.secret(name)).collect()
    }
}

/// Whether a variable looks like a secret.
pub(crate) fn is_secret_variable(name: &str, value: &str) -> bool {
    has_secret_name(name) || (name != "PATH" && has_password(value))
}

fn has_secret_name(name: &str) -> bool {
    let upper = name.to_uppercase();
    SECRET_PARTS.iter().any(|part| upper.contains(part))
        || SECRET_SUFFIXES.iter().any(|end| upper.ends_with(end))
}

/// Whether a variable can be part of the environment of commands at all: it is valid text and does not describe
/// another shell.
pub(super) fn can_pass_on(name: &str, value: Option<&str>) -> bool {
    value.is_some() && !name.is_empty() && !SHELL_STATE_VARIABLES.contains(&name)
}

/// Reason to withhold a variable that follows from its name and value alone.
pub(super) fn withheld(name: &str, value: &str) -> Option<Withheld> {
    if name.to_uppercase().starts_with(BRIGADE_PREFIX) {
        return Some(Withheld::BrigadeVariable);
    }
    if has_secret_name(name) {
        return Some(Withheld::Name);
    }
    (name != "PATH" && has_password(value)).then_some(Withheld::Value)
}

/// Whether a text contains `user:password@`, as addresses of databases, proxies and registries do.
fn has_password(value: &str) -> bool {
    value.split(char::is_whitespace).any(|word| match word.split_once("://") {
        // A password in an address may contain anything, so the last `@` is used.
        Some((_, address)) => {
            address.rsplit_once('@').is_some_and(|(before, _)| is_user_and_password(before))
        }
        None => word.split('@').rev().skip(1).any(ends_with_user_and_password),
    })
}

/// Whether the start of an address contains a password, and not just a port.
fn is_user_and_password(before: &str) -> bool {
    before.split_once(':').is_some_and(|(_, rest)| match rest.split_once('/') {
        Some((port, _)) => !port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    })
}

fn ends_with_user_and_password(before: &str) -> bool {
    let part = before.rsplit(['/', ',', ';', '=', '"', '\'']).next().unwrap_or_default();
    part.split_once(':').is_some_and(|(user, password)| !user.is_empty() && !password.is_empty())
}

/// Whether a pattern is a name or a prefix of names.
fn is_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    !name.is_empty() && is_plain && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_withheld_in_any_case() {
        for name in [
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "npm_token",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
            "MYSQL_PASSWD",
            "GPG_PASSPHRASE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GITHUB_PAT",
            "COMPOSER_AUTH",
        ] {
            assert_eq!(withheld(name, "x"), Some(Withheld::Name), "{name}");
        }
        assert_eq!(withheld("BRIGADE_MODEL", "x"), Some(Withheld::BrigadeVariable));
        for name in
            ["PATH", "CARGO_HOME", "VIRTUAL_ENV", "JAVA_HOME", "CI", "HTTPS_PROXY", "SSH_AUTH_SOCK", "LC_ALL"]
        {
            assert_eq!(withheld(name, "/some/where"), None, "{name}");
        }
    }

    #[test]
    fn values_with_a_password_are_withheld() {
        for value in [
            "postgres://me:secret@db.example/app",
            "postgres://me:p@ss/w:rd@db.example/app",
            "http://user:pw@proxy:8080",
            "user:pw@tcp(db:3306)/app",
            "server=db;login=user:pw@db",
            "one two https://a:b@c three",
            "redis://:secret@cache:6379",
            "amqp://me:pa/ss@queue",
        ] {
            assert_eq!(withheld("X", value), Some(Withheld::Value), "{value}");
        }
        for value in [
            "http://proxy:8080",
            "https://example.org/a@b",
            "http://registry:4873/@scope",
            "git@github.com:owner/name",
            "ssh://git@github.com/owner/name",
            "unix:path=/run/user/1000/bus",
            "/opt/node@18/bin:/opt/python@3/bin",
            "me@example.org",
            ":@",
            "",
        ] {
            assert_eq!(withheld("X", value), None, "{value}");
        }
        assert_eq!(withheld("PATH", "a:b@c"), None);
    }

    #[test]
    fn patterns_are_names_or_prefixes() {
        for good in ["DATABASE_URL", "AWS_*", "_x", "a1*"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", "*", "A=b", "A B", "1A", "A*B", "${A}"] {
            assert!(!is_pattern(bad), "{bad}");
        }
        assert!(
            matches_pattern("AWS_*", "AWS_REGION")
                && !matches_pattern("AWS_*", "XAWS_")
                && !matches_pattern("AWS", "AWS_REGION")
        );
    }
}
