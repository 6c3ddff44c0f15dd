//! Checks of agents, instructions, skills and permission rules.

use std::sync::Arc;

use brigade::Toolbox;
use brigade::agents::{self, ProblemKind};
use brigade::store::MemoryStore;
use brigade_core::permission::Rule;

use super::{Finding, block_on};
use crate::error::CliError;
use crate::presets;
use crate::project_context;
use crate::settings::{McpServer, Settings};
use crate::setup;
use crate::units;

/// Checks the agent files.
pub(super) fn agents(settings: &Settings) -> Vec<Finding> {
    let found = agents::discover_all(&settings.agent_dirs());
    let count = found.definitions.len();
    let mut findings = vec![match count {
        0 => Finding::ok("the built-in lead. Create others with: brigade agents new ID"),
        _ => Finding::ok(format!("the built-in lead and {count} from files")),
    }];
    findings.extend(found.problems.iter().map(|problem| match problem.kind {
        ProblemKind::Shadowed => Finding::note(problem.to_string()),
        ProblemKind::Refused | ProblemKind::Duplicate => Finding::problem(
            problem.to_string(),
            format!("Fix or remove it, then check: brigade agents lint {}", problem.file.display()),
        ),
    }));
    findings
}

/// Checks the instruction files.
pub(super) fn instructions(settings: &Settings) -> Result<Vec<Finding>, CliError> {
    // Problems of the store are reported by its own check.
    let store = setup::open_store_read_only(settings).unwrap_or_else(|_| Arc::new(MemoryStore::new()));
    let found = match block_on(project_context::instructions(settings, &*store))? {
        Ok(found) => found,
        Err(failure) => return Ok(vec![Finding::blocks_runs(&failure)]),
    };
    let mut findings: Vec<Finding> =
        found.used.iter().map(|path| Finding::ok(path.display().to_string())).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("none"));
    }
    findings.extend(found.problems.into_iter().map(|problem| {
        let fix = match problem.accept {
            Some(command) => format!("Review it, then accept it with: {command}"),
            None => "Shorten it, or replace it with a regular file".to_owned(),
        };
        Finding::warn(format!("{} {}", problem.path.display(), problem.cause), fix)
    }));
    Ok(findings)
}

/// Checks the skill folders.
pub(super) fn skills(settings: &Settings) -> Vec<Finding> {
    let (skills, problems) = project_context::discover_skills(settings);
    let mut findings = vec![Finding::ok(match skills.list().len() {
        0 => "none".to_owned(),
        count => format!("{count} found"),
    })];
    findings.extend(problems.iter().map(|problem| Finding::warn(problem.to_string(), "Fix or remove it")));
    findings
}

/// Checks the tools, the permission rules and the presets.
pub(super) fn tools(settings: &Settings) -> Vec<Finding> {
    let made =
        settings.web.to_web_settings(&settings.environment).map(|web| Toolbox::standard().with_web(web));
    let (tools, mut findings) = match made {
        Ok(tools) => (tools, Vec::new()),
        Err(failure) => {
            let tools = Toolbox::standard().with_web(brigade::tool::WebSettings::default());
            (tools, vec![Finding::blocks_runs(&failure)])
        }
    };
    let permissions = &settings.permissions;
    let rules = permissions.allow.len() + permissions.ask.len() + permissions.deny.len();
    let unmatched = rules_for_unknown_servers(settings);
    findings.push(match setup::check_rules(permissions, &tools) {
        Ok(()) if rules == 0 => Finding::ok(format!("mode {}, no rules", permissions.mode)),
        Ok(()) => Finding::ok(format!("mode {}, {}", permissions.mode, units::count(rules, "rule"))),
        Err(failure) => Finding::blocks_runs(&failure),
    });
    findings.extend(unmatched);
    let unknown = presets::unknown_tools(settings, &tools).into_iter();
    findings
        .extend(unknown.map(|what| Finding::warn(what, "Correct the name, or remove it from the preset")));
    findings
}

/// Warns about rules for tools of MCP servers that are not defined here.
fn rules_for_unknown_servers(settings: &Settings) -> Vec<Finding> {
    let permissions = &settings.permissions;
    let lists = [("allow", &permissions.allow), ("ask", &permissions.ask), ("deny", &permissions.deny)];
    let rules = lists.into_iter().flat_map(|(list, rules)| rules.iter().map(move |rule| (list, rule)));
    let is_unmatched = |rule: &Rule| {
        let tool = rule.tool().trim_end_matches('*');
        let has_such = |server: &McpServer| {
            let tools = format!("mcp__{}__", server.name.to_lowercase());
            tool.starts_with(&tools) || rule.names(&tools)
        };
        tool.starts_with("mcp__") && tool != "mcp__" && !settings.servers.iter().any(has_such)
    };
    let warning = |(list, rule): (&str, &Rule)| {
        Finding::warn(
            format!("permissions.{list}: the MCP server in the rule `{rule}` is not defined here"),
            "Fix the name, or keep the rule if another project defines that server",
        )
    };
    rules.filter(|(_, rule)| is_unmatched(rule)).map(warning).collect()
}
