#!/usr/bin/env python3
"""Checks every record under vault/ against docs/ID-REGISTRY.txt. Writes nothing.

Run from the repository root, without arguments. Prints `path:line: message` for each problem
and exits 1, or prints `ok: N records` and exits 0. docs/RECORDS.md is the reference.
"""

import sys

# Nothing beside this script may stand in for a module of the standard library.
if not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]

import errno
import os
import re
import stat

REGISTRY = "docs/ID-REGISTRY.txt"
RECORDS = "vault"
PREFIXES = ("BUS", "PRJ", "SS", "DEC", "REF")
REQUIRED = ("id", "title", "status")
STATUSES = ("draft", "proposed", "accepted", "active", "done", "superseded", "withdrawn")

MAX_REGISTRY_BYTES = 8 * 1024 * 1024
MAX_RECORD_BYTES = 1024 * 1024
MAX_RECORDS = 20000
MAX_DEPTH = 16
MAX_HEADER_LINES = 64
MAX_SHOWN = 100

ID = re.compile(r"(%s)-([0-9]{4,6})" % "|".join(PREFIXES))
FIELD = re.compile(r"([a-z][a-z0-9_-]*):(?:[ \t]+(.*))?")


class Unreadable(Exception):
    """A file that cannot be checked: why, and at which line."""

    def __init__(self, message, line=1):
        super().__init__(message)
        self.line = line


class Problems:
    """What is wrong, in the order in which it was found; order is fixed by the walk."""

    def __init__(self):
        self.lines = []

    def add(self, path, line, message):
        """Notes one problem; path and message may hold anything."""
        self.lines.append("%s:%d: %s" % (shown(path), line, shown(message)))

    def print(self):
        """Prints them, but never a flood."""
        for line in self.lines[:MAX_SHOWN]:
            print(line)
        if len(self.lines) > MAX_SHOWN:
            print("and %d more" % (len(self.lines) - MAX_SHOWN))


def shown(text):
    """Text on one line, safe to print whatever it holds."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def read_text_lines(path, limit):
    """The lines of a regular file, as text."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise Unreadable("is a symbolic link" if link else error.strerror) from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable("is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Unreadable("is larger than %d bytes" % limit)
    try:
        return data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable("is not UTF-8", line) from None


# ---- the registry ------------------------------------------------------------


def check_registry(problems):
    """The registered ids. Every line is checked even when one before it is broken."""
    try:
        lines = read_text_lines(REGISTRY, MAX_REGISTRY_BYTES)
    except Unreadable as error:
        problems.add(REGISTRY, error.line, str(error))
        return None
    if lines.pop():
        problems.add(REGISTRY, len(lines) + 1, "the last line is torn: it has no newline")
    seen, last = {}, {}
    for at, line in enumerate(lines, 1):
        if line.strip():
            check_reservation(line, at, seen, last, problems)
    return seen


def check_reservation(line, at, seen, last, problems):
    """One line of the registry: ID, owner and title, with tabs between."""
    fields = line.split("\t")
    match = ID.fullmatch(fields[0])
    if not match:
        problems.add(REGISTRY, at, "does not begin with an id and a tab: %s" % line[:60])
        return
    identifier, prefix, number = fields[0], match[1], int(match[2])
    if len(fields) != 3 or not all(field.strip() for field in fields):
        problems.add(REGISTRY, at, "%s: expected ID, owner and title, tab between" % identifier)
    elif not all(field.isprintable() for field in fields):
        problems.add(REGISTRY, at, "%s: holds a control character" % identifier)
    if len(match[2]) > 4 and match[2].startswith("0"):
        problems.add(REGISTRY, at, "%s: has needless zeros" % identifier)
    if identifier in seen:
        problems.add(REGISTRY, at, "%s: already on line %d" % (identifier, seen[identifier]))
        return
    if number <= last.get(prefix, 0):
        problems.add(REGISTRY, at, "%s: out of order, must be above the earlier ones" % identifier)
    seen[identifier] = at
    last[prefix] = max(number, last.get(prefix, 0))


# ---- the records -------------------------------------------------------------


