//! What was said so far, on disk: one file per conversation, one message per line.
//!
//! A conversation is what one transport of one binding hears and says: `context/discord.jsonl`,
//! `context/terminal.jsonl`. A line is appended as the message happens. When the program is killed, the
//! lines that were written stand, a torn last one is left out, and a call without its result gets one
//! that says so: what a model is given is always whole. A file is replaced in one step, never changed
//! in place. Lines of a turn under way may be lost when the power fails; those of earlier turns are not.
//!
//! This is a convenience and no record: the journal tells what happened. It holds text of the
//! conversation, which the journal does not, so that deleting the folder makes Sage forget.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::EngineError;
use crate::engine::launch::{TEMPORARY, prepare};

/// The folder of conversations, in a binding's folder.
pub(super) const FOLDER: &str = "context";

/// The longest file that is read, in bytes. Compaction keeps files far below it.
const MAX_BYTES: u64 = 128 * 1024 * 1024;

const NO_RESULT: &str = r#"{"fault":{"message":"The turn ended before this call was answered. Look before doing it again."}}"#;
const NO_ANSWER: &str = "(This turn ended without an answer.)";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Message {
    /// Earlier messages were left out.
    Gap {},
    /// What a person said, in its envelope.
    User { text: String },
    /// What the model said, and the calls it wanted.
    Assistant {
        #[serde(default)]
        text: String,
        #[serde(default)]
        calls: Vec<StoredCall>,
    },
    /// What became of a call.
    Tool { id: String, text: String },
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    file: File,
    messages: Vec<Message>,
}

impl Memory {
    /// Opens a conversation, which may be new, and brings it in order.
    pub(super) fn open(folder: &Path, conversation: &str) -> Result<Self, EngineError> {
        let folder = folder.join(FOLDER);
        let path = folder.join(format!("{conversation}.jsonl"));
        Self::open_at(&folder, path.clone()).map_err(|source| failed(&path, source))
    }

    fn open_at(folder: &Path, path: PathBuf) -> io::Result<Self> {
        prepare(folder)?;
        let mut file = append(&path)?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it is too long; move it away to begin anew"));
        }
        let (read, damaged) = parse(&bytes);
        if damaged > 0 {
            tracing::warn!("{}: {damaged} lines cannot be read and are left out", path.display());
        }
        let messages = whole(read.clone());
        let mut memory = Self { path, file, messages };
        if damaged > 0 || memory.messages != read {
            memory.write_anew()?;
        }
        Ok(memory)
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds a message. A killed program keeps it from here on.
    pub(super) fn append(&mut self, message: Message) -> Result<(), EngineError> {
        let written = line(&message).and_then(|line| self.file.write_all(&line));
        written.map_err(|source| failed(&self.path, source))?;
        self.messages.push(message);
        Ok(())
    }

    /// Puts other messages in the place of all that were there.
    pub(super) fn replace(&mut self, messages: Vec<Message>) -> Result<(), EngineError> {
        self.messages = messages;
        self.write_anew().map_err(|source| failed(&self.path, source))
    }

    /// Makes what was added durable.
    pub(super) fn settle(&mut self) -> Result<(), EngineError> {
        self.file.sync_data().map_err(|source| failed(&self.path, source))
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
        for message in &self.messages {
            file.write_all(&line(message)?)?;
        }
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        File::open(folder)?.sync_all()?;
        self.file = append(&self.path)?;
        Ok(())
    }
}

fn failed(path: &Path, source: io::Error) -> EngineError {
    EngineError::Memory { path: path.display().to_string(), source }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn line(message: &Message) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// The messages, and how many lines are none. A last line without its end was torn.
fn parse(bytes: &[u8]) -> (Vec<Message>, usize) {
    let mut messages = Vec::new();
    let mut damaged = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(message) if line.ends_with(b"\n") => messages.push(message),
            _ => damaged += 1,
        }
    }
    (messages, damaged)
}

/// The same conversation with every call answered and every turn ended.
fn whole(read: Vec<Message>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut unanswered = false;
    let mut begun = false;
    for message in read {
        match &message {
            Message::Gap {} if messages.is_empty() => {}
            Message::Gap {} => continue,
            Message::User { .. } => {
                end_turn(&mut messages, &mut open, &mut unanswered);
                (unanswered, begun) = (true, true);
            }
            Message::Assistant { calls, .. } if begun => {
                answer_open(&mut messages, &mut open);
                let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
                if ids.len() != calls.len() {
                    continue;
                }
                open = calls.iter().map(|call| call.id.clone()).collect();
                unanswered = !calls.is_empty();
            }
            Message::Tool { id, .. } => match open.iter().position(|other| other == id) {
                Some(at) => drop(open.remove(at)),
                None => continue,
            },
            Message::Assistant { .. } => continue,
        }
        messages.push(message);
    }
    end_turn(&mut messages, &mut open, &mut unanswered);
    messages
}

fn answer_open(messages: &mut Vec<Message>, open: &mut Vec<String>) {
    let results = open.drain(..).map(|id| Message::Tool { id, text: NO_RESULT.to_owned() });
    messages.extend(results);
}

fn end_turn(messages: &mut Vec<Message>, open: &mut Vec<String>, unanswered: &mut bool) {
    answer_open(messages, open);
    if std::mem::take(unanswered) {
        messages.push(Message::Assistant { text: NO_ANSWER.to_owned(), calls: Vec::new() });
    }
}

