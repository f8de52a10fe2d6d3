"""Corrects the checksums of `kvfate eval --state` results that a test changes."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from kvfate import files  # noqa: E402


def signed(lines, at):
    """Returns the lines of a file of results with correct checksums, computed by the package. Line
    `at` has the columns."""
    head = "".join(line + "\n" for line in lines[:at - 1]).encode()
    lines = [*lines[:at - 1], "# head_checksum: " + files.checksum_text(files.checksum(head)), *lines[at:]]
    seed = files.checksum("".join(line + "\n" for line in lines[:at + 1]).encode())
    rows = [line.rpartition("\t")[0] for line in lines[at + 1:-1]]
    return [*lines[:at + 1], *(r + "\t" + files.checksum_text(files.checksum(r.encode(), seed)) for r in rows), ""]
