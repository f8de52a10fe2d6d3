"""Which patches of a picture the caches still hold, drawn over the picture.

    kvfate.patches("x.kvf", "photo.png", head="L1K0", steps=[40, 80, -1]).save("patches.pdf")"""
import io
import os
import re

import numpy as np

from . import files
from .errors import Error, MissingValues
from .tables import Traces, ending
from .trace import Trace, open_trace

WASH = 0.82  # of a patch that no head holds this share is white


def grid_of(trace, number=0):
    """The picture of that number in the trace, from 0: {"first", "tokens", "rows", "columns"}."""
    pictures = trace.notes.get("pictures", [])
    if not 0 <= number < len(pictures):
        raise MissingValues("%s: it has %d pictures, and no number %d; kvfate.capture notes the pictures of vision-language models" % (
            trace.path, len(pictures), number))
    if "rows" not in pictures[number]:
        raise MissingValues("%s: the grid of picture %d is not known, of its patches %d to %d; Qwen's towers and towers with pictures of one size tell it" % (
            trace.path, number, pictures[number]["first"], pictures[number]["first"] + pictures[number]["tokens"] - 1))
    return pictures[number]


def chosen_heads(trace, head):
    """[(layer, KV head)] of "L1K0", "L1K*", a list of such, or of None: all."""
    words, out = ["L*K*"] if head is None else [head] if isinstance(head, str) else list(head), []
    for word in words:
        found = re.fullmatch(r"L(\d+|\*)K(\d+|\*)", word)
        some = [(layer, k) for layer, (kv, _) in enumerate(trace.heads) for k in range(kv)
                if found and found[1] in ("*", str(layer)) and found[2] in ("*", str(k))]
        if not some:
            raise Error("head=%r: a KV head of this trace is such as L0K0, and L%dK%d is the last" % (word, len(trace.heads) - 1, trace.heads[-1][0] - 1))
        out += some
    return out


def chosen_step(trace, step):
    t = step + trace.steps if step < 0 else step
    if not 0 <= t < trace.steps:
        raise Error("step %d: %s has %d steps from 0, and -1 is the last" % (step, trace.path, trace.steps))
    return t


def held(trace, head=None, steps=(-1,), number=0):
    """[heads][steps][rows][columns]: whether the query of that step sees the patch."""
    grid, heads = grid_of(trace, number), chosen_heads(trace, head)
    place = np.arange(grid["rows"] * grid["columns"]) + grid["first"]
    left = np.stack([trace.evict_step[layer, k][place] for layer, k in heads])
    seen = [(place <= t) & (t < left) for t in (chosen_step(trace, s) for s in steps)]
    return np.stack(seen, 1).reshape(len(heads), len(seen), grid["rows"], grid["columns"])


class Patches:
    """What kvfate.patches gives: png, svg and pdf are its bytes; a notebook shows it."""

    def __init__(self, draw):
        self._draw = draw

    def _bytes(self, kind):
        """Equal figures are equal bytes: no date, and no number by chance."""
        from matplotlib import rc_context
        out = io.BytesIO()
        with rc_context({"svg.hashsalt": "kvfate"}):
            self._draw().savefig(out, format=kind, dpi=200, metadata={"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind))
        return out.getvalue()

    png = property(lambda self: self._bytes("png"))
    svg = property(lambda self: self._bytes("svg").decode("utf-8"))
    pdf = property(lambda self: self._bytes("pdf"))

    def save(self, path):
        files.write(path, self._bytes(ending(path, ("png", "svg", "pdf"))))

    def _repr_png_(self):
        return self.png


def washed(picture, share):
    """The picture, RGB from 0 to 1, whiter where a smaller share [rows][columns] of the heads holds its patch."""
    rows, columns = share.shape
    y = np.arange(picture.shape[0]) * rows // picture.shape[0]
    x = np.arange(picture.shape[1]) * columns // picture.shape[1]
    white = (WASH * (1 - share))[y][:, x, None]
    return picture * (1 - white) + white


def _rgb(picture, rows, columns):
    """Pixels from 0 to 1 of a file or array, or a blue plane where there is none."""
    if picture is None:
        return np.broadcast_to(np.array([0.12, 0.38, 0.62]), (16 * rows, 16 * columns, 3))
    if isinstance(picture, (str, os.PathLike)):
        from matplotlib.image import imread
        picture = imread(picture)
    pixels = np.asarray(picture)
    pixels = pixels / 255 if pixels.dtype.kind in "iu" else pixels
    return pixels[..., :3] if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, -1)


def patches(trace: Traces, picture=None, head: "str | list[str] | None" = None, steps=(-1,), number: int = 0, together: "bool | None" = None) -> Patches:
    """The patches of a picture that queries still see, at some steps: a panel for each head and step, in which patches that the head
    has let go are washed out.

    picture: a file or an array of pixels, as the model was given it; head: "L1K0", "L1K*" or a list (None: all); together: one row of
    panels for all these heads, a patch as strong as the share of them that holds it (of more than eight: yes); steps: from 0,
    negative ones from the end; number: of the picture, where the prompt has several.  It needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Error("kvfate.patches draws with matplotlib, which is not installed: pip install matplotlib") from None
    trace = trace if isinstance(trace, Trace) else open_trace(trace)
    heads, seen = chosen_heads(trace, head), held(trace, head, steps, number)
    _, _, rows, columns = seen.shape
    pixels = _rgb(picture, rows, columns)
    together = len(heads) > 8 if together is None else together
    shares = seen.mean(0, keepdims=True) if together else seen.astype(float)
    names = ["%d heads" % len(heads)] if together else ["L%dK%d" % h for h in heads]
    if len(heads) == 1:
        names = ["L%dK%d" % heads[0]]

    def draw():
        high = 1.7 * pixels.shape[0] / pixels.shape[1]
        figure = Figure(figsize=(1.8 * len(steps) + 0.3, (high + 0.25) * len(names)), layout="constrained")
        for at, axes in np.ndenumerate(figure.subplots(len(names), len(steps), squeeze=False)):
            share, t = shares[at], chosen_step(trace, steps[at[1]])
            axes.imshow(washed(pixels, share), extent=(0, columns, rows, 0), interpolation="nearest", aspect="auto")
            for k in range(1, max(rows, columns)):
                axes.plot([min(k, columns)] * 2, [0, rows], [0, columns], [min(k, rows)] * 2, color="white", lw=0.3)
            axes.set(xticks=[], yticks=[], xlim=(0, columns), ylim=(rows, 0))
            axes.set_title("step %d: %.4g of %d" % (t, share.sum(), rows * columns), size=7)
            if at[1] == 0:
                axes.set_ylabel(names[at[0]], size=7)
        return figure
    return Patches(draw)
