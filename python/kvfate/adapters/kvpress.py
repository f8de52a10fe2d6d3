"""kvpress under capture: which entries a press kept, of which head and when.

    from kvfate.adapters.kvpress import follow

    with kvfate.capture(model, tokenizer, out="snapkv.kvf") as c, follow(c, SnapKVPress(0.5)):
        model.generate(**inputs, max_new_tokens=50)

`follow` stands where `press(model)` would. What was kept is read off the cache: a press that chooses entries hands on rows of the keys
that it was given, which are found again among them; a press that hides entries from single heads (AdaKV) names them in
`masked_key_indices`. A press that makes new keys is refused. Scores and margins are the press's own."""
import contextlib

import torch

from ..errors import Error
from . import fits, places_of


def _inner(press):
    """Returns [(name, press)] of the presses that a press is directly made of."""
    named = [("%s.%d" % (key, i) if isinstance(value, (list, tuple)) else key, one) for key, value in vars(press).items()
             for i, one in enumerate(value if isinstance(value, (list, tuple)) else [value])]
    return [(key, one) for key, one in named if callable(getattr(one, "forward_hook", None))]


def _parts(press):
    """A press and those that it is made of."""
    return [press, *(part for _, one in _inner(press) for part in _parts(one))]


def _settings(press, prefix=""):
    """Returns ["compression_ratio=0.5", "press=SnapKVPress", "press.window_size=64", ...]: the numbers and words of a press and of its parts."""
    own = ["%s%s=%s" % (prefix, key, value) for key, value in vars(press).items()
           if not key.startswith("_") and isinstance(value, (bool, int, float, str)) and "," not in str(value)]
    for key, one in _inner(press):
        own += ["%s%s=%s" % (prefix, key, type(one).__name__), *_settings(one, prefix + key + ".")]
    return own


def _method(press):
    """Returns the members of the run header that describe a press."""
    ratio, settings = getattr(press, "compression_ratio", None), ",".join(_settings(press))
    return {"name": "kvpress." + type(press).__name__, **({"options": settings} if settings else {}), "budget": 0,
            **({"compression_ratio": ratio} if isinstance(ratio, (int, float)) else {})}


@contextlib.contextmanager
def follow(capture, press):
    """Applies a press to the model under capture and records what it evicts."""
    fits("kvpress")
    presses, header, undo, state = _parts(press), _method(press), [], {"depth": 0, "scores": None}

    def scored(inner):
        def score(module, hidden_states, keys, values, attentions, kwargs):
            state["scores"] = inner(module, hidden_states, keys, values, attentions, kwargs)
            state["scores"] = state["scores"].clone() if torch.is_tensor(state["scores"]) else None
            return state["scores"].clone() if state["scores"] is not None else None
        return score

    def compressed(inner, name):
        def compress(module, hidden_states, keys, values, attentions, kwargs):
            outermost = state["depth"] == 0
            if outermost:
                state["scores"] = None
            state["depth"] += 1
            try:
                result = inner(module, hidden_states, keys, values, attentions, kwargs)
            finally:
                state["depth"] -= 1
            if outermost:
                _record(capture, name, module, keys, result[0], state["scores"])
            return result
        return compress

    for one in presses:
        for method, wrap in (("score", scored), ("compress", None)):
            inner = getattr(one, method, None)
            if inner is not None:
                setattr(one, method, wrap(inner) if wrap else compressed(inner, type(one).__name__))
                undo.append((one, method))
    capture.follows, capture.method = True, header
    try:
        with press(capture.model):
            yield press
    finally:
        for one, method in undo:
            vars(one).pop(method, None)


def _record(capture, name, module, keys, kept, scores):
    masked = getattr(module, "masked_key_indices", None)
    hidden = None
    if masked is not None:
        hidden = torch.zeros(kept.shape[:3], dtype=torch.bool, device=keys.device)
        hidden[tuple(at.to(keys.device) for at in masked)] = True
    scores = None if scores is None or scores.shape[-1] != keys.shape[2] else scores
    for b in range(len(keys)):
        places = places_of(keys[b], kept[b])
        if places is None:
            raise Error("%s of %s changes keys, so that kept entries cannot be told; record such a run with kvfate.Writer" % (name, type(module).__name__))
        capture.kept(module, places, *(None if x is None else x[b] for x in (hidden, scores)), sequence=b)
