"""The names that releases of transformers give to a model's cache, and the releases that kvfate.capture is tested with."""
import inspect

from .errors import Error

TESTED = "5.2 to 5.24"
NAMES = ("cache", "past_key_values")  # since 5.24, and before
OLDER = "past_key_value"              # of attention modules, before 4.56


def forward_names(forward):
    """Names of the parameters of a forward function, in their order; positional arguments belong to the first ones."""
    return list(inspect.signature(forward).parameters)


def cache_name(decoder, installed):
    """The name of the decoder's parameter for the cache.  installed: the release of transformers."""
    known = forward_names(decoder.forward)
    for name in NAMES:
        if name in known:
            return name
    raise Error("%s.forward of transformers %s takes no cache by a name that kvfate.capture knows (%s); kvfate.capture is tested with transformers %s: install "
                "one of these releases" % (type(decoder).__name__, installed, ", ".join(NAMES), TESTED))


def cache_in(given):
    """The cache among keyword arguments; None if there is none."""
    return next((given[name] for name in (*NAMES, OLDER) if given.get(name) is not None), None)


def cache_of(out):
    """The cache of a decoder's output; None if it has none.  An output of 5.24 warns if it is asked for the older name."""
    return next((found for found in (getattr(out, name, None) for name in NAMES) if found is not None), None)
