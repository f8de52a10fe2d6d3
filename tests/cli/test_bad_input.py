#!/usr/bin/env python3
"""Bad prompts, options, outputs and traces: one clear line, exit 1 (failed) or 2 (usage), no crash."""
import os
import random
import resource
import subprocess

from harness import Gguf, Suite

s = Suite()
MODEL = ["-m", s.model(0), "-t", "1", "-q"]
LIMIT = 512  # context of the tiny models
rng = random.Random(2)


def run(*more, prompt=("--raw", "-p", "the thing in there"), out="x.kvf"):
    return ["run", "--overwrite", *MODEL, "-n", "4", *prompt, *(["-o", s.path(out)] if out else []), *more]


def logits(*prompt):
    return ["generate", "--logits", "-m", s.model(0), "-t", "1", "-o", s.path("l.npy"), *prompt]


# ---- usage
s.refused("no such command", ["rnu"], 2, "rnu", "help")
s.refused("unknown option", run("--frobnicate"), 2, "--frobnicate", "-h")
s.refused("option without a value", ["run", "-m"], 2, "-m", "value")
s.refused("no prompt", run(prompt=()), 2, "no prompt", "-p")
s.refused("two prompts", run("-f", "x"), 2, "one of")
s.refused("no output", run(out=None), 2, "-o", "generate")
s.refused("operand", run("left", "over"), 2, "operands")
for option, value, word in (("-n", "-1", "0"), ("-n", "many", "whole number"), ("-n", "99999999999999999999", "-n"), ("-B", "0", "1"),
                            ("-B", "-4", "1"), ("-B", "1.5", "entries"), ("-t", "0", "1"), ("-t", "257", "256"), ("--chunk", "0", "1"),
                            ("--temp", "-1", "0"), ("--temp", "nan", "number"), ("--temp", "inf", "number"), ("--top-p", "0", "top-p"),
                            ("--top-p", "1.1", "1"), ("-c", "0", "1"), ("--kv-type", "q4", "f16"), ("--activations", "4", "8"), ("--activations", "8.0", "16"), ("-s", "-1", "0"), ("-s", "1e99", "whole")):
    s.refused(f"{option} {value}", run(option, value), 2, option, word)
for bits, more in ((b, m) for b in ("8", "16") for m in (("--exact",), ("--device", "cuda"), ("--device", "auto"))):
    s.refused(f"--activations {bits} {' '.join(more)}", run("--activations", bits, *more), 2, f"--activations {bits}", more[0])
for command, option, typed, meant in (("run", "--kv-type", "f33", "f32"), ("eval", "--kv-type", "fl16", "f16"), ("effect", "--kv-type", "auot", "auto"),
                                      ("saliency", "--loss", "nl", "nll"), ("train", "--packing", "runs", "run"), ("needle", "--haystack", "nose", "noise"),
                                      ("corpus", "--intervals", "non", "none")):
    s.refused(f"{command} {option} {typed}", [*s.words_of(command), *(["survival"] if command == "corpus" else []), option, typed], 2, option, f"did you mean '{meant}'?")
for method, word in (("h3o", "h2o"), ("", "no method"), (":", "no method"), ("h2o:", None), ("h2o:x=1", "'x'"), ("h2o:sinks", "sinks"), ("h2o:sinks=", "sinks"),
                     ("h2o:sinks=-1", "sinks"), ("h2o:sinks=1e9", "sinks"), ("h2o:sinks=1,", "key=value"), ("h2o:,", "key=value"), ("h2o:=1", "key=value"),
                     ("h2o:sinks=4,recent=30", "do not fit"), ("window:recent=40", "do not fit"), ("window:sinks=33", "do not fit"),
                     ("snapkv:window=0", "window"), ("snapkv:window=5000", "window"), ("snapkv:pool=2", "pool"), ("snapkv:pool=1025", "pool"),
                     ("snapkv:pool-kind=min", "min"), ("snapkv:group=median", "median"), ("h2o:" + "k" * 100 + "=1", "key=value"), ("m" * 300, "no method")):
    argv = run("--method", method, "-B", "32")
    s.refused(f"method {method[:30]!r}", argv, 2, "--method", word) if word else s.survives(f"method {method}", argv)
