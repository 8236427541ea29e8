//! The askpass role: the only code that reads the token.
//!
//! git runs this program as `GIT_ASKPASS` during fetch, pull and push over https, with the prompt as
//! its argument and no shell between. The token's path comes through the environment; the token goes
//! to git's pipe and nowhere else. It answers a password request for the configured host alone.
//!
//! (A git credential helper would do the same, but git always runs one through a shell.)

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use policy::git::Remote;
use rustix::fs::{Mode, OFlags};

use crate::git::child::Https;

const TOKEN_FILE: &str = "SAGE_TOKEN_FILE";
const TOKEN_ORIGIN: &str = "SAGE_TOKEN_ORIGIN";

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 8192;

/// Adds what a remote verb over https needs to git's environment.
pub(crate) fn environment(
    self_exe: &Path,
    remote: &Remote,
    https: Option<Https<'_>>,
    set: &mut impl FnMut(&str, OsString),
) {
    let Remote::Https { host, port, .. } = remote else { return };
    // Names are resolved over TCP: no child may use UDP.
    set("RES_OPTIONS", "use-vc".into());
    if let Some(ca_file) = https.and_then(|https| https.ca_file) {
        set("GIT_SSL_CAINFO", ca_file.into());
    }
    if let Some(token_file) = https.and_then(|https| https.token_file) {
        set("GIT_ASKPASS", self_exe.into());
        set(TOKEN_FILE, token_file.into());
        set(TOKEN_ORIGIN, origin(host, *port).into());
    }
}

/// The origin as git's prompt spells it.
fn origin(host: &str, port: u16) -> String {
    if port == 443 { host.to_owned() } else { format!("{host}:{port}") }
}

/// Whether this process was started by git as askpass.
#[must_use]
pub fn is_askpass() -> bool {
    std::env::var_os(TOKEN_FILE).is_some() && std::env::var_os(TOKEN_ORIGIN).is_some()
}

/// The askpass role: answers one prompt.
#[must_use]
pub fn askpass() -> ExitCode {
    let prompt = std::env::args().nth(1).unwrap_or_default();
    let origin = std::env::var(TOKEN_ORIGIN).unwrap_or_default();
    if !asks_for_our_password(&prompt, &origin) {
        eprintln!("sage-executor: askpass answers only a password request for {origin}");
        return ExitCode::FAILURE;
    }
    let path = std::env::var_os(TOKEN_FILE).unwrap_or_default();
    match read_token(Path::new(&path)) {
        Ok(token) => {
            let written = std::io::stdout().write_all(&token);
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(reason) => {
            eprintln!("sage-executor: the token file {reason}");
            ExitCode::FAILURE
        }
    }
}

/// `Password for 'https://user@host[:port]': `
fn asks_for_our_password(prompt: &str, origin: &str) -> bool {
    let quoted = prompt.strip_prefix("Password for '").and_then(|rest| rest.strip_suffix("': "));
    let authority = quoted.and_then(|url| url.strip_prefix("https://")).unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    !origin.is_empty() && host == origin
}

fn read_token(path: &Path) -> Result<Vec<u8>, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|e| format!("cannot be read: {e}"))?;
    let mut token = vec![0; MAX_TOKEN_BYTES + 1];
    let mut length = 0;
    loop {
        match rustix::io::read(&fd, &mut token[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        if length > MAX_TOKEN_BYTES {
            return Err(format!("is longer than {MAX_TOKEN_BYTES} bytes"));
        }
    }
    token.truncate(length);
    while token.last().is_some_and(u8::is_ascii_whitespace) {
        token.pop();
    }
    if token.is_empty() || token.iter().any(|byte| *byte < 0x20) {
        return Err("does not hold one token on one line".to_owned());
    }
    token.push(b'\n');
    Ok(token)
}

/// Checks a token's file without reading it: a regular file, no link, owned by this user, for nobody
/// else to read.
///
/// A systemd credential is owned by root and readable by an ACL for the service, which shows as the
/// group bits; so those are accepted below the credentials folder that systemd names.
///
/// # Errors
/// What is wrong, and how to fix it.
pub fn check_token_file(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let shown = path.display();
    let metadata =
        std::fs::symlink_metadata(path).map_err(|e| format!("the token file {shown}: {e}"))?;
    if !metadata.is_file() {
        return Err(format!(
            "the token file {shown} is not a regular file; name the file itself, not a link to it"
        ));
    }
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let is_credential = credentials.is_some_and(|dir| path.parent() == Some(Path::new(&dir)));
    let me = rustix::process::geteuid().as_raw();
    if is_credential {
        let ok = metadata.mode() & 0o037 == 0 && (metadata.uid() == me || metadata.uid() == 0);
        return if ok {
            Ok(())
        } else {
            Err(format!("the credential {shown} can be changed or read by others"))
        };
    }
    if metadata.uid() != me {
        return Err(format!(
            "the token file {shown} belongs to another user; run `chown {me} {shown}`"
        ));
    }
    if metadata.mode() & 0o177 != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(format!(
            "the token file {shown} has mode {mode:04o}; run `chmod 0600 {shown}`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{asks_for_our_password, check_token_file, read_token};

    #[test]
    fn only_a_password_request_for_the_configured_host_is_answered() {
        for (prompt, origin, answered) in [
            ("Password for 'https://x-access-token@git.example.com': ", "git.example.com", true),
            ("Password for 'https://x-access-token@localhost:8443': ", "localhost:8443", true),
            ("Username for 'https://git.example.com': ", "git.example.com", false),
            ("Password for 'https://u@evil.example': ", "git.example.com", false),
            ("Password for 'https://git.example.com@evil.example': ", "git.example.com", false),
            ("Password for 'https://u@git.example.com:8443': ", "git.example.com", false),
            ("Password for 'http://u@git.example.com': ", "git.example.com", false),
            ("Password for 'https://u@git.example.com/x': ", "git.example.com", false),
            ("", "", false),
        ] {
            assert_eq!(asks_for_our_password(prompt, origin), answered, "{prompt}");
        }
    }

    #[test]
    fn a_token_file_of_the_wrong_kind_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().expect("a folder");
        let token = dir.path().join("token");
        std::fs::write(&token, "s3cret-value\n").expect("it writes");
        let set = |mode| std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode));
        set(0o600).expect("chmod");
        assert_eq!(check_token_file(&token), Ok(()));
        for mode in [0o644, 0o640, 0o700, 0o604] {
            set(mode).expect("chmod");
            assert!(
                check_token_file(&token).is_err_and(|why| why.contains("chmod 0600")),
                "{mode:o}"
            );
        }
        set(0o600).expect("chmod");
        let link = dir.path().join("link");
        symlink(&token, &link).expect("a link");
        assert!(check_token_file(&link).is_err_and(|why| why.contains("not a regular file")));
        assert!(check_token_file(&dir.path().join("none")).is_err());
        assert_eq!(read_token(&token), Ok(b"s3cret-value\n".to_vec()));
        assert!(read_token(&link).is_err());
        std::fs::write(&token, "two\nlines\n").expect("it writes");
        assert!(read_token(&token).is_err());
    }
}
