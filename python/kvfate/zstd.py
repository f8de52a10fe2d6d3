"""Frames of zstd by libzstd, which a wheel brings along and every Debian has."""
import ctypes
import ctypes.util
import functools
import glob
import os

from .errors import Error


def _candidates():
    here = os.path.dirname(os.path.abspath(__file__))
    yield from sorted(glob.glob(os.path.join(here, "lib", "libzstd.so.*")))  # where the wheel has it
    yield from ("libzstd.so.1", "libzstd.1.dylib")
    found = ctypes.util.find_library("zstd")
    if found:
        yield found


@functools.lru_cache(maxsize=None)
def _library():
    for name in _candidates():
        try:
            z = ctypes.CDLL(name)
        except OSError:
            continue
        z.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
        z.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        z.ZSTD_decompress.restype = ctypes.c_size_t
        z.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        return z
    raise Error("libzstd is not on this machine, and values of this trace are compressed: install it (package libzstd1)")


def decompress(frame, size):
    """The content of a frame that must tell its size, and tell this one; None where it does not."""
    z, frame = _library(), bytes(frame)
    if z.ZSTD_getFrameContentSize(frame, len(frame)) != size:
        return None
    out = bytearray(size)
    got = z.ZSTD_decompress((ctypes.c_char * size).from_buffer(out), size, frame, len(frame)) if size else 0
    return out if got == size else None
