#!/usr/bin/env python3
"""Print registers, shared memory and occupancy of every CUDA kernel, from nvcc and the sizes of its blocks.

usage: resources.py [--nvcc PATH] [--arch 80,90,100] [--dim D] [FILE ...]

It compiles engine/cuda/*.cu, or these files, for each architecture with --resource-usage and keeps no output.  The
lanes of a block are those of __launch_bounds__, else those of the LAUNCH. Dynamic shared memory is for heads of D
channels (128), or for the kernel's own number of channels, with four query heads per KV head.  Occupancy is the
fraction of the lanes of a multiprocessor that blocks of this kernel can fill at once.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Per multiprocessor: registers, lanes, blocks, bytes of shared memory; CUDA C++ Programming Guide, table of compute
# capabilities.
MACHINE = {"80": (65536, 2048, 32, 164 << 10), "90": (65536, 2048, 32, 228 << 10), "100": (65536, 2048, 32, 228 << 10)}
DYNAMIC = {"keydiff_kernel": 1, "scores_kernel": 16, "prompt_kernel": 32}  # rows of D floats
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Xcompiler", "-Wno-unknown-pragmas", "-I.", "-Ibase/include", "-Ilibtrace/include",
         "--resource-usage", "--keep", "-c", "-o", os.devnull]


def number(text, names):
    """Return the value of a sum, product or quotient of numbers and names; names: [(name, expression)], the last
    definition wins.
    """
    for _ in range(8):
        text = re.sub(r"[A-Za-z_]\w*", lambda m: f"({dict(names).get(m[0], m[0])})", text)
        if re.fullmatch(r"[\d\s()+*/-]+", text):
            return int(eval(text.replace("/", "//")))
    return None


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


def lanes_of_launch(path, kernel, dim):
    """Return the lanes of the LAUNCH of the kernel, or of the variable that stores the kernel."""
    if kernel == "values_kernel":  # one lane per channel in full warps: the launch knows the channels
        return (dim + 31) // 32 * 32
    text = read(path)
    before = "".join(map(read, ["engine/cuda/device.cuh", *re.findall(r'#include "(engine/cuda/\w+\.cuh)"', text)]))
    inner = r"\([^()]*\)|<[^<>]*>"  # brackets without inner brackets
    for used in re.finditer(rf"\b{kernel}\b(?!\()", text):
        start = text.rfind(";", 0, used.start()) + 1
        given = re.search(r"auto (\w+) =", text[start:used.start()])
        call = re.compile(rf"LAUNCH(?:_EARLY)?\({given[1] if given else kernel}\b").search(text, start)
        if not call:
            continue
        rest = text[call.end():call.end() + 400]
        while re.search(inner, rest):
            rest = re.sub(inner, "", rest)
        names = re.findall(r"\b([A-Z_]\w*) = ([^,;{}]*?)\s*(?=[,}]|/\*)", before + text[:call.start()])
        lanes = number(rest.split(",")[2], names)
        if lanes:
            return lanes
    sys.exit(f"{path}: the lanes of {kernel} are neither in __launch_bounds__ nor in a LAUNCH that can be read")


def report(nvcc, arch, path, dim):
    """Yield (kernel with its template arguments, lanes, registers, shared bytes, spilled bytes)."""
    with tempfile.TemporaryDirectory() as kept:
        command = [nvcc, f"-arch=sm_{arch}", *FLAGS, "--keep-dir", kept, path]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{path}, sm_{arch}: {done.stderr}")
        with open(glob.glob(os.path.join(kept, "*.ptx"))[0]) as file:
            bounds = dict(re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", file.read()))
    for part in (done.stdout + done.stderr).split("Compiling entry function '")[1:]:
        symbol = part[:part.index("'")]
        name = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout.strip()
        name = re.sub(r"\(.*", "", re.sub(r"^void ", "", name)).replace("unsigned short", "half")
        lanes = int(bounds.get(symbol, 0)) or lanes_of_launch(path, name.split("<")[0], dim)
        spill = sum(map(int, re.findall(r"(\d+) bytes spill", part)))
        shared = re.search(r"(\d+) bytes smem", part)
        yield name, lanes, int(re.search(r"Used (\d+) registers", part)[1]), int(shared[1]) if shared else 0, spill


def dynamic(name, dim):
    """Return the bytes of shared memory that a launch requests."""
    if name.startswith("tensor_kernel"):  # struct shape of attention_tensor.cu
        wide, tiles = map(int, re.findall(r"\d+", name)[:2])
        ring, ld = 2 if wide * tiles > 128 else 3, wide // 8 + 1
        return (64 * tiles * ld + ring * (5 * wide + 32 * ld)) * 16
    if name.startswith("tensor_") and "<" in name:  # forward_shape, queries_shape and keys_shape of train_forward.cu and train_backward.cu
        wide, ld = int(re.search(r"\d+", name)[0]), int(re.search(r"\d+", name)[0]) // 8 + 1
        keys = name.startswith("tensor_keys")
        rows = 32 if wide > (96 if keys else 128) else 64
        own = 2 if keys else 0 if wide <= 128 else 2 if name.startswith("tensor_queries") else 1
        return (2 * (2 * rows * ld + 3 * rows // 4) + own * 64 * ld) * 16
    if name.startswith("step_kernel"):  # shared_bytes of step.cuh, eleven pages per block
        return (3 * 1024 * 4 + 256 * 4 * 4 + 4 * (64 + 1 + dim) + 2 * 11) * 4
    return DYNAMIC.get(name.split("<")[0], 0) * dim * 4


def occupancy(arch, lanes, registers, shared):
    all_registers, all_lanes, blocks, memory = MACHINE[arch]
    per_warp = (registers * 32 + 255) // 256 * 256
    fit = min(blocks, all_lanes // lanes, all_registers // (per_warp * (lanes // 32)), memory // (shared + 1024))
    return fit * lanes / all_lanes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--arch", default="80,90,100")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("files", nargs="*", metavar="FILE")
    args = parser.parse_args()
    files = [os.path.abspath(f) for f in args.files] or sorted(glob.glob(os.path.join(ROOT, "engine/cuda/*.cu")))
    if not os.path.exists(args.nvcc):
        sys.exit("resources.py: there is no nvcc")
    rows = {}
    for arch in args.arch.split(","):
        for path in files:
            for name, lanes, registers, shared, spill in report(args.nvcc, arch, path, args.dim):
                shared += dynamic(name, args.dim)
                share = occupancy(arch, lanes, registers, shared)
                rows.setdefault((name, lanes, shared), {})[arch] = f"{registers}, {share:.0%}" + (f", spills {spill} B" if spill else "")
    archs = args.arch.split(",")
    print("| kernel | lanes | shared memory, B | " + " | ".join(f"sm_{a}: registers, occupancy" for a in archs) + " |")
    print("|---" * (3 + len(archs)) + "|")
    for (name, lanes, shared), cells in sorted(rows.items()):
        print(f"| `{name}` | {lanes} | {shared:,} | " + " | ".join(cells.get(a, "") for a in archs) + " |")


if __name__ == "__main__":
    main()
