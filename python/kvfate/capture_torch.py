"""kvfate.capture: the trace of a transformers model while it runs.

The model's attention function is wrapped through the library's AttentionInterface.  It works as before; queries and keys that pass by
are scored again in blocks, on the model's device and in float32, and each block leaves sums, steps and counts behind (capture_rows).
Attention itself, T x T, is never held."""
import os
import re
import sys

import torch
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from . import capture_beside, capture_dilution
from .capture_held import BUDGET, Held, finite
from .capture_names import TESTED, cache_in, cache_name, cache_of, forward_names
from .capture_rows import NEVER, NumpyArrays, weigh
from .capture_trace import ANSWER, IMAGE, PROMPT, Recording, chosen
from .capture_vision import patches, pictures
from .errors import Error, TraceError
from .writer import library

RELEASE = sys.modules["transformers"].__version__
LATER = 32  # queries of single tokens that are scored together
CHANGES = ("s_aux", "sinks", "position_bias", "position_bias_embedding", "alibi", "head_mask", "layer_head_mask", "indexer", "cache")

CACHE = capture_beside.Attributes(Cache)

# a part of the name of a cache's layer, what is said of it, and the way out
CACHES = [("Quantized", "a quantised cache (%s), whose keys are not those that later queries meet", "run with a DynamicCache"),
          ("Static", "a cache of fixed length (%s)", "run with a DynamicCache, without cache_implementation"),
          ("Linear", "a cache that holds a state in place of keys (%s)", "there is nothing per token to record: capture models of attention layers alone"),
          ("Indexed", "a cache whose attention reads chosen entries alone (%s)", "record such a model with kvfate.Writer")]


class TorchArrays(NumpyArrays):
    """The operations of NumpyArrays by torch, on a device."""
    xp, bool, u8, i32, i64, f32, f64 = torch, torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64

    def __init__(self, device):
        self.device = torch.device(device)
        self.most = 1 << 17 if self.device.type == "cpu" else 1 << 24
        if self.device.type == "mps":
            raise Error("the device %s has no 64-bit numbers, which the columns are summed in: move the model to the processor or to cuda" % device)

    def full(self, shape, value, dtype):
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def arange(self, a, b):
        return torch.arange(a, b, device=self.device)

    def cast(self, x, dtype):
        return x.to(dtype)

    def sum64(self, x, axis):
        return torch.sum(x, axis, dtype=torch.float64)

    def below(self, rising, values):
        return torch.searchsorted(rising, values)

    def falling(self, x):
        if self.device.type == "cpu":  # NumPy sorts there by vectors, many times as fast
            return torch.from_numpy(super().falling(x.numpy()))
        return torch.sort(x, -1, descending=True).values

    def at(self, x, index):
        return torch.take_along_dim(x, index, -1)

    def largest_so_far(self, x):
        return torch.cummax(x, 1).values

    def join(self, parts, axis):
        return torch.cat(parts, axis)

    def numpy(self, x):
        return x.detach().cpu().numpy()


def texts_of(tokenizer):
    """A function that gives the bytes of token ids."""
    if tokenizer is None:
        return None
    inner = getattr(tokenizer, "backend_tokenizer", None)
    by_byte = "ByteLevel" in str(inner.decoder) if inner is not None else False
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    alphabet = {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(others)}

    def one(token):
        if token is None:
            return b""
        if by_byte and all(c in alphabet for c in token):
            return bytes(alphabet[c] for c in token)
        code = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
        return bytes([int(code[1], 16)]) if code else token.replace("\u2581", " ").encode("utf-8")

    return lambda ids: [one(t) for t in tokenizer.convert_ids_to_tokens(ids)]


def rows_of(mask, first, end):
    """Which entries queries of some rows of a mask see, [batch][rows][entries]: of one of truth values, of what is added to products, or of
    flex_attention's, which is a function."""
    if hasattr(mask, "mask_mod"):
        from torch.nn.attention.flex_attention import create_mask

        def shifted(batch, head, query, entry):
            return mask.mask_mod(batch, head, query + first, entry)
        return create_mask(shifted, mask.shape[0], 1, end - first, mask.shape[3], device=mask.kv_indices.device)[:, 0]
    part = mask[:, 0, first:end]
    return part if part.dtype == torch.bool else part > torch.finfo(part.dtype).min / 2


