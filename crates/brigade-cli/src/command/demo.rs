//! `brigade demo`: a lead and three sub-agents repair a small project. One of them is refused a tool, and the process that
//! runs them is killed and its session resumed. Everything but the model is real.

mod evidence;
mod folder;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::{Follow, RunEvent, Store};
use brigade_core::view::{Activity, Node};
use brigade_core::{Outcome, SessionId};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Global, OutputFormat};
use crate::clock;
use crate::error::{CliError, Exit};
use crate::follow::{DRAW_INTERVAL, RunView, Signals, on_event};
use crate::output;
use crate::progress::Progress;
use crate::render;
use crate::report::Report;
use crate::settings::Settings;
use crate::setup;
use crate::summary;
use crate::terminal;

use evidence::{BudgetUse, Crash, LogFacts};
use folder::DemoFolder;
use worker::Worker;

pub(crate) use worker::worker_main;

const HELP: &str = "\
Examples:
  brigade demo               three sub-agents, a denied call, a budget, a killed process and a resume
  brigade demo --no-crash    the same without killing the process
  brigade demo --keep        keeps the project and the session for inspection

The model is a script and its prices are invented; everything else is real. The demo
works in a temporary directory, which it removes, and does not touch your sessions.";

/// Watch agents fix a small project, with a denied call, a crash and a resume; needs no key or network, and takes a few seconds
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DemoArgs {
    /// Do not kill the process that runs the agents
    #[arg(long)]
    pub(crate) no_crash: bool,
    /// Keep the temporary directory with the project and the session
    #[arg(long)]
    pub(crate) keep: bool,
}

const TASK: &str = "The tests of this project fail. Find out why, fix the cause, and write a changelog.";
/// Time for which the user sees the tree before the process is killed.
const TIME_BEFORE_KILL: Duration = Duration::from_millis(500);
/// Time between the kill and the resume.
const TIME_AFTER_KILL: Duration = Duration::from_millis(800);

/// Runs it.
pub(crate) fn run(global: Global, demo: DemoArgs) -> Result<Exit, CliError> {
    if global.store.is_some() {
        return Err(CliError::usage(
            "cannot use --store with the demo: it stores its session in its own temporary directory. Use --keep to keep that directory.",
        ));
    }
    let folder = DemoFolder::create()?;
    let shown = setup::current_thread_runtime()?.block_on(show(&global, &demo, &folder))?;
    let exit = match shown {
        Shown::Ended(exit) => exit,
        Shown::Interrupted => {
            output::note("Cancelled.");
            Exit::Cancelled
        }
    };
    if !demo.keep {
        folder.remove()?;
        return Ok(exit);
    }
    let root = folder.keep();
    output::note(&format!("The project and its session are in {}", root.display()));
    Ok(exit)
}

/// Reason why the demo ended.
enum Shown {
    Ended(Exit),
    /// The user ended it.
    Interrupted,
}

/// Runs the tree in a process of its own and shows it. When this returns, that process has ended.
async fn show(global: &Global, demo: &DemoArgs, folder: &DemoFolder) -> Result<Shown, CliError> {
    let settings = folder.settings()?;
    let store = setup::open_store(&settings)?;
    let mut signals = Signals::listen(store.clone())?;
    let mut hangup = signal(SignalKind::hangup())
        .map_err(|error| CliError::failed(format!("cannot handle SIGHUP: {error}")))?;
    if global.output_format == OutputFormat::Text {
        output::note(&format!(
            "A lead and three sub-agents repair a small project.\n\
             The model is a script and its prices are invented. The agents, tools, budgets, session log and crash are real.\n\
             Task: {TASK}\n"
        ));
    }
    let mut worker = Worker::start(folder, None)?;
    let shown = tokio::select! {
        biased;
        () = signals.next() => Ok(Shown::Interrupted),
        _ = hangup.recv() => Ok(Shown::Interrupted),
        shown = show_tree(global, demo, folder, &settings, &store, &mut worker) => shown.map(Shown::Ended),
    };
    worker.kill().await?;
    shown
}

async fn show_tree(
    global: &Global,
    demo: &DemoArgs,
    folder: &DemoFolder,
    settings: &Settings,
    store: &Arc<dyn Store>,
    worker: &mut Worker,
) -> Result<Exit, CliError> {
    let root = worker.session().await?;
    let mut observer = Observer {
        store,
        view: RunView::new(root),
        facts: LogFacts::default(),
        progress: Progress::new(global, &settings.environment),
    };
    let mut crash = None;
    if !demo.no_crash {
        crash = observer.crash_and_resume(folder, worker).await?;
    }
    observer.follow(worker, StopAt::End).await?;
    observer.progress.end();
    let Observer { view, facts, .. } = observer;
    let Some(Activity::Ended(outcome)) = view.tree.node(&view.root).map(|node| &node.activity) else {
        return Err(worker.failure().await);
    };
    print_end(global, &view, outcome, terminal::stderr_colour(&settings.environment))?;
    let budget = BudgetUse::read(&**store, &view).await?;
    let requests = folder.requests();
    output::note("What this run showed:");
    let columns = terminal::stderr_columns();
    for (label, text) in evidence::lines(&view, &facts, &budget, crash.as_ref(), &requests) {
        let line = format!("  {label:<8} {text}");
        output::note(&render::wrap_hanging(&line, columns, 11).join("\n"));
    }
    output::note("");
    output::note(&closing(demo, folder, &view.root));
    Ok(Exit::of(&outcome.status))
}

