"""kill -9 of commands that overwrite older files. The older file stays complete or the new one is
complete, no acknowledged data are lost, and the next command is not blocked.

Half of the kills come at a random time of the command, half between two random file operations,
which record.c counts. A rename takes microseconds, and random times would not hit it. A command
that ended before its kill is not counted and is repeated."""
import collections
import os
import random
import re
import signal
import struct
import subprocess
import time

from commands import Writer, model, steady, writers
from proof import PATIENCE, read, write
import recording

LEFT = re.compile(r"\.(.+)\.(lock|[0-9a-f]{16}\.part)$")
TRIES, CLEAN = 60, 8  # attempts per kill; after every CLEAN attempts the command may finish
SECONDS = 4           # a kill comes within this time
NOTFOUND = -6         # from <kvf/err.h>
PROMPT = ["run", "-m", "m.gguf", "-t", "1", "--ignore-eos", "-q", "--raw", "-p", "the thing", "--overwrite", "--probes", "paper"]


class Target:
    """A command to kill, its undisturbed output, and its run time."""

    def __init__(self, bed, writer, folder):
        self.bed, self.w, self.folder = bed, writer, folder
        self.env = dict(os.environ, KVFATE_CACHE=bed.path("cache"))
        self.took = collections.deque(maxlen=15)
        log = bed.path("log")
        self.put_older()
        self.code = self.run(dict(self.env, KVFATE_RECORD=log, LD_PRELOAD=bed.helper("record.so")))
        self.want = {o: self.now(o) for o in writer.outs}
        operations = recording.parse(read(log))
        self.n_operations = operations[-1].call
        # A training writes its gates at each checkpoint.  record.c does not see the writes of stdio to the standard output, which -o of
        # some commands makes a file.
        self.whole = {o: {self.want[o], *(steady(x) for x in recording.versions(operations, folder, {}, o))} for o in writer.outs}
        if self.code not in (0, 1, 3) or None in self.want.values():
            raise SystemExit(f"{writer.name}: exit {self.code}, {[k for k, v in self.want.items() if v is None]}")
        while len(self.took) < 3 and sum(self.took) < SECONDS:
            self.finish()

    def at(self, name):
        return os.path.join(self.folder, name)

    def now(self, name):
        return steady(read(self.at(name)))

    def put_older(self):
        for o in self.w.outs:
            write(self.at(o), self.w.older(o))
        for o in self.w.goes_on:
            if os.path.exists(self.at(o)):
                os.unlink(self.at(o))

    def start(self, env):
        return subprocess.Popen([self.bed.exe, *self.w.argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, env=env)

    def run(self, env):
        return self.start(env).wait(timeout=PATIENCE)

    def finish(self):
        """Returns problems after an undisturbed command; restores the older files."""
        start = time.monotonic()
        code = self.run(self.env)
        self.took.append(time.monotonic() - start)
        wrong = [] if code == self.code else [f"the next run ends with {code}"]
        wrong += [f"the next run leaves another {o}" for o in self.w.outs if self.now(o) != self.want[o]]
        wrong += [f"the next run leaves {x}" for x in self.beside()]
        self.put_older()
        return wrong

    def beside(self):
        """Returns the files whose names derive from a known file."""
        known = {*self.w.outs, *self.w.goes_on}
        return [x for x in os.listdir(self.folder) if x not in known and x not in self.bed.given]

    def killed(self, rng, by_operation):
        """Returns True if the kill came before the end."""
        if by_operation:
            env = dict(self.env, LD_PRELOAD=self.bed.helper("record.so"), KVFATE_RECORD_KILL=str(rng.randint(1, self.n_operations)))
            return self.run(env) == -signal.SIGKILL
        p = self.start(self.env)
        time.sleep(rng.random() * min(SECONDS, sorted(self.took)[len(self.took) // 2]))
        p.kill()
        return p.wait() == -signal.SIGKILL

    def judge(self, counts):
        """Returns problems after a kill."""
        wrong = []
        for o in self.w.outs:
            now = read(self.at(o))
            new = steady(now) in self.whole[o]
            counts["new file whole" if new else "older file whole"] += 1
            if not new and now != self.w.older(o):
                wrong.append(f"{o} is neither the older nor the new file ({None if now is None else len(now)} bytes)")
        for x in self.beside():
            m = LEFT.match(x)
            if not m or not any(m.group(1) in (o, o + ".tail") for o in (*self.w.outs, *self.w.goes_on)):
                if not self.allowed(x):
                    wrong.append(f"{x} is left")
        counts["left something behind"] += bool(self.beside())
        return wrong

    def allowed(self, name):
        return any(name in (o + ".unfinished", o + ".tail") for o in self.w.outs if o.endswith(".kvf"))

    def after(self, counts):
        """Returns problems, and restores all files."""
        wrong = self.judge(counts)
        for o in self.w.outs:
            if self.now(o) in self.whole[o]:
                write(self.at(o), self.w.older(o))
        return wrong

    def case(self, i, rng, counts):
        for _ in range(TRIES):
            if not self.killed(rng, i % 2):
                counts["ended before the kill"] += 1
                wrong = [f"ended with another {o}" for o in self.w.outs if self.now(o) != self.want[o]]
                self.put_older()
                if wrong:
                    return wrong
                continue
            counts["kills between operations" if i % 2 else "kills at a moment"] += 1
            wrong = self.after(counts)
            if self.w.goes_on or rng.randrange(CLEAN) == 0:
                counts["ended by the next command"] += 1
                wrong += self.finish()
            return wrong
        return [f"not killed in {TRIES} tries"]


class Run(Target):
    """kvfate run: its remains open, contain all committed data, and can be continued."""

    def __init__(self, bed, name, steps, folder, *more):
        super().__init__(bed, Writer(name, [*PROMPT, "-n", str(steps), *more, "-o", "x.kvf"], ["x.kvf"]), folder)
        whole = bed.path(name + ".whole")
        write(whole, self.want["x.kvf"])
        self.commits = commits_of(self.want["x.kvf"])
        self.ask = subprocess.Popen([bed.helper("judge"), whole], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def shown(self):
        self.ask.stdin.write(self.at("x.kvf.unfinished") + "\n")
        self.ask.stdin.flush()
        answer = self.ask.stdout.readline()
        return list(map(int, answer.split())) if answer else None

    def after(self, counts):
        wrong = super().after(counts)
        left, want = read(self.at("x.kvf.unfinished")), self.want["x.kvf"]
        if left is None:
            return wrong
        if left != want[:len(left)]:
            wrong.append(f"x.kvf.unfinished, {len(left)} bytes, is not how the trace begins")
        committed = max([n for end, n in self.commits if end <= len(left)], default=0)
        readable = self.commits[0][0] <= len(left)  # its run header and schema are complete
        v = self.shown()
        if v is None:
            return [*wrong, "the reader ended"]
        counts["commits acknowledged"] += committed > 0
        counts["tails read"] += v[4] > committed
        if readable and (v[0] != 0 or not v[3] or v[4] < committed or v[5] or v[9]):
            wrong.append(f"x.kvf.unfinished with {committed} steps committed: {v}")
        of_tail = NOTFOUND if v[1] else 0  # a closed trace that was not yet renamed needs no tail
        if os.path.exists(self.at("x.kvf.tail")) and v[2] != of_tail:
            wrong.append(f"x.kvf.tail: verify returns {v[2]}")
        return wrong

    def case(self, i, rng, counts):
        wrong = super().case(i, rng, counts)
        if not wrong and os.path.exists(self.at("x.kvf.unfinished")) and rng.randrange(CLEAN) == 0:
            code = subprocess.run([self.bed.exe, *self.w.argv, "--resume"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.folder, env=self.env,
                                  timeout=PATIENCE)
            refused = code.returncode == 1 and b"not a kvfate trace" in code.stderr  # killed before its header was written
            counts["resumed"] += not refused
            if not refused and (code.returncode or self.now("x.kvf") != self.want["x.kvf"]):
                wrong.append(f"resumed: exit {code.returncode}: {code.stderr[-200:]}")
            self.put_older()
        return wrong


def commits_of(trace):
    """Returns (end offset, steps) of the schema and of each commit."""
    out, at = [], 64
    while at + 88 <= len(trace) and trace[at:at + 4] == b"\xc5ZFR":
        kind, (stored,) = trace[at + 6], struct.unpack_from("<Q", trace, at + 16)
        end = at + 88 + (stored + 7) // 8 * 8
        if kind == 2:
            out.append((end, 0))
        elif kind == 6:
            out.append((end, struct.unpack_from("<I", trace, at + 92)[0]))
        at = end
    return out


class Kills:
    """Cases are distributed over the targets that make() returns."""
    BATCH = 20

    def __init__(self, bed):
        self.bed, bed.given = bed, set()
        self.targets = self.make()

    def folder(self, i):
        """Makes a folder for each command, with the inputs: all remains belong to this command."""
        path = self.bed.path(f"w{i}")
        os.mkdir(path)
        for name in os.listdir(self.bed.folder.name):
            if os.path.isfile(self.bed.path(name)) and not name.startswith(("x", "try")):
                os.link(self.bed.path(name), os.path.join(path, name))
                self.bed.given.add(name)
        return path

    def cases(self, first, n):
        counts, found = collections.Counter(), []
        for i in range(first, first + n):
            which, turn = self.deal(i)
            target = self.targets[which]
            rng = random.Random(f"{self.bed.seed} {i}")
            found += [f"case {i}, {target.w.name}: {x}" for x in target.case(turn, rng, counts)]
        return counts, found


class RunKills(Kills):
    """Most runs are short, a quarter commit, and one in twenty is long enough for tails."""
    COUNT = 10000

    def make(self):
        model(self.bed)
        short = Run(self.bed, "short", 20, self.folder(0))
        commit = Run(self.bed, "commit", 1200, self.folder(1), "--temp", "1")
        if self.bed.count and self.bed.count < 100:
            return [short, commit]
        return [short, commit, Run(self.bed, "tail", 3500, self.folder(2), "--temp", "1", "--probes", "full")]

    def deal(self, i):
        return (len(self.targets) - 1 if i % 40 > 37 else int(i % 8 > 5)), i


class OtherKills(Kills):
    """Each of the other writers in turn."""
    EACH = 2000

    def make(self):
        chosen = [w for w in writers(self.bed) if w.name != "run"]
        self.COUNT = self.EACH * len(chosen)
        if self.bed.count and self.bed.count < len(chosen):
            chosen = chosen[::max(1, len(chosen) // self.bed.count)]
        return [Target(self.bed, w, self.folder(i)) for i, w in enumerate(chosen)]

    def deal(self, i):
        return i % len(self.targets), i // len(self.targets) + i % len(self.targets)


PROOFS = {"kills": RunKills, "other-kills": OtherKills}
