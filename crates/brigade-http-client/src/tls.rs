//! TLS for HTTP clients.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// Returns the crypto provider of the process. Installs `ring` unless the application has installed another.
///
/// Clients that `reqwest` and `rmcp` build use the provider of the process, and panic without one.
pub fn provider() -> Arc<CryptoProvider> {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread was faster.
        let _ = ring::default_provider().install_default();
    }
    CryptoProvider::get_default().map_or_else(|| Arc::new(ring::default_provider()), Arc::clone)
}

/// Returns a builder for HTTP clients that can use TLS.
#[cfg(feature = "reqwest")]
#[expect(clippy::disallowed_methods, reason = "the provider is installed first")]
pub fn client_builder() -> reqwest::ClientBuilder {
    provider();
    reqwest::Client::builder()
}
