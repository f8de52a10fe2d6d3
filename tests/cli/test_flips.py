#!/usr/bin/env python3
"""Files that kvfate writes and reads again: a flipped bit is rejected in one sentence, or the
damaged part is made again; the result never changes. For each kind of file, some bits of all kinds
of bytes are flipped, and n / 4 others; KVFATE_TESTS=long: every bit. Tests of single formats with every bit:
tests/unit/test_table.c, tests/train/test_safetensors_write.c, test_checkpoint.c, tests/format."""
import os
import random
import sys

from harness import Suite
from tasks import WORDS

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "python"))
from kvfate import study_tasks  # noqa: E402
from kvfate.errors import Error  # noqa: E402

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
rng = random.Random(19)
TEXT = s.file("text.txt", "".join(" = Title %d = \n \n %s . \n" % (i, " ".join(rng.choice(WORDS) for _ in range(90))) for i in range(3)).encode())
M = ["-m", s.model(5), "-t", "1"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def kind(byte):
    """Returns the kind of a byte. For text: a digit, a letter, a separator, ...; else zero or
    not."""
    c = chr(byte)
    return "digit" if c.isdigit() else "letter" if c.isalpha() else c if c in "\t\n ,:.\"{}[]#=-" else byte == 0


def some_bits(data, n):
    """Returns bits of each kind of byte, and others; in the long tests all bits."""
    if LONG:
        return range(8 * len(data))
    places = {}
    for i in rng.sample(range(len(data)), len(data)):
        places.setdefault(kind(data[i]), i)
    ends = [0, len(data) - 1]
    return sorted({8 * i + rng.randrange(8) for i in [*places.values(), *ends]} | {rng.randrange(8 * len(data)) for _ in range(n)})


def flips(name, path, run, result, n=60, also=()):
    """run(): the command that reads the file; result(): its output. also: files that it changes."""
    good, kept = read(path), {p: read(p) for p in also}
    run_good = run()
    want = result()
    s.check(f"{name}: undamaged", run_good.returncode == 0, run_good.stderr)
    refused = accepted = 0
    for bit in some_bits(good, n // 4):
        for p, data in kept.items():
            s.file(p, data)
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        s.file(path, bytes(damaged))
        r = run()
        if r.returncode == 0:
            accepted += 1
            s.check(f"{name}: bit {bit} changes no result", result() == want, damaged[max(0, bit // 8 - 30):bit // 8 + 30])
        else:
            refused += 1
            s.check(f"{name}: bit {bit} is one sentence", r.returncode in (1, 2) and r.stderr.count(b"\n") == 1 and b"Traceback" not in r.stderr, r.returncode, r.stderr)
    s.file(path, good)
    print(f"{name}: {refused} refused, {accepted} accepted with the same result")
    s.check(f"{name}: most are refused", refused > 3 * accepted, refused, accepted)


def evaluations():
    argv = ["eval", *M, "--data", TEXT, "--prompt-tokens", "40", "--score-tokens", "8", "--methods", "full,h2o", "--budgets", "16", "--docs", "2", "--state", s.path("e.state")]
    out = s.path("e.tsv")
    s.accepted("eval", [*argv, "-o", out])
    flips("eval --state", s.path("e.state"), lambda: s.run([*argv, "-o", out]), lambda: read(out))
    one, two = (s.accepted(f"part {i}", [*argv[:-2], "--shard", f"{i}/2", "--state", s.path(f"p{i}.state")]) and s.path(f"p{i}.state") for i in (1, 2))

    def merged():
        r = s.run(["corpus", "merge", one, two, "--state", s.path("m.state")])
        return r if r.returncode else s.run([*argv[:-1], s.path("m.state"), "-o", out])
    flips("merge of eval states", one, merged, lambda: read(out), 30)


def sums():
    traces = []
    for i in range(3):
        traces.append(s.path(f"t{i}.kvf"))
        s.accepted("a trace", ["run", *M, "--raw", "-p", "the thing in there %d" % i, "-n", "12", "--ignore-eos", "--method", "window", "-B", "8", "-q", "-o", traces[-1]])
    out, state = s.path("c.tsv"), s.path("c.state")
    argv = ["corpus", "size", *traces, "--state", state, "-o", out]
    s.accepted("corpus", argv)
    flips("corpus --state", state, lambda: s.run(argv), lambda: read(out), 40, also=[state])
    tsv = s.path("p.tsv")
    s.accepted("a table", ["eviction", traces[0], "-o", tsv])
    for ending in ("tsv", "json", "csv"):
        table = s.path("t." + ending)
        s.accepted("a table as " + ending, ["draw", tsv, "-o", table])
        flips(f"draw X.{ending}", table, lambda: s.run(["draw", table, "-o", s.path("d.svg")]), lambda: read(s.path("d.svg")), 40)
    flips("draw X.csv, the file beside it", s.path("t.csv.meta.json"), lambda: s.run(["draw", s.path("t.csv"), "-o", s.path("d.svg")]), lambda: read(s.path("d.svg")), 40)


def gates():
    argv = ["train", *M, "--data", TEXT, "--method", "trimkv:M=8", "--steps", "2", "--length", "32", "--check-every", "0", "--save-every", "1", "-o", s.path("g.safetensors")]
    s.accepted("gates", argv)
    out = s.path("g.tsv")
    use = ["eval", *M, "--data", TEXT, "--prompt-tokens", "40", "--score-tokens", "8", "--methods", "trimkv", "--budgets", "16", "--docs", "1", "--gates", s.path("g.safetensors"), "-o", out]

    def rows():  # except the hash of the gate file
        return [line.split(b"\t")[:-1] for line in read(out).splitlines() if not line.startswith(b"#")]
    flips("gates", s.path("g.safetensors"), lambda: s.run(use), rows, 40)


def tasks():
    s.accepted("a task", ["tasks", "needle", "--words", "60", "-o", s.path("n")])
    out = s.path("n.tsv")
    argv = ["eval", *M, "--raw", "--tasks", s.path("n.json"), "--methods", "full,window", "--budgets", "16", "-o", out]
    for ending in ("json", "txt"):
        flips(f"tasks, NAME.{ending}", s.path("n." + ending), lambda: s.run(argv), lambda: read(out), 40)


def answers():
    """The states of mathematics and choices: every bit, by the package's class."""
    path, name = s.path("a.state"), '# kvfate tasks: {"seed": 1}'
    state = study_tasks.State(path, name)
    for i, text in enumerate(("it is 12", 'a "quoted", "checksum": "x"} line\n\u00e9')):
        state.add({"method": "full", "budget": 0, "id": "%d-0" % i, "text": text, "tokens": 3 + i, "logprob": -11.8})
    state.file.close()
    good, want = read(path), dict(state.said)
    for x in want.values():
        x.pop("checksum", None)
    wrong, told = [], 0
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        s.file(path, bytes(damaged))
        try:
            state = study_tasks.State(path, name)
        except Error as e:
            told += "\n" not in str(e) and path in str(e)
            continue
        state.file.close()
        got = {k: {a: b for a, b in x.items() if a != "checksum"} for k, x in state.said.items()}
        if any(x != want[k] for k, x in got.items()):
            wrong.append(bit)
    s.check("answers of a study: no flipped bit is read", not wrong and told > 7 * len(good), wrong, told)
    s.file(path, b"".join([good.splitlines(True)[0], b'{"method": "full", "budget": 0, "id": "0-0", "text": "it is 12", "tokens": 3}\n']))
    try:
        study_tasks.State(path, name)
        s.check("answers without a checksum are refused", False)
    except Error as e:
        s.check("answers without a checksum are refused", "older kvfate" in str(e) and "move" in str(e), e)


evaluations()
sums()
gates()
tasks()
answers()
s.finish()