def _check(tokenizer, watch, every, most, existing, meta):
    """What a capture is given, before a model runs for hours."""
    number = isinstance(every, (int, float)) and every == every
    for name, value, fits, what in (
            ("tokenizer", tokenizer, tokenizer is None or hasattr(tokenizer, "convert_ids_to_tokens"), "a tokenizer of transformers, such as AutoTokenizer.from_pretrained(...), or None"),
            ("watch", watch, watch is None or isinstance(watch, str), "a text such as 383,400-410@L10H19,L3H*, or None"),
            ("every", every, number, "a number of seconds"),
            ("most", most, most is None or isinstance(most, int) and most >= 1, "a number of tokens from 1 on, or None"),
            ("existing", existing, existing in ("refuse", "overwrite"), '"refuse", or "overwrite" to replace a trace that is there'),
            ("meta", meta, meta is None or isinstance(meta, dict), "a dict, or None")):
        if not fits:
            raise Error("kvfate.capture was given %s=%.80r: it is %s" % (name, value, what))


def _beside(inner, captures):
    """An attention function that does what it did, beside which captures take its queries and keys."""
    def attention(module, query, key, value, attention_mask, *args, **kwargs):
        result = inner(module, query, key, value, attention_mask, *args, **kwargs)
        for capture in list(captures):
            if module in capture.modules:
                with torch.no_grad():
                    capture._attended(module, query, key, value, attention_mask, kwargs)
        return result
    return attention


def _before_beams(inner, captures):
    """The change of places of a cache's sequences, which a captured run cannot have."""
    def reorder_cache(cache, *args, **kwargs):
        for capture in list(captures):
            if cache is capture._cache:
                capture._reordered()
        return inner(cache, *args, **kwargs)
    return reorder_cache


class _Sequence:
    """One sequence of a batch: its recording, the places before it that hold padding, and queries that wait to be scored."""

    def __init__(self, recording, pads, n_layers, arrays):
        self.recording, self.pads, self.ended = recording, pads, False
        dilutes = recording.evicts and "dilution" in recording.probes
        self.held = [Held(arrays, rows, "shadow" in recording.probes, dilutes) for rows in recording.layers]
        self.waiting = [[] for _ in range(n_layers)]  # (first query, queries)
        self.newest = [None] * n_layers               # keys, the first of them, and how queries are scored
        self.known = [0] * n_layers                   # entries whose keys were looked at
        self.pictures = []                            # where their patches are
        self.last = None                              # the state behind the last token, from which the next is told