def find_records(problems):
    """The paths of all records, sorted. Links are reported, never followed."""
    found, waiting = [], [(RECORDS, 1)]
    while waiting:
        directory, depth = waiting.pop()
        try:
            if stat.S_ISLNK(os.lstat(directory).st_mode):
                problems.add(directory, 1, "is a symbolic link")
                continue
            names = sorted(os.listdir(directory))
        except OSError as error:
            # Git keeps no empty directory: no vault/ is a vault without records.
            if directory != RECORDS or error.errno != errno.ENOENT:
                problems.add(directory, 1, error.strerror)
            continue
        for name in names:
            path = "%s/%s" % (directory, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                problems.add(path, 1, "is a symbolic link")
            elif stat.S_ISDIR(mode) and depth >= MAX_DEPTH:
                problems.add(path, 1, "is nested more than %d directories deep" % MAX_DEPTH)
            elif stat.S_ISDIR(mode):
                waiting.append((path, depth + 1))
            elif name.endswith(".md"):
                found.append(path)
    return sorted(found)


def read_header(lines, path, problems):
    """The front matter as {name: (line, value)}, or None when there is none."""
    lines = [line.rstrip("\r") for line in lines[: MAX_HEADER_LINES + 1]]
    if lines[0].rstrip() != "---":
        problems.add(path, 1, "does not begin with front matter (a line ---)")
        return None
    fields = {}
    for at, line in enumerate(lines[1:], 2):
        if line.rstrip() == "---":
            return fields
        match = FIELD.fullmatch(line)
        if not match:
            problems.add(path, at, "expected `name: value` in the front matter")
        elif match[1] in fields:
            problems.add(path, at, "%s: given twice" % match[1])
        else:
            fields[match[1]] = (at, unquoted((match[2] or "").strip()))
    problems.add(path, 1, "the front matter does not end (no second line ---)")
    return None


def unquoted(value):
    """The value without the quotes that YAML allows around it."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].strip()
    return value


def check_record(path, registered, used, problems):
    """One record, by itself and against the registry."""
    try:
        lines = read_text_lines(path, MAX_RECORD_BYTES)
    except Unreadable as error:
        problems.add(path, error.line, str(error))
        return
    fields = read_header(lines, path, problems)
    if fields is None:
        return
    for name in REQUIRED:
        at, value = fields.get(name, (1, ""))
        if not value:
            problems.add(path, at, "%s: missing" % name)
        elif not value.isprintable():
            problems.add(path, at, "%s: holds a control character" % name)
    at, status = fields.get("status", (1, ""))
    if status and status not in STATUSES:
        problems.add(path, at, "status: %s is none of %s" % (status[:40], ", ".join(STATUSES)))
    at, identifier = fields.get("id", (1, ""))
    if identifier:
        check_id(path, at, identifier, registered, used, problems)


def check_id(path, at, identifier, registered, used, problems):
    """The id of a record: a real one, reserved, this file's, and nobody else's."""
    if not ID.fullmatch(identifier):
        problems.add(path, at, "id: %s is not like DEC-0001" % identifier[:40])
        return
    name = path.rsplit("/", 1)[1]
    if not re.match(re.escape(identifier) + r"[-_. ]", name):
        problems.add(path, at, "id: the file name does not begin with %s" % identifier)
    if registered is not None and identifier not in registered:
        problems.add(path, at, "id: %s is not in %s; reserve it first" % (identifier, REGISTRY))
    if identifier in used:
        problems.add(path, at, "id: %s is already used by %s" % (identifier, used[identifier]))
    used.setdefault(identifier, path)


def main():
    """Checks everything, then says it."""
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if len(sys.argv) > 1:
        print("usage: validate_vault.py takes no arguments", file=sys.stderr)
        return 2
    problems, used = Problems(), {}
    registered = check_registry(problems)
    records = find_records(problems)
    if len(records) > MAX_RECORDS:
        problems.add(RECORDS, 1, "more than %d records" % MAX_RECORDS)
        records = []
    for path in records:
        check_record(path, registered, used, problems)
    problems.print()
    if problems.lines:
        return 1
    print("ok: %d records" % len(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
