//! A process that holds the lock of the store for long.

use std::time::{Duration, Instant};

use crate::support::Home;

const HELLO: &str = "[[reply]]\ntext = 'hello'";

#[test]
fn sessions_while_another_process_holds_the_lock_are_listed_shown_and_exported() {
    let home = Home::new();
    home.run(HELLO, &[]).exits(0);
    let file = home.files().into_iter().find(|file| file.ends_with("sessions.db.lock")).unwrap();
    let lock = std::fs::File::open(file).unwrap();
    lock.lock().unwrap();
    let began = Instant::now();
    home.brigade(&["sessions", "list"]).exits(0).prints("the task");
    home.brigade(&["sessions", "show", "last"]).exits(0).prints("hello");
    home.brigade(&["sessions", "tree", "last"]).exits(0).prints("lead");
    home.brigade(&["sessions", "export", "last"]).exits(0).prints("hello");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn sessions_of_a_store_that_does_not_exist_are_none_and_make_no_store() {
    let home = Home::new();
    home.brigade(&["sessions", "list"]).exits(0).says("There are no sessions yet");
    assert_eq!(home.files(), Vec::<std::path::PathBuf>::new());
}
