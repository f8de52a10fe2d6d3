#!/usr/bin/env python3
"""Measure how fast a trace is written and read, and its size, compared with other formats for arrays.

usage: bench/trace.py BENCH_TRACE TRACE.kvf [--rounds 5] [--folder /dev/shm] [--large GB] [--columns] [--json]

BENCH_TRACE is build-release/bench/bench_trace, TRACE.kvf a trace of `kvfate run --probes full`. Its columns are
written and read in every format, one round after another, and medians are printed: gigabytes of values per CPU
second of all threads, and file bytes per token.  The formats are kvfate's own; HDF5 through h5py, with gzip and lzf
after its shuffle filter; NumPy's npz; Zarr; and Parquet with snappy and zstd.  A format without its module is
reported and omitted.  The last row copies the values to a file and back, which is the upper limit of this machine.
kvfate verifies data (two checksums and bounds) and keeps a digest.  HDF5 uses its fletcher32 here, Parquet its page
checksums, npz and Zarr their defaults.  --large writes a trace of that many gigabytes and times its opening and the
values of one head.  --columns prints the bytes of each column per token.
"""
import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np

DTYPES = {1: "u1", 2: "<u2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<u8"}


class Format:
    """A storage format for arrays: write(path, arrays) and read(path), which both access every value."""

    def __init__(self, name, module=None):
        self.name, self.module = name, module and importlib.import_module(module)


class Hdf5(Format):
    def __init__(self, **options):
        super().__init__("HDF5 " + options["compression"], "h5py")
        self.options = options

    def write(self, path, arrays):
        with self.module.File(path, "w") as f:
            for name, a in arrays.items():
                f.create_dataset(name, data=a, shuffle=True, fletcher32=True, **self.options)

    def read(self, path):
        with self.module.File(path) as f:
            return sum(f[name][()].nbytes for name in f)


class Npz(Format):
    def __init__(self):
        super().__init__("npz")

    def write(self, path, arrays):
        with open(path, "wb") as f:
            np.savez_compressed(f, **arrays)

    def read(self, path):
        with np.load(path) as f:
            return sum(f[name].nbytes for name in f.files)