class Capture:
    """See `capture`."""

    def __init__(self, model, tokenizer=None, out="capture.kvf", probes="paper", watch=None, every=30.0, most=None, existing="refuse", meta=None):
        _check(tokenizer, watch, every, most, existing, meta)
        library()
        self.model, self.out, self.probes, self.watch, self.every, self.existing = model, os.fspath(out), probes, watch, every, existing
        self._meta, self._tokenizer, self._texts, self._names = meta or {}, tokenizer, texts_of(tokenizer), chosen(probes)
        if hasattr(model, "_orig_mod"):
            raise Error("%s is compiled, and hooks do not see what it computes; capture the model itself, before torch.compile" % type(model).__name__)
        if not isinstance(model, PreTrainedModel):
            raise Error("%s is no model of transformers, whose attention could be captured; record it with kvfate.Writer" % type(model).__name__)
        if model.config.is_encoder_decoder:
            raise Error("%s has an encoder, to which its decoder attends as well; a capture is of decoders alone, so record it with kvfate.Writer" % type(model).__name__)
        self.decoder = model.get_decoder() or model.base_model
        self._cache_name, self._parameters = cache_name(self.decoder, RELEASE), forward_names(self.decoder.forward)
        self.config = getattr(model.config, "get_text_config", lambda: model.config)()
        self._most = most or getattr(self.config, "max_position_embeddings", None) or 65535
        self.modules = {m: m.layer_idx for m in self.decoder.modules() if isinstance(getattr(m, "layer_idx", None), int) and hasattr(m, "num_key_value_groups")}
        if sorted(self.modules.values()) != list(range(self.config.num_hidden_layers)):
            raise Error("%s: %d of its %d layers have an attention module that can be captured (one with layer_idx and num_key_value_groups); "
                        "record such a model with kvfate.Writer" % (type(model).__name__, len(self.modules), self.config.num_hidden_layers))
        self._heads = [(self.config.num_key_value_heads, self.config.num_attention_heads)] * self.config.num_hidden_layers
        self._arrays = TorchArrays(next(model.parameters()).device)
        self._hooks, self._looks, self._open = [], [], False
        self._renew()
        self.method = {"name": "full", "budget": 0}
        self.follows = False  # an adapter tells of evictions

    def _renew(self):
        """Makes the state that belongs to one run."""
        self.sequences, self.paths, self._total = [], [], 0
        self._forced_role, self._seen_layers, self._given, self._grids = None, set(), {}, []
        self._cache = None  # of the last step

    # ---- the with statement

    def __enter__(self):
        if self._open or self.sequences:
            raise TraceError("%s: the trace is closed or open already; a capture records one run, so make another with kvfate.capture" % self.out)
        how = self.config._attn_implementation
        if how == "eager":  # some releases of the library keep it out of the interface
            places = [vars(sys.modules[name]) for name in {type(m).__module__ for m in self.modules}]
            name = "eager_attention_forward"
        else:
            places, name = [ALL_ATTENTION_FUNCTIONS._local_mapping], how
        for place in places:
            inner = place[name] if name in place else ALL_ATTENTION_FUNCTIONS.get(name)
            self._look(place, name, lambda captures, inner=inner: _beside(inner, captures))
        self._look(CACHE, "reorder_cache", lambda captures, inner=Cache.reorder_cache: _before_beams(inner, captures))
        self._hooks = [self.decoder.register_forward_pre_hook(self._before, with_kwargs=True), self.decoder.register_forward_hook(self._after)]
        if self.decoder is not self.model:
            self._hooks.append(self.model.register_forward_pre_hook(self._outside, with_kwargs=True))
        eye = getattr(self.model.base_model, "visual", None)
        if eye is not None:
            self._hooks.append(eye.register_forward_pre_hook(self._looked, with_kwargs=True))
        self._open = True
        return self

    def _look(self, place, name, make):
        capture_beside.join(place, name, self, make)
        self._looks.append((place, name))

    def __exit__(self, kind, *_):
        for hook in self._hooks:
            hook.remove()
        for place, name in self._looks:
            capture_beside.leave(place, name, self)
        self._looks, self._open = [], False
        if kind is None and not self.sequences:
            raise Error("%s: the model %s was not run within the capture, so that there is no trace" % (self.out, type(self.model).__name__))
        done = False
        try:
            if kind is None:
                for s in self.sequences:
                    self._flush(s)
                    self._result(s)
                    s.recording.close()
                done = True
        finally:
            for s in self.sequences:
                s.recording.abandon()
            if not done:  # a cell of a notebook that failed can run again
                self._renew()

    def _result(self, s):
        answer = [i for i, role in zip(s.recording.ids, s.recording._roles) if role == ANSWER]
        text = b"".join(self._texts(answer)).decode("utf-8", "replace") if self._texts else ""
        s.recording.note("result", {"generated_tokens": len(answer), "text": text})

    # ---- teacher forcing

    @torch.no_grad()
    def read(self, tokens, prompt=None, chunk=256):
        """Feeds given tokens (ids, or a text for the tokenizer) in chunks, instead of `model.generate`; `prompt`: how many of them are
        the prompt, the others being the answer.  Returns the cache."""
        if not self._open:
            raise TraceError("%s: nothing is captured outside of the with statement; read within it" % self.out)
        if isinstance(tokens, str) and self._tokenizer is None:
            raise Error("read was given a text, and the capture has no tokenizer; give kvfate.capture one, or token ids to read")
        ids = torch.as_tensor(self._tokenizer(tokens)["input_ids"] if isinstance(tokens, str) else tokens, device=self._arrays.device)
        if ids.dim() > 2 or ids.dim() == 2 and len(ids) != 1 or not ids.numel():
            raise Error("read was given tokens of the shape %s: it feeds one text, [n] or [1][n], of one token at least" % list(ids.shape))
        ids = ids.reshape(1, -1).to(ids.dtype if ids.is_floating_point() or ids.dtype == torch.bool else torch.int64)
        prompt, cache = ids.shape[1] if prompt is None else prompt, None
        if ids.dtype != torch.int64 or not 0 <= prompt <= ids.shape[1] or chunk < 1:
            raise Error("read was given %d numbers of the type %s, prompt=%s and chunk=%s: tokens are whole numbers, no more than they are of the prompt, and a chunk "
                        "has one at least" % (ids.shape[1], str(ids.dtype).removeprefix("torch."), prompt, chunk))
        for role, a, b in ((PROMPT, 0, prompt), (ANSWER, prompt, ids.shape[1])):
            for t in range(a, b, chunk):
                self._forced_role = role
                cache = cache_of(self.decoder(input_ids=ids[:, t:min(t + chunk, b)], use_cache=True, **{self._cache_name: cache}))
        self._forced_role = None
        return cache

    # ---- hooks

    def _refuse(self, module, found, way):
        raise Error("%s of %s: %s; %s" % (module if isinstance(module, str) else type(module).__name__, type(self.model).__name__, found, way))

    def _reordered(self):
        self._refuse("the cache", "its sequences change places, as beams do", "generate with num_beams=1")

    def _outside(self, module, args, kwargs):
        """What the whole model is given.  One that sees pictures gives its decoder embeddings of tokens and patches."""
        self._given = {"input_ids": args[0] if args else None, **kwargs}

    def _looked(self, module, args, kwargs):
        """The grids of pictures (frames, rows, columns) that Qwen's vision towers are given; films are left out."""
        grids = kwargs.get("grid_thw", args[1] if len(args) > 1 else None)
        self._grids += [] if grids is None else [g for g in grids.tolist() if g[0] == 1]

    def _before(self, module, args, kwargs):
        """The tokens that the model is given, and the padding before them."""
        kwargs, given = {**dict(zip(self._parameters, args)), **kwargs}, self._given
        ids, embeds, self._given = kwargs.get("input_ids"), kwargs.get("inputs_embeds"), {}
        if ids is None and embeds is not None and given.get("input_ids") is not None and given["input_ids"].shape == embeds.shape[:2]:
            ids = given["input_ids"]
        if ids is None:
            self._refuse(module, "it was given embeddings and no token ids", "give input_ids")
        cache = self._cache = cache_in(kwargs)
        if cache is not None and not hasattr(cache, "get_seq_length"):
            self._refuse(module, "%s is a %s" % (self._cache_name, type(cache).__name__), "give a DynamicCache of transformers, or none")
        for kind in [type(layer).__name__ for layer in getattr(cache, "layers", ())]:
            for part, found, way in CACHES:
                if part in kind:
                    self._refuse(cache, found % kind, way)
        if self.sequences and len(ids) != len(self.sequences):
            self._refuse(module, "a batch of %d after one of %d" % (len(ids), len(self.sequences)), "give each batch a capture of its own, without beams")
        fed = cache.get_seq_length() if cache is not None and len(getattr(cache, "layers", ())) else 0
        if fed != self._total and not self.follows:
            self._refuse(module, "its cache holds %d tokens and %d were captured" % (fed, self._total),
                         "capture a run from its first token on, and each run by a capture of its own, without beams and candidates that are taken back")
        mask = kwargs.get("attention_mask")
        if not self.sequences:
            self._start(ids, mask)
        self._role = self._forced_role if self._forced_role is not None else PROMPT if self._total == 0 or ids.shape[1] > 1 else ANSWER
        self._total += ids.shape[1]
        self._seen_layers = set()
        if self._total > self._most:
            self._refuse(module, "token %d, where the trace has room for %d" % (self._total, self._most), "give most=%d or more" % self._total)
        self._feed(ids)

    def _start(self, ids, mask):
        """Opens a trace for each sequence."""
        n = len(ids)
        pads = [0] * n
        if mask is not None and len(mask.shape) == 2:
            pads = [int(x) for x in (mask == 0).sum(-1)]
            if any(bool((row[p:] == 0).any()) for row, p in zip(mask, pads)):
                self._refuse(self.decoder, "an attention mask with holes or with padding behind the text", 'set tokenizer.padding_side = "left"')
        stem, end = os.path.splitext(self.out)
        self.paths = [self.out] if n == 1 else ["%s-%d%s" % (stem, k, end) for k in range(n)]
        config, device = self.config, str(self._arrays.device)
        for k in range(n):
            prompt = [int(i) for i in ids[k, pads[k]:]]
            meta = {"model": {"name": config.name_or_path or type(self.model).__name__, "arch": config.model_type, "layers": len(self._heads),
                              "query_heads": self._heads[0][1], "kv_heads": self._heads[0][0], "head_dim": next(iter(self.modules)).head_dim,
                              "vocab": config.vocab_size, "context": getattr(config, "max_position_embeddings", 0)},
                    "run": {"prompt_tokens": len(prompt), "probes": ",".join(self._names), **({"shadow": "entries"} if "shadow" in self._names else {}), "precision": str(self.model.dtype).removeprefix("torch."),
                            "captured": {"attention": config._attn_implementation, "device": device, "torch": torch.__version__,
                                         "transformers": RELEASE}},
                    "method": self.method, **self._meta}
            recording = Recording(self.paths[k], self._arrays, self._heads, self._names, self.watch, meta, prompt, self._texts, self._most, self.every, self.existing,
                                  self.follows)
            self.sequences.append(_Sequence(recording, pads[k], len(self._heads), self._arrays))

    def _feed(self, ids):
        """A sequence of a batch that has said its end is given padding until the others have, which is not recorded."""
        stops, grids = self._stops(), iter(self._grids) if self._grids else None
        self._grids = []
        start = self._total - ids.shape[1]
        for row, s in zip(ids, self.sequences):
            if len(self.sequences) > 1 and self._role == ANSWER and s.recording.ids and s.recording._roles[-1] == ANSWER and s.recording.ids[-1] in stops:
                s.ended = True
            s.new = [] if s.ended else [int(i) for i in row[max(s.pads - start, 0):]]
            images = patches(self.model.config, s.new) if self._role == PROMPT else [False] * len(s.new)
            if any(images):
                s.pictures += [{**p, "first": p["first"] + s.recording.steps} for p in pictures(self.model.config, s.new, grids)]
                s.recording.note("pictures", s.pictures)
            s.recording.feed(s.new, [IMAGE if image else self._role for image in images])

    def _stops(self):
        given = getattr(getattr(self.model, "generation_config", None), "eos_token_id", None)
        return set(given if isinstance(given, list) else [given]) - {None}

    def _attended(self, module, query, key, value, mask, given):
        """What the attention function of one layer was called with."""
        layer, n = self.modules[module], key.shape[2]
        window = given.get("sliding_window")
        for name in CHANGES:
            if given.get(name) is not None:
                self._refuse(module, "its weights depend on %s, which cannot be scored again here" % name, "record such a model with kvfate.Writer")
        if query.shape[1] != self._heads[layer][1] or key.shape[1] != self._heads[layer][0] or query.shape[3] != key.shape[3]:
            self._refuse(module, "queries %s and keys %s, where the configuration has %d and %d heads" % (
                list(query.shape), list(key.shape), self._heads[layer][1], self._heads[layer][0]), "record such a model with kvfate.Writer")
        cut = any(s.held[layer].places is not None for s in self.sequences)
        if (n != self._total and window is None or n > self._total) and not cut:
            self._refuse(module, "the cache gave it %d entries where %d tokens were fed" % (n, self._total),
                         "a cache that lets entries go is captured by kvfate.adapters, and others need a DynamicCache")
        if not cut:
            self._check_mask(module, mask, n, window)
        if layer in self._seen_layers:
            self._refuse(module, "it calls the attention function more than once for a step, so that its weights are not those of one call", "record such a model with kvfate.Writer")
        self._seen_layers.add(layer)
        scale = given.get("scaling") or module.head_dim**-0.5
        first = self._total - query.shape[2]
        if cut:
            for b, s in enumerate(self.sequences):
                if not s.ended:
                    self._take_places(s, layer, module, query[b], key[b], value[b], first, scale, given.get("softcap"))
            return
        for b, s in enumerate(self.sequences):
            if s.ended:
                continue
            skip, behind = max(s.pads - first, 0), max(s.pads - (self._total - n), 0)
            self._take(s, layer, module, query[b, :, skip:], key[b, :, behind:], value[b, :, behind:], first + skip - s.pads,
                       self._total - n + behind - s.pads, (scale, given.get("softcap"), window))

    def _check_mask(self, module, mask, n, window):
        """All queries of a text must see what is scored here: what came before them, within the window."""
        if mask is None or len(mask.shape) != 4:
            return
        rows, device = mask.shape[2], self._arrays.device
        at = torch.arange(self._total - n, self._total, device=device)
        pads = torch.tensor([s.pads for s in self.sequences], device=device)[:, None, None]
        live = torch.tensor([not s.ended for s in self.sequences], device=device)[:, None, None]
        odd = mask.shape[-1] != n
        for first in range(0, 0 if odd else rows, 64):
            part = rows_of(mask, first, min(first + 64, rows))
            t = torch.arange(self._total - rows + first, self._total - rows + first + part.shape[1], device=device)[:, None]
            want = (at >= pads) & (at <= t)
            if window is not None:
                want &= at > t - window
            odd = odd or bool(((part != want) & live & (t >= pads)).any())
        if odd:
            self._refuse(module, "a mask that is neither causal nor a window of its own, such as that of pictures whose patches see each other",
                         "record such a model with kvfate.Writer")

    def _take(self, s, layer, module, q, k, v, t0, i0, how):
        """Scores queries at once, or waits for more of them where single tokens come and no entry leaves."""
        rows, known = s.recording.layers[layer], s.known[layer]
        new = slice(known - i0, None)
        rows.entries(k[:, new].float(), known, self._out_norm(module, layer, v[:, new]))
        s.held[layer].store(k[:, new], v[:, new])
        s.known[layer] = i0 + k.shape[1]
        waiting = s.waiting[layer]
        if waiting and (how[2] is not None or len(waiting) >= LATER or q.shape[1] > 1):
            self._score(s, layer)
        s.waiting[layer].append((t0, q))
        s.newest[layer] = k, i0, how  # the keys of all waiting queries, and more: older tensors need not be held
        if q.shape[1] > 1 or how[2] is not None:
            self._score(s, layer)

    def _out_norm(self, module, layer, v):
        if "contrib" not in self._names:
            return None
        out = next((part for part in (getattr(module, name, None) for name in ("o_proj", "out_proj", "dense")) if part is not None), None)
        if out is None:
            self._refuse(module, "it has no o_proj, out_proj or dense, by which the length of what an entry gives is told", "leave the probe contrib out")
        weight = out.weight
        H, n, D = v.shape
        group = self._heads[layer][1] // H
        parts = [(v[g // group].double() @ weight[:, g * D:(g + 1) * D].double().T).norm(dim=-1) for g in range(self._heads[layer][1])]
        return torch.stack(parts).float()

    def _score(self, s, layer):
        """All waiting queries of a layer, in blocks, against the newest keys."""
        waiting, s.waiting[layer] = s.waiting[layer], []
        if not waiting:
            return
        (k, i0, (scale, softcap, window)), s.newest[layer] = s.newest[layer], None
        a, rows = self._arrays, s.recording.layers[layer]
        t0 = waiting[0][0]
        q, k = torch.cat([w[1] for w in waiting], 1).float(), k.float()
        G, n, D = q.shape
        H, at = k.shape[0], 0
        while at < n:
            step = max(1, min(n - at, a.most // (G * (t0 + at + 1 - i0 + 64))))
            low = i0 if window is None else max(i0, t0 + at - window + 1)
            end = t0 + at + step - i0
            w = weigh(a, q[:, at:at + step].reshape(H, G // H, step, D), k[:, low - i0:end], scale, softcap, t0 + at, low, window)
            finite(t0 + at, w[2])
            rows.take(*w, t0 + at, low)
            if s.held[layer].dilutes:
                capture_dilution.of_seen(rows, *w[:2]) if window else capture_dilution.of_all(rows)
            if window is not None:
                rows.leave(window, t0 + at + step - 1)
            at += step

    # ---- caches that let entries go, of which an adapter tells, of each sequence of a batch

    def kept(self, module, places, hidden=None, scores=None, sequence=0):
        """The cache of a layer was cut: of the entries that it held, those at `places` [H][n] are left, the ones marked in hidden [H][n]
        to be seen no longer.  scores: [H][entries before], the larger the better."""
        now = self.holding(module, sequence=sequence).gather(-1, places)
        self.holds(module, torch.where(hidden, NEVER, now) if hidden is not None else now, scores, sequence=sequence)

    @property
    def fed(self):
        """How many tokens the model was given, those of the step that it is in among them."""
        return self._total

    def holding(self, module, first=None, sequence=0):
        """Positions [H][n] that an adapter told of last, for queries from `first` on: all before it, if it never did."""
        layer = self.modules[module]
        return self.sequences[sequence].held[layer].told(self._total if first is None else first, self._heads[layer][0], self._arrays.device)

    def holds(self, module, positions, scores=None, reason=BUDGET, first=None, limit=None, sequence=0):
        """From query `first` on, the next one if it is not given, the cache of a layer holds the entries at `positions` [H][n] in this
        order, NEVER where a head holds fewer.  scores: [H][entries before], the larger the better, of which `limit` would have been
        enough, or the least of those that stay."""
        layer, s = self.modules[module], self.sequences[sequence]
        if s.pads:
            self._refuse(module, "padding in a cache that lets entries go, which may keep some of it", "give a batch of texts that are equally long")
        if not s.ended:
            self._score(s, layer)
            s.held[layer].now(positions, self._total if first is None else first, scores, reason, limit)

    def attended(self, module, query, key, value, positions, scaling=None, softcap=None, first=None, sequence=0):
        """The attention of one layer, where an adapter's cache gives it what the library's function is not called with: queries
        [1][G][n][D], from `first` on or the newest, over keys and values [H][m][D] at `positions` [H][m], new entries among them."""
        layer, first, s = self.modules[module], self._total - query.shape[2] if first is None else first, self.sequences[sequence]
        self._seen_layers.add(layer)
        if s.ended:
            return
        held, how = s.held[layer], (scaling or module.head_dim**-0.5, softcap, None)
        newest = self._newest(positions, query.shape[2])[..., None]
        new = [x.gather(1, newest.expand(-1, -1, x.shape[-1])) for x in (key, value)]
        self._enter(s, layer, module, *new, first)
        held.places = positions
        held.take(query[0], key, value, positions, first, how)

    def _newest(self, positions, n):
        """[H][n]: where in [H][m] the newest n entries are, in their order."""
        order = torch.where(positions == NEVER, -1, positions).sort(-1).indices
        return order[:, order.shape[1] - n:]

    def _enter(self, s, layer, module, k, v, first):
        """New entries [H][n][D] of a sequence that is captured with an adapter."""
        s.recording.layers[layer].entries(k.float(), first, self._out_norm(module, layer, v))
        s.held[layer].store(k, v)
        s.known[layer] = first + k.shape[1]

    def _take_places(self, s, layer, module, q, k, v, t0, scale, softcap):
        """Rows over what the cache holds, in any order, go to the positions of its entries."""
        held, n = s.held[layer], self._total - t0
        new = torch.arange(t0, self._total, device=q.device).expand(len(k), -1)
        held.places = torch.cat([held.told(t0, len(k), q.device), new], 1)
        if held.places.shape[1] != k.shape[1]:
            self._refuse(module, "the cache gave it %d entries where the adapter told of %d" % (k.shape[1], held.places.shape[1]), "follow all that evicts")
        self._enter(s, layer, module, k[:, -n:], v[:, -n:], t0)
        held.take(q, k, v, held.places, t0, (scale, softcap, None))

    def _flush(self, s):
        for layer, held in enumerate(s.held):
            self._score(s, layer)
            held.settle(s.recording.steps)

    @torch.no_grad()
    def _after(self, module, args, out):
        """The likelihood of the tokens, and a snapshot where one is due."""
        missing = set(range(len(self._heads))) - self._seen_layers
        if missing:
            odd = [type(m).__name__ for m, layer in self.modules.items() if layer in missing]
            self._refuse(odd[0], "it does not call the attention function of transformers' AttentionInterface", "record such a model with kvfate.Writer")
        hidden = out
        while not torch.is_tensor(hidden):  # an output of the library, or what stands around it
            hidden = hidden.last_hidden_state if hasattr(hidden, "last_hidden_state") else hidden[0]
        for b, s in enumerate(self.sequences):
            if s.new and "nll" in self._names:
                self._likelihood(s, hidden[b, -len(s.new):])
            if s.recording.due():
                self._flush(s)
                s.recording.commit()

    def _likelihood(self, s, hidden):
        head = self.model.get_output_embeddings()
        if head is None:
            self._refuse(self.model, "it has no output embeddings, from which the likelihood of tokens is told", "leave the probe nll out, or load the class ...ForCausalLM")
        if hidden.shape[-1] != head.weight.shape[1]:
            self._refuse(self.model, "its decoder gives %d numbers for a token where its output embeddings take %d" % (hidden.shape[-1], head.weight.shape[1]), "leave the probe nll out")
        before = hidden[:-1] if s.last is None else torch.cat([s.last, hidden[:-1]])
        if s.last is None:
            s.recording.nll([float("nan")])
        target = torch.tensor(s.new[len(s.new) - len(before):], device=hidden.device)
        for t in range(0, len(before), 16):
            logits = head(before[t:t + 16]).float() / getattr(self.config, "logits_scaling", 1.0)
            cap = getattr(self.config, "final_logit_softcapping", None)
            logits = torch.tanh(logits / cap) * cap if cap else logits
            own = logits.gather(-1, target[t:t + 16, None])[:, 0]
            nll = torch.logsumexp(logits.double(), -1) - own.double()
            s.recording.nll(nll.tolist())
        s.last = hidden[-1:].clone()


def capture(model: PreTrainedModel, tokenizer=None, out: "str | os.PathLike" = "capture.kvf", probes: "str | list[str]" = "paper", watch: "str | None" = None,
            every: float = 30.0, most: "int | None" = None, existing: str = "refuse", meta: "dict | None" = None) -> Capture:
    """Records what a transformers model does inside a `with`.

        with kvfate.capture(model, tokenizer, out="x.kvf", probes="paper") as c:
            model.generate(**inputs, max_new_tokens=200)        # or: c.read(ids) to feed a given text

    probes: "lean", "paper", "full" or names of docs/reference/probes.md; watch: "383@L10H19" for the attention that tokens receive;
    every: seconds between snapshots, which are left when the program is killed; most: tokens that the run can have, of the model's
    context where it is not given; existing: as of kvfate.Writer; meta: what else the trace says of itself.
    A batch gives a trace for each sequence, x-0.kvf, x-1.kvf, ... (c.paths), without the padding."""
    return Capture(model, tokenizer, out, probes, watch, every, most, existing, meta)
