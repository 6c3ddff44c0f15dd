//! Questions of agents, put to a person at a terminal and answered from it or from another one.

use std::time::Duration;

use crate::home::Home;
use crate::support::Window;

/// The deepest of four asks, while two others work.
const DEEP: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "First", task = "a" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Busy", task = "b" }
[[reply]]
agent = "lead"
text = "all: {results}"
[[reply]]
agent = "First"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Second", task = "c" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Busy", task = "d" }
[[reply]]
agent = "First"
text = "first {results}"
[[reply]]
agent = "Second"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Third", task = "e" }
[[reply]]
agent = "Second"
text = "second {results}"
[[reply]]
agent = "Third"
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "third.txt", content = "written\nin two lines" }
[[reply]]
agent = "Third"
text = "third {results}"
[[reply]]
agent = "Busy"
delay_ms = 200
turn = 1
[[reply.call]]
tool = "read_file"
arguments = { path = "a.txt" }
[[reply]]
agent = "Busy"
delay_ms = 200
text = "busy"
"#;

/// Nobody who works waits for what one who asks was lent.
const DEPTH: [&str; 8] = [
    "--set",
    "swarm.max_depth=4",
    "--set",
    "swarm.max_concurrent=20",
    "--set",
    "budget.tokens=unlimited",
    "--set",
    "budget.agents=unlimited",
];

/// One agent that wants to run a command.
fn shell(command: &str) -> String {
    let command = serde_json::to_string(command).unwrap();
    format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = \"shell\"\narguments = {{ command = {command} }}\n\
         [[reply]]\ntext = \"done: {{results}}\"\n"
    )
}

/// Types once a question has been there for a moment: what comes sooner was meant for something else.
fn answer(window: &Window, keys: &str) {
    std::thread::sleep(Duration::from_millis(600));
    window.press(keys);
}

fn only_session(home: &Home) -> Option<String> {
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).json();
    Some(listed[0]["session_id"].as_str()?.to_owned())
}

#[test]
fn a_question_is_shown_whole_and_answered_with_a_word() {
    for (size, name) in [((100, 24), "wide"), ((40, 24), "narrow")] {
        let home = Home::new();
        home.write("work/a.txt", "a");
        let mut window = Window::run(&home, size, DEEP, &DEPTH, &[("NO_COLOR", "1")]);
        let asks = |screen: &str| screen.contains("y once") && screen.contains(", 2 do");
        let screen = window.wait_until("asking alone", asks);
        insta::assert_snapshot!(format!("question_{name}"), screen);
        assert!(window.cursor().is_some(), "something can be typed");
        // What is no answer answers nothing, and neither does Enter alone.
        answer(&window, "\r");
        answer(&window, "yesterday\r");
        window.wait_for("'yesterday' is no answer");
        assert!(!home.work().join("third.txt").exists());
        answer(&window, "y\r");
        assert_eq!(window.end(), 0, "{}", window.text());
        assert_eq!(std::fs::read_to_string(home.work().join("third.txt")).unwrap(), "written\nin two lines");
        assert!(window.text().contains("all: "), "{}", window.text());
    }
}

#[test]
fn a_question_from_depth_three_is_answered_from_a_second_terminal() {
    let home = Home::new();
    home.write("work/a.txt", "a");
    // The siblings have not finished when the answer is there.
    let slow = DEEP.replace("delay_ms = 200", "delay_ms = 4000");
    let mut window = Window::run(&home, (100, 24), &slow, &DEPTH, &[]);
    window.wait_for("y once");
    let root = only_session(&home).unwrap();
    let open = home.brigade(&["answer", &root]);
    assert!(open.stdout.contains("lead › First › Second › Third asks to call write_file"), "{}", open.stdout);
    let other = {
        let mut other = Window::start(&home, (90, 20), &["answer", &root], &[]);
        other.wait_for("Enter alone");
        other.press("no, that is mine\r");
        assert_eq!(other.end(), 0, "{}", other.text());
        other.text()
    };
    let at_work = |screen: &str| {
        screen.lines().filter(|line| line.contains("Busy") && line.contains("thinking")).count()
    };
    let screen = window.wait_until("answered", |screen| !screen.contains("y once"));
    assert_eq!(at_work(&screen), 2, "{screen}");
    assert!(other.contains("content:"), "{other}");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("The answer was no"), "{}", window.text());
    assert!(!home.work().join("third.txt").exists());
    let late = home.brigade(&["answer", &root, "yes"]);
    assert_eq!(late.code, 1, "{}", late.stderr);
    assert!(late.stderr.contains("may have been answered already"), "{}", late.stderr);
}

