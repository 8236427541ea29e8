#!/usr/bin/env python3
"""Claims on files being edited, and ids for new records.

    vault_lock.py check PATH...          is someone else editing one of these?
    vault_lock.py lock PATH...           claim them (all or none)
    vault_lock.py unlock PATH...         give the claim back
    vault_lock.py reserve PREFIX TITLE   take the next id and print it

Run from the repository root. The claim is made in the name in VAULT_LOCK_OWNER.
Exit: 0 done, 1 refused (the first line of stderr says why), 2 wrong usage.
docs/RECORDS.md is the reference.
"""

import sys

# Nothing beside this script may stand in for a module of the standard library.
if not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import stat
import time
import unicodedata

LOCKS = ".vault-locks"
GUARD = LOCKS + "/.guard"
REGISTRY = "docs/ID-REGISTRY.txt"
RECORDS = "vault"
PREFIXES = ("BUS", "PRJ", "SS", "DEC", "REF")

DEFAULT_TTL = 3600
MAX_TTL = 7 * 24 * 3600
MAX_ID = 999999
MAX_OWNER = 64
MAX_TITLE = 120
MAX_PATH = 4096
MAX_LOCK_BYTES = 64 * 1024
MAX_REGISTRY_BYTES = 8 * 1024 * 1024
PATIENCE_SECONDS = 15

# Kept in titles: joiners are part of how some scripts and emoji are written.
JOINERS = "\u200c\u200d"


class Refused(Exception):
    """A rule said no, or something needed is not there. Exit code 1."""


class Usage(Exception):
    """The call itself makes no sense. Exit code 2."""


# ---- what comes from outside -------------------------------------------------


def shown(text):
    """Text on one line, safe to print whatever it holds."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def owner():
    """Who is asking. There is no fallback: a claim under a guessed name is worse than none."""
    name = os.environ.get("VAULT_LOCK_OWNER", "").strip()
    if not name:
        raise Refused("VAULT_LOCK_OWNER is not set; a claim needs a name")
    if len(name) > MAX_OWNER or not name.isprintable():
        raise Refused("VAULT_LOCK_OWNER must be at most %d printable characters" % MAX_OWNER)
    return name


def ttl():
    """How long a claim lasts, in seconds."""
    text = os.environ.get("VAULT_LOCK_TTL", "").strip()
    if not text:
        return DEFAULT_TTL
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= MAX_TTL:
        raise Usage("VAULT_LOCK_TTL must be 1 to %d seconds" % MAX_TTL)
    return int(text)


def clean_path(argument):
    """A path below the root, spelled one way, so that one file has one lock."""
    try:
        path = os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("%s: not UTF-8" % shown(argument)) from None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or len(path) > MAX_PATH:
        raise Refused("%s: names no file" % shown(path[:80]))
    if path.startswith("/") or ".." in parts:
        raise Refused("%s: must stay below the root" % shown(path))
    if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in path):
        raise Refused("%s: holds a control character" % shown(path))
    return "/".join(parts)


def clean_title(argument):
    """The title as one physical line, whatever was typed."""
    text = os.fsencode(argument).decode("utf-8", "replace")
    kept = []
    for char in text:
        kind = unicodedata.category(char)
        if kind in ("Cc", "Zl", "Zp", "Zs"):
            kept.append(" ")
        elif kind not in ("Cf", "Cs", "Co", "Cn") or char in JOINERS:
            kept.append(char)
    title = " ".join("".join(kept).split())[:MAX_TITLE].strip()
    if not title:
        raise Refused("the title is empty")
    return title


# ---- files -------------------------------------------------------------------


@contextlib.contextmanager
def patience(what):
    """Bounds a wait: a holder that hangs must not make everyone else hang."""

    def give_up(_signal, _frame):
        raise Refused("%s: still held by another process after %d s" % (what, PATIENCE_SECONDS))

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def locks_directory_exists():
    """Whether there are locks at all; a link or a file in its place is refused."""
    try:
        mode = os.lstat(LOCKS).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise Refused("%s: not a directory" % LOCKS)
    return True


@contextlib.contextmanager
def guarded(writing):
    """Holds the guard: exclusive to change locks, shared to look at them.

    Looking must work without any write access, so it takes the guard only when it is there.
    Lock files appear and vanish whole, so that a look without the guard is still sound.
    """
    if writing and not locks_directory_exists():
        with contextlib.suppress(FileExistsError):
            os.mkdir(LOCKS, 0o755)
        locks_directory_exists()
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR | os.O_CREAT if writing else os.O_RDONLY)
    try:
        fd = os.open(GUARD, flags, 0o644)
    except (FileNotFoundError, PermissionError):
        if writing:
            raise
        yield
        return
    try:
        with patience(GUARD):
            fcntl.lockf(fd, fcntl.LOCK_EX if writing else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


# ---- locks -------------------------------------------------------------------


def lock_file(path):
    """Where the lock of a path lives."""
    return "%s/%s.json" % (LOCKS, hashlib.sha256(path.encode("utf-8")).hexdigest()[:32])


def read_lock(name):
    """A lock as {owner, path, expires}; None when there is none.

    A damaged file counts as a claim by "unknown" (path None) until an ordinary claim made
    when it was written would have run out: a broken lock must neither vanish nor last.
    """
    try:
        written = os.lstat(name).st_mtime
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            lock = json.loads(file.read(MAX_LOCK_BYTES).decode("utf-8"))
        sound = isinstance(lock["owner"], str) and type(lock["expires"]) in (int, float)
        if sound and lock_file(lock["path"]) == name:
            return lock
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    return {"owner": "unknown", "path": None, "expires": written + DEFAULT_TTL}


def all_locks():
    """Every sound lock, in a fixed order."""
    if not locks_directory_exists():
        return []
    names = sorted(n for n in os.listdir(LOCKS) if re.fullmatch(r"[0-9a-f]{32}\.json", n))
    found = (read_lock("%s/%s" % (LOCKS, name)) for name in names)
    return [lock for lock in found if lock and lock["path"] is not None]


def ancestors(path):
    """The path, then each directory above it."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]


