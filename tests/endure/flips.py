"""Flips single bits and cuts files. flips.c checks them; this file makes the traces and finds the
case that crashed it."""
import os
import re
import subprocess
import zipfile

from proof import PATIENCE, read, write


class Flips:
    BATCH = 4000

    def __init__(self, bed):
        """Makes files with every type of record, codec, element, head space and axis, in both
        formats, closed and unclosed."""
        from harness import Gguf
        self.bed, self.folder = bed, bed.path("files")
        os.mkdir(self.folder)
        for version in ("0.1", "1.0"):
            with zipfile.ZipFile(os.path.join(bed.root, f"tests/format/golden/format-{version}.zip")) as z:
                for name in z.namelist():
                    with open(os.path.join(self.folder, f"{version}-{name}"), "wb") as f:
                        f.write(z.read(name))
        self.ask("make")
        model = Gguf().write(bed.path("m.gguf"))
        bed.kvfate("run", "-m", model, "-t", "1", "--ignore-eos", "-n", "24", "--raw", "-p", "the thing", "-q", "--probes", "full",
                   "--method", "h2o", "--budget", "12", "-o", os.path.join(self.folder, "run.kvf"))
        self.files = {name: read(os.path.join(self.folder, name)) for name in os.listdir(self.folder)}
        bits = int(self.ask("total").stdout.split()[0])
        self.COUNT = max(1000000, bits)  # each bit at least once

    def ask(self, what, *more):
        return subprocess.run([self.bed.helper("flips"), what, self.folder, *map(str, more)], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)

    def cases(self, first, n):
        """If the program crashes in a batch, halves of the batch are repeated until the case is
        found."""
        counts, found, parts = {}, [], [(first, n)]
        while parts:
            at, k = parts.pop()
            try:
                r = self.ask("judge", self.bed.seed * 1000003 + at, k)
                ended = r.returncode in (0, 1)
            except subprocess.TimeoutExpired:
                r, ended = None, False
            if not ended:  # the last damage is still in the file
                for name, data in self.files.items():
                    write(os.path.join(self.folder, name), data)
            if not ended and k > 1:
                parts += [(at + k // 2, k - k // 2), (at, k // 2)]
                continue
            if not ended:
                found.append(f"flip {at}: " + (f"exit {r.returncode}" if r else f"no end after {PATIENCE} s"))
                continue
            for word, number in re.findall(r"^(\w+) (\d+)$", r.stdout, re.M):
                if word != "findings":
                    counts[word] = counts.get(word, 0) + int(number)
            found += [line[len("finding: "):] for line in r.stdout.splitlines() if line.startswith("finding: ")]
        return counts, found


PROOFS = {"flips": Flips}
