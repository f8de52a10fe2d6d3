"""Reads the dict of tensors in a file of torch.save, without torch and without running code of the file.

    with open(path, "rb") as f:
        for t in torch_file.tensors(f, path): t.name, t.type, t.shape, t.bytes()

torch.save writes a zip archive of stored entries since version 1.6.  NAME/data.pkl is a pickle of the dict, NAME/data/KEY holds the elements
of a storage, and NAME/byteorder is "little".  A pickle is a program.  This module interprets the opcodes that torch.save uses itself; it
knows the names in NAMES and looks no other name up.  It rejects every other name or opcode, and a damaged file.  Memory is bounded by the size of the file.  The module needs Python's own library only."""
import io
import math
import pickletools
import struct
import zipfile
import zlib
from typing import NamedTuple

from .errors import Error, shown

PICKLE_BYTES, OPCODES, TENSORS, NAME_BYTES, DIMS = 16 << 20, 1 << 22, 65536, 255, 4
EXPANSION = 100  # the tensors have at most so many times the bytes of the file, as tensors can share a storage
LOCAL = "<4s5H3I2H"  # the header before the data of an entry
ELEMENT = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1}  # bytes
GATE_TYPES = {"Float": "F32", "Half": "F16", "BFloat16": "BF16"}  # those that gates have, as safetensors calls them
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


class TorchFileError(Error):
    """A file is damaged, or torch.save does not write such a file for a dict of tensors."""


class Bad(Exception):
    """The fault at the current opcode, as the end of a sentence."""


class Refused(Exception):
    """A request of the pickle that is not for tensors, as the end of a sentence."""


# ---- the values of a pickle; Python's own types hold text, numbers, lists and tuples

class Name(NamedTuple):
    """A name that the pickle refers to, one of NAMES."""
    kind: str    # "storage", "tensor", "parameter", "dict" or "data"
    which: str   # of a storage: its type, a key of ELEMENT


class Storage(NamedTuple):
    """Elements of one type: the entry NAME/data/KEY."""
    type: str
    key: str
    n: int


class View(NamedTuple):
    """A tensor as the pickle describes it: sizes, strides and offset in elements of a storage."""
    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


class Pairs(list):
    """A dict, as pairs of key and value: no key is hashed, since a deep tuple as a key would overflow the stack."""


NAMES = {"collections OrderedDict": Name("dict", ""), "torch._utils _rebuild_tensor_v2": Name("tensor", ""),
         "torch._utils _rebuild_parameter": Name("parameter", ""), "torch._utils _rebuild_parameter_with_state": Name("parameter", ""),
         "torch.nn.parameter Parameter": Name("parameter", ""), "torch Size": Name("data", ""), "torch device": Name("data", ""),
         **{"torch %sStorage" % t: Name("storage", t) for t in ELEMENT}, **{"torch %s" % t: Name("data", t) for t in DTYPES}}
KINDS = {type(None): "None", bool: "a bool", int: "an int", float: "a float", str: "a str", tuple: "a tuple", list: "a list", Pairs: "a dict",
         Name: "a name", Storage: "a storage", View: "a tensor"}


def _sizes(value):
    if type(value) is not tuple or len(value) > DIMS or not all(type(x) is int and 0 <= x < 1 << 63 for x in value):
        raise Bad("a tensor has no usable offset, or not 0 to %d sizes and strides from 0 on" % DIMS)
    return value


