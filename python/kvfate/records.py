"""A trace file as records: which there are, and their bytes.  docs/reference/format.md is the description.

RecordFile opens a file by its index, or walks it where it was not closed or its index is damaged; payload() gives the
bytes of a record.  Nothing that a file says is multiplied or allocated before it was bounded (section 12)."""
import mmap
import os
import struct

import numpy as np

from .checksums import crc32c, hash64
from .errors import TraceError, regular

MAGIC = b"\x89KVF\r\n\x1a\n"
FOOTER_MAGIC = b"KVFEND\r\n"
SYNC = 0x52465AC5
META, SCHEMA, TOKENS, COLUMN, NOTE, COMMIT, CHECKPOINT, INDEX, INTERVALS, BLOB = range(1, 11)
CRITICAL = 1
FILE_HEADER = 64
FOOTER = struct.Struct("<8sQQQIIQQ4xI")  # section 8
MOST_RECORDS = 1 << 24
MOST_STEPS = 1 << 24
MOST_BYTES = 16 << 20  # of most payloads

# Section 3; format 0.1 has no link (section 14).
HEADER = struct.Struct("<IHBBQQQIHHIIIIIIHHQQI")
HEADER_0 = struct.Struct("<IHBBQQQIHHIIIIIIHHQI")
FIELDS = ("sync", "header_len", "type", "flags", "seq", "stored_len", "raw_len", "column", "layer", "head0", "t0", "n",
          "codec", "payload_crc", "salt", "epoch", "n_heads", "zero", "offset", "link", "header_crc")
FIELDS_0 = tuple(f for f in FIELDS if f != "link")

# Section 8: an entry of the index, which is what a reader knows of a record.
ENTRY = np.dtype([("column", "<u4"), ("layer", "<u2"), ("head0", "<u2"), ("t0", "<u4"), ("epoch", "<u4"), ("n", "<u4"),
                  ("n_heads", "<u2"), ("type", "u1"), ("codec", "u1"), ("offset", "<u8"), ("stored_len", "<u8"),
                  ("raw_len", "<u8"), ("hash", "<u8")])
ENTRY_0 = np.dtype(ENTRY.descr[:-1])
ORDER = ("type", "column", "layer", "epoch", "head0", "t0", "offset")


def padded(n):
    return n + 7 & ~7


def most_stored(kind):
    """The longest payload of a type."""
    if kind in (COLUMN, INTERVALS, TOKENS):
        return MOST_BYTES
    return 56 * MOST_RECORDS if kind == INDEX else MOST_BYTES + 1024


