#!/usr/bin/env python3
"""Compare the trace reader of the report page, run by node, with the library: equal values, or the same error.

usage: test_reader.py DUMP_TRACE READER.js KVFATE ROOT

The traces are random ones of all types, codecs and chunks (tests/format/trips.py), damaged and unfinished copies of them, tails,
the traces of tests/data/hostile and of the stored formats, and those of the fuzz corpora, unchanged and with corrected checksums.
The setup long tries 200 random traces, and runs of the default model with several methods and probes.
"""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "format"), os.path.join(HERE, "..", "..", "python")]
import check  # noqa: E402
from kvfate.checksums import crc32c, hash64  # noqa: E402

SETUP = os.environ.get("KVFATE_TESTS", "")
LONG, QUICK = SETUP == "long", SETUP == "quick"


def node():
    return shutil.which("node") or shutil.which("nodejs")


# ---- traces

def trips(folder, n):
    """Random traces of all types of columns and records, some of them unfinished."""
    from trips import Trip
    for seed in range(n):
        path = folder / f"trip-{seed}.kvf"
        Trip(seed).write(str(path))
        yield path


def copies(folder, paths, n):
    """Copies with a flipped bit, a cut, zeros or a moved part."""
    r = random.Random(5)
    for k in range(n):
        data = bytearray(r.choice(paths).read_bytes())
        for _ in range(r.choice([1, 1, 2, 5])):
            at, size = r.randrange(len(data)), r.choice([1, 8, 100, 400])
            kind = r.randrange(4)
            if kind == 0:
                data[at] ^= 1 << r.randrange(8)
            elif kind == 1:
                del data[max(64, at):]
            elif kind == 2:
                data[at:at + size] = bytes(len(data[at:at + size]))
            else:
                other = r.randrange(len(data))
                data[at:at + size] = data[other:other + size]
        if r.random() < 0.5:
            data = mended(data)
        path = folder / f"copy-{k}.kvf"
        path.write_bytes(data)
        yield path


def mended(data):
    """Returns bytes with correct checksums of every record that can be reached, and of header and footer."""
    d = bytearray(data)
    if len(d) < 64:
        return d
    chained = d[16] & 1
    size = 88 if chained else 80
    salt = d[28:32]
    if chained:
        d[32:36] = salt
    d[60:64] = struct.pack("<I", crc32c(bytes(d[:60])))
    link, at = hash64(bytes(d[:64])), 64
    while len(d) - at >= size:
        stored = int.from_bytes(d[at + 16:at + 24], "little")
        if stored > len(d) - at - size:
            break
        d[at:at + 6] = struct.pack("<IH", 0x52465AC5, size)
        d[at + 56:at + 60] = salt
        d[at + 68:at + 76] = struct.pack("<Q", at)
        place = bytes(salt + d[at + 8:at + 16] + d[at + 68:at + 76])
        d[at + 52:at + 56] = struct.pack("<I", crc32c(place + bytes(d[at + size:at + size + stored])))
        if chained:
            d[at + 76:at + 84] = struct.pack("<Q", link)
        d[at + size - 4:at + size] = struct.pack("<I", crc32c(bytes(d[at:at + size - 4])))
        link = hash64(bytes(d[at:at + size]))
        at += size + (stored + 7) // 8 * 8
    if len(d) >= 128:
        if chained:
            d[-40:-32] = struct.pack("<Q", link)
        d[-28:-24] = salt
        d[-4:] = struct.pack("<I", crc32c(bytes(d[-64:-4])))
    return d


def stored(folder, root, corpora, every):
    """The traces of the fuzz corpora and of the stored formats, as they are and with corrected checksums."""
    for archive in [*(root / "tests/fuzz/corpus" / f"{name}.zip" for name in corpora), *sorted((root / "tests/format/golden").glob("*.zip"))]:
        with zipfile.ZipFile(archive) as z:
            for k, name in enumerate(sorted(z.namelist())):
                if k % every or name.endswith("/"):
                    continue
                data = z.read(name)
                for kind, some in (("", data), ("-mended", mended(data))):
                    path = folder / f"{archive.stem}-{os.path.basename(name)}{kind}.kvf"
                    path.write_bytes(some)
                    yield path


