"""Two to eight writers of one name at once: of tables and traces by the program, and of traces by
processes that use the library.

tests/cli/test_writers.py has a few rounds of the first, tests/format/test_unfinished.c of the
second, which is run from here."""
import os
import re
import subprocess

from proof import PATIENCE, read

REFUSALS = (b"another process is writing it", b"is there already", b"--resume")


class Crowds:
    """Rounds of writers. argv: by file name the arguments of a command that makes it, without the
    name, which comes last."""

    def __init__(self, exe, folder, argv):
        os.mkdir(folder)
        self.exe, self.folder, self.argv, self.want = exe, folder, argv, {}
        for name, args in argv.items():
            alone = os.path.join(folder, "alone-" + name)
            subprocess.run([exe, *args, alone], check=True, stdout=subprocess.DEVNULL)
            self.want[name] = read(alone)

    def round(self, i):
        """Returns (number of successful writers, number of rejected ones, the problem or None)."""
        name = list(self.argv)[i % len(self.argv)]
        out = os.path.join(self.folder, f"{i}-{name}")
        argv = [x for x in self.argv[name] if x != "--overwrite"]
        crowd = [subprocess.Popen([self.exe, *argv, out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2 + i % 7)]
        ends = [(p.communicate(timeout=PATIENCE)[1], p.returncode) for p in crowd]
        won = sum(code == 0 for _, code in ends)
        fair = all(code == 0 or (code == 1 and any(x in err for x in REFUSALS) and err.count(b"\n") == 1) for err, code in ends)
        left = [x for x in os.listdir(self.folder) if x != os.path.basename(out) and x.lstrip(".").startswith(os.path.basename(out))]
        good = fair and read(out) == self.want[name] and not left and (won == 1 if name.endswith(".kvf") else won >= 1)
        os.unlink(out)
        return won, len(ends) - won, None if good else f"round {i}: {name}, {len(ends)} writers: {won} won, {ends}, {left}"


class Writers:
    """A case is a round of programs and a round of processes with the library."""
    COUNT, BATCH = 2000, 50

    def __init__(self, bed):
        from harness import Gguf
        model, trace = Gguf().write(bed.path("m.gguf")), bed.path("trace.kvf")
        run = ["run", "-m", model, "-t", "1", "--ignore-eos", "-n", "20", "--raw", "-p", "the thing", "-q", "--probes", "paper", "-o"]
        bed.kvfate(*run, trace, "--method", "window", "--budget", "8")
        eviction = ["eviction", trace, "-o"]
        self.crowds = Crowds(bed.exe, bed.path("race"), {"x.tsv": eviction, "x.npz": eviction, "x.kvf": run})
        self.test = os.path.join(bed.build, "tests", "format", "test_trace_unfinished")

    def cases(self, first, n):
        counts, found = {"programs won": 0, "programs refused": 0}, []
        for i in range(first, first + n):
            won, refused, wrong = self.crowds.round(i)
            counts["programs won"] += won
            counts["programs refused"] += refused
            found += [wrong] if wrong else []
        r = subprocess.run([self.test, "--jobs", "1", "--filter", "unfinished/of_many_writers*"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=PATIENCE, env=dict(os.environ, KVFATE_ROUNDS=str(n)))
        told = re.search(r"(\d+) writers won, (\d+) were refused", r.stdout)
        if r.returncode or not told:
            found.append(f"rounds {first} to {first + n - 1} of the library: exit {r.returncode}: {r.stdout[-500:]}")
        else:
            counts |= {"processes won": int(told.group(1)), "processes refused": int(told.group(2))}
        return counts, found


PROOFS = {"writers": Writers}
