//! One test for each family of attacks that the model makes by calls.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::Home;
use crate::hostile::calls;
use crate::hostile::case::{Expected, SETUPS, Setup, problems, reached_without_confinement};
use crate::hostile::place::Place;

/// Makes all calls of a family, one session for each of its setups.
#[track_caller]
fn attack(family: u8) {
    let cases = calls::of_family(family);
    assert!(!cases.is_empty());
    let mut found = Vec::new();
    for setup in SETUPS {
        let cases: Vec<_> = cases.iter().filter(|case| case.setup == setup).copied().collect();
        if !cases.is_empty() {
            let problems = problems(&mut Place::new(), setup, &cases);
            found.extend(problems.into_iter().map(|problem| format!("{setup:?}: {problem}")));
        }
    }
    assert!(found.is_empty(), "H{family:02}:\n{}", found.join("\n"));
}

macro_rules! families {
    ($($name:ident = $family:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            attack($family);
        })*

        /// Families with calls of the model.
        pub(crate) const FAMILIES: &[u8] = &[$($family),*];
    };
}

families! {
    h01_deny_rule_sees_every_part_of_a_line = 1,
    h02_many_parts_do_not_hide_a_denied_command = 2,
    h03_words_that_shells_evaluate_are_not_allowed = 3,
    h04_settings_of_a_line_do_not_leave_the_sandbox = 4,
    h05_programs_that_run_programs_stay_in_the_sandbox = 5,
    h06_deceptive_characters_are_not_allowed = 6,
    h10_control_files_are_not_written = 10,
    h11_letter_case_does_not_lead_to_control_files = 11,
    h13_repositories_run_nothing_outside = 13,
    h14_file_tools_do_not_leave_the_workspace = 14,
    h15_links_do_not_lead_out = 15,
    h16_renames_do_not_expose_control_files = 16,
    h17_shared_directories_are_private = 17,
    h19_secrets_are_not_read = 19,
    h20_devices_and_huge_files_are_bounded = 20,
    h21_host_rules_see_every_spelling = 21,
    h22_hosts_with_strange_characters_are_refused = 22,
    h23_private_addresses_are_refused = 23,
    h24_nothing_leaves_the_sandbox = 24,
    h26_keys_are_not_in_the_environment = 26,
    h37_ambiguous_arguments_are_refused = 37,
    h38_patterns_take_bounded_time = 38,
    h39_results_are_cut_between_characters = 39,
    h44_other_tools_have_no_other_files = 44,
}

/// The attacks are real: without a sandbox, many of them reach a canary.
#[test]
fn attacks_reach_canaries_without_a_sandbox() {
    let cases: Vec<_> = [4, 13, 15, 24].into_iter().flat_map(calls::of_family).collect();
    let cases: Vec<_> =
        cases.into_iter().filter(|case| case.setup == Setup::Confined && case.tool == "shell").collect();
    let reached = reached_without_confinement(&mut Place::new(), &cases);
    println!("{reached} canaries were reached by {} commands", cases.len());
    assert!(reached >= 15, "only {reached} of {} commands", cases.len());
}

/// The same commands of a child whose role has a read-only sandbox reach nothing either.
#[test]
fn attacks_of_a_child_stay_in_its_narrower_sandbox() {
    let cases: Vec<_> = [10, 16, 19, 24]
        .into_iter()
        .flat_map(calls::of_family)
        .filter(|case| case.setup == Setup::Confined && case.tool == "shell")
        .map(|case| case.setup(Setup::ReadOnlyChild).expects(Expected::Contained))
        .collect();
    let mut place = Place::new();
    let before = std::fs::read_dir(place.work()).unwrap().count();
    let problems = problems(&mut place, Setup::ReadOnlyChild, &cases);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(std::fs::read_dir(place.work()).unwrap().count(), before, "a child wrote to the workspace");
}

/// A directory without a repository stays without one, and the result says nothing about files that were never there.
#[test]
fn command_without_a_repository_reports_nothing() {
    let home = Home::outside_tmp();
    let script = Script::new().turns([call("shell", json!({ "command": "echo one" })), reply("{results}")]);
    let done = home.run(script, &["--mode", "auto", "--set", "sandbox.mode=workspace"]);
    assert_eq!(done.exits_with(0).stdout, "one\n", "{}", done.stderr);
    assert_eq!(std::fs::read_dir(home.work()).unwrap().count(), 0);
}
