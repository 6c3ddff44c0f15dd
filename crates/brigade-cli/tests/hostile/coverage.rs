//! The size of the corpus, and other tests of the same families.

use std::collections::BTreeMap;
use std::path::Path;

use crate::hostile::{calls, command_line, display, families, http_server, parsers, project, servers, web};

/// Tests of parts of the program that show more of a family: the file, and the name of a test in it.
const ELSEWHERE: [(u8, &str, &str); 8] = [
    (7, "crates/brigade-cli/tests/screen/questions.rs", "end_of_a_padded_command_is_on_the_screen"),
    (14, "crates/brigade/tests/tools/paths.rs", "symlink_race_never_leaves_the_workspace"),
    (31, "crates/brigade/tests/mcp/oauth.rs", "callback_with_another_state_is_ignored"),
    (36, "crates/brigade-tools/src/web/html/tests.rs", "hostile_html_is_converted_in_linear_time"),
    (37, "crates/brigade/tests/agents/hostile.rs", "yaml_bombs_are_refused_quickly"),
    (41, "crates/brigade/tests/mcp/tools.rs", "colliding_tool_names_are_refused"),
    (42, "crates/brigade/tests/mcp/hostile.rs", "tool_changed_after_approval_is_refused"),
    (43, "crates/brigade/tests/mcp/hostile.rs", "message_flood_ends_the_server"),
];

/// Number of inputs of every family against the real command.
fn inputs() -> BTreeMap<u8, usize> {
    let mut count = BTreeMap::new();
    let calls = calls::TABLES.into_iter().flatten().map(|case| case.family);
    let others = [
        command_line::inputs(),
        display::inputs(),
        http_server::inputs(),
        parsers::inputs(),
        project::inputs(),
        servers::inputs(),
        web::inputs(),
    ];
    for family in calls.chain(others.into_iter().flatten()) {
        *count.entry(family).or_default() += 1;
    }
    count
}

#[test]
fn corpus_has_at_least_300_inputs_over_all_families() {
    let inputs = inputs();
    let total: usize = inputs.values().sum();
    println!("{total} inputs: {inputs:?}");
    assert!(total >= 300, "{total}");
    let elsewhere = |family: u8| ELSEWHERE.iter().any(|(covered, _, _)| *covered == family);
    let missing: Vec<u8> =
        (1..=44).filter(|family| !inputs.contains_key(family) && !elsewhere(*family)).collect();
    assert!(missing.is_empty(), "families without an input: {missing:?}");
}

#[test]
fn every_call_belongs_to_a_test() {
    let families = families::FAMILIES;
    let missing: Vec<_> =
        calls::TABLES.into_iter().flatten().filter(|case| !families.contains(&case.family)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn tests_that_show_more_of_a_family_exist() {
    for (family, file, test) in ELSEWHERE {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "H{family:02}: no test {test} in {file}");
    }
}
