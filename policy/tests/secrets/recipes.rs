//! Credentials by recipe. No line here is one: they are put together when the test runs.

use crate::dice::{ALNUM, BASE64, DIGITS, Dice, HEX, UPPER, URL, base64};

/// A kind of credential.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    parts: Parts,
    /// Whether it is found right after `prefix_`.
    pub(crate) glue: bool,
    /// Whether it can stand in a URL: it holds no blank, `/` or `:`.
    pub(crate) inline: bool,
}

enum Parts {
    Simple { prefix: &'static str, letters: &'static str, length: usize },
    Composed(fn(&mut Dice) -> String),
}

impl Recipe {
    /// A new credential of this kind.
    pub(crate) fn make(&self, dice: &mut Dice) -> String {
        match self.parts {
            Parts::Simple { prefix, letters, length } => {
                join(prefix, &[&dice.token(letters, length)])
            }
            Parts::Composed(make) => make(dice),
        }
    }
}

/// Prefix, alphabet and length, for what needs nothing else.
const SIMPLE: &[(&str, &str, &str, usize)] = &[
    ("GitHub token", "ghp_", ALNUM, 36),
    ("GitHub token", "gho_", ALNUM, 36),
    ("GitHub token", "ghu_", ALNUM, 36),
    ("GitHub token", "ghs_", ALNUM, 36),
    ("GitHub token", "ghr_", ALNUM, 76),
    ("GitLab token", "glpat-", URL, 20),
    ("GitLab token", "gldt-", URL, 20),
    ("GitLab token", "glrt-", URL, 20),
    ("GitLab token", "glptt-", HEX, 40),
    ("GitLab token", "glagent-", URL, 50),
    ("Bitbucket token", "ATBB", ALNUM, 32),
    ("Atlassian token", "ATATT3xFfGF0", URL, 180),
    ("Google API key", "AIza", URL, 35),
    ("Google OAuth token", "ya29.", URL, 120),
    ("Google OAuth secret", "GOCSPX-", URL, 28),
    ("DigitalOcean token", "dop_v1_", HEX, 64),
    ("Databricks token", "dapi", HEX, 32),
    ("Netlify token", "nfp_", ALNUM, 36),
    ("Supabase key", "sbp_", HEX, 40),
    ("Tailscale key", "tskey-auth-", ALNUM, 40),
    ("Vault token", "hvs.", URL, 91),
    ("Vault token", "hvb.", URL, 140),
    ("age key", "AGE-SECRET-KEY-1", UPPER, 58),
    ("Slack token", "xapp-1-A", ALNUM, 70),
    ("Anthropic key", "sk-ant-api03-", URL, 95),
    ("OpenRouter key", "sk-or-v1-", HEX, 64),
    ("OpenAI key", "sk-proj-", URL, 156),
    ("OpenAI key", "sk-svcacct-", URL, 60),
    ("OpenAI key", "sk-admin-", URL, 60),
    ("model vendor key", "sk-", ALNUM, 48),
    ("model vendor key", "sk-", HEX, 32),
    ("Groq key", "gsk_", ALNUM, 52),
    ("xAI key", "xai-", ALNUM, 80),
    ("Perplexity key", "pplx-", ALNUM, 48),
    ("Replicate token", "r8_", ALNUM, 37),
    ("Hugging Face token", "hf_", ALNUM, 34),
    ("NVIDIA key", "nvapi-", URL, 64),
    ("npm token", "npm_", ALNUM, 36),
    ("PyPI token", "pypi-AgEIcHlwaS5vcmc", URL, 150),
    ("RubyGems key", "rubygems_", HEX, 48),
    ("Docker token", "dckr_pat_", URL, 27),
    ("Stripe key", "sk_live_", ALNUM, 24),
    ("Stripe key", "sk_test_", ALNUM, 99),
    ("Stripe key", "rk_live_", ALNUM, 99),
    ("Stripe secret", "whsec_", ALNUM, 32),
    ("Brevo key", "xkeysib-", HEX, 81),
    ("Linear key", "lin_api_", ALNUM, 40),
    ("Notion token", "ntn_", ALNUM, 46),
    ("Figma token", "figd_", URL, 40),
    ("Shopify token", "shpat_", HEX, 32),
    ("Grafana token", "glsa_", ALNUM, 41),
    ("New Relic key", "NRAK-", UPPER, 27),
    ("Postman key", "PMAK-", HEX, 59),
    ("Sentry token", "sntryu_", HEX, 64),
];

