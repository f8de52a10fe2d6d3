"""Adapters: what other libraries do to a model's cache, as the evictions of a captured run.

    kvfate.adapters.clusters    R-KV's own code: compressors of attention modules
    kvfate.adapters.kvpress     presses of NVIDIA's kvpress
    kvfate.adapters.positions   G-KV, and caches that tell their positions
    kvfate.adapters.trimkv      caches of trimkv: TRIM-KV and DBTrimKV
    kvfate.adapters.wgkv        WG-KV's models

Each is imported by its name, as it needs the library that it is about."""
import importlib.metadata
import re

from ..errors import Error


def ragged(parts, fill):
    """Tensors [n_h] or [n_h][D] of single heads as one [H][n], filled behind their ends."""
    out = parts[0].new_full((len(parts), max(len(p) for p in parts), *parts[0].shape[1:]), fill)
    for row, part in zip(out, parts):
        row[:len(part)] = part
    return out


def places_of(given, kept):
    """[heads][n]: places of the rows kept [heads][n][D] among those given, or None where one is not among them.  Rows are told apart by sums
    of whole numbers made of their bits, which do not depend on the order of adding, as sums of reals would."""
    import torch
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[given.element_size()]
    factors = torch.randint(1, 1 << 62, given.shape[-1:], generator=torch.Generator().manual_seed(1)).to(given.device)
    known, wanted = ((x.contiguous().view(whole).long() * factors).sum(-1) for x in (given, kept))
    have, order = known.sort(-1)
    places = order.gather(-1, torch.searchsorted(have, wanted).clamp(max=given.shape[1] - 1))
    found = given.gather(1, places[..., None].expand(-1, -1, given.shape[-1]))
    return places if torch.equal(found, kept) else None


def fits(package):
    """Raises Error where the transformers that is installed is not one that a package asks for: it would fail in ways of its own."""
    try:
        from packaging.requirements import Requirement
        version, asked = importlib.metadata.version("transformers"), importlib.metadata.requires(package) or []
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return
    for one in map(Requirement, (a for a in asked if re.match(r"transformers\b", a) and "extra" not in a)):
        if not one.specifier.contains(version, prereleases=True):
            raise Error("%s %s asks for transformers%s, and %s is installed: install one that fits, in an environment of its own" % (
                package, importlib.metadata.version(package), one.specifier, version))