#[test]
fn the_harmful_end_of_a_command_is_on_the_screen() {
    let home = Home::new();
    let command = format!("echo safe{};touch \u{202e}harm\u{200b}\u{1b}[3J", " ".repeat(5000));
    let mut window = Window::run(&home, (60, 20), &shell(&command), &[], &[("NO_COLOR", "1")]);
    let screen = window.wait_for("y once");
    insta::assert_snapshot!("question_hostile", screen);
    // No rule says just this, so it cannot be allowed for good.
    answer(&window, "a\r");
    window.wait_for("so it cannot be");
    answer(&window, "n not like this\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("The answer was no: not like this"), "{}", window.text());
    let sent = window.sent();
    assert!(
        !sent.contains('\u{202e}') && !sent.contains('\u{200b}') && !sent.contains("\u{1b}[3J"),
        "{sent:?}"
    );
}

#[test]
fn ctrl_c_at_a_question_stops_the_run_and_gives_the_terminal_back() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), &shell("touch x"), &[], &[]);
    window.wait_for("y once");
    // The first clears what was typed.
    answer(&window, "yes but\u{3}");
    window.wait_until("cleared", |screen| !screen.contains("yes but"));
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    assert!(window.is_cooked(), "the terminal is as it was");
    assert!(!home.work().join("x").exists());
}

/// Twenty that ask at once.
fn twenty() -> String {
    let mut script = "[[reply]]\nagent = \"lead\"\nturn = 1\n".to_owned();
    for number in 0..20 {
        script.push_str(&format!(
            "[[reply.call]]\ntool = \"delegate\"\narguments = {{ role = \"W{number}\", task = \"{number}\" }}\n"
        ));
    }
    script.push_str("[[reply]]\nagent = \"lead\"\ntext = \"over: {results}\"\n");
    script.push_str(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = \"shell\"\narguments = { command = \"touch {task}\" }\n\
         [[reply]]\ntext = \"{results}\"\n",
    );
    script
}

#[test]
fn twenty_questions_wait_in_line() {
    let home = Home::new();
    let at_once = ["--set", "swarm.max_concurrent=20", "--set", "budget.tokens=unlimited"];
    let mut window = Window::run(&home, (80, 24), &twenty(), &at_once, &[("NO_COLOR", "1")]);
    window.wait_for("19 more wait");
    answer(&window, "y\r");
    window.wait_for("18 more wait");
    answer(&window, "n no more of these\r");
    window.wait_for("17 more wait");
    answer(&window, "\t");
    answer(&window, "y all\r");
    window.wait_for("type y all again");
    answer(&window, "y all\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(std::fs::read_dir(home.work()).unwrap().count(), 19);
}

#[test]
fn a_killed_run_asks_again_when_it_is_resumed() {
    let home = Home::new();
    let mut window = Window::run(&home, (100, 20), &shell("touch x"), &[], &[]);
    window.wait_for("y once");
    window.signal(rustix::process::Signal::KILL);
    window.end();
    let root = only_session(&home).unwrap();
    let mut window = Window::start(&home, (100, 20), &["resume", &root], &[]);
    window.wait_for("y once");
    answer(&window, "a\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(window.text().matches("asks to call shell").count(), 1, "{}", window.text());
    assert!(home.work().join("x").exists());
}

#[test]
fn without_a_drawn_tree_answers_are_read_line_by_line() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), &shell("touch x"), &[], &[("TERM", "dumb")]);
    window.wait_for("y once");
    answer(&window, "what?\n");
    window.wait_for("'what?' is no answer");
    answer(&window, "y\n");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(home.work().join("x").exists());
}

