"""`kvfate gates convert`: a published file as the safetensors file that the program reads: gates that torch.save wrote, alphas of DuoAttention (.tsv)
(docs/reference/gates.md), or budget curves of LU-KV (.npy) (docs/reference/methods.md).

Tensors keep their names, types and bits.  The metadata entry `format`: `pt` marks tensors of PyTorch: the program finds their layout by their
names, and reads the channels of a head in PyTorch's order.  Where the names fit two layouts, the config.json that is published with the gates decides."""
import json
import os
import struct

from . import files, head_tables, torch_file
from .commands import Usage
from .errors import Error, regular, shown

HEADER_BYTES, CONFIG_BYTES = 16 << 20, 1 << 20
BYTES = {"F32": 4, "F16": 2, "BF16": 2}
TABLES = {".tsv": head_tables.alphas, ".npy": head_tables.curves}
GATE = ".self_attn.retention_gate."


def _said(path):
    """Returns "retention_gate" of the config.json in the folder of the file, or None if there is no such text."""
    try:
        config = os.path.join(os.path.dirname(path), "config.json")
        regular(config)
        with open(config, "rb") as f:
            value = json.loads(f.read(CONFIG_BYTES))
    except (OSError, ValueError, RecursionError, Error):  # another program's config.json is not an error
        return None
    value = value.get("retention_gate") if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def metadata_of(names, path):
    """The metadata of the converted file.  Raises Error if config.json contradicts the names."""
    parts = {name.partition(GATE)[2].partition(".")[0] for name in names}
    said = _said(path) if "linear2" in parts and "linear3" not in parts else None
    if said is None:
        return {"format": "pt"}
    if said not in ("rg", "rg2"):
        raise Error("%s: the config.json beside it calls the retention gate '%s', but its tensors have the names of rg and rg2; correct one of "
                    "the two" % (path, said[:40]))
    order = {"kvfate.key_order": "halves"} if said == "rg2" else {}
    return {"format": "pt", "kvfate.kind": "retention", "kvfate.layout": said, **order}


def convert(path, out=None, overwrite=False):
    """Writes the tensors of a published file as a safetensors file, and returns its name.  out: by default the name with .safetensors as its end."""
    path = os.fspath(path)
    out = os.fspath(out) if out else os.path.splitext(path)[0] + ".safetensors"
    regular(path)
    if os.path.exists(out) and os.path.samefile(out, path):
        raise Error("%s: the output is the input; give another name with -o" % out)
    table = TABLES.get(os.path.splitext(path)[1].lower())
    if table:
        metadata, tensors = table(path)
    else:
        with open(path, "rb") as f:
            tensors = sorted(torch_file.tensors(f, path), key=lambda t: (-BYTES[t.type], t.name))  # so that each is aligned
        metadata = metadata_of([t.name for t in tensors], path)
    header, at = {"__metadata__": metadata}, 0
    for t in tensors:
        if t.name in header:
            raise Error("%s: a tensor has the name %s, which safetensors reserves for metadata" % (path, t.name))
        n = t.n * BYTES[t.type]
        header[t.name] = {"dtype": t.type, "shape": list(t.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_BYTES:
        raise Error("%s: the names of its tensors do not fit into a header of %d bytes" % (path, HEADER_BYTES))
    with files.replacing(out, fresh=not overwrite) as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors:
            f.write(t.bytes())
    return out


def run(request, operands):
    if operands[0] != "convert":
        raise Usage("unknown action '%s'; usage: kvfate gates convert FILE [-o OUT.safetensors]" % operands[0])
    if request.output == "-":
        raise Usage("-o -: a safetensors file is not written to the standard output; give a name that ends in .safetensors")
    print(shown(convert(operands[1], request.output, request.overwrite)))
