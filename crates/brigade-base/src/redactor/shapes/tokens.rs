//! Keys and tokens with a prefix of their own.

use std::sync::LazyLock;

use super::super::Span;
use super::{begins_word, is_mixed, is_word_byte, run, span};

/// Label of JSON Web Tokens.
pub(super) const JWT: &str = "JSON Web Token";

/// Start of a JSON Web Token: `{"` in base64.
const JWT_START: &[u8] = b"eyJ";
const MIN_JWT_PART_BYTES: usize = 10;

/// Minimum number of random characters of a key whose end was cut.
const MIN_CUT_BYTES: usize = 8;

/// Minimum number of random characters of a key that starts with `sk-` and a name that is not known.
const MIN_GENERIC_RUN_BYTES: usize = 20;

/// Shape of a key: a prefix, and random characters of an alphabet.
pub(super) struct Shape {
    prefix: &'static str,
    alphabet: Alphabet,
    length: Length,
    pub(super) label: &'static str,
}

/// Characters after a prefix.
#[derive(Clone, Copy)]
enum Alphabet {
    /// Letters and digits.
    Plain,
    /// Upper-case letters and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
    /// Letters, digits, `-` and `_`.
    Word,
    /// Letters, digits, `-`, `_` and `.`.
    Dotted,
    /// Letters, digits, `-` and `_`, with a run of letters and digits that is long enough.
    Generic,
}

/// Number of characters after a prefix.
#[derive(Clone, Copy)]
enum Length {
    Min(usize),
    Exact(usize),
}

const fn shape(prefix: &'static str, alphabet: Alphabet, length: Length, label: &'static str) -> Shape {
    Shape { prefix, alphabet, length, label }
}

use Alphabet::{Dotted, Generic, Hex, Plain, Upper, Word};
use Length::{Exact, Min};

