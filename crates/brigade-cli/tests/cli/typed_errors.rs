//! Errors that cross a module boundary have a type: no function of a library crate that others can call returns
//! `Result<_, String>`.

use std::path::{Path, PathBuf};

use crate::cli::docs::repository;

/// Sources of the library crates, without their tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true if name == "tests" => {}
            true => sources(&path, found),
            false if name.ends_with(".rs") && name != "tests.rs" => found.push(path),
            false => {}
        }
    }
}

/// Lines and signatures of the functions whose error is text: those with a visibility, and those of traits.
fn untyped_errors(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut in_trait = false;
    let lines: Vec<&str> = source.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if code.len() == line.len() && !code.is_empty() {
            in_trait = code.contains("trait ") && !code.starts_with("//");
        }
        let is_shared = in_trait && code.starts_with(['f', 'a']) || code.starts_with("pub");
        let declares = ["fn ", "type "].iter().any(|word| code.split('(').any(|part| part.contains(word)));
        if !is_shared || !declares || code.starts_with("//") {
            continue;
        }
        let mut signature = String::new();
        for part in &lines[index..] {
            signature.push_str(part.trim());
            if part.trim_end().ends_with(['{', ';']) {
                break;
            }
            signature.push(' ');
        }
        if signature.contains(", String>") && result_errors(&signature).any(|error| error == "String") {
            found.push((index + 1, signature));
        }
    }
    found
}

/// Last type arguments of the `Result`s in a signature.
fn result_errors(signature: &str) -> impl Iterator<Item = &str> {
    signature.match_indices("Result<").filter_map(|(at, opening)| {
        let arguments = &signature[at + opening.len()..];
        let (mut depth, mut last) = (0, 0);
        for (end, letter) in arguments.char_indices() {
            match letter {
                '<' | '(' | '[' => depth += 1,
                '>' if arguments[..end].ends_with('-') => {}
                '>' if depth == 0 => return Some(arguments[last..end].trim().trim_end_matches(',')),
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 0 && !arguments[end + 1..].trim_start().starts_with('>') => last = end + 1,
                _ => {}
            }
        }
        None
    })
}

#[test]
fn functions_across_a_module_boundary_have_typed_errors() {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        if path.join("src").is_dir() && path.file_name().unwrap() != "brigade-cli" {
            sources(&path.join("src"), &mut files);
        }
    }
    assert!(files.len() > 100, "{} files", files.len());
    let mut untyped = Vec::new();
    for file in files {
        for (line, signature) in untyped_errors(&std::fs::read_to_string(&file).unwrap()) {
            untyped.push(format!("{}:{line}: {signature}", file.display()));
        }
    }
    assert!(untyped.is_empty(), "give these errors a type:\n{}", untyped.join("\n"));
}

#[test]
fn untyped_errors_are_found_in_functions_and_traits() {
    let found = |source: &str| untyped_errors(source).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    assert_eq!(found("pub fn a() -> Result<u8, String> {\n}\n"), [1]);
    assert_eq!(
        found("impl A {\n    pub(super) async fn b(\n        c: u8,\n    ) -> Result<(), String> {\n"),
        [2]
    );
    assert_eq!(found("pub trait T {\n    fn d(&self) -> BoxFuture<'_, Result<Vec<u8>, String>>;\n}\n"), [2]);
    assert_eq!(found("pub(crate) fn e(f: impl Fn(&str) -> Option<Result<u8, String>>) {\n"), [1]);
    for fine in [
        "fn a() -> Result<u8, String> {\n}\n",
        "pub fn a() -> Result<BTreeMap<u8, String>, Error> {\n}\n",
        "pub fn a() -> io::Result<(u8, String)> {\n}\n",
        "pub fn a(map: &BTreeMap<u8, String>) -> Result<u8, Error> {\n",
        "#[cfg(test)]\nmod tests {\n    pub fn a() -> Result<u8, String> {\n",
    ] {
        assert!(found(fine).is_empty(), "{fine}");
    }
}
