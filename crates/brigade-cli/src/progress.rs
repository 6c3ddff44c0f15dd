//! What is shown while a tree runs.

mod canvas;
mod lines;
mod live;
mod stream;

use brigade::{Asks, Live};
use brigade_core::event::Answer;
use brigade_core::{Event, Record};

use crate::args::{Global, OutputFormat};
use crate::dialogue::{Listener, Typing};
use crate::failure::Failure;
use crate::finish::store_flag;
use crate::follow::View;
use crate::output;
use crate::safe;
use crate::settings::Environment;
use crate::terminal::{self, Colour};

pub(crate) use canvas::Footer;
pub(crate) use live::LiveTree;
pub(crate) use stream::fact;

/// One way to show it.
pub(crate) enum Progress {
    /// A tree that is drawn in place, for a terminal.
    Tree(live::LiveTree),
    /// A line for what matters, for a log.
    Lines(lines::Lines),
    /// All that happens, as JSON on standard output.
    Stream(stream::Stream),
}

impl Progress {
    /// The way that fits the format and the terminal.
    pub(crate) fn new(global: &Global, environment: &Environment) -> Progress {
        if global.output_format == OutputFormat::StreamJson {
            return Progress::Stream(stream::Stream::default());
        }
        let detail = if global.verbose { lines::Detail::Calls } else { lines::Detail::Agents };
        if terminal::shows_progress(environment) && !global.verbose {
            return Progress::Tree(live::LiveTree::new(terminal::colour(environment)));
        }
        Progress::Lines(lines::Lines::new(detail, store_flag(global)))
    }

    /// What an earlier runner of the tree has written.
    pub(crate) fn remember(&mut self, records: &[Record], view: &View) -> Result<(), Failure> {
        match self {
            Progress::Stream(stream) => stream.remember(records, view),
            Progress::Tree(_) | Progress::Lines(_) => Ok(()),
        }
    }

    /// Shows one thing that happened.
    pub(crate) fn see(&mut self, live: &Live, view: &View) -> Result<(), Failure> {
        match self {
            Progress::Tree(tree) => {
                if let Some(words) = said(live, view).or_else(|| answered(live, view)) {
                    tree.say(view, &words);
                }
                Ok(())
            }
            Progress::Lines(lines) => {
                lines.see(live, view);
                Ok(())
            }
            Progress::Stream(stream) => stream.see(live, view),
        }
    }

    /// Says something to the person, beside what is shown.
    pub(crate) fn say(&mut self, view: &View, text: &str) {
        match self {
            Progress::Tree(tree) => tree.say(view, text),
            Progress::Lines(_) | Progress::Stream(_) => output::note(text),
        }
    }

    /// Says something that counts until the end: it stays beneath the tree.
    pub(crate) fn announce(&mut self, view: &View, text: &str) {
        match self {
            Progress::Tree(_) => {
                self.set_footer(Some(Footer { lines: vec![safe::line(text)], cursor: None }));
                self.tick(view);
            }
            Progress::Lines(_) | Progress::Stream(_) => output::note(text),
        }
    }

    /// Puts lines beneath the tree, or takes them away. They are seen from the next `tick` on; without a tree they are
    /// not shown.
    pub(crate) fn set_footer(&mut self, footer: Option<Footer>) {
        if let Progress::Tree(tree) = self {
            tree.set_footer(footer);
        }
    }

    /// Who hears what a person answers while this is shown.
    pub(crate) fn listener(&self, asks: Asks) -> Listener {
        let can_type = asks == Asks::Person && terminal::can_ask();
        match self {
            Progress::Tree(tree) if can_type => Listener::new(Typing::Keys, tree.colour()),
            Progress::Lines(_) | Progress::Stream(_) if can_type => Listener::new(Typing::Lines, Colour::Off),
            Progress::Tree(_) | Progress::Lines(_) | Progress::Stream(_) => {
                Listener::new(Typing::Nobody, Colour::Off)
            }
        }
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, view: &View) {
        if let Progress::Tree(tree) = self {
            tree.draw(view);
        }
    }

    /// Writes what was put together.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        match self {
            Progress::Stream(stream) => stream.flush(),
            Progress::Tree(_) | Progress::Lines(_) => Ok(()),
        }
    }

    /// The run is over, or is left, or the process is about to be stopped.
    pub(crate) fn end(&mut self) {
        if let Progress::Tree(tree) = self {
            tree.clear();
        }
    }
}

/// A message of an agent as the person reads it: who speaks is stamped here, never read from the words.
pub(crate) fn said(live: &Live, view: &View) -> Option<String> {
    let Live::Fact(record) = live else { return None };
    let Event::Said { text, .. } = &record.event else { return None };
    let role = view.tree.node(&record.session).map_or("", |node| node.label.as_str());
    Some(format!("[{}]: {}", safe::line(role), indented(text.as_str())))
}

/// An answer to an agent, and who gave it.
pub(crate) fn answered(live: &Live, view: &View) -> Option<String> {
    let Live::Fact(record) = live else { return None };
    let Event::Answered { answer, by, .. } = &record.event else { return None };
    let role = view.tree.node(&record.session).map_or("", |node| node.label.as_str());
    let answer = match answer {
        Answer::Once => "yes".to_owned(),
        Answer::Always(rule) => format!("always, {}", safe::line(rule)),
        Answer::Deny { word } => {
            word.as_deref().map_or("no".to_owned(), |word| format!("no: {}", safe::line(word)))
        }
    };
    Some(format!("{}: answered {answer} (by {})", safe::line(role), safe::line(by)))
}

/// Later lines of a message are indented, so that none of them looks like the words of somebody else.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}