/// Prints the table and the result, as `brigade run` does, or the report.
fn print_end(
    global: &Global,
    view: &RunView,
    outcome: &Outcome,
    colour: terminal::Colour,
) -> Result<(), CliError> {
    if global.output_format != OutputFormat::Text {
        return output::json(&Report::new(view, Ok(outcome)));
    }
    let columns = terminal::stderr_columns();
    let changes = render::changes(view, colour, columns);
    output::write_stderr(&format!("{}\n{changes}\n", render::summary(view, colour, columns)));
    summary::print_result(outcome.text.as_str(), global)?;
    output::note("");
    Ok(())
}

fn closing(demo: &DemoArgs, folder: &DemoFolder, root: &SessionId) -> String {
    if !demo.keep {
        return "The project and its session were removed. Use --keep to keep them. Next: brigade init"
            .to_owned();
    }
    let store = summary::shell_quoted(&folder.store().display().to_string());
    format!("To inspect the run: brigade sessions tree {root} --store {store}")
}

/// The point up to which a worker is followed.
#[derive(PartialEq, Eq)]
enum StopAt {
    /// One sub-agent runs a command, and the results of the others are recorded.
    CrashPoint,
    /// The worker exits.
    End,
}

/// Follows the log of the tree, which another process writes.
struct Observer<'a> {
    store: &'a Arc<dyn Store>,
    view: RunView,
    facts: LogFacts,
    progress: Progress,
}

impl Observer<'_> {
    /// Kills the worker in the middle of its work and starts another that resumes the session. None if the tree ended
    /// before the kill.
    async fn crash_and_resume(
        &mut self,
        folder: &DemoFolder,
        worker: &mut Worker,
    ) -> Result<Option<Crash>, CliError> {
        self.follow(worker, StopAt::CrashPoint).await?;
        let killed = worker.pid();
        if !worker.kill().await? {
            self.say("The run ended before its process could be killed.");
            return Ok(None);
        }
        self.read_rest().await?;
        let budget = BudgetUse::read(&**self.store, &self.view).await?;
        let victim = self.crash_point().map(|node| self.working_text(node)).unwrap_or_default();
        self.say(&format!("\nKilled process {killed} (SIGKILL){victim}."));
        self.say(&format!("Budget when it was killed: {}", budget.text()));
        self.progress.announce(&self.view, "No process is running these agents now.");
        tokio::time::sleep(TIME_AFTER_KILL).await;
        self.progress.set_footer(None);
        let (facts, requests) = (self.facts.clone(), folder.requests().len());
        *worker = Worker::start(folder, Some(&self.view.root))?;
        self.say(&format!("Process {} resumes the run from the session log.\n", worker.pid()));
        Ok(Some(Crash { victim, facts, requests }))
    }

    /// The work of an agent, as the end of a sentence about the kill.
    fn working_text(&self, node: &Node) -> String {
        let doing = self.view.doing(&node.session).unwrap_or_default();
        format!(" while {} was running {}", node.label, doing.trim_start_matches("shell "))
    }

    fn say(&mut self, text: &str) {
        self.progress.say(&self.view, text);
    }

    /// Follows the tree until the worker exits or the point is reached.
    async fn follow(&mut self, worker: &mut Worker, stop_at: StopAt) -> Result<(), CliError> {
        let mut ticks = clock::ticks(DRAW_INTERVAL / 2);
        let mut reached: Option<Instant> = None;
        let mut events = Follow::new(self.store.clone(), &self.view.root, self.view.cursor);
        loop {
            tokio::select! {
                biased;
                exited = worker.wait() => {
                    exited?;
                    return self.read_rest().await;
                }
                _ = ticks.tick() => self.progress.tick(&self.view),
                event = events.next() => self.show(&event?)?,
            }
            if stop_at == StopAt::CrashPoint && self.crash_point().is_some() {
                if reached.get_or_insert_with(Instant::now).elapsed() >= TIME_BEFORE_KILL {
                    return Ok(());
                }
            } else {
                reached = None;
            }
        }
    }

    /// The sub-agent that runs a command while the results of all others are recorded, if there is one.
    fn crash_point(&self) -> Option<&Node> {
        let mut agents = self.view.tree.walk(&self.view.root);
        agents.retain(|node| node.session != self.view.root);
        let ended = agents.iter().filter(|node| node.has_ended()).count();
        if agents.len() < 2 || ended + 1 < agents.len() {
            return None;
        }
        agents.into_iter().find(|node| matches!(&node.activity, Activity::Tool(name) if name == "shell"))
    }

    /// Shows the records of a worker that has exited.
    async fn read_rest(&mut self) -> Result<(), CliError> {
        for record in self.store.tail(&self.view.root, self.view.cursor, usize::MAX).await? {
            self.show(&RunEvent::Record(record.into()))?;
        }
        Ok(())
    }

    fn show(&mut self, event: &RunEvent) -> Result<(), CliError> {
        let refusal = match event {
            RunEvent::Record(record) => self.facts.apply(record),
            _ => None,
        };
        let refusal = refusal.map(|refusal| refusal.text());
        on_event(event.clone(), &mut self.view, &mut self.progress)?;
        if let Some(text) = refusal {
            self.say(&text);
        }
        self.progress.flush()
    }
}
