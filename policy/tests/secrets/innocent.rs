//! What looks a little like a credential and is none.

use crate::dice::{ALNUM, BASE64, DIGITS, Dice, HEX};

/// One innocent text of each kind, made anew on each call.
pub(crate) fn batch(dice: &mut Dice) -> Vec<String> {
    let mut all = Vec::new();
    hashes(dice, &mut all);
    lock_files(dice, &mut all);
    identifiers(dice, &mut all);
    blobs(dice, &mut all);
    generated_code(dice, &mut all);
    logs(dice, &mut all);
    all
}

fn uuid(dice: &mut Dice) -> String {
    let mut group = |length| dice.text(HEX, length);
    format!("{}-{}-4{}-a{}-{}", group(8), group(4), group(3), group(3), group(12))
}

fn hashes(dice: &mut Dice, all: &mut Vec<String>) {
    let (sha1, sha256, md5) = (dice.text(HEX, 40), dice.text(HEX, 64), dice.text(HEX, 32));
    let short = dice.text(HEX, 7);
    all.extend([
        format!("commit {sha1}\nMerge: {short} {short}\nAuthor: a <a@b.example>\n"),
        format!("index {short}..{short} 100644\n--- a/token.rs\n+++ b/token.rs\n"),
        format!("100644 blob {sha1}\tsrc/secret.rs"),
        format!("{sha256}  release/password-manager.tar.gz"),
        format!("{md5} *token.bin"),
        format!("image: registry.example.com:5000/team/app@sha256:{sha256}"),
        format!("oid sha256:{sha256}\nsize 12345"),
        format!("SHA256:{} editor@laptop (ED25519)", dice.text(BASE64, 43)),
        format!("ETag: \"{md5}\""),
        format!("git checkout {sha1} && git cherry-pick {sha1}..{sha1}"),
        format!("  rev = \"{sha1}\";\n  hash = \"sha256-{}=\";", dice.text(BASE64, 43)),
        format!("https://github.com/o/r/commit/{sha1}#diff-{sha256}R12"),
        format!("uses: actions/checkout@{sha1} # v4"),
        format!("key: cache-{md5}-{sha256}"),
    ]);
}

fn lock_files(dice: &mut Dice, all: &mut Vec<String>) {
    let (sha1, sha256) = (dice.text(HEX, 40), dice.text(HEX, 64));
    let sha512 = dice.text(BASE64, 86);
    all.extend([
        format!("name = \"secrecy\"\nversion = \"0.10.3\"\nchecksum = \"{sha256}\""),
        format!("\"integrity\": \"sha512-{sha512}==\","),
        format!(
            "  resolved \"https://registry.yarnpkg.com/js-tokens/-/js-tokens-4.0.0.tgz#{sha1}\""
        ),
        format!("  integrity sha512-{sha512}=="),
        format!("  resolution: {{integrity: sha512-{sha512}==}}"),
        format!("    --hash=sha256:{sha256} \\\n    --hash=sha256:{sha256}"),
        format!("golang.org/x/crypto v0.31.0 h1:{}=", dice.text(BASE64, 43)),
        format!("{{file = \"pyjwt-2.8.0-py3-none-any.whl\", hash = \"sha256:{sha256}\"}},"),
        format!("\"reference\": \"{sha1}\",\n\"shasum\": \"{sha1}\""),
        format!("<script integrity=\"sha384-{}\" crossorigin>", dice.text(BASE64, 64)),
        format!("  \"node_modules/token-types\": {{\n    \"version\": \"6.0.{}\"", dice.below(99)),
    ]);
}

fn identifiers(dice: &mut Dice, all: &mut Vec<String>) {
    let id = uuid(dice);
    all.extend([
        format!("id={id}"),
        format!("\"request_id\": \"{id}\", \"token_id\": \"{id}\""),
        format!("token: {id}"),
        format!("/dev/disk/by-uuid/{id} / ext4 defaults 0 1"),
        format!("urn:uuid:{id}"),
        format!("<@{}> in <#{}>", dice.text(DIGITS, 18), dice.text(DIGITS, 19)),
        format!("arn:aws:iam::{}:role/deploy-token-reader", dice.text(DIGITS, 12)),
        format!("module.method{}.property_name_that_is_quite_long", dice.below(9)),
        format!("1.2.3-alpha.2024{}", dice.text(DIGITS, 4)),
        format!("com.example.app.MainActivityWithAVeryLongName{}", dice.below(99)),
        format!("Name.abcdef.{}", dice.text(ALNUM, 20)),
        format!("chat {}:{}", dice.text(DIGITS, 9), dice.text(DIGITS, 4)),
        format!("fe80::{}:{}%eth0", dice.text(HEX, 4), dice.text(HEX, 4)),
        format!("https://h.example/v{}/a@b/c?q=x@y", dice.below(9)),
        format!("https://cdn.example/npm/@scope/pkg@{}.0.1/dist/x.min.js", dice.below(30)),
        format!("git@git{}.example:o/r.git", dice.below(9)),
        format!("ssh://git@h{}/x", dice.below(9)),
        format!("postgres://localhost:{}/app", 5000 + dice.below(999)),
        format!("task-{}-risk-assessment-for-desk-lamp-v2-final", dice.below(999)),
    ]);
}