class Machine:
    """Interprets a pickle.  `self.stack` holds the items above the last mark, and `self.below` the stacks below the marks."""

    def __init__(self, data):
        self.file, self.size, self.at = io.BytesIO(data), len(data), 0
        self.stack, self.below, self.memo = [], [], {}

    def load(self):
        """The value of the pickle.  Raises Bad or Refused while self.at is the offset of the opcode."""
        for _ in range(OPCODES):
            self.at = self.file.tell()
            code = self.file.read(1)
            if not code:
                raise Bad("it has no end")
            op = pickletools.code2op.get(code.decode("latin-1"))
            name = op.name if op else "0x%02x" % code[0]
            if name == "STOP":
                return self.end()
            if name not in ACTIONS:
                raise Refused("the opcode " + name)
            try:
                arg = op.arg.reader(self.file) if op.arg else None
            except ValueError as e:
                raise Bad(str(e)) from None
            try:
                ACTIONS[name](self, arg)
            except IndexError:
                raise Bad("the stack is empty") from None
        raise Bad("it has over %d opcodes, the limit" % OPCODES)

    def end(self):
        if len(self.stack) != 1 or self.below or self.file.tell() != self.size:
            raise Bad("it does not end with its only value" if self.stack else "the stack is empty")
        return self.stack[0]

    def push(self, value):
        self.stack.append(value)

    def mark(self, _):
        self.below.append(self.stack)
        self.stack = []

    def above(self):
        """Removes the last mark; the items above it."""
        if not self.below:
            raise Bad("a mark is missing")
        items, self.stack = self.stack, self.below.pop()
        return items

    def take(self, n):
        """The n topmost items in their order, removed."""
        items = [self.stack.pop() for _ in range(n)]
        return items[::-1]

    def extend(self, items):
        if type(self.stack[-1]) is not list:
            raise Bad("items go into no list")
        self.stack[-1] += items

    def set(self, items):
        if type(self.stack[-1]) is not Pairs:
            raise Bad("members go into no dict")
        if len(items) % 2:
            raise Bad("a key has no value")
        self.stack[-1] += zip(items[::2], items[1::2])

    def put(self, i):
        self.memo[len(self.memo) if i is None else i] = self.stack[-1]

    def get(self, i):
        if i not in self.memo:
            raise Bad("a number of the memo is not set")
        self.push(self.memo[i])

    def name(self, text):
        """text: module and name with a space between them, as pickletools gives a GLOBAL; without a text, both are on the stack."""
        if text is None:
            words = self.take(2)
            if not all(type(w) is str for w in words):
                raise Bad("a name is no text")
            text = " ".join(words)
        if text not in NAMES:
            raise Refused("the name " + shown(text.replace(" ", ".")[:120]))
        self.push(NAMES[text])

    def storage(self, _):
        """Makes a storage from its persistent id ("storage", type, key, device, elements)."""
        items = self.stack.pop()
        if not (type(items) is tuple and [type(x) for x in items] == [str, Name, str, str, int] and items[0] == "storage"
                and items[1].kind == "storage" and items[4] >= 0):
            raise Refused("a persistent object that is no storage")
        self.push(Storage(items[1].which, items[2], items[4]))

    def reduce(self, _):
        name, args = self.take(2)
        if type(name) is not Name:
            raise Refused("to call what is no name")
        if name.kind == "storage":
            raise Refused("to call a type of storages")
        self.push(getattr(self, "make_" + name.kind)(args if type(args) is tuple else ()))

    def make_dict(self, args):
        if args:
            raise Bad("an OrderedDict is made of something")
        return Pairs()

    def make_data(self, args):
        """A value of torch.Size or torch.device, which no tensor uses."""
        return args

    def make_parameter(self, args):
        if not args or type(args[0]) is not View:
            raise Bad("a parameter is no tensor")
        return args[0]

    def make_tensor(self, args):
        """(storage, offset, size, stride, requires_grad, hooks[, metadata])"""
        if len(args) not in (6, 7) or type(args[0]) is not Storage:
            raise Bad("a tensor is not made of a storage, an offset, sizes and strides")
        offset, shape, strides = _sizes((args[1],))[0], _sizes(args[2]), _sizes(args[3])
        if len(shape) != len(strides):
            raise Bad("a tensor has not as many strides as sizes")
        return View(args[0], offset, shape, strides)

    def build(self, _):
        """Drops the state that an OrderedDict of a module has: the versions of its modules."""
        of, state = self.take(2)
        if type(of) is not Pairs or type(state) is not Pairs:
            raise Refused("to set the state of what is no dict")
        self.push(of)


def _skip(machine, _):
    """Skips the protocol and the length of a frame, which do not matter for tensors."""


def _constant(make):
    return lambda machine, _: machine.push(make())


