"""The shapes of shapes.h, and further metadata of these models' files."""
import os
import re
from collections import namedtuple

# d: model width; q, kv: heads; dim: of a head; ffn: width of a feed-forward layer
Shape = namedtuple("Shape", "name d q kv dim ffn vocab layers arch rope_base eps tied")

# Architecture, base of RoPE, epsilon of the norms, and True if the output matrix is the embedding.
FACTS = {
    "tiny": ("qwen3", 1e6, 1e-6, True),
    "SmolLM2-135M": ("llama", 1e5, 1e-5, True),
    "Qwen3-0.6B": ("qwen3", 1e6, 1e-6, True),
    "Qwen3-4B": ("qwen3", 1e6, 1e-6, True),
    "Llama-3.1-8B": ("llama", 5e5, 1e-5, False),
}
TINY = ("tiny", 64, 4, 2, 32, 96, 300, 2)  # for a test run of a script


def read():
    """Return {name: Shape}, tiny first."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.h"), encoding="utf-8") as f:
        rows = re.findall(r'\{"([^"]+)", ([\d, ]+)\}', f.read())
    rows = [TINY] + [(name, *map(int, numbers.split(","))) for name, numbers in rows]
    return {row[0]: Shape(*row, *FACTS[row[0]]) for row in rows}


SHAPES = read()


def layer_weights(s):
    """Return the weights of all layers, without norms."""
    return s.layers * (s.d * (s.q + 2 * s.kv) * s.dim + s.q * s.dim * s.d + 3 * s.d * s.ffn)


def weights(s):
    """Return the weights that multiply a token.  An embedding that is not the output matrix is only looked up."""
    return layer_weights(s) + s.vocab * s.d


def parameters(s):
    """Return the trainable weights, without norms."""
    return weights(s) + (0 if s.tied else s.vocab * s.d)


def entry_bytes(s):
    """Return the bytes of a position's keys and values in all heads, 16 bits per channel."""
    return 2 * s.layers * s.kv * 2 * s.dim