class RecordFile:
    """The records of the file at path.

    records      their entries [n], sorted by ORDER; INDEX is none of them
    closed       the file ends in a footer
    first_bad    offset of the first damage; None where none was found
    torn         bytes at the end that form no record, of a file that was not closed
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self.file, self.map = None, None
        self.first_bad, self.torn, self.digest = None, 0, None
        try:
            regular(self.path, TraceError)
            self.file = open(self.path, "rb")
            self.size = os.fstat(self.file.fileno()).st_size
            self._read_header()
            self._read_footer()
            if self.closed:
                self.map = mmap.mmap(self.file.fileno(), self.size, access=mmap.ACCESS_READ)
            records = self._read_index() if self.closed else None
            self.indexed = records is not None
            self.records = records if self.indexed else self._walk_all()
            self.kinds = np.ascontiguousarray(self.records["type"])
        except OSError as e:
            self.close()
            raise TraceError("%s: cannot open the trace: %s" % (self.path, e.strerror)) from None
        except BaseException:
            self.close()
            raise

    def close(self):
        """Arrays that lie in the file stay."""
        if self.file:
            self.file.close()
        self.file = self.map = None

    def error(self, text, *args):
        return TraceError("%s: %s" % (self.path, text % args))

    def damage(self, offset):
        self.first_bad = offset if self.first_bad is None else min(offset, self.first_bad)

    def bytes(self, offset, n):
        """n bytes from offset on; of a closed trace they are not copied."""
        if self.map is not None:
            return memoryview(self.map)[offset:offset + n]
        if self.file is None:
            raise self.error("the trace was closed in this program")
        got = os.pread(self.file.fileno(), n, offset)
        if len(got) != n:
            raise self.error("cannot read at byte %d", offset)
        return got

    # ---- file header and footer

    def _read_header(self):
        if self.size < FILE_HEADER:
            raise self.error("not a kvfate trace (%d bytes)", self.size)
        self.header = h = self.bytes(0, FILE_HEADER)
        if h[:8] != MAGIC:
            raise self.error("not a kvfate trace (%d bytes)", self.size)
        if struct.unpack_from("<I", h, 60)[0] != crc32c(h[:60]):
            raise self.error("the header of the trace is damaged")
        major, _, _, incompatible = struct.unpack_from("<HHII", h, 8)
        if major != 1 or incompatible & ~1:
            raise self.error("written by a newer kvfate; update to read it")
        self.chained = bool(incompatible)
        self.layout, self.fields = (HEADER, FIELDS) if self.chained else (HEADER_0, FIELDS_0)
        (self.salt,) = struct.unpack_from("<I", h, 28)
        self.id = struct.unpack_from("<QQ", h, 32) if self.chained else None
        if self.chained and self.salt != self.id[0] & 0xFFFFFFFF:
            raise self.error("the header of the trace is damaged")

    def _read_footer(self):
        self.closed, self.end = False, self.size
        least = FILE_HEADER + self.layout.size
        if self.size < least + FOOTER.size:
            return
        f = self.bytes(self.size - FOOTER.size, FOOTER.size)
        magic, index, self.n_index, self.index_last, clean, salt, low, high, crc = FOOTER.unpack(f)
        if (magic == FOOTER_MAGIC and crc == crc32c(f[:60]) and salt == self.salt and clean == 1
                and FILE_HEADER <= index <= self.size - FOOTER.size - self.layout.size):
            self.closed, self.end, self.digest = True, index, (low, high) if self.chained else None

    # ---- single records

    def header_at(self, at, end):
        """The header of the record at `at`, which ends before `end`; None where there is none."""
        size = self.layout.size
        if at % 8 or end - at < size:
            return None
        h = bytes(self.bytes(at, size))
        r = dict(zip(self.fields, self.layout.unpack(h)))
        if (r["sync"] != SYNC or r["header_len"] != size or r["salt"] != self.salt or r["offset"] != at
                or r["header_crc"] != crc32c(h[:-4])):
            return None
        r["hash"] = hash64(h) if self.chained else 0
        return r

    def plausible(self, r, end):
        """Whether the lengths are those that its type allows, and it ends before `end`."""
        most = most_stored(r["type"])
        return (r["seq"] <= MOST_RECORDS - (r["type"] != INDEX) and r["stored_len"] <= most and r["raw_len"] <= most
                and self.after(r) <= end)

    def after(self, r):
        """Where the record after this one begins."""
        return int(r["offset"]) + self.layout.size + padded(int(r["stored_len"]))

    def whole_payload(self, r):
        """The stored bytes of a record of which the header is known, or None where their checksum is wrong."""
        data = self.bytes(r["offset"] + self.layout.size, r["stored_len"])
        good = crc32c(data, struct.pack("<IQQ", self.salt, r["seq"], r["offset"])) == r["payload_crc"]
        return data if good else None

    def payload(self, entry, checksum=True):
        """The stored bytes of the record that an entry names; the index is a hint, its header decides."""
        r = self.header_at(int(entry["offset"]), self.end)
        if r is None or tuple(r[k] for k in ENTRY.names) != entry.item():
            raise self.error("the record at byte %d is damaged", entry["offset"])
        data = self.whole_payload(r) if checksum else self.bytes(r["offset"] + self.layout.size, r["stored_len"])
        if data is None:
            raise self.error("the record at byte %d is damaged", entry["offset"])
        return data

    def of_type(self, kind):
        """The entries of a type, sorted."""
        return self.records[np.searchsorted(self.kinds, kind):np.searchsorted(self.kinds, kind, "right")]

    # ---- the index of a closed trace

    def _read_index(self):
        """The entries, or None where they cannot be believed."""
        layout = ENTRY if self.chained else ENTRY_0
        r = self.header_at(self.end, self.size)
        last = "hash" if self.chained else "seq"
        if (r is None or r["type"] != INDEX or not self.plausible(r, self.size - FOOTER.size)
                or self.after(r) != self.size - FOOTER.size or r["stored_len"] != self.n_index * layout.itemsize
                or r[last] != self.index_last):
            return None
        p = self.whole_payload(r)
        if p is None:
            return None
        self.index_link = r.get("link")
        entries = np.frombuffer(p, layout)
        if not self.chained:
            old, entries = entries, np.zeros(len(entries), ENTRY)
            for name in ENTRY_0.names:
                entries[name] = old[name]
        if not self._fill_the_file(entries):
            return None
        self._refuse_unknown(entries)
        return _sorted(entries)

    def _fill_the_file(self, entries):
        """Whether their lengths are plausible and the records lie side by side up to the index."""
        kinds = entries["type"]
        most = np.array([most_stored(k) for k in range(256)], np.uint64)[kinds]
        stored = entries["stored_len"]
        if np.any(stored > most) or np.any(entries["raw_len"] > most) or np.any(entries["offset"] % 8):
            return False
        whole = np.uint64(self.layout.size) + (stored + np.uint64(7) & ~np.uint64(7))
        within = np.all(entries["offset"] <= self.end) and np.all(entries["offset"] + whole <= self.end)
        return bool(within) and FILE_HEADER + int(whole.sum()) == self.end

    def _refuse_unknown(self, entries):
        known = (entries["type"] >= META) & (entries["type"] <= BLOB)
        for e in entries[~known]:
            r = self.header_at(int(e["offset"]), self.end)
            if r and r["flags"] & CRITICAL:
                raise self.error("written by a newer kvfate; update to read it")

    # ---- a walk over the records

    def walk(self):
        """The headers of all records, in their order.  Places where there is none, and links that do not fit, are noted."""
        at, seq, link = FILE_HEADER, 0, hash64(bytes(self.header))
        while at < self.end:
            r = self.header_at(at, self.end)
            if r is None or not self.plausible(r, self.end) or r["seq"] < seq:
                at, link = self._step_over(at), None
                continue
            if not META <= r["type"] <= BLOB and r["flags"] & CRITICAL:
                raise self.error("written by a newer kvfate; update to read it")
            if self.chained and link is not None and r["link"] != link:
                self.damage(at)
            at, seq, link = self.after(r), r["seq"] + 1, r["hash"]
            if r["type"] != INDEX:
                yield r
        self.last_link = link

    def _step_over(self, at):
        """Goes on after bytes that are no record; those with none after them are torn, unless the trace was closed."""
        again = self._next_header(at + 8)
        if again is None and not self.closed:
            self.torn = self.end - at
            return self.end
        self.damage(at)
        return self.end if again is None else again

    def _next_header(self, at, step=1 << 16):
        for begin in range(padded(at), self.end - self.layout.size + 1, step):
            words = np.frombuffer(self.bytes(begin, min(step, (self.end - begin) // 8 * 8)), "<u4")[::2]
            for k in np.flatnonzero(words == SYNC):
                if self.header_at(begin + 8 * int(k), self.end):
                    return begin + 8 * int(k)
        return None

    def _walk_all(self):
        return _sorted(np.array([_entry(r) for r in self.walk()], ENTRY))

    def verify(self):
        """Walks all records, compares them with the index, and checks every checksum: TraceError names the first damage."""
        self.first_bad, self.torn, rows = None, 0, []
        for r in self.walk():
            rows.append(_entry(r))
            data = self.whole_payload(r)
            if data is None or r["type"] == CHECKPOINT and bytes(data) != bytes(self.header):
                self.damage(r["offset"])
        if self.first_bad is not None:
            raise self.error("damaged at byte %d", self.first_bad)
        if not self.closed:
            return
        if self.chained and self.indexed and self.index_link != self.last_link:
            raise self.error("damaged at byte %d", self.end)
        if not self.indexed or not np.array_equal(_sorted(np.array(rows, ENTRY)), self.records):
            raise self.error("the index does not match the records")


def _entry(r):
    """What the index would say of a record; it has one byte for the codec."""
    return tuple(min(r[k], 255) if k == "codec" else r[k] for k in ENTRY.names)


def _sorted(entries):
    """By ORDER; those of an index are sorted already, and stay in the file."""
    keys = [entries[k] for k in ORDER]
    tie, rises = np.ones(max(len(entries) - 1, 0), bool), np.zeros(max(len(entries) - 1, 0), bool)
    for k in keys:
        rises |= tie & (k[:-1] < k[1:])
        tie &= k[:-1] == k[1:]
    return entries if np.all(rises | tie) else entries[np.lexsort(keys[::-1])]
