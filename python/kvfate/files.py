"""Write files: into a temporary file of the same folder, which is synced and renamed. base/replace.h does this in C.

    with files.replacing("x.svg") as f:         f.write(data)                  a file; text=True: one of text
    with files.folder("x") as made:             files.new(made + "/a.npy")     a folder of new files
    files.write("x.svg", data)                                                 the same in one call
    with files.making("x.kvf") as path:         run(path)                      a file that a program writes
    with files.scratch("a.txt", text) as path:  run(path)                      a private file, removed at the end
    files.Lines("x.state")                                                     a file that grows by whole lines

Readers see the older file or the complete new one.  The temporary file is ".NAME.<16 random digits>.part".  A writer locks ".NAME.lock" and
removes temporary files of killed writers; a second writer of the name fails.  A link is followed and kept.  The new file has the permissions of
the older one, and a read-only file is not replaced.  Devices and pipes are written directly.  tests/lint/check_python.py rejects other ways to
write files.  The module needs only the standard library."""
import contextlib
import ctypes
import errno
import fcntl
import io
import os
import re
import shutil
import stat
import tempfile

from .errors import Error

LINKS, TRIES, BASE = 40, 100, 200  # BASE: bytes of a long name that temporary names keep
NEW = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
OTHER = "another process is writing it"
BLOCK, ONES = 1 << 16, (1 << 64) - 1


class WriteError(Error, OSError):
    """A file that cannot be written.  The older file is unchanged."""


@contextlib.contextmanager
def _told(path):
    """Convert an error of the system to one sentence."""
    try:
        yield
    except WriteError:
        raise
    except OSError as e:
        folder = os.path.dirname(os.fspath(path))
        lost = isinstance(e, FileNotFoundError) and folder and not os.path.isdir(folder)
        raise WriteError("%s: cannot write: %s" % (path, "the folder %s does not exist; make it with 'mkdir -p'" % folder if lost else e.strerror or e)) from None


# ---- the place and its lock

def _descriptor(path):
    """Return the open descriptor that a path such as /dev/stdout (/dev/fd/1) names, or None."""
    folder, name = os.path.split(path)
    ours = re.fullmatch(r"\d{1,9}", name) and os.path.realpath(folder or ".") == os.path.realpath("/dev/fd")
    return int(name) if ours else None


def _find(path, kind):
    """Return (the path behind links, None), or (None, a descriptor) for a device or pipe."""
    try:  # follows links as open() does: the kernel rejects links of other users in a shared folder
        there = os.stat(path).st_mode
    except FileNotFoundError:
        there = None
    at = path
    for _ in range(LINKS):
        if not os.path.islink(at):
            break
        fd = _descriptor(at)
        if fd is not None:
            return None, os.dup(fd)
        at = os.path.join(os.path.dirname(at), os.readlink(at))
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if there is None or kind(there):
        return at, None
    if kind is stat.S_ISDIR:
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return None, os.open(path, os.O_WRONLY | os.O_CLOEXEC)


def _beside(place, ending):
    folder, name = os.path.split(place)
    return os.path.join(folder, os.fsdecode(b".%s.%s" % (os.fsencode(name)[:BASE], ending.encode())))


def _is_at(fd, name):
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(name))
    except FileNotFoundError:
        return False


def _take_lock(name, wait):
    """Return (the lock, True if a killed process may have left its file)."""
    for _ in range(TRIES):
        left = False
        try:
            fd = os.open(name, NEW | os.O_EXCL | os.O_NONBLOCK, 0o666)
        except FileExistsError:
            left, fd = True, os.open(name, NEW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as e:
            if e.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):  # the file system has no locks
                os.close(fd)
                raise OSError(e.errno, OTHER if e.errno == errno.EWOULDBLOCK else e.strerror) from None
            left = False
        if _is_at(fd, name):
            return fd, left
        os.close(fd)  # the previous writer has removed it between our open and our lock
    raise OSError(errno.EBUSY, OTHER)