s.refused("a method without a budget", run("--method", "h2o"), 2, "--budget")
s.refused("unknown probe", run("--probes", "evict,everything"), 2, "everything", "paper")
s.refused("empty probes", run("--probes", "evict,"), 2, "--probes")
s.accepted("budget over the length", run("--method", "h2o", "-B", "4000"))
s.accepted("budget of 1", run("--method", "h2o", "-B", "1"))
s.accepted("no tokens asked for", run("-n", "0"))

# ---- prompts
text = s.path("prompt.txt")
s.refused("prompt file missing", run(prompt=("--raw", "-f", s.path("none.txt"))), 1, "none.txt", "No such file")
s.refused("prompt is a folder", run(prompt=("--raw", "-f", s.work.name)), 1, s.work.name)
s.refused("empty prompt", run(prompt=("--raw", "-p", "")), 2, "prompt is empty")
s.refused("empty prompt file", run(prompt=("--raw", "-f", s.file("empty.txt", b""))), 2, "prompt is empty")
s.refused("empty stdin", run(prompt=("--raw", "-f", "-")), 2, "prompt is empty")
s.refused("too long", run(prompt=("--raw", "-f", s.file("long.txt", b"\xff" * 600))), 1, "600 tokens", str(LIMIT))
s.refused("too long for -c", run("-c", "10", prompt=("--raw", "-f", s.file("long.txt", b"\xff" * 60))), 1, "60 tokens", "10", "-c")
s.refused("over the limit of bytes", ["generate", *MODEL, "--raw", "-f", "/dev/zero"], 1, "/dev/zero", "64 MiB")
s.refused("NUL in a chat prompt", run(prompt=("-f", s.file("nul.txt", b"a\0b"))), 1, "NUL", "--raw")
s.accepted("NUL in a raw prompt", run(prompt=("--raw", "-f", s.path("nul.txt"))))
s.accepted("exactly the context", run(prompt=("--raw", "-f", s.file("full.txt", b"\xff" * LIMIT))))
words = Gguf().get("tokenizer.ggml.tokens")
few = Gguf().set("tokenizer.ggml.tokens", ["<no byte>" if w == chr(0xff) else w for w in words]).write(s.path("few.gguf"))
for command in (["generate", "-n", "1"], ["tokenize"]):
    for raw in (["--raw"], []):
        s.refused("a byte without a token", [*command, "-m", few, *raw, "-f", s.file("byte.txt", b"ab\xfec\xff\n")], 1, "byte 4", "0xff", "not UTF-8")
s.accepted("bytes with tokens", ["tokenize", "-m", few, "--raw", "-f", s.file("byte.txt", b"ab\xfec\xc3\n")])
s.accepted("invalid UTF-8", run(prompt=("--raw", "-p", b"\xff\xfe\x80 \xe2\x82 \xed\xa0\x80 \xf8")))
s.accepted("any bytes", run(prompt=("--raw", "-f", s.file("bytes.txt", bytes(range(256))))))
a = s.accepted("prompt from stdin", ["generate", *MODEL, "--raw", "-f", "-", "-n", "3"], input=b"the thing")
b = s.accepted("the same prompt", ["generate", *MODEL, "--raw", "-p", "the thing", "-n", "3"])
s.check("stdin and -p agree", a.stdout == b.stdout and len(a.stdout) > 1)
for name, ids, word in (("words", b"one two", "id 0"), ("too large", b"1 2 300", "id 2"), ("huge", b"99999999999999999999999", "id 0"), ("negative", b"-1", "id 0"),
                        ("comma", b"1,2", "id 1"), ("decimal", b"1.0", "id 1"), ("bytes", b"\xff\0", "id 0"), ("sign", b"5 +6", "id 1")):
    s.refused(f"ids: {name}", run(prompt=("--ids", s.file("ids.txt", ids))), 1, "ids.txt", word)