#[test]
fn a_run_without_a_terminal_can_wait_for_answers_from_elsewhere() {
    let home = Home::new();
    let model = home.script(&shell("touch x"));
    let wait = ["run", "--model", &model, "--set", "permissions.questions=wait", "--mode", "ask", "the task"];
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| home.brigade(&wait));
        let root = loop {
            if let Some(root) = only_session(&home) {
                break root;
            }
            assert!(!run.is_finished(), "it waits");
        };
        while home.brigade(&["answer", &root, "yes"]).code != 0 {
            assert!(!run.is_finished(), "it waits");
        }
        run.join().unwrap()
    });
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("lead asks: shell {\"command\":\"touch x\"} (brigade answer "),
        "{}",
        run.stderr
    );
    assert!(home.work().join("x").exists());
}

#[test]
fn in_a_chat_a_question_waits_until_the_message_is_finished() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\ndelay_ms = 600\n[[reply.call]]\ntool = \"shell\"\n\
                  arguments = { command = \"touch x\" }\n[[reply]]\ntext = \"after that: {heard}\"\n";
    let model = home.script(script);
    let mut window = Window::start(&home, (80, 24), &["chat", "--model", &model], &[("NO_COLOR", "1")]);
    window.wait_for("/help");
    window.press("go on\r");
    window.wait_for("thinking");
    window.press("y");
    let screen = window.wait_for("An agent asks something. Esc brings its question up.");
    assert!(screen.contains("lead asks to call shell"), "{screen}");
    // What was being typed is a message still, and no answer.
    window.press(" it is\r");
    window.wait_for("heard at the next step");
    assert!(!home.work().join("x").exists());
    window.press("\u{1b}");
    window.wait_for("y once");
    answer(&window, "y\r");
    window.wait_until("over", |screen| screen.contains("after that: y it is") && !screen.contains(" tok "));
    assert!(home.work().join("x").exists());
    window.press("\u{4}");
    assert_eq!(window.end(), 0, "{}", window.text());
}

#[test]
fn what_was_typed_before_a_question_is_no_answer() {
    for (term, enter) in [("xterm-256color", "\r"), ("dumb", "\n")] {
        let home = Home::new();
        let script = shell("touch x").replacen("turn = 1", "turn = 1\ndelay_ms = 700", 1);
        let mut window = Window::run(&home, (80, 20), &script, &[], &[("TERM", term)]);
        std::thread::sleep(Duration::from_millis(300));
        window.press("y\n");
        window.wait_for("y once");
        window.press(enter);
        window.press(&format!("y{enter}"));
        std::thread::sleep(Duration::from_millis(600));
        assert!(!home.work().join("x").exists(), "{}", window.text());
        window.press(&format!("n{enter}"));
        assert_eq!(window.end(), 0, "{}", window.text());
        assert!(window.text().contains("the answer was no"), "{}", window.text());
        assert!(!home.work().join("x").exists());
    }
}

#[test]
fn where_nobody_types_any_more_the_question_waits_for_its_time() {
    let home = Home::new();
    let soon = ["--set", "limits.question_timeout=2s"];
    let mut window = Window::run(&home, (80, 20), &shell("touch x"), &soon, &[("TERM", "dumb")]);
    window.wait_for("y once");
    window.press("\u{4}");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("nobody answered in time"), "{}", window.text());
}

#[test]
fn an_agent_cannot_answer_for_the_person() {
    let home = Home::new();
    let brigade = env!("CARGO_BIN_EXE_brigade");
    let answer =
        format!("setsid {brigade} answer last yes all --store {}/sessions.db", home.home().display());
    let script = format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = \"shell\"\narguments = {{ command = \"touch x\" }}\n\
         [[reply.call]]\ntool = \"shell\"\narguments = {{ command = \"sleep 0.5; {answer}\" }}\n\
         [[reply]]\ntext = \"{{results}}\"\n"
    );
    let ask = ["--mode", "auto", "--set", "permissions.ask=[\"shell(touch)\"]"];
    let mut window = Window::run(&home, (100, 30), &script, &ask, &[]);
    window.wait_for("y once");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!home.work().join("x").exists(), "{}", window.text());
    window.press("n\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("is for a person to answer"), "{}", window.text());
    assert!(!home.work().join("x").exists());
}
