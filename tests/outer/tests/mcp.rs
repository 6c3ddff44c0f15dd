//! The built command against the reference servers of MCP.

#![expect(clippy::unwrap_used, reason = "tests")]

use brigade_outer_tests::{Done, Everything, Place, mcp_server, node, processes_with};

const ALLOW: &str = "permissions.allow=[\"mcp__everything__*\"]";
const FILES: &str = "permissions.allow=[\"mcp__files__*\"]";

/// A place with both servers, which the command starts.
fn place() -> Place {
    let place = Place::new("");
    let server = |name: &str, server: &str, argument: &str| {
        let (node, server) = (node(), mcp_server(server));
        let (node, server) = (node.display(), server.display());
        format!("[mcpServers.{name}]\ncommand = '{node}'\nargs = ['{server}', '{argument}']\n")
    };
    let work = place.path("work").display().to_string();
    let config = server("everything", "everything", "stdio") + &server("files", "filesystem", &work);
    std::fs::write(place.path("home/config.toml"), config).unwrap();
    std::fs::write(place.path("work/note.txt"), "written before\n").unwrap();
    place
}

/// Runs a script in mode `ask`, with nobody to ask.
fn run(place: &Place, script: &str, more: &[&str]) -> Done {
    std::fs::write(place.path("script.toml"), script).unwrap();
    let model = format!("script:{}", place.path("script.toml").display());
    let mut words = vec!["run", "--model", &model, "--mode", "ask", "--output-format", "json", "go"];
    words.extend(more);
    place.brigade(&words)
}

/// One call, and then what came of it.
fn calling(tool: &str, arguments: &str) -> String {
    format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = '{tool}'\narguments = {arguments}\n[[reply]]\ntext = '{{results}}'\n"
    )
}

fn result(done: &Done) -> String {
    done.report()["result"].as_str().unwrap_or_default().to_owned()
}

fn nothing_is_left(place: &Place) {
    // The folder is named by the arguments of the server of files.
    let work = place.path("work").display().to_string();
    let begun = std::time::Instant::now();
    while !processes_with(&work).is_empty() {
        assert!(begun.elapsed().as_secs() < 10, "{:?}", processes_with(&work));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_call_is_refused_without_leave_and_goes_through_with_it() {
    let place = place();
    let echo = calling("mcp__everything__echo", "{ message = 'there and back' }");
    let refused = result(&run(&place, &echo, &[]));
    assert!(refused.contains("mcp__everything__echo") && !refused.contains("there and back"), "{refused}");
    let echoed = result(&run(&place, &echo, &["--set", ALLOW]));
    assert!(echoed.contains("Echo: there and back"), "{echoed}");
    nothing_is_left(&place);
}

#[test]
fn answers_of_all_kinds_are_understood() {
    let place = place();
    let script = "[[reply]]\nturn = 1\n\
        [[reply.call]]\ntool = 'mcp__everything__get-sum'\narguments = { a = 20, b = 22 }\n\
        [[reply.call]]\ntool = 'mcp__everything__get-tiny-image'\narguments = {}\n\
        [[reply.call]]\ntool = 'mcp__everything__trigger-long-running-operation'\narguments = { duration = 1, steps = 3 }\n\
        [[reply.call]]\ntool = 'mcp__everything__get-env'\narguments = {}\n\
        [[reply.call]]\ntool = 'mcp__everything__read_resource'\narguments = {}\n\
        [[reply.call]]\ntool = 'mcp__everything__get_prompt'\narguments = { name = 'simple-prompt' }\n\
        [[reply.call]]\ntool = 'mcp__everything__get-sum'\narguments = { a = 'x' }\n\
        [[reply]]\ntext = '{results}'\n";
    let text = result(&run(&place, script, &["--set", ALLOW]));
    for words in
        ["42", "(image, image/png", "Long running operation completed", "PATH", "demo://resource", "user: "]
    {
        assert!(text.contains(words), "no {words} in {text}");
    }
    assert!(!text.contains("BRIGADE_HOME"), "{text}");
    nothing_is_left(&place);
}

#[test]
fn a_file_is_read_by_the_server_of_files() {
    let place = place();
    let path = place.path("work/note.txt").display().to_string();
    let script = calling("mcp__files__read_text_file", &format!("{{ path = '{path}' }}"));
    let text = result(&run(&place, &script, &["--set", FILES]));
    assert!(text.contains("written before"), "{text}");
    let outside = calling("mcp__files__read_text_file", "{ path = '/etc/passwd' }");
    let text = result(&run(&place, &outside, &["--set", FILES]));
    assert!(text.contains("Access denied"), "{text}");
}

#[test]
fn a_child_has_the_tools_of_a_server_only_where_they_are_lent() {
    let place = place();
    let lending = |tools: &str| {
        format!(
            "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
             arguments = {{ role = 'helper', task = 'say it', tools = {tools} }}\n\
             [[reply]]\nagent = 'lead'\ntext = '{{results}}'\n{}",
            calling("mcp__everything__echo", "{ message = 'from below' }")
        )
    };
    let lent = result(&run(&place, &lending("['mcp__everything__*']"), &["--set", ALLOW]));
    assert!(lent.contains("Echo: from below"), "{lent}");
    let kept = result(&run(&place, &lending("['read_file', 'mcp__files__*']"), &["--set", ALLOW]));
    assert!(kept.contains("There is no tool 'mcp__everything__echo'"), "{kept}");
}

#[test]
fn a_server_over_http_is_used_in_the_same_way() {
    let server = Everything::start();
    let place = Place::new(&format!("[mcpServers.everything]\nurl = '{}'\n", server.address));
    let echo = calling("mcp__everything__echo", "{ message = 'over the wire' }");
    let text = result(&run(&place, &echo, &["--set", ALLOW]));
    assert!(text.contains("Echo: over the wire"), "{text}");
}
