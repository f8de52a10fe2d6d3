"""Makes a device fail: an emulated one by KVF_EMULATED, one of this machine by the tools in TOOLS.

Both have the same functions. `env` is the environment for programs that they affect. `leave` leaves
only this many bytes of the device free (None: all), `lose` loses it during a program, and `mend`
undoes that. `without` is the environment without a driver and similar cases; a message if that is
not possible."""
import contextlib
import os
import subprocess


class Emulated:
    name = "emulated"
    grain, room, most = 1 << 13, 1 << 22, 1 << 26  # bytes: precision, capacity and maximum of the search for memory limits
    tokens, steps = 500, 3  # of a run and a training that take long after the point of failure
    missing = None

    def __init__(self, folder):
        self.memory, self.loss = (os.path.join(folder, name) for name in ("memory", "lost"))
        self.env = {"KVF_EMULATED": f"memory={self.memory},lost={self.loss}"}

    def without(self, what):
        return {"KVF_EMULATED": {"driver": "driver=0", "recent driver": "driver=12040", "device": "devices=0", "bf16": "major=7"}[what]}

    def leave(self, n):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.memory)
        if n is not None:
            write(self.memory, n)

    def lose(self):
        write(self.loss, 0)

    def mend(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.loss)

    def close(self):
        pass


class Real:
    name = "real"
    grain, room, most = 1 << 24, 1 << 31, 1 << 35
    tokens, steps = 20000, 60

    def __init__(self, folder, tools):
        self.folder, self.tools, self.loss = folder, tools, os.path.join(folder, "lost")
        self.env = {"LD_PRELOAD": os.path.join(tools, "liblose.so"), "KVF_LOSE": self.loss}
        self.holder = subprocess.Popen([os.path.join(tools, "hold")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.missing = None if self.leave(None) else self.holder.stderr.readline().strip()

    def without(self, what):
        first = os.path.join(self.folder, "driver")
        os.makedirs(first, exist_ok=True)
        library = os.path.join(first, "libcuda.so.1")
        with contextlib.suppress(FileNotFoundError):
            os.remove(library)
        env = {"LD_LIBRARY_PATH": ":".join(filter(None, (first, os.environ.get("LD_LIBRARY_PATH"))))}
        if what == "driver":
            write(library, "")  # not a library
        elif what == "device":
            env = {"CUDA_VISIBLE_DEVICES": "-1"}
        else:
            os.symlink(os.path.join(self.tools, "libdriver.so"), library)
            env |= {"KVF_DRIVER": self.driver() or "", **({"KVF_DRIVER_VERSION": "12040"} if what == "recent driver" else {"KVF_DRIVER_MAJOR": "7"})}
        return f"there is no device: {self.missing}" if self.missing and what in ("device", "bf16") else env

    def driver(self):
        """Returns the file of the driver that the holder has loaded."""
        with contextlib.suppress(OSError), open(f"/proc/{self.holder.pid}/maps", encoding="utf-8") as f:
            return next((line.split()[-1] for line in f if "/libcuda.so" in line), None)
        return None

    def leave(self, n):
        """Returns the bytes that are then free; None: there is no device."""
        with contextlib.suppress(BrokenPipeError):
            self.holder.stdin.write(f"{1 << 62 if n is None else n}\n")
            self.holder.stdin.flush()
        return int(self.holder.stdout.readline() or 0) or None

    def lose(self):
        write(self.loss, "")

    def mend(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.loss)

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.holder.stdin.close()
        self.holder.wait(60)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(str(text))
