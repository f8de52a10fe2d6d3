#!/usr/bin/python3
"""`kvfate gates convert`: files of torch.save give the tensors that NumPy wrote, bit for bit.
Pickles and archives that torch would not write are rejected with a message that names the problem.
None of their code runs, and none uses memory that the file does not have.

usage: test_convert.py KVFATE DATA     (DATA: tests/data/torch)
"""
import io
import itertools
import json
import os
import pickle
import random
import re
import resource
import shlex
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "tests"), os.path.join(ROOT, "python")]
from check import check, finish, refused  # noqa: E402
from kvfate import torch_file  # noqa: E402

MEMORY = 1 << 30  # limit of the address space in bytes

P = "model.layers.0.self_attn.retention_gate."


def archive(pickled, storages=None, prefix="a", more=(), method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in [(prefix + "/data.pkl", pickled), *((f"{prefix}/data/{k}", v) for k, v in (storages or {}).items()), *more]:
            z.writestr(zipfile.ZipInfo(name), data, method)  # a fixed date: equal calls give equal bytes
    return out.getvalue()


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def number(i):
    n = (i.bit_length() + 8) // 8
    return b"\x8a" + bytes([n]) + i.to_bytes(n, "little", signed=True)


def tuple_(*items):
    return b"(" + b"".join(items) + b"t"


def storage(key="0", n=8, type_="torch\nFloatStorage"):
    return tuple_(text("storage"), b"c" + type_.encode() + b"\n", text(key), text("cpu"), number(n)) + b"Q"


def tensor(dims, strides, offset=0, of=None, tail=b"\x89}"):
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + (of or storage()) + number(offset) + tuple_(*map(number, dims)) + tuple_(*map(number, strides)) + tail + b"tR"


def top(**members):
    return b"\x80\x02}(" + b"".join(text(P + k.replace("_", ".")) + v for k, v in members.items()) + b"u."


def gate(**changed):
    """One layer of rg: d 2, I 2, H 2; unchanged parts are valid."""
    part = {"linear1_weight": tensor([2, 2], [2, 1]), "linear1_bias": tensor([2], [1]), "linear2_weight": tensor([2, 2], [2, 1]), "bias": tensor([2], [1], 6)}
    part.update(changed)
    return archive(top(**part), {"0": struct.pack("<8f", *range(8))})


# A case is its name, a pickle or a file, and words of the error. None: it is read. False: either,
# but with correct tensors.
def calls():
    """Ways to run code, with the expected word in the message."""
    touch = b"touch \"$KVFATE_CANARY\""
    cmd = b"X" + struct.pack("<I", len(touch)) + touch
    yield "system", b"\x80\x02cos\nsystem\n(" + cmd + b"tR.", "os.system at offset 2"
    yield "posix", b"\x80\x02cposix\nsystem\n(" + cmd + b"tR.", "posix.system"
    yield "eval", b"\x80\x02c__builtin__\neval\n(" + cmd + b"tR.", "__builtin__.eval"
    yield "stack global", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.", "os.system at offset 14"
    yield "dotted", b"\x80\x04\x8c\x0ctorch._utils\x8c\x1e_rebuild_tensor_v2.__globals__\x93.", "_rebuild_tensor_v2.__globals__ at"
    yield "inst", b"(" + cmd + b"ios\nsystem\n.", "INST at offset"
    yield "obj", b"(ccollections\nOrderedDict\no.", "OBJ at offset"
    yield "newobj", b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ at offset"
    yield "newobj_ex", b"\x80\x04ccollections\nOrderedDict\n)}\x92.", "NEWOBJ_EX at offset"
    for op in b"\x82\x83\x84":
        yield f"ext{op}", b"\x80\x02" + bytes([op]) + b"\x01\0\0\0.", "EXT"
    yield "persid", b"P0\n.", "PERSID"
    yield "load v3", b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\n.", "torch._utils._rebuild_tensor_v3"
    yield "other storage", b"\x80\x02ctorch\nQInt8Storage\n.", "torch.QInt8Storage"
    yield "module of two words", b"\x80\x02ccollections OrderedDict\n\n.", "collections.OrderedDict. at"
    yield "callable text", b"\x80\x02X\1\0\0\0a)R.", "no name"
    yield "call storage", b"\x80\x02ctorch\nFloatStorage\n)R.", "type of storages"
    yield "build tensor", b"\x80\x02" + tensor([2], [1]) + b"}b.", "set the state"
    yield "build name", b"\x80\x02ccollections\nOrderedDict\n}b.", "set the state"
    yield "build slots", b"\x80\x02}N}\x86b.", "set the state"
    yield "dict of a list", b"\x80\x02ccollections\nOrderedDict\n]\x85R.", "OrderedDict"
    yield "persistent text", b"\x80\x02X\1\0\0\0aQ.", "persistent"
    yield "persistent module", b"\x80\x02" + tuple_(text("module"), b"ctorch\nFloatStorage\n", text("0"), text("cpu"), number(8)) + b"Q.", "persistent"
    yield "escape codes", b"\x80\x02c\x1b[2J\nsystem\n.", "\\x1b[2J.system"


def machines():
    """Pickles that use much time or memory."""
    yield "empty", b"", "no end"
    yield "no stop", b"\x80\x02}", "no end"
    yield "stop alone", b".", "stack is empty"
    yield "marks", b"(" * 300000, "no end"
    yield "deep lists", b"\x80\x02" + b"]" * 200000 + b"a" * 199999 + b".", "list, not a dict"
    yield "deep tuples", b"\x80\x02N" + b"\x85" * 1000000 + b".", "tuple, not a dict"
    yield "deep dicts", b"\x80\x02" + b"}X\1\0\0\0a" * 100000 + b"}" + b"s" * 100000 + b".", "not a tensor"
    yield "own member", b"\x80\x02}q\0X\1\0\0\0ah\0s.", "member a is a dict"
    yield "own state_dict", b"\x80\x02}q\0X\x0a\0\0\0state_dicth\0s.", "member state_dict is a dict"
    yield "list in itself", b"\x80\x02]q\0h\0a.", "list, not a dict"
    yield "memo gap", b"\x80\x02}q\5.", "no tensors"
    yield "memo huge", b"\x80\x02}r\xff\xff\xff\xff.", "no tensors"
    yield "memo unset", b"\x80\x02h\0.", "not set"
    yield "memo far", b"\x80\x02}q\0j\xff\xff\xff\x7f.", "not set"
    yield "memo of a mark", b"\x80\x02(q\0.", "stack is empty"
    yield "text long", b"\x80\x02X\xff\xff\xff\xffabc.", "only 4 remain"
    yield "text longer", b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", "byte count"
    yield "long wide", b"\x80\x02\x8a\xff" + b"\1" * 255 + b".", "an int, not a dict"
    yield "long4", b"\x80\x02\x8b\xff\xff\xff\x7f.", "LONG4"
    yield "cut int", b"\x80\x02J\0", "not enough data"
    yield "frame", b"\x80\x04\x95\0", "not enough data"
    yield "append to nothing", b"\x80\x02Na.", "stack is empty"
    yield "member of nothing", b"\x80\x02NNs.", "stack is empty"
    yield "members of nothing", b"\x80\x02(NNu.", "stack is empty"
    yield "append to dict", b"\x80\x02}Na.", "no list"
    yield "members of a list", b"\x80\x02](NNu.", "no dict"
    yield "odd members", b"\x80\x02}(Nu.", "no value"
    yield "members of a mark", b"\x80\x02((NNu.", "stack is empty"
    yield "tuple without mark", b"\x80\x02Nt.", "mark is missing"
    yield "two values", b"\x80\x02}}.", "only value"
    yield "after the end", b"\x80\x02}.}", "only value"
    yield "top tensor", b"\x80\x02" + tensor([2], [1]) + b".", "tensor, not a dict"
    yield "int key", b"\x80\x02}K\1" + tensor([2], [1]) + b"s.", "an int is a tensor"
    yield "values", b"\x80\x02" + b"N" * 100 + b"0" * 100, "POP"
    yield "many values", b"\x80\x02]" + b"]a" * (5 << 20) + b".", "limit"
    yield "many tensors", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\0(" + storage() + number(0) + b"))\x89}tq\1" + b"h\0h\1R" * 66000 + b".", "only value"
    yield "many members", b"\x80\x02}q\0X\1\0\0\0aq\1" + tensor([2], [1]) + b"q\2s" + b"h\1h\2s" * 66000 + b".", "limit"
    yield "long pickle", b"\x80\x02" + b"X" + struct.pack("<I", 17 << 20) + bytes(17 << 20) + b".", "limit"


