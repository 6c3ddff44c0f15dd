//! Search for a secret in everything that was written.

use std::path::{Path, PathBuf};

/// A secret in all encodings in which it could be written.
pub struct SecretScanner {
    forms: Vec<Vec<u8>>,
}

impl SecretScanner {
    /// Creates a scanner for this secret.
    pub fn new(text: &str) -> SecretScanner {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut forms = vec![text.into(), text.chars().rev().collect::<String>().into(), wide];
        forms.extend([hex.to_uppercase().into(), hex.into()]);
        for skipped in 0..3 {
            forms.push(base64_inside(text.as_bytes(), skipped));
        }
        SecretScanner { forms }
    }

    /// Whether one of the encodings occurs in these bytes.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form))
    }
}

/// The base64 digits of these bytes at an offset of `skipped` bytes, whatever surrounds them.
fn base64_inside(bytes: &[u8], skipped: usize) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = &bytes[skipped..];
    let whole = bytes.chunks_exact(3);
    let group = |three: &[u8]| {
        let number = three.iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| DIGITS[number >> shift & 63])
    };
    whole.flat_map(group).collect()
}

/// All files below a directory.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(files_below(&path)),
            kind if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    files
}
