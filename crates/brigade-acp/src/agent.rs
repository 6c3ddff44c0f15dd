//! Our sessions for editors and other clients.
