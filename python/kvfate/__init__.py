"""kvfate: what became of every entry of an LLM's KV cache.

    trace = kvfate.open("x.kvf")
    trace.evict_step[layer, head]                       an array, one number for each token
    kvfate.table("survival", "x.kvf", by="class")       a DataFrame, where pandas is installed
    kvfate.figure("eviction", "x.kvf").save("x.pdf")
"""
from .errors import Error, MissingValues, TraceError
from .program import ProgramError
from .scores import Continuation, Scores
from .tables import Figure, Report, Table, figure, report, table
from .trace import Trace
from .trace import open_trace as open
from .writer import Writer

__all__ = ["Continuation", "Error", "Figure", "MissingValues", "ProgramError", "Report", "Scores", "Table", "Trace", "TraceError", "Writer", "figure", "open", "report", "table"]


def __getattr__(name):
    """kvfate.capture needs torch and transformers, which are loaded when it is asked for."""
    if name == "capture":
        from .capture_torch import capture
        return capture
    raise AttributeError("module 'kvfate' has no attribute %r" % name)
