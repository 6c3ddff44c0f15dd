//! Questions of agents, listed and answered without a terminal.

use crate::support::{Home, Running};

const WAIT: [&str; 4] = ["--set", "permissions.questions=wait", "--mode", "ask"];

/// One agent that makes one call.
fn calls(tool: &str, arguments: &str) -> String {
    format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = \"{tool}\"\narguments = {arguments}\n\
         [[reply]]\ntext = \"done: {{results}}\"\n"
    )
}

#[test]
fn only_what_is_accepted_is_offered() {
    let home = Home::new();
    for (command, has_rule) in [("touch x", true), ("touch x && touch y", false)] {
        let script = calls("shell", &format!("{{ command = \"{command}\" }}"));
        let mut running = Running::start(&home, &script, &WAIT);
        running.wait_for("asked");
        let open = home.brigade(&["answer", &running.session]);
        let offered = if has_rule { " yes|always|no [REASON]" } else { " yes|no [REASON]" };
        open.exits(0).prints(offered);
        assert_eq!(open.stdout.contains("always allows shell(touch x)"), has_rule, "{}", open.stdout);
        if !has_rule {
            let refused = home.brigade(&["answer", &running.session, "always"]);
            refused.exits(2).says("No rule covers exactly this call").says("`yes` allows it once");
        }
        let words =
            if has_rule { "`yes`, `always`, `no` or `no REASON`" } else { "`yes`, `no` or `no REASON`" };
        home.brigade(&["answer", "last", "maybe"]).exits(2).says("'maybe' is not an answer").says(words);
        home.brigade(&["answer", &running.session, "no"]).exits(0);
        assert_eq!(running.end().0, 0);
    }
}

#[test]
fn without_an_id_the_questions_of_all_sessions_are_listed() {
    let home = Home::new();
    home.brigade(&["answer"]).exits(0).says("No question is open.");
    let ended = home.report("[[reply]]\ntext = 'done'", &[]);
    let ended = ended["session_id"].as_str().unwrap();
    home.brigade(&["answer", "last"]).exits(0).says(&format!("No question is open in {ended}."));
    home.brigade(&["answer", "last", "yes"]).exits(1).says(&format!("no question is open in {ended}"));
    let running = ["touch x", "touch y"].map(|command| {
        let script = calls("shell", &format!("{{ command = \"{command}\" }}"));
        let mut running = Running::start(&home, &script, &WAIT);
        running.wait_for("asked");
        running
    });
    let listed = home.brigade(&["answer"]);
    listed.exits(0);
    for (running, command) in running.iter().zip(["touch x", "touch y"]) {
        listed.prints(command).prints(&format!("brigade answer {}:", running.session));
    }
    let json = home.brigade(&["answer", "--output-format", "json"]).json();
    assert_eq!(json["questions"].as_array().unwrap().len(), 2, "{json}");
    for running in running {
        home.brigade(&["answer", &running.session, "no"]).exits(0);
        assert_eq!(running.end().0, 0);
    }
    home.brigade(&["answer"]).exits(0).says("No question is open.");
}

#[test]
fn an_answer_is_confirmed_in_words() {
    let home = Home::new();
    let confirmations = [
        (&["yes"][..], "lead may run `touch x` this once."),
        (&["always"], "lead may run `touch x`, and is always allowed shell(touch x)."),
        (&["no"], "lead may not run `touch x`."),
        (&["no", "use", "make"], "lead may not run `touch x`: use make"),
    ];
    for (words, confirmation) in confirmations {
        let mut running = Running::start(&home, &calls("shell", "{ command = \"touch x\" }"), &WAIT);
        running.wait_for("asked");
        let done = home.brigade(&[&["answer", running.session.as_str()], words].concat());
        done.exits(0).says(confirmation);
        assert!(!done.stderr.contains(&running.session), "{}", done.stderr);
        assert_eq!(running.end().0, 0);
    }
}

#[test]
fn a_program_reads_the_diff_of_an_edit() {
    let home = Home::new();
    home.write("work/a.txt", "one\ntwo\n");
    let script =
        calls("edit_file", "{ path = \"a.txt\", old = \"two\", new = \"three\", replace_all = false }");
    let mut running = Running::start(&home, &script, &WAIT);
    running.wait_for("asked");
    let listed = home.brigade(&["--output-format", "json", "answer", &running.session]).json();
    assert_eq!(listed["questions"][0]["diff"], "@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    home.brigade(&["answer", &running.session]).exits(0).prints("lead wants to edit a.txt").prints("-two\n");
    home.brigade(&["answer", &running.session, "no"]).exits(0).says("lead may not edit a.txt.");
    assert_eq!(running.end().0, 0);
}

#[test]
fn messages_name_a_session_by_its_agent_and_task() {
    let home = Home::new();
    let mut running = Running::start(&home, "[[reply]]\nfault = 'hang'", &[]);
    running.wait_for("called");
    let told = home.brigade(&["tell", &running.session, "hurry"]);
    told.exits(0).says("lead \"the task\" is running and reads the message before its next turn");
    let stopped = home.brigade(&["cancel", &running.session]);
    stopped.exits(0).says("lead \"the task\" has ended: cancelled");
    for done in [told, stopped] {
        assert!(!done.stderr.contains(&running.session), "{}", done.stderr);
    }
    assert_eq!(running.end().0, 130);
}
