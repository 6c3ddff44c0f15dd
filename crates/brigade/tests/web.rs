//! Web tools against local servers, both well-behaved and hostile.

// The attribute tells clippy that helpers in here are tests too.
#[cfg(test)]
mod web {
    mod address_class;
    mod authority;
    mod fetching;
    mod hostile;
    mod searching;
    mod server;
}
