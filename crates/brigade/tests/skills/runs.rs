//! The `skill` tool in a real run.

use std::os::unix::fs::symlink;

use brigade::core::permission::Mode;
use brigade_testing::{Reply, Script, call, reply};
use serde_json::json;

use super::SkillHarness;

fn read_it() -> Script {
    Script::new()
        .agent(
            "lead",
            [call("skill", json!({ "name": "tea" }))
                .call("skill", json!({ "name": "tea", "file": "tables/times.txt" }))
                .delegate("Helper", "help")
                .turn(1)],
        )
        .agent("Helper", [call("skill", json!({ "name": "tea" })), reply("helper was told: {result:0}")])
        .reply("done")
}

fn tea() -> SkillHarness {
    let harness = SkillHarness::new();
    harness.skill("tea", "Makes tea.", "Boil water, see tables/times.txt.");
    harness.put("skills/tea/tables/times.txt", "green: 2 minutes\n").put("skills/tea/z.sh", "exit 1");
    harness
}

#[tokio::test]
async fn agent_with_skills_can_read_them() {
    let harness = tea();
    let run = harness
        .run(read_it(), |settings| {
            settings.skills = harness.skills();
            settings.permissions.mode = Mode::Plan;
        })
        .await;
    let tool_outputs = run.tool_outputs().await;
    assert_eq!(
        tool_outputs[0],
        "The skill `tea`:\n\nBoil water, see tables/times.txt.\n\nOther files of this skill (read them with `file`):\n\
         tables/times.txt\nz.sh\n"
    );
    assert_eq!(tool_outputs[1], "green: 2 minutes\n");
    assert!(run.offered("lead").contains(&"skill"));
    let spec = run.request("lead").tools.iter().find(|spec| spec.name == "skill").unwrap().clone();
    assert!(spec.description.ends_with("\n- tea: Makes tea."));
}

#[tokio::test]
async fn agent_without_skills_has_no_skill_tool() {
    let harness = tea();
    let run = harness.run(read_it(), |settings| settings.skills = harness.skills()).await;
    assert!(!run.offered("Helper").contains(&"skill"));
    assert!(run.tool_outputs().await[2].contains("Unknown tool `skill`. Available tools: "));

    let without = harness
        .run(read_it(), |settings| {
            settings.skills = harness.skills();
            settings.lead.allow_skills = false;
        })
        .await;
    let none = harness.run(read_it(), |_| {}).await;
    for run in [without, none] {
        assert!(!run.offered("lead").contains(&"skill"));
        assert!(run.tool_outputs().await[0].starts_with("Unknown tool `skill`. Available tools: "));
    }
}

#[tokio::test]
async fn deny_rules_apply_to_skills() {
    let harness = tea();
    let run = harness
        .run(read_it(), |settings| {
            settings.skills = harness.skills();
            settings.permissions.deny.push("skill".parse().unwrap());
        })
        .await;
    assert!(run.tool_outputs().await[0].contains("`skill` in `permissions.deny`"));
}

#[tokio::test]
async fn skill_shows_only_its_own_folder() {
    let harness = tea();
    harness.put("secret", "outside secret").put("skills/tea/blob", b"a\0b").put("skills/tea/empty", "");
    harness.skill("milk", "Milk.", "other secret");
    harness.put("skills/tea/large", "line of text\n".repeat(40_000));
    symlink(harness.path("secret"), harness.path("skills/tea/link")).unwrap();
    symlink("../milk/SKILL.md", harness.path("skills/tea/sibling")).unwrap();
    harness.pipe("skills/tea/pipe");
    let files = [
        "../../secret",
        "/etc/hostname",
        "link",
        "sibling",
        "../milk/SKILL.md",
        "pipe",
        "tables",
        "blob",
        "none",
        "",
    ];
    let calls = files
        .iter()
        .chain(&["empty", "large", "SKILL.md"])
        .fold(Reply::default(), |reply, file| reply.call("skill", json!({ "name": "tea", "file": file })))
        .call("skill", json!({ "name": "../tea" }))
        .call("skill", json!({ "name": "tea", "path": "x" }));
    let script = Script::new().turns([calls, reply("done")]);
    let run = harness.run(script, |settings| settings.skills = harness.skills()).await;
    let tool_outputs = run.tool_outputs().await;
    for (file, answer) in files.iter().zip(&tool_outputs) {
        assert!(answer.contains("of the skill `tea`") && !answer.contains("secret\n"), "{file}: {answer}");
        assert!(!answer.contains("workspace,"), "{file}: {answer}");
    }
    assert!(
        tool_outputs[0].contains("outside the skill's directory")
            && tool_outputs[2].contains("outside the skill's directory")
            && tool_outputs[3].contains("outside the skill's directory")
    );
    assert_eq!(tool_outputs[10], "(the file is empty)");
    assert!(tool_outputs[11].len() < 270_000 && tool_outputs[11].ends_with("is omitted)\n"));
    assert!(tool_outputs[12].starts_with("---\nname: tea"));
    assert_eq!(tool_outputs[13], "Unknown skill `../tea`. Available: milk, tea");
    assert!(tool_outputs[14].contains("unknown field `path`"));
}
