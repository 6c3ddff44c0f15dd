//! Checks of the executable, its guard, the kernel and the terminal.

use std::future::pending;
use std::time::{Duration, Instant};

use brigade::sandbox::{ExtraAccess, NetworkAccess, SandboxMode, SandboxSettings, TreeSandbox};
use brigade_core::grant::Authority;
use brigade_core::permission::{Mode, Permissions};
use brigade_sandbox::{Cgroups, Confinement, Enforcement, ExitReason, Job, KernelFeatures, Namespaces};

use super::{Finding, block_on};
use crate::error::CliError;
use crate::settings::{Environment, Settings, Withheld};
use crate::setup;
use crate::terminal::{self, Colour};

/// A slower guard delays every command.
const SLOW_GUARD: Duration = Duration::from_secs(1);

/// Timeout of the test command.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports the version.
pub(super) fn version() -> Finding {
    let (version, system, machine) =
        (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Finding::ok(format!("brigade {version} for {system} on {machine}"))
}

/// Runs a real command under a real guard.
pub(super) fn guard(settings: &Settings) -> Result<Finding, CliError> {
    let tag = format!("doctor:{}", std::process::id());
    let job = Job::new("true", &settings.folder, tag, Confinement::None)
        .environment(settings.command_environment())
        .time_limit(TEST_TIMEOUT)
        .output_limit(1024);
    let guard = setup::guard_command()?;
    let since = Instant::now();
    let ended = block_on(brigade_sandbox::run(&guard, job, pending()))?;
    let took = since.elapsed();
    let fix = "Agents cannot run commands here. Check that /bin/sh exists and that processes can be started";
    Ok(match ended {
        Ok(finished) if finished.end == ExitReason::Exited(0) && took < SLOW_GUARD => {
            Finding::ok(format!("a test command ran in {} ms", took.as_millis()))
        }
        Ok(finished) if finished.end == ExitReason::Exited(0) => Finding::warn(
            format!("a test command took {:.1} s", took.as_secs_f64()),
            "Reduce the load on this machine; every command of an agent takes at least this long",
        ),
        Ok(finished) => {
            let end = end_text(finished.end);
            Finding::problem(format!("a test command {end}"), fix)
        }
        Err(error) => Finding::problem(error.to_string(), fix),
    })
}

/// Describes the end of the test command.
fn end_text(end: ExitReason) -> String {
    match end {
        ExitReason::Exited(code) => format!("exited with code {code}"),
        ExitReason::Signalled(signal) => format!("was killed by signal {signal}"),
        ExitReason::TimedOut => format!("did not finish within {} seconds", TEST_TIMEOUT.as_secs()),
        ExitReason::Cancelled => "was cancelled".to_owned(),
        ExitReason::OverLimit(limit) => format!("was killed: {limit}"),
    }
}

/// Lists the environment variables that are withheld from commands.
pub(super) fn commands(settings: &Settings) -> Vec<Finding> {
    let count = settings.command_environment().len();
    let mut findings = vec![Finding::ok(format!("commands get {count} of your environment variables"))];
    let withheld = settings.shell.all_withheld(&settings.environment, |name| settings.has_key_in(name));
    let reasons = [
        (Withheld::Name, "their names suggest secrets"),
        (Withheld::Value, "their values contain a password"),
        (Withheld::Provider, "they contain provider keys"),
        (Withheld::BrigadeVariable, "they configure Brigade"),
        (Withheld::Denied, "`shell.deny_env` lists them"),
    ];
    for (reason, description) in reasons {
        let names: Vec<&str> =
            withheld.iter().filter(|(_, because)| *because == reason).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            findings.push(Finding::note(format!("withheld, because {description}: {}", names.join(", "))));
        }
    }
    findings.extend(settings.shell.missing(&settings.environment).into_iter().map(|name| {
        Finding::warn(
            format!("`shell.env` lists {name}, which is not set"),
            format!("Set it before you start brigade: export {name}=…"),
        )
    }));
    findings
}

/// Runs a command in a sandbox, and reports whether commands of agents run in one.
pub(super) fn sandbox(settings: &Settings) -> Result<Vec<Finding>, CliError> {
    let mode = settings.sandbox.mode;
    let used = match mode {
        SandboxMode::Off => Finding::note(
            "`sandbox.mode` is off: commands run with your permissions; the mode and the rules decide what agents may run",
        ),
        SandboxMode::Workspace if !settings.sandbox.write.is_empty() => {
            Finding::ok("commands can write only to the workspace and the directories in `sandbox.write`")
        }
        SandboxMode::Workspace => Finding::ok("commands can write only to the workspace"),
        SandboxMode::ReadOnly => Finding::ok("commands cannot write to the workspace"),
    };
    let tested = SandboxSettings { mode: mode.min(SandboxMode::Workspace), ..(*settings.sandbox).clone() };
    let fix = "Fix the cause, for example by allowing user namespaces. Or set `sandbox.mode` to \"off\"; commands then run with your permissions";
    let tried = test_sandbox(settings, &tested)?;
    let has_hosts = matches!(settings.sandbox.network, NetworkAccess::Hosts(_));
    let network = (has_hosts && matches!(tried, Ok(Enforcement::Landlock))).then(|| {
        Finding::warn(
            "`sandbox.network` lists hosts, which needs user namespaces. Commands have no network",
            "Allow user namespaces, or set `sandbox.network` to true to allow the whole network",
        )
    });
    let test = match tried {
        Ok(Enforcement::Namespaces) => {
            Finding::ok("a test command ran in a sandbox with namespaces and seccomp")
        }
        Ok(Enforcement::Landlock) => Finding::warn(
            "user namespaces are not available, so sandboxes use only Landlock and seccomp. Commands can see your other \
             processes and connect to UNIX sockets. Protected files that they create are renamed to NAME.removed when they exit",
            "Allow user namespaces, or run brigade outside of a container",
        ),
        Ok(Enforcement::Seatbelt) => Finding::warn(
            "a test command ran with a Seatbelt profile. It has not been verified that the profile confines commands on macOS",
            "Use --mode ask, so that commands need approval, or run brigade on Linux",
        ),
        Ok(Enforcement::None) => Finding::problem("a test command was not confined", fix),
        Err(reason) if mode == SandboxMode::Off => {
            Finding::note(format!("sandboxes are not available: {reason}"))
        }
        Err(reason) => Finding::problem(reason, fix),
    };
    Ok([used, test].into_iter().chain(network).chain([kernel_features()]).collect())
}