type Composed = (&'static str, fn(&mut Dice) -> String, bool, bool);

/// Credentials with parts; `(name, recipe, found after a prefix, fits into a URL)`.
const COMPOSED: &[Composed] = &[
    (
        "GitHub token",
        |d| join("github_pat_", &[&d.text(ALNUM, 22), "_", &d.token(ALNUM, 59)]),
        true,
        true,
    ),
    ("AWS access key", |d| join("AKIA", &[&d.text(UPPER, 16)]), true, true),
    ("AWS access key", |d| join("ASIA", &[&d.text(UPPER, 16)]), true, true),
    (
        "Slack token",
        |d| {
            join(
                "xoxb-",
                &[&d.text(DIGITS, 12), "-", &d.text(DIGITS, 13), "-", &d.token(ALNUM, 24)],
            )
        },
        true,
        true,
    ),
    (
        "Slack token",
        |d| join("xoxp-", &[&d.text(DIGITS, 12), "-", &d.text(DIGITS, 12), "-", &d.text(HEX, 32)]),
        true,
        true,
    ),
    (
        "Slack webhook",
        |d| {
            join(
                "hooks.slack.com/serv",
                &["ices/T", &d.text(UPPER, 8), "/B", &d.text(UPPER, 8), "/", &d.token(ALNUM, 24)],
            )
        },
        true,
        false,
    ),
    (
        "Discord webhook",
        |d| join("discord.com/api/web", &["hooks/", &d.text(DIGITS, 18), "/", &d.token(URL, 68)]),
        true,
        false,
    ),
    ("Discord bot token", |d| discord(d, 24, 6, 27), true, true),
    ("Discord bot token", |d| discord(d, 26, 6, 38), true, true),
    ("Discord bot token", |d| discord(d, 26, 7, 40), true, true),
    (
        "Telegram bot token",
        |d| join(&d.text("123456789", 10), &[":AA", &d.token(URL, 33)]),
        true,
        false,
    ),
    (
        "JWT",
        |d| {
            join(
                &base64(br#"{"alg":"HS256","typ":"JWT"}"#),
                &[".", &base64(br#"{"sub":"1234567890"}"#), ".", &d.token(URL, 43)],
            )
        },
        true,
        true,
    ),
    ("Twilio key", |d| join("SK", &[&d.text(HEX, 32)]), false, true),
    ("SendGrid key", |d| join("SG.", &[&d.text(URL, 22), ".", &d.token(URL, 43)]), true, true),
    ("Mailgun key", |d| join("key-", &[&d.text(HEX, 32)]), false, true),
    ("Mailchimp key", |d| join(&d.text(HEX, 32), &["-us", "21"]), true, true),
    ("crates.io token", |d| join("cio", &[&d.token(ALNUM, 32)]), false, true),
    (
        "Terraform token",
        |d| join(&d.text(ALNUM, 14), &[".atlasv1.", &d.token(URL, 67)]),
        true,
        true,
    ),
    (
        "Azure client secret",
        |d| join(&d.text(ALNUM, 3), &["8", "Q~", &d.token(URL, 34)]),
        true,
        true,
    ),
    (
        "model vendor key",
        |d| {
            join(
                "sk-sp-",
                &[&d.text(ALNUM, 6), "1b2.", &d.text(ALNUM, 6), ".g7h8", &d.token(ALNUM, 6)],
            )
        },
        true,
        true,
    ),
    ("private key", |d| pem(d, "RSA "), false, false),
    ("private key", |d| pem(d, "OPENSSH "), false, false),
    ("private key", |d| pem(d, ""), false, false),
    ("private key", |d| pem(d, "EC "), false, false),
    ("private key", |d| pem(d, "PGP ").replace("KEY-", "KEY BLOCK-"), false, false),
];

/// Every recipe.
pub(crate) fn all() -> Vec<Recipe> {
    let simple = SIMPLE.iter().map(|&(name, prefix, letters, length)| Recipe {
        name,
        parts: Parts::Simple { prefix, letters, length },
        glue: true,
        inline: true,
    });
    let composed = COMPOSED.iter().map(|&(name, make, glue, inline)| Recipe {
        name,
        parts: Parts::Composed(make),
        glue,
        inline,
    });
    simple.chain(composed).collect()
}

fn join(first: &str, rest: &[&str]) -> String {
    format!("{first}{}", rest.concat())
}

fn discord(dice: &mut Dice, first: usize, second: usize, third: usize) -> String {
    let id = base64(dice.text(DIGITS, first * 3 / 4).as_bytes());
    format!("{}.G{}.{}", &id[..first], dice.text(ALNUM, second - 1), dice.text(URL, third))
}

fn pem(dice: &mut Dice, kind: &str) -> String {
    let line = "-".repeat(5);
    let body: Vec<_> = (0..6).map(|_| dice.text(BASE64, 64)).collect();
    let body = body.join("\n");
    format!("{line}BEGIN {kind}PRIVATE KEY{line}\n{body}\n{line}END {kind}PRIVATE KEY{line}")
}
