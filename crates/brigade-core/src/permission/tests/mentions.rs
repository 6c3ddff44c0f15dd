//! Attacks on `deny` rules: a denied command in every form that does not name it as the command. Each asks at least.

use super::*;

/// Forms of the command `git clean`.
const GIT_CLEAN: [&str; 98] = [
    // Applets, and programs that run their arguments.
    "busybox git clean",
    "busybox sh -c 'git clean'",
    "xargs git clean",
    "echo clean | xargs git",
    "echo 'git clean' | xargs -I{} sh -c {}",
    "find . -exec git clean {} +",
    "find . -execdir sh -c 'git clean' \\;",
    "find . -ok git clean \\;",
    "fd -x git clean",
    "start-stop-daemon --start --exec /usr/bin/git -- clean",
    "start-stop-daemon -Sx git clean",
    "setarch -R git clean",
    "unknown --run=git clean",
    "tmux new-session 'git clean'",
    "screen -dm git clean",
    "dbus-run-session -- git clean",
    "sg group -c 'git clean'",
    "watch -n1 'git clean'",
    "entr git clean",
    "perl -e 'exec q(git), q(clean)'",
    "perl -e 'system(\"git clean -fd\")'",
    "python3 -c 'import os; os.system(\"git clean\")'",
    "python3 -c 'import subprocess as s; s.run([\"git\", \"clean\"])'",
    "python3 -c \"__import__('os').execlp('git','git','clean')\"",
    "node -e 'require(\"child_process\").execSync(\"git clean\")'",
    "ruby -e '`git clean`'",
    "awk 'BEGIN{system(\"git clean\")}'",
    "awk 'BEGIN{\"git clean\"|getline}'",
    "sed -n '1e git clean' x",
    "sed 's/x/git clean/e' x",
    "vim -c '!git clean' -c q",
    "ed -s x <<< '!git clean'",
    "make -f- <<< 'x:;git clean'",
    "printf 'x:\\n\\tgit clean\\n' | make -f-",
    "echo 'x:;git clean' | make -f -",
    "make SHELL='git clean' x",
    "make --eval='x:;git clean' x",
    "tar cf x x --checkpoint=1 --checkpoint-action=exec='git clean'",
    "tar -I'git clean' -cf x x",
    "tar xf x --to-command 'git clean'",
    "tar xf x --to-command=git\\ clean",
    "ssh -o ProxyCommand='git clean' host",
    "ssh -oProxyCommand='git clean' host",
    "scp -S 'git clean' a b:c",
    "rsync -e 'git clean' a b:c",
    "rsync --rsh='git clean' a b:c",
    "rg --pre 'git clean' x",
    "sort --compress-program='git clean' x",
    "split --filter='git clean' x",
    "man -P 'git clean' ls",
    "zip x x -TT 'git clean'",
    "gdb -ex '!git clean'",
    "crontab - <<E\n* * * * * git clean\nE",
    "echo 'git clean' | at now",
    "echo 'git clean' > x; . ./x",
    "echo 'git clean' | tee x; sh x",
    // git runs programs and renames its subcommands.
    "git -c alias.x='!git clean' x",
    "git -c alias.x=clean x -fd",
    "git -c ALIAS.x=clean x -fd",
    "git --config-env=alias.x=CLEAN x",
    "git config alias.x clean; git x",
    "git -c include.path=/tmp/x x",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0=clean git x",
    "GIT_CONFIG_GLOBAL=x git y",
    "HOME=x git y",
    "GIT_EDITOR='git clean' git commit",
    "GIT_SSH_COMMAND='git clean' git fetch x",
    "git submodule foreach git clean",
    "git submodule foreach 'git clean'",
    "git bisect run git clean",
    "git rebase -x 'git clean' HEAD~1",
    "git -c core.pager='git clean' log",
    "git -c core.fsmonitor='git clean' status",
    "git grep -O'git clean' x",
    "git ls-remote --upload-pack='git clean' x",
    "/usr/lib/git-core/git-clean -fd",
    "env git-clean",
    // Quotes, expansions and line ends.
    "g\"i\"t c'l'ean",
    "git\\\n clean",
    "git$IFS\"clean\"",
    "git${IFS}clean",
    "env -S'git\\_clean'",
    "env -S 'git\\_clean'",
    "env --split-string='git clean'",
    "env --split='git clean'",
    "chrt 1 g{i,}t clean",
    "chrt 1 /usr/bin/g?t clean",
    "chrt 1 /usr/bin/[g]it clean",
    "chrt 1 git $X",
    // Variables and other names.
    "./gh pr create --body 'git clean'",
    "awk 'BEGIN{system(\"git x; git-clean\")}'",
    "G=git; chrt 1 $G clean",
    "G='git clean'; chrt 1 $G",
    "for g in git; do chrt 1 $g clean; done",
    "set -- git clean; chrt 1 \"$@\"",
    "export G=$(which git); chrt 1 $G clean",
    "ln -s /usr/bin/git g; ./g clean",
    "cp $(command -v git) g; ./g clean",
];