/// Runs a test command in a sandbox.
fn test_sandbox(
    settings: &Settings,
    sandbox: &SandboxSettings,
) -> Result<Result<Enforcement, String>, CliError> {
    let authority = Authority {
        workspace: settings.folder.to_string_lossy().into_owned(),
        paths: [String::new()].into(),
        // In plan mode, Landlock alone would not be enough.
        permissions: Permissions {
            mode: settings.permissions.mode.max(Mode::Ask),
            ..settings.permissions.clone()
        },
        ..Authority::default()
    };
    let confinement = match sandbox.confinement(&authority, &ExtraAccess::default(), &TreeSandbox::default())
    {
        Ok(confinement) => confinement,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let tag = format!("doctor-sandbox:{}", std::process::id());
    let job =
        Job::new("true", &settings.folder, tag, confinement).time_limit(TEST_TIMEOUT).output_limit(1024);
    let ended = block_on(brigade_sandbox::run(&setup::guard_command()?, job, pending()))?;
    Ok(match ended {
        Ok(finished) if finished.end == ExitReason::Exited(0) => Ok(finished.enforcement),
        Ok(finished) => Err(format!("a test command in a sandbox {}", end_text(finished.end))),
        Err(error) => Err(error.to_string()),
    })
}

/// Reports the features of the kernel that a sandbox uses.
fn kernel_features() -> Finding {
    let KernelFeatures { landlock, seccomp, user_namespaces, cgroups } = KernelFeatures::detect();
    let namespaces = match user_namespaces {
        Namespaces::Open => "user namespaces: yes".to_owned(),
        Namespaces::Closed(setting) => format!("user namespaces: disabled by {setting}"),
        Namespaces::Missing => "user namespaces: none".to_owned(),
    };
    let groups = match cgroups {
        Cgroups::Delegated => "cgroups: version 2, groups can be created",
        Cgroups::Foreign => "cgroups: version 2, groups cannot be created here",
        Cgroups::Old => "cgroups: version 1 only",
        Cgroups::Missing => "cgroups: none",
    };
    let landlock = landlock
        .map_or_else(|| "Landlock: none".to_owned(), |version| format!("Landlock: version {version}"));
    let seccomp = if seccomp { "seccomp: yes" } else { "seccomp: none" };
    Finding::note([landlock.as_str(), seccomp, &namespaces, groups].join("; "))
}

/// Reports what the terminal supports.
pub(super) fn terminal(environment: &Environment) -> Vec<Finding> {
    if environment.logs_to_stderr {
        return vec![Finding::note("BRIGADE_LOG is set; progress is printed line by line")];
    }
    if !terminal::can_redraw(environment) {
        return vec![Finding::note(
            "standard error is not a terminal that supports redrawing; progress is printed line by line",
        )];
    }
    let colours = match terminal::stderr_colour(environment) {
        Colour::On => "colours",
        Colour::Off => "no colours (NO_COLOR is set)",
    };
    let (columns, rows) = terminal::size();
    let mut findings = vec![Finding::ok(format!("{columns} columns, {rows} rows, {colours}"))];
    findings.push(match locale(|name| environment.variable(name)) {
        Some(locale) if is_utf8(&locale) => Finding::ok(format!("the locale {locale} is UTF-8")),
        locale => Finding::warn(
            match locale {
                Some(locale) => {
                    format!("the locale {locale} is not UTF-8; agent trees may be displayed incorrectly")
                }
                None => "no locale is set; agent trees may be displayed incorrectly".to_owned(),
            },
            "export LC_ALL=C.UTF-8",
        ),
    });
    findings
}

/// Locale of characters: the first of three variables that is set.
fn locale(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let value = |name: &&str| variable(name).filter(|value| !value.is_empty());
    ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(value)
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locale_is_the_first_variable_that_is_set() {
        let of = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
            locale(|name| value(name).map(|(_, value)| (*value).to_owned())).map(|locale| is_utf8(&locale))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("LANG", "de_DE.UTF-8")]), Some(true));
        assert_eq!(of(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]), Some(false));
        assert_eq!(of(&[("LANG", "C"), ("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]), Some(true));
    }
}
