"""The tools of runs.py: makes models on demand, runs the program on prompts of random text, and measures its times and
the device's memory.
"""
import contextlib
import ctypes
import json
import os
import subprocess
import tempfile
import threading
import time

import make_model
from shapes import SHAPES, entry_bytes, parameters

ROOM = 100  # GiB of host memory for the caches of parallel sessions
POLL = 0.05  # seconds between two readings of the device's memory


class Failed(Exception):
    """A row that cannot be measured, with the reason."""


class NoTime(Failed):
    """A row that was not tried."""


# ---- the device's memory

class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Watch:
    """The bytes in use on device 0 by NVML, or None without this library."""

    def __init__(self):
        self.device = None
        with contextlib.suppress(OSError):
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            device = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0:
                self.device = device

    def used(self):
        m = Memory()
        if not self.device or self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(m)) != 0:
            return None
        return m.used

    def name(self):
        text = ctypes.create_string_buffer(96)
        if not self.device or self.nvml.nvmlDeviceGetName(self.device, text, len(text)) != 0:
            return None
        return text.value.decode()

    @contextlib.contextmanager
    def peak(self, told):
        """Set told["device"] to the peak of the bytes above the earlier use, or None if unknown."""
        before = self.used()
        over = threading.Event()
        told["device"] = None

        def look():
            most = before
            while not over.wait(POLL):
                most = max(most, self.used() or 0)
                told["device"] = most - before

        thread = threading.Thread(target=look, daemon=True)
        if before is not None:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if before is not None:
                thread.join()


# ---- runs

class Program:
    """`tiny` divides lengths and uses the tiny shape for a test run; `forced` names one shape for all rows; `chunk` is
    the program's default unless given.
    """

    def __init__(self, kvfate, models, device, limit, tiny=False, forced=None, chunk=None):
        self.kvfate, self.models, self.device, self.tiny = os.path.abspath(kvfate), models, device, tiny
        self.forced, self.chunk = "tiny" if tiny else forced, chunk
        self.end = time.monotonic() + limit
        self.watch = Watch()
        self.memory = []  # (run, seconds, reported seconds, bytes on the device, bytes by the formula) of each run
        os.makedirs(models, exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def shape(self, name):
        return SHAPES[self.forced or name]

    def tokens(self, n):
        return max(96, n // 256) if self.tiny else n

    def steps(self, n):
        return max(4, n // 128) if self.tiny else n

    def budget(self, n):
        return max(40, n // 32) if self.tiny else n

    def made(self, path, make):
        """Make a file in the models' folder.  It gets its name only when it is complete."""
        path = os.path.join(self.models, path)
        if not os.path.exists(path):
            make(path + ".part")
            os.rename(path + ".part", path)
        return path

    def model(self, shape):
        return self.made(shape.name + ".gguf", lambda path: make_model.model(shape, path))

    def gates(self, shape, method):
        return self.made(f"{shape.name}.{method}.safetensors", lambda path: make_model.gates(shape, method, path))

    def call(self, what, argv, limit):
        """Return standard output; the caller records the result in self.memory.  Raises Failed with the last lines of
        the errors.
        """
        limit = min(limit, self.left())
        if limit <= 0:
            raise NoTime("no time left")
        told, start = {}, time.monotonic()
        try:
            with self.watch.peak(told):
                r = subprocess.run([self.kvfate, *map(str, argv)], capture_output=True, timeout=limit, env={**os.environ, "KVFATE_CACHE": self.models}, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"{what}: not done after {limit:.0f} s") from None
        if r.returncode:
            lines = r.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {r.returncode}"]
            raise Failed(f"{what}: {'; '.join(lines[-2:])}")
        told["seconds"] = time.monotonic() - start
        return r.stdout.decode(), told

    def answers(self, what, shape, lines, method="full", budget=None, probes=None, together=1, limit=120, options=""):
        """Return the output of --json for each (tokens of a prompt, tokens of an answer). probes: probes to record."""
        row = method + (":" + options if options else "")
        caches = sum(tokens + n for tokens, n in lines) * entry_bytes(shape)
        if together > 1 and 1.05 * caches > ROOM << 30:
            raise Failed(f"{what}: caches of {caches / 1e9:.0f} GB, and the host may hold {ROOM} GiB")
        argv = ["run" if probes else "generate", "-m", self.model(shape), "--ignore-eos", "--together", together, "--room", ROOM, "--json", "-q", "--device", self.device,
                "--method", row]
        argv += (["-B", budget] if budget else []) + (["--chunk", self.chunk] if self.chunk else [])
        argv += ["--gates", self.gates(shape, method)] if method in make_model.LAYOUTS else []
        with tempfile.TemporaryDirectory(prefix="kvfate-runs-") as folder:
            prompts = os.path.join(folder, "prompts.jsonl")
            with open(prompts, "w", encoding="ascii") as f:
                for i, (tokens, n) in enumerate(lines):
                    f.write(json.dumps({"text": make_model.prompt(tokens, i), "n": n}) + "\n")
            argv += ["--jsonl", prompts, *(["--probes", probes, "-o", os.path.join(folder, "traces")] if probes else [])]
            out, told = self.call(what, argv, limit)
        said = [json.loads(x) for x in out.splitlines()]
        if len(said) != len(lines):
            raise Failed(f"{what}: {len(said)} answers to {len(lines)} prompts")
        busy = sum(x["prefill_seconds"] for x in said) + (said[-1]["decode_seconds"] if together > 1 else sum(x["decode_seconds"] for x in said))
        caches = [x["kv_bytes_peak"] for x in said]
        self.memory.append((what, told["seconds"], busy, told["device"], 2 * parameters(shape) + (sum(caches) if together > 1 else max(caches))))
        for x in said:
            x["device"] = told["device"]
        return said

    def training(self, what, shape, method, length, steps, limit):
        """Return the output of --json, with "device"."""
        with tempfile.TemporaryDirectory(prefix="kvfate-runs-") as folder:
            data = os.path.join(folder, "data.txt")
            with open(data, "w", encoding="ascii") as f:
                text = make_model.prompt(length * (steps + 2))
                f.write("\n".join(text[i:i + 79] for i in range(0, len(text), 79)) + "\n")
            argv = ["train", "-m", self.model(shape), "--data", data, "--method", method, "--length", length, "--steps", steps, "--warmup", 1, "--share", 1,
                    "--check-every", 0, "--save-every", 1 << 20, "--device", self.device, "--json", "-o", os.path.join(folder, "gates.safetensors")]
            out, told = self.call(what, argv, limit)
        said = json.loads(out.splitlines()[-1])
        said["device"] = told["device"]
        self.memory.append((what, told["seconds"], said["seconds"], told["device"], None))
        return said
