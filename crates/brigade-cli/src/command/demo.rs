//! `brigade demo`: a lead and three specialists fix a small project. Everything except the model is real.

use std::path::Path;

use super::run::TaskInput;
use crate::args::{Flags, Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::settings::Settings;

/// Name of the scripted model, which is also used when a demo session is resumed.
pub(crate) const MODEL: &str = "demo";
/// Script of the model.
pub(crate) const SCRIPT: &str = include_str!("../../demo/script.toml");

const TASK: &str = "The tests of this project fail. Find the cause, fix it, and write a changelog.";

const PROJECT: [(&str, &str); 5] = [
    ("README.md", include_str!("../../demo/project/README.md")),
    ("price.sh", include_str!("../../demo/project/price.sh")),
    ("test.sh", include_str!("../../demo/project/test.sh")),
    ("notes/ideas.txt", include_str!("../../demo/project/notes/ideas.txt")),
    ("notes/known-bugs.txt", include_str!("../../demo/project/notes/known-bugs.txt")),
];

/// Runs the command.
pub(crate) fn run(global: Global) -> Result<Exit, CliError> {
    let folder = tempfile::Builder::new().prefix("brigade-demo-").tempdir().map_err(unwritable)?.keep();
    unpack(&folder)?;
    let flags = Flags {
        model: Some(MODEL.to_owned()),
        mode: Some(brigade_core::permission::Mode::Auto),
        cwd: Some(folder.clone()),
        ..Flags::default()
    };
    let settings = Settings::load_for_demo(&global, &flags)?;
    if global.output_format == OutputFormat::Text {
        output::note(&format!(
            "A lead and three specialists fix a small project in {}.\n\
             The model is scripted. Agents, tools, budgets and the log are real.\n\
             Task: {TASK}\n",
            folder.display()
        ));
    }
    let exit = super::run::start(&global, &flags, &settings, &TaskInput::new(TASK))?;
    if global.output_format == OutputFormat::Text {
        output::note(&format!("The project is in {}. Run its tests: cd {0} && ./test.sh", folder.display()));
    }
    Ok(exit)
}

fn unpack(folder: &Path) -> Result<(), CliError> {
    use std::os::unix::fs::PermissionsExt;
    for (name, content) in PROJECT {
        let file = folder.join(name);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(unwritable)?;
        }
        std::fs::write(&file, content).map_err(unwritable)?;
        if name.ends_with(".sh") {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).map_err(unwritable)?;
        }
    }
    Ok(())
}

fn unwritable(error: std::io::Error) -> CliError {
    CliError::failed(format!("cannot write the sample project: {error}"))
}
