//! Ids of the agents in files.

use std::path::{Component, Path};

use brigade_core::agent::id_of_name;

use super::format::{Format, stem};
use super::problem::KeyError;
use crate::id::id_of_folder;

/// Id of the built-in agent, which has no file.
const BUILTIN_AGENT: &str = "lead";

/// Determines the id of a definition in a file.
pub(super) fn id(file: &Path, format: Format, name: Option<&str>) -> Result<String, KeyError> {
    let id = if format.is_folder_based() {
        let folder =
            file.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        let named = || {
            format!(
                "the directory name `{folder}` is not a valid id. Use 1 to 64 letters, digits, `.`, `_`, `-` or spaces."
            )
        };
        id_of_folder(folder).ok_or_else(named)?
    } else {
        let path = || (format == Format::Opencode).then(|| opencode_name(file)).flatten();
        let first = match format {
            Format::Opencode => path().or_else(|| name.map(str::to_owned)),
            _ => name.map(str::to_owned),
        };
        let slugs = [first.as_deref().unwrap_or_default(), stem(file)].map(id_of_name);
        let found = slugs.into_iter().find(|slug| !slug.is_empty());
        found.ok_or("neither `name` nor the file name contains a-z or 0-9")?
    };
    match id == BUILTIN_AGENT {
        true => {
            Err(format!("`{BUILTIN_AGENT}` is reserved for the built-in agent. Choose another name.").into())
        }
        false => Ok(id),
    }
}

/// Derives an id from the path of a file alone.
pub(super) fn id_from_file(file: &Path) -> Option<String> {
    id(file, Format::of(file), None).ok()
}

/// Returns the path below the agents folder, which OpenCode uses as the name.
fn opencode_name(file: &Path) -> Option<String> {
    let parts: Vec<&str> =
        file.parent()?.components().map(Component::as_os_str).filter_map(|part| part.to_str()).collect();
    let root = parts.iter().rposition(|part| matches!(*part, "agent" | "agents"))?;
    let mut name = parts.get(root + 1..)?.to_vec();
    name.push(stem(file));
    Some(name.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_id;

    #[test]
    fn id_of_name_slugifies_names() {
        let slug = id_of_name;
        assert_eq!(slug("Code Reviewer"), "code-reviewer");
        assert_eq!(slug("plugin:agent"), "plugin-agent");
        assert_eq!((slug("C# Expert"), slug("C++ Expert")), ("csharp-expert".into(), "cpp-expert".into()));
        assert_eq!(slug("powershell-5.1-expert"), "powershell-5.1-expert");
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("日本語"), "");
        assert!(is_id(&slug(&"long name ".repeat(40))) && is_id(&slug(&format!("a{}", "#".repeat(90)))));
        for id in ["a", "code-reviewer", "powershell-5.1-expert", "a_b", "9"] {
            assert_eq!(slug(id), id, "an id is its own slug");
        }
    }

    #[test]
    fn folder_names_are_normalized_to_ids() {
        let id =
            |folder: &str| id(&Path::new("/p/agents").join(folder).join("AGENT.md"), Format::Brigade, None);
        assert_eq!(id("Pickle"), Ok("pickle".to_owned()));
        assert_eq!(id("my agent"), Ok("my-agent".to_owned()));
        for folder in ["日本語", "ümlaut", "- -", &"x".repeat(65)] {
            assert!(id(folder).unwrap_err().to_string().contains("is not a valid id"), "{folder}");
        }
        assert!(id("Lead").is_err(), "the built-in lead keeps its name");
    }

    #[test]
    fn opencode_id_is_taken_from_the_path() {
        let file = Path::new("/p/.opencode/agents/review/security.md");
        assert_eq!(id(file, Format::Opencode, Some("other")), Ok("review-security".to_owned()));
        assert!(id(Path::new("/p/lead.md"), Format::Claude, None).is_err());
    }
}
