//! Commands against rules and modes, without a sandbox. `touch` is denied, or nothing but a few commands is allowed.

use crate::hostile::case::{Case, Expected, Setup, refused};

/// A command with the denied `touch`.
const fn denied(family: u8, input: &'static str) -> Case {
    refused(family, Setup::Denied, input)
}

/// A command that is more than the allowed `echo`, `printf` and `git log`.
const fn not_allowed(family: u8, input: &'static str) -> Case {
    refused(family, Setup::Allowed, input)
}

/// A command that no rule allows, in mode `edit`.
const fn asks(family: u8, input: &'static str) -> Case {
    refused(family, Setup::Edit, input)
}

pub(crate) const CASES: &[Case] = &[
    // H01: the denied command behind and inside other commands.
    denied(1, "true && touch @OUT/F-@ID"),
    denied(1, "true; touch @OUT/F-@ID"),
    denied(1, "false || touch @OUT/F-@ID"),
    denied(1, "true\ntouch @OUT/F-@ID"),
    denied(1, "true & touch @OUT/F-@ID"),
    denied(1, "echo | touch @OUT/F-@ID"),
    denied(1, ">x-@ID touch @OUT/F-@ID"),
    denied(1, "t\"ou\"ch @OUT/F-@ID"),
    denied(1, "to\\uch @OUT/F-@ID"),
    denied(1, "/usr/bin/touch @OUT/F-@ID"),
    denied(1, "A=b command touch @OUT/F-@ID"),
    denied(1, "sh -c 'touch @OUT/F-@ID'"),
    denied(1, "eval \"to\"\"uch @OUT/F-@ID\""),
    denied(1, "echo $(touch @OUT/F-@ID)"),
    denied(1, "echo `touch @OUT/F-@ID`"),
    denied(1, "x() { touch @OUT/F-@ID; }; x"),
    denied(1, "if true; then touch @OUT/F-@ID; fi"),
    denied(1, "find . -maxdepth 0 -exec touch @OUT/F-@ID \\;"),
    denied(1, "echo @OUT/F-@ID | xargs touch"),
    denied(1, "chrt -i 0 touch @OUT/F-@ID"),
    denied(1, "prlimit --core=0 touch @OUT/F-@ID"),
    denied(1, "setarch -R touch @OUT/F-@ID"),
    denied(1, "nsenter -t 1 -m touch @OUT/F-@ID"),
    denied(1, "setpriv --no-new-privs touch @OUT/F-@ID"),
    denied(1, "choom -n 0 -- touch @OUT/F-@ID"),
    denied(1, "env -S'touch @OUT/F-@ID'"),
    denied(1, "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch @OUT/F-@ID"),
    denied(1, "busybox touch @OUT/F-@ID"),
    denied(1, "git -c alias.x='!touch @OUT/F-@ID' x"),
    denied(1, "tar cf /dev/null one --checkpoint=1 --checkpoint-action=exec='touch @OUT/F-@ID'"),
    denied(1, "awk 'BEGIN{system(\"touch @OUT/F-@ID\")}'"),
    denied(1, "python3 -c 'import os; os.system(\"touch @OUT/F-@ID\")'"),
    denied(1, "make -f- x <<< 'x:;touch @OUT/F-@ID'"),
    denied(1, "ln -s /usr/bin/touch t-@ID; ./t-@ID @OUT/F-@ID"),
    denied(1, "T=touch; chrt -i 0 $T @OUT/F-@ID"),
    denied(1, "touch$IFS@OUT/F-@ID"),
    denied(1, "$'\\x74ouch' @OUT/F-@ID"),
    denied(1, "/usr/bin/t?uch @OUT/F-@ID"),
    denied(1, "true; {touch,@OUT/F-@ID}"),
    denied(1, "alias t=touch\nt @OUT/F-@ID"),
    denied(1, "echo 'touch @OUT/F-@ID' | sh"),
    denied(1, "sh <<E\ntouch @OUT/F-@ID\nE"),
    refused(1, Setup::Denied, "echo a touch of class").expects(Expected::Says("class")),
    // H02: many parts before the denied one.
    denied(
        2,
        "true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;touch @OUT/F-@ID",
    ),
    denied(
        2,
        "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((touch @OUT/F-@ID))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))",
    ),
    denied(2, "sh -c \"sh -c \\\"sh -c 'touch @OUT/F-@ID'\\\"\""),
    // H03: words that shells evaluate.
    not_allowed(3, "echo $[ x='a[$(touch @OUT/F-@ID)]', x ]"),
    not_allowed(3, "echo $((a[$(touch @OUT/F-@ID)]))"),
    not_allowed(3, "printf -v 'a[$(touch @OUT/F-@ID)]' x"),
    not_allowed(3, "echo `touch @OUT/F-@ID`"),
    not_allowed(3, "echo x > @OUT/F-@ID"),
    not_allowed(3, "echo x >> @USER/.bashrc"),
    not_allowed(3, "echo <(touch @OUT/F-@ID)"),
    not_allowed(3, "echo \"$(touch @OUT/F-@ID)\""),
    not_allowed(3, "echo ${x:-$(touch @OUT/F-@ID)}"),
    not_allowed(3, "echo() { touch @OUT/F-@ID; }; echo"),
    not_allowed(3, "echo x; touch @OUT/F-@ID"),
    not_allowed(3, "echo x | tee @OUT/F-@ID"),
    not_allowed(3, "echo {a,$(touch @OUT/F-@ID)}"),
    not_allowed(3, "echo *"),
    not_allowed(3, "echo x <<E\n$(touch @OUT/F-@ID)\nE"),
    refused(3, Setup::Allowed, "echo 'a b' \"c\"").expects(Expected::Says("a b c")),
    // H04: settings before an allowed command.
    not_allowed(4, "export PAGER='touch @OUT/F-@ID'; git log"),
    not_allowed(4, "PAGER='touch @OUT/F-@ID' git log"),
    not_allowed(4, "env PAGER='touch @OUT/F-@ID' git log"),
    not_allowed(4, "typeset -x PAGER='touch @OUT/F-@ID'; git log"),
    not_allowed(4, "alias git='touch @OUT/F-@ID'; git log"),
    not_allowed(4, "git -c core.pager='touch @OUT/F-@ID' log"),
    not_allowed(4, "git -C .. log"),
    not_allowed(4, "./git log"),
    not_allowed(4, "PATH=.:$PATH git log"),
    // H05: nothing counts as a command that only reads.
    asks(5, "sed -n '1e touch @OUT/F-@ID' one"),
    asks(5, "sort --compress-program=touch one"),
    asks(5, "find . -name x"),
    asks(5, "cat one"),
    asks(5, "ls"),
    asks(5, "git log"),
    asks(5, "git grep -O'touch @OUT/F-@ID;' one"),
    asks(5, "awk 'BEGIN{system(\"touch @OUT/F-@ID\")}'"),
    asks(5, "env -S 'touch @OUT/F-@ID'"),
    asks(5, "xargs touch < one"),
    asks(5, "man -H'touch @OUT/F-@ID' ls"),
    asks(5, "rg --pre ./x y"),
    asks(5, "echo x"),
    asks(5, "true"),
    // H06: characters that look like blanks, and lines without an end.
    not_allowed(6, "git\rlog"),
    not_allowed(6, "git log\r touch @OUT/F-@ID"),
    not_allowed(6, "git\u{a0}log"),
    not_allowed(6, "git log\u{2028}touch @OUT/F-@ID"),
    not_allowed(6, "git log\u{85}touch @OUT/F-@ID"),
    not_allowed(6, "git log \u{200b}"),
    not_allowed(6, "git log '"),
    not_allowed(6, "git log \""),
    not_allowed(6, "git log \\"),
    not_allowed(6, "git log $("),
    denied(6, "true\rtouch @OUT/F-@ID"),
    denied(6, "true\u{2028}touch @OUT/F-@ID"),
    denied(6, "to\u{200b}uch @OUT/F-@ID"),
    denied(6, "touch\u{a0}@OUT/F-@ID"),
    denied(6, "'unclosed touch @OUT/F-@ID"),
];
