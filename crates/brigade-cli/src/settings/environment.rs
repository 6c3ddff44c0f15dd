//! Environment variables, read once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use brigade::Secret;
use brigade::model::Proxies;

use super::SCRIPT_PREFIX;
use super::shell::{self, BRIGADE_PREFIX, Withheld};
use crate::error::CliError;

/// Folder of the configuration and the sessions. A path rather than a configuration key.
const HOME_VARIABLE: &str = "BRIGADE_HOME";

/// Level of the diagnostics, and their file. Not configuration keys, because they apply before any is read.
const LOG_VARIABLE: &str = "BRIGADE_LOG";
const LOG_FILE_VARIABLE: &str = "BRIGADE_LOG_FILE";

/// Variables that do not set configuration keys.
const OWN_VARIABLES: [&str; 3] = [HOME_VARIABLE, LOG_VARIABLE, LOG_FILE_VARIABLE];

/// Variables about diagnostics.
pub(crate) struct LogVariables {
    pub(crate) level: String,
    /// File that they are appended to, instead of standard error.
    pub(crate) file: Option<PathBuf>,
}

/// Values from the environment.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    /// Variables that set configuration keys, without their prefix: (`SWARM__MAX_DEPTH`, `2`).
    pub(crate) config_variables: Vec<(String, String)>,
    /// Names of variables that `shell` commands can get, each with the reason why it is withheld by default. The
    /// values are not stored.
    pub(crate) variable_names: Vec<(String, Option<Withheld>)>,
    /// Whether `NO_COLOR` is set.
    pub(crate) no_color: bool,
    /// Value of `TERM`.
    pub(crate) term: Option<String>,
    /// Whether diagnostics are written to standard error.
    pub(crate) logs_to_stderr: bool,
    home: Option<PathBuf>,
    brigade_home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    data_home: Option<PathBuf>,
    current_dir: PathBuf,
}