ACTIONS = {
    "PROTO": _skip, "FRAME": _skip, "MARK": Machine.mark,
    "NONE": _constant(lambda: None), "NEWTRUE": _constant(lambda: True), "NEWFALSE": _constant(lambda: False),
    "EMPTY_TUPLE": _constant(tuple), "EMPTY_LIST": _constant(list), "EMPTY_DICT": _constant(Pairs),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), Machine.push),
    "TUPLE1": lambda m, _: m.push(tuple(m.take(1))), "TUPLE2": lambda m, _: m.push(tuple(m.take(2))),
    "TUPLE3": lambda m, _: m.push(tuple(m.take(3))), "TUPLE": lambda m, _: m.push(tuple(m.above())),
    "APPEND": lambda m, _: m.extend(m.take(1)), "APPENDS": lambda m, _: m.extend(m.above()),
    "SETITEM": lambda m, _: m.set(m.take(2)), "SETITEMS": lambda m, _: m.set(m.above()),
    **dict.fromkeys(("MEMOIZE", "BINPUT", "LONG_BINPUT"), Machine.put), **dict.fromkeys(("BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), Machine.name),
    "BINPERSID": Machine.storage, "REDUCE": Machine.reduce, "BUILD": Machine.build,
}


def _views(path, pickled):
    """[(name, View)] of the dict that the pickle is, or that its member "state_dict" is."""
    machine = Machine(pickled)
    try:
        top = machine.load()
    except Bad as e:
        raise TorchFileError("%s: data.pkl is damaged or no torch file at offset %d: %s; fetch the file again" % (path, machine.at, e)) from None
    except Refused as e:
        raise TorchFileError("%s: data.pkl wants %s at offset %d; only dicts of tensors are read and nothing is executed: save the state_dict "
                             "alone" % (path, e, machine.at)) from None
    if type(top) is not Pairs:
        raise TorchFileError("%s: holds %s, not a dict of tensors; save the state_dict" % (path, KINDS[type(top)]))
    found = next((v for k, v in top if k == "state_dict" and type(v) is Pairs), top)
    if not found:
        raise TorchFileError("%s: holds no tensors; save the state_dict" % path)
    if len(found) > TENSORS:
        raise TorchFileError("%s: data.pkl has %d members, over the limit of %d" % (path, len(found), TENSORS))
    seen = set()
    for name, value in found:
        if type(name) is not str or type(value) is not View:
            raise TorchFileError("%s: member %s is %s, not a tensor; save the state_dict alone" % (
                path, shown(name[:60]) if type(name) is str else KINDS[type(name)], KINDS[type(value)]))
        if not (0 < len(name) <= NAME_BYTES and all("!" <= c <= "~" for c in name)):
            raise TorchFileError("%s: the name of tensor %d is not 1 to %d printable characters" % (path, len(seen), NAME_BYTES))
        if name in seen:
            raise TorchFileError("%s: tensor %s is there twice; save the file again" % (path, name))
        seen.add(name)
    return found


# ---- the archive

class Archive:
    """The entries of a zip archive.  zipfile reads the directory; every entry that is read must be stored, lie in the file as both of its
    headers say, and have the checksum of both."""

    def __init__(self, file, path):
        self.file, self.path = file, path
        self.left = self.size = file.seek(0, io.SEEK_END)  # bytes that entries may still have together
        try:
            self.entries = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error, OSError) as e:
            raise self.damaged(e) from None
        if any(e.orig_filename != e.filename for e in self.entries):
            raise self.damaged("the name of an entry has a NUL")
        self.by_name = {e.filename: e for e in self.entries}
        if len(self.by_name) < len(self.entries):
            raise self.damaged("two entries have one name")

    def damaged(self, why):
        return TorchFileError("%s: the zip archive of a torch file is damaged or cut off (%s); fetch it again" % (self.path, shown(str(why)[:200])))

    def read(self, entry):
        """The bytes of an entry."""
        name = shown(entry.filename[:200])
        if entry.flag_bits & 1 or entry.compress_type != zipfile.ZIP_STORED:
            raise TorchFileError("%s: entry %s is %s, which torch does not write; save the file again with torch" % (
                self.path, name, "encrypted" if entry.flag_bits & 1 else "compressed"))
        if entry.file_size != entry.compress_size:
            raise self.damaged("an entry that is stored has two sizes")
        if entry.file_size > self.left:
            raise TorchFileError("%s: entry %s is larger than the file has room for; fetch it again" % (self.path, name))
        self.left -= entry.file_size
        self.file.seek(max(0, min(entry.header_offset, self.size)))
        head = self.file.read(struct.calcsize(LOCAL))
        if len(head) < struct.calcsize(LOCAL) or head[:4] != b"PK\3\4":
            raise self.damaged("an entry is not where the directory says")
        _, _, flags, method, _, _, crc, _, _, name_n, extra_n = struct.unpack(LOCAL, head)
        raw = self.file.read(name_n)
        if (raw != entry.orig_filename.encode("utf-8" if entry.flag_bits & 0x800 else "cp437") or flags & 1 or method != entry.compress_type
                or (not flags & 8 and crc != entry.CRC)):  # bit 3: the checksum was not known yet
            raise self.damaged("the header of an entry differs from the directory")
        self.file.seek(extra_n, io.SEEK_CUR)
        data = self.file.read(entry.file_size)
        if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
            raise TorchFileError("%s: entry %s is damaged (its checksum is wrong or it is cut off); fetch the file again" % (self.path, name))
        return data