def _remove_left(place):
    """Remove temporary files of killed processes.  The caller has the lock, so no other writer is running."""
    head = os.path.basename(_beside(place, ""))
    for name in os.listdir(os.path.dirname(place) or "."):
        if name.startswith(head) and re.fullmatch(r"[0-9a-f]{16}\.part", name[len(head):]):
            at = os.path.join(os.path.dirname(place), name)
            with contextlib.suppress(OSError):
                shutil.rmtree(at) if os.path.isdir(at) and not os.path.islink(at) else os.unlink(at)


@contextlib.contextmanager
def _claimed(path, kind=stat.S_ISREG, wait=False):
    """Lock the name.  Yield (place, mode of the older file or None), or (None, descriptor) for a device or pipe."""
    lock = None
    with _told(path):
        place, fd = _find(path, kind)
    try:
        with _told(path):
            if place is not None:
                name = _beside(place, "lock")
                lock, left = _take_lock(name, wait)
                mode = stat.S_IMODE(os.lstat(place).st_mode) & 0o777 if os.path.lexists(place) else None
                if mode is not None and not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES))
                if left:
                    _remove_left(place)
        yield (None, fd) if place is None else (place, mode)
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
            os.close(lock)
        if fd is not None:
            os.close(fd)


def sync_folder(path):
    """Wait until the names in the folder of this file are on the disk.  Errors are ignored: some file systems cannot sync folders."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# ---- files

class _Raw(io.FileIO):
    """A file whose failures name the path that the caller gave."""
    told = None

    def write(self, data):
        with _told(self.told):
            return super().write(data)


@contextlib.contextmanager
def _opened(fd, path, text):
    """Open a descriptor as a file of bytes or text.  The buffer is written at the end, unless there was an exception."""
    raw = _Raw(fd, "wb", closefd=False)
    raw.told = path
    f = io.BufferedWriter(raw)
    f = io.TextIOWrapper(f, encoding="utf-8", newline="\n") if text else f
    try:
        yield f
        if not f.closed:
            f.flush()
    finally:
        raw.close()  # later writes fail


def _part(place):
    return _beside(place, os.urandom(8).hex() + ".part")


def _create(place, mode):
    """Return (descriptor, name) of a new file with a random name."""
    name = _part(place)
    fd = os.open(name, NEW | os.O_EXCL, 0o666 if mode is None else mode)
    if mode is not None:
        os.fchmod(fd, mode)
    return fd, name


@contextlib.contextmanager
def replacing(path, text=False, fresh=False):
    """Yield a file of bytes or text that replaces `path` at the end of the with.  After an exception the older file is unchanged.
    fresh: an existing file is an error."""
    path = os.fspath(path)
    with _claimed(path) as (place, mode):
        if place is None:
            with _opened(mode, path, text) as f:
                yield f
            return
        if fresh and mode is not None:
            raise WriteError("%s exists" % path)
        with _told(path):
            fd, part = _create(place, mode)
        try:
            with _opened(fd, path, text) as f:
                yield f
            with _told(path):
                os.fsync(fd)
                os.rename(part, place)
                sync_folder(place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise
        finally:
            os.close(fd)


def write(path, data):
    """Write a file with these bytes or this text."""
    with replacing(path, text=isinstance(data, str)) as f:
        f.write(data)


@contextlib.contextmanager
def new(path, text=False):
    """Yield a new file in a folder of folder().  An existing name is an error."""
    with _told(path):
        fd = os.open(path, NEW | os.O_EXCL, 0o666)
    try:
        with _opened(fd, path, text) as f:
            yield f
    finally:
        os.close(fd)


# ---- folders

def _sync_all(folder):
    for at, _, names in os.walk(folder):
        for name in [*names, "."]:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)


def _exchanged(a, b):
    """Exchange two names in one step.  Return False if the system cannot do it."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(-100, os.fsencode(a), -100, os.fsencode(b), 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def _swap(made, place):
    """Exchange the new folder with the older one, which has the name `made` afterwards."""
    if _exchanged(made, place):
        return
    older = _part(place)
    os.rename(place, older)
    try:
        os.rename(made, place)
    except OSError:
        os.rename(older, place)
        raise
    os.rename(older, made)