s.refused("ids: none", run(prompt=("--ids", s.file("ids.txt", b" \n"))), 2, "prompt is empty")
s.accepted("ids: fine", run(prompt=("--ids", s.file("ids.txt", b"1 2\n299\t0\r\n"))))
for name, chat in (("empty", b""), ("not JSON", b"[{]"), ("object", b'{"role":"user","content":"x"}'), ("no messages", b"[]"), ("number", b"[1]"),
                   ("no content", b'[{"role":"user"}]'), ("content is a number", b'[{"role":"user","content":5}]'), ("a role too many", b'[{"role":"a","role":"b","content":""}]'),
                   ("bad UTF-8", b'[{"role":"user","content":"\xff"}]'), ("text behind", b'[{"role":"user","content":"x"}] y'), ("deep", b"[" * 100000),
                   ("many", b"[" + b",".join([b'{"role":"user","content":"x"}'] * 1100) + b"]")):
    s.refused(f"chat: {name}", run(prompt=("--chat", s.file("chat.json", chat))), 1, "chat.json")
s.accepted("chat: fine", run(prompt=("--chat", s.file("chat.json", '[{"role":"user","content":"h\u00e9 in it"}]'.encode()))))

# ---- outputs
folder = s.path("folder")
os.mkdir(folder)
s.refused("folder of the output is missing", run("-o", s.path("none/x.kvf"), out=None), 1, "none/x.kvf", "does not exist", "mkdir")
s.refused("nothing is said of a recording that does not begin", [a for a in run("-o", s.path("none/x.kvf"), out=None) if a != "-q"],
          1, "none/x.kvf")
s.refused("output is a folder", run("-o", folder, out=None), 1, folder, "directory")
s.refused("output is /dev/full", run("-o", "/dev/full", out=None), 1, "/dev/full", "regular file")
s.check("/dev/full is still there", os.path.exists("/dev/full"))
s.refused("output name too long", run("-o", s.path("x" * 300), out=None), 1, "name too long")
for i in ("x.npy", ):
    s.refused("logits into a missing folder", ["generate", "--logits", "-m", s.model(0), "--raw", "-p", "x", "-o", s.path("none/" + i)], 1, "none/" + i)
s.refused("logits to /dev/full", ["generate", "--logits", "-m", s.model(0), "--raw", "-p", "x", "-o", "/dev/full"], 1, "/dev/full", "No space")
copy = s.file("model", open(s.model(0), "rb").read())
s.refused("output over the model", ["run", "--overwrite", "-m", copy, "--raw", "-p", "x", "-q", "-o", copy], 2, "overwrite", copy)
os.link(copy, s.path("linked.kvf"))
s.refused("output over a link to the model", ["run", "--overwrite", "-m", copy, "--raw", "-p", "x", "-q", "-o", s.path("linked.kvf")], 2, "overwrite")
os.link(s.path("bytes.txt"), s.path("bytes"))
s.refused("output over the prompt", ["run", "--overwrite", *MODEL, "--raw", "-f", s.path("bytes"), "-o", s.path("bytes")], 2, "overwrite")
s.check("the inputs are whole", os.path.getsize(copy) == os.path.getsize(s.model(0)) and os.path.getsize(s.path("bytes.txt")) == 256)
if os.geteuid() != 0:
    os.chmod(folder, 0o500)
    s.refused("folder without permission", run("-o", os.path.join(folder, "x.kvf"), out=None), 1, "Permission denied")
    os.chmod(folder, 0o700)


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))


LONG = ("-n", "400", "--ignore-eos", "--method", "h2o", "-B", "16", "--probes", "full")
s.refused("the disk is full", run(*LONG, out="full.kvf"), 1, "full.kvf", preexec_fn=small_files)
s.check("the file keeps its limit", os.path.getsize(s.path("full.kvf.unfinished")) <= 20000 and not os.path.exists(s.path("full.kvf")))
r = s.run(["trace", "verify", "--full", s.path("full.kvf")])
s.check("what was written before the disk was full is whole", r.returncode in (0, 3), r.returncode, r.stderr)
disk = s.path("disk")
os.mkdir(disk)
if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", disk], stderr=subprocess.DEVNULL).returncode == 0:
    try:
        s.refused("a small disk is full", run(*LONG, "-o", os.path.join(disk, "x.kvf"), out=None), 1, "x.kvf")
        r = s.run(["trace", "verify", "--full", os.path.join(disk, "x.kvf")])
        s.check("what a small disk held is whole", r.returncode in (0, 3), r.returncode, r.stderr)
        try:
            s.file("disk/filler", b"x" * 65536)
        except OSError:
            pass
        s.survives("a table on a full disk", ["tokens", s.path("x.kvf"), "-o", os.path.join(disk, "t.tsv")], (0, 1))
    finally:
        subprocess.run(["umount", disk])
