//! Fuzz tests of rules and of the splitter with random command lines. `FUZZ=N` sets the number of cases; `FUZZ_SEED=N`
//! with `FUZZ=1` reproduces one of them.

use super::super::lexer;
use super::super::shell::CommandLine;
use super::*;

/// Default number of cases. They take a few seconds.
const CASES: u64 = 20_000;

/// Fragments of command lines.
const PIECES: [&str; 64] = [
    "git",
    "clean",
    "rm",
    "-fd",
    "x",
    "A=b",
    "--",
    "-c",
    "alias.x=!git clean",
    "sudo",
    "env",
    "-S",
    "eval",
    "sh",
    "-c",
    "xargs",
    "find",
    "-exec",
    "{}",
    "\\;",
    "echo",
    "cd",
    "if",
    "then",
    "fi",
    "for",
    "do",
    "done",
    "case",
    "esac",
    "in",
    "function",
    "f()",
    "$X",
    "${X}",
    "${X:-$(git clean)}",
    "$((1+1))",
    "$[1]",
    "$'\\x67'",
    "`git clean`",
    "$(git clean)",
    "<(git clean)",
    "*",
    "?",
    "[a]",
    "~",
    "!",
    "#",
    "{",
    "}",
    "(",
    ")",
    "<<E",
    "<<<",
    ">",
    "2>&1",
    "&>",
    "\u{a0}",
    "\u{200b}",
    "\r",
    "\0",
    "é",
    "'",
    "\"",
];
/// Everything that separates two commands.
const OPERATORS: [&str; 8] = [";", "&&", "||", "|", "&", "\n", " ;\n", "\n\n"];
/// Texts before a command that run it.
const PREFIXES: [&str; 22] = [
    "sudo ",
    "sudo -u root ",
    "env ",
    "env A=b ",
    "A=b ",
    "A=b B+=c ",
    "nice -n 5 ",
    "time ",
    "timeout 5 ",
    "nohup ",
    "command ",
    "exec -a x ",
    "xargs ",
    "busybox ",
    "! ",
    "if ",
    "{ ",
    "setsid -w ",
    "strace -f -o log ",
    "chroot / ",
    "unshare -r ",
    "systemd-run --user ",
];
/// Programs before a command that run it, which the rules do not know.
const UNKNOWN: [&str; 8] = [
    "chrt 1 ",
    "prlimit --core=0 ",
    "setpriv --no-new-privs ",
    "choom -n 0 -- ",
    "logsave log ",
    "/lib64/ld.so ",
    "nsenter -t 1 ",
    "my-tool run ",
];

/// Deterministic random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    /// Random command line, mostly of pieces that matter to shells.
    fn line(&mut self) -> String {
        let mut line = String::new();
        for _ in 0..self.below(14) {
            match self.below(12) {
                0 => line.push(char::from_u32(self.below(0x300) as u32).unwrap_or(' ')),
                1 => line.push(['\'', '"', '\\', '`', '$', '(', ')', '\n'][self.below(8)]),
                2 => line.push_str(self.pick(&OPERATORS)),
                _ => line.push_str(self.pick(&PIECES)),
            }
            line.push_str(self.pick(&[" ", " ", " ", "", "\t", "  "]));
        }
        line
    }

    /// Plain command of a few words, and the same words in other quotes.
    fn command(&mut self) -> (String, String) {
        let words: Vec<&str> = (0..1 + self.below(3))
            .map(|at| {
                if at == 0 {
                    self.pick(&["git", "rm", "make", "cargo"])
                } else {
                    self.pick(&["clean", "x", "-f", "log"])
                }
            })
            .collect();
        let quoted: Vec<String> = words.iter().map(|word| self.quoted(word)).collect();
        let blank = self.pick(&[" ", "  ", "\t", " \\\n"]);
        (words.join(" "), quoted.join(blank))
    }

    fn quoted(&mut self, word: &str) -> String {
        let at = self.below(word.len());
        let (start, end) = word.split_at(at);
        match self.below(6) {
            0 => format!("'{word}'"),
            1 => format!("{start}\"{end}\""),
            2 => format!("{start}''{end}"),
            3 => format!("{start}\\{end}"),
            4 if at > 0 => format!("{start}\\\n{end}"),
            _ => word.to_owned(),
        }
    }
}

/// Prints the seed of the current case if it panics.
struct PrintSeedOnPanic(u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with FUZZ=1 FUZZ_SEED={}", self.0);
        }
    }
}

/// Auto mode, so that only a deny rule can prevent the command.
fn deny(command: &str) -> Permissions {
    permissions(Mode::Auto, &["shell"], &[], &[&format!("shell({command})")])
}

/// Whether every shell reads the line as plain words, simple quotes and list operators. A second implementation,
/// independent of the lexer.
fn is_plain(line: &str) -> bool {
    let (mut quote, mut escaped, mut starts_word) = (None, false, true);
    for c in line.chars() {
        if lexer::is_deceptive(c) || matches!(c, '$' | '`') {
            return false;
        }
        match (quote, c) {
            (_, '\n') if escaped => return false,
            (None, _) if escaped => escaped = false,
            (Some('"'), _) if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (Some('"'), '!') => return false,
            (None, '<' | '>' | '(' | ')' | '{' | '}' | '*' | '?' | '[' | ']' | '~' | '!') => return false,
            (None, '#') if starts_word => return false,
            _ => {}
        }
        starts_word = quote.is_none() && matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|');
    }
    quote.is_none() && !escaped
}

