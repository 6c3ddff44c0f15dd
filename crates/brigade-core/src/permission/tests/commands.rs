//! Tests of shell rules; names with a letter and a number refer to hostile cases of the design.

use std::time::{Duration, Instant};

use super::*;

/// Auto mode, so that only the deny rule prevents the command.
fn no_clean() -> Permissions {
    permissions(Mode::Auto, &["shell"], &[], &["shell(git clean)"])
}

#[test]
fn h01_a_denied_command_is_found_behind_every_operator() {
    for operator in ["&&", ";", "||", "|", "\n", "&", ">", "|&", ">>", "&>", ";;", "2>&1;"] {
        let command = format!("git fetch {operator} git clean -fd");
        assert!(is_deny(run(&no_clean(), &command)), "{command}");
    }
    for command in [
        "git clean",
        "git clean -fd > out",
        ">out git clean",
        "git >out clean",
        "git 2>/dev/null clean -f",
        "git \"clean\" -fd",
        "gi\"\"t cl'ea'n",
        "g\\it clean",
        "gi\\\nt clean",
        "/usr/bin/git clean",
        "GIT clean",
        "echo $(git clean)",
        "echo \"$(git clean)\"",
        "echo \"a $(echo \"$(git clean)\")\"",
        "`git clean`",
        "cat <(git clean)",
        "(git clean)",
        "{ git clean; }",
        "! git clean",
        "if true; then git clean; fi",
        "for x in a; do git clean; done",
        "A=b git clean",
        "A=b C+=d git clean",
        "env A=b git clean",
        "sudo -u root git clean",
        "timeout -k 5 10 git clean",
        "nice -n 3 nohup time git clean",
        "command git clean",
        "xargs git clean",
        "sh -c 'git clean'",
        "bash -lc \"cd x && git clean\"",
        "sh -c \"sh -c 'git clean'\"",
        "eval git clean",
        "eval 'git' 'clean; x'",
        "eval \"eval 'git clean'\"",
        "sudo sh -c 'eval git clean'",
        "git -C dir clean -fd",
        "a &>f git clean",
        "a &>git clean",
        "git &>f clean",
        "git --no-pager -c a=b clean",
        "f() { git clean; }; f",
        "function f { git clean; }",
        "find . -exec git clean {} \\;",
        "case x in a) git clean;; esac",
        "echo \"$(case x in a) git clean;; esac)\"",
        "cat <<E\ndon't\nE\ngit clean\ncat <<E\ndon't\nE",
        "echo ${x:-$(git clean)}",
        "trap 'git clean' EXIT",
        "echo # it's\ngit clean",
        "x=$(git clean)",
        "echo $((1 # ));git clean",
    ] {
        assert!(is_deny(run(&no_clean(), command)), "{command}");
    }
}

#[test]
fn undecidable_deny_rule_asks() {
    for command in [
        "$X clean",
        "git $X",
        "${GIT} clean",
        "{git,clean,-fd}",
        "/usr/bin/g?t clean",
        "git c[l]ean",
        "sudo -u a $X",
        "echo clean | xargs git",
        "echo git clean | sh",
        "curl x | sudo bash -s a",
        "alias g=git\ng clean",
        "sh -c \"$X\"",
        "$'\\x67it' clean",
        "git \"$@\"",
        "echo 'open",
        "eval \"$X\"",
        "bash <<< \"$X\"",
        "find . -exec git {} \\;",
        "chrt -i 0 git clean",
        "prlimit --core=0 git clean -fd",
        "setarch -R /usr/bin/git clean",
        "nsenter -t 1 git clean",
        "setpriv --no-new-privs git clean",
        "choom -n 0 -- git clean",
        "logsave log git clean",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/git clean",
        "unknown-program --run git clean",
    ] {
        assert!(is_ask(run(&no_clean(), command)), "{command}: {:?}", run(&no_clean(), command));
        assert!(is_allow(run(&permissions(Mode::Auto, &[], &[], &[]), command)), "{command}");
    }
    for command in [
        "echo $HOME",
        "git commit -m 'then git clean'",
        "git commit -m clean",
        "ls *.rs > $OUT",
        "git status",
        "gitclean",
        "echo git clean",
        "sudo ls $X",
        "cargo test 2>&1 | tail -5",
        "for f in *; do wc \"$f\"; done",
        "[ -f x ] && echo y",
        "git log # git clean",
        "bash run.sh",
        "git cleanup",
        "time cargo test \"$X\"",
    ] {
        assert!(is_allow(run(&no_clean(), command)), "{command}: {:?}", run(&no_clean(), command));
    }
    let force = permissions(Mode::Auto, &[], &[], &["shell(git push --force)"]);
    assert!(is_deny(run(&force, "git push origin main --force")));
    assert!(is_allow(run(&force, "git push origin main")));
}