def impossible(folder):
    """Traces with correct checksums that break rules of intervals, of the chain, and of the sizes of chunks and commits."""
    import numpy as np
    from write_kvf import SNAPSHOT, Column, Writer
    columns = [Column("x-stream.a", 2, 1), Column("x-lists", 3, 1, 0, SNAPSHOT | 4)]
    lists = [[(0, 2), (4, 4)], [(0, 2), (3, 4)], [(0, 2), (2, 4)], [(3, 2)], [(0, 9)], [(0, 10)], [(5, 5), (1, 1)], [(-1 + (1 << 32), 5)]]
    for k, one in enumerate(lists):
        for first in (0, 1):  # the list is of this token
            path = folder / f"lists-{k}-{first}.kvf"
            w = Writer(str(path), b"{}", [(2, 2)], columns)
            w.intervals(1, 0, 0, 0, 1, [[[]] * first + [one] + [[]] * (9 - first), [[]] * 10], 2 * (k % 2))
            w.chunk(0, 0, 0, 0, 0, np.arange(20, dtype="<u2").reshape(2, 10), 2)
            w.commit(1, 10)
            w.close()
            yield path
    for k, change in enumerate([dict(epoch=2), dict(n=3), dict(n_heads=3), dict(head0=1), dict(layer=1), dict(column=1), dict(column=7), dict(codec=3), dict(codec=1), dict(raw_len=38),
                                dict(type=11), dict(type=11, flags=1), dict(type=9), dict(seq=0), dict(link=5), dict(t0=1 << 24)]):
        for closed in (True, False):
            path = folder / f"record-{k}-{closed}.kvf"
            w = Writer(str(path), b"{}", [(2, 2)], columns)
            values = np.arange(20, dtype="<u2")
            fields = dict(column=0, layer=0, head0=0, t0=0, n=10, codec=0, epoch=0, n_heads=2, raw_len=40, **{})
            kind = change.get("type", 4)
            fields.update({key: v for key, v in change.items() if key != "type"})
            raw_len = fields.pop("raw_len")
            w.record(kind, values.tobytes(), raw_len, **fields)
            w.commit(1, 10)
            w.chunk(0, 0, 0, 10, 0, values.reshape(2, 10))
            if closed:
                w.close()
            else:
                w.leave()
            yield path


def tails(folder):
    """An unfinished trace with a tail that continues it, and with tails that do not."""
    import numpy as np
    from write_kvf import SNAPSHOT, Column, Writer
    columns = [Column("x-stream.a", 5), Column("x-last.b", 2, 2, 0, SNAPSHOT), Column("x-lists", 3, 1, 0, SNAPSHOT | 4)]

    def write(path, steps, first, closed, seed=1, meta=b'{"run":{}}'):
        r = np.random.default_rng(seed)
        values, last = r.random(50, "f4"), r.integers(0, 99, (2, 50)).astype("<u2")
        w = Writer(str(path), meta, [(1, 2)], columns)
        w.texts(first, [b"t%d" % i for i in range(first, steps)])
        w.chunk(0, 0, 0, first, 0, values[first:steps].reshape(1, -1), 2)
        w.chunk(1, 0, 0, 0, 1, last[:, :steps], 2)
        w.intervals(2, 0, 0, 0, 1, [[[(i, i)] for i in range(steps)]], 2)
        w.commit(1, steps)
        if closed:
            w.close()
        else:
            w.leave()

    for k, (steps, first, closed, meta) in enumerate([(45, 10, True, b'{"run":{}}'), (45, 30, True, b'{"run":{}}'), (45, 35, True, b'{"run":{}}'),
                                                      (25, 0, True, b'{"run":{}}'), (45, 10, False, b'{"run":{}}'), (45, 10, True, b'{"run":{"x":1}}')]):
        path, tail = folder / f"tail-{k}.kvf", folder / f"tail-{k}.kvf.tail"
        write(path, 30, 0, False)
        write(tail, steps, first, closed, meta=meta)
        yield path
    path = folder / "tail-torn.kvf"
    write(path, 30, 0, False)
    data = bytearray(path.read_bytes())
    write(folder / "tail-torn.kvf.tail", 45, 10, True)
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    yield path
    for at in (70, 2000):
        path = folder / f"tail-damaged-{at}.kvf"
        write(path, 30, 0, False)
        tail = folder / f"tail-damaged-{at}.kvf.tail"
        write(tail, 45, 10, True)
        data = bytearray(tail.read_bytes())
        data[min(at, len(data) - 1)] ^= 1
        tail.write_bytes(data)
        yield path


def runs(folder, kvfate):
    """Traces of the default model with several methods, probes and forms."""
    text = folder / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. 12 + 34 = 46, said Zoë \N{GRINNING FACE}.\n" * 6)
    probes = ["lean", "evict,nll,keys", "evict,survival,mass,steps,returns", "evict,calibration,under,copies,window", "auto"]
    methods = ["full", "h2o", "snapkv", "tova", "streamingllm", "keydiff", "trimkv", "knorm"]
    k = 0
    for method in methods:
        for probe in probes:
            path = folder / f"run-{method}-{k}.kvf"
            more = [] if method == "full" else ["--budget", "24"]
            more += [["--shadow", "entries"], [], ["--probes", "evict", "--shadow", "entries,model"], []][k % 4]
            if "--probes" not in more:
                more += ["--probes", probe]
            done = subprocess.run([kvfate, "run", "-f", str(text), "-n", "8", "--method", method, *more, "-o", str(path)], capture_output=True, stdin=subprocess.DEVNULL,
                                  timeout=600)
            k += 1
            if done.returncode == 0:
                yield path
                small = folder / f"small-{method}-{k}.kvf"
                if subprocess.run([kvfate, "trace", "compact", str(path), "-o", str(small)], capture_output=True).returncode == 0:
                    yield small
            else:
                print(f"no run of {method} {more}: {done.stderr.decode()[:150]}")


# ---- the comparison

