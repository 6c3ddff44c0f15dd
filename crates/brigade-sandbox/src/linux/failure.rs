//! Reasons why a sandbox could not be set up.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// Reason why a sandbox could not be set up.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The cause, as part of a sentence.
    pub(crate) reason: String,
    /// Whether the kernel or a container refuses namespaces. Otherwise the description of the sandbox does not fit.
    pub(crate) is_unsupported: bool,
}

impl Failure {
    /// The failure of something that every sandbox needs.
    pub(crate) fn unsupported(step: &str, error: impl Into<io::Error>) -> Failure {
        let error = error.into();
        // A lack of memory, processes or descriptors is temporary, and must not lead to a weaker sandbox.
        let is_unsupported = matches!(
            Errno::from_io_error(&error),
            Some(
                Errno::PERM
                    | Errno::ACCESS
                    | Errno::NOSYS
                    | Errno::INVAL
                    | Errno::NOSPC
                    | Errno::OPNOTSUPP
                    | Errno::NODEV
            )
        );
        Failure { reason: format!("cannot {step}: {error}"), is_unsupported }
    }

    /// Returns a function that describes what cannot be done with a path.
    pub(crate) fn path<E: Into<io::Error>>(verb: &str, path: &Path) -> impl Fn(E) -> Failure {
        move |error| {
            let error = error.into();
            // A kernel or filter that refuses mounts does so for every path.
            let errno = Errno::from_io_error(&error);
            let is_unsupported = matches!(errno, Some(Errno::NOSYS | Errno::PERM));
            Failure { reason: format!("cannot {verb} `{}`: {error}", path.display()), is_unsupported }
        }
    }
}

/// Returns a function that describes the failure of a step that every sandbox needs.
pub(crate) fn at<E: Into<io::Error>>(step: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::unsupported(step, error)
}
