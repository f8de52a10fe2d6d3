"""kvfate: the evictions, scores and attention of every entry of a KV cache.

    trace = kvfate.run("smollm2-135m", "Name three rivers.", method="h2o", budget=64)     a trace; kvfate.open("x.kvf") opens a file
    trace.evict_step[layer, head]                       an array, one number for each token
    trace.survival(by="class")                          a DataFrame if pandas is installed
    trace.eviction.figure().save("x.pdf")               a figure, which a notebook shows
"""
import importlib

from .errors import meant, needing

# {public name: module}.  A module is loaded at its first use: kvfate.capture needs torch and transformers, but the command `kvfate` of the
# wheel does not need NumPy.
_PLACES = {
    "Answer": "scores", "Continuation": "scores", "Error": "errors", "Figure": "tables", "MissingValues": "errors", "ProgramError": "program", "Report": "tables",
    "Scores": "scores", "Table": "tables", "Tokenizer": "tokens", "Trace": "trace", "TraceError": "errors", "Writer": "writer", "capture": "capture_torch", "export": "exports",
    "figure": "tables", "import_trace": "imports", "load_table": "tables", "open": "trace", "patches": "picture", "report": "tables", "run": "runs", "save_table": "tables", "score": "own_score", "table": "tables",
}
_NAMES = {"open": "open_trace"}  # public names that differ from the name in the module
# Names of other packages for the same thing, for the message.
_MEANT = {"load": "open", "read": "open", "load_trace": "open", "read_trace": "open", "read_table": "load_table", "generate": "run", "record": "run", "plot": "figure",
          "draw": "figure", "show": "figure", "html": "report", "trace": "open"}
__all__ = sorted(set(_PLACES) - {"capture"})


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError("module 'kvfate' has no attribute %r%s" % (name, " (did you mean kvfate.%s?)" % _MEANT[name] if name in _MEANT else meant(name, _PLACES)))
    with needing("kvfate." + name, "numpy", "torch", "transformers"):
        module = importlib.import_module("." + _PLACES[name], __name__)
    value = getattr(module, _NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_PLACES})
