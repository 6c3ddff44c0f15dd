//! Diagnosis of the configuration: each layer is checked by itself, so a broken one does not hide the others.

use std::path::PathBuf;

use super::{DefaultPaths, Environment, Layers, ProjectConfig, Settings, providers};
use crate::args::{Flags, Global};
use crate::error::CliError;
use crate::trust::{self, TrustStatus, TrustStore, TrustedProject};

/// Layer of the configuration, with its state.
#[derive(Debug)]
pub(crate) struct Layer {
    /// File, variable or flag.
    pub(crate) source: String,
    pub(crate) kind: LayerKind,
    pub(crate) state: State,
}

/// Kind of source of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerKind {
    /// The user's configuration file.
    File,
    /// Project directory.
    Project,
    /// Environment variable.
    Variable,
    /// Flag of this command.
    Flag,
}

/// State of a layer.
#[derive(Debug)]
pub(crate) enum State {
    /// The layer does not exist.
    Absent,
    /// The layer is in use.
    Used,
    /// The settings of a project are ignored, for this reason.
    Untrusted(String),
    /// The layer is invalid, for this reason.
    Broken(String),
}

impl Settings {
    /// Settings of all valid layers, and the state of each layer.
    pub(crate) fn diagnose(global: &Global) -> Result<(Settings, Vec<Layer>), CliError> {
        let environment = Environment::read()?;
        let paths = DefaultPaths::of(&environment)?;
        let mut diagnosis = Diagnosis {
            valid: Layers::defaults()?,
            layers: Vec::new(),
            resolve: |layers: &Layers| {
                let (environment, paths) = (environment.clone(), paths.clone());
                Settings::resolve(environment, paths, layers.clone(), global, &Flags::default())
            },
        };
        let values = providers::variables(|name| environment.variable(name));
        let mut names: Vec<&str> = values.iter().map(|(name, ..)| *name).collect();
        names.dedup();
        for name in names {
            let variable_values = values.iter().filter(|(variable, ..)| *variable == name).cloned().collect();
            diagnosis.add(name.to_owned(), LayerKind::Variable, |layers| layers.add_flags(variable_values));
        }
        diagnosis.add_user_config(&paths.config);
        let project = diagnosis.project(&environment);
        for variable in &environment.config_variables {
            let source = format!("BRIGADE_{}", variable.0);
            diagnosis.add(source, LayerKind::Variable, |layers| {
                layers.add_environment(std::slice::from_ref(variable))
            });
        }
        for setting in &global.set {
            let source = format!("--set {setting}");
            diagnosis.add(source, LayerKind::Flag, |layers| layers.add_set(std::slice::from_ref(setting)));
        }
        let settings = (diagnosis.resolve)(&diagnosis.valid)?;
        Ok((Settings { project, ..settings }, diagnosis.layers))
    }
}

struct Diagnosis<F> {
    valid: Layers,
    layers: Vec<Layer>,
    resolve: F,
}

impl<F: Fn(&Layers) -> Result<Settings, CliError>> Diagnosis<F> {
    /// Adds a layer if the settings can be resolved with it.
    fn add(
        &mut self,
        source: String,
        kind: LayerKind,
        add: impl FnOnce(&mut Layers) -> Result<(), CliError>,
    ) {
        let mut layers = self.valid.clone();
        let result = add(&mut layers).and_then(|()| (self.resolve)(&layers));
        let state = match result {
            Ok(_) => {
                self.valid = layers;
                State::Used
            }
            Err(failure) => State::Broken(failure.to_string()),
        };
        self.layers.push(Layer { source, kind, state });
    }

    fn add_user_config(&mut self, file: &std::path::Path) {
        let both: [PathBuf; 2] = [file.to_path_buf(), file.with_extension("json")];
        let existing: Vec<&PathBuf> = both.iter().filter(|file| file.symlink_metadata().is_ok()).collect();
        let Some(first) = existing.first() else {
            let source = file.display().to_string();
            return self.layers.push(Layer { source, kind: LayerKind::File, state: State::Absent });
        };
        self.add(first.display().to_string(), LayerKind::File, |layers| layers.add_file(file));
    }

    /// Current project, if it is trusted. Its settings are added.
    fn project(&mut self, environment: &Environment) -> Option<TrustedProject> {
        let root = trust::find(environment, &environment.absolute(std::path::Path::new(".")))?;
        let source = root.display().to_string();
        let status = match TrustStore::read(environment) {
            Ok(store) => trust::trust_status(&store, &root),
            Err(failure) => {
                let state = State::Broken(failure.to_string());
                self.layers.push(Layer { source, kind: LayerKind::Project, state });
                return None;
            }
        };
        let reason = match status {
            TrustStatus::Trusted(files) => {
                self.add(source, LayerKind::Project, |layers| match ProjectConfig::read(&root, &files)? {
                    Some(config) => layers.add_project(&config),
                    None => Ok(()),
                });
                return Some(TrustedProject { root, files });
            }
            TrustStatus::Unknown => "its settings and agents are ignored: they are not trusted".to_owned(),
            TrustStatus::Changed => {
                "its settings and agents are ignored: its files have changed since they were trusted"
                    .to_owned()
            }
            TrustStatus::Invalid(problem) => format!("its settings and agents are ignored: {problem}"),
        };
        self.layers.push(Layer { source, kind: LayerKind::Project, state: State::Untrusted(reason) });
        None
    }
}
