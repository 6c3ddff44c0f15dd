//! Agent definition files: Brigade's own, those of other programs, and hostile ones.

mod agent_dir;
mod authority;
mod contract;
mod formats;
mod hostile;
mod keys;
mod places;
