//! git's machine formats, parsed. Every parser takes `-z` output: a path is whatever stands between
//! two NULs, so no name can forge an entry.

use protocol::reply::{Change, ChangeKind, FileStat, PathText};

use crate::tools::Failure;

/// One path of a raw diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    /// What happened.
    pub kind: ChangeKind,
    /// The mode before; `000000` for nothing.
    pub old_mode: String,
    /// The mode after; `000000` for nothing.
    pub new_mode: String,
    /// The blob before; all zeros for nothing.
    pub old_hash: String,
    /// The blob after; all zeros for nothing, or where git has not hashed the work tree.
    pub new_hash: String,
    /// The path.
    pub path: Vec<u8>,
    /// The path before, when it was renamed or copied.
    pub from: Option<Vec<u8>>,
}

fn odd(what: &str) -> Failure {
    Failure::fault(format!("git said something that is not understood: {what}"))
}

fn change_kind(letter: u8) -> Option<ChangeKind> {
    Some(match letter {
        b'A' => ChangeKind::Added,
        b'M' => ChangeKind::Modified,
        b'D' => ChangeKind::Deleted,
        b'R' => ChangeKind::Renamed,
        b'C' => ChangeKind::Copied,
        b'T' => ChangeKind::TypeChanged,
        _ => return None,
    })
}

/// A diff as git prints it with `--raw --numstat -z`, and `--patch` or not.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// What happened to each path.
    pub raw: Vec<RawEntry>,
    /// How much of each path changed, in the same order.
    pub stats: Vec<FileStat>,
    /// The text, if it was asked for.
    pub patch: &'a [u8],
}

/// Parses `git diff --raw --numstat -z`, and what `--patch` adds: raw entries first, then one count per
/// entry in that order, then the text behind a NUL of its own.
///
/// # Errors
/// A fault when git said something else.
pub fn diff(output: &[u8]) -> Result<Parsed<'_>, Failure> {
    let mut fields = Fields(output);
    let (mut raw, mut stats) = (Vec::new(), Vec::new());
    for entry in raw_entries(&mut fields)? {
        let (added, removed) = counts(fields.next())?;
        if entry.as_ref().is_some_and(|entry| entry.from.is_some()) {
            // `added TAB removed TAB`, then both paths in fields of their own.
            fields.next();
            fields.next();
        }
        // An unmerged path has an entry and a count of its own; status reports it.
        let Some(entry) = entry else { continue };
        stats.push(stat(&entry, added, removed));
        raw.push(entry);
    }
    Ok(Parsed { raw, stats, patch: fields.0.strip_prefix(b"\0").unwrap_or(fields.0) })
}

/// Parses `git diff --raw -z`.
///
/// # Errors
/// A fault when git said something else.
pub fn raw(output: &[u8]) -> Result<Vec<RawEntry>, Failure> {
    Ok(raw_entries(&mut Fields(output))?.into_iter().flatten().collect())
}

/// What is left of NUL-terminated fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let field = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        field
    }
}

/// The raw entries at the front; `None` stands for an unmerged path.
fn raw_entries(fields: &mut Fields<'_>) -> Result<Vec<Option<RawEntry>>, Failure> {
    let mut raw = Vec::new();
    while fields.0.first() == Some(&b':') {
        raw.push(raw_entry(fields)?);
    }
    Ok(raw)
}

fn raw_entry(fields: &mut Fields<'_>) -> Result<Option<RawEntry>, Failure> {
    let text = std::str::from_utf8(fields.next()).map_err(|_| odd("a raw line"))?;
    let words: Vec<&str> = text.trim_start_matches(':').split(' ').collect();
    let [old_mode, new_mode, old_hash, new_hash, letter] = words[..] else {
        return Err(odd("a raw line"));
    };
    let octal = |mode: &str| mode.len() == 6 && mode.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let hex = |hash: &str| !hash.is_empty() && hash.bytes().all(|b| b.is_ascii_hexdigit());
    if ![old_mode, new_mode].into_iter().all(octal) || ![old_hash, new_hash].into_iter().all(hex) {
        return Err(odd("a raw line"));
    }
    let first = fields.next().to_vec();
    if letter.starts_with('U') {
        return Ok(None);
    }
    let letter = letter.bytes().next().unwrap_or_default();
    let kind = change_kind(letter).ok_or_else(|| odd("a status letter"))?;
    let two = matches!(kind, ChangeKind::Renamed | ChangeKind::Copied);
    let (path, from) = if two { (fields.next().to_vec(), Some(first)) } else { (first, None) };
    Ok(Some(RawEntry {
        kind,
        old_mode: old_mode.to_owned(),
        new_mode: new_mode.to_owned(),
        old_hash: old_hash.to_owned(),
        new_hash: new_hash.to_owned(),
        path,
        from,
    }))
}

