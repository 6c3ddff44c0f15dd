//! A little chance, so that those who wait for the same thing do not all come back at once.

/// A number from 0 up to 1, and the middle of it where there is no randomness.
pub(crate) fn jitter() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.5,
    }
}
