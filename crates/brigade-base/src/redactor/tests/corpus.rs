//! Text that contains no secrets and must stay as it is.

use std::path::Path;

use super::*;

/// Random bytes that are the same in every run.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| (next() >> 24) as u8).collect()
}

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let group = |three: &[u8]| {
        let number = three.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(alphabet[number >> shift & 63]))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

#[test]
fn encoded_data_is_kept() {
    let standard = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let for_urls = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bytes = noise(3 << 20);
    let hex: String = bytes[..1 << 20].iter().map(|byte| format!("{byte:02x}")).collect();
    let wrapped = |text: &str, columns: usize| {
        let lines: Vec<&str> =
            text.as_bytes().chunks(columns).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join("\n")
    };
    let standard = base64(&bytes, standard);
    let lines = [wrapped(&standard, 76), wrapped(&standard, 64), wrapped(&hex, 40), wrapped(&hex, 32)];
    for text in [standard, base64(&bytes, for_urls), hex].into_iter().chain(lines) {
        assert_eq!(markers(&Redactor::default().redact(&text)).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn integrity_fields_and_ids_are_kept() {
    let digest = base64(&noise(66), b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    let texts = [
        format!("\"integrity\": \"sha512-{digest}==\","),
        "checksum = \"c982642fa9e8606056828ee9a8505737230110bb1099153c79efe865c59d12ba\"".to_owned(),
        "h1:J1shsA93PJUEVaUSaay7UXAyE8aimq3GW0pjlolpa24=".to_owned(),
        "550e8400-e29b-41d4-a716-446655440000".to_owned(),
        format!("<img src=\"data:image/png;base64,{digest}\">"),
        "commit 42d783ac0e8f1b2c3d4e5f60718293a4b5c6d7e8".to_owned(),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1shsA93PJUEVaUSaay7UXAyE8aimq3GW0pjlolpa24 me@host".to_owned(),
    ];
    for text in texts {
        assert_eq!(Redactor::default().redact(&text), text);
    }
}

/// Files of this repository that contain addresses with a password, or the texts that replace secrets.
const WITH_EXAMPLES: [&str; 13] = [
    "docs/guide/permissions.md",
    "brigade-base/src/redactor/tests.rs",
    "brigade-cli/src/settings/shell.rs",
    "brigade-cli/tests/cli/environment_context.rs",
    "brigade-cli/tests/cli/proxy.rs",
    "brigade-cli/tests/hostile/web.rs",
    "brigade-http-client/src/proxies.rs",
    "brigade-models/src/http/proxy.rs",
    "brigade-tools/src/web/address.rs",
    "brigade/tests/mcp/http.rs",
    "brigade/tests/models/failures.rs",
    "brigade/tests/web/address_class.rs",
    "brigade/tests/web/searching.rs",
];

#[test]
fn files_of_this_repository_are_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("crates"), root.join("docs"), root.join("scripts"), root.join("tests")];
    let mut files = vec![root.join("Cargo.lock"), root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !path.ends_with("target") => folders.push(path),
                Ok(kind) if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    let mut bytes = 0;
    let mut changed = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        bytes += text.len();
        if let Cow::Owned(redacted) = Redactor::default().redact(&text) {
            let line =
                redacted.lines().find(|line| markers(line).next().is_some()).unwrap_or_default().to_owned();
            changed.push((file, line));
        }
    }
    changed.retain(|(file, _)| !WITH_EXAMPLES.iter().any(|known| file.ends_with(known)));
    assert!(bytes > 1 << 20 || !root.join("Cargo.lock").exists(), "the corpus has only {bytes} bytes");
    assert_eq!(changed, []);
}
