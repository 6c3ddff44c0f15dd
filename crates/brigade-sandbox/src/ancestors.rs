//! Detection of guards among the ancestors of this process.

use std::io;

/// Returns the tags of the guards among the ancestors of this process, nearest first. `argument` is the first argument of
/// guard processes. Every descendant of a guard can detect it this way, even if it detached itself: a guard and the first
/// process of a sandbox inherit orphans. Fails if the process table cannot be read or hides an ancestor that may be a
/// guard. Always empty on systems other than Linux.
pub fn guards_above(argument: &str) -> io::Result<Vec<String>> {
    imp::guards_above(argument)
}

#[cfg(target_os = "linux")]
mod imp {
    use std::{fs, io};

    use rustix::process::{Pid, getpid, getsid, test_kill_process};

    /// Maximum number of ancestors. Pids that are reused meanwhile could form a cycle.
    const MAX_ANCESTORS: usize = 10_000;

    /// Read access to the process table.
    trait Processes {
        /// Parent of a process; 0 if it is outside of this pid namespace. `None` if the process cannot be seen.
        fn parent(&self, pid: i32) -> io::Result<Option<i32>>;
        /// Arguments of a process, each with a zero byte at the end.
        fn arguments(&self, pid: i32) -> io::Result<Vec<u8>>;
        /// Whether a process that cannot be seen may be a guard: it belongs to this user and leads a session.
        fn may_be_guard(&self, pid: i32) -> bool;
    }

    struct ProcFs;

    impl Processes for ProcFs {
        fn parent(&self, pid: i32) -> io::Result<Option<i32>> {
            let stat = match fs::read(format!("/proc/{pid}/stat")) {
                Ok(stat) => stat,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            // The name of the program, in parentheses, may itself contain parentheses.
            let stat = String::from_utf8_lossy(&stat);
            let parent = stat.rsplit_once(')').and_then(|(_, fields)| {
                fields.split_ascii_whitespace().nth(1).and_then(|parent| parent.parse().ok())
            });
            parent.map(Some).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is malformed")))
        }

        fn arguments(&self, pid: i32) -> io::Result<Vec<u8>> {
            match fs::read(format!("/proc/{pid}/cmdline")) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                other => other,
            }
        }

        fn may_be_guard(&self, pid: i32) -> bool {
            Pid::from_raw(pid).is_some_and(|pid| {
                test_kill_process(pid).is_ok() && getsid(Some(pid)).is_ok_and(|leader| leader == pid)
            })
        }
    }

    pub(crate) fn guards_above(argument: &str) -> io::Result<Vec<String>> {
        tags(&ProcFs, getpid().as_raw_nonzero().get(), argument)
    }

    fn tags(processes: &impl Processes, own: i32, argument: &str) -> io::Result<Vec<String>> {
        let mut tags = Vec::new();
        let unreadable = || io::Error::other("the process table is not readable");
        let mut pid = processes.parent(own)?.ok_or_else(unreadable)?;
        let mut below = own;
        for _ in 0..MAX_ANCESTORS {
            if pid == 0 {
                return Ok(tags);
            }
            let Some(parent) = processes.parent(pid)? else {
                // The process has exited, and the one below it has another parent, or the process is hidden.
                let again = processes.parent(below)?.ok_or_else(unreadable)?;
                if again != pid {
                    pid = again;
                    continue;
                }
                return match processes.may_be_guard(pid) {
                    true => Err(io::Error::other("the process table hides a process above this one")),
                    false => Ok(tags),
                };
            };
            tags.extend(tag(&processes.arguments(pid)?, argument));
            (below, pid) = (pid, parent);
        }
        Err(io::Error::other("the process table is inconsistent"))
    }

    /// Tag of a guard: its last argument. A guard without a tag has an empty one.
    fn tag(arguments: &[u8], argument: &str) -> Option<String> {
        let mut words = arguments.strip_suffix(b"\0")?.split(|byte| *byte == 0).skip(1);
        (words.next()? == argument.as_bytes())
            .then(|| String::from_utf8_lossy(words.last().unwrap_or_default()).into_owned())
    }

    #[cfg(test)]
    mod tests {
        use std::collections::HashMap;

        use super::*;

        /// Process table with the parent and the arguments of each process.
        #[derive(Default)]
        struct Table {
            rows: HashMap<i32, (i32, &'static str)>,
            leaders: Vec<i32>,
            is_mounted: bool,
        }

        impl Processes for Table {
            fn parent(&self, pid: i32) -> io::Result<Option<i32>> {
                match self.is_mounted {
                    true => Ok(self.rows.get(&pid).map(|(parent, _)| *parent)),
                    false => Err(io::ErrorKind::PermissionDenied.into()),
                }
            }

            fn arguments(&self, pid: i32) -> io::Result<Vec<u8>> {
                let line = self.rows.get(&pid).map_or("", |(_, line)| *line);
                Ok(line
                    .split_inclusive(' ')
                    .map(|word| word.trim_end().to_owned() + "\0")
                    .collect::<String>()
                    .into())
            }

            fn may_be_guard(&self, pid: i32) -> bool {
                self.leaders.contains(&pid)
            }
        }

        fn table(rows: &[(i32, i32, &'static str)]) -> Table {
            let rows = rows.iter().map(|(pid, parent, line)| (*pid, (*parent, *line))).collect();
            Table { rows, is_mounted: true, ..Table::default() }
        }

        const GUARDED: [(i32, i32, &str); 6] = [
            (9, 8, "brigade answer"),
            (8, 7, "sh -c x"),
            (7, 6, "brigade __guard session:1.0"),
            (6, 5, "brigade mcp"),
            (5, 1, "brigade __guard mcp:x"),
            (1, 0, "init"),
        ];

        #[test]
        fn tags_of_all_guards_are_found_nearest_first() {
            assert_eq!(tags(&table(&GUARDED), 9, "__guard").unwrap(), ["session:1.0", "mcp:x"]);
            assert_eq!(tags(&table(&GUARDED), 9, "__other").unwrap(), [""; 0]);
            assert_eq!(
                tags(&table(&[(2, 1, "brigade run"), (1, 0, "brigade __guard s:1")]), 2, "__guard").unwrap(),
                ["s:1"]
            );
        }

        #[test]
        fn unreadable_table_is_an_error() {
            assert!(tags(&Table::default(), 9, "__guard").is_err());
            assert!(tags(&table(&[]), 9, "__guard").is_err(), "not mounted");
            assert!(tags(&table(&[(9, 8, "x"), (8, 9, "x")]), 9, "__guard").is_err(), "a cycle");
        }

        #[test]
        fn hidden_process_that_may_be_a_guard_is_an_error() {
            let mut hidden = table(&GUARDED);
            hidden.rows.remove(&7);
            assert_eq!(tags(&hidden, 9, "__guard").unwrap(), [""; 0], "a process of another user");
            hidden.leaders.push(7);
            assert!(tags(&hidden, 9, "__guard").is_err());
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(crate) fn guards_above(_: &str) -> std::io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
