//! Web tools against local servers, both well-behaved and hostile.

mod address_class;
mod authority;
mod fetching;
mod hostile;
mod searching;
mod server;
