//! The test binary as a program of its own.

use brigade_sandbox::GuardCommand;

/// An ignored test of this binary that another test starts as a program of its own.
///
/// The test harness prints to standard output. A program whose output is parsed writes to file descriptor 3, or calls
/// [`TestProgram::take_stdout`] first.
///
/// ```no_run
/// use brigade_testing::TestProgram;
///
/// const SERVER: TestProgram = TestProgram::new(module_path!(), "server_entry");
///
/// #[test]
/// #[ignore = "the entry point of a server, not a test"]
/// fn server_entry() {
///     if SERVER.is_running() {
///         // Serves until its input ends.
///     }
/// }
///
/// let (program, arguments) = SERVER.command();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TestProgram {
    module: &'static str,
    test: &'static str,
}

impl TestProgram {
    /// Names the test: the value of `module_path!()` in its module, and the name of its function.
    pub const fn new(module: &'static str, test: &'static str) -> TestProgram {
        TestProgram { module, test }
    }

    /// Returns the name by which the test harness knows the test.
    fn name(&self) -> String {
        // The path of a module begins with the name of the crate.
        match self.module.split_once("::") {
            Some((_, module)) => format!("{module}::{}", self.test),
            None => self.test.to_owned(),
        }
    }

    /// Whether this process was started to run the program.
    pub fn is_running(&self) -> bool {
        let name = self.name();
        std::env::args().any(|argument| argument == name)
    }

    /// Returns the command that starts the program. Its file descriptor 3 is the standard output of the caller.
    ///
    /// # Panics
    ///
    /// Panics if the path of the test binary is unknown or not UTF-8.
    pub fn command(&self) -> (String, Vec<String>) {
        let name = self.name();
        let script = format!(
            "exec 3>&1 >/dev/null; exec \"$0\" --ignored --exact {name} --test-threads=1 --nocapture"
        );
        let binary = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        ("/bin/sh".to_owned(), vec!["-c".to_owned(), script, binary])
    }

    /// Redirects standard output to file descriptor 3.
    ///
    /// # Panics
    ///
    /// Panics if the process was not started with [`TestProgram::command`].
    pub fn take_stdout() {
        let output = std::fs::File::options().write(true).open("/proc/self/fd/3").unwrap();
        rustix::stdio::dup2_stdout(&output).unwrap();
    }

    /// Returns the command that starts a guard. The test must call [`TestProgram::run_guard`].
    pub fn guard_command(&self) -> GuardCommand {
        let (program, arguments) = self.command();
        let arguments = arguments.into_iter().map(Into::into).collect();
        GuardCommand { program: program.into(), arguments }
    }

    /// Runs the guard and exits, if this process was started for it.
    #[expect(clippy::disallowed_methods, reason = "a guard exits with its own code")]
    pub fn run_guard(&self) {
        if self.is_running() {
            TestProgram::take_stdout();
            std::process::exit(brigade_sandbox::guard_main());
        }
    }
}

/// Makes the test binary a guard: defines the ignored test `guard_entry` and a function `guard` that returns the command
/// for [`ShellSettings`](brigade::tool::ShellSettings).
///
/// ```no_run
/// brigade_testing::guard_entry!();
///
/// fn shell_settings(directory: &std::path::Path) -> brigade::tool::ShellSettings {
///     brigade::tool::ShellSettings {
///         guard: guard(),
///         directory: directory.to_owned(),
///         environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
///         time_limit: std::time::Duration::from_secs(20),
///         output_limit: 10_000,
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! guard_entry {
    () => {
        const GUARD: $crate::TestProgram = $crate::TestProgram::new(module_path!(), "guard_entry");

        #[test]
        #[ignore = "the entry point of a guard process, not a test"]
        fn guard_entry() {
            GUARD.run_guard();
        }

        fn guard() -> $crate::GuardCommand {
            GUARD.guard_command()
        }
    };
}
