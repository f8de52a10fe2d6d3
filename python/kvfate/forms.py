"""What import and export share: the forms of files, and how they hold the names, numbers and lists of a trace.

The names of fields are those of docs/guide/import.md: NAME for a column, NAME@L3 for its layer 3, and NAME@present, NAME@ends and NAME@pairs
(each with @L3 behind it) for what belongs to it."""
import json
import os
import re
from urllib.parse import quote, unquote

import numpy as np

from .errors import Error

ABOUT = "about.json"
TABLES = {"tsv": ".tsv", "parquet": ".parquet", "feather": ".feather"}
SPACES = ("run", "kv", "query")
QUIET = {4: 0x7FC00000, 8: 0x7FF8 << 48}  # the bits of the NaN that programs make
ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
BACK = {v: k for k, v in ESCAPES.items()}
PAIRS = re.compile(r"\d+-\d+(,\d+-\d+)*")


def quoted(name):
    """A name as a file has it: letters, digits and . _ - ~ stay, so that none leaves its folder."""
    try:
        return quote(name.encode("utf-8", "surrogateescape"), safe="")
    except UnicodeEncodeError:
        raise Error("the name %s holds half of a character" % ascii(name)) from None


def unquoted(text):
    return unquote(text, errors="surrogateescape")


def field(name, part="", layer=None):
    return quoted(name) + (part and "@" + part) + ("" if layer is None else "@L%d" % layer)


def split(key):
    """(name, part, layer) of a field."""
    name, *rest = key.split("@")
    layer = int(rest.pop()[1:]) if rest and re.fullmatch(r"L\d{1,4}", rest[-1]) else None
    if len(rest) > 1:
        raise Error("the name %r has more than one @ before its layer" % key)
    return unquoted(name), rest[0] if rest else "", layer


# ---- numbers as text

def floats_as_text(values):
    """The shortest decimals that give the same bits again; nan, or nan:HEX for one that is not the usual; inf."""
    values = np.asarray(values)
    text = values.astype("U32")
    nan = np.isnan(values)
    if nan.any():
        bits = values.view("<u%d" % values.itemsize)
        odd = nan & (bits != QUIET.get(values.itemsize, 0x7E00))
        text = text.astype(object)
        text[odd] = ["nan:%x" % b for b in bits[odd].tolist()]
    return text


def floats_from_text(text, dtype):
    """The reverse; ValueError for what is no number."""
    out = np.empty(len(text), dtype)
    odd = [k for k, t in enumerate(text) if isinstance(t, str) and t.startswith("nan:")]
    plain = np.array(text, object)
    plain[odd] = "0"
    with np.errstate(over="ignore"):
        out[:] = plain.astype("f8")
    bits = out.view("<u%d" % out.itemsize)
    for k in odd:
        bits[k] = int(text[k][4:], 16)
    return out


def as_json(values):
    """A list that JSON holds exactly: what is not finite is text."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    text = floats_as_text(values)
    wide = values.astype("f8") if values.itemsize == 8 else np.where(np.isfinite(values), text, "0").astype("f8")
    out, odd = wide.tolist(), np.flatnonzero(~np.isfinite(values))
    for k in odd.tolist():
        out[k] = str(text[k])
    return out


def escaped(text):
    return re.sub(r"[\\\t\n\r]", lambda m: ESCAPES[m[0]], text) if isinstance(text, str) else text


def unescaped(text):
    return re.sub(r"\\[\\tnr]", lambda m: BACK[m[0]], text) if "\\" in text else text


def pairs_as_text(pairs):
    """"3-5,9-12"; "-" for none."""
    return ",".join("%d-%d" % tuple(p) for p in pairs) or "-"


def pairs_from_text(text):
    if text == "-":
        return []
    if not PAIRS.fullmatch(text):
        raise Error("%r is no list of steps such as 3-5,9-12, or - for none" % text)
    return [tuple(map(int, p.split("-"))) for p in text.split(",")]


# ---- JSON

def loaded(text, what):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Error("%s is not JSON: %s" % (what, e)) from None


def exact_json(data):
    """What JSON bytes say, or their text where other bytes would be made of that again."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        said = json.loads(text)
        if not isinstance(said, str) and compact(said) == data:
            return said
    except (ValueError, RecursionError):
        pass
    return text


def exact_bytes(said):
    """The reverse."""
    return said.encode("utf-8", "surrogateescape") if isinstance(said, str) else compact(said)


def compact(said):
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


# ---- which form a name means

def form_of(path, form=None):
    """npz, jsonl, or for a folder npy, tsv, parquet or feather."""
    extension = os.path.splitext(path)[1][1:].lower()
    if extension in ("npz", "jsonl"):
        if form not in (None, extension):
            raise Error("%s: --form %s is for folders; a name that ends in .%s is that form" % (path, form, extension))
        return extension
    if extension in (*TABLES, "npy", "csv", "json"):
        raise Error("%s: a trace is several tables or arrays: give a folder and --form %s, or a name that ends in .npz or .jsonl" % (
            path, extension if extension in TABLES or extension == "npy" else "tsv"))
    return form or "npy"