/// Forms in which a shell's own words stand before or in a command, which is denied.
const DENIED: [&str; 23] = [
    "command git clean",
    "command -p git clean",
    "command -- git clean",
    "exec git clean",
    "exec -a ls git clean",
    "exec -cl git clean",
    "builtin git clean",
    "builtin command git clean",
    "time -p git clean",
    "./git clean",
    "../../bin/git clean",
    "~/bin/git clean",
    "\\git clean",
    "git <<< x clean",
    "'git' clean",
    "git \\\n\\\n clean",
    "git -c a=b -c c=d --no-pager clean",
    "coproc git clean",
    "until git clean; do :; done",
    "if ! git clean; then :; fi",
    "x() { git clean; }; x",
    "trap 'git clean' 0",
    ". <(git clean)",
];

/// Commands near the rule, which it must not hinder.
const FREE: [&str; 23] = [
    "git status",
    "git commit -m 'then git clean'",
    "git commit -am 'git clean is gone'",
    "git commit --message='git clean'",
    "git tag -a v1 -m 'git clean'",
    "gh pr create --title 'git clean' --body 'git clean'",
    "echo git clean",
    "grep -rn 'git clean' .",
    "ls $HOME/git",
    "cat git-clean.md",
    "make clean",
    "cargo clean",
    "X=1; ls $X",
    "cp a b && git status",
    "for f in *; do wc \"$f\"; done",
    "cd git && make clean",
    "[ -d git ] && ls",
    "HOME=x ls",
    "git log --oneline | head",
    "git diff -- clean",
    "mv clean dirty; git add -A",
    "find . -name '*.git' -print",
    "xargs -n1 ls",
];

fn check(command: &str) -> Verdict {
    run(&permissions(Mode::Auto, &["shell"], &[], &["shell(git clean)"]), command)
}

#[test]
fn denied_command_asks_at_least_wherever_it_is_mentioned() {
    let passed: Vec<&str> =
        GIT_CLEAN.into_iter().chain(DENIED).filter(|command| is_allow(check(command))).collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

#[test]
fn words_of_the_shell_do_not_hide_a_denied_command() {
    let passed: Vec<&str> = DENIED.into_iter().filter(|command| !is_deny(check(command))).collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

#[test]
fn commands_near_a_deny_rule_stay_free() {
    let hindered: Vec<_> = FREE
        .into_iter()
        .map(|command| (command, check(command)))
        .filter(|(_, found)| !is_allow(found.clone()))
        .collect();
    assert!(hindered.is_empty(), "{hindered:#?}");
}

/// A rule of one word is found in all texts that may run, and in all patterns that may match its name.
#[test]
fn denied_program_asks_at_least_wherever_it_is_mentioned() {
    let deny = permissions(Mode::Auto, &["shell"], &[], &["shell(rm)"]);
    for command in [
        "python3 -c 'import os; os.system(\"rm x\")'",
        "find . -name x -exec rm {} +",
        "tar --use-compress-program=/bin/rm -cf x x",
        "tar -Irm -cf x x",
        "git -c alias.x='!rm x' x",
        "chrt 1 /bin/r?",
        "chrt 1 /bin/{rm,x}",
        "chrt 1 /bin/*m x",
        "ln -s /bin/rm x",
        "awk 'BEGIN{system(\"/bin/rm x\")}'",
        "X=rm; chrt 1 $X y",
        "busybox rm x",
        "toybox rm x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    ] {
        assert!(!is_allow(run(&deny, command)), "{command}");
    }
    for command in [
        "ls -l",
        "ls *.rs",
        "ls *",
        "cargo fmt",
        "git commit -m 'rm the old files'",
        "echo {1..3}",
        "ls form",
    ] {
        assert!(is_allow(run(&deny, command)), "{command}: {:?}", run(&deny, command));
    }
}
