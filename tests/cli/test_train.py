#!/usr/bin/env python3
"""train: the same bytes after any interruption, the learned gates, rejections, and the files that
remain."""
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Gguf, Suite

s = Suite()
os.environ["KVFATE_CACHE"] = s.path("cache")
os.environ["KVFATE_GATES"] = s.path("shipped")
os.mkdir(s.path("shipped"))
rng = random.Random(11)
MODEL = Gguf(layers=2, heads=4, kv_heads=2).set("llama.context_length", 2048).write(s.path("model.gguf"))
WORDS = "the thing in there and other one is of an it he she ran red bit top hat".split()


def prose(n):
    return " ".join(rng.choice(WORDS) for _ in range(n)) + " ."


TEXT = s.file("text.txt", "".join(f" = Title {i} = \n {prose(150)} \n" for i in range(60)).encode())
LINES = s.file("lines.jsonl", "".join(json.dumps(x) + "\n" for x in [{"text": prose(rng.randrange(3, 60))} for _ in range(90)]
                                      + [{"question": prose(9), "answer": prose(30)} for _ in range(30)]).encode())
METHOD = "trimkv:hidden=8,bias=3,M=8,lr=0.02"
ENDS = ("", ".state", ".log.jsonl")


def argv(name, *more, data=(TEXT,), method=METHOD, steps=6, check=0, length=32):
    return ["train", "-m", MODEL, "--data", *data, "--method", method, "--steps", str(steps), "--length", str(length),
            "--check-every", str(check), "-t", "1", "-o", s.path(name), *more]


def read(name):
    return Path(s.path(name)).read_bytes()


def result(name):
    """Returns gates, checkpoint and record; None for absent files."""
    return [read(name + end) if os.path.exists(s.path(name + end)) else None for end in ENDS]


def record(name):
    return [json.loads(line) for line in read(name + ".log.jsonl").splitlines()]


def train(name, *more, **how):
    s.accepted(f"train {name}", argv(name, *more, **how))
    return result(name)


def nothing_left(what, name):
    left = [f for f in os.listdir(s.work.name) if f.startswith(name)]
    s.check(f"{what}: no file is left", not left, left)


def equal(what, a, b):
    s.check(what, all(x is not None and x == y for x, y in zip(a, b)), [x and len(x) for x in a], [x and len(x) for x in b],
            [x == y for x, y in zip(a, b)])


def no_negative_divergence():
    """If the gates keep all entries, the divergence is 0 except for rounding of both signs."""
    train("kept.st", method="trimkv:hidden=8,bias=18,M=16", steps=12, length=64)
    log = [x["fwkl"] for x in record("kept.st")]
    s.check("no divergence is below 0", len(log) == 12 and all(0 <= x < 1e-6 for x in log), log)


# ---- the same bytes

def any_threads():
    """Three threads, two, one; and with less memory."""
    for method in (METHOD, "dbtrimkv:hidden=8,bias=3,M=8", "wgkv:hidden=4,window=8", "trimkv:net=rgkv,hidden=8,bias=3,M=8",
                   "dbtrimkv:net=linear,bias=3,M=8"):
        one = train("one.st", method=method, steps=4, length=64)
        for what, more in (("2 threads", ["-t", "2"]), ("3 threads", ["-t", "3"]), ("recompute", ["--recompute"]),
                           ("recompute on 2 threads", ["--recompute", "-t", "2"])):
            equal(f"{method}: {what}", train("other.st", "--fresh", *more, method=method, steps=4, length=64), one)
        for end in ENDS:
            os.remove(s.path("one.st" + end))


LONG = dict(steps=240, check=60, length=64)
LONG_MORE = ("--save-every", "7", "--check-docs", "1", "--budgets", "16,32")