def holders(paths, name):
    """A line for each path that a live lock of someone else covers."""
    now = time.time()
    everything = all_locks()
    lines = []
    for path in paths:
        above = ancestors(path)
        covering = [lock for lock in everything if lock["path"] in above]
        covering += [lock for lock in everything if lock["path"].startswith(path + "/")]
        damaged = (read_lock(lock_file(step)) for step in above)
        covering += [lock for lock in damaged if lock and lock["path"] is None]
        for lock in covering:
            if lock["owner"] != name and lock["expires"] > now:
                lines.append(
                    "%s: locked by %s until %s"
                    % (shown(path), shown(lock["owner"]), clock(lock["expires"]))
                )
                break
    return lines


def clock(seconds):
    """A moment as people write it; out of range values stay a number."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def refuse_if_held(paths, name):
    """The common first step of check, lock and unlock."""
    lines = holders(paths, name)
    if lines:
        raise Refused("\n".join(lines))


def check(paths):
    """Says whether the paths are free for this owner. Writes nothing."""
    name = owner()
    if locks_directory_exists():
        with guarded(writing=False):
            refuse_if_held(paths, name)
    print("free: %d" % len(paths))


def lock(paths):
    """Claims every path or none; one's own claim is renewed."""
    name, until = owner(), int(time.time()) + ttl()
    with guarded(writing=True):
        refuse_if_held(paths, name)
        for path in paths:
            body = json.dumps({"owner": name, "path": path, "expires": until}, sort_keys=True)
            write_whole(lock_file(path), body.encode("utf-8") + b"\n")
    print("locked: %d until %s" % (len(paths), clock(until)))


def unlock(paths):
    """Gives claims back; what is not claimed is already so."""
    name = owner()
    with guarded(writing=True):
        refuse_if_held(paths, name)
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock_file(path))
    print("unlocked: %d" % len(paths))


def write_whole(name, data):
    """Replaces a small file in one step, so that nobody ever reads half of it."""
    temporary = name + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
    os.replace(temporary, name)


# ---- reservations ------------------------------------------------------------


def highest(prefix, data):
    """The largest number of a prefix in the registry, torn and glued lines included.

    A title holds no tab, so an id before a tab is an id wherever it stands in the line.
    """
    found = re.findall(rb"^(?:\xef\xbb\xbf)?[ \t]*" + prefix + rb"-([0-9]+)", data, re.MULTILINE)
    found += re.findall(prefix + rb"-([0-9]+)\t", data)
    return max((number(digits) for digits in found), default=0)


def number(digits):
    """Digits as a number; more than fit are only ever "too many"."""
    digits = digits.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= len(str(MAX_ID)) else MAX_ID + 1


