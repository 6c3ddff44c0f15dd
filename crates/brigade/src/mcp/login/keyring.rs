//! A login in a file that nobody else can read.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};

/// A login in a file.
#[derive(Clone)]
pub(super) struct Keyring {
    file: PathBuf,
    /// The secret of our client, which is kept with what it gets.
    secret: Option<String>,
}

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    pub(super) credentials: Option<StoredCredentials>,
    pub(super) client_secret: Option<String>,
    /// Rights that were found to be missing.
    pub(super) wanted: Option<String>,
}

impl Keyring {
    pub(super) fn at(file: PathBuf) -> Keyring {
        Keyring { file, secret: None }
    }

    pub(super) fn with_secret(self, secret: Option<String>) -> Keyring {
        Keyring { secret, ..self }
    }

    pub(super) async fn read(&self) -> Result<Kept, String> {
        self.blocking(|file| match std::fs::read(file) {
            // What cannot be read any more is no login.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error),
        })
        .await
    }

    /// Writes down which rights are missing, or that none are.
    pub(super) async fn want(&self, scope: Option<&str>) -> Result<(), String> {
        let kept = self.read().await?;
        if kept.wanted.as_deref() == scope {
            return Ok(());
        }
        self.write(Kept { wanted: scope.map(str::to_owned), ..kept }).await
    }

    /// Forgets the login; whether there was one.
    pub(super) async fn forget(&self) -> Result<bool, String> {
        self.blocking(|file| {
            let _ = std::fs::remove_file(beside(file, "lock"));
            match std::fs::remove_file(file) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn write(&self, kept: Kept) -> Result<(), String> {
        self.blocking(move |file| {
            folder(file)?;
            let text = serde_json::to_vec(&kept)?;
            let new = beside(file, "new");
            let mut written = private().truncate(true).open(&new)?;
            written.write_all(&text)?;
            written.sync_all()?;
            std::fs::rename(new, file)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let file = self.file.clone();
        let shown = file.display().to_string();
        let words = |why: &dyn std::fmt::Display| format!("the login in {shown} cannot be used: {why}");
        match tokio::task::spawn_blocking(move || work(&file)).await {
            Ok(done) => done.map_err(|error| words(&error)),
            Err(error) => Err(words(&error)),
        }
    }
}

fn private() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn store_error(why: String) -> AuthError {
    AuthError::CredentialStoreError(why)
}

impl CredentialStore for Keyring {
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
            let kept = self.read().await.map_err(store_error)?;
            let kept = Kept { credentials: Some(credentials), client_secret: self.secret.clone(), ..kept };
            self.write(kept).await.map_err(store_error)
        })
    }

    fn clear<'a, 'b>(&'a self) -> BoxFuture<'b, Result<(), AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async { self.forget().await.map(|_| ()).map_err(store_error) })
    }

    /// Two processes that renewed the same login at once would each make the other's worthless.
    fn acquire_refresh_guard<'a, 'b>(
        &'a self,
    ) -> BoxFuture<'b, Result<Option<CredentialRefreshGuard>, AuthError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            let locked = self.blocking(|file| {
                folder(file)?;
                let lock = private().open(beside(file, "lock"))?;
                rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
                Ok(lock)
            });
            Ok(Some(CredentialRefreshGuard::new(locked.await.map_err(store_error)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_login_is_kept_where_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins/one.json");
        let keyring = Keyring::at(file.clone()).with_secret(Some("hush".to_owned()));
        assert!(keyring.load().await.unwrap().is_none());
        let credentials = StoredCredentials::new("me".to_owned(), None, vec!["a".to_owned()], Some(7));
        keyring.want(Some("more")).await.unwrap();
        keyring.save(credentials).await.unwrap();
        let kept = keyring.read().await.unwrap();
        assert_eq!(kept.credentials.unwrap().client_id, "me");
        assert_eq!((kept.client_secret.as_deref(), kept.wanted.as_deref()), (Some("hush"), Some("more")));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert!(keyring.forget().await.unwrap());
        assert!(!keyring.forget().await.unwrap());
        assert!(keyring.load().await.unwrap().is_none());
    }
}
