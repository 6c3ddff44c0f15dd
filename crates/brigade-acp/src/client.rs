//! External agents as children.
