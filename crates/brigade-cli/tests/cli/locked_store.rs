//! A process that holds the lock of the store for a long time.

use std::time::{Duration, Instant};

use brigade_testing::Script;

use crate::cli::console::Console;
use crate::cli::support::Home;

fn hello() -> Script {
    Script::new().reply("hello")
}

#[test]
fn sessions_while_another_process_holds_the_lock_are_listed_shown_and_exported() {
    let home = Home::new();
    home.run(hello(), &[]).exits_with(0);
    let file = home.files().into_iter().find(|file| file.ends_with("sessions.db.lock")).unwrap();
    let lock = std::fs::File::open(file).unwrap();
    lock.lock().unwrap();
    let began = Instant::now();
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("the task");
    home.brigade(&["sessions", "show", "last"]).exits_with(0).stdout_contains("hello");
    home.brigade(&["sessions", "tree", "last"]).exits_with(0).stdout_contains("lead");
    home.brigade(&["sessions", "export", "last"]).exits_with(0).stdout_contains("hello");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn sessions_list_without_a_store_is_empty_and_creates_none() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["sessions", "list"]).exits_with(0));
    assert_eq!(home.files(), Vec::<std::path::PathBuf>::new());
    insta::assert_snapshot!(console.text());
}