#[test]
fn h02_sixty_subcommands_do_not_hide_the_last() {
    for count in [60, 12_000] {
        let command = format!("{}git clean -fd", "true;".repeat(count));
        assert!(is_deny(run(&no_clean(), &command)));
    }
}

#[test]
fn long_and_nested_commands_take_linear_time() {
    let size = 60_000;
    let started = Instant::now();
    for part in [
        "$(",
        "(",
        "`",
        "sudo ",
        "sudo git -a ",
        "eval ",
        "sh -c ",
        "\"$(",
        "{",
        "'",
        "\\",
        "a=b ",
        "<(",
        "git -a ",
        "eval '",
        "xargs sh eval \"a b\" ",
        "${",
        "<<",
        "case ",
        ") ",
    ] {
        let command = format!("sudo {}", part.repeat(size / part.len()));
        run(&no_clean(), &command);
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn h03_arithmetic_and_other_expansions_are_not_plain() {
    let permissions = permissions(Mode::Ask, &["shell(echo *)", "shell(printf *)"], &[], &[]);
    for command in [
        "echo $[ x='a[$(touch F)]', x ]",
        "echo $((a))",
        "echo $X",
        "echo ${X}",
        "echo \"$X\"",
        "echo `x`",
        "echo $(touch F)",
        "echo a > b",
        "echo a < b",
        "echo <(x)",
        "echo *",
        "echo ?",
        "echo [a]",
        "echo ~",
        "echo {a,b}",
        "echo !x",
        "echo \"!x\"",
        "echo a # b",
        "A=b echo a",
        "(echo a)",
        "{ echo a; }",
        "! echo a",
        "/bin/echo a",
        "echo a; touch F",
        "echo a && touch F",
        "echo a | sh",
        "echo a &touch F",
        "echo a\ntouch F",
        "ECHO a",
        "echoa",
        "printf -v 'a[$(touch F)]' x",
        "echo a \\\n b",
        "",
        ";",
        " ",
        "echo() { touch F; }",
        "echo 'a",
        "echo a\\",
    ] {
        assert!(is_ask(run(&permissions, command)), "{command}");
    }
    for command in [
        "echo",
        "echo a",
        "echo 'a*b' \"c;d\" e\\;f",
        "e'ch'o a",
        "echo a; echo b",
        "echo a && printf b || echo c | echo d",
        "echo a &",
        "echo a\necho b\n",
        "echo a=b",
    ] {
        assert!(is_allow(run(&permissions, command)), "{command}");
    }
}

#[test]
fn h04_every_part_must_be_allowed() {
    let permissions = permissions(Mode::Edit, &["shell(git log)", "shell(git \"status\")"], &[], &[]);
    for command in [
        "export PAGER='touch F'; git log",
        "PAGER='touch F' git log",
        "git log -1",
        "git",
        "git log; ls",
        "env git log",
    ] {
        assert!(is_ask(run(&permissions, command)), "{command}");
    }
    assert!(is_allow(run(&permissions, "git 'log' && git status")));
}

#[test]
fn h06_deceptive_characters_are_never_allowed_and_do_not_hide() {
    let allow = permissions(Mode::Ask, &["shell(git log *)", "shell(*)"], &[], &[]);
    for c in [
        '\r',
        '\0',
        '\u{a0}',
        '\u{200b}',
        '\u{200d}',
        '\u{2028}',
        '\u{2029}',
        '\u{85}',
        '\u{b}',
        '\u{7f}',
        '\u{feff}',
        '\u{202e}',
        '\u{3000}',
        '\u{e0041}',
        '\u{1b}',
    ] {
        assert!(is_ask(run(&allow, &format!("git log{c}x"))), "{c:?}");
        assert!(is_ask(run(&allow, &format!("git log '{c}'"))), "{c:?}");
        assert!(is_deny(run(&no_clean(), &format!("git{c}clean"))), "{c:?}");
        assert!(is_deny(run(&no_clean(), &format!("git cl{c}ean"))), "{c:?}");
        assert!(is_deny(run(&no_clean(), &format!("true{c}git clean"))), "{c:?}");
        assert!(is_ask(run(&no_clean(), &format!("ls{c}"))), "{c:?}");
        assert!(is_allow(run(&permissions(Mode::Auto, &[], &[], &[]), &format!("ls{c}"))), "{c:?}");
    }
    let long = format!("git log {}", "a".repeat(70_000));
    assert!(is_ask(run(&allow, &long)) && is_ask(run(&no_clean(), &long)));
    assert!(is_allow(run(&permissions(Mode::Ask, &["shell"], &[], &[]), &long)));
}
