"""The one way in which this package writes files, as base/replace.h is for the program: beside the place, synced, and renamed into it.

    with files.replacing("x.svg") as f:         f.write(data)                  a file; text=True: one of text
    with files.folder("x") as made:             files.new(made + "/a.npy")     a folder of new files
    files.write("x.svg", data)                                                 the same in one call
    with files.making("x.kvf") as path:         run(path)                      a file that a program writes
    with files.scratch("a.txt", text) as path:  run(path)                      a private file, removed at the end
    files.Lines("x.state")                                                     a file that grows by whole lines

Readers see the older file or the whole new one.  Until it is whole, it lies in the same folder as ".NAME.<16 random digits>.part".  Of several
writers of one name exactly one goes on: it holds the lock of ".NAME.lock", and takes away what a killed one left.  A link at the name leads to
the file that is replaced, and stays.  The permissions of the older file stay, and one that may not be written is not replaced.  A device or a
pipe is written as it is.  tests/lint/check_python.py forbids other ways.  The module needs Python's own library only."""
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

LINKS, TRIES, BASE = 40, 100, 200  # BASE: bytes of a long name that the names beside it keep
NEW = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
OTHER = "another process is writing it"
BLOCK, ONES = 1 << 16, (1 << 64) - 1


class WriteError(Error, OSError):
    """A file that cannot be written; what was there is still there."""


@contextlib.contextmanager
def _told(path):
    """Turns a failure of the system into one sentence."""
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
    """The number of an open descriptor that the path is a name of, as /dev/stdout leads to /dev/fd/1; None: it is none."""
    folder, name = os.path.split(path)
    ours = re.fullmatch(r"\d{1,9}", name) and os.path.realpath(folder or ".") == os.path.realpath("/dev/fd")
    return int(name) if ours else None


def _find(path, kind):
    """(the place, None), links followed, or (None, a descriptor) of what is written as it is."""
    try:  # follows links as opening does, so that the kernel refuses those that strangers planted in a shared folder
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
    """(the lock, whether its file was there, as one is that a killed process left)."""
    for _ in range(TRIES):
        left = False
        try:
            fd = os.open(name, NEW | os.O_EXCL | os.O_NONBLOCK, 0o666)
        except FileExistsError:
            left, fd = True, os.open(name, NEW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as e:
            if e.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):  # a file system without locks refuses nobody
                os.close(fd)
                raise OSError(e.errno, OTHER if e.errno == errno.EWOULDBLOCK else e.strerror) from None
            left = False
        if _is_at(fd, name):
            return fd, left
        os.close(fd)  # the writer before has removed it between our open and our lock
    raise OSError(errno.EBUSY, OTHER)


def _remove_left(place):
    """Removes what killed processes had begun at this place; under the lock, so that none of them lives."""
    head = os.path.basename(_beside(place, ""))
    for name in os.listdir(os.path.dirname(place) or "."):
        if name.startswith(head) and re.fullmatch(r"[0-9a-f]{16}\.part", name[len(head):]):
            at = os.path.join(os.path.dirname(place), name)
            with contextlib.suppress(OSError):
                shutil.rmtree(at) if os.path.isdir(at) and not os.path.islink(at) else os.unlink(at)


@contextlib.contextmanager
def _claimed(path, kind=stat.S_ISREG, wait=False):
    """(place, mode of an older one or None) under the lock of the name; (None, descriptor) of what is written as it is."""
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
    """Waits until the names in the folder of this file are on the disk.  Folders that cannot be synced are let be."""
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
    """The file of a descriptor, as bytes or as text; what is buffered is written at the end, unless there was an exception."""
    raw = _Raw(fd, "wb", closefd=False)
    raw.told = path
    f = io.BufferedWriter(raw)
    f = io.TextIOWrapper(f, encoding="utf-8", newline="\n") if text else f
    try:
        yield f
        if not f.closed:
            f.flush()
    finally:
        raw.close()  # then nothing more is written


def _part(place):
    return _beside(place, os.urandom(8).hex() + ".part")


def _create(place, mode):
    """(descriptor, name) of a new file of a name that nobody knows."""
    name = _part(place)
    fd = os.open(name, NEW | os.O_EXCL, 0o666 if mode is None else mode)
    if mode is not None:
        os.fchmod(fd, mode)
    return fd, name


@contextlib.contextmanager
def replacing(path, text=False, fresh=False):
    """A file to write to, of bytes or of text, which takes the place of `path` at the end of the with.  After an exception what was there
    stays.  fresh: a file that is there is not replaced."""
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
    """Writes a file of these bytes, or of this text."""
    with replacing(path, text=isinstance(data, str)) as f:
        f.write(data)


@contextlib.contextmanager
def new(path, text=False):
    """A new file in a folder that `folder` gave; a name that is taken is refused."""
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
    """Whether the two names have changed places in one step, which some systems can do."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(-100, os.fsencode(a), -100, os.fsencode(b), 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def _swap(made, place):
    """The new folder takes the place of the older one, which has the name `made` afterwards."""
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
    """A new folder to fill, which takes the place of the folder `path` at the end of the with; None where there is nothing to do.

    check(place) is asked about a folder that is there: True lets it be replaced, False keeps it, and an exception refuses.  Without it,
    only an empty one is replaced.  wait: for another writer of the name."""
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
            shutil.rmtree(made, ignore_errors=True)  # what was begun, or the older one


# ---- others

@contextlib.contextmanager
def making(path):
    """A path to give to a program: what is there at the end of the with takes the place of the file `path`."""
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
    """The path of a file that holds the text, in a private folder that is removed at the end: what a program is given to read."""
    with tempfile.TemporaryDirectory(prefix="kvfate-") as place:
        path = os.path.join(place, name)
        with new(path, text=True) as f:
            f.write(text)
        yield path


class Lines:
    """A file that grows by whole, synced lines, under a lock.  lines: those that it has, without their ends; what follows the last whole line,
    as a kill leaves it, is dropped."""

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
    """The output of splitmix64 behind the state x."""
    x = x + 0x9E3779B97F4A7C15 & ONES
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ONES
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ONES
    return x ^ x >> 31


def checksum(data, h=0):
    """Continues a checksum with these bytes: of each block of 64 KiB, words of 8 bytes, little endian."""
    for at in range(0, len(data), BLOCK):
        block = bytes(data[at:at + BLOCK])
        h = _mix(h ^ len(block))
        for k in range(0, len(block), 8):
            h = _mix(h ^ int.from_bytes(block[k:k + 8], "little"))
    return h


def checksum_text(h):
    return "%016x" % h


def _seal(data):
    """The checksum and the number of bytes, as base/table_seal.h has them."""
    return b"%s of %12d bytes" % (checksum_text(checksum(data)).encode(), len(data))


def sealed(text):
    """The bytes of a table as TSV, with the line of its checksum behind the first line."""
    data = text.encode("utf-8")
    at = data.index(b"\n") + 1
    return data[:at] + b"# checksum: " + _seal(data) + b"\n" + data[at:]


def json_is_whole(data):
    """Whether bytes of JSON that end with their checksum are those that it was made of; True also where there is none."""
    found = re.search(rb',"checksum":"([^"]{38})"}\n\Z', data)
    return not found or found[1] == _seal(data[:found.start()])