class Zarr(Format):
    def __init__(self):
        super().__init__("Zarr", "zarr")

    def write(self, path, arrays):
        shutil.rmtree(path, ignore_errors=True)
        group = self.module.open_group(path, mode="w")
        for name, a in arrays.items():
            rows = max(1, (1 << 19) // max(1, a.shape[1] * a.itemsize))
            group.create_array(name, data=a, chunks=(min(rows, a.shape[0]), a.shape[1]))

    def read(self, path):
        group = self.module.open_group(path, mode="r")
        return sum(group[name][:].nbytes for name in group)


class Parquet(Format):
    def __init__(self, codec):
        super().__init__("Parquet " + codec, "pyarrow.parquet")
        self.arrow, self.codec = importlib.import_module("pyarrow"), codec

    def write(self, path, arrays):
        os.makedirs(path, exist_ok=True)  # columns of one table have one length, so there is a file per length
        for name, a in arrays.items():
            table = self.arrow.table({name: a.reshape(-1)})
            self.module.write_table(table, os.path.join(path, name), compression=self.codec, write_page_checksum=True)

    def read(self, path):
        return sum(self.module.read_table(os.path.join(path, name), page_checksum_verification=True).nbytes
                   for name in os.listdir(path))


class Copy(Format):
    def __init__(self):
        super().__init__("copied bytes")

    def write(self, path, arrays):
        with open(path, "wb", buffering=0) as f:
            for a in arrays.values():
                f.write(a)

    def read(self, path):
        part, total = bytearray(1 << 19), 0
        with open(path, "rb", buffering=0) as f:
            while n := f.readinto(part):
                total += n
        return total


def available():
    makers = [lambda: Hdf5(compression="gzip", compression_opts=4), lambda: Hdf5(compression="lzf"), Npz, Zarr,
              lambda: Parquet("snappy"), lambda: Parquet("zstd"), Copy]
    formats = []
    for make in makers:
        try:
            formats.append(make())
        except ImportError as e:
            print(f"left out: {e.name} is not installed")
    return formats


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def own(bench, *command):
    return json.loads(subprocess.run([bench, *command], check=True, capture_output=True, text=True).stdout)


def timed(function, *arguments):
    before = time.process_time()
    function(*arguments)
    return time.process_time() - before


def load(folder):
    arrays = {}
    for name in sorted(os.listdir(folder)):
        column, dtype, heads, length = name.rsplit(".", 3)
        arrays[column] = np.fromfile(os.path.join(folder, name), DTYPES[int(dtype)]).reshape(int(heads), int(length))
    return arrays


def compare(args, folder):
    dump = os.path.join(folder, "dump")
    os.mkdir(dump)
    subprocess.run([args.bench, "dump", args.trace, dump], check=True)
    arrays, formats = load(dump), available()
    shutil.rmtree(dump)
    tokens = max(a.shape[1] for a in arrays.values())
    values = sum(a.nbytes for a in arrays.values())
    seconds = {f.name: ([], [], []) for f in formats}
    mine, trace = ([], [], []), os.path.join(folder, "own.kvf")
    for _ in range(args.rounds):
        mine[0].append(own(args.bench, "write", args.trace, trace)["cpu"])
        mine[1].append(own(args.bench, "read", trace)["cpu"])
        for f in formats:
            path = os.path.join(folder, "peer")
            seconds[f.name][0].append(timed(f.write, path, arrays))
            seconds[f.name][1].append(timed(f.read, path))
            seconds[f.name][2].append(size_of(path))
            (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
    mine[2].append(size_of(trace))
    smallest = ([own(args.bench, "smallest", args.trace, trace)["cpu"]], [own(args.bench, "read", trace)["cpu"]],
                [size_of(trace)])
    rows = []
    for name, (write, read, size) in [("kvfate", mine), ("kvfate trace compact", smallest), *seconds.items()]:
        rows.append({"format": name, "write_gb_s": values / statistics.median(write) / 1e9,
                     "read_gb_s": values / statistics.median(read) / 1e9, "bytes_per_token": size[-1] / tokens})
    return {"columns": len(arrays), "tokens": tokens, "values": values, "rounds": args.rounds, "rows": rows}


def columns(args, folder):
    """Return the bytes per token of each column in a separate trace, minus the bytes of a trace without values."""
    path, sizes = os.path.join(folder, "column.kvf"), {}
    empty = own(args.bench, "write", args.trace, path, "no such column")["file"]
    listed = json.loads(subprocess.run([args.kvfate, "trace", "info", "--json", args.trace], capture_output=True, text=True).stdout)
    for c in listed["columns"]:
        w = own(args.bench, "write", args.trace, path, c["name"])
        if w["values"]:
            sizes[c["name"]] = ((w["file"] - empty) / listed["steps"], w["values"] / listed["steps"])
    return sizes


def large(args, folder):
    path = os.path.join(folder, "large.kvf")
    written = own(args.bench, "large", path, str(max(1, round(args.large / 0.0354))))  # size of a column in the file, GB
    opened = [own(args.bench, "open", path)["wall"] for _ in range(9)]
    head = [own(args.bench, "head", path, "x-value.0")["wall"] for _ in range(9)]
    return {"file": written["file"], "write_wall_gb_s": written["values"] / written["wall"] / 1e9,
            "open_ms": 1e3 * statistics.median(opened), "head_ms": 1e3 * statistics.median(head)}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("bench")
    a.add_argument("trace")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--folder", default="/dev/shm")
    a.add_argument("--large", type=float)
    a.add_argument("--columns", action="store_true")
    a.add_argument("--kvfate", default="build-release/cli/kvfate", help="the program, for --columns")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        result = compare(args, folder)
    if args.large:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            result["large"] = large(args, folder)
    if args.columns:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            result["columns of values"] = columns(args, folder)
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['columns']} columns, {result['tokens']} tokens, {result['values'] / 1e6:.0f} MB of values, "
          f"medians of {args.rounds} rounds, GB of values per second of processor time")
    print(f"{'format':<16}{'write':>8}{'read':>8}{'bytes per token':>18}")
    for r in result["rows"]:
        print(f"{r['format']:<16}{r['write_gb_s']:8.2f}{r['read_gb_s']:8.2f}{r['bytes_per_token']:18,.0f}")
    for name, (stored, values) in result.get("columns of values", {}).items():
        print(f"{name:<28}{stored:10,.1f} of {values:8,.0f} bytes per token")
    if args.large:
        g = result["large"]
        print(f"a trace of {g['file'] / 1e9:.1f} GB: opened in {g['open_ms']:.2f} ms; 131,072 values of a head in {g['head_ms']:.2f} ms")


if __name__ == "__main__":
    main()
