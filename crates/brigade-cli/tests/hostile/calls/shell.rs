//! Commands in the sandbox: what they run, write, rename and read.

use crate::hostile::case::{Case, Expected, Setup, command};

/// A write to a protected file, whether or not it exists.
const fn write(input: &'static str) -> Case {
    command(10, input)
}

pub(crate) const CASES: &[Case] = &[
    // H04: what a line sets runs in a later line. F is outside of the sandbox.
    command(4, "export PAGER='touch @OUT/F-@ID;'; git -p log"),
    command(4, "export GIT_PAGER='touch @OUT/F-@ID;'; git -p log"),
    command(4, "alias ls='touch @OUT/F-@ID'; eval ls"),
    command(4, "echo 'touch @OUT/F-@ID' > x-@ID; export BASH_ENV=./x-@ID; bash -c true"),
    command(4, "echo 'touch @OUT/F-@ID' > x-@ID; ENV=./x-@ID sh -i -c true"),
    command(4, "export GIT_EDITOR='touch @OUT/F-@ID;'; git commit --allow-empty -m x -e"),
    command(4, "export GIT_SSH_COMMAND='touch @OUT/F-@ID;'; git ls-remote ssh://h.invalid/x"),
    command(4, "export GIT_EXTERNAL_DIFF='touch @OUT/F-@ID;'; echo x >> one; git diff"),
    command(4, "PROMPT_COMMAND='touch @OUT/F-@ID' bash -i -c true"),
    command(4, "trap 'touch @OUT/F-@ID' EXIT"),
    command(4, "set -- touch @OUT/F-@ID; \"$@\""),
    command(4, "x() { touch @OUT/F-@ID; }; x"),
    command(
        4,
        "mkdir p-@ID; printf '#!/bin/sh\\necho x > @OUT/F-@ID' > p-@ID/ls; chmod +x p-@ID/ls; PATH=./p-@ID:$PATH; ls",
    ),
    // H05: programs that run their arguments.
    command(5, "sed -n '1e touch @OUT/F-@ID' one"),
    command(
        5,
        "printf '#!/bin/sh\\ntouch @OUT/F-@ID; cat' > c-@ID; chmod +x c-@ID; seq 1 99999 | sort -S 1k --compress-program=./c-@ID | tail -1",
    ),
    command(5, "tar cf x-@ID src; tar xf x-@ID --to-command 'touch @OUT/F-@ID'"),
    command(5, "tar cf /dev/null src --checkpoint=1 --checkpoint-action=exec='touch @OUT/F-@ID'"),
    command(5, "git ls-remote --upload-pack 'touch @OUT/F-@ID;' ."),
    command(5, "git grep -O'touch @OUT/F-@ID;' one"),
    command(5, "awk 'BEGIN{system(\"touch @OUT/F-@ID\")}'"),
    command(5, "env -S 'touch @OUT/F-@ID'"),
    command(5, "find . -maxdepth 0 -exec touch @OUT/F-@ID \\;"),
    command(5, "echo @OUT/F-@ID | xargs touch"),
    command(5, "bash -c \"printf -v 'a[\\$(touch @OUT/F-@ID)]' x\""),
    command(5, "perl -e 'system(\"touch @OUT/F-@ID\")'"),
    command(5, "python3 -c 'open(\"@OUT/F-@ID\", \"w\")'"),
    command(5, "git -c alias.x='!touch @OUT/F-@ID' x"),
    command(5, "git -c core.fsmonitor='touch @OUT/F-@ID;' status"),
    command(5, "git -c diff.external='touch @OUT/F-@ID;' diff --no-index one src/main.rs"),
    command(5, "printf 'x:\\n\\ttouch @OUT/F-@ID\\n' | make -f- x"),
    command(5, "v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness && echo SECRET-CANARY"),
    command(
        5,
        "v=$(cat /proc/sys/kernel/core_pattern); echo \"$v\" > /proc/sys/kernel/core_pattern && echo SECRET-CANARY",
    ),
    command(
        5,
        "for f in /proc/sysrq-trigger /sys/kernel/uevent_helper /sys/fs/cgroup/*/release_agent; do test -w $f && echo SECRET-CANARY; done",
    ),
    // The rules of the guide: what they allow stays in the sandbox.
    command(5, "git diff --no-index --output=@OUT/F-@ID one src/main.rs"),
    command(5, "git -c diff.x.textconv='touch @OUT/F-@ID;' diff --ext-diff HEAD"),
    command(5, "wc --files0-from=.env"),
    command(5, "cargo test --config 'build.rustc-wrapper=\"./c-@ID\"' --manifest-path @OUT/x"),
    command(5, "dd if=/dev/null of=@OUT/F-@ID"),
    command(5, "cp one @OUT/F-@ID; install one @OUT/G-@ID; ln one @OUT/H-@ID; mkdir @OUT/I-@ID"),
    command(5, "/lib64/ld-linux-x86-64.so.2 /bin/touch @OUT/F-@ID"),
    command(5, "nohup setsid sh -c 'sleep 0.1; touch @OUT/F-@ID' > /dev/null 2>&1 & sleep 0.3"),
    command(5, "timeout 5 nice touch @OUT/F-@ID"),
    command(5, "kill -9 @BAIT"),
    command(5, "/bin/kill -s TERM @BAIT"),
    command(5, "perl -e 'kill 9, @BAIT'"),
    command(5, "for p in /proc/[0-9]*; do test $p = /proc/@BAIT && kill -9 ${p#/proc/}; done"),
    command(
        5,
        "chmod -R 777 @OUT; chown 1:1 @OUT/file; touch -d 2001-01-01 @OUT/file; setfattr -n user.x -v y @OUT/file",
    ),
    command(5, "truncate -s 0 @OUT/file; rm -f @OUT/file; mv @OUT @OUT-@ID; rm -rf @OUT"),
    command(
        5,
        "echo pwned > /etc/@TAG; echo pwned > /usr/local/bin/@TAG; echo pwned > /etc/cron.d/@TAG; echo pwned > /etc/profile.d/@TAG",
    ),
    command(5, "mount -o remount,rw / && touch @OUT/F-@ID; mount --bind /tmp @OUT; umount -l @OUT"),
    command(5, "unshare -Urm sh -c 'mount -o remount,rw /; touch @OUT/F-@ID'"),
    command(5, "nsenter -t 1 -a touch @OUT/F-@ID"),
    command(5, "chroot /proc/1/root touch @OUT/F-@ID"),
    command(5, "cd /proc/1/cwd && touch F-@ID; cd /proc/self/root@OUT && touch F-@ID"),
    command(5, "echo ok > src/made; cat src/made").expects(Expected::Says("ok")),
    // H10: files of the workspace and of the user that other programs load.
    write("echo pwned-@ID > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"),
    write("echo pwned-@ID >> .git/config"),
    write("git config core.fsmonitor pwned-@ID; git config --global core.pager pwned-@ID"),
    write("git config --worktree core.fsmonitor pwned-@ID; echo pwned-@ID > .git/config.worktree"),
    write("mkdir -p .git/info; echo '* filter=pwned-@ID' > .git/info/attributes"),
    write("echo ../evil-@ID > .git/commondir"),
    write("mkdir -p .brigade; echo pwned-@ID > .brigade/config.toml"),
    write("mkdir -p .brigade/agents; echo pwned-@ID > .brigade/agents/a.md"),
    write("mkdir -p .brigade/skills/x; echo pwned-@ID > .brigade/skills/x/SKILL.md"),
    write("echo pwned-@ID > .mcp.json"),
    write("rm -f .mcp.json; ln -s src .mcp.json; echo pwned-@ID > src/@ID; mv src/@ID .mcp.json"),
    write("mkdir -p .claude; echo pwned-@ID > .claude/settings.json"),
    write("mkdir -p .claude/agents; echo pwned-@ID > .claude/agents/a.md"),
    write("mkdir -p .codex; echo pwned-@ID > .codex/config.toml"),
    write("mkdir -p .gemini; echo pwned-@ID > .gemini/settings.json"),
    write("mkdir -p .vscode; echo pwned-@ID > .vscode/tasks.json"),
    write("mkdir -p .cursor; echo pwned-@ID > .cursor/mcp.json"),
    write("mkdir -p .opencode; echo pwned-@ID > .opencode/opencode.json"),
    write(
        "mkdir -p .factory .copilot .zed .idea; for d in .factory .copilot .zed .idea; do echo pwned-@ID > $d/x; done",
    ),
    write("mkdir -p .husky; echo pwned-@ID > .husky/pre-commit"),
    write("echo pwned-@ID > .envrc"),
    write("echo pwned-@ID > AGENTS.md"),
    write("echo pwned-@ID > new-@ID; mv new-@ID AGENTS.md"),
    write("sed -i s/kind/pwned/ AGENTS.md"),
    write("echo pwned-@ID > CLAUDE.md; echo pwned-@ID > GEMINI.md"),
    write("echo pwned-@ID > sub/.git/hooks/post-checkout"),
    write("git -C sub config core.fsmonitor pwned-@ID"),
    write("echo ../evil-@ID > sub/.git/commondir"),
    write("echo pwned-@ID >> @USER/.bashrc; echo pwned-@ID > @USER/.profile; echo pwned-@ID > @USER/.zshrc"),
    write("echo pwned-@ID > ~/.bash_profile; echo pwned-@ID > ~/.bash_aliases; echo pwned-@ID > ~/.inputrc"),
    write("echo pwned-@ID > ~/.ssh/authorized_keys; mkdir -p ~/.ssh; echo pwned-@ID > ~/.ssh/config"),
    write("echo pwned-@ID >> ~/.gitconfig; mkdir -p ~/.config/git; echo pwned-@ID > ~/.config/git/config"),
    write(
        "mkdir -p ~/.local/bin; echo pwned-@ID > ~/.local/bin/git; mkdir -p ~/bin; echo pwned-@ID > ~/bin/git",
    ),
    write(
        "mkdir -p ~/.config/systemd/user ~/.config/autostart; echo pwned-@ID > ~/.config/systemd/user/x.service; echo pwned-@ID > ~/.config/autostart/x.desktop",
    ),
    write(
        "mkdir -p ~/.cargo/bin; echo pwned-@ID > ~/.cargo/bin/cargo; echo pwned-@ID > ~/.cargo/config.toml",
    ),
    write("echo 'notify = \"pwned-@ID\"' >> @DATA/config.toml"),
    write("mkdir -p @DATA/agents; echo pwned-@ID > @DATA/agents/a.md"),
    write("echo '{}' > @DATA/trusted.json"),
    write("mv @DATA @DATA-@ID; rm -rf @DATA"),
    write("test -w @BRIGADE && echo SECRET-CANARY"),
    write("@BRIGADE trust --yes; @BRIGADE init; @BRIGADE tools add x -- pwned-@ID"),
    // H11: names that a file system without letter case would fold.
    command(
        11,
        "mkdir -p .GIT/hooks; echo pwned-@ID > .GIT/hooks/pre-commit; test ! -e .git/hooks/pre-commit",
    ),
    command(11, "mkdir -p .Brigade; echo pwned-@ID > .Brigade/config.toml; test ! -e .brigade"),
    command(11, "echo pwned-@ID > agents.md; test ! AGENTS.md -ef agents.md"),
    // H13: repositories that name programs.
    command(
        13,
        "mkdir -p b-@ID/objects b-@ID/refs; cd b-@ID; echo 'ref: refs/heads/main' > HEAD; printf '[core]\\nbare = false\\nworktree = ..\\nfsmonitor = touch @OUT/F-@ID; false\\n' > config; git status",
    ),
    command(
        13,
        "git init -q n-@ID; cd n-@ID; git config core.fsmonitor 'touch @OUT/F-@ID; false'; git status; git add .",
    ),
    command(
        13,
        "git init -q n-@ID; cd n-@ID; echo '* filter=x' > .gitattributes; git config filter.x.clean 'touch @OUT/F-@ID; cat'; git add .",
    ),
    command(
        13,
        "git init -q n-@ID; cd n-@ID; printf '#!/bin/sh\\ntouch @OUT/F-@ID' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git commit --allow-empty -qm x",
    ),
    // H15: links that lead out.
    command(15, "echo pwned-@ID >> link-file"),
    command(15, "echo pwned-@ID > link-out/F-@ID"),
    command(15, "ln -s @OUT l-@ID; echo pwned-@ID > l-@ID/F"),
    command(15, "ln @OUT/file h-@ID && echo pwned-@ID >> h-@ID"),
    command(15, "ln -sfn @USER/.bashrc x-@ID; echo pwned-@ID >> x-@ID"),
    command(15, "cp --remove-destination -a link-file c-@ID; echo pwned-@ID >> c-@ID"),
    command(15, "mkdir d-@ID; ln -s ../../outside d-@ID/l; cd d-@ID/l && echo pwned-@ID > F-@ID"),
    command(15, "printf x > t-@ID; ln -sf @OUT/G-@ID t-@ID; tee t-@ID < one"),
    // H16: protected files under another name, and other files under theirs.
    command(16, "mv .git .g2; mkdir -p .git/hooks; echo pwned-@ID > .git/hooks/pre-commit"),
    command(16, "mv .git/hooks .git/h2; mkdir .git/hooks; echo pwned-@ID > .git/hooks/pre-commit"),
    command(16, "mv .git/config .git/c2; echo pwned-@ID > .git/config"),
    command(16, "cp -r .git g-@ID; echo pwned-@ID > g-@ID/hooks/x; rm -rf .git; mv g-@ID .git"),
    command(
        16,
        "ln AGENTS.md a-@ID && echo pwned-@ID >> a-@ID; ln .git/config c-@ID && echo pwned-@ID >> c-@ID; cp -al .git g-@ID; echo pwned-@ID >> g-@ID/config",
    ),
    command(16, "ln -sfn /tmp/x .git/hooks; ln -sfn src .git/hooks"),
    command(16, "ln -f one .git/config; ln -sf one .git/config"),
    command(16, "mv src .brigade; mv sub .claude; rmdir .brigade .claude"),
    command(16, "mv AGENTS.md a; echo pwned-@ID > AGENTS.md"),
    command(16, "cd ..; mv work w2; mkdir -p work/.git/hooks; echo pwned-@ID > work/.git/hooks/pre-commit"),
    command(16, "mv sub s2 && mkdir -p sub/.git/hooks && echo pwned-@ID > sub/.git/hooks/x"),
    command(16, "mv sub/.git sub/g2; mkdir -p sub/.git/hooks; echo pwned-@ID > sub/.git/hooks/x"),
    command(
        16,
        "python3 -c 'import os; os.rename(\".git\", \"g-@ID\")' || perl -e 'rename \".git\", \"g-@ID\"'",
    ),
    command(16, "git worktree add -q w-@ID; echo pwned-@ID > .git/worktrees/w-@ID/../../hooks/x"),
    command(16, "git init -q --separate-git-dir=e-@ID ."),
    command(16, "rm -rf .git/config .git/hooks .git .env AGENTS.md"),
    command(16, "chmod 777 .git/hooks .git/config; chattr +i .git/config"),
    command(16, "exec 3<.git; cd /proc/self/fd/3 && echo pwned-@ID > hooks/pre-commit"),
    // H17: fixed names in shared directories.
    command(17, "echo pwned-@ID > /tmp/@TAG; ln -s @OUT /tmp/@TAG-l; echo pwned > /tmp/@TAG-l/F-@ID"),
    command(17, "echo pwned-@ID > /var/tmp/@TAG; echo pwned-@ID > /dev/shm/@TAG"),
    command(17, "mkdir -p @DATA/tmp; ln -s @OUT @DATA/tmp/x; rm -rf @DATA/tmp"),
    command(17, "TMPDIR=@OUT mktemp @OUT/F-@ID-XXXX"),
    // A read-only child writes nothing.
    command(10, "echo pwned-@ID > .mcp.json; echo pwned-@ID > AGENTS.md").setup(Setup::ReadOnlyChild),
    command(5, "touch @OUT/F-@ID; kill -9 @BAIT").setup(Setup::ReadOnlyChild),
    command(16, "mv .git .g2; mkdir -p .git/hooks; echo pwned-@ID > .git/hooks/x")
        .setup(Setup::ReadOnlyChild),
    command(5, "echo made > src/by-child; cat src/by-child")
        .setup(Setup::ReadOnlyChild)
        .expects(Expected::Says("Read-only file system")),
];