def _bytes(elements, offset, shape, strides):
    """The bytes of the elements that sizes and strides name, row by row."""
    if not shape:
        return elements[offset:offset + 1].tobytes()
    n, step = shape[0], strides[0]
    if len(shape) == 1:
        return elements[offset:offset + (n - 1) * step + 1:step].tobytes() if step else elements[offset:offset + 1].tobytes() * n
    return b"".join(_bytes(elements, offset + i * step, shape[1:], strides[1:]) for i in range(n))


class Tensor(NamedTuple):
    """A tensor of the file.  n: number of elements.  bytes() gives them in row-major order, little-endian."""
    name: str
    type: str     # "F32", "F16" or "BF16"
    shape: tuple
    n: int
    view: View
    elements: memoryview  # of the storage; unsigned integers stand for the elements

    def bytes(self):
        inner = [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
        if all(n == 1 or a == b for n, a, b in zip(self.shape, self.view.strides, inner)):
            return _bytes(self.elements, self.view.offset, (self.n,), (1,))
        return _bytes(self.elements, self.view.offset, self.shape, self.view.strides)


def _tensor(path, name, view, data):
    """The tensor that is a view of a storage with these bytes."""
    storage, one = view.storage, ELEMENT[view.storage.type]
    if len(data) != storage.n * one:
        raise TorchFileError("%s: the storage %s of tensor %s has not the %d elements or the type that data.pkl states; fetch it again" % (
            path, storage.key, name, storage.n))
    if 0 in view.shape:
        raise TorchFileError("%s: tensor %s has a size of 0; no gate has one" % (path, name))
    last, n = view.offset + sum((n - 1) * stride for n, stride in zip(view.shape, view.strides)), math.prod(view.shape)
    if last >= storage.n or n > storage.n:
        raise TorchFileError("%s: tensor %s does not lie within its storage of %d elements; it is damaged or expanded: save a contiguous copy" % (
            path, name, storage.n))
    return Tensor(name, GATE_TYPES[storage.type], view.shape, n, view, memoryview(data).cast({2: "H", 4: "I"}[one]))


def tensors(file, path):
    """The tensors of an open file, a list sorted by name; path is for sentences.  Raises TorchFileError."""
    file.seek(0)
    if file.read(4) == b"\x80\2\x8a\x0a":
        raise TorchFileError("%s: a torch file in the format of before 1.6 (no zip archive); load it with torch and save it again" % path)
    archive = Archive(file, path)
    pickles = [e for e in archive.entries if e.filename.endswith("/data.pkl") and e.filename.count("/") == 1 and len(e.filename) > 9]
    if len(pickles) != 1:
        raise TorchFileError("%s: a zip archive with %s, so it is no torch file; give what torch.save wrote" % (
            path, "more than one data.pkl" if pickles else "no data.pkl"))
    prefix = pickles[0].filename[:-len("data.pkl")]
    order = archive.by_name.get(prefix + "byteorder")  # torch writes it since 2.1
    if order and archive.read(order) != b"little":
        raise TorchFileError("%s: the byteorder is not little; save the file on a little-endian machine" % path)
    if pickles[0].file_size > PICKLE_BYTES:
        raise TorchFileError("%s: data.pkl has %d bytes, over the limit" % (path, pickles[0].file_size))
    found, data, total = [], {}, 0
    for name, view in _views(path, archive.read(pickles[0])):
        key, kind = view.storage.key, view.storage.type
        if kind not in GATE_TYPES:
            raise TorchFileError("%s: tensor %s is of torch.%sStorage; gates are of FloatStorage, HalfStorage or BFloat16Storage" % (path, name, kind))
        entry = archive.by_name.get("%sdata/%s" % (prefix, key))
        if entry is None:
            raise TorchFileError("%s: the storage %s of tensor %s is not in the archive; fetch it again" % (path, shown(key[:40]), name))
        if data.setdefault(key, (kind,))[0] != kind:
            raise TorchFileError("%s: the storage %s of tensor %s has two types; fetch it again" % (path, key, name))
        if len(data[key]) == 1:
            data[key] = kind, archive.read(entry)
        found.append(_tensor(path, name, view, data[key][1]))
        total += found[-1].n * ELEMENT[kind]
        if total > EXPANSION * archive.size:
            raise TorchFileError("%s: the tensors together are over %d times as large as the file; save contiguous copies" % (path, EXPANSION))
    return sorted(found, key=lambda t: t.name)
