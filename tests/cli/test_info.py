#!/usr/bin/env python3
"""kvfate trace info: its output about blobs (one by one, and if there are many), the run and the digest,
compared with the package kvfate. tests/format/check_reader.py compares it with stored files,
including intervals."""
import json
import sys
import zipfile

from harness import Suite
from sample_trace import H, HERE, L, T, columns, digest, kvfate, make, os, records, sample

s = Suite()
CHUNKS = [(t0, min(16, T - t0)) for t0 in range(0, T, 16)]  # 16, 16 and 8 tokens
BLOBS = [f"k f16 {l} {h} {t0} {n} 8" for l in range(L) for h in range(H) for t0, n in CHUNKS]
BLOBS += [f"attention f32 1 3 8 4 {T}", "x-lab.state bf16 2 0 0 5 1", "x-lab.state bf16 2 1 0 5 1"]


def info(path, code=0):
    r = s.run(["trace", "info", "--json", path])
    s.check("trace info --json", r.returncode == code, r)
    text = s.run(["trace", "info", path])
    s.check("info", text.returncode == code, text)
    return json.loads(r.stdout), text.stdout.decode().splitlines()


x = make(s.write_kvf, s.path("x.kvf"), columns(), (L, H, 4, T), blobs=BLOBS)
t = kvfate.open(x)
told, lines = info(x)
s.check("format, run and digest", (told["format"], told["run"], told["digest"]) == ("1.0", t.id, digest(t)), told)
s.check("they are shown", "format    1.0, run " + told["run"] in lines and "digest    " + told["digest"] in lines, lines)
k = [b.data for b in t.blobs if b.name == "k"]
assert len(k) == L * H * 3
want = [{"name": "k", "dtype": "f16", "shape": [16, 8], "least": 8, "blobs": len(k), "heads": L * H, "layer": [0, L - 1], "head": [0, H - 1],
         "index": [0, T - 1], "bytes": sum(b.nbytes for b in k)},
        {"name": "attention", "dtype": "f32", "shape": [4, T], "least": 4, "blobs": 1, "heads": 1, "layer": [1, 1], "head": [3, 3], "index": [8, 11], "bytes": 16 * T},
        {"name": "x-lab.state", "dtype": "bf16", "shape": [5, 1], "least": 5, "blobs": 2, "heads": 2, "layer": [2, 2], "head": [0, 1], "index": [0, 4], "bytes": 20}]
s.check("blobs as JSON", told["blobs"] == want, told["blobs"], want)
shown = lines[lines.index("blobs") + 1:]
s.check("blobs as text", shown == [
    "  k                      f16  8 to 16 x 8, 6 heads of layers 0 to 2, indices 0 to 39, 18 blobs of 3840 bytes in all",
    "  attention              f32  4 x 40, layer 1, head 3, indices 8 to 11, 640 bytes",
    "  x-lab.state            bf16 5 x 1, 2 heads of layer 2, indices 0 to 4, 2 blobs of 20 bytes in all"], *shown)

many = make(s.write_kvf, s.path("many.kvf"), columns(), (L, H, 4, T), blobs=[f"x-lab.{i} u8 0 0 0 1 1" for i in range(100)])
told, lines = info(many)
s.check("of many kinds the first are told", len(told["blobs"]) == 64 and lines[-1] == "  and 36 of other kinds", lines[-1])

# ---- absent data
told, lines = info(sample(s, "torn.kvf", unclosed=True), 3)
s.check("no digest of one that was not closed", "digest" not in told and "run" in told and not [x for x in lines if x.startswith("digest")], told)
s.check("no blobs", told["blobs"] == [] and "blobs" not in lines)
with zipfile.ZipFile(os.path.join(HERE, "..", "format/golden/format-0.1.zip")) as z:
    told, lines = info(s.file("old.kvf", z.read("run.kvf")))
s.check("of format 0.1", told["format"] == "0.1" and "run" not in told and "digest" not in told and "format    0.1" in lines, told)

# ---- a run header and a result that are not JSON are shown as text
sys.path.insert(0, os.path.join(HERE, "..", "format"))
from write_kvf import Writer  # noqa: E402

for text in ("", "[1,2", '{"a":1}x'):
    w = Writer(s.path("odd.kvf"), text.encode(), [(1, 1)], [])
    w.note(b"result", text.encode())
    w.commit(1, 1)
    w.close()
    told = info(s.path("odd.kvf"))[0]
    s.check("what is no JSON is a text", (told["header"], told["result"]) == (text, text), text, told)

# ---- the output is JSON for any texts, and verify reports texts that are not JSON
def strict(text):
    """Returns the value of a text if it is JSON by RFC 8259; Python's own reader accepts NaN."""
    def refuse(word):
        raise ValueError(word)
    return json.loads(text, parse_constant=refuse)


