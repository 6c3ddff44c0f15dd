//! The tool in a real run.

use std::os::unix::fs::symlink;

use brigade::core::permission::Mode;

use super::World;

const READ_IT: &str = "
[[reply]]
agent = 'lead'
turn = 1
[[reply.call]]
tool = 'skill'
arguments = { name = 'tea' }
[[reply.call]]
tool = 'skill'
arguments = { name = 'tea', file = 'tables/times.txt' }
[[reply.call]]
tool = 'delegate'
arguments = { role = 'Helper', task = 'help' }
[[reply]]
agent = 'Helper'
turn = 1
[[reply.call]]
tool = 'skill'
arguments = { name = 'tea' }
[[reply]]
agent = 'Helper'
text = 'helper was told: {result:0}'
[[reply]]
text = 'done'
";

fn tea() -> World {
    let world = World::new();
    world.skill("tea", "Makes tea.", "Boil water, see tables/times.txt.");
    world.put("skills/tea/tables/times.txt", "green: 2 minutes\n").put("skills/tea/z.sh", "exit 1");
    world
}

#[tokio::test]
async fn an_agent_with_skills_reads_them() {
    let world = tea();
    let story = world
        .run(READ_IT, |settings| {
            settings.skills = world.skills();
            settings.permissions.mode = Mode::Plan;
        })
        .await;
    let answers = story.answers().await;
    assert_eq!(
        answers[0],
        "The skill `tea`:\n\nBoil water, see tables/times.txt.\n\nOther files of this skill, which `file` reads:\n\
         tables/times.txt\nz.sh\n"
    );
    assert_eq!(answers[1], "green: 2 minutes\n");
    assert!(story.offered("lead").contains(&"skill"));
    let spec = story.request("lead").tools.iter().find(|spec| spec.name == "skill").unwrap().clone();
    assert!(spec.description.ends_with("\n- tea: Makes tea."));
}

#[tokio::test]
async fn an_agent_without_skills_has_no_such_tool() {
    let world = tea();
    let story = world.run(READ_IT, |settings| settings.skills = world.skills()).await;
    assert!(!story.offered("Helper").contains(&"skill"));
    assert!(story.answers().await[2].contains("There is no tool 'skill'. You have: "));

    let without = world
        .run(READ_IT, |settings| {
            settings.skills = world.skills();
            settings.lead.allow_skills = false;
        })
        .await;
    let none = world.run(READ_IT, |_| {}).await;
    for story in [without, none] {
        assert!(!story.offered("lead").contains(&"skill"));
        assert!(story.answers().await[0].starts_with("There is no tool 'skill'. You have: "));
    }
}

#[tokio::test]
async fn rules_bind_skills_too() {
    let world = tea();
    let story = world
        .run(READ_IT, |settings| {
            settings.skills = world.skills();
            settings.permissions.deny.push("skill".parse().unwrap());
        })
        .await;
    assert!(story.answers().await[0].contains("`skill` in permissions.deny"));
}

#[tokio::test]
async fn a_skill_shows_its_own_folder_only() {
    let world = tea();
    world.put("secret", "outside secret").put("skills/tea/blob", b"a\0b").put("skills/tea/empty", "");
    world.skill("milk", "Milk.", "other secret");
    world.put("skills/tea/large", "line of text\n".repeat(40_000));
    symlink(world.path("secret"), world.path("skills/tea/link")).unwrap();
    symlink("../milk/SKILL.md", world.path("skills/tea/sibling")).unwrap();
    world.pipe("skills/tea/pipe");
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
    let mut script = "[[reply]]\nturn = 1\n".to_owned();
    for file in files.iter().chain(&["empty", "large", "SKILL.md"]) {
        script +=
            &format!("[[reply.call]]\ntool = 'skill'\narguments = {{ name = 'tea', file = '{file}' }}\n");
    }
    script += "[[reply.call]]\ntool = 'skill'\narguments = { name = '../tea' }\n";
    script += "[[reply.call]]\ntool = 'skill'\narguments = { name = 'tea', path = 'x' }\n";
    script += "[[reply]]\ntext = 'done'\n";
    let story = world.run(&script, |settings| settings.skills = world.skills()).await;
    let answers = story.answers().await;
    for (file, answer) in files.iter().zip(&answers) {
        assert!(answer.contains("of the skill `tea`") && !answer.contains("secret\n"), "{file}: {answer}");
        assert!(!answer.contains("workspace,"), "{file}: {answer}");
    }
    assert!(
        answers[0].contains("leads out")
            && answers[2].contains("leads out")
            && answers[3].contains("leads out")
    );
    assert_eq!(answers[10], "(the file is empty)");
    assert!(answers[11].len() < 270_000 && answers[11].ends_with("is left out)\n"));
    assert!(answers[12].starts_with("---\nname: tea"));
    assert_eq!(answers[13], "There is no skill `../tea`. There are: milk, tea");
    assert!(answers[14].contains("unknown field `path`"));
}
