//! Random jitter, so that waiters for the same resource do not retry at once.

/// Returns a random number in `0.0..1.0`, or 0.5 if no randomness is available.
pub fn jitter() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.5,
    }
}