else:
    print("skipped: a full tmpfs (needs root and mount)")

# ---- standard output
with open("/dev/full", "wb") as full:
    for argv in (run(), ["generate", *MODEL, "--raw", "-p", "x", "-n", "3"], ["methods"], ["list", "figures"], ["--version"], ["help"], run("--json"),
                 ["trace", "info", s.path("x.kvf")], ["trace", "verify", s.path("x.kvf")], ["tokens", s.path("x.kvf")], ["tokens", s.path("x.kvf"), "-o", "-"],
                 ["eviction", s.path("x.kvf"), "--json"]):
        r = s.run(argv, stdout=full)
        s.check(f"full stdout: {argv[0]}", r.returncode == 1 and b"standard output" in r.stderr and r.stderr.count(b"\n") == 1, argv, r.returncode, r.stderr)
for argv in (run(out="closed.kvf"), ["generate", *MODEL, "--raw", "-p", "x", "-n", "3"], ["methods"], ["tokens", s.path("x.kvf"), "-o", "-"]):
    r = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", s.exe, *argv], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    s.check(f"closed stdout: {argv[0]}", r.returncode == 1 and b"standard output" in r.stderr, r.returncode, r.stderr)
s.check("a closed stdout leaves the trace whole", s.run(["trace", "verify", "--full", s.path("closed.kvf")]).returncode == 0)
for streams in ("<&-", "2>&-", "<&- >&- 2>&-"):
    subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", s.exe, *run(out="streams.kvf")], stdout=subprocess.DEVNULL)
    s.check(f"{streams} leaves the trace whole", s.run(["trace", "verify", "--full", s.path("streams.kvf")]).returncode == 0)
head = subprocess.run(f"{s.exe} generate -m {s.model(0)} -q --raw -p x -n 400 --ignore-eos | head -c 5 | wc -c", shell=True, stdout=subprocess.PIPE)
s.check("a closed pipe ends quietly", head.stdout.strip() == b"5")

# ---- traces
s.accepted("a trace", run("-n", "100", "--ignore-eos", "--method", "h2o", "-B", "24", out="good.kvf"))
trace = open(s.path("good.kvf"), "rb").read()
READERS = ["info", "verify", "eviction", "retention", "sparsity", "survival", "occupancy", "tokens"]
for reader in READERS:
    s.refused(f"{reader}: no operand", s.words_of(reader), 2, "missing")
    s.refused(f"{reader}: missing", [*s.words_of(reader), s.path("none.kvf")], 1, "none.kvf", "No such file")
    s.refused(f"{reader}: folder", [*s.words_of(reader), folder], 1, folder)
    s.refused(f"{reader}: device", [*s.words_of(reader), "/dev/zero"], 1, "regular file")
    s.refused(f"{reader}: empty", [*s.words_of(reader), s.file("bad.kvf", b"")], 1, "bad.kvf", "not a kvfate trace")
    s.refused(f"{reader}: a model", [*s.words_of(reader), s.model(0)], 1, "not a kvfate trace")
    s.refused(f"{reader}: garbage", [*s.words_of(reader), s.file("bad.kvf", rng.randbytes(5000))], 1, "not a kvfate trace")
    for n in (8, 63, 64, 100, 200, 4096, *rng.sample(range(len(trace)), 12), len(trace) - 1):
        s.survives(f"{reader}: cut at {n}", [*s.words_of(reader), s.file("bad.kvf", trace[:n])], (0, 1, 3))
    for i in range(20):
        data = bytearray(trace)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        s.survives(f"{reader}: wrong bytes {i}", [*s.words_of(reader), s.file("bad.kvf", bytes(data))], (0, 1, 3))
