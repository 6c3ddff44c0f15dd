//! Parts of the comparison of command lines. Verdicts are tested in `permission/tests`.

use super::*;

fn verdict(rule: &str, command: &str) -> Match {
    let Ok(rule) = CommandRule::parse(rule) else { panic!("{rule}") };
    CommandLine::new(command).matches(&rule)
}

fn collector(nested_bytes: usize) -> CommandCollector {
    CommandCollector { commands: Vec::new(), unknown: false, queue: VecDeque::new(), nested_bytes }
}

#[test]
fn assignment_has_a_variable_name_before_the_equals_sign() {
    for text in ["A=b", "_a1=", "A+=b", "A[1]=b", "a=b=c"] {
        assert!(is_assignment(text), "{text}");
    }
    for text in ["A", "=b", "1a=b", "a-b=c", "--a=b", "a.b=c", "+=b", "[1]=b", "é=b", "aé=b"] {
        assert!(!is_assignment(text), "{text}");
    }
}

#[test]
fn rule_is_exact_unless_it_ends_with_a_star() {
    let is_exact = |rule: &str| CommandRule::parse(rule).ok().map(|rule| rule.is_exact());
    assert_eq!(
        (is_exact("git status"), is_exact("git *"), is_exact("git '*'")),
        (Some(true), Some(false), Some(true))
    );
    for wrong in ["", "a; b", "a > b", "git * x", "A=b git", "if a", "'open", "$(a)"] {
        assert_eq!(is_exact(wrong), None, "{wrong}");
    }
}

#[test]
fn options_between_the_words_of_a_rule_are_skipped_up_to_a_bound() {
    let command = |options: usize| format!("git{} clean", " -a".repeat(options));
    assert_eq!(verdict("git clean", &command(MAX_OPTIONS)), Match::Yes);
    assert_eq!(verdict("git clean", &command(MAX_OPTIONS + 1)), Match::Maybe);
    assert_eq!(verdict("git clean", "git -C dir clean"), Match::Yes);
    assert_eq!(verdict("git clean", "git dir clean"), Match::No);
    assert_eq!(verdict("git clean", "git -C dir x clean"), Match::No);
    assert_eq!(verdict("git push --force", "git push origin main --force"), Match::Yes);
    assert_eq!(verdict("git clean", "git"), Match::No);
}

#[test]
fn arguments_of_wrappers_are_commands_of_their_own() {
    for (command, expected) in [
        ("eval ls", Match::No),
        ("eval eval ls", Match::No),
        ("xargs -s 100 ls", Match::No),
        ("timeout --signal=9 5 ls", Match::No),
        ("bash --posix run.sh", Match::No),
        ("bash run.sh", Match::No),
        ("bash", Match::Maybe),
        ("bash -s x", Match::Maybe),
        ("sudo bash -es x", Match::Maybe),
        ("xargs git", Match::Maybe),
        ("sudo git", Match::No),
        ("sudo $X clean", Match::Maybe),
        ("sudo ls $X", Match::No),
        ("alias g=git", Match::Maybe),
        ("sudo -u root git clean", Match::Yes),
        ("env -S'git clean -fd'", Match::Yes),
        ("env -Sgit clean", Match::Yes),
        ("chrt 1 git clean", Match::Maybe),
        ("chrt 1 git status", Match::No),
        ("echo git clean", Match::No),
        ("/bin/echo git clean", Match::Maybe),
    ] {
        assert!(verdict("git clean", command) == expected, "{command}");
    }
}

#[test]
fn nested_commands_are_bounded_in_depth_and_size() {
    let (text, max_bytes) = ("a b", 524_288);
    let mut allowed = collector(max_bytes - text.len());
    allowed.queue_nested(text, false, Some(MAX_NESTING_DEPTH - 1));
    assert!(!allowed.unknown);
    assert_eq!(allowed.queue, [(text.to_owned(), MAX_NESTING_DEPTH)]);
    assert_eq!(allowed.nested_bytes, max_bytes);
    let mut too_long = collector(max_bytes - text.len() + 1);
    too_long.queue_nested(text, false, Some(0));
    let mut too_deep = collector(0);
    too_deep.queue_nested(text, false, Some(MAX_NESTING_DEPTH));
    for refused in [too_long, too_deep] {
        assert!(refused.unknown && refused.queue.is_empty());
    }
}

#[test]
fn single_word_is_nested_only_if_it_is_resolved_again_at_the_front() {
    let queued = |text: &str, front: bool, depth: Option<usize>| {
        let mut collector = collector(0);
        collector.queue_nested(text, front, depth);
        (collector.queue.len(), collector.unknown)
    };
    assert_eq!((queued("ls", true, Some(0)), queued("$X", true, Some(0))), ((0, false), (1, false)));
    assert_eq!((queued("$X", false, Some(0)), queued("a b", false, None)), ((0, false), (0, false)));
}

#[test]
fn work_for_a_wrapper_is_queued_once() {
    let collected = |command: &str| {
        let mut collector = collector(0);
        collector.read(command, &lexer::lex(command), 0);
        let queued: Vec<String> = collector.queue.iter().map(|(text, _)| text.clone()).collect();
        let positions: Vec<usize> = collector.commands[0].name_positions.iter().map(|name| name.at).collect();
        (queued, positions)
    };
    assert_eq!(collected("eval eval x y"), (vec!["eval x y".to_owned()], vec![0, 1, 2, 3]));
    assert_eq!(collected("sudo ls -l a"), (vec![], vec![0, 1, 2, 3]));
    assert_eq!(collected("sudo 'a b' c"), (vec!["a b".to_owned()], vec![0, 1, 2]));
    assert_eq!(collected("ls -l"), (vec![], vec![0]));
}
