//! `git http-backend` as a CGI program: one request in, one response out.

use std::ffi::OsString;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

/// The bare repositories below a folder, served by git itself.
#[derive(Debug, Clone)]
pub struct Backend {
    program: PathBuf,
    folder: PathBuf,
}

/// What goes in.
#[derive(Debug, Default)]
pub struct CgiRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// The path, decoded.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// The headers that git asks for, by their CGI names.
    pub headers: Vec<(&'static str, String)>,
    /// The body, as it came: git unpacks it itself.
    pub body: Vec<u8>,
}

/// What comes out.
#[derive(Debug)]
pub struct CgiResponse {
    /// The status code.
    pub status: u16,
    /// The other headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Backend {
    /// Serves the bare repositories below `folder` with this git's own backend.
    ///
    /// # Errors
    /// When this git has none.
    pub fn new(git: &Path, folder: &Path) -> Result<Self> {
        let output = Command::new(git).arg("--exec-path").env_clear().output()?;
        let exec_path = String::from_utf8(output.stdout)?;
        let program = Path::new(exec_path.trim()).join("git-http-backend");
        ensure!(program.is_file(), "{} is missing", program.display());
        Ok(Self { program, folder: folder.to_owned() })
    }

    /// Answers one request.
    ///
    /// # Errors
    /// When the backend does not start, fails, or answers with something that is no CGI response.
    pub fn answer(&self, request: &CgiRequest) -> Result<CgiResponse> {
        // A file, not a pipe: the backend may answer before it has read everything.
        let mut body = tempfile::tempfile()?;
        body.write_all(&request.body)?;
        body.rewind()?;
        let output = Command::new(&self.program)
            .env_clear()
            .envs(self.environment(request))
            .stdin(body)
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("{} does not start", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git http-backend failed: {said}");
        parse(&output.stdout).ok_or_else(|| anyhow!("git http-backend sent no response: {said}"))
    }

    fn environment(&self, request: &CgiRequest) -> Vec<(&'static str, OsString)> {
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("PATH", "/usr/bin:/bin".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_PROJECT_ROOT", self.folder.clone().into()),
            ("GIT_HTTP_EXPORT_ALL", "1".into()),
            ("REMOTE_USER", "token".into()),
            ("REMOTE_ADDR", "127.0.0.1".into()),
            ("REQUEST_METHOD", request.method.clone().into()),
            ("PATH_INFO", request.path.clone().into()),
            ("QUERY_STRING", request.query.clone().into()),
            ("CONTENT_LENGTH", request.body.len().to_string().into()),
        ];
        let headers = request.headers.iter();
        environment.extend(headers.map(|(name, value)| (*name, value.into())));
        environment
    }
}

/// Header lines, an empty line, the body.
fn parse(output: &[u8]) -> Option<CgiResponse> {
    let mut status = 200;
    let mut headers = Vec::new();
    let mut rest = output;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&rest[..end]).ok()?.trim_end_matches('\r');
        rest = &rest[end + 1..];
        if line.is_empty() {
            return Some(CgiResponse { status, headers, body: rest.to_vec() });
        }
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("status") {
            status = value.split_whitespace().next()?.parse().ok()?;
        } else {
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}