fn counts(field: &[u8]) -> Result<(Option<u64>, Option<u64>), Failure> {
    let mut parts = field.splitn(3, |byte| *byte == b'\t');
    let mut count = || -> Result<Option<u64>, Failure> {
        let text = parts.next().and_then(|part| std::str::from_utf8(part).ok()).unwrap_or_default();
        match text {
            "-" => Ok(None),
            number => number.parse().map(Some).map_err(|_| odd("a line count")),
        }
    };
    Ok((count()?, count()?))
}

fn stat(entry: &RawEntry, added: Option<u64>, removed: Option<u64>) -> FileStat {
    let zero = "000000";
    let both = entry.old_mode != zero && entry.new_mode != zero;
    let mode = (both && entry.old_mode != entry.new_mode)
        .then(|| format!("{} → {}", entry.old_mode, entry.new_mode));
    FileStat {
        kind: entry.kind,
        path: PathText::from_bytes(&entry.path),
        from: entry.from.as_deref().map(PathText::from_bytes),
        added,
        removed,
        mode,
    }
}

/// What `git status --porcelain=v2 -z` lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StatusLists {
    /// Changes in the index against HEAD.
    pub staged: Vec<Change>,
    /// Changes in the work tree against the index.
    pub unstaged: Vec<Change>,
    /// Paths that git does not know.
    pub untracked: Vec<PathText>,
    /// Paths in conflict.
    pub conflicted: Vec<PathText>,
}

/// Parses `git status --porcelain=v2 -z`.
///
/// # Errors
/// A fault when git said something else.
pub fn status(output: &[u8]) -> Result<StatusLists, Failure> {
    let mut lists = StatusLists::default();
    let mut fields = output.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    while let Some(field) = fields.next() {
        match field[0] {
            b'1' => ordinary(field, 8, None, &mut lists)?,
            b'2' => {
                let from = fields.next().ok_or_else(|| odd("a rename"))?;
                ordinary(field, 9, Some(from), &mut lists)?;
            }
            b'u' => lists.conflicted.push(PathText::from_bytes(path_after(field, 10)?)),
            b'?' => lists.untracked.push(PathText::from_bytes(path_after(field, 1)?)),
            b'#' | b'!' => {}
            _ => return Err(odd("a status line")),
        }
    }
    Ok(lists)
}

fn ordinary(
    field: &[u8],
    skip: usize,
    from: Option<&[u8]>,
    lists: &mut StatusLists,
) -> Result<(), Failure> {
    let path = PathText::from_bytes(path_after(field, skip)?);
    let letters = field.get(2..4).ok_or_else(|| odd("a status line"))?;
    for (letter, list) in [(letters[0], &mut lists.staged), (letters[1], &mut lists.unstaged)] {
        if letter == b'.' {
            continue;
        }
        let kind = change_kind(letter).ok_or_else(|| odd("a status letter"))?;
        let renamed = matches!(kind, ChangeKind::Renamed | ChangeKind::Copied);
        let from = from.filter(|_| renamed).map(PathText::from_bytes);
        list.push(Change { kind, path: path.clone(), from });
    }
    Ok(())
}

/// The path of a status line: what follows the given number of space-separated words.
fn path_after(field: &[u8], words: usize) -> Result<&[u8], Failure> {
    let mut parts = field.splitn(words + 1, |byte| *byte == b' ');
    parts.nth(words).ok_or_else(|| odd("a status line"))
}

/// Where one file's part of a patch ends, and what the patch says its content is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The byte after the last one of its part.
    pub end: usize,
    /// The blob after, from the `index` line, when there is one.
    pub new_hash: Option<String>,
    /// Whether what is shown of it is not what it is: something was masked, or is not UTF-8.
    pub hidden: bool,
}

