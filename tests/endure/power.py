"""Losses of power while files are written; recording.py defines the model.

A case is one recording: a command runs once under record.c. After each of its operations, several
disk states are built that a loss of power may leave there. In each of them:
  * a name with an earlier file has this file or a newer complete one, and a name without a file has
    no file or a complete one;
  * data that the program reported as safe are present: a newer file after an fsync of its folder,
    the steps of a trace after a commit or a tail;
  * all readable data of an unfinished trace are correct, and no reader crashes.
As a control, fsync is disabled before the first case, and the resulting loss must be detected."""
import collections
import os
import random
import shutil
import subprocess
import tempfile

from commands import Writer, writers
from kills import PROMPT, commits_of
from proof import PATIENCE, read, write
from recording import Disk, parse

STYLES = [("none", "all"), ("all", "none"), ("any", "any"), ("any", "prefix"), ("prefix", "any"), ("all", "late"), ("all", "any")]
MOST_CUTS = 1200  # maximum number of states, evenly spaced, for longer recordings; only the run with tails is that long


class Judge:
    """judge.c as a process; it is restarted if a file crashed it."""

    def __init__(self, bed, whole):
        self.argv, self.process = [bed.helper("judge"), whole], None

    def ask(self, path):
        """Returns the answer of judge.c; None if the reader crashed."""
        if self.process is None:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return list(map(int, line.split()))
        self.end()
        return None

    def end(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Recording:
    """A command under record.c. before: {name: bytes} of existing files that it may change."""

    def __init__(self, bed, writer, before, others):
        self.bed, self.w, self.before = bed, writer, before
        self.folder = tempfile.mkdtemp(dir=bed.folder.name)
        for name in others:
            os.link(bed.path(name), os.path.join(self.folder, name))
        for name, data in before.items():
            write(os.path.join(self.folder, name), data)
        log = bed.path("log")
        env = dict(os.environ, KVFATE_RECORD=log, LD_PRELOAD=bed.helper("record.so"))
        numbers = {os.stat(os.path.join(self.folder, name)).st_ino: name for name in before}
        self.code = subprocess.run([bed.exe, *writer.argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, env=env,
                                   timeout=PATIENCE).returncode
        self.operations = parse(read(log))
        self.after = {name: read(os.path.join(self.folder, name)) for name in os.listdir(self.folder) if name not in others}
        self.numbers = numbers

    def disk(self, lies=False):
        return Disk(self.folder, self.before, lies)

    def missed(self):
        """Returns True if the operations do not lead to the contents of the folder: then record.c
        missed some."""
        disk = self.disk()
        for op in self.operations:
            disk.apply(op)
        return {name: file.now() for name, file in disk.now.items()} != self.after

    def remove(self):
        shutil.rmtree(self.folder)


class Promises:
    """The guarantees after the operations so far."""

    def __init__(self, recording):
        self.r, w = recording, recording.w
        self.stood = {o: [recording.before.get(o)] for o in w.outs}  # all files that had the name, oldest first
        self.least = {o: 0 for o in w.outs}                          # the oldest that is allowed
        self.steps = 0                                               # safe steps of the trace
        self.lines = {o: b"" for o in w.goes_on}                     # of a growing list
        self.trace = next((o for o in w.outs if o.endswith(".kvf")), None)

    def note(self, disk, op):
        name = disk.local(op.to) if op.kind == "r" else None
        if name in self.stood:
            self.stood[name].append(disk.now[name].now())
        if op.kind == "d":
            for o, stood in self.stood.items():
                self.least[o] = len(stood) - 1
            tail = disk.now.get(f"{self.trace}.tail")
            self.safe(tail.durable if tail else b"")
            for o in self.lines:
                self.lines[o] = disk.names[o].durable if o in disk.names else b""
        if op.kind == "s":
            for name, file in disk.now.items():
                if file is disk.by_number.get(op.file) and name == f"{self.trace}.unfinished":
                    self.safe(file.durable)
                if file is disk.by_number.get(op.file) and name in self.lines:
                    self.lines[name] = file.durable

    def safe(self, data):
        self.steps = max([self.steps, *(n for _, n in commits_of(data))])


class Losses:
    """All losses of one recording."""

    def __init__(self, bed, recording, rng, lies=False):
        self.bed, self.r, self.rng, self.lies = bed, recording, rng, lies
        self.counts, self.found = collections.Counter(), []
        self.disk, self.promises = recording.disk(lies), Promises(recording)
        self.real = recording.disk() if lies else self.disk  # the program believes the result of fsync
        self.place = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.judge = None
        if self.promises.trace:
            whole = os.path.join(bed.folder.name, "whole.kvf")
            write(whole, recording.after[self.promises.trace])
            self.judge = Judge(bed, whole)

    def all(self):
        every = max(1, len(self.r.operations) // MOST_CUTS)
        for i, op in enumerate([None, *self.r.operations]):
            if op is not None:
                self.disk.apply(op)
                if self.lies:
                    self.real.apply(op)
                self.promises.note(self.real, op)
            if i % every and i < len(self.r.operations) - 40 and (op is None or op.kind in "wt"):
                continue
            self.counts["cuts"] += 1
            self.cut(i)
        if self.judge:
            self.judge.end()
        shutil.rmtree(self.place)
        for o, stood in self.promises.stood.items():
            if self.promises.least[o] != len(stood) - 1:
                self.tell(len(self.r.operations), f"{o} is not safe when the command ends")

    def cut(self, i):
        known = set()
        for names, data in STYLES:
            left = self.disk.after_loss(self.rng, names, data)
            key = hash(tuple(sorted(left.items())))
            if key in known:
                continue
            known.add(key)
            self.counts["disks"] += 1
            self.look(i, left)

    def tell(self, i, what):
        self.found.append(f"{self.r.w.name}, after operation {i} of {len(self.r.operations)}: {what}")

    def look(self, i, left):
        p = self.promises
        for o, stood in p.stood.items():
            if left.get(o) not in stood[p.least[o]:]:
                size = len(left[o]) if o in left else None
                self.tell(i, f"{o} is none of what stood there ({size} bytes)" if left.get(o) not in stood else f"{o} is older than what was safe")
        for o, lines in p.lines.items():
            if not left.get(o, b"").startswith(lines) and o.endswith(".state") and self.r.w.name == "eval":
                self.tell(i, f"{o} has lost lines that were synced")
        newer = p.trace and left.get(p.trace) in p.stood[p.trace][1:]
        if p.trace and not newer:
            self.unfinished(i, left)

    def unfinished(self, i, left):
        p, name = self.promises, f"{self.promises.trace}.unfinished"
        if name not in left:
            if p.steps:
                self.tell(i, f"{p.steps} steps were safe, and there is no {name}")
            return
        for x in (name, f"{p.trace}.tail"):
            path = os.path.join(self.place, x)
            if x in left:
                write(path, left[x])
            elif os.path.exists(path):
                os.unlink(path)
        v = self.judge.ask(os.path.join(self.place, name))
        self.counts["unfinished traces"] += 1
        if v is None:
            self.tell(i, "the reader ended")
            return
        if v[5] or v[9]:
            self.tell(i, f"a wrong value is read: {v}")
        plainly, salvaged = (v[at] and v[at + 1] >= p.steps and not v[at + 3] for at in (3, 7))
        self.counts["opened plainly"] += bool(plainly and v[4])
        self.counts["opened by salvage alone"] += bool(salvaged and not plainly and p.steps)
        if p.steps and not plainly and not salvaged:
            self.tell(i, f"{p.steps} steps were safe: {v}")


class Power:
    """Recordings of every writer, and of runs in several situations."""
    BATCH = 1

    def __init__(self, bed):
        self.bed, all_writers = bed, writers(bed)
        self.others = [x for x in os.listdir(bed.folder.name) if os.path.isfile(bed.path(x)) and not x.startswith(("x", "try"))]
        runs = [self.run("run over an older trace", 20, older=True), self.resumed, self.run("run with commits", 4200, "--temp", "1"),
                self.run("run over an older trace with commits", 2100, "--temp", "1", "--method", "h2o", "--budget", "64", older=True),
                self.run("run with tails", 8000, "--temp", "1", "--probes", "full", older=True)]
        plain = sorted((w for w in all_writers if not w.name.startswith("eviction.")), key=lambda w: w.name != "eval")
        formats = [w for w in all_writers if w.name.startswith("eviction.")]
        commands = [self.of(w, k % 3 > 0) for k, w in enumerate([*plain, *formats])]
        self.all = [*runs[:2], commands[0], *runs[2:], *commands[1:]]  # a few of each kind come first
        self.COUNT = len(self.all)
        control = Losses(bed, self.of(formats[0], True)(), random.Random(1), lies=True)
        control.all()
        self.control = len(control.found)

    def run(self, name, steps, *more, older=False):
        w = Writer(name, [*PROMPT, "-n", str(steps), *more, "-o", "x.kvf"], ["x.kvf"])
        return lambda: Recording(self.bed, w, {"x.kvf": read(self.bed.path("a.kvf"))} if older else {}, self.others)

    def of(self, w, older):
        return lambda: Recording(self.bed, w, {o: w.older(o) for o in w.outs} if older else {}, self.others)

    def resumed(self):
        """A continued run: an earlier run was killed in the middle."""
        argv = [*PROMPT, "-n", "1300", "--temp", "1", "-o", "x.kvf"]
        whole = Recording(self.bed, Writer("whole", argv, ["x.kvf"]), {}, self.others)
        disk = whole.disk()
        for op in whole.operations[:len(whole.operations) * 3 // 4]:
            disk.apply(op)
        before = {name: file.now() for name, file in disk.now.items() if name.endswith(".unfinished")}
        whole.remove()
        return Recording(self.bed, Writer("run --resume", [*(x for x in argv if x != "--overwrite"), "--resume"], ["x.kvf"]), before, self.others)

    def cases(self, first, n):
        counts, found = collections.Counter({"losses found by the control": self.control if first == 0 else 0}), []
        if not self.control:
            found.append("the control found nothing: fsync did nothing, and no file was lost")
        for i in range(first, first + n):
            r = self.all[i % len(self.all)]()
            losses = Losses(self.bed, r, random.Random(f"{self.bed.seed} {i}"))
            if r.missed():
                losses.tell(0, "record.c has not seen all")
            losses.all()
            counts += losses.counts + collections.Counter({"recordings": 1, "operations": len(r.operations)})
            found += losses.found[:20]
            r.remove()
        return counts, found


PROOFS = {"power": Power}
