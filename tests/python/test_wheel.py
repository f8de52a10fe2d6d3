#!/usr/bin/env python3
"""usage: test_wheel.py KVFATE SOURCE_ROOT BUILD

Builds the wheel, installs it without an index into an empty environment, and makes tables and
figures there without a compiler on PATH and without a library path. BUILD stores the compiled
program of the wheel. NumPy is that of the system."""
import os
import subprocess
import sys
import tempfile
import zipfile

ROOT, BUILD = map(os.path.abspath, sys.argv[2:4])
sys.path.append(os.path.join(ROOT, "tests"))
from check import check, finish  # noqa: E402

INSIDE = """
import os, sys
import kvfate
from kvfate import program
assert kvfate.__file__.startswith(sys.prefix), kvfate.__file__
assert program.find().startswith(sys.prefix), program.find()
steps = [[1 << 32, 3, 5, 1 << 32, 5, 1 << 32]]
with kvfate.Writer("x.kvf", heads=[(1, 1)], meta={"method": {"name": "mine"}}, prompt=[4, 5, 6],
                   columns={"tokens.id": "i32 run", "evict_step": "u32 kv snapshot: step"}) as w:
    w.write("tokens.id", [4, 5, 6, 7, 8, 9])
    w.write("evict_step", [[min(s, 0xffffffff) for s in head] for head in steps], layer=0)
with kvfate.open("x.kvf") as t:
    assert t["tokens.id"][:].tolist() == [4, 5, 6, 7, 8, 9]
table = kvfate.table("occupancy", "x.kvf")
assert len(table) and table.attrs["table"] == "occupancy", table
assert kvfate.figure("eviction", "x.kvf", dpi=40, size="60x40").png[:4] == b"\\x89PNG"
"""


def ran(name, *argv, **options):
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, **options)
    check(name, r.returncode == 0, r.stdout[-3000:])
    return r.stdout


def loaded(program, env):
    """Returns the libraries outside the C library that a program loads from other folders than its
    own."""
    own = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    said = subprocess.run(["ldd", program], stdout=subprocess.PIPE, universal_newlines=True, env=env).stdout
    at = {line.split()[0]: os.path.realpath(line.split()[2]) for line in said.splitlines() if "=>" in line}
    system = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libresolv.")
    return {n: p for n, p in at.items() if not n.startswith(system) and not p.startswith(own + os.sep)}


def main():
    for module in ("pip", "venv", "ensurepip"):
        if subprocess.run([sys.executable, "-c", "import " + module], stderr=subprocess.DEVNULL).returncode:
            print("skipped: this Python has no module", module)
            sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        offline = ["--no-index", "--no-deps", "--disable-pip-version-check", "-q"]
        ran("pip wheel", sys.executable, "-m", "pip", "wheel", *offline, "--config-settings=build=" + BUILD, "-w", folder, os.path.join(ROOT, "python"))
        wheels = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".whl")]
        if not check("one wheel", len(wheels) == 1, wheels):
            finish()
        names = zipfile.ZipFile(wheels[0]).namelist()
        for part in ("kvfate/bin/kvfate", "kvfate/lib/libkvftrace.so.0", "kvfate/__init__.py", *("kvfate/share/kvfate/gates/" + n for n in sorted(os.listdir(os.path.join(ROOT, "gates"))) if n.endswith(".safetensors")),
                     "kvfate/share/kvfate/fonts/fonts.conf", "kvfate/share/kvfate/fonts/Lato-Regular.ttf", "kvfate/lib/libfontconfig.so.1"):
            check("holds " + part, part in names)
        check("holds the manual", any(n.endswith("share/man/man1/kvfate-run.1") for n in names))
        check("no file of the repository is in it by its path", not any(ROOT in n for n in names))
        env = {"PATH": os.path.join(folder, "empty"), "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}  # no compiler, no library path
        place = os.path.join(folder, "venv")
        ran("venv", sys.executable, "-m", "venv", "--system-site-packages", place)
        python = os.path.join(place, "bin", "python")
        ran("pip install", python, "-m", "pip", "install", *offline, wheels[0], env=env)
        ran("import, table, figure, writer", python, "-c", INSIDE, env=env, cwd=folder)
        command = os.path.join(place, "bin", "kvfate")
        check("the command", "kvfate 0." in ran("version", command, "--version", env=env, cwd=folder))
        ran("export by Python", command, "trace", "export", "x.kvf", "-o", "x.npz", env=env, cwd=folder)
        ran("import by Python", command, "trace", "import", "x.npz", "-o", "again.kvf", env=env, cwd=folder)
        check("the same again", ran("diff", command, "trace", "checksum", "x.kvf", env=env, cwd=folder).split()[0] == ran("diff", command, "trace", "checksum", "again.kvf", env=env, cwd=folder).split()[0])
        check("help of all", "usage: kvfate trace import" in ran("help", command, "trace", "import", "-h", env=env, cwd=folder))
        program = ran("where", python, "-c", "from kvfate import program; print(program.find())", env=env, cwd=folder).strip()
        check("its own libraries", not loaded(program, {"PATH": os.environ["PATH"]}), loaded(program, {"PATH": os.environ["PATH"]}))
        # The configuration of the wheel alone must give the same picture as that of the system: FONTCONFIG_FILE takes precedence.
        for name, more in (("own", {}), ("system", {"FONTCONFIG_FILE": "/etc/fonts/fonts.conf"})):
            ran("figure with fonts: " + name, command, "eviction", "x.kvf", "-o", name + ".png", env={**env, **more}, cwd=folder)
        own, system = (open(os.path.join(folder, n + ".png"), "rb").read() for n in ("own", "system"))
        if os.path.exists("/etc/fonts/fonts.conf"):
            check("the same picture with the fonts of the wheel", own == system)
        cache = os.environ.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
        if os.path.exists(os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf")):
            said = subprocess.run([command, "run", "-p", "hi", "--method", "trimkv", "--budget", "8", "--gates", "none", "-o", "y.kvf"],
                                  stderr=subprocess.PIPE, universal_newlines=True, env={**env, "KVFATE_CACHE": cache}, cwd=folder).stderr
            gates = os.path.join(os.path.dirname(os.path.dirname(program)), "share", "kvfate", "gates")
            check("it looks for gates in its own folder", os.path.realpath(gates) in said or gates in said, said)
        else:
            print("the default model is missing: where gates are looked for is not tested")
    finish()


main()
