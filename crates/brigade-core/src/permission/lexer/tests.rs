//! Readings of single command lines. Verdicts of rules are tested in `permission/tests`.

use super::*;

/// Renders the commands with their words, `~` before words that are known only at run time, and the properties.
fn reading(script: &Script) -> String {
    let flags = [
        ("plain", script.plain),
        ("single", script.single),
        ("parsed", script.parsed),
        ("odd", script.odd),
        ("heredoc", script.heredoc),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    format!("{} | {}", commands(&script.commands), flags.join(" "))
}

fn commands(commands: &[Vec<Word>]) -> String {
    let word = |word: &Word| format!("{}[{}]", if word.dynamic { "~" } else { "" }, word.text);
    let command = |words: &Vec<Word>| words.iter().map(word).collect::<Vec<_>>().join(" ");
    commands.iter().map(command).collect::<Vec<_>>().join(" / ").escape_debug().to_string()
}

const COMMANDS: &[&str] = &[
    "",
    "ls -l  src\ttests",
    "a; b & c | d\ne && f || g",
    "echo 'a b' \"c d\" e\\ f",
    "a'b'\"c\"d",
    "''",
    "echo 'it",
    "echo \"it",
    "echo \"$x\" '$x' $x",
    "echo \"a\\\"b\\$c\\`d\\\\e\\f\"",
    "echo \"a\\\nb\"",
    "echo \"a\\",
    "echo a\\\nb",
    "echo a\\",
    "echo \\$x",
    "echo \"wow!\" wow!",
    "echo *.rs a? {a,b} [ab] a] a[b ~ # no",
    "{ a; }",
    "echo a#b",
    "echo # it's\nls",
    "# only",
    "echo $(a b) c",
    "echo \"$(a \"b c\") d\"",
    "$((1 + 2))",
    "((x = 1))",
    "(a; b) c",
    "a )",
    "$(a",
    "echo ${x} ${x:-y} ${#x}",
    "echo ${x:-$y}",
    "echo ${x",
    "echo $[1]",
    "echo $x[1]",
    "echo `a b` c",
    "echo \"`a`\" b",
    "echo `a \"`\"`",
    "echo `a \\`b\\``",
    "echo `a 'b\\c'`",
    "echo `a 'b`c'`",
    "echo `a 'b'`",
    "echo `a \"b\\$c\"`",
    "echo `a $(b `c`)`",
    "echo `a` `b`",
    "echo `a",
    "echo $'a\\x62'",
    "echo $'ab'",
    "echo x'a\\b'",
    "echo $x'a\\b'",
    "echo \\$'a\\b'",
    "a > b c",
    "a 2> b c",
    "a 2x> b c",
    "a '2'> b c",
    "a $2> b c",
    "a >> b c >& d e >| f g",
    "a < b c",
    "a << E b",
    "a <<< b c",
    "a <> b c",
    "a <(b c) d >(e) f",
    "a &> b c",
    "a b &> c d &> e f",
    "a &>> b",
    "a &",
    "> b",
    "case x in a) b;; esac",
    "echo $(case x in a) b;; esac)",
    "echo $('case' x)",
    "a\u{200b}b",
    "a\u{a0}b",
    "a\rb",
];

#[test]
fn lex_of_each_kind_of_syntax_has_one_reading() {
    let lines: Vec<String> =
        COMMANDS.iter().map(|command| format!("{command:?}\n    {}", reading(&lex(command)))).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn split_unquoted_drops_quotes_and_separates_at_brackets() {
    let split = |command: &&str| format!("{command:?}\n    {}", commands(&split_unquoted(command)));
    insta::assert_snapshot!(COMMANDS.iter().map(split).collect::<Vec<_>>().join("\n"));
}

#[test]
fn command_of_more_than_64_kibibytes_is_not_understood() {
    let long = "a".repeat(65_536);
    assert!(lex(&long).parsed && lex(&long).plain);
    let longer = lex(&format!("{long}a"));
    assert!(!longer.parsed && !longer.plain);
}

#[test]
fn invisible_and_ambiguous_characters_are_deceptive() {
    for c in ['\t', '\n', ' ', 'a', '\u{e9}', '\u{4e2d}', '\u{1f600}', '-'] {
        assert!(!is_deceptive(c), "{c:?}");
    }
    let invisible = ['\u{ad}', '\u{200b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}'];
    let ambiguous = ['\r', '\u{0}', '\u{b}', '\u{1b}', '\u{85}', '\u{a0}', '\u{2003}', '\u{2028}'];
    for c in invisible.into_iter().chain(ambiguous) {
        assert!(is_deceptive(c), "{c:?}");
    }
}