/// Whether every call has its result right behind it and nothing else has one.
#[cfg(test)]
pub(super) fn is_whole(messages: &[Message]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool { id, .. } => match open.iter().position(|other| other == id) {
                Some(at) => drop(open.remove(at)),
                None => return false,
            },
            _ if !open.is_empty() => return false,
            Message::Assistant { calls, .. } => {
                open = calls.iter().map(|call| call.id.as_str()).collect();
            }
            Message::User { .. } | Message::Gap {} => {}
        }
    }
    open.is_empty()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{FOLDER, Memory, Message, NO_ANSWER, NO_RESULT, StoredCall, is_whole, line, whole};

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn says(text: &str, ids: &[&str]) -> Message {
        let call = |id: &&str| StoredCall {
            id: (*id).to_owned(),
            name: "list_roots".to_owned(),
            arguments: "{}".to_owned(),
        };
        Message::Assistant { text: text.to_owned(), calls: ids.iter().map(call).collect() }
    }

    fn result(id: &str, text: &str) -> Message {
        Message::Tool { id: id.to_owned(), text: text.to_owned() }
    }

    fn turn() -> Vec<Message> {
        vec![
            user("go"),
            says("", &["a", "b"]),
            result("a", "1"),
            result("b", "2\n\u{2028}ü"),
            says("done", &[]),
        ]
    }

    #[test]
    fn what_was_said_is_there_after_a_restart_and_for_nobody_else_to_read() {
        let home = tempfile::tempdir().expect("a folder");
        let mut memory = Memory::open(home.path(), "terminal").expect("it opens");
        for message in turn() {
            memory.append(message).expect("written");
        }
        memory.settle().expect("written");
        let again = Memory::open(home.path(), "terminal").expect("it opens");
        assert_eq!(again.messages(), turn());
        let other = Memory::open(home.path(), "discord").expect("it opens");
        assert_eq!(other.messages(), [], "another conversation is another");
        let mode = |path| std::fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(home.path().join(FOLDER)) & 0o7777, 0o700);
        assert_eq!(mode(home.path().join(FOLDER).join("terminal.jsonl")) & 0o7777, 0o600);
    }

    #[test]
    fn wherever_the_file_was_torn_the_conversation_is_whole() {
        let bytes: Vec<u8> =
            turn().iter().flat_map(|message| line(message).expect("it is plain")).collect();
        for end in 0..=bytes.len() {
            let home = tempfile::tempdir().expect("a folder");
            let path = home.path().join(FOLDER).join("terminal.jsonl");
            std::fs::create_dir(home.path().join(FOLDER)).expect("a folder");
            std::fs::write(&path, &bytes[..end]).expect("written");
            let mut memory = Memory::open(home.path(), "terminal").expect("it opens");
            assert!(is_whole(memory.messages()), "{end}: {:?}", memory.messages());
            if !memory.messages().is_empty() {
                let last = memory.messages().last().expect("there are some");
                assert!(*last == says("done", &[]) || *last == says(NO_ANSWER, &[]), "{end}");
            }
            memory.append(user("next")).expect("written");
            let before = memory.messages().len();
            let again = Memory::open(home.path(), "terminal").expect("it opens");
            assert_eq!(again.messages().len(), before + 1, "{end}: the new turn is ended");
        }
    }

    #[test]
    fn a_call_that_was_cut_short_says_so_in_its_place() {
        let read = vec![user("go"), says("", &["a", "b"]), result("b", "2"), user("next")];
        assert_eq!(
            whole(read),
            [
                user("go"),
                says("", &["a", "b"]),
                result("b", "2"),
                result("a", NO_RESULT),
                says(NO_ANSWER, &[]),
                user("next"),
                says(NO_ANSWER, &[]),
            ]
        );
        assert!(serde_json::from_str::<serde_json::Value>(NO_RESULT).is_ok());
    }

    #[test]
    fn a_replacement_is_there_whole_and_leftovers_of_a_crash_are_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let mut memory = Memory::open(home.path(), "terminal").expect("it opens");
        memory.append(user("old")).expect("written");
        let leftover = home.path().join(FOLDER).join(".writing-x");
        std::fs::write(&leftover, "half").expect("written");
        let new: Vec<_> = [vec![Message::Gap {}], turn()].concat();
        memory.replace(new.clone()).expect("written");
        memory.append(user("more")).expect("written");
        drop(memory);
        let again = Memory::open(home.path(), "terminal").expect("it opens");
        assert_eq!(again.messages()[..6], new);
        assert_eq!(again.messages()[6], user("more"));
        assert!(!leftover.exists());
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_file_the_conversation_is_whole(
            shape in proptest::collection::vec((0..4u8, any::<u8>()), 0..24),
        ) {
            let ids = ["a", "b", "c"];
            let read: Vec<Message> = shape.iter().map(|(kind, bits)| match kind {
                0 => user("x"),
                1 => {
                    let wanted = ids.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                    says("y", &wanted.map(|(_, id)| *id).collect::<Vec<_>>())
                }
                2 => result(ids[usize::from(bits % 3)], "z"),
                _ => Message::Gap {},
            }).collect();
            let messages = whole(read);
            prop_assert!(is_whole(&messages), "{messages:?}");
            prop_assert_eq!(whole(messages.clone()), messages, "it is in order already");
        }
    }
}
