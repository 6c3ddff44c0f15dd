//! The tools that read the network, against servers on this machine that behave well and badly.

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
