//! Files that parsers of other programs expand, overflow or misread.

use brigade_testing::{Script, reply};

use crate::cli::support::Home;
use crate::hostile::place::put;

/// Agent files: the name, and the text. `@N` is repeated many times.
const FILES: [(&str, &str, &str); 18] = [
    (
        "laughs.md",
        "---\nname: x\ndescription: d\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n---\nx",
        "",
    ),
    ("deep.md", "---\nname: x\ndescription: d\na: @N\n---\nx", "["),
    ("merge.md", "---\nname: x\ndescription: d\na: &a {<<: *a}\n---\nx", ""),
    ("tag.md", "---\nname: !!python/object/apply:os.system ['touch F']\ndescription: d\n---\nx", ""),
    ("twice.md", "---\nname: x\ndescription: d\ntools: read_file\ntools: shell\n---\nx", ""),
    ("type.md", "---\nname: x\ndescription: d\ntools: {shell: true, read_file: [1]}\n---\nx", ""),
    ("number.md", "---\nname: x\ndescription: d\nmaxTurns: 99999999999999999999\n---\nx", ""),
    ("negative.md", "---\nname: x\ndescription: d\nmaxTurns: -1\n---\nx", ""),
    ("name.md", "---\nname: ../../x\ndescription: d\n---\nx", ""),
    ("unicode.md", "---\nname: \u{430}dmin\ndescription: \u{202e}x\n---\nx", ""),
    ("open.md", "---\nname: x\ndescription: d\n", ""),
    (
        "long.md",
        "---\nname: x\ndescription: @N\n---\nx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
    ("deep.json", "@N", "{\"a\":"),
    ("deep.toml", "a = @N", "["),
    (
        "twice.json",
        "{\"name\": \"x\", \"prompt\": \"p\", \"tools\": [\"read_file\"], \"tools\": [\"shell\"]}",
        "",
    ),
    ("surrogate.json", "{\"name\": \"\\ud800\", \"prompt\": \"p\"}", ""),
    ("sandbox.md", "---\nname: x\ndescription: d\nsandbox: [off]\n---\nx", ""),
    ("mode.md", "---\nname: x\ndescription: d\npermissionMode: \"bypassPermissions\\0\"\n---\nx", ""),
];
/// Configuration files.
const CONFIGS: [&str; 6] = [
    "[sandbox]\nmode = 'workspace'\nmode = 'off'\n",
    "[sandbox]\nmode = ['off']\n",
    "[permissions]\ndeny = 'shell'\nmode = 5\n",
    "[permissions]\ndney = ['shell']\n",
    "[permissions]\ndeny = ['shell(git push', 'bash(rm)']\n",
    "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1\n",
];

pub(crate) fn inputs() -> Vec<u8> {
    vec![37; FILES.len() + CONFIGS.len()]
}

#[test]
fn h37_agent_files_are_data() {
    for (name, text, repeated) in FILES {
        let home = Home::new();
        put(&home.home().join("agents").join(name), &text.replace("@N", &repeated.repeat(20_000)));
        put(&home.home().join("agents/good.md"), "---\nname: good\ndescription: d\n---\nx\n");
        let lint = home.brigade(&["agents", "lint"]);
        assert!([0, 1].contains(&lint.code) && !lint.stderr.contains("panicked"), "{name}: {}", lint.stderr);
        let list = home.brigade(&["agents", "list"]);
        // A broken file never hides others.
        list.exits_with(0).stdout_contains("good");
        assert!(!list.stdout.contains('\u{202e}') && list.stdout.len() < 100_000, "{name}");
        assert!(!home.work().join("F").exists());
    }
}

/// A configuration that is not understood is refused, and never read as less strict.
#[test]
fn h37_configuration_is_read_in_full_or_not_at_all() {
    for text in CONFIGS {
        let home = Home::new();
        home.write("home/config.toml", text);
        let done = home.run(Script::new().reply(reply("done")), &[]);
        assert!(!done.exits_with(2).stderr.contains("panicked"), "{text}: {}", done.stderr);
    }
}
