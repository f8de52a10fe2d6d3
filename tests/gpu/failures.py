#!/usr/bin/env python3
"""The program with a device that is unusable, full, or lost: one sentence, status 1, and no loss of
work.

usage: failures.py KVFATE FOLDER_OF_TINY_MODELS [TOOLS]

TOOLS is the folder of hold, liblose.so and libdriver.so, which make a device of this machine fail.
Without it KVFATE runs on an emulated device. Parts that need a device are skipped without one. Each
part ends with a row of a table."""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cuda")]
import levers  # noqa: E402
from device_runs import LIMIT, TEXT, check, environment, expect, judged, losses, path, read, run, told, train_data, work  # noqa: E402

KVFATE, MODELS = map(os.path.abspath, sys.argv[1:3])
MODEL = os.path.join(MODELS, "tiny4.gguf")
PROMPT = ["-m", MODEL, "--raw", "-p", TEXT * 4]
BLOCK = 1024  # tokens between writes of a trace
FIRST = 4096  # bytes: a longer trace has its first block
MIB = 1 << 20


def on_device(argv, env=None, **more):
    return run(KVFATE, [*argv, "--device", "cuda"], lever.env if env is None else env, **more)


# ---- unusable devices

def cannot_be_used():
    seen = []
    out = path("none.npy")
    for what, words in (("driver", ["no NVIDIA driver"]), ("recent driver", ["too old", "CUDA 12.4"]), ("device", ["no device"]), ("bf16", ["7.0", "bf16"])):
        env = lever.without(what)
        if not isinstance(env, str) and lever.name == "real" and what == "bf16" and b"bf16" not in run(KVFATE, ["list", "devices", "--json"], env).stdout:
            env = "the run time does not ask the driver where it can be lied to"
        if isinstance(env, str):
            seen.append(f"no {what}: SKIPPED ({env})")
            continue
        for argv in (["generate", "--logits", *PROMPT, "-o", out], ["ablate", "--as", "saliency", *PROMPT]):
            told(f"no {what}: {argv[0]}", on_device(argv, env), "--device cpu", *words)
        seen.append(f"no {what}")
    expect(not os.path.exists(out), "a failure leaves no file")
    r = run(KVFATE, ["generate", "--logits", *PROMPT, "-o", out, "--device", "auto"], lever.without("driver"))
    expect(r.returncode == 0 and "takes the processor: there is no NVIDIA driver" in r.said, "auto without a driver", r.said)
    return ", ".join(seen)


# ---- little memory

KINDS = {"cannot be used": "the device", "room for the weights": "weights", "room for a session": "a session", "of a prompt at once": "a prompt",
         "bytes of the cache": "pages", "memory on the device for the derivatives": "derivatives", "room for derivatives": "a pass", "out of memory": "kernels"}


def kind_of(name, argv, out, free, whole):
    """Returns which allocation failed with this much memory, from the message; "" if all succeeded
    and the answer equals that with all memory."""
    lever.leave(free)
    r = on_device([*argv, "-o", out])
    lever.leave(None)
    if r.returncode == 0:
        expect(whole is None or read(out) == whole, f"{name}: another answer with {free} bytes")
        return ""
    told(f"{name} with {free} bytes", r)
    kind = next((kind for words, kind in KINDS.items() if words in r.said), None)
    expect(kind, f"{name} with {free} bytes: it does not say what has no room", r.said)
    expect(not os.path.exists(out), f"{name} with {free} bytes: a failure leaves no file")
    return kind