/// Known shapes. A longer prefix comes before a shorter one that it starts with.
pub(super) const SHAPES: [Shape; 80] = [
    shape("AGE-SECRET-KEY-1", Upper, Exact(58), "age key"),
    shape("ABIA", Upper, Exact(16), "AWS access key"),
    shape("ACCA", Upper, Exact(16), "AWS access key"),
    shape("AKIA", Upper, Exact(16), "AWS access key"),
    shape("ASIA", Upper, Exact(16), "AWS access key"),
    shape("AIza", Word, Exact(35), "Google API key"),
    shape("GOCSPX-", Word, Min(20), "Google client secret"),
    shape("SG.", Dotted, Min(60), "SendGrid key"),
    shape("dapi", Hex, Exact(32), "Databricks token"),
    shape("dckr_pat_", Word, Min(20), "Docker token"),
    shape("doo_v1_", Hex, Exact(64), "DigitalOcean token"),
    shape("dop_v1_", Hex, Exact(64), "DigitalOcean token"),
    shape("dor_v1_", Hex, Exact(64), "DigitalOcean token"),
    shape("figd_", Word, Min(30), "Figma token"),
    shape("github_pat_", Word, Min(22), "GitHub token"),
    shape("gho_", Plain, Min(30), "GitHub token"),
    shape("ghp_", Plain, Min(30), "GitHub token"),
    shape("ghr_", Plain, Min(30), "GitHub token"),
    shape("ghs_", Plain, Min(30), "GitHub token"),
    shape("ghu_", Plain, Min(30), "GitHub token"),
    shape("glagent-", Dotted, Min(20), "GitLab token"),
    shape("glcbt-", Dotted, Min(20), "GitLab token"),
    shape("gldt-", Dotted, Min(20), "GitLab token"),
    shape("glffct-", Dotted, Min(20), "GitLab token"),
    shape("glft-", Dotted, Min(20), "GitLab token"),
    shape("glimt-", Dotted, Min(20), "GitLab token"),
    shape("gloas-", Dotted, Min(20), "GitLab token"),
    shape("glpat-", Dotted, Min(20), "GitLab token"),
    shape("glptt-", Dotted, Min(20), "GitLab token"),
    shape("glrt-", Dotted, Min(20), "GitLab token"),
    shape("glsoat-", Dotted, Min(20), "GitLab token"),
    shape("glsa_", Word, Min(32), "Grafana token"),
    shape("gsk_", Plain, Min(40), "Groq key"),
    shape("hf_", Plain, Exact(34), "Hugging Face token"),
    shape("hvb.", Word, Min(24), "Vault token"),
    shape("hvs.", Word, Min(24), "Vault token"),
    shape("lin_api_", Plain, Min(30), "Linear key"),
    shape("npm_", Plain, Exact(36), "npm token"),
    shape("ntn_", Plain, Min(40), "Notion token"),
    shape("nvapi-", Word, Min(40), "NVIDIA key"),
    shape("pplx-", Plain, Min(40), "Perplexity key"),
    shape("pul-", Hex, Exact(40), "Pulumi token"),
    shape("pypi-", Word, Min(50), "PyPI token"),
    shape("r8_", Plain, Exact(37), "Replicate token"),
    shape("rk_live_", Plain, Min(16), "Stripe key"),
    shape("rk_test_", Plain, Min(16), "Stripe key"),
    shape("rubygems_", Hex, Exact(48), "RubyGems token"),
    shape("sbp_", Hex, Exact(40), "Supabase token"),
    shape("secret_", Plain, Exact(43), "Notion token"),
    shape("shpat_", Hex, Exact(32), "Shopify token"),
    shape("shpca_", Hex, Exact(32), "Shopify token"),
    shape("shppa_", Hex, Exact(32), "Shopify token"),
    shape("shpss_", Hex, Exact(32), "Shopify token"),
    shape("sk-admin-", Word, Min(20), "OpenAI key"),
    shape("sk-ant-", Word, Min(20), "Anthropic key"),
    shape("sk-lf-", Word, Min(20), "Langfuse key"),
    shape("sk-or-", Word, Min(20), "OpenRouter key"),
    shape("sk-proj-", Word, Min(20), "OpenAI key"),
    shape("sk-svcacct-", Word, Min(20), "OpenAI key"),
    shape("sk-", Generic, Min(MIN_GENERIC_RUN_BYTES), "API key"),
    shape("sk_live_", Plain, Min(16), "Stripe key"),
    shape("sk_test_", Plain, Min(16), "Stripe key"),
    shape("sntrys_", Word, Min(40), "Sentry token"),
    shape("tvly-", Word, Min(20), "Tavily key"),
    shape("vercel_", Plain, Min(24), "Vercel token"),
    shape("whsec_", Plain, Min(24), "webhook secret"),
    shape("xai-", Plain, Min(40), "xAI key"),
    shape("xapp-", Word, Min(20), "Slack token"),
    shape("xoxa-", Word, Min(10), "Slack token"),
    shape("xoxb-", Word, Min(10), "Slack token"),
    shape("xoxc-", Word, Min(10), "Slack token"),
    shape("xoxd-", Word, Min(10), "Slack token"),
    shape("xoxe-", Word, Min(10), "Slack token"),
    shape("xoxe.", Word, Min(10), "Slack token"),
    shape("xoxo-", Word, Min(10), "Slack token"),
    shape("xoxp-", Word, Min(10), "Slack token"),
    shape("xoxr-", Word, Min(10), "Slack token"),
    shape("xoxs-", Word, Min(10), "Slack token"),
    shape("ya29.", Word, Min(30), "Google access token"),
    shape("pscale_tkn_", Word, Min(30), "PlanetScale token"),
];

/// Shapes by the first byte of their prefix.
static BY_FIRST_BYTE: LazyLock<Vec<Vec<&'static Shape>>> = LazyLock::new(|| {
    let with_first =
        |byte: u8| SHAPES.iter().filter(move |shape| shape.prefix.as_bytes().first() == Some(&byte));
    (0..=u8::MAX).map(|byte| with_first(byte).collect()).collect()
});

/// Whether a secret, or the name before one, can start with this byte.
pub(super) fn starts_with_byte(byte: u8) -> bool {
    matches!(
        byte,
        b':' | b'-'
            | b'A' | b'B' | b'G' | b'S'
            | b'a' | b'b' | b'd'..=b'h'
            | b'l' | b'n' | b'p' | b'r' | b's' | b't' | b'v'..=b'y'
    )
}