fn blobs(dice: &mut Dice, all: &mut Vec<String>) {
    let line = "-".repeat(5);
    let length = 400 + dice.below(4000);
    let body: Vec<_> = (0..8).map(|_| dice.text(BASE64, 64)).collect();
    let body = body.join("\n");
    all.extend([
        format!("<img src=\"data:image/png;base64,iVBORw0KGgo{}==\">", dice.text(BASE64, length)),
        format!("url(data:font/woff2;base64,d09GMgAB{})", dice.text(BASE64, length)),
        format!("![x][i]\n\n[i]: <data:image/jpeg;base64,/9j/{}>", dice.text(BASE64, length)),
        format!("{line}BEGIN CERTIFICATE{line}\n{body}\n{line}END CERTIFICATE{line}"),
        format!("{line}BEGIN PUBLIC KEY{line}\n{body}\n{line}END PUBLIC KEY{line}"),
        format!("{line}BEGIN PGP SIGNATURE{line}\n\n{body}\n{line}END PGP SIGNATURE{line}"),
        format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} a@b", dice.text(BASE64, 43)),
        format!("ssh-rsa AAAAB3NzaC1yc2E{}== deploy-key", dice.text(BASE64, 350)),
        format!("\"mappings\":\"AAAA,SAASA,{};{}\"", dice.text(ALNUM, 300), dice.text(ALNUM, 90)),
        format!("00000010: {} {} {}", dice.text(HEX, 4), dice.text(HEX, 4), dice.text(HEX, 4)),
        format!("<path d=\"M{}.{} {}L{}z\"/>", dice.below(99), dice.below(99), dice.below(9), 4),
        body.clone(),
        format!("if text.contains(\"{line}BEGIN RSA PRIVATE KEY{line}\") {{ refuse(); }}"),
    ]);
}

fn generated_code(dice: &mut Dice, all: &mut Vec<String>) {
    let mut short = || {
        let length = 1 + dice.below(2);
        dice.text("abcdefghijklmnopqrstuvwxyz", length)
    };
    let names: Vec<_> = (0..120).map(|_| short()).collect();
    let call = |n: &[String]| format!("{}.{}=function({}){{return {}}}", n[0], n[1], n[2], n[3]);
    let calls: Vec<_> = names.chunks(4).map(call).collect();
    all.push(format!("!function(e,t){{{}}}(this);", calls.join(",")));
    let colours: Vec<_> = (0..40)
        .map(|n| format!(".sk-circle{n}-fade-dot{{color:#{};margin:0 {n}px}}", dice.text(HEX, 6)))
        .collect();
    all.push(colours.concat());
    all.push(format!(".sk-folding-cube-{}-animation-delay-container{{}}", dice.below(99)));
    all.push(format!("const chunk={{{}:\"{}\"}};", dice.below(999), dice.text(HEX, 20)));
    all.push(format!("_0x{}=[\"\\x61\\x{}\"];", dice.text(HEX, 4), dice.text(HEX, 2)));
}

fn logs(dice: &mut Dice, all: &mut Vec<String>) {
    let (trace, span, id) = (dice.text(HEX, 32), dice.text(HEX, 16), uuid(dice));
    let n = dice.below(60);
    all.extend([
        format!("12:{n:02}:07.123Z INFO trace_id={trace} span_id={span} token accepted"),
        format!("10.0.{n}.7 - - \"GET /api/token?user={n} HTTP/1.1\" 200 {n}12"),
        format!(
            "Accepted publickey for git from 192.0.2.{n} port 50{n:03}: RSA SHA256:{}",
            dice.text(BASE64, 43)
        ),
        format!("max_tokens={n}00 prompt_tokens: 12{n} completion_token_count = {n}"),
        format!("session {id} closed after {n} s, secret rotation skipped"),
        format!("x-request-id: {id}\nx-amz-id-2: {}=", dice.text(BASE64, 75)),
        format!("error[E0{n:03}]: cannot find type `Token` in crate `secret_{n}`"),
        format!("+    let password_{n} = prompt(\"Password: \")?;"),
        format!("nonce-{} style-src 'self'", dice.text(BASE64, 22)),
    ]);
}

/// Prose, code and the negatives of the bug reports, as they are.
pub(crate) const FIXED: &str = include_str!("innocent.txt");