def tensors():
    """Changed tensors of an otherwise valid file."""
    def one(name, word, **changed):
        return name, gate(**changed), word
    yield one("good", None)
    yield one("offset", "within its storage", linear1_weight=tensor([2, 2], [2, 1], 5))
    yield one("last offset", None, linear1_weight=tensor([2, 2], [2, 1], 4))
    yield one("negative offset", "offset", linear1_weight=tensor([2, 2], [2, 1], -1))
    yield one("huge offset", "within its storage", linear1_weight=tensor([2, 2], [2, 1], 2**63 - 1))
    yield one("negative size", "sizes", linear1_weight=tensor([-2, 2], [2, 1]))
    yield one("empty size", "size of 0", linear1_weight=tensor([0, 2], [2, 1]))
    yield one("huge sizes", "within its storage", linear1_weight=tensor([2**62, 2**62], [1, 1]))
    yield one("huge size", "within its storage", linear1_weight=tensor([2**63 - 1], [2**63 - 1]))
    yield one("huge stride", "within its storage", linear1_weight=tensor([2, 2], [2**62, 2**62]))
    yield one("negative stride", "sizes", linear1_weight=tensor([2, 2], [2, -1], 1))
    yield one("long stride", "within its storage", linear1_weight=tensor([2, 2], [7, 1]))
    yield one("longest stride", None, linear1_weight=tensor([2, 2], [6, 1]))
    yield one("columns", None, linear1_weight=tensor([2, 2], [1, 2]))
    yield one("expanded", "expanded", linear1_weight=tensor([9, 2], [0, 1]))
    yield one("few strides", "as many strides", linear1_weight=tensor([2, 2], [1]))
    yield one("five sizes", "0 to 4", linear1_weight=tensor([1] * 5, [1] * 5))
    yield one("storage of 2^62", "elements", linear1_weight=tensor([2, 2], [2, 1], of=storage(n=2**62)))
    yield one("short storage", "elements", linear1_weight=tensor([2, 2], [2, 1], of=storage(n=7)))
    yield one("other type", "type", linear1_weight=tensor([2, 2], [2, 1], of=storage(n=8, type_="torch\nHalfStorage")))
    yield one("negative storage", "persistent", linear1_weight=tensor([2, 2], [2, 1], of=storage(n=-1)))
    for key in ("1", "", "../../a", "x" * 100, "0\0", "0/", "%s%n"):
        yield one(f"key {key[:9]!r}", "not in the archive", linear1_weight=tensor([2, 2], [2, 1], of=storage(key)))
    yield one("no hooks", None, linear1_weight=tensor([2, 2], [2, 1], tail=b"\x89}}"))
    yield one("few arguments", "made of a storage", linear1_weight=tensor([2, 2], [2, 1], tail=b""))
    yield one("text", "a str", linear1_weight=text("x"))
    yield one("parameter", None, linear1_weight=b"ctorch.nn.parameter\nParameter\n" + tensor([2, 2], [2, 1]) + b"\x88\x86R")
    yield one("parameter of text", "parameter", linear1_weight=b"ctorch._utils\n_rebuild_parameter\n" + text("x") + b"\x88}\x87R")
    yield one("further", None, other=tensor([2], [1]))
    for kind in ("Double", "Long", "Bool"):
        yield one("of " + kind, f"torch.{kind}Storage", linear1_bias=tensor([1], [1], of=storage(n=1, type_=f"torch\n{kind}Storage")))
    beside = top(bias=tensor([2], [1], 6))[2:-1]
    more = tensor([1], [1], of=storage("1", 1, "torch\nLongStorage")) + b"ctorch\nSize\n" + number(3) + b"\x85\x85R" + b"ctorch\ndevice\n" + text("cpu") + b"\x85R"
    yield "beside", archive(b"\x80\x02}(" + text("step") + b"](" + more + b"e" + text("state_dict") + beside + b"u.", {"0": bytes(32)}), None
    for name in ("", "a" * 300, "a\nb", "a\0b", "\u00e9"):
        yield f"name {name[:3]!r}", archive(b"\x80\x02}" + b"X" + struct.pack("<I", len(name.encode())) + name.encode() + tensor([2], [1]) + b"s.", {"0": bytes(32)}), "name of tensor"
    yield "same name", archive(b"\x80\x02}(" + (text("a") + tensor([2], [1])) * 2 + b"u.", {"0": bytes(32)}), "twice"
    big = 1 << 16
    wide = b"\x80\x02}(" + b"".join(text(f"t{i}") + tensor([2, big // 2], [1, 2], of=storage(n=big)) for i in range(128)) + b"u."
    yield "copies", archive(wide, {"0": bytes(4 * big)}), "100 times as large"


def central(data, change):
    """Returns the archive with every central record changed by change(bytearray)."""
    b = bytearray(data)
    at = b.find(b"PK\1\2")
    while at >= 0:
        change(b, at)
        at = b.find(b"PK\1\2", at + 4)
    return bytes(b)


def archives():
    body = top(linear1_weight=tensor([2, 2], [2, 1]), linear1_bias=tensor([2], [1]), linear2_weight=tensor([2, 2], [2, 1]), bias=tensor([2], [1], 6))
    eight = {"0": struct.pack("<8f", *range(8))}
    good = archive(body, eight)
    yield "plain", good, None
    yield "order", archive(body, eight, more=[("a/byteorder", "little")]), None
    yield "big-endian", archive(body, eight, more=[("a/byteorder", "big")]), "byteorder"
    yield "folder of folders", archive(body, eight, prefix="a/b"), "no data.pkl"
    yield "no folder", archive(body, eight, prefix=""), "no data.pkl"
    yield "long folder", archive(body, eight, prefix="a" * 250), None
    yield "two pickles", archive(body, eight, more=[("b/data.pkl", body)]), "more than one"
    yield "deflated", archive(body, eight, method=zipfile.ZIP_DEFLATED), "compressed"
    bomb = archive(body, {"0": bytes(1 << 24)}, method=zipfile.ZIP_DEFLATED)
    yield "bomb", bomb, "compressed"
    yield "not pickle", archive(b"hello", eight), "data.pkl"
    yield "docx", zip_of({"word/document.xml": b"<w/>"}), "no data.pkl"
    yield "empty zip", zip_of({}), "no data.pkl"
    yield "name twice", zip_twice(body, eight["0"]), "damaged"
    for field, size in (("compressed size", 20), ("size", 24), ("offset", 42)):
        for value in (0, 1, 0x7fffffff, 0xfffffffe, 0xffffffff):
            yield f"{field} {value:#x}", central(good, lambda b, at, s=size, v=value: struct.pack_into("<I", b, at + s, v)), False
    for field, size in (("method", 10), ("flags", 8), ("name", 28), ("extra", 30), ("comment", 32)):
        for value in (1, 8, 99, 0xffff):
            yield f"{field} {value}", central(good, lambda b, at, s=size, v=value: struct.pack_into("<H", b, at + s, v)), False
    both = bytearray(good)  # sizes that are wrong in both headers
    for mark, at in ((b"PK\1\2", 20), (b"PK\3\4", 18)):
        i = both.find(mark)
        while i >= 0:
            struct.pack_into("<II", both, i + at, 0x40000000, 0x40000000)
            i = both.find(mark, i + 4)
    yield "sizes of 1 GiB", bytes(both), "over the limit"
    i = good.rfind(b"PK\5\6")
    for value in (0, 1, 7, 0xffff):
        yield f"{value} entries", good[:i + 8] + struct.pack("<HH", value, value) + good[i + 12:], False
    at = good.find(eight["0"])
    yield "wrong bit", good[:at] + b"\1" + good[at + 1:], "checksum"
    yield "before 1.6", b"\x80\2\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\2M\xe9\3.", "before 1.6"
    yield "cut zip", b"PK\3\4" + bytes(60), "cut off"


MAX16, MAX32 = 0xffff, 0xffffffff


class Entry:
    """Headers of an entry, which can be wrong; `local` and `record` set fields of only one
    header."""
    FIELDS = {"made": 20, "need": 20, "flags": 0, "method": 0, "time": 0, "date": 33, "crc": None, "size": None, "unpacked": None}

    def __init__(self, name, data=b"", /, extra=b"", record_extra=b"", at=None, name_n=None, local=(), record=(), **both):
        fields = {**self.FIELDS, "crc": zlib.crc32(data), "size": len(data), "unpacked": len(data), "name": name.encode(), **both}
        self.local, self.record = {**fields, **dict(local)}, {**fields, **dict(record)}
        self.data, self.extra, self.record_extra, self.at, self.name_n = data, extra, record_extra, at, name_n

    def header(self, mark, f, extra, made, tail=b""):
        n = len(f["name"]) if self.name_n is None else self.name_n
        made = struct.pack("<H", f["made"]) if made else b""
        return (mark + made + struct.pack("<5H3I2H", *(f[k] for k in list(self.FIELDS)[1:]), n, len(extra)) + tail + f["name"] + extra)

    def before_data(self):
        return self.header(b"PK\3\4", self.local, self.extra, False)

    def in_directory(self, at):
        return self.header(b"PK\1\2", self.record, self.record_extra, True, struct.pack("<HHHII", 0, 0, 0, 0, at if self.at is None else self.at))


def end_of(n, size, at, comment=b""):
    return b"PK\5\6" + struct.pack("<4H2IH", 0, 0, n, n, size, at, len(comment)) + comment


def end64_of(n, size, at, place=None, parts=0, length=44, here=None):
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", length, 45, 45, parts, 0, n if here is None else here, n, size, at)
    return record + b"PK\6\7" + struct.pack("<IQI", 0, at + size if place is None else place, 1)


def zip_by_hand(entries, end=end_of, before=b""):
    body, directory = before, b""
    for e in entries:
        directory += e.in_directory(len(body))
        body += e.before_data() + e.data
    return body + directory + end(len(entries), len(directory), len(body))


def zip64(*numbers, kind=1):
    return struct.pack(f"<HH{len(numbers)}Q", kind, 8 * len(numbers), *numbers)


def headers():
    """Archives with one wrong number or name."""
    body = top(linear1_weight=tensor([2, 2], [2, 1]), linear1_bias=tensor([2], [1]), linear2_weight=tensor([2, 2], [2, 1]), bias=tensor([2], [1], 6))
    eight = struct.pack("<8f", *range(8))

    def with_0(end=end_of, before=b"", more=(), **changed):
        return zip_by_hand([Entry("a/data.pkl", body), Entry("a/data/0", eight, **changed), *more], end, before)

    at_0 = 30 + len("a/data.pkl") + len(body)
    yield "by hand", with_0(), None
    yield "known later", with_0(flags=8, local={"crc": 0, "size": 0, "unpacked": 0}), None
    yield "other extra fields", with_0(extra=zip64(7, kind=9), record_extra=zip64(7, kind=9) + b"\1\0\0\0"), None
    yield "comment", with_0(lambda *a: end_of(*a, b"PK\5\6 of a comment")), False
    yield "comment of 65535", with_0(lambda *a: end_of(*a, b"c" * MAX16)), None
    yield "end in a comment", with_0(lambda n, size, at: end_of(n, size, at, end_of(0, 0, at + size + 22))), False
    yield "bytes behind the end", with_0() + b"\0", False
    yield "bytes between", with_0(lambda *a: b"\0" + end_of(*a)), False
    yield "bytes before", with_0(lambda n, size, at: end_of(n, size, at - 4), before=b"PK\3\4"), False
    yield "parts", with_0(lambda n, size, at: b"PK\5\6" + struct.pack("<4H2IH", 1, 0, n, n, size, at, 0)), False
    yield "entries of other parts", with_0(lambda n, size, at: b"PK\5\6" + struct.pack("<4H2IH", 0, 0, n, n + 1, size, at, 0)), False
    yield "one entry fewer", with_0(lambda n, size, at: end_of(n - 1, size, at)), False
    yield "65535 entries", with_0(lambda n, size, at: end_of(MAX16, size, at)), False
    yield "as many entries as bytes", with_0(lambda n, size, at: end_of(size, size, at)), False
    yield "one byte more", with_0(size=33, unpacked=33), False
    yield "header cut by the directory", with_0(more=[Entry("b", b"PK\3\4", at=at_0 + 30 + len("a/data/0") + 32 + 30 + 1)]), False
    yield "encrypted", with_0(flags=1), "encrypted"
    yield "encrypted in the directory", with_0(record={"flags": 1}), False
    yield "encrypted before the data", with_0(local={"flags": 1}), "differs"
    yield "encrypted and longer", with_0(flags=1, unpacked=20), "encrypted"
    yield "other name", with_0(local={"name": b"a/data/1"}), "differs"
    yield "shorter name", with_0(local={"name": b"a/data/"}), "differs"
    yield "other checksum", with_0(local={"crc": 7}), "differs"
    yield "other method", with_0(local={"method": 8}), "differs"
    yield "other size", with_0(local={"size": 31}), False
    yield "two sizes", with_0(unpacked=1 << 20), "two sizes"
    yield "method 8 by name alone", with_0(method=8), "compressed"
    yield "bomb by name", with_0(method=8, unpacked=MAX32 - 1), "compressed"
    yield "name of 65535", with_0(record={"name": b"x"}, name_n=MAX16), False
    yield "NUL in a name", with_0(name=b"a/data/0\0.txt"), "NUL"
    yield "NUL in another", with_0(more=[Entry("a/data/0\0", eight)]), "NUL"
    yield "long names", with_0(more=[Entry("n" * 60000 + c, eight) for c in "ab"]), None
    yield from ((f"{n[:9]} twice", with_0(more=[Entry(n, eight)] * 2), "one name") for n in ("A", "z", "n" * 60000))  # first, last, long
    yield "empty name", with_0(more=[Entry("", eight)]), None
    yield "escape code in a name", zip_by_hand([Entry("\x1b[2J/data.pkl", body), Entry("\x1b[2J/byteorder", b"little", method=8)]), "\\x1b[2J/byteorder is compressed"
    for at in (0, at_0 - 1, at_0 + 1, at_0 + 30, MAX32 - 1, MAX32):
        yield f"place {at}", with_0(at=at), False
    for kind in (1, 9):
        yield f"extra field {kind} too long", with_0(record_extra=struct.pack("<HH", kind, 9) + bytes(8)), False
    # Shared bytes: each storage contains the headers of all later ones.
    keys, shared, found = [f"{i:02}" for i in range(20)], bytes(40), []
    for key in reversed(keys):
        found.append(Entry(f"a/data/{key}", shared, extra=b"\2\0\1\0\0"))
        shared = found[-1].before_data() + shared
    found.reverse()
    members = b"\x80\x02}(" + b"".join(text(f"t{k}") + tensor([2], [1], of=storage(k, len(e.data) // 4)) for k, e in zip(keys, found)) + b"u."
    directory = b"".join(e.in_directory(len(shared) - len(e.data) - len(e.before_data())) for e in found)
    pickled = Entry("a/data.pkl", members)
    nested = shared + pickled.before_data() + members
    directory += pickled.in_directory(len(shared))
    yield "shared bytes", nested + directory + end_of(21, len(directory), len(nested)), "has room for"


def headers64():
    """Zip64, which archives of any size may use."""
    body = top(linear1_weight=tensor([2, 2], [2, 1]), linear1_bias=tensor([2], [1]), linear2_weight=tensor([2, 2], [2, 1]), bias=tensor([2], [1], 6))
    eight = struct.pack("<8f", *range(8))
    at_0 = 30 + len("a/data.pkl") + len(body)

    def large(n=32, unpacked=32, at=at_0, end=lambda n, size, at: end64_of(n, size, at) + end_of(MAX16, MAX32, MAX32), extra=None, **changed):
        e = Entry("a/data/0", eight, zip64(unpacked, n), zip64(unpacked, n, at) if extra is None else extra, MAX32, need=45, size=MAX32, unpacked=MAX32, crc=zlib.crc32(eight), **changed)
        return zip_by_hand([Entry("a/data.pkl", body), e], end)

    def ends(make, old=(MAX16, MAX32, MAX32)):
        return large(end=lambda n, size, at: make(n, size, at) + end_of(*old))

    yield "zip64", large(), None
    yield "zip64 behind another field", large(extra=zip64(5, kind=9) + zip64(32, 32, at_0)), None
    yield "zip64 of an entry alone", large(end=end_of), None
    yield "zip64 with both counts", large(end=lambda *a: end64_of(*a) + end_of(*a)), None
    for name, extra in (("none", b""), ("of other kind", zip64(32, 32, at_0, kind=2)), ("behind the end", zip64(32, 32, at_0)[:-1])):
        yield f"zip64 field {name}", large(extra=extra), False
    yield "zip64 of two numbers", large(extra=zip64(32, 32)), False
    for value in (31, 33, 1 << 20, 1 << 32, 1 << 62, (1 << 64) - 1):
        yield f"zip64 size {value}", large(n=value), "entry"
        yield f"zip64 sizes {value}", large(n=value, unpacked=value), "entry"
        yield f"zip64 place {value}", large(at=value), "entry"
    yield "zip64 count", ends(lambda n, size, at: end64_of(n + 1, size, at)), False
    yield "zip64 count of 2^60", ends(lambda n, size, at: end64_of(1 << 60, size, at)), False
    yield "zip64 directory of 2^64 - 1", ends(lambda n, size, at: end64_of(n, (1 << 64) - 1, at + size + 1, at + size)), False
    yield "zip64 directory at 2^63", ends(lambda n, size, at: end64_of(n, size, 1 << 63, at + size)), False
    yield "zip64 length", ends(lambda n, size, at: end64_of(n, size, at, length=43)), False
    yield "zip64 cut", ends(lambda *a: end64_of(*a, length=43)[:55] + end64_of(*a)[56:]), False
    yield "zip64 entries of other parts", ends(lambda n, size, at: end64_of(n, size, at, here=n + 1)), False
    yield "zip64 parts", ends(lambda n, size, at: end64_of(n, size, at, parts=1)), False
    yield "zip64 other count", ends(end64_of, (3, MAX32, MAX32)), False
    yield "zip64 other size", ends(end64_of, (MAX16, 3, MAX32)), False
    yield "zip64 other place", ends(end64_of, (MAX16, MAX32, 3)), False
    for place in (0, 4, 1 << 32, (1 << 64) - 1):
        yield f"zip64 end at {place}", ends(lambda n, size, at, p=place: end64_of(n, size, at, p)), False
    many = [(f"m{i}", b"") for i in range(65600)]  # for which Python writes Zip64 end records
    yield "65600 entries more", archive(body, {"0": eight}, more=many), None


def zip_of(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in entries.items():
            z.writestr(name, data)
    return out.getvalue()


def zip_twice(body, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return archive(body, {"0": data}, more=[("a/data/0", data)])


def convert(data):
    """Returns (tensors, None), or (None, the error); any other exception ends the test."""
    try:
        return torch_file.tensors(io.BytesIO(data), "f.pth"), None
    except torch_file.TorchFileError as e:
        return None, str(e)


def content(tensors):
    """Returns {name: (type, shape, bytes)}."""
    return {t.name: (t.type, t.shape, t.bytes()) for t in tensors}


def hostile():
    """Every case gives its error, or is read. If both are allowed, a file that is read has the
    tensors of the valid one."""
    good, cases = content(convert(gate())[0]), [(n, archive(p, {"0": bytes(32)}), w) for make in (calls, machines) for n, p, w in make()]
    for name, data, words in [*cases, *tensors(), *archives(), *headers(), *headers64()]:
        found, error = convert(data)
        one_line = error is None or error.startswith("f.pth: ") and error.isprintable() and len(error) < 500
        check(name, one_line and (words is False or (words is None) == (error is None)) and (not words or words in error), error, words)
        if found and words is False:
            check(name + ": tensors", content(found) == good)


def views():
    """A view of a storage has the elements given by its sizes, strides and offset."""
    for stride in ((2, 1), (1, 2), (3, 1), (4, 1), (4, 2), (1, 3), (2, 3), (6, 1), (0, 1), (5, 0)):
        for offset in (0, 8 - 1 - sum(stride)):
            want = struct.pack("<4f", *(offset + i * stride[0] + k * stride[1] for i in (0, 1) for k in (0, 1)))
            found, error = convert(gate(linear1_weight=tensor([2, 2], stride, offset)))
            check(f"view {stride} {offset}", not error and content(found)[P + "linear1.weight"] == ("F32", (2, 2), want), error)


def twin(path):
    """Reads the tensors of a safetensors file with only json."""
    data = Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__", {})
    return meta, {k: (v["dtype"], tuple(v["shape"]), data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}


TWINS = {"rg_protocol4.pth": "rg", "rg_strides.pth": "rg", "rg10_inner.pth": "rg10_bf16", "wgkv_nested.pt": "wgkv"}


def stored(folder):
    """Returns {name: bytes} of the files of torch.save that NumPy also wrote."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith((".pth", ".pt")) and not name.startswith("published"):
            found[name] = Path(os.path.join(folder, name)).read_bytes()
    return found


def same(folder):
    for name, data in stored(folder).items():
        found, error = convert(data)
        if not check(name, not error, error):
            continue
        _, want = twin(os.path.join(folder, TWINS.get(name, os.path.splitext(name)[0]) + ".safetensors"))
        if name == "rg10_inner.pth":
            want = {k.replace("model.layers.", "model.language_model.layers."): v for k, v in want.items()}
        check(name + ": tensors", content(found) == want)


def damaged(folder):
    """A truncated file is rejected. A file with a wrong byte is rejected, or gives equal tensors:
    padding, times and versions have no checksum."""
    files = stored(folder)
    for name, data in files.items():
        uncut = [n for n in range(len(data)) if convert(data[:n])[1] is None]
        check(name + ": cut", not uncut, uncut[:5])
    flips = (1, 0x80, 0xff)
    for name in ("rg10_tied.pth", "wgkv.pt"):
        data, good, rejected, other = bytearray(files[name]), content(convert(files[name])[0]), 0, []
        for at in range(len(data)):
            for flip in flips if os.environ.get("KVFATE_TESTS") == "long" else (flips[at % 3],):
                data[at] ^= flip
                found, error = convert(bytes(data))
                rejected += error is not None
                other += [at] if found and content(found) != good else []
                data[at] ^= flip
        check(name + ": a wrong byte", not other and rejected > len(data) / 2, rejected, other[:5])


def random_pickles(folder):
    """Random changes of a pickle, with correct checksums, are rejected or give tensors within the
    file's size, without other effects."""
    rng = random.Random(1)
    kept = 0
    for name, data in stored(folder).items():
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            entries = {n.partition("/")[2]: z.read(n) for n in z.namelist()}
        body, storages = entries["data.pkl"], {k[5:]: v for k, v in entries.items() if k.startswith("data/")}
        for _ in range(2000 if os.environ.get("KVFATE_TESTS") == "long" else 60):
            changed = bytearray(body)
            for _ in range(rng.randint(1, 3)):
                at, n = rng.randrange(len(changed)), rng.choice((1, 1, 1, 4, 30))
                how = rng.random()
                changed[at:at + n] = bytes(rng.randrange(256) for _ in range(n)) if how < 0.5 else b"" if how < 0.7 else body[rng.randrange(len(body)):][:n] * 2
            found, _ = convert(archive(bytes(changed), storages))
            kept += found is not None
            check(name + ": random", found is None or sum(len(t.bytes()) for t in found) <= 100 * len(data))
    check("some random pickles are read", kept > 0)


def run(*argv, **options):
    return subprocess.run([sys.argv[1], *map(str, argv)], capture_output=True, text=True, timeout=60, **options)


def command(folder, work):
    """The command, and how the program refers to it."""
    def there():
        return sorted(os.listdir(work))

    path = os.path.join(work, "it's a file.pth")
    data = Path(os.path.join(folder, "rg10_tied.pth")).read_bytes()
    Path(path).write_bytes(data)
    for argv in (("trace", "info", path), ("run", "-p", "a", "-n", "1", "--raw", "--method", "trimkv", "-B", "8", "--gates", path, "-o", os.path.join(work, "x.kvf"))):
        r = run(*argv)
        words = r.stderr.strip().rpartition("convert it with: ")[2]
        check(argv[0] + " names the command", r.returncode == 1 and r.stderr.count("\n") == 1 and shlex.split(words) == ["kvfate", "gates", "convert", path], r)
    made = path[:-4] + ".safetensors"
    r = run(*shlex.split(words)[1:])
    check("converts", r.returncode == 0 and r.stdout == made + "\n" and not r.stderr and there() == sorted(map(os.path.basename, (made, path))), r, there())
    meta, tensors = twin(made)
    check("its tensors", meta == {"format": "pt"} and tensors == content(convert(data)[0]), meta)
    facts = json.loads(run("trace", "info", made, "--json").stdout)
    check("its facts", (facts["kind"], facts["layout"], facts["container"], facts["tied"], facts["layers"], facts["kv_heads"], facts["d_model"], facts["hidden"],
                        facts["head_dim"], facts["metadata"]) == ("retention", "rg10", "safetensors", True, 2, 2, 6, 4, None, {"format": "pt"}), facts)
    refused("there already", 1, ["gates", "convert", path], "exists")
    check("replaces", run("gates", "convert", path, "--overwrite").returncode == 0)
    refused("onto itself", 1, ["gates", "convert", path, "-o", path, "--overwrite"], "the output is the input")
    refused("another format", 2, ["gates", "convert", path, "-o", os.path.join(work, "x.npz")], ".npz is another format")
    refused("another action", 2, ["gates", "show", path], "unknown action")
    named = os.path.join(work, "named.pt")
    Path(named).write_bytes(archive(b"\x80\x02}(" + text("__metadata__") + tensor([2], [1]) + b"u.", {"0": struct.pack("<8f", *range(8))}))
    refused("a tensor named as the metadata", 1, ["gates", "convert", named], "reserves for metadata")
    refused("no file", 2, ["gates", "convert"], "a file is missing")
    refused("none there", 1, ["gates", "convert", os.path.join(work, "none.pt")], "No such file")
    refused("a folder", 1, ["gates", "convert", work], "directory")
    os.mkfifo(os.path.join(work, "pipe"))
    refused("a pipe", 1, ["gates", "convert", os.path.join(work, "pipe")], "not a regular file")
    before = there()
    for name, data, words in [*((n, archive(p, {"0": bytes(32)}), w) for n, p, w in itertools.islice(calls(), 3)), ("bomb", archive(top(bias=tensor([2], [1])), {"0": bytes(1 << 24)}, method=zipfile.ZIP_DEFLATED), "compressed")]:
        Path(path).write_bytes(data)
        refused(name, 1, ["gates", "convert", path, "-o", os.path.join(work, "x.safetensors")], words)
        check(name + " writes nothing", there() == before, there())


def configs(folder, work):
    """The config.json next to the file distinguishes rg from rg2, which have the same names."""
    cases = [("rg2.pth", None, {}), ("rg2.pth", {"retention_gate": "rg2"}, {"kvfate.kind": "retention", "kvfate.layout": "rg2", "kvfate.key_order": "halves"}),
             ("rg.pth", {"retention_gate": "rg"}, {"kvfate.kind": "retention", "kvfate.layout": "rg"}), ("rg2.pth", {"hidden_size": 16}, {}),
             ("rg2.pth", {"retention_gate": 2}, {}), ("rg2.pth", [1], {}), ("rg3.pth", {"retention_gate": "rg"}, {}), ("wgkv.pt", {"retention_gate": "rg"}, {}),
             ("rg10_bf16.pth", {"retention_gate": "rg10"}, {})]
    path, out, config = (os.path.join(work, n) for n in ("g.pth", "g.safetensors", "config.json"))
    for name, value, want in cases:
        with open(os.path.join(folder, name), "rb") as f, open(path, "wb") as g:
            g.write(f.read())
        if value is not None:
            with open(config, "w") as f:
                json.dump(value, f)
        r = run("gates", "convert", path, "--overwrite")
        check(f"{name} {value}", r.returncode == 0 and twin(out)[0] == {"format": "pt", **want}, r)
        facts = json.loads(run("trace", "info", out, "--json").stdout)
        check(f"{name} {value}: layout", facts["layout"] == want.get("kvfate.layout", "rg or rg2" if name == "rg2.pth" else re.match("[a-z0-9]+", name)[0]), facts)
    with open(os.path.join(folder, "rg2.pth"), "rb") as f, open(path, "wb") as g:
        g.write(f.read())
    with open(config, "w") as f:
        json.dump({"retention_gate": "rg3"}, f)
    refused("another gate", 1, ["gates", "convert", path, "--overwrite"], "'rg3'", "rg and rg2")
    Path(config).write_bytes(b'{"retention_gate"')
    check("a broken config.json", run("gates", "convert", path, "--overwrite").returncode == 0 and twin(out)[0] == {"format": "pt"})
    with open(path, "wb") as f:  # types of 2 and 4 bytes: each tensor is aligned
        one = tensor([1], [1], of=storage("1", 1, "torch\nBFloat16Storage"))
        f.write(archive(top(bias=one, linear1_bias=tensor([2], [1]), linear3_bias=one), {"0": bytes(32), "1": b"\x80\x3f"}))
    os.remove(config)
    r, kinds = run("gates", "convert", path, "--overwrite"), {"F32": 4, "BF16": 2}
    header = json.loads(Path(out).read_bytes()[8:].partition(b"}}")[0] + b"}}")
    places = [(x["data_offsets"][0], kinds[x["dtype"]]) for k, x in header.items() if k != "__metadata__"]
    check("aligned", r.returncode == 0 and len(places) == 3 and all(at % n == 0 for at, n in places), r, places)
    for name, readout in (("rg10_tied.pth", "readout equal in all layers"), ("rg.pth", "readout of each layer its own"), ("wgkv.pt", None)):  # only for retention gates
        run("gates", "convert", os.path.join(folder, name), "-o", out, "--overwrite")
        words = run("trace", "info", out).stdout
        check(name + ": readout", "weights" in words and ("readout" in words) == bool(readout) and (readout or "") in words, words)


def main():
    folder = sys.argv[2]
    os.environ["KVFATE_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="kvf-torch-") as work:
        canary = os.environ["KVFATE_CANARY"] = os.path.join(work, "canary")
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
        same(folder)
        views()
        hostile()
        damaged(folder)
        random_pickles(folder)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        place = os.path.join(work, "files")
        os.mkdir(place)
        command(folder, place)
        check("nothing ran", not os.path.exists(canary))
        pickle.loads(next(p for n, p, _ in calls() if n == "system"))
        check("the same pickle does run where Python's own pickle reads it", os.path.exists(canary))
        place = os.path.join(work, "configs")
        os.mkdir(place)
        configs(folder, place)
    finish()


if __name__ == "__main__":
    main()