/// Finds a key or token at a position.
pub(super) fn token(bytes: &[u8], at: usize) -> Option<Span> {
    if !begins_word(bytes, at) {
        return None;
    }
    let rest = bytes.get(at..)?;
    let shapes = BY_FIRST_BYTE.get(usize::from(*rest.first()?))?;
    let found = shapes.iter().find_map(|shape| Some((shape, shape.length_in(rest)?)));
    match found {
        Some((shape, length)) => span(at..at + length, shape.label),
        None => span(at..at + jwt_length(rest)?, JWT),
    }
}

/// Whether the prefix of a token is at a position.
pub(super) fn begins_at(bytes: &[u8], at: usize) -> bool {
    let Some(rest) = bytes.get(at..).filter(|_| begins_word(bytes, at)) else { return false };
    rest.starts_with(JWT_START) || SHAPES.iter().any(|shape| rest.starts_with(shape.prefix.as_bytes()))
}

impl Shape {
    /// Length of the key at the start of a text.
    fn length_in(&self, text: &[u8]) -> Option<usize> {
        let body = text.strip_prefix(self.prefix.as_bytes())?;
        let mut length = run(body, 0, |byte| self.alphabet.contains(byte));
        if matches!(self.alphabet, Dotted) {
            // A dot at the end of a sentence.
            length -= super::trailing(body.get(..length)?, |byte| byte == b'.');
        }
        let random = body.get(..length)?;
        let is_cut = length >= MIN_CUT_BYTES && self.alphabet.has_own_prefix() && is_cut(body.get(length..)?);
        let is_long_enough = match self.length {
            Min(min) => length >= min || is_cut,
            Exact(exact) => {
                let is_complete = length == exact && !body.get(length).copied().is_some_and(is_word_byte);
                is_complete || (length < exact && is_cut)
            }
        };
        (is_long_enough && self.alphabet.is_random(random)).then_some(self.prefix.len() + length)
    }
}

/// Whether a text was cut here: it ends, or an ellipsis follows.
fn is_cut(rest: &[u8]) -> bool {
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    rest.is_empty() || rest.starts_with("…".as_bytes()) || rest.starts_with(b"...")
}

impl Alphabet {
    /// Whether the prefix is enough to recognise a key of which only the beginning is left.
    fn has_own_prefix(self) -> bool {
        !matches!(self, Generic)
    }

    fn contains(self, byte: u8) -> bool {
        match self {
            Plain => byte.is_ascii_alphanumeric(),
            Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Hex => byte.is_ascii_hexdigit(),
            Word | Generic => is_word_byte(byte),
            Dotted => is_word_byte(byte) || byte == b'.',
        }
    }

    fn is_random(self, random: &[u8]) -> bool {
        match self {
            Plain | Hex | Word | Dotted | Upper => is_mixed(random),
            Generic => {
                let mut runs = random.split(|byte| !byte.is_ascii_alphanumeric());
                runs.any(|run| run.len() >= MIN_GENERIC_RUN_BYTES && is_mixed(run))
            }
        }
    }
}

/// Length of the JSON Web Token at the start of a text: three parts, of which the first two are objects.
fn jwt_length(text: &[u8]) -> Option<usize> {
    let first = jwt_part(text.get(..).filter(|text| text.starts_with(JWT_START))?)?;
    let payload = text.get(first..)?.strip_prefix(b".")?;
    let second = jwt_part(payload).filter(|_| payload.starts_with(JWT_START))?;
    let signature = payload.get(second..)?.strip_prefix(b".")?;
    Some(first + 1 + second + 1 + jwt_part(signature)?)
}

fn jwt_part(text: &[u8]) -> Option<usize> {
    Some(run(text, 0, is_word_byte)).filter(|length| *length >= MIN_JWT_PART_BYTES)
}

/// A key of every shape.
#[cfg(test)]
pub(in super::super) fn examples() -> impl Iterator<Item = String> {
    SHAPES.iter().map(|shape| {
        let count = match shape.length {
            Min(count) | Exact(count) => count,
        };
        let unit = match shape.alphabet {
            Upper => "A1B2C3",
            Hex => "a1b2c3",
            Plain | Word | Dotted | Generic => "aB1cD2",
        };
        format!("{}{}", shape.prefix, &unit.repeat(count)[..count])
    })
}
