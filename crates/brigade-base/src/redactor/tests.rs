use super::*;

mod corpus;
mod planted;

fn configured(secrets: &[&str]) -> Redactor {
    Redactor::default().with_secrets(secrets.iter().copied().map(Secret::new))
}

#[test]
fn configured_secrets_are_redacted_also_inside_each_other() {
    let redactor = configured(&["sesame", "my-sesame-key", "short"]);
    let hidden = "[redacted: configured secret]";
    assert_eq!(redactor.redact("my-sesame-key, sesame, short"), format!("{hidden}, {hidden}, short"));
    assert_eq!(redactor.redact("sesamesesame"), format!("{hidden}{hidden}"));
    assert_eq!(configured(&["abcdef", "defghi"]).redact("abcdefghi!"), format!("{hidden}!"));
}

#[test]
fn configured_secret_is_redacted_in_json_too() {
    let redactor = configured(&["line one\n\"two\""]);
    let json = serde_json::to_string("key: line one\n\"two\".").unwrap();
    let redacted = redactor.redact_json(&json);
    assert_eq!(serde_json::from_str::<String>(&redacted).unwrap(), "key: [redacted: configured secret].");
}

#[test]
fn value_that_is_part_of_the_marker_is_no_secret() {
    let redactor = configured(&["redacted", "configured secret", "GitHub token"]);
    assert_eq!(redactor.redact("a GitHub token was redacted"), "a GitHub token was redacted");
}

#[test]
fn only_configured_secrets_are_redacted_in_arguments() {
    let redactor = configured(&["hunter2-hunter2/x"]);
    let token = planted::github();
    let plain = format!(r#"{{"content":"{token}"}}"#);
    assert_eq!(redactor.redact_arguments(&plain), None);
    assert!(!redactor.is_refused(&plain));
    for secret in [r"hunter2-hunter2/x", r"\u0068unter2-hunter2/x", r"hunter2-hunter2\/x"] {
        let arguments = format!(r#"{{"b":1,"a":["x","<{secret}>"]}}"#);
        let redacted = redactor.redact_arguments(&arguments).unwrap();
        assert_eq!(redacted, r#"{"b":1,"a":["x","<[redacted: configured secret]>"]}"#);
        assert!(redactor.is_refused(&arguments) && redactor.is_refused(&redacted));
    }
    // Arguments that are not JSON are redacted as well: they are recorded before they are parsed.
    assert_eq!(
        redactor.redact_arguments(r#"{"a": "\hunter2-hunter2/x"#).unwrap(),
        r#"{"a": "\[redacted: configured secret]"#
    );
}

#[test]
fn redacted_json_keeps_its_structure() {
    let key = planted::private_key();
    let lines: Vec<&str> = key.lines().collect();
    let json = serde_json::to_string(&(&key, lines, "x")).unwrap();
    let redacted: serde_json::Value = serde_json::from_str(&Redactor::default().redact_json(&json)).unwrap();
    assert_eq!((&redacted[0], &redacted[2]), (&"[redacted: private key]\n".into(), &"x".into()));
    assert_eq!(redacted[1].as_array().unwrap().len(), key.lines().count());
}

#[test]
fn markers_are_found_and_only_those() {
    let text = "[redacted: GitHub token] [redacted: a joke] [redacted: password";
    assert_eq!(markers(text).collect::<Vec<_>>(), ["[redacted: GitHub token]"]);
    assert!(labels().all(|label| markers(&marker(label)).count() == 1));
}

#[test]
fn debug_output_has_no_secret() {
    assert_eq!(format!("{:?}", configured(&["hunter2-hunter2"])), "Redactor { secrets: 1 }");
}

#[test]
fn streamed_text_is_redacted_wherever_it_is_split() {
    let redactor = configured(&["hunter2-hunter2"]);
    let text = format!(
        "use hunter2-hunter2 and\n{} then Bearer {} end postgres://me:pass-w0rd@db/x {}done s",
        planted::github(),
        "abcdefghij0123456789XY",
        planted::private_key()
    );
    let whole = redactor.redact(&text).into_owned();
    for size in [1, 2, 3, 7, 16, 64, 1000] {
        let mut stream = StreamRedactor::new(redactor.clone());
        let mut shown = String::new();
        let bytes: Vec<char> = text.chars().collect();
        for piece in bytes.chunks(size) {
            stream.push(&piece.iter().collect::<String>());
            shown.push_str(&stream.take());
        }
        shown.push_str(&stream.finish());
        for secret in
            ["hunter2", &planted::github()[8..], "abcdefghij01", "w0rd", &planted::private_key()[40..60]]
        {
            assert!(
                text.contains(secret) && !shown.contains(secret),
                "{secret} in pieces of {size}: {shown}"
            );
        }
        assert!(markers(&shown).count() >= markers(&whole).count(), "pieces of {size}: {shown}");
        assert!(size < 64 || shown == whole, "pieces of {size}: {shown}");
    }
}

#[test]
fn ordinary_text_is_not_held_back() {
    let mut stream = StreamRedactor::new(configured(&["hunter2-hunter2"]));
    for piece in [
        "Hel",
        "lo wor",
        "ld. The tok",
        "ens",
        " are fine: see https://exa",
        "mple.org/a",
        " and task-",
        "list",
    ] {
        stream.push(piece);
        assert_eq!(stream.take(), piece);
    }
    assert_eq!(stream.finish(), "");
}

#[test]
fn long_text_is_redacted_in_linear_time() {
    // Quadratic time would take minutes.
    let redactor = configured(&["hunter2-hunter2"]);
    for unit in [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----:",
        "-----BEGIN PRIVATE KEY-----\na:\n",
        "://a:b",
        "eyJ.",
        "Bearer ",
        "sk-",
        "\\n",
        "Authorization: Bearer ",
    ] {
        let text = unit.repeat((4 << 20) / unit.len());
        assert_eq!(redactor.redact(&text), text);
    }
}