def stop(name, number, after):
    """Runs a command that a signal may end; returns its exit status."""
    p = subprocess.Popen([s.exe, *argv(name, *LONG_MORE, **LONG)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(after)
    p.send_signal(number)
    _, err = p.communicate(timeout=60)
    if number == signal.SIGINT and p.returncode != 0:
        s.check("SIGINT: exit and one line", p.returncode in (130, -2) and (p.returncode == -2 or b"interrupted after step" in err), p.returncode, err)
    return p.returncode


def interrupted(number, rest, whole):
    name, stops = f"{number.name}.st", 0
    for _ in range(60):
        if stop(name, number, rng.uniform(0.02, rest)) == 0:
            break
        stops += 1
    else:
        s.check(f"{number.name}: it ends at last", False)
    s.check(f"{number.name}: was stopped", stops > 0, stops)
    print(f"{number.name}: {stops} times")
    equal(f"the same after {number.name}", result(name), whole)
    again = train(name, *LONG_MORE, **LONG)
    equal("a finished run has nothing to do", again, whole)


def any_stop():
    start = time.monotonic()
    whole = train("whole.st", *LONG_MORE, **LONG)
    took = time.monotonic() - start
    written = [os.stat(s.path("whole.st" + end)).st_mtime_ns for end in ("", ".log.jsonl", ".state")]
    s.check("the checkpoint, which ends a save, is written last", written == sorted(written), written)
    checks = [x for x in record("whole.st") if "check" in x]
    s.check("a check every 60 steps", [x["check"] for x in checks] == [60, 120, 180, 240] and all(x["kl_16"] >= 0 for x in checks), checks)
    interrupted(signal.SIGINT, took / 3, whole)
    interrupted(signal.SIGKILL, took / 3, whole)
    os.remove(s.path("whole.st"))
    s.refused("the best gates are gone", argv("whole.st", *LONG_MORE, **LONG), 1, "best gates", "--fresh")


def left_behind():
    """A continued run with all work done writes its own gates and record, whatever files were
    there."""
    one = train("left.st")
    for end in ("", ".log.jsonl"):
        s.file("left.st" + end, b"older")
    equal("what stood there gives way", train("left.st"), one)
    os.remove(s.path("left.st"))
    equal("what was lost comes back", train("left.st"), one)


def kept_ids():
    """The cache of token ids changes only the time; a damaged one is made again."""
    folder = s.path("cache/tokens")
    shutil.rmtree(folder, ignore_errors=True)
    first = train("cold.st")
    names = os.listdir(folder)
    s.check("the ids are kept", len(names) == 1 and names[0].endswith(".ids"), names)
    before = os.stat(os.path.join(folder, names[0])).st_mtime_ns
    equal("from kept ids", train("cold.st", "--fresh"), first)
    s.check("they were not written again", os.stat(os.path.join(folder, names[0])).st_mtime_ns == before)
    s.file("cache/tokens/" + names[0], b"damaged")
    equal("from damaged ids", train("cold.st", "--fresh"), first)
    shutil.rmtree(s.path("cache"))
    s.file("cache", b"not a folder")
    equal("without a folder for them", train("cold.st", "--fresh"), first)
    os.remove(s.path("cold.st"))
    equal("gates of a finished run that were lost", train("cold.st"), first)
    os.remove(s.path("cache"))


def kept_teacher():
    """The teacher's states change only the time, whichever process wrote them; damaged or foreign
    ones are made again."""
    folder = s.path("cache/teacher")
    shutil.rmtree(folder, ignore_errors=True)
    first, other = train("warm.st", length=64), train("warm.st", "--fresh", length=48)
    equal("states are written", train("warm.st", "--fresh", "--keep-teacher", length=64), first)
    files = sorted(os.path.join(folder, x) for x in os.listdir(folder))
    s.check("a file for each pack", len(files) >= 2 and all(x.endswith(".f32") for x in files), files)
    before = [os.stat(x).st_mtime_ns for x in files]
    equal("from kept states", train("warm.st", "--fresh", "--keep-teacher", length=64), first)
    s.check("they were not written again", [os.stat(x).st_mtime_ns for x in files] == before)
    equal("packs of other lengths are others", train("warm.st", "--fresh", "--keep-teacher", length=48), other)
    swap = [open(x, "rb").read() for x in files]
    for i, x in enumerate(files):  # from another pack, too short, with one bit flipped
        data = swap[(i + 1) % len(swap)] if i % 3 == 0 else swap[i][:-1] if i % 3 == 1 else bytes([swap[i][0] ^ 1]) + swap[i][1:]
        Path(x).write_bytes(data)
    equal("from damaged states", train("warm.st", "--fresh", "--keep-teacher", length=64), first)
    s.check("damaged ones were written again", [open(x, "rb").read() for x in files] == swap)
    shutil.rmtree(s.path("cache"))
    s.file("cache", b"not a folder")
    s.refused("no folder for them", argv("warm.st", "--fresh", "--keep-teacher"), 1, "--keep-teacher", "KVFATE_CACHE")
    os.remove(s.path("cache"))


def teacher_train(what, name, *more, warns=None, length=64, **how):
    """Runs a training that stores states. warns: it reports in one line that it stores no more.
    Returns its result."""
    r = s.accepted(what, argv(name, "--fresh", "--keep-teacher", *more, length=length), **how)
    lines = [x for x in r.stderr.decode().splitlines() if "keep-teacher" in x]
    s.check(f"{what}: {'a line' if warns else 'no line'}", len(lines) == (1 if warns else 0) and all(w in lines[0] for w in warns or ()), r.stderr)
    return result(name)


def teacher_limit():
    """The folder of states stays below its limit, whichever process fills it. A full disk gives one
    warning, and the same gates."""
    folder = s.path("cache/teacher")
    shutil.rmtree(folder, ignore_errors=True)
    first = train("bound.st", length=64)

    def held():
        sizes = [os.stat(os.path.join(folder, x)).st_size for x in sorted(os.listdir(folder))]
        return sizes, sum(sizes)

    equal("all are kept", teacher_train("all are kept", "bound.st"), first)
    sizes, whole = held()
    s.check("6 packs of 64 rows of 64 numbers, and a hash", sizes == [64 * 64 * 4 + 16] * 6, sizes)
    one = os.path.join(folder, sorted(os.listdir(folder))[0])
    os.remove(one)
    with open(os.path.join(folder, "." + os.path.basename(one) + ".lock"), "w") as lock:  # as another training at the same pack does
        fcntl.flock(lock, fcntl.LOCK_EX)
        equal("another writes it", teacher_train("another writes it", "bound.st"), first)
        s.check("another writes it: it is left to it", not os.path.exists(one) and os.path.exists(lock.name), os.listdir(folder))
    for what, limit, n in (("no room", 0, 0), ("a byte too few", sizes[0] - 1, 0), ("room for one", sizes[0], 1), ("for three", 3 * sizes[0] + 1, 3), ("a byte too few for all", whole - 1, 5)):
        shutil.rmtree(folder)
        equal(what, teacher_train(what, "bound.st", "--teacher-limit", str(limit), warns=(folder, "--teacher-limit", f"of at most {limit};")), first)
        s.check(f"{what}: {n} are kept", held()[0] == sizes[:1] * n, held())
    equal("the rest", teacher_train("the rest", "bound.st", "--teacher-limit", str(whole)), first)
    s.check("all are there", held()[0] == sizes, held())
    equal("no more room, none needed", teacher_train("no more room, none needed", "bound.st", "--teacher-limit", "1"), first)
    shutil.rmtree(folder)
    os.mkdir(folder)
    s.file("cache/teacher/of-another-version.f32", bytes(whole - 2 * sizes[0]))
    equal("others' files count", teacher_train("others' files count", "bound.st", "--teacher-limit", str(whole), warns=[folder]), first)
    s.check("two fit beside them", held()[1] == whole and len(held()[0]) == 3, held())
    shutil.rmtree(folder)
    limit, steps = 40 * sizes[0], 60
    both = [subprocess.Popen([s.exe, *argv(f"two{i}.st", "--keep-teacher", "--teacher-limit", str(limit), "--seed", str(i), steps=steps, length=64)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in (0, 1)]
    errs = [p.communicate(timeout=60)[1] for p in both]
    s.check("two at once: one line each", [p.returncode for p in both] == [0, 0] and all(e.count(b"keep-teacher") == 1 for e in errs), errs)
    s.check("two at once: the limit, or a file each more", 40 <= len(held()[0]) <= 42 and held()[1] == len(held()[0]) * sizes[0], held())
    shutil.rmtree(folder)
    long = train("bound.st", "--fresh", length=160)
    room = max(map(len, long)) + 1000
    s.check("states are larger than gates and checkpoint", room < 160 * 64 * 4, room)
    equal("too large a file", teacher_train("too large a file", "bound.st", length=160, warns=(folder, "cannot write", "File too large"),
                                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))), long)
    s.check("too large a file: nothing is left", not os.listdir(folder), os.listdir(folder))
    if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", folder], stderr=subprocess.DEVNULL).returncode == 0:
        try:
            equal("a full disk", teacher_train("a full disk", "bound.st", warns=(folder, "cannot write", "No space")), first)
            s.check("a full disk: what fits is kept, and no part of a file", held()[0] == sizes[:1] * 2, held())
            equal("a full disk is read", teacher_train("a full disk is read", "bound.st", warns=["No space"]), first)
        finally:
            subprocess.run(["umount", folder])
    else:
        print("skipped: a full tmpfs for the teacher's states (needs root and mount)")
    shutil.rmtree(s.path("cache"))


# ---- learning, and use of the result

def learns():
    """With lambda = 0 and gates that start low, the divergence from full attention decreases."""
    for method in ("trimkv:hidden=8,bias=1,lambda=0,ntp=0,lr=0.05,deviation=0.3", "wgkv:hidden=8,lambda=0,window=4,bias=-2,lr=0.02"):
        train("toy.st", "--fresh", method=method, steps=80, length=64)
        term = "mse" if method[0] == "w" else "fwkl"
        loss = [x[term] for x in record("toy.st")]
        s.check(f"{method}: {term} falls to a half", sum(loss[-10:]) < 0.5 * sum(loss[:10]), loss[:3], loss[-3:])
    train("toy.st", "--fresh", method="trimkv:hidden=8,bias=5,fwkl=1e-6,ntp=0,M=4,lr=0.05", steps=80, length=64)
    limit = [x["limit"] for x in record("toy.st")]
    s.check("the capacity's excess falls to a tenth", limit[0] > 0 and limit[-1] < 0.1 * limit[0], limit[0], limit[-1])
    lr = [x["lr"] for x in record("toy.st")]
    s.check("4 steps of warm-up, then down", lr[0] < lr[3] and abs(lr[3] - 0.05) < 1e-12 and lr[4] > lr[-1], lr[:5], lr[-1])


def every_method():
    for name in ("trimkv", "dbtrimkv", "wgkv"):
        for variant in ("paper", "code"):
            out = f"{name}-{variant}.safetensors"
            train(out, method=f"{name}:variant={variant},hidden=8", steps=2)
            meta = json.loads(s.accepted("info", ["trace", "info", "--json", s.path(out)]).stdout)["metadata"]
            kept = json.loads(meta["training"])
            s.check(f"{out}: the record", kept["method"] == name and kept["steps_done"] == 2 and kept["hidden"] == 8, kept)
            method = [name, *(["-B", "16"] if name != "wgkv" else [])]
            s.accepted(f"{out} runs", ["run", "--overwrite", "-m", MODEL, "-t", "1", "-q", "--raw", "-p", prose(40), "-n", "3", "-o", s.path("r.kvf"),
                                       "--gates", s.path(out), "--method", *method])
            s.accepted(f"{out} in eval", ["eval", "-m", MODEL, "-t", "1", "--data", TEXT, "--methods", name, "--budgets", "16", "--docs", "2",
                                          "--prompt-tokens", "40", "--score-tokens", "8", "--gates", s.path(out)])
    train("wide.st", "--f32", method="trimkv:hidden=8", steps=1)
    train("narrow.st", method="trimkv:hidden=8", steps=1)
    s.check("bf16 has half the bytes", 1.5 < len(read("wide.st")) / len(read("narrow.st")) < 2, len(read("wide.st")), len(read("narrow.st")))


def every_net():
    """Gates of each layout are trained, shown and used; the record names the layout if it is not
    the method's default."""
    shapes = {"rg": 1, "rg10": 1, "linear": 0, "rgkv": 1}  # has a hidden layer
    for method, net, more in (("trimkv", "rg", ",hidden=8"), ("trimkv", "linear", ""), ("trimkv", "linear", ",tied=1"), ("trimkv", "rgkv", ",hidden=8"), ("dbtrimkv", "rg10", ",hidden=8"),
                              ("dbtrimkv", "rg", ",hidden=8"), ("dbtrimkv", "linear", ""), ("dbtrimkv", "rgkv", ",hidden=8")):
        own, tied = net == {"trimkv": "rg", "dbtrimkv": "rg10"}[method], method == "dbtrimkv" or "tied" in more
        out = f"{method}-{net}{len(more)}.st"
        train(out, method=f"{method}:net={net},bias=3{more}", steps=2)
        facts = json.loads(s.accepted("info", ["trace", "info", "--json", s.path(out)]).stdout)
        kept = json.loads(facts["metadata"]["training"])
        s.check(f"{out}: layout", (facts["kind"], facts["layout"], facts["hidden"], facts["tied"]) == ("retention", net, 8 if shapes[net] else None, tied), facts)
        s.check(f"{out}: sizes", facts["kv_heads"] == 2 and (facts["d_model"], facts["head_dim"]) == ((None, 16) if net == "rgkv" else (64, None)), facts)
        s.check(f"{out}: the record", kept.get("net", net) == net and ("net" in kept) != own and kept["hidden"] == 8 * shapes[net], kept)
        text = s.accepted("info", ["trace", "info", s.path(out)]).stdout
        s.check(f"{out}: info", f"layout {net},".encode() in text and (b"readout equal in all layers" if tied else b"readout of each layer its own") in text
                and (b"hidden 8" in text) == bool(shapes[net]), text)
        r = s.accepted(f"{out} runs", ["run", "--overwrite", "-m", MODEL, "-t", "1", "-q", "--raw", "-p", prose(40), "-n", "3", "-o", s.path("r.kvf"), "--json",
                                       "--gates", s.path(out), "--method", "trimkv", "-B", "16"])
        s.check(f"{out}: evicts", json.loads(r.stdout)["triggers"] > 0, r.stdout)
    equal("net=rg is trimkv's own", train("same.st", method="trimkv:net=rg,hidden=8,bias=3", steps=2), train("same2.st", method="trimkv:hidden=8,bias=3", steps=2))
    other = Gguf(layers=2, seed=9, heads=2, kv_heads=1).write(s.path("narrow.gguf"))
    s.refused("gates of keys for other heads", ["generate", "-m", other, "-q", "--raw", "-p", "x", "--method", "trimkv", "-B", "8", "--gates", s.path("trimkv-rgkv9.st")], 2, "model")


def options():
    whole = train("docs.st", "--packing", "documents", data=(LINES, TEXT), steps=3, length=64)
    s.check("documents differ from runs", read("docs.st.log.jsonl") != train("runs.st", data=(LINES, TEXT), steps=3, length=64)[2], whole[2])
    half = train("half.st", "--share", "0.5", steps=3)
    s.check("--share takes other data", half[2] != train("most.st", steps=3)[2])
    s.check("--seed takes another order", half[2] != train("seed.st", "--share", "0.5", "--seed", "5", steps=3)[2])
    how = dict(method="trimkv:hidden=4,lr=0,min-lr=0", steps=40, check=2)
    r = s.accepted("early stop", argv("early.st", "--patience", "3", "--json", "--check-docs", "1", "--budgets", "16", **how))
    done = json.loads(r.stdout)
    s.check("stops after 3 checks that are not better", done["steps"] == 8 and done["best_step"] == 2, done)
    s.check("the record is whole", record("early.st")[-1]["check"] == 8, record("early.st")[-1])
    r = s.accepted("go on after an early stop", argv("early.st", "--patience", "3", "--json", "--check-docs", "1", "--budgets", "16", **how))
    s.check("it stays stopped", json.loads(r.stdout)["steps"] == 8, r.stdout)
    r = s.accepted("settings", ["train", "--settings"])
    s.check("settings are listed", all(k in r.stdout for k in (b"variant", b"lambda", b"accumulate", b"min-lr")), r.stdout)


# ---- rejections

def bad_data():
    for what, data, words in (("empty", b"", ["give no"]), ("binary", bytes(range(256)) * 40, ["line 1"]), ("NUL", b"the thing\n\0\n" * 30, ["line 2"]),
                              ("UTF-8", b"the thing\n\xff\n" * 30, ["line 2"]), ("JSONL", b'{"text": "the thing"}\n{"text": \n', ["line 2"]),
                              ("JSONL without text", b'{"text": "the thing"}\n{"words": 1}\n', ["line 2"]), ("short", b"the thing\n", ["give no", "shorter"])):
        path = s.file("bad.data", data)
        s.refused(f"data: {what}", argv("bad.st", data=(path,)), 1, "bad.data", *words)
    s.refused("data: missing", argv("bad.st", data=(s.path("none.txt"),)), 1, "none.txt", "No such file")
    s.refused("data: a folder", argv("bad.st", data=(s.work.name,)), 1, s.work.name)
    s.refused("nothing to check on", argv("bad.st", "--share", "0.99", check=2), 1, "checked", "--check-every 0")
    nothing_left("bad data", "bad.st")


def bad_settings():
    for method, word in (("trimkv:frob=1", "frob"), ("trimkv:lr=11", "lr"), ("trimkv:lr=x", "lr"), ("trimkv:lr=nan", "lr"), ("trimkv:hidden=0", "hidden"),
                         ("trimkv:hidden=1.5", "hidden"), ("trimkv:tied=2", "tied"), ("trimkv:norm=max", "norm"), ("trimkv:lr", "lr"), ("trimkv:variant=both", "variant"),
                         ("trimkv:fwkl=0,ntp=0", "fwkl"), ("trimkv:form=write", "form"), ("wgkv:form=decay", "form"), ("wgkv:window=0", "window"),
                         ("trimkv:net=deep", "net"), ("trimkv:net=rg10", "rg, linear or rgkv"), ("dbtrimkv:net=wgkv", "rg10, rg, linear or rgkv"),
                         ("wgkv:net=rg", "wgkv"), ("trimkv:net=linear,hidden=8", "hidden"), ("dbtrimkv:hidden=128,net=linear", "hidden"),
                         ("h2o", "h2o"), ("", "gates to train"), ("trimkv:accumulate=0", "accumulate"), ("trimkv:beta1=1.5", "beta1")):
        s.refused(f"method {method}", argv("bad.st", method=method), 2, word)
    s.refused("--length over the context", argv("bad.st", length=4096), 2, "--length", "2048")
    s.refused("--length 1", argv("bad.st", length=1), 2, "--length")
    for option, value in (("--steps", "0"), ("--share", "0"), ("--share", "1.1"), ("--packing", "tight"), ("--budgets", "0"), ("--budgets", "8,x"), ("-t", "0"), ("--save-every", "0")):
        s.refused(f"{option} {value}", argv("bad.st", option, value, check=2), 2, option)
    s.refused("no data", ["train", "-m", MODEL, "-o", s.path("bad.st")], 2, "--data")
    s.refused("no output", ["train", "-m", MODEL, "--data", TEXT], 2, "-o")
    s.refused("operand before data", ["train", TEXT, "-m", MODEL, "-o", s.path("bad.st")], 2, "--data")
    copy = s.file("copy.txt", read("text.txt"))
    for name, of in (("copy", copy), ("model", s.path("model.gguf"))):
        os.link(of, s.path(name + ".linked"))
        s.refused(f"-o over the {name}", argv(name + ".linked", data=(copy,)), 2, "overwrite")
    s.refused("--state over the data", argv("bad.st", "--state", copy, data=(copy,)), 2, "overwrite")
    s.refused("the state is the record", argv("bad.st", "--state", s.path("bad.st.log.jsonl")), 2, "record of the training")
    s.refused("the state is the gates", argv("bad.st", "--state", s.path("bad.st")), 2, "--state")
    s.check("the inputs are whole", read("copy.txt") == read("text.txt"))
    Gguf(layers=1).set("general.architecture", "gpt2").write(s.path("other.gguf"))
    s.refused("not a llama", ["train", "-m", s.path("other.gguf"), "--data", TEXT, "-o", s.path("bad.st"), "--check-every", "0"], 1, "gpt2")
    short = ["train", "-m", s.model(0), "--data", TEXT, "-o", s.path("bad.st"), "--length", "32"]
    s.refused("a context too short for checks", short, 2, "checks", "--check-every 0")
    nothing_left("bad settings", "bad.st")
    train("mine.st", method="trimkv:hidden=8", steps=1)
    other = Gguf(layers=2, seed=9).write(s.path("second.gguf"))
    s.refused("gates for another model", ["generate", "-m", other, "-q", "--raw", "-p", "x", "--method", "trimkv", "-B", "8", "--gates", s.path("mine.st")], 2, "mine.st", "model")


def bad_checkpoints():
    train("good.st", steps=3)
    good, state = s.path("good.st.state"), read("good.st.state")
    for what, data in (("cut", state[: len(state) // 2]), ("cut by a byte", state[:-1]), ("empty", b""), ("garbage", rng.randbytes(3000)), ("gates", read("good.st"))):
        s.file("good.st.state", data)
        s.refused(f"checkpoint: {what}", argv("good.st", steps=3), 1, "good.st.state")
    for at in rng.sample(range(len(state)), 25):
        bad = bytearray(state)
        bad[at] ^= 1 << rng.randrange(8)
        s.file("good.st.state", bytes(bad))
        r = s.run(argv("good.st", steps=3))
        s.check(f"checkpoint: bit of byte {at}", r.returncode in (1, 2) and r.stderr.count(b"\n") == 1 and b"good.st.state" in r.stderr, r.returncode, r.stderr)
    s.file("good.st.state", state)
    for word, how in (("steps", dict(steps=4)), ("lr", dict(steps=3, method=METHOD.replace("0.02", "0.03"))), ("length", dict(steps=3, length=64)),
                      ("method", dict(steps=3, method="dbtrimkv:hidden=8,bias=3,M=8,lr=0.02")),
                      ("net", dict(steps=3, method=METHOD.replace(":", ":net=rgkv,"))), ("data_packs", dict(steps=3, data=(LINES,)))):
        r = s.refused(f"checkpoint of another {word}", argv("good.st", **how), 2, "good.st.state", f'"{word}": ', "--fresh")
        s.check("the setting alone is named", len(r.stderr) < 420 + 2 * len(good), r.stderr)
    r = s.refused("checkpoint of another seed", argv("good.st", "--seed", "4", steps=3), 2, '"seed": 0', '"seed": 4')
    s.check("the checkpoint is as it was", read("good.st.state") == state)
    s.accepted("--fresh", argv("good.st", "--fresh", steps=4))


def no_numbers():
    """Diverging steps: one sentence; saved data stay."""
    wild = dict(method="trimkv:hidden=8,lr=10,clip=0,schedule=constant,deviation=10,beta1=0,beta2=0,decay=10", steps=600, length=64)
    s.refused("no number", argv("wild.st", "--warmup", "0", "--save-every", "1", **wild), 1, "finite", "lr", "clip")
    s.check("some steps were saved before", os.path.exists(s.path("wild.st.state")))
    if os.path.exists(s.path("wild.st.state")):
        before = result("wild.st")
        s.refused("no number again", argv("wild.st", "--warmup", "0", "--save-every", "1", **wild), 1, "finite")
        equal("the last checkpoint and gates stay", result("wild.st"), before)
        s.accepted("its gates are whole", ["trace", "info", s.path("wild.st")])


def full_disk():
    for what, check, limit in (("the checkpoint", 0, len(read("good.st.state")) - 100), ("the gates", 1, len(read("good.st")) - 10)):
        r = s.refused(f"no room for {what}", argv("full.st", "--fresh", *(("--check-docs", "1") if check else ()), check=check), 1, "full.st", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        left = [f for f in os.listdir(s.work.name) if f.startswith(".full.st") or f.endswith(".try")]
        kept = [x is not None for x in result("full.st")]
        s.check(f"no room for {what}: nothing half written is left", not left and kept == ([False] * 3 if check else [True, False, True]), left, kept, r.stderr)
        for name in (f for f in os.listdir(s.work.name) if f.startswith("full.st")):
            os.remove(s.path(name))
    s.refused("missing folder", argv("none/x.st"), 1, "none/x.st", "does not exist")
    os.mkdir(s.path("folder.st"))
    s.refused("-o is a device", ["train", "-m", MODEL, "--data", TEXT, "--steps", "1", "-o", "/dev/full"], 1, "/dev/full", "regular file")
    s.refused("-o is a folder", argv("folder.st"), 1, "folder.st", "directory")
    s.refused("state in a missing folder", argv("bad.st", "--state", s.path("none/x.state")), 1, "none/x.state", "does not exist")
    nothing_left("no place for the state", "bad.st")
    if os.geteuid() == 0:
        disk = s.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], stderr=subprocess.DEVNULL).returncode:
            print("skipped: a full tmpfs and a read-only folder (mount is not allowed)")
            return
        try:
            s.refused("a small disk", argv("disk/x.st"), 1, "disk/x.st", "space")
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            s.refused("a read-only folder", argv("disk/y.st"), 1, "disk/y.st", "read-only")
        finally:
            subprocess.run(["umount", disk])
    else:
        os.mkdir(s.path("closed"), 0o500)
        s.refused("a read-only folder", argv("closed/x.st"), 1, "closed/x.st", "Permission denied")


# ---- shipped gates

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "gates", "train.sh")
EXAMPLE = os.path.join(os.path.dirname(SCRIPT), "..", "examples", "train_gates.sh")


def shipped():
    """By name, and by default for a method and a model."""
    run = ["generate", "-m", MODEL, "-t", "1", "-q", "--raw", "-p", prose(30), "-n", "3", "-B", "16"]
    s.refused("none shipped", [*run, "--method", "trimkv"], 2, "trimkv", "retention", "kvfate train", "--gates")
    s.refused("no such name", [*run, "--method", "trimkv", "--gates", "tiny-trimkv"], 2, "tiny-trimkv", s.path("shipped"))
    for name in ("trimkv", "dbtrimkv", "wgkv"):
        shutil.copy(s.path(f"{name}-paper.safetensors"), s.path(f"shipped/tiny-{name}.safetensors"))
    by_name = s.accepted("by name", [*run, "--method", "trimkv", "--gates", "tiny-trimkv"])
    s.check("by name: nothing to note", not by_name.stderr, by_name.stderr)
    default = s.accepted("by default", [*run, "--method", "trimkv"])
    s.check("the same gates", by_name.stdout == default.stdout and b"note: --gates" in default.stderr and b"/tiny-trimkv." in default.stderr, default.stderr)
    for method, file in (("dbtrimkv", b"tiny-dbtrimkv."), ("wgkv", b"tiny-wgkv."), ("wgkv-snapkv", b"tiny-wgkv.")):
        r = s.accepted(f"{method} by default", [*(run[:-2] if method == "wgkv" else run), "--method", method])
        s.check(f"{method}: the gates of its name", file in r.stderr, r.stderr)
    s.refused("gates of another kind", [*run, "--method", "trimkv", "--gates", "tiny-wgkv"], 2, "tiny-wgkv", "retention")
    other = Gguf(layers=2, seed=9).write(s.path("second.gguf"))
    s.refused("another model", ["generate", "-m", other, *run[3:], "--method", "trimkv"], 2, "none are shipped for this method and model")
    os.rename(s.path("shipped/tiny-trimkv.safetensors"), s.path("shipped/tiny-0.5b-trimkv.safetensors"))
    dotted = s.accepted("a name with a dot", [*run, "--method", "trimkv", "--gates", "tiny-0.5b-trimkv"])
    s.check("a name with a dot: the same gates", dotted.stdout == by_name.stdout)
    listed = json.loads(s.accepted("models", ["models", MODEL, "--json"]).stdout)["gates"]
    s.check("models: the complete name", {"method": "trimkv", "name": "tiny-0.5b-trimkv", "shipped": True} in listed, listed)
    s.refused("a missing file", [*run, "--method", "trimkv", "--gates", "tiny.st"], 1, "tiny.st: cannot open")
    os.rename(s.path("shipped/tiny-0.5b-trimkv.safetensors"), s.path("shipped/tiny-trimkv.safetensors"))
    shutil.copy(s.path("wide.st"), s.path("shipped/alpha-trimkv.safetensors"))
    s.check("of several the first by name", b"/alpha-trimkv." in s.accepted("two", [*run, "--method", "trimkv"]).stderr)
    s.file("shipped/aa-trimkv.safetensors", b"damaged")
    s.check("damaged ones are passed over", b"/alpha-trimkv." in s.accepted("three", [*run, "--method", "trimkv"]).stderr)
    s.refused("gates of another model", [*run[:2], other, *run[3:], "--method", "trimkv", "--gates", "tiny-trimkv"], 2, "tiny-trimkv", "made for the model 'tiny random llama' with")
    r = s.accepted("eval", ["eval", "-m", MODEL, "-t", "1", "--data", TEXT, "--methods", "trimkv,dbtrimkv,wgkv,window", "--budgets", "16,20", "--docs", "2",
                            "--prompt-tokens", "40", "--score-tokens", "8", "-o", "-"])
    s.check("eval: rows of all", [sum(line.startswith(m + "\t") for line in r.stdout.decode().splitlines()) for m in ("trimkv", "dbtrimkv", "wgkv")] == [2, 2, 2], r.stdout)


def recipe():
    """The shipped recipe rejects test sets, by name and through links, and trains with other
    data."""
    env = {**os.environ, "KVFATE": "false", "KVFATE_MODEL": MODEL}  # here, no model is trained

    def script(*args, **more):
        return subprocess.run(["sh", SCRIPT, *args], env={**env, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)

    valid, questions = s.file("wikitext2-valid.txt", read("text.txt")), s.file("gsm8k-train.jsonl", read("lines.jsonl"))
    s.file("wikitext2-test.txt", read("text.txt"))
    s.file("GSM8K-Test.jsonl", read("lines.jsonl"))
    os.symlink(s.path("wikitext2-test.txt"), s.path("innocent.txt"))
    to = ("smollm2-135m", s.path("recipe"))
    for what, args in (("test text", (s.path("wikitext2-test.txt"), questions)), ("test questions", (valid, s.path("GSM8K-Test.jsonl"))), ("a link", (s.path("innocent.txt"), questions))):
        r = script(*to, "trimkv", *args)
        s.check(f"refuses {what}", r.returncode == 2 and b"test set" in r.stderr and r.stderr.count(b"\n") == 1 and not os.path.exists(s.path("recipe")), r.returncode, r.stderr)
    s.check("usage", script(*to, "trimkv").returncode == 2 and b"usage" in script(*to, "trimkv").stderr)
    s.check("missing file", script(*to, "trimkv", valid, s.path("none.jsonl")).returncode == 1)
    s.check("unknown method", script(*to, "trimkv,h2o", valid, questions).returncode == 2)
    texts = subprocess.run([sys.executable, os.path.join(os.path.dirname(SCRIPT), "texts.py"), questions, valid, s.path("texts")],
                           env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    s.check("texts.py rejects other files by their hash", texts.returncode == 1 and b"gsm8k-train.jsonl" in texts.stderr and b"SHA-256" in texts.stderr
            and texts.stderr.count(b"\n") == 1 and not os.path.exists(s.path("texts")), texts.stderr)
    # The arguments that it passes to the program, method by method.
    fake = s.file("fake", b'#!/bin/sh\nprintf "%s\\n" "$*" >> "$FAKE_LOG"\nfor last; do :; done\necho record > "$last.log.jsonl"\n')
    os.chmod(fake, 0o755)
    calls = []
    for model in ("smollm2-135m", "gemma-3-270m"):
        log = s.path(model + ".log")
        r = script(model, s.path("recipe"), "trimkv,dbtrimkv,wgkv", valid, valid, questions, KVFATE=fake, FAKE_LOG=log)
        calls += read(model + ".log").decode().splitlines()
        s.check(f"{model}: records", r.returncode == 0 and all(read(f"recipe/{model}-{m}.log.jsonl") == b"record\n" for m in ("trimkv", "dbtrimkv", "wgkv")), r.stderr)
    # The example makes no texts if they are there, and trains the two shipped files, or other ones.
    os.makedirs(s.path("made/texts"))
    for name in ("mathematics.jsonl", "encyclopedia.txt", "code.jsonl", "dialogue.jsonl"):
        s.file(f"made/texts/{name}", read("lines.jsonl"))
    for more, expected in (((), ["gemma-3-270m-trimkv", "qwen2.5-coder-0.5b-trimkv"]), (("a:dbtrimkv,wgkv", "b"), ["a-dbtrimkv", "a-wgkv", "b-trimkv"])):
        log = s.path(f"example-{len(more)}.log")
        r = subprocess.run(["sh", EXAMPLE, questions, valid, s.path("made"), *more], env={**env, "KVFATE": fake, "FAKE_LOG": log}, capture_output=True, timeout=120)
        lines = [line.split() for line in read(os.path.basename(log)).decode().splitlines()]
        s.check("the example's trainings", r.returncode == 0 and [os.path.basename(line[-1]) for line in lines] == [x + ".safetensors" for x in expected], r.stderr, lines)
        s.check("the example's texts", all(line[line.index("--data") + 1:line.index("--method")] == [s.path(f"made/texts/{n}") for n in
                ("mathematics.jsonl", "encyclopedia.txt", "code.jsonl", "dialogue.jsonl")] for line in lines), lines)
    r = subprocess.run(["sh", EXAMPLE, questions, valid, s.path("unmade")], env={**env, "KVFATE_PYTHON": sys.executable}, capture_output=True, timeout=120)
    s.check("the example: other questions are rejected", r.returncode == 1 and b"SHA-256" in r.stderr and not os.path.exists(s.path("unmade")), r.stderr)
    s.check("trainings", [c.split(" --method ")[1].split(":")[0] for c in calls] == 2 * ["trimkv", "dbtrimkv", "wgkv"], calls)
    s.check("checks in each file", ["--check-files" in c for c in calls] == [False] * 3 + [True] * 3, calls)
    for call in calls:
        data = call.split(" --data ")[1].split(" --method ")[0]
        s.check("these files alone, in nine tenths", set(data.split()) == {valid, questions} and " --share 0.9 " in call, call)
        words = call.split()
        i = words.index("--steps")
        words[i + 1] = "1"
        words[words.index("--check-every") + 1] = "0"
        words[words.index("--length") + 1] = "32"
        for option in ("--check-docs", "--budgets", "--patience"):  # options of checks, which are omitted here
            if option in words:
                del words[words.index(option):words.index(option) + 2]
        words = [w for w in words if w != "--check-files"]
        s.accepted("its settings are known", words)


def checked_files():
    """--check-files: the KL of each file is that of a training which is checked on this file only."""
    lines = s.file("lines-2.jsonl", read("lines.jsonl") * 20)
    how = dict(data=(TEXT, lines, TEXT), method="trimkv:hidden=4,lr=0,min-lr=0", steps=2, check=1)
    more = ("--check-docs", "1", "--budgets", "16,32", "--share", "0.6")
    train("each.st", "--check-files", *more, **how)
    found = [x for x in record("each.st") if "check" in x]
    alone = []
    for i, path in enumerate((TEXT, lines)):
        train(f"alone{i}.st", *more, **(how | {"data": (path,)}))
        alone.append([x["mean_kl"] for x in record(f"alone{i}.st") if "check" in x])
    s.check("the KL of each file", len(found) == 2 and [[x["kl_in_text"] for x in found], [x["kl_in_lines-2"] for x in found]] == alone, found, alone)
    s.check("the mean of both", all(abs(x["mean_kl"] - (x["kl_in_text"] + x["kl_in_lines-2"]) / 2) < 1e-7 for x in found), found)
    table = s.accepted("its table", ["train", "curves", s.path("each.st.log.jsonl"), "-o", "-"]).stdout.decode()
    s.check("a column of each file", all(name in table for name in ("kl_in_text", "kl_in_lines-2")), table[:300])
    os.mkdir(s.path("second"))
    shutil.copy(TEXT, s.path("second/text.txt"))
    s.refused("one name twice", argv("twice.st", "--check-files", data=(TEXT, s.path("second/text.txt")), check=1), 2, "--check-files", "second/text.txt", "same name")


def accumulated():
    """A step of two packs has the tokens of both and the mean of their losses."""
    train("two.st", method=METHOD + ",accumulate=2", steps=3, length=64)
    train("still.st", method=METHOD + ",lr=1e-9,min-lr=0", steps=2, length=64)
    first, one = record("two.st")[0], record("still.st")
    for key in ("loss", "fwkl", "ntp", "limit", "value"):
        mean = (one[0][key] + one[1][key]) / 2
        s.check(f"{key} of two packs a step", abs(first[key] - mean) <= 1e-5 * abs(mean), first[key], mean)
    table = json.loads(s.accepted("curves of two packs a step", ["train", "curves", s.path("two.st.log.jsonl"), "--json"]).stdout)
    s.check("tokens of two packs a step", table["data"]["tokens"] == [128, 256, 384], table["data"]["tokens"])


# ---- curves

def curves():
    s.refused("curves: no operand", ["train", "curves"], 2, "missing")
    s.refused("curves: missing", ["train", "curves", s.path("none.jsonl")], 1, "none.jsonl", "No such file")
    for what, data in (("empty", b""), ("not JSON", b"{\n"), ("other JSON", b'{"a": 1}\n'), ("backwards", b'{"step": 2, "loss": 1}\n{"step": 1, "loss": 1}\n'), ("no object", b"3\n")):
        s.refused(f"curves: {what}", ["train", "curves", s.file("bad.jsonl", data)], 1, "bad.jsonl")
    r = s.accepted("curves: a check alone", ["train", "curves", s.file("zero.jsonl", b'{"check": 0, "kl_16": 0.5, "mean_kl": 0.5}\n')])
    s.check("curves: no loss before the first step", b"nan" not in r.stdout and b"least KL of the checks 0.5000 at step 0" in r.stdout, r.stdout)
    log, early = s.path("whole.st.log.jsonl"), s.path("early.st.log.jsonl")
    table = json.loads(s.accepted("curves as JSON", ["train", "curves", log, early, "--json"]).stdout)
    data, rows = table["data"], record("whole.st")
    steps = [x for x in rows if "step" in x]
    found = {k: [v for v, name in zip(data[k], data["run"]) if name == "whole.st"] for k in data}
    s.check("a row for each step", found["step"] == [x["step"] for x in steps] and found["tokens"] == [64 * x["step"] for x in steps], found["step"][:3])
    for key in ("loss", "fwkl", "ntp", "limit", "value", "lr", "norm"):
        s.check(f"column {key}", found[key] == [x[key] for x in steps], found[key][:3])
    checks = {x["check"]: x for x in rows if "check" in x}
    for key in ("kl_16", "kl_32", "mean_kl"):
        s.check(f"column {key}", found[key] == [checks.get(t, {}).get(key) for t in found["step"]], key)
    s.check("two runs", sorted(set(data["run"])) == ["early.st", "whole.st"])
    for end in ("tsv", "csv", "json", "npz", "png", "svg", "pdf"):
        s.accepted(f"curves {end}", ["train", "curves", log, early, "-o", s.path("curves." + end)])
        first = read("curves." + end)
        s.accepted(f"curves {end}", ["train", "curves", log, early, "-o", s.path("curves." + end)])
        s.check(f"curves {end}: the same bytes", len(first) > 400 and read("curves." + end) == first)
    s.accepted("curves: style", ["train", "curves", log, "-o", s.path("c.svg"), "--style", "smooth=5,show=fwkl+ntp+kl_16", "--title", "A title"])
    s.check("all panels have names", all(k in read("c.svg") for k in (b"svg",)))
    s.refused("curves: unknown column", ["train", "curves", log, "-o", s.path("d.svg"), "--style", "show=run"], 2, "show=run")
    s.refused("curves: unknown style", ["train", "curves", log, "-o", s.path("d.svg"), "--style", "colour=red"], 2, "colour")
    s.refused("curves: name", ["train", "curves", log, "-o", s.path("d.gif")], 2, ".png")
    s.refused("curves: over its input", ["train", "curves", s.file("in.tsv", read("whole.st.log.jsonl")), "-o", s.path("in.tsv")], 2, "overwrite")
    nothing_left("curves", "d.")


for part in (no_negative_divergence, any_threads, any_stop, left_behind, kept_ids, kept_teacher, teacher_limit, learns, every_method, every_net, options, bad_data, bad_settings, bad_checkpoints, no_numbers, full_disk, shipped, recipe, checked_files, accumulated, curves):
    begin = time.monotonic()
    part()
    print(f"{part.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
s.finish()