def edges(name, argv, out, grain, wanted):
    """Finds each amount of memory at which a different allocation fails, from none to enough."""
    out = path(out)

    def look(free):
        kind = kind_of(name, argv, out, free, whole)
        if os.path.exists(out):
            os.remove(out)
        return kind

    whole = None
    expect(kind_of(name, argv, out, None, None) == "", f"{name} with all memory")
    whole = read(out)
    os.remove(out)
    enough = lever.room
    seen = {0: look(0), enough: look(enough)}
    while seen[enough] and enough < lever.most:
        enough *= 2
        seen[enough] = look(enough)
    todo = [(0, enough)]
    while todo:
        a, b = todo.pop()
        if seen[a] != seen[b] and b - a > grain:
            seen[(a + b) // 2] = look((a + b) // 2)
            todo += [(a, (a + b) // 2), ((a + b) // 2, b)]
    expect(not seen[enough], f"{name}: there was never enough memory", seen)
    expect(wanted <= set(seen.values()), f"{name}: what had no room", wanted, seen)
    return {kind: free for free, kind in sorted(seen.items()) if kind}


def described(name, most):
    return f"{name}: " + ", ".join(f"{kind} up to {free / MIB:.1f} MiB" for kind, free in most.items())


def run_without_a_session(argv, free):
    """The command can be repeated unchanged: no trace blocks it."""
    lever.leave(free)
    r = on_device(["run", *argv, "-n", 1, "-q", "-o", path("x.kvf")])
    lever.leave(None)
    told("run without room for a session", r, "room for a session")
    expect(not any(x.startswith("x.kvf") for x in os.listdir(work.name)), "a trace without a token is left", os.listdir(work.name))


def little_memory():
    """With a model whose weights can exceed the device's memory."""
    model, text = MODEL, "She sells."
    if lever.name == "real":
        model, text = path("large.gguf"), TEXT * 36
        made = subprocess.run([sys.executable, os.path.join(HERE, "..", "..", "bench", "gpu", "make_model.py"), "SmolLM2-135M", model],
                              capture_output=True, text=True)
        if made.returncode:
            return "SKIPPED: no model could be made: " + made.stderr.strip().split("\n")[-1]
    argv = ["-m", model, "--raw", "--exact", "-p"]
    logits = edges("logits", ["generate", "--logits", *argv, text], "x.npy", lever.grain, {"weights", "a session"})
    run_without_a_session([*argv, text], logits.get("a session"))
    saliency = edges("saliency", ["ablate", "--as", "saliency", *argv, "She sells."], "x.tsv", lever.grain,
                     {"derivatives", "a pass"} if model == MODEL else {"derivatives"})
    return described("logits", logits) + "; " + described("saliency", saliency)


# ---- failures during the work

def broken(argv, reached, fail):
    """Stops a program as soon as it has reached a state, until the device has failed."""
    argv = [*map(str, argv), "--device", "cuda"]
    p = subprocess.Popen([KVFATE, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(lever.env))
    try:
        end = time.monotonic() + LIMIT
        while p.poll() is None and not reached() and time.monotonic() < end:
            time.sleep(0.0005)
        expect(p.poll() is None and reached(), f"{argv[0]}: it ended before the device could fail")
        p.send_signal(signal.SIGSTOP)
        fail()
        p.send_signal(signal.SIGCONT)
        _, err = p.communicate(timeout=LIMIT)
    finally:
        p.kill()
        p.wait()
    return judged(subprocess.CompletedProcess(argv, p.returncode, b"", err), argv)


def sentence(r):
    return r.said.strip().replace(work.name + os.sep, "")


def size(name):
    return os.path.getsize(name) if os.path.exists(name) else 0


def tokens_kept(name, trace):
    r = run(KVFATE, ["trace", "info", trace, "--json"])
    kept = json.loads(r.stdout or "{}").get("steps", 0)
    expect(r.returncode == 3 and BLOCK <= kept < BLOCK + lever.tokens, f"{name}: what is kept can be read, as a trace that was not closed", r.returncode, r.said, kept)
    return kept


def run_is_kept(name, argv, fail, mend, *words):
    """The data recorded so far begin a trace that ends with the bytes of one run."""
    argv = ["run", "-m", MODEL, "--raw", "--rope-scale", "linear:64", "-n", lever.tokens, "--ignore-eos", "--exact", "--probes", "lean", "-q", *argv, "-o"]
    backend = "cpu" if lever.name == "emulated" else "cuda"  # the bytes of "cpu" equal those of the emulated device, and it is faster there
    out, whole = path(f"{name}.kvf"), path(f"{name}-whole.kvf")
    r = run(KVFATE, [*argv, whole, "--device", backend])
    expect(r.returncode == 0, f"{name}: undisturbed", r.said)
    r = broken([*argv, out], lambda: size(out + ".unfinished") > FIRST, fail)
    mend()
    told(name, r, "--resume", *words)
    if not expect(os.path.exists(out + ".unfinished") and not os.path.exists(out), f"{name}: the trace is kept", os.listdir(work.name)):
        return sentence(r)
    kept = tokens_kept(name, out)
    if backend == "cuda" and "window" in argv:  # a full cache takes long on the CPU
        other = path(f"{name}-other.kvf")
        shutil.copy(out + ".unfinished", other + ".unfinished")
        r2 = run(KVFATE, [*argv, other, "--resume", "--device", "cpu"])
        expect(r2.returncode == 0, f"{name}: the processor goes on with it, too", r2.returncode, r2.said)
    again = run(KVFATE, [*argv, out, "--resume", "--device", backend])
    expect(again.returncode == 0 and read(out) == read(whole), f"{name}: resumed it has the bytes of one run", again.returncode, again.said)
    return f"\"{sentence(r)}\"; {kept} tokens kept, resumed to the bytes of one run"


def lost_run():
    return run_is_kept("lost", ["-p", TEXT * 36, "--method", "window", "-B", 24], lever.lose, lever.mend, "failed: ")


def full_run():
    return run_is_kept("full", ["-p", TEXT * 27, "--method", "full"], lambda: lever.leave(0), lambda: lever.leave(None), "device memory")


def training_is_kept(name, argv, out):
    """The training continues from the checkpoint of the last step, with the bytes of one
    training."""
    argv = [*argv, "-m", MODEL, "--data", train_data(), "--length", 24, "-t", 1, "--check-every", 0, "--save-every", 1, "--steps", lever.steps, "--exact", "-o"]
    lost, whole = path(f"lost-{out}"), path(f"whole-{out}")
    expect(on_device([*argv, whole]).returncode == 0, f"{name}: undisturbed")
    r = broken([*argv, lost], lambda: os.path.exists(lost + ".state"), lever.lose)
    lever.mend()
    expect(r.returncode == 1 and r.said.count("failed: ") == 1, f"{name}: a lost device", r.returncode, r.said)
    expect(os.path.exists(lost + ".state") and 0 < len(losses(lost)[0]) < lever.steps, f"{name}: the steps before were kept", os.listdir(work.name))
    r = run(KVFATE, [*argv[:argv.index("--exact")], "-o", lost])
    expect(r.returncode == 2 and "computed" in r.said, f"{name}: the processor does not go on with it", r.returncode, r.said)
    r = on_device([*argv, lost])
    expect(r.returncode == 0 and read(lost) == read(whole), f"{name}: taken up it has the bytes of one training", r.said)
    return name


def lost_training():
    window = ["tune", "--method", "window", "-B", 16]
    return ", ".join((training_is_kept("train", ["train", "--method", "trimkv:M=8,lr=1e-2"], "g.safetensors"),
                      training_is_kept("tune", [*window, "--lr", "1e-3"], "m.gguf"),
                      training_is_kept("tune --rank", [*window, "--rank", 2, "--lr", "1e-2"], "a.safetensors"))) + ": taken up to the bytes of one training"


def full_disk():
    out = path("disk.kvf")
    small = (FIRST, FIRST)
    r = on_device(["run", "-m", MODEL, "--raw", "--rope-scale", "linear:64", "-p", TEXT * 36, "-n", 40, "--ignore-eos", "--method", "window", "-B", 24,
                   "--probes", "lean", "-q", "-o", out], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small))
    r.stdout = b""  # the answer
    told("a full disk", r, "disk.kvf", "no space")
    return f"\"{sentence(r)}\""


def tell(part, function):
    before, begin = check.failures, time.monotonic()
    try:
        seen = "SKIPPED: " + lever.missing if lever.missing and function != cannot_be_used else function()
    except subprocess.TimeoutExpired as e:
        seen = f"{e.cmd[1]} had no end after {LIMIT} s"
        expect(False, part, seen)
    except (OSError, ValueError) as e:
        seen = str(e)
        expect(False, part, seen)
    bad = check.failures - before
    print(f"| failures: {part} | {f'FAILED ({bad} checks): ' if bad else ''}{seen}, {time.monotonic() - begin:.0f} s |", flush=True)


lever = levers.Real(work.name, os.path.abspath(sys.argv[3])) if len(sys.argv) > 3 else levers.Emulated(work.name)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the child processes
try:
    tell("a device that cannot be used", cannot_be_used)
    tell("a run whose device is lost", lost_run)
    tell("a run whose device is full", full_run)
    tell("trainings whose device is lost", lost_training)
    tell("a full disk", full_disk)
    tell("little memory", little_memory)
finally:
    lever.close()
check.finish()
