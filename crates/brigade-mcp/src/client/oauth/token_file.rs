//! Stored login, in a file that only the user can read.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::LoginError;

/// Maximum wait for the lock. Its holder may be refreshing the login over the network.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A stored login.
#[derive(Clone)]
pub(super) struct TokenFile {
    file: PathBuf,
    /// The client secret, which is stored with the tokens.
    secret: Option<String>,
}

/// Contents of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredLogin {
    pub(super) credentials: Option<StoredCredentials>,
    pub(super) client_secret: Option<String>,
    /// Scopes that were found to be missing.
    #[serde(rename = "wanted")]
    pub(super) missing_scopes: Option<String>,
}

impl TokenFile {
    pub(super) fn new(file: PathBuf) -> TokenFile {
        TokenFile { file, secret: None }
    }

    pub(super) fn with_secret(self, secret: Option<String>) -> TokenFile {
        TokenFile { secret, ..self }
    }

    pub(super) async fn read(&self) -> Result<StoredLogin, LoginError> {
        self.blocking(|file| match std::fs::read(file) {
            // An unreadable file counts as no login.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoredLogin::default()),
            Err(error) => Err(error),
        })
        .await
    }

    /// Stores the missing scopes, or clears them.
    pub(super) async fn set_missing_scopes(&self, scope: Option<&str>) -> Result<(), LoginError> {
        // Without the lock, a concurrent refresh would lose its tokens.
        let lock = self.lock().await?;
        self.set_missing_scopes_locked(scope, &lock).await
    }

    /// Stores the missing scopes while the caller holds the lock.
    pub(super) async fn set_missing_scopes_locked(
        &self,
        scope: Option<&str>,
        _lock: &File,
    ) -> Result<(), LoginError> {
        let stored = self.read().await?;
        if stored.missing_scopes.as_deref() == scope {
            return Ok(());
        }
        self.write(StoredLogin { missing_scopes: scope.map(str::to_owned), ..stored }).await
    }

    /// Deletes the login. Returns whether there was one. The lock file is kept, because another process may
    /// hold it.
    pub(super) async fn delete(&self) -> Result<bool, LoginError> {
        if !self.blocking(Path::try_exists).await? {
            return Ok(false);
        }
        let _lock = self.lock().await?;
        self.blocking(|file| match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        })
        .await
    }

    /// Locks the login against writes by this and other processes until the guard is dropped. Fails after a
    /// timeout.
    pub(super) async fn lock(&self) -> Result<File, LoginError> {
        let open = |file: &Path| {
            create_parent(file)?;
            private_options().open(sibling(file, "lock"))
        };
        let lock = self.blocking(open).await?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < LOCK_TIMEOUT => {
                    tokio::time::sleep(LOCK_RETRY_DELAY).await;
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(self.unusable(&"another process has held its lock for too long"));
                }
                Err(error) => return Err(self.unusable(&io::Error::from(error))),
            }
        }
    }

    fn unusable(&self, why: &dyn std::fmt::Display) -> LoginError {
        LoginError(format!("cannot use the login stored in {}: {why}", self.file.display()))
    }

    async fn write(&self, stored: StoredLogin) -> Result<(), LoginError> {
        self.blocking(move |file| {
            create_parent(file)?;
            let text = serde_json::to_vec(&stored)?;
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
            // The random name is not used by any other writer.
            let new = sibling(file, &format!("{:016x}.new", u64::from_le_bytes(random)));
            let placed = replace_file(&text, &new, file);
            if placed.is_err() {
                let _ = std::fs::remove_file(new);
            }
            placed
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, LoginError> {
        let file = self.file.clone();
        match tokio::task::spawn_blocking(move || work(&file)).await {
            Ok(done) => done.map_err(|error| self.unusable(&error)),
            Err(error) => Err(self.unusable(&error)),
        }
    }
}

/// Replaces a file with a new one.
fn replace_file(text: &[u8], new: &Path, file: &Path) -> io::Result<()> {
    let mut output = private_options().create_new(true).open(new)?;
    output.write_all(text)?;
    output.sync_all()?;
    std::fs::rename(new, file)
}

fn private_options() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn create_parent(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

fn sibling(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn store_error(error: LoginError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

impl CredentialStore for TokenFile {
    fn load<'a, 'b>(&'a self) -> BoxFuture<'b, Result<Option<StoredCredentials>, AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async { Ok(self.read().await.map_err(store_error)?.credentials) })
    }

    fn save<'a, 'b>(&'a self, credentials: StoredCredentials) -> BoxFuture<'b, Result<(), AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            let stored = self.read().await.map_err(store_error)?;
            let stored =
                StoredLogin { credentials: Some(credentials), client_secret: self.secret.clone(), ..stored };
            self.write(stored).await.map_err(store_error)
        })
    }

    fn clear<'a, 'b>(&'a self) -> BoxFuture<'b, Result<(), AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async { self.delete().await.map(|_| ()).map_err(store_error) })
    }

    /// Two processes that refresh the same login at once would invalidate each other's tokens.
    fn acquire_refresh_guard<'a, 'b>(
        &'a self,
    ) -> BoxFuture<'b, Result<Option<CredentialRefreshGuard>, AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            let lock = self.lock().await.map_err(store_error)?;
            Ok(Some(CredentialRefreshGuard::new(lock)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn token_file_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins/one.json");
        let token_file = TokenFile::new(file.clone()).with_secret(Some("hush".to_owned()));
        assert!(token_file.load().await.unwrap().is_none());
        let credentials = StoredCredentials::new("me".to_owned(), None, vec!["a".to_owned()], Some(7));
        token_file.set_missing_scopes(Some("more")).await.unwrap();
        token_file.save(credentials).await.unwrap();
        let stored = token_file.read().await.unwrap();
        assert_eq!(stored.credentials.unwrap().client_id, "me");
        assert_eq!(
            (stored.client_secret.as_deref(), stored.missing_scopes.as_deref()),
            (Some("hush"), Some("more"))
        );
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert!(token_file.delete().await.unwrap());
        assert!(!token_file.delete().await.unwrap());
        assert!(token_file.load().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn missing_scopes_are_written_after_a_concurrent_refresh() {
        let folder = tempfile::tempdir().unwrap();
        let token_file = TokenFile::new(folder.path().join("one.json"));
        let credentials = |id: &str| StoredCredentials::new(id.to_owned(), None, Vec::new(), None);
        token_file.save(credentials("old")).await.unwrap();
        let renewing = token_file.acquire_refresh_guard().await.unwrap();
        let renew = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            token_file.save(credentials("new")).await.unwrap();
            assert_eq!(token_file.read().await.unwrap().missing_scopes, None);
            drop(renewing);
        };
        let (missing_scopes, ()) = tokio::join!(token_file.set_missing_scopes(Some("more")), renew);
        missing_scopes.unwrap();
        let stored = token_file.read().await.unwrap();
        assert_eq!(stored.credentials.unwrap().client_id, "new");
        assert_eq!(stored.missing_scopes.as_deref(), Some("more"));
        token_file.delete().await.unwrap();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["one.json.lock"]);
    }
}