GOOD = s.path("good.kvf")
for option, value, word in (("-o", "x.xyz", ".tsv"), ("-o", "x", ".tsv"), ("--tokens", "5", "A:B"), ("--tokens", "a:b", "A:B"), ("--tokens", "3:x", "A:B"),
                            ("--tokens", "0:5x", "A:B"), ("--tokens", "-1:5", "A:B"), ("--size", "3", "WxH"), ("--size", "10x10mm", "WxH"), ("--size", "0x5", "WxH"),
                            ("--size", "1e9x1e9", "WxH"), ("--size", "nanxnan", "WxH"), ("--dpi", "5", "20"), ("--figure", "pie", "pie"), ("--vmin", "x", "number"),
                            ("--head", "Q1", "head"), ("--head", "L99K0", "head"), ("--head", "", "head"), ("--head", "L0K", "head")):
    s.refused(f"{option} {value}", ["eviction", GOOD, option, value], 2, option if option != "--head" else "head", word)
s.refused("colour map", ["eviction", GOOD, "--cmap", "jet", "-o", s.path("f.png")], 2, "--cmap", "viridis")
for value in ("900:950", "0:950", ":950", "900:"):  # a range is never cut short
    s.refused(f"tokens beyond the end, {value}", ["tokens", GOOD, "--tokens", value], 2, f"{GOOD} has the tokens 0 to")
    s.refused(f"steps beyond the end, {value}", ["eviction", GOOD, "--style", "steps=" + value, "-o", s.path("f.png")], 2, "--style", "steps 0 to")
TOKENS = sum(not line.startswith(b"#") for line in s.accepted("its tokens", ["tokens", GOOD, "-o", "-"]).stdout.splitlines()) - 1
for words in (*map(s.words_of, READERS[2:]), ["where"], ["where", "--as", "runs"], ["fates"], ["size", "--as", "kv-size"]):
    for value, word in (("5:5", "the range has no tokens"), (":0", "the range has no tokens"), (f"{TOKENS}:", f"{GOOD} has the tokens 0 to {TOKENS - 1}")):
        s.refused(f"{' '.join(words)}: no tokens, {value}", [*words, GOOD, "--tokens", value], 2, "--tokens", word)
s.refused("no steps", ["eviction", GOOD, "--style", "steps=5:5", "-o", s.path("f.png")], 2, "--style", "the range has no steps")
for value, word in (("L0-40K0", "layer 40"), ("L40K0", "layer 40"), ("L0K0,L40K*", "layer 40"), ("L0K0-99", "head 99"), ("*.99", "head 99")):
    s.refused(f"heads that are not there, {value}", ["eviction", GOOD, "--head", value], 2, "--head", word, "0 to")
for argv in (["report", GOOD, "-o", s.path("f.html")], ["trace", "trim", GOOD, "-o", s.path("f.kvf")], ["trace", "plan", GOOD, "-o", s.path("f.kvf")],
             ["trace", "diff", "--first", GOOD, GOOD], ["ablate", "-m", s.model(), "-p", "ab", "--recent", "1"], ["ablate", "--as", "saliency", "-m", s.model(), "-p", "ab"]):
    s.refused(f"{argv[0]} of heads that are not there", [*argv, "--head", "L0-40K0"], 2, "--head", "layer 40", "0 to")
for option, value in (("--probes", "raw:L0-40K0"), ("--watch", "0@L0-40H0"), ("--watch-queries", "L0-40H0"), ("--override", "L0-40K0=window:budget=4")):
    s.refused(f"{option} of heads that are not there", ["run", "-m", s.model(), "--raw", "-p", "ab", "--method", "window", "-B", "4", option, value, "-o", s.path("f.kvf")], 2, option, "layer 40", "0 to")
for ext in ("tsv", "csv", "json", "npz", "png", "svg", "pdf"):
    s.refused(f"{ext} into a missing folder", ["eviction", GOOD, "-o", s.path("none/x." + ext)], 1, "none/x." + ext, "does not exist", "mkdir")
    os.makedirs(s.path("taken." + ext))
    s.refused(f"{ext} onto a folder", ["eviction", GOOD, "-o", s.path("taken." + ext)], 1, "taken." + ext)
    r = s.run(["eviction", GOOD, "-o", s.path("big." + ext)], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)))
    s.check(f"{ext} on a full disk", r.returncode == 1 and r.stderr.count(b"\n") == 1 and not os.path.exists(s.path("big." + ext)), r.returncode, r.stderr)
s.check("no partial files are left", not [f for f in os.listdir(s.work.name) if f.endswith((".part", ".lock"))], os.listdir(s.work.name))
s.finish()