def dump_all(folder, tools, paths):
    """Returns the texts of both programs, per trace."""
    out = []
    for kind, command in tools.items():
        names, lines = [], []
        for k, path in enumerate(paths):
            tail = path.with_name(path.name.removesuffix(".unfinished") + ".tail")
            names.append(folder / f"{kind}-{k}.txt")
            lines.append(f"{path.name}\t{tail.name if tail.exists() else ''}\t{names[-1]}\n")
        (folder / f"{kind}.list").write_text("".join(lines))
        done = subprocess.run([*command, str(folder / f"{kind}.list")], cwd=paths[0].parent, capture_output=True, timeout=1500)
        check.check(f"{kind} ends well and within its time", done.returncode == 0 and not done.stdout, done.stderr[-600:].decode(errors="replace"), done.stdout[:600].decode())
        out.append(names)
    return out


def compare(folder, tools, paths):
    c, js = dump_all(folder, tools, paths)
    wrong, opened, rejected, damaged = [], 0, 0, 0
    for path, a, b in zip(paths, c, js):
        want, got = (p.read_bytes() if p.exists() else b"" for p in (a, b))
        first = want.split(b"\n", 1)[0]
        opened += first.startswith(b"open")
        rejected += first.startswith(b"error")
        damaged += b" error " in want
        if want != got:
            lines = next(((x, y) for x, y in zip(want.split(b"\n"), got.split(b"\n")) if x != y), (first, b"(shorter)"))
            wrong.append((path.name, *(v[:300].decode(errors="replace") for v in lines)))
    for w in wrong[:8]:
        print("\n   ".join(w))
    check.check(f"{len(paths)} traces: equal values or the same error", not wrong, f"{len(wrong)} differ")
    print(f"{len(paths)} traces: {opened} opened, {damaged} of them with damaged values, {rejected} rejected; {len(wrong)} differ")
    return opened, rejected, damaged


def check_frames(folder, program, reader):
    """Compares mutated zstd frames with python-zstandard."""
    try:
        import zstandard
    except ImportError:
        print("no python-zstandard here: no mutated frames")
        return
    r, out, n = random.Random(3), [], 400 if LONG else 60
    for _ in range(n):
        size = r.choice([1, 5, 40, 300, 3000])
        data = [bytes(r.randrange(4) for _ in range(size)), r.randbytes(size), b"".join(struct.pack("<I", r.randrange(i + 1)) for i in range(size // 4 + 1)),
                bytes(int(r.gauss(100, 10)) & 255 for _ in range(size))][r.randrange(4)]
        frame = zstandard.ZstdCompressor(level=r.choice([-20, -1, 1, 3, 19]), write_checksum=r.random() < 0.3).compress(data)
        for k in range(8):
            x = bytearray(frame)
            for _ in range(k and r.choice([1, 1, 3])):
                x[r.randrange(4, len(x))] = r.randrange(256)
            if k == 7:
                x = x[:r.randrange(1, len(x))]
            try:
                same = zstandard.get_frame_parameters(bytes(x)).content_size == len(data)
                got = zstandard.ZstdDecompressor().decompress(bytes(x), max_output_size=len(data), allow_extra_data=False) if same else b""
            except zstandard.ZstdError:
                got = b""
            out.append(struct.pack("<IIII", len(x), len(data), len(got) == len(data), k == 0) + x + (got if len(got) == len(data) else b""))
    (folder / "frames").write_bytes(b"".join(out))
    done = subprocess.run([program, os.path.join(HERE, "check_frames.js"), reader, str(folder / "frames")], capture_output=True, timeout=600)
    check.check("zstd frames: equal bytes, or rejected", done.returncode == 0, done.stdout[-400:].decode(), done.stderr[-400:].decode())
    print(done.stdout.decode().strip())


def main():
    program, reader, kvfate, root = sys.argv[1:5]
    if not node():
        print("no node here: the reader of the report page is not tried outside of a browser")
        return 77
    tools = {"library": [os.path.abspath(program)], "node": [node(), os.path.join(HERE, "dump_trace.js"), os.path.abspath(reader)]}
    with tempfile.TemporaryDirectory(prefix="kvfate-reader-") as name:
        folder, root = Path(name), Path(root)
        traces = folder / "traces"
        traces.mkdir()
        whole = list(trips(traces, 200 if LONG else 20 if QUICK else 60))
        paths = whole + list(copies(traces, whole, 1000 if LONG else 40 if QUICK else 150)) + list(tails(traces)) + list(impossible(traces))
        paths += list(stored(traces, root, ["trace"], 1 if LONG else 8 if QUICK else 3))
        for path in sorted((root / "tests/data/hostile").glob("*.kvf")):
            shutil.copy(path, traces / path.name)
            paths.append(traces / path.name)
        opened, rejected, damaged = compare(folder, tools, paths)
        check.check("traces of all kinds were tried", opened > 20 and rejected > 5 and damaged > 5, opened, rejected, damaged)
        if LONG:
            made = list(runs(traces, os.path.abspath(kvfate)))
            if made:
                compare(folder, tools, made)
        check_frames(folder, node(), os.path.abspath(reader))
    return check.finish()


if __name__ == "__main__":
    sys.exit(main())