def highest_record(prefix):
    """The largest number a record's file name uses: a shortened registry is not believed."""
    pattern = re.compile(rb"%s-([0-9]+)\b.*" % prefix, re.DOTALL)
    best = 0
    for _, _, files in os.walk(RECORDS.encode()):
        matches = (pattern.fullmatch(name) for name in files)
        # A file name is no reservation, so an absurd one is left to the validator.
        best = max([best] + [n for n in (number(m[1]) for m in matches if m) if n <= MAX_ID])
    return best


def highest_mark(prefix):
    """What this clone remembers to have handed out, if it could write that down."""
    try:
        fd = os.open(mark_file(prefix), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(fd, "rb") as file:
            data = file.read(32).strip()
    except OSError:
        return 0
    return min(number(data), MAX_ID) if data.isdigit() else 0


def mark_file(prefix):
    """The reminder of the last number handed out here."""
    return "%s/.last-%s" % (LOCKS, prefix.decode())


def remember(prefix, value):
    """Best effort: the registry is the truth, this only survives its being cut short."""
    with contextlib.suppress(OSError, Refused):
        if locks_directory_exists():
            write_whole(mark_file(prefix), b"%d\n" % value)


@contextlib.contextmanager
def registry():
    """The registry, open and exclusively locked, and certainly the file now at its path."""
    for _ in range(50):
        fd = os.open(REGISTRY, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Refused("%s: not a regular file" % REGISTRY)
            with patience(REGISTRY):
                fcntl.lockf(fd, fcntl.LOCK_EX)
            if still_there(fd):
                yield fd
                return
        finally:
            os.close(fd)
    raise Refused("%s: keeps being replaced" % REGISTRY)


def still_there(fd):
    """Whether the open registry is what its path names; git replaces files it updates."""
    mine, current = os.fstat(fd), os.stat(REGISTRY, follow_symlinks=False)
    return (mine.st_dev, mine.st_ino) == (current.st_dev, current.st_ino)


def append(fd, line, size):
    """Adds one line by one write; a short write is taken back, as nothing was promised yet."""
    if os.write(fd, line) != len(line):
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def take(fd, prefix, name, title):
    """The next id, on disk before anyone hears of it; and whether a torn line was found."""
    with open(fd, "rb", closefd=False) as file:
        data = file.read(MAX_REGISTRY_BYTES + 1)
    if len(data) > MAX_REGISTRY_BYTES:
        raise Refused("%s: larger than %d bytes" % (REGISTRY, MAX_REGISTRY_BYTES))
    last = max(highest(prefix, data), highest_record(prefix), highest_mark(prefix))
    if last >= MAX_ID:
        raise Refused("%s: no number left after %s-%d" % (REGISTRY, prefix.decode(), MAX_ID))
    identifier = "%s-%04d" % (prefix.decode(), last + 1)
    torn = bool(data) and not data.endswith(b"\n")
    size = len(data) + torn
    if torn:
        append(fd, b"\n", len(data))
    append(fd, ("%s\t%s\t%s\n" % (identifier, name, title)).encode("utf-8"), size)
    os.fsync(fd)
    if not still_there(fd):
        raise Refused("%s: replaced during the reservation; try again" % REGISTRY)
    remember(prefix, last + 1)
    return identifier, torn


def reserve(arguments):
    """Takes the next id of a prefix and prints it."""
    prefix, title = arguments
    if prefix not in PREFIXES:
        raise Usage("PREFIX is one of " + ", ".join(PREFIXES))
    name, title = owner(), clean_title(title)
    with registry() as fd:
        identifier, torn = take(fd, prefix.encode(), name, title)
    print(identifier)
    if torn:
        print("%s: the last line was torn; it was set apart" % REGISTRY, file=sys.stderr)


# ---- the command line --------------------------------------------------------


def run(arguments):
    """Finds the step and runs it."""
    steps = {"check": check, "lock": lock, "unlock": unlock}
    if len(arguments) == 3 and arguments[0] == "reserve":
        reserve(arguments[1:])
    elif arguments[:1] and arguments[0] in steps and arguments[1:] not in ([], ["--"]):
        paths = arguments[2:] if arguments[1] == "--" else arguments[1:]
        steps[arguments[0]](list(dict.fromkeys(clean_path(path) for path in paths)))
    else:
        raise Usage("vault_lock.py check|lock|unlock PATH... or reserve PREFIX TITLE")


def main():
    """Turns outcomes into exit codes."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except OSError as error:
        where = shown(os.fsdecode(error.filename)) if error.filename else REGISTRY
        print("%s: %s" % (where, error.strerror or error), file=sys.stderr)
        return 1
    except Usage as usage:
        print("usage: %s" % usage, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
