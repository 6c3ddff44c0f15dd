//! The layers of the configuration, each looked at alone: one that is broken does not hide the others.

use std::path::PathBuf;

use super::{Environment, Layers, Places, ProjectConfig, Settings, providers};
use crate::args::{Flags, Global};
use crate::failure::Failure;
use crate::trust::{self, Record, Standing, TrustedProject};

/// A place where settings can stand, and what was found there.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The file, the variable or the flag.
    pub(crate) place: String,
    /// What was found.
    pub(crate) state: State,
}

/// What was found in a place where settings can stand.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing.
    Absent,
    /// Settings that count.
    Used,
    /// A project whose settings do not count, for this reason.
    Untrusted(String),
    /// Settings that cannot be used, for this reason.
    Broken(String),
}

impl Settings {
    /// The settings of all layers that can be used, and what was found in each layer.
    pub(crate) fn examined(global: &Global) -> Result<(Settings, Vec<Layer>), Failure> {
        let environment = Environment::read()?;
        let places = Places::of(&environment)?;
        let mut examination = Examination {
            good: Layers::defaults()?,
            found: Vec::new(),
            try_out: |layers: &Layers| {
                let (environment, places) = (environment.clone(), places.clone());
                Settings::resolve(environment, places, layers.clone(), global, &Flags::default())
            },
        };
        let values = providers::variables(|name| environment.variable(name));
        let mut names: Vec<&str> = values.iter().map(|(name, ..)| *name).collect();
        names.dedup();
        for name in names {
            let own = values.iter().filter(|(variable, ..)| *variable == name).cloned().collect();
            examination.add(name.to_owned(), |layers| layers.add_flags(own));
        }
        examination.person(&places.config);
        let project = examination.project(&environment);
        for variable in &environment.brigade {
            let place = format!("BRIGADE_{}", variable.0);
            examination.add(place, |layers| layers.add_environment(std::slice::from_ref(variable)));
        }
        for setting in &global.set {
            let place = format!("--set {setting}");
            examination.add(place, |layers| layers.add_set(std::slice::from_ref(setting)));
        }
        let settings = (examination.try_out)(&examination.good)?;
        Ok((Settings { project, ..settings }, examination.found))
    }
}

struct Examination<F> {
    good: Layers,
    found: Vec<Layer>,
    try_out: F,
}

impl<F: Fn(&Layers) -> Result<Settings, Failure>> Examination<F> {
    /// Adds a layer if settings can be made with it.
    fn add(&mut self, place: String, add: impl FnOnce(&mut Layers) -> Result<(), Failure>) {
        let mut layers = self.good.clone();
        let result = add(&mut layers).and_then(|()| (self.try_out)(&layers));
        let state = match result {
            Ok(_) => {
                self.good = layers;
                State::Used
            }
            Err(failure) => State::Broken(failure.to_string()),
        };
        self.found.push(Layer { place, state });
    }

    fn person(&mut self, file: &std::path::Path) {
        let both: [PathBuf; 2] = [file.to_path_buf(), file.with_extension("json")];
        let there: Vec<&PathBuf> = both.iter().filter(|file| file.symlink_metadata().is_ok()).collect();
        let Some(first) = there.first() else {
            let place = file.display().to_string();
            return self.found.push(Layer { place, state: State::Absent });
        };
        self.add(first.display().to_string(), |layers| layers.add_file(file));
    }

    /// The project here, if it is trusted; its settings are added.
    fn project(&mut self, environment: &Environment) -> Option<TrustedProject> {
        let root = trust::find(environment, &environment.absolute(std::path::Path::new(".")))?;
        let place = root.display().to_string();
        let standing = match Record::read(environment) {
            Ok(record) => trust::standing(&record, &root),
            Err(failure) => {
                self.found.push(Layer { place, state: State::Broken(failure.to_string()) });
                return None;
            }
        };
        let reason = match standing {
            Standing::Trusted(files) => {
                self.add(place, |layers| match ProjectConfig::read(&root, &files)? {
                    Some(config) => layers.add_project(&config),
                    None => Ok(()),
                });
                return Some(TrustedProject { root, files });
            }
            Standing::Unknown => "its settings and agents are not trusted and do not count".to_owned(),
            Standing::Changed => "its files have changed since they were trusted and do not count".to_owned(),
            Standing::Unfit(problem) => format!("its settings and agents do not count: {problem}"),
        };
        self.found.push(Layer { place, state: State::Untrusted(reason) });
        None
    }
}
