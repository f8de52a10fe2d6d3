"""The operations that record.c recorded, and the disk states that a loss of power may leave.

The model has only the guarantees of POSIX:

* Data written to a file are on the disk after an fsync or fdatasync of the file. Of later data,
  every sector of 512 bytes may be present or not, regardless of order. If the file has grown,
  absent data read as zeros or as anything.
* The size of the file is any size that it has had since then.
* A name that was made, renamed or removed is so on the disk after an fsync of the folder. Each
  later operation on names may have happened or not, regardless of order. A single operation is
  atomic.
* Sectors are written completely, and synced data stay."""
import os
import struct

HEAD = struct.Struct("<IIIIQQQ")
SECTOR = 512
O_CREAT, O_TRUNC = os.O_CREAT, os.O_TRUNC


class Operation:
    def __init__(self, kind, flags, file, at, call, a, b):
        self.kind, self.flags, self.file, self.at, self.call = kind, flags, file, at, call
        self.data, self.name, self.to = a, a.decode(errors="surrogateescape"), b.decode(errors="surrogateescape")


def parse(log):
    out, at = [], 0
    while at + HEAD.size <= len(log):
        op, a, b, flags, file, offset, call = HEAD.unpack_from(log, at)
        at += HEAD.size
        out.append(Operation(chr(op), flags, file, offset, call, log[at:at + a], log[at + a:at + a + b]))
        at += a + b
    return out


class File:
    """The data that are surely on the disk, and the changes since then: (offset, bytes), or (size,
    None)."""

    def __init__(self, data=b""):
        self.durable, self.pending = data, []

    def now(self):
        out = bytearray(self.durable)
        for at, data in self.pending:
            put(out, at, data)
        return bytes(out)

    def sync(self):
        self.durable, self.pending = self.now(), []

    def after_loss(self, rng, style):
        if style == "none" or not self.pending:
            return self.durable
        if style == "all":
            return self.now()
        out, sizes, size = bytearray(self.durable), [len(self.durable)], len(self.durable)
        last = len(self.pending)
        first, last = {"prefix": (0, rng.randint(0, last)), "late": (rng.randint(0, last), last)}.get(style, (0, last))
        for i, (at, data) in enumerate(self.pending):
            size = at if data is None else max(size, at + len(data))
            sizes.append(size)
            if data is None:
                if rng.random() < 0.5:
                    put(out, at, None)
                continue
            begin = at
            while begin < at + len(data):
                end = min((begin // SECTOR + 1) * SECTOR, at + len(data))
                if first <= i < last and (style != "any" or rng.random() < 0.7):
                    put(out, begin, data[begin - at:end - at])
                elif end > len(out) and rng.random() < 0.2:
                    put(out, begin, rng.randbytes(end - begin))
                begin = end
        if rng.random() < 0.5:
            put(out, rng.choice(sizes), None)
        return bytes(out)


def put(out, at, data):
    """Applies a write, or a new size, to a file."""
    if len(out) < at:
        out.extend(bytes(at - len(out)))
    if data is None:
        del out[at:]
    else:
        out[at:at + len(data)] = data


class Disk:
    """One folder. files: {name: bytes} that existed before, and are on the disk."""

    def __init__(self, folder, files, lies=False):
        self.folder, self.lies = os.path.realpath(folder), lies  # lies: fsync of a file has no effect
        self.names = {name: File(data) for name, data in files.items()}
        self.now, self.pending, self.by_number = dict(self.names), [], {}

    def local(self, path):
        path = os.path.normpath(os.path.join(self.folder, path))
        folder, name = os.path.split(path)
        return name if folder == self.folder else "." if path == self.folder else None

    def rename_to(self, name, file, old=None):
        self.pending.append((name, file, old))
        if old is not None:
            self.now.pop(old)
        if file is None:
            self.now.pop(name)
        else:
            self.now[name] = file

    def apply(self, op):
        name, to = self.local(op.name) if op.kind in "oduml" or op.kind == "r" else None, self.local(op.to)
        if op.kind == "o" and name:
            if name not in self.now:
                self.rename_to(name, File())
            self.by_number[op.file] = self.now[name]
            if op.flags & O_TRUNC:
                self.now[name].pending.append((0, None))
        elif op.kind in "wts" and op.file in self.by_number:
            file = self.by_number[op.file]
            if op.kind == "s" and not self.lies:
                file.sync()
            elif op.kind != "s":
                file.pending.append((op.at, op.data if op.kind == "w" else None))
        elif op.kind == "d" and name == ".":
            self.names, self.pending = dict(self.now), []
        elif op.kind == "r" and name in self.now and to:
            self.rename_to(to, self.now[name], name)
        elif op.kind == "u" and name in self.now:
            self.rename_to(name, None)

    def after_loss(self, rng, of_names, of_data):
        """Returns {name: bytes} of a possible disk state. The styles are none, all, prefix, late
        and any."""
        names = dict(self.names)
        upto = {"none": 0, "prefix": rng.randint(0, len(self.pending))}.get(of_names, len(self.pending))
        for name, file, old in self.pending[:upto]:
            if of_names == "any" and rng.random() < 0.5:
                continue
            if old is not None and names.get(old) is file:
                del names[old]
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        held = {}
        for file in names.values():
            if id(file) not in held:
                held[id(file)] = file.after_loss(rng, of_data)
        return {name: held[id(file)] for name, file in names.items()}


def versions(operations, folder, files, name):
    """Returns all complete files that had the name, by renames."""
    disk, out = Disk(folder, files), []
    for op in operations:
        disk.apply(op)
        if op.kind == "r" and disk.local(op.to) == name and name in disk.now:
            out.append(disk.now[name].now())
    return out