/// Any line: nothing panics, the work is bounded, and what is not plain is not allowed.
fn check_any_line(rng: &mut Rng) {
    let line = rng.line();
    let allowed = is_allow(run(&permissions(Mode::Ask, &["shell(*)"], &[], &[]), &line));
    assert!(!allowed || is_plain(&line), "{line:?} is allowed");
    let prepared = CommandLine::new(&line);
    let words = prepared.words();
    assert!(words <= 200 + 40 * line.len(), "{words} words of {line:?}");
    // A command that the splitter finds is found by a deny rule, and further rules never widen the verdict.
    for words in lexer::lex(&line).commands {
        let Some(name) = words.first().filter(|word| !word.dynamic) else { continue };
        let Ok(rule) = format!("shell('{}')", name.text).parse::<Rule>() else { continue };
        let strict = Permissions { deny: vec![rule], ..permissions(Mode::Auto, &["shell"], &[], &[]) };
        assert!(!is_allow(run(&strict, &line)), "{:?} in {line:?}", name.text);
    }
    let one = run(&deny("git clean"), &line);
    let two =
        run(&permissions(Mode::Auto, &["shell"], &["shell(x)"], &["shell(git clean)", "shell(rm)"]), &line);
    assert!(width(&two) <= width(&one), "{line:?}");
}

/// A denied command stays denied, or asks behind an unknown program, whatever is added around it.
fn check_monotone(rng: &mut Rng) {
    let (rule, command) = rng.command();
    assert!(is_deny(run(&deny(&rule), &rule)), "{rule}");
    assert!(is_deny(run(&deny(&rule), &command)), "{rule}: {command:?}");
    let prefix = rng.pick(&PREFIXES);
    let close = if prefix == "{ " { "; }" } else { "" };
    let other = rng.pick(&["ls", "true", "echo 'a b'", "cd x", "git", "ls *"]);
    let operator = rng.pick(&OPERATORS);
    for line in [
        format!("{prefix}{command}{close}"),
        format!("{other}{operator}{command}"),
        format!("{command}{operator}{other}"),
        format!("{command} more arguments"),
        format!("{command} > out"),
        format!("({command})"),
        format!("$({command})"),
        format!("{other} \"$({command})\""),
        format!("sh -c '{}'", command.replace('\'', "'\\''")),
    ] {
        assert!(is_deny(run(&deny(&rule), &line)), "{rule}: {line:?}");
    }
    let line = format!("{}{prefix}{command}{close}", rng.pick(&UNKNOWN));
    assert!(!is_allow(run(&deny(&rule), &line)), "{rule}: {line:?}");
    // A plain command line is allowed if and only if a rule allows each of its commands.
    let (first, second) = (rng.command().0, rng.command().0);
    let line = format!("{first}{operator}{second}");
    let allow = |rules: &[&str]| is_allow(run(&permissions(Mode::Ask, rules, &[], &[]), &line));
    let (one, other) = (format!("shell({first})"), format!("shell({second})"));
    assert!(allow(&[&one, &other]), "{line:?}");
    assert_eq!(allow(&[&one]), first == second, "{line:?}");
}

/// A text either is no rule, or the same rule after it was written.
fn check_rule(rng: &mut Rng) {
    let tool =
        rng.pick(&["shell", "read_file", "web_fetch", "edit_file", "Shell", "bash", "mcp__x__y", "*", ""]);
    let text = if rng.one_in(3) { rng.line() } else { format!("{tool}({})", rng.line()) };
    let Ok(rule) = text.parse::<Rule>() else { return };
    let again: Rule = rule.to_string().parse().unwrap();
    assert_eq!(again, rule, "{text:?}");
    let line = rng.line();
    let lists = |allow: &[&Rule], deny: &[&Rule]| {
        let copied = |rules: &[&Rule]| rules.iter().map(|rule| (*rule).clone()).collect();
        Permissions { mode: Mode::Ask, allow: copied(allow), deny: copied(deny), ..Permissions::default() }
    };
    let subjects = [Subject::Command(&line), Subject::Path(&line), Subject::Host(&line), Subject::Nothing];
    for subject in subjects {
        for tool in ["shell", "read_file", "web_fetch", "other"] {
            let action = Action { tool, kind: ActionKind::Other, subject };
            let allowed = lists(&[&rule], &[]).check(&action);
            let both = lists(&[&rule], &[&rule]).check(&action);
            // A command that an allow rule covers is also covered by the same text as a deny rule.
            assert!(!is_allow(allowed) || !is_allow(both), "{rule}: {action:?}");
        }
    }
}

fn run_case(seed: u64) {
    let _case = PrintSeedOnPanic(seed);
    let mut rng = Rng(seed);
    check_any_line(&mut rng);
    check_monotone(&mut rng);
    check_rule(&mut rng);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "only a long run by hand sets them")]
fn random_rules_and_command_lines_keep_the_laws() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (cases, seed) = (number("FUZZ").unwrap_or(CASES), number("FUZZ_SEED").unwrap_or(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let run = |first: u64| (seed + first..seed + cases).step_by(threads as usize).for_each(run_case);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads.min(cases)).map(|first| scope.spawn(move || run(first))).collect();
        runs.into_iter().for_each(|run| run.join().unwrap());
    });
}

/// The work for hostile lines of the maximum length grows in proportion to their length.
#[test]
fn work_for_long_lines_is_proportional_to_their_length() {
    let words = |piece: &str, size: usize| CommandLine::new(&piece.repeat(size / piece.len())).words();
    for piece in
        PIECES.into_iter().chain(PREFIXES).chain(["git -a ", "sh -c ", "\"$(", "eval '", "<<", "a=b "])
    {
        let piece = format!("{piece} ");
        let (short, long) = (words(&piece, 4_000), words(&piece, 32_000));
        assert!(long <= 12 * short.max(8_000), "{piece:?}: {short} words, then {long}");
    }
}