for text in ('{"a":"b"}', ' {"a" : [1, -0.5e+3, true, null, {}]}\n', '{"a":"\\u0001\\/"}', '{"a":"x\ny"}', '{"a":"x\ty"}', '\ufeff{}', '{"a":01}', '{"a":.5}', '{"a":1.}', '{"a":+1}', '{"a":NaN}',
             '{"a":1,}', "{'a':1}", '{"a":"\\x"}', '{"a":tru}', '{"a" 1}', '{a:1}', '[1,2]', '"text"', "7", "{}{}", '{"a":[1 2]}', "\x0b{}", '{"a":"\x7f"}', "[" * 64 + "]" * 64, "[1,]", '{"a":{}', "-"):
    w = Writer(s.path("odd.kvf"), text.encode(), [(1, 1)], [])
    w.note(b"result", text.encode())
    w.commit(1, 1)
    w.close()
    try:
        value = strict(text)
    except ValueError:
        value = None
    r = s.run(["trace", "info", "--json", s.path("odd.kvf")])
    told = strict(r.stdout)
    want = text if value is None else value
    s.check("header and result are JSON, or texts", (told["header"], told["result"]) == (want, want), text, told)
    r = s.run(["trace", "verify", s.path("odd.kvf")])
    s.check("verify tells of a header that is no object", (b"run header is no JSON object" in r.stderr) == (not isinstance(value, dict)), text, r)
    s.check("verify tells of a note that is none", (b"note result is no JSON" in r.stderr) == (value is None), text, r)
    s.check("and fails", r.returncode == (0 if isinstance(value, dict) else 1), text, r)
w = Writer(s.path("odd.kvf"), b"{}\0{}", [(1, 1)], [])
w.commit(1, 1)
w.close()
r = s.run(["trace", "verify", s.path("odd.kvf")])
s.check("a zero byte in the header", r.returncode == 1 and b"no JSON object" in r.stderr, r)

# ---- an analysis rejects an unreadable run header, and names the error
for n, (meta, word) in enumerate((("{\"method\":", "the run header: not valid JSON near byte"), ('{"run":{"prompt_tokens":1,"prompt_tokens":2}}', "the run header: JSON repeats the key \"prompt_tokens\""),
                                  ('{"method":{"budget":"8"}}', "method.budget of the run header is not a whole number"), ('{"run":{"prompt_tokens":2.5}}', "run.prompt_tokens of the run header is not a whole number"))):
    path = make(s.write_kvf, s.path("header.kvf"), columns(), (L, H, 4, T), meta=meta)
    argv = ["fates" if "prompt" in meta else "survival", path]
    s.refused(f"{argv[0]}: header {n}", argv, 1, "header.kvf", word)
r = s.run(["trace", "info", make(s.write_kvf, s.path("header.kvf"), columns(), (L, H, 4, T), meta="[1,2")])
s.check("info shows the rest and tells", r.returncode == 0 and b"not valid JSON near byte 4" in r.stderr and b"format" in r.stdout, r)

# ---- names of blobs: those of the schema and private ones; others are shown and copied, and verify
# reports them
for name, good in (("q", True), ("attention", True), ("x-", True), ("x-lab.k", True), ("keys", False), ("Q", False), ("x", False), ("attention2", False)):
    w = Writer(s.path("named.kvf"), b"{}", [(1, 1)], [])
    w.blob(name, 1, 0, 0, 0, (2,), b"ab")
    w.commit(1, 1)
    w.close()
    r = s.run(["trace", "verify", s.path("named.kvf")])
    s.check(f"verify of a blob {name}", r.returncode == (0 if good else 1) and (good or b"called " + name.encode() in r.stderr), r)
    s.check(f"a blob {name} is shown", info(s.path("named.kvf"))[0]["blobs"][0]["name"] == name)
    s.accepted(f"a blob {name} is copied", ["trace", "compact", s.path("named.kvf"), "-o", s.path("copied.kvf"), "--overwrite"])
    s.check(f"a blob {name} is kept", s.run(["trace", "checksum", s.path("copied.kvf")]).stdout.split()[:1] == s.run(["trace", "checksum", s.path("named.kvf")]).stdout.split()[:1])

# ---- a damaged blob: all other data are shown
data = bytearray(open(x, "rb").read())
r = [r for r in records(t) if r["type"] == 10][-1]
data[r["offset"] + 88 + 3] ^= 1
r = s.run(["trace", "info", s.file("bad.kvf", bytes(data))])
s.check("a damaged blob is said", r.returncode == 1 and b"blob" in r.stderr and r.stderr.count(b"\n") == 1 and b"nll" in r.stdout, r)
s.finish()
