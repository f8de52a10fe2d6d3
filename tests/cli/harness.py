"""Shared by the command-line tests: running kvfate, checking its answer, hostile model files."""
import argparse
import hashlib
import os
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check  # noqa: E402

os.environ.setdefault("KVFATE_PYTHON", sys.executable)  # for commands that run Python: the Python with NumPy
GOLDEN_TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools")


class Suite:
    """Counts cases. Every failure is printed with the command and its output."""

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("kvfate")
        parser.add_argument("models", help="folder of the tiny models")
        parser.add_argument("write_kvf", nargs="?", default="", help="the program that makes traces")
        args = parser.parse_args()
        self.write_kvf = os.path.abspath(args.write_kvf)
        self.exe, self.models = os.path.abspath(args.kvfate), os.path.abspath(args.models)
        self.work = tempfile.TemporaryDirectory(prefix="kvfate-cli-")
        self.spoiled = set()  # digests of rejected files and folders
        self.most = self.longest = 0  # maximum memory in bytes and time in seconds of bounded commands
        sys.path.insert(0, GOLDEN_TOOLS)

    def words_of(self, name):
        """Returns the words that call a command or an analysis, for its name in the lists."""
        return check.words_of(name, self.exe)

    def path(self, name):
        return os.path.join(self.work.name, name)

    def model(self, i=0):
        return os.path.join(self.models, f"tiny{i}.gguf")

    def file(self, name, data):
        Path(self.path(name)).write_bytes(data)
        return self.path(name)

    def count(self, path):
        """Counts a bad file, or a folder with its files, once, however often it is used."""
        digest = hashlib.sha256()
        for folder, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
            for name in sorted(names):
                if os.path.isfile(os.path.join(folder, name)):
                    digest.update(name.encode() + b"\0" + Path(os.path.join(folder, name)).read_bytes())
        self.spoiled.add(digest.digest())

    def run(self, argv, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("timeout", 120)
        if "input" in more:
            del more["stdin"]
        return subprocess.run([self.exe, *argv], stderr=subprocess.PIPE, **more)

    def check(self, name, ok, *details):
        check.check(name, ok, *(f"\n    {x}" for x in details))

    def refused(self, name, argv, code, *words, **more):
        """Checks for exit status `code`, one line on stderr that contains all the words, and an
        empty stdout."""
        r = self.run(argv, **more)
        err = r.stderr.decode("utf-8", "replace")
        ok = r.returncode == code and err.endswith("\n") and err.count("\n") == 1 and 20 < len(err) < 700
        ok = ok and err.startswith("kvfate") and all(w.lower() in err.lower() for w in words) and not r.stdout
        self.check(name, ok, " ".join(map(repr, argv))[:300], f"exit {r.returncode}, expected {code}", err[:600],
                   f"must say {words}", f"stdout {r.stdout[:200]!r}" if r.stdout else "")
        return r

    def accepted(self, name, argv, **more):
        r = self.run(argv, **more)
        self.check(name, r.returncode == 0, " ".join(map(repr, argv))[:300], f"exit {r.returncode}", r.stderr.decode("utf-8", "replace")[:600])
        return r

    def survives(self, name, argv, codes=(0, 1, 2, 3), **more):
        """Checks for no crash and, if the command fails, one line with the reason."""
        r = self.run(argv, **more)
        err = r.stderr.decode("utf-8", "replace")
        ok = r.returncode in codes and (r.returncode == 0 or (err.count("\n") >= 1 and err.startswith("kvfate")))
        self.check(name, ok, " ".join(map(repr, argv))[:300], f"exit {r.returncode}", err[:600])
        return r

    def bounded(self, name, argv, codes=(1,), seconds=10, words=(), memory=400 << 20):
        """Checks that the command ends by itself with a message, within `seconds` of CPU time and
        within `memory`. Returns its exit status. Under the sanitizers of tests/sanitize.sh both
        limits are twenty times as large."""
        if "ASAN_OPTIONS" in os.environ:
            seconds, memory = 20 * seconds, 20 * memory
        p = subprocess.Popen([self.exe, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        resource.prlimit(p.pid, resource.RLIMIT_CPU, (seconds, seconds))
        err = p.stderr.read().decode("utf-8", "replace")
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.most = max(self.most, used.ru_maxrss << 10)
        self.longest = max(self.longest, used.ru_utime + used.ru_stime)
        ok = p.returncode in codes and (p.returncode in (0, 3) or err.startswith("kvfate")) and used.ru_maxrss << 10 < memory
        self.check(name, ok and all(w in err for w in words), argv, p.returncode, err[:600], f"{used.ru_maxrss >> 10} MiB, {used.ru_utime + used.ru_stime:.1f} s")
        return p.returncode

    def finish(self):
        if self.spoiled:
            print(len(self.spoiled), "bad files or folders, none like another")
        self.work.cleanup()
        check.finish()


class Gguf:
    """A tiny model as lists that a test may change before it is written."""

    def __init__(self, **options):
        import gen_tiny
        self.gen = gen_tiny
        args = dict(layers=2, heads=4, kv_heads=2, head_dim=16, dim=64, ffn=96, vocab=300, seed=1, type="f32",
                    rope_base=10000.0, untied=False, arch="llama", eps=1e-5)
        args.update(options)
        a = argparse.Namespace(**args)
        self.metadata = [list(m) for m in gen_tiny.metadata(a)]
        self.tensors = []
        for name, x in gen_tiny.model(a):
            kind = gen_tiny.tensor_type(name, x, a.type)
            self.tensors.append([name, list(x.shape), gen_tiny.TYPES[kind][0], gen_tiny.ENCODE[kind](x)])

    def drop(self, key):
        self.metadata = [m for m in self.metadata if m[0] != key]
        return self

    def set(self, key, value, kind=None):
        for m in self.metadata:
            if m[0] == key:
                m[2] = value
                m[1] = m[1] if kind is None else kind
                return self
        self.metadata.append([key, kind, value])
        return self

    def get(self, key):
        return next(m[2] for m in self.metadata if m[0] == key)

    def tensor(self, name):
        return next(t for t in self.tensors if t[0] == name)

    def without(self, name):
        self.tensors = [t for t in self.tensors if t[0] != name]
        return self

    def write(self, path):
        self.gen.write(path, self.metadata, self.tensors)
        return path

    def head_bytes(self):
        """Returns the start of the tensor entries, and the bytes of the file."""
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            self.write(f.name)
            data = open(f.name, "rb").read()
        n = 24
        for m in self.metadata:
            n += len(self.gen.entry(*m))
        return n, bytearray(data)


def patched(data, at, fmt, value):
    out = bytearray(data)
    struct.pack_into(fmt, out, at, value)
    return bytes(out)