/// Splits a patch made with `--full-index` into its files, in order.
#[must_use]
pub fn sections(patch: &[u8]) -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    let mut at = 0;
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        // A line of a hunk starts with a space, `+`, `-`, `\` or `@`; so this is a header.
        if line.starts_with(b"diff --git ") {
            if let Some(last) = found.last_mut() {
                last.end = at;
            }
            found.push(Section { end: patch.len(), new_hash: None, hidden: false });
        } else if let (Some(rest), Some(last)) = (line.strip_prefix(b"index "), found.last_mut()) {
            last.new_hash = last.new_hash.take().or_else(|| new_hash(rest));
        }
        at += line.len();
    }
    found
}

fn new_hash(rest: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(rest).ok()?;
    let (_, after) = text.split_once("..")?;
    after.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use protocol::reply::{ChangeKind, PathText};

    use super::{Parsed, diff, sections, status};

    #[test]
    fn a_status_of_odd_names_is_read_entry_by_entry() {
        let output = b"1 .M N... 100644 100644 100644 aaa bbb nl\nname.txt\0\
            2 R. N... 100644 100644 100644 aaa bbb R100 a -> b.txt\0old name\0\
            u UU N... 100644 100644 100644 100644 a b c both sides\0? \xff\xfe.bin\0?  lead\0";
        let lists = status(output).expect("it parses");
        assert_eq!(lists.unstaged[0].path, PathText::Utf8("nl\nname.txt".to_owned()));
        assert_eq!(lists.staged[0].kind, ChangeKind::Renamed);
        assert_eq!(lists.staged[0].from, Some(PathText::Utf8("old name".to_owned())));
        assert_eq!(lists.conflicted, [PathText::Utf8("both sides".to_owned())]);
        assert_eq!(lists.untracked[1], PathText::Utf8(" lead".to_owned()));
        assert!(matches!(lists.untracked[0], PathText::Escaped { .. }));
    }

    #[test]
    fn raw_entries_and_counts_go_together() {
        let output = b":100644 100755 aaa bbb M\0x\0:100644 100644 ccc ccc R100\0from\0to\0\
            :100644 000000 ddd 000 D\0gone\0:000000 100644 000 eee A\0bin\0\
            3\t1\tx\x000\t0\t\x00from\x00to\x000\t2\tgone\x00-\t-\tbin\0";
        let Parsed { raw, stats, patch } = diff(output).expect("it parses");
        assert_eq!((raw.len(), patch), (4, &b""[..]));
        assert_eq!(stats[0].mode.as_deref(), Some("100644 → 100755"));
        assert_eq!((stats[0].added, stats[0].removed), (Some(3), Some(1)));
        assert_eq!(stats[1].from, Some(PathText::Utf8("from".to_owned())));
        assert_eq!(stats[2].removed, Some(2));
        assert_eq!(stats[3].added, None);
        assert_eq!(diff(b"").expect("nothing").raw, vec![]);
    }

    #[test]
    fn an_unmerged_path_shifts_no_count_and_the_patch_stands_behind_a_nul() {
        let output = b":000000 100644 000 000 U\0f\0:100644 100644 aaa 000 M\0f\0:100644 100644 bbb 000 M\0g\0\
            0\t0\tf\x004\t0\tf\x001\t2\tg\0\0* Unmerged path f\ndiff --git a/f b/f\n";
        let Parsed { raw, stats, patch } = diff(output).expect("it parses");
        let added: Vec<_> = stats.iter().map(|stat| (stat.path.as_str(), stat.added)).collect();
        assert_eq!(added, [("f", Some(4)), ("g", Some(1))]);
        assert_eq!(raw.len(), 2);
        assert!(patch.starts_with(b"* Unmerged path f\n"));
    }

    #[test]
    fn a_patch_is_split_at_its_files_and_not_inside_them() {
        let patch = b"diff --git a/x b/x\nindex 11..22 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+diff --git a/y b/y\n\
            diff --git a/z b/z\nold mode 100644\nnew mode 100755\n";
        let found = sections(patch);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].new_hash.as_deref(), Some("22"));
        assert_eq!(found[1].new_hash, None);
        assert_eq!(found[1].end, patch.len());
        assert!(patch[found[0].end..].starts_with(b"diff --git a/z"));
    }
}