@contextlib.contextmanager
def folder(path, check=None, wait=False):
    """Yield a new folder that replaces the folder `path` at the end of the with, or None if the older folder is kept.

    check(place) decides on an existing folder: True replaces it, False keeps it, and an exception is an error.  Without check, only an
    empty folder is replaced.  wait: wait for another writer of the name."""
    path = os.fspath(path).rstrip("/")
    if os.path.basename(path) in ("", ".", ".."):
        path = os.path.realpath(path or "/")
    with _claimed(path, stat.S_ISDIR, wait) as (place, mode):
        if mode is not None and check is None and os.listdir(place):
            raise WriteError("%s exists" % path)
        if mode is not None and check is not None and not check(place):
            yield None
            return
        made = _part(place)
        with _told(path):
            os.mkdir(made)
            if mode is not None:
                os.chmod(made, mode)
        try:
            yield made
            with _told(path):
                _sync_all(made)
                os.rename(made, place) if mode is None else _swap(made, place)
                sync_folder(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)  # the unfinished folder or the older one


# ---- others

@contextlib.contextmanager
def making(path):
    """Yield a path for a program to write.  The file there replaces `path` at the end of the with."""
    path = os.fspath(path)
    with _claimed(path) as (place, mode):
        if place is None:
            raise WriteError("%s: cannot write: it is no file" % path)
        with _told(path):
            part = _part(place)
            os.mkdir(part, 0o700)
        try:
            made = os.path.join(part, os.path.basename(place))
            yield made
            with _told(path):
                if mode is not None and not os.path.islink(made):
                    os.chmod(made, mode)
                _sync_all(part)
                os.rename(made, place)
                sync_folder(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def scratch(name, text):
    """Yield the path of a file with the text for a program to read.  Its private folder is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kvfate-") as place:
        path = os.path.join(place, name)
        with new(path, text=True) as f:
            f.write(text)
        yield path


class Lines:
    """A locked file to which complete, synced lines are added.  lines: its lines without line ends.  An incomplete last line of a killed
    process is removed."""

    def __init__(self, path):
        self.path = path
        with _told(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            try:
                self.lines = self._read()
            except BaseException:
                os.close(self._fd)
                raise

    def _read(self):
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno == errno.EWOULDBLOCK:
                raise OSError(errno.EBUSY, OTHER) from None
        sync_folder(self.path)
        with open(self._fd, "rb", closefd=False) as f:
            whole = f.read()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            os.ftruncate(self._fd, end)
        return whole[:end].split(b"\n")[:-1]

    def clear(self):
        with _told(self.path):
            os.ftruncate(self._fd, 0)
        self.lines = []

    def add(self, line):
        data = memoryview(line + b"\n")
        with _told(self.path):
            while data:
                data = data[os.write(self._fd, data):]
            os.fdatasync(self._fd)

    def close(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# ---- the checksum of base/checksum.h

def _mix(x):
    """Return the output of splitmix64 that follows the state x."""
    x = x + 0x9E3779B97F4A7C15 & ONES
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ONES
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ONES
    return x ^ x >> 31


def checksum(data, h=0):
    """Continue a checksum with these bytes: little-endian words of 8 bytes in blocks of 64 KiB."""
    for at in range(0, len(data), BLOCK):
        block = bytes(data[at:at + BLOCK])
        h = _mix(h ^ len(block))
        for k in range(0, len(block), 8):
            h = _mix(h ^ int.from_bytes(block[k:k + 8], "little"))
    return h


def checksum_text(h):
    return "%016x" % h


def _seal(data):
    """Return the checksum and the number of bytes as text (base/table_seal.h)."""
    return b"%s of %12d bytes" % (checksum_text(checksum(data)).encode(), len(data))


def sealed(text):
    """Return the bytes of a TSV table with a checksum line after the first line."""
    data = text.encode("utf-8")
    at = data.index(b"\n") + 1
    return data[:at] + b"# checksum: " + _seal(data) + b"\n" + data[at:]


def json_is_whole(data):
    """Return True if JSON matches the checksum at its end, or has no checksum."""
    found = re.search(rb',"checksum":"([^"]{38})"}\n\Z', data)
    return not found or found[1] == _seal(data[:found.start()])