impl Environment {
    /// Reads the environment.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn read() -> Result<Environment, CliError> {
        let current_dir = std::env::current_dir()
            .map_err(|error| CliError::usage(format!("cannot determine the current directory: {error}")))?;
        Environment::from_variables(std::env::vars_os(), current_dir)
    }

    /// Variables about diagnostics, if `BRIGADE_LOG` is set. They are read before everything else.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn log_variables() -> Option<LogVariables> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let level = set(LOG_VARIABLE)?.to_string_lossy().into_owned();
        Some(LogVariables { level, file: set(LOG_FILE_VARIABLE).map(PathBuf::from) })
    }

    fn from_variables(
        variables: impl Iterator<Item = (OsString, OsString)>,
        current_dir: PathBuf,
    ) -> Result<Environment, CliError> {
        let mut found = Environment {
            config_variables: Vec::new(),
            variable_names: Vec::new(),
            no_color: false,
            term: None,
            logs_to_stderr: false,
            home: None,
            brigade_home: None,
            config_home: None,
            data_home: None,
            current_dir,
        };
        let (mut is_logging, mut has_log_file) = (false, false);
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            let place = || Some(PathBuf::from(&value)).filter(|path| path.is_absolute());
            match name {
                HOME_VARIABLE if !value.is_empty() => {
                    found.brigade_home = Some(found.current_dir.join(&value));
                }
                HOME_VARIABLE => {}
                LOG_VARIABLE => is_logging = !value.is_empty(),
                LOG_FILE_VARIABLE => has_log_file = !value.is_empty(),
                "HOME" => found.home = place(),
                // The XDG specification says that relative paths must be ignored.
                "XDG_CONFIG_HOME" => found.config_home = place(),
                "XDG_DATA_HOME" => found.data_home = place(),
                "NO_COLOR" => found.no_color = !value.is_empty(),
                "TERM" => found.term = value.to_str().map(str::to_owned),
                _ => {}
            }
            if let Some(key) = name.strip_prefix(BRIGADE_PREFIX)
                && !OWN_VARIABLES.contains(&name)
            {
                let text = value.to_str().ok_or_else(|| {
                    CliError::usage(format!("cannot read the variable {name}: it is not valid UTF-8"))
                })?;
                found.config_variables.push((key.to_owned(), text.to_owned()));
            }
            if shell::can_pass_on(name, value.to_str()) {
                let withheld = value.to_str().and_then(|value| shell::withheld(name, value));
                found.variable_names.push((name.to_owned(), withheld));
            }
        }
        found.logs_to_stderr = is_logging && !has_log_file;
        found.config_variables.sort();
        found.variable_names.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// Folder of the configuration.
    pub(super) fn config_folder(&self) -> Option<PathBuf> {
        self.folder(self.config_home.as_ref(), ".config")
    }

    /// File with the trusted projects.
    pub(crate) fn trusted_file(&self) -> Result<PathBuf, CliError> {
        Ok(self.data_folder().ok_or_else(no_home_error)?.join("trusted.json"))
    }

    /// File with the input history of chats.
    pub(crate) fn history_file(&self) -> Option<PathBuf> {
        Some(self.data_folder()?.join("chat-history"))
    }

    /// Whether a folder is the user's home, or the parent of `BRIGADE_HOME`.
    pub(crate) fn is_user_home(&self, folder: &Path) -> bool {
        let same =
            |home_dir: &Path, folder: &Path| home_dir.canonicalize().is_ok_and(|home_dir| home_dir == folder);
        self.home.as_deref().is_some_and(|home| same(home, folder))
            || self.brigade_home.as_deref().is_some_and(|home| same(home, &folder.join(".brigade")))
    }

    /// Folder of the sessions.
    pub(super) fn data_folder(&self) -> Option<PathBuf> {
        self.folder(self.data_home.as_ref(), ".local/share")
    }

    fn folder(&self, chosen: Option<&PathBuf>, below_home: &str) -> Option<PathBuf> {
        if let Some(home) = &self.brigade_home {
            return Some(home.clone());
        }
        let base = chosen.cloned().or_else(|| self.home.as_ref().map(|home| home.join(below_home)));
        base.map(|base| base.join("brigade"))
    }

    /// Home folder of the user.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Key in a variable, if it is set.
    pub(crate) fn secret(&self, name: &str) -> Option<Secret> {
        let key = self.variable(name)?;
        Some(key.trim()).filter(|key| !key.is_empty()).map(Secret::new)
    }

    /// Variable that the configuration names, such as one with a key. It is read each time, so that its value is not
    /// stored.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// Proxies from the environment, in upper or lower case. They are read each time, since they may contain a
    /// password.
    pub(crate) fn proxies(&self) -> Proxies {
        let first = |names: [&str; 2]| {
            names.iter().filter_map(|name| self.variable(name)).find(|value| !value.trim().is_empty())
        };
        Proxies {
            https: first(["HTTPS_PROXY", "https_proxy"]).map(Secret::new),
            exempt: first(["NO_PROXY", "no_proxy"]).unwrap_or_default(),
        }
    }

    /// Resolves a path against the current folder, without `.` components.
    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        self.current_dir.join(path).components().collect()
    }

    /// Model name that is valid in every folder. The path of a script becomes absolute.
    pub(crate) fn absolute_model(&self, model: &str) -> Result<String, CliError> {
        let Some(file) = model.strip_prefix(SCRIPT_PREFIX) else { return Ok(model.to_owned()) };
        let path = self.absolute(Path::new(file));
        let unreadable =
            |cause: &str| CliError::usage(format!("cannot read the script {}: {cause}", path.display()));
        let canonical = path.canonicalize().map_err(|error| unreadable(&error.to_string()))?;
        let text = canonical.to_str().ok_or_else(|| unreadable("its path is not valid UTF-8"))?;
        Ok(format!("{SCRIPT_PREFIX}{text}"))
    }
}

/// Error for a missing home folder.
pub(super) fn no_home_error() -> CliError {
    CliError::usage(
        "cannot locate the configuration and the sessions: neither BRIGADE_HOME nor HOME is set. Set one of them.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Environment::from_variables(variables, PathBuf::from("/here")).unwrap()
    }

    #[test]
    fn keys_are_withheld_from_commands() {
        let found =
            read(&[("PATH", "/bin"), ("ANTHROPIC_API_KEY", "k"), ("LC_ALL", "C"), ("BRIGADE_MODEL", "m")]);
        let names: Vec<(&str, bool)> =
            found.variable_names.iter().map(|(name, withheld)| (name.as_str(), withheld.is_some())).collect();
        assert_eq!(
            names,
            [("ANTHROPIC_API_KEY", true), ("BRIGADE_MODEL", true), ("LC_ALL", false), ("PATH", false)]
        );
        assert_eq!(found.config_variables, [("MODEL".into(), "m".into())]);
    }

    #[test]
    fn folders_follow_the_conventions() {
        let home = read(&[("HOME", "/h")]);
        assert_eq!(home.config_folder(), Some("/h/.config/brigade".into()));
        assert_eq!(home.data_folder(), Some("/h/.local/share/brigade".into()));
        let xdg = read(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "relative")]);
        assert_eq!(xdg.config_folder(), Some("/c/brigade".into()));
        assert_eq!(xdg.data_folder(), Some("/h/.local/share/brigade".into()));
        let own = read(&[("HOME", "/h"), ("BRIGADE_HOME", "b")]);
        assert_eq!(
            (own.config_folder(), own.data_folder()),
            (Some("/here/b".into()), Some("/here/b".into()))
        );
        assert_eq!(read(&[]).config_folder(), None);
    }
}
