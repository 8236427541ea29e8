//! What an engine was started with: one write-once record per start, in `launches/`.
//!
//! It answers "what was the model told at the time of that turn?" long after the context files have
//! changed: the record names engine, model and the digest of each file, and the text of all of them is
//! beside it, once for each text, under its digest. Neither is ever changed. It holds no key.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use super::AnyEngine;
use super::context::ContextFile;
use crate::record::TextDigest;

/// The folder of launches, in a binding's folder.
pub const FOLDER: &str = "launches";

/// What files are called while they are written; a crash can leave one.
pub(super) const TEMPORARY: &str = ".writing-";

/// One start.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Launch<'a> {
    at: Timestamp,
    pid: u32,
    program: &'static str,
    engine: &'static str,
    model: Option<&'a str>,
    /// Of all context files together; names the file beside this one.
    context: Option<TextDigest>,
    context_files: &'a [ContextFile],
}

/// Writes down a start. The folder is held by this process.
///
/// # Errors
/// When it cannot be written.
pub fn keep(folder: &Path, engine: &AnyEngine, now: Timestamp) -> io::Result<()> {
    let folder = folder.join(FOLDER);
    prepare(&folder)?;
    let context = engine.context().filter(|context| !context.files().is_empty());
    let digest = context.map(|context| TextDigest::of(context.text()));
    if let (Some(context), Some(digest)) = (context, &digest) {
        write_once(&folder, &format!("{}.md", digest.sha256), context.text().as_bytes())?;
    }
    let pid = std::process::id();
    let launch = Launch {
        at: now,
        pid,
        program: env!("CARGO_PKG_VERSION"),
        engine: super::Engine::name(engine),
        model: engine.model(),
        context: digest,
        context_files: context.map_or(&[], |context| context.files()),
    };
    let name = format!("{}-{pid}.json", now.strftime("%Y%m%dT%H%M%S%3fZ"));
    let mut json = serde_json::to_vec_pretty(&launch)?;
    json.push(b'\n');
    write_once(&folder, &name, &json)?;
    File::open(&folder)?.sync_all()
}

/// Makes a folder ready: it is there, and holds nothing that a crash left half written.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A file that is there already is left as it is.
fn write_once(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = folder.join(name);
    if path.exists() {
        return Ok(());
    }
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{FOLDER, keep};
    use crate::engine::AnyEngine;
    use crate::record::TextDigest;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn each_start_is_written_down_and_each_context_once() {
        let private = Permissions::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
        let soul = home.path().join("soul.md");
        std::fs::write(&soul, "You are calm.").expect("written");
        let start = |time: &str| {
            let config = json!({
                "kind": "openai",
                "context": {"folder": home.path(), "files": ["soul.md"]},
                "openai": {"baseUrl": "http://127.0.0.1:1/v1", "model": "m1"},
            });
            let config = serde_json::from_value(config).expect("a section");
            let engine = AnyEngine::new(&config, home.path()).expect("an engine");
            keep(home.path(), &engine, at(time)).expect("written");
        };
        start("2031-05-06T12:00:00Z");
        start("2031-05-06T13:00:00Z");
        std::fs::write(&soul, "You are brisk.").expect("written");
        start("2031-05-06T14:00:00Z");

        let names: Vec<String> = std::fs::read_dir(home.path().join(FOLDER))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
        assert_eq!((count(".json"), count(".md"), names.len()), (3, 2, 5), "{names:?}");
        let first = names.iter().find(|name| name.starts_with("20310506T120000")).expect("it is");
        let read = |name: &str| std::fs::read_to_string(home.path().join(FOLDER).join(name));
        let launch: Value = serde_json::from_str(&read(first).expect("text")).expect("JSON");
        assert_eq!((&launch["engine"], &launch["model"]), (&json!("openai"), &json!("m1")));
        let file = TextDigest::of("You are calm.");
        assert_eq!(launch["contextFiles"][0]["sha256"], json!(file.sha256));
        let digest = launch["context"]["sha256"].as_str().expect("a digest");
        assert_eq!(read(&format!("{digest}.md")).expect("text"), "You are calm.\n\n");
    }

    #[test]
    fn an_engine_without_a_context_has_a_record_alone() {
        let home = tempfile::tempdir().expect("a folder");
        let rules = AnyEngine::Rules(crate::engine::rules::Rules);
        keep(home.path(), &rules, at("2031-05-06T12:00:00Z")).expect("written");
        let entries = std::fs::read_dir(home.path().join(FOLDER)).expect("a folder");
        assert_eq!(entries.count(), 1);
    }
}
