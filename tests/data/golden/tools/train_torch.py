"""Training of gates in PyTorch, written from docs/reference/gates.md and the headers of engine/train: every number by
autograd, with whole T x T matrices.  Slow and plain; the reference of train.json.  Needs torch and gguf.

Tensors of a pack: ids [T], first [T] (the first token of the document of token t).  Keys, values and gates [T, H, ...].
"""
import math
from dataclasses import dataclass, field

import gguf
import torch
import torch.nn.functional as F

WRITE_LEAST = 1e-3  # the write gate in training is never less
READOUT = {"rg": "linear2", "rgkv": "linear2", "rg10": "linear3", "linear": "linear1"}
KEY_EPS = 1e-6      # of the norms of the write gate, whatever the model's norms use


@dataclass
class Setting:
    layout: str                 # rg, rg10, linear, rgkv, wgkv
    form: str = "decay"         # decay, logit, write
    quality: tuple = ("fwkl", "ntp")
    combine: str = "mean"       # of the quality terms: mean (code) or sum (paper)
    weight: float = 1.0         # of the capacity or sparsity loss
    norm: str = "code"          # code, t, flat, sum
    everywhere: bool = False    # capacity over all layers and heads together
    M: float = 8.0
    tied: bool = False          # one readout and bias for all layers, under the names of layer 0
    window: int = 8             # wgkv
    offset: bool = True         # wgkv: the sparsity loss knows the window


@dataclass
class Pack:
    ids: torch.Tensor
    first: torch.Tensor

    def __post_init__(self):
        self.position = torch.arange(len(self.ids)) - self.first
        self.last = torch.bincount(self.first, minlength=len(self.ids))[self.first]  # tokens in the document


def pack(ids, lengths):
    starts = [s for s, n in zip([sum(lengths[:i]) for i in range(len(lengths))], lengths) for _ in range(n)]
    assert len(starts) == len(ids)
    return Pack(torch.tensor(ids), torch.tensor(starts))


def rmsnorm(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x, position, base):
    """x [T, heads, D]: neighbouring channels 2j, 2j + 1 turn by position * base^(-2j/D)"""
    D = x.shape[-1]
    angle = position[:, None].double() * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = angle.cos().to(x.dtype)[:, None], angle.sin().to(x.dtype)[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def visible(p, reach=0):
    """[T, T]: query i sees key j, of the last `reach` tokens if it is not 0; and i - j, 0 where it does not"""
    i = torch.arange(len(p.ids))
    distance = i[:, None] - i[None, :]
    seen = (distance >= 0) & (p.first[:, None] == p.first[None, :])
    if reach:
        seen &= distance < reach
    return seen, distance.clamp(min=0) * seen


def attention(q, k, v, p, form, gate, window, reach):
    """q [T, G, D], k, v [T, H, D], gate [T, H]: log beta, or the log of the write gate; reach: the layer's own window"""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    seen, distance = visible(p, reach)
    s = torch.einsum("igd,jgd->gij", q, k) / math.sqrt(q.shape[-1])
    if form != "none":
        g = gate.repeat_interleave(share, 1).T[:, None, :]  # [G, 1, T]: of key j
        if form == "decay":
            s = s + distance * g
        elif form == "logit":
            s = s * torch.exp(distance * g)
        else:
            s = s + (distance >= window) * g
    weights = torch.softmax(s.masked_fill(~seen, -math.inf), -1)
    return torch.einsum("gij,jgd->igd", weights, v).flatten(1)


class Gates:
    """tensors: {name of docs/reference/gates.md: parameter}"""

    def __init__(self, setting, tensors):
        self.s, self.t = setting, tensors

    def get(self, layer, name):
        if self.s.tied and name in (f"retention_gate.{READOUT[self.s.layout]}.weight", "retention_gate.bias"):
            layer = 0
        return self.t[f"model.layers.{layer}.self_attn.{name}"]

    def log_beta(self, layer, x):
        def get(name):
            return self.get(layer, "retention_gate." + name)
        if self.s.layout == "linear":
            return F.logsigmoid(F.linear(x, get("linear1.weight"), get("bias")))
        h = F.silu(F.linear(x, get("linear1.weight"), get("linear1.bias")))
        if self.s.layout in ("rg", "rgkv"):
            z = F.linear(h, get("linear2.weight"))
        else:
            h = F.silu(F.linear(h, get("linear2.weight"), get("linear2.bias")))
            z = F.linear(h, get("linear3.weight"))
        return F.logsigmoid(z + get("bias"))

    def write(self, layer, before, after):
        def get(name):
            return self.get(layer, "g_predictors." + name)
        T, H, _ = before.shape
        x = torch.cat([rmsnorm(before, get("pre_key_norm.weight"), KEY_EPS), rmsnorm(after, get("post_key_norm.weight"), KEY_EPS)], -1)
        x = F.conv1d(x.reshape(1, T, -1).mT, get("conv1.weight"), get("conv1.bias"), groups=H)
        x = F.conv1d(F.gelu(x), get("conv2.weight"), get("conv2.bias"), groups=H)
        return torch.sigmoid(x[0].mT).clamp(min=WRITE_LEAST)


class Llama:
    """or a family that turns channels j and j + D/2: Qwen2 (biases of q, k and v), Qwen3 (norms of the heads of q and k) or
    Gemma 3 (those norms, norms behind branches, GELU, a scaled embedding, and five of six layers with a window and a base of
    their own)"""

    def __init__(self, path, dtype=torch.float64):
        reader = gguf.GGUFReader(path)

        def get(key, default=None):
            return reader.fields[key].contents() if key in reader.fields else default
        arch = get("general.architecture")
        self.layers, self.dtype, self.halves = get(arch + ".block_count"), dtype, arch != "llama"
        self.heads, self.kv_heads = get(arch + ".attention.head_count"), get(arch + ".attention.head_count_kv")
        self.eps, self.base = get(arch + ".attention.layer_norm_rms_epsilon"), get(arch + ".rope.freq_base", 10000.0)
        self.gemma, self.window = arch == "gemma3", get(arch + ".attention.sliding_window", 0)
        self.w = {t.name: torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy()).to(dtype) for t in reader.tensors}
        self.out = self.w.get("output.weight", self.w["token_embd.weight"])

    def reach(self, i):
        """The window of layer i; 0: none."""
        return self.window if self.gemma and (i + 1) % 6 else 0

    def reaches(self):
        """The window of each KV head of all layers."""
        return [self.reach(i) for i in range(self.layers) for _ in range(self.kv_heads)]

    def act(self, x):
        return F.gelu(x, approximate="tanh") if self.gemma else F.silu(x)

    def behind(self, x, name):
        """The norm behind a branch, if the model has one."""
        return rmsnorm(x, self.w[name + ".weight"], self.eps) if name + ".weight" in self.w else x

    def hidden(self, p, gates=None):
        """([T, d] after the final norm, [log beta or g of each layer, [T, H]])"""
        x, values = self.w["token_embd.weight"][p.ids], []
        if self.gemma:
            x = x * math.sqrt(x.shape[1])
        for i in range(self.layers):
            n = rmsnorm(x, self.w[f"blk.{i}.attn_norm.weight"], self.eps)
            branch = F.linear(self.attend(n, p, i, gates, values), self.w[f"blk.{i}.attn_output.weight"])
            x = x + self.behind(branch, f"blk.{i}.post_attention_norm")
            n = rmsnorm(x, self.w[f"blk.{i}.ffn_norm.weight"], self.eps)
            up = self.act(F.linear(n, self.w[f"blk.{i}.ffn_gate.weight"])) * F.linear(n, self.w[f"blk.{i}.ffn_up.weight"])
            x = x + self.behind(F.linear(up, self.w[f"blk.{i}.ffn_down.weight"]), f"blk.{i}.post_ffw_norm")
        return rmsnorm(x, self.w["output_norm.weight"], self.eps), values

    def project(self, n, i, what, heads):
        name = f"blk.{i}.attn_{what}"
        x = F.linear(n, self.w[name + ".weight"], self.w.get(name + ".bias")).unflatten(-1, (heads, -1))
        return rmsnorm(x, self.w[name + "_norm.weight"], self.eps) if name + "_norm.weight" in self.w else x

    def turn(self, x, position, i):
        base = 10000.0 if self.reach(i) else self.base
        if not self.halves:
            return rotate(x, position, base)
        half = x.shape[-1] // 2
        angle = position[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
        cos, sin = (f(angle).to(x.dtype)[:, None, :] for f in (torch.cos, torch.sin))
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def paired(self, k):
        """channels in the order in which the gates of the program see them: 0, D/2, 1, D/2 + 1, ..."""
        return k.unflatten(-1, (2, -1)).mT.flatten(-2) if self.halves else k

    def attend(self, n, p, i, gates, values):
        q, reach = self.turn(self.project(n, i, "q", self.heads), p.position, i), self.reach(i)
        before, v = self.project(n, i, "k", self.kv_heads), self.project(n, i, "v", self.kv_heads)
        k = self.turn(before, p.position, i)
        if gates is None:
            return attention(q, k, v, p, "none", None, 0, reach)
        if gates.s.layout == "wgkv":
            values.append(gates.write(i, self.paired(before), self.paired(k)))
            return attention(q, k, v, p, gates.s.form, values[-1].log(), gates.s.window, reach)
        x = torch.cat([self.paired(before).flatten(1), v.flatten(1)], -1) if gates.s.layout == "rgkv" else n
        values.append(gates.log_beta(i, x))
        return attention(q, k, v, p, gates.s.form, values[-1], 0, reach)


# ---- losses

def quality(names, model, student, teacher, p):
    """{name: loss}"""
    at = (p.first[:-1] == p.first[1:]).nonzero()[:, 0]  # the next token is of the same document
    ls = torch.log_softmax(F.linear(student[at], model.out), -1)
    lt = torch.log_softmax(F.linear(teacher[at], model.out), -1)
    of = {
        "fwkl": lambda: (lt.exp() * (lt - ls)).sum(-1).mean(),
        "rvkl": lambda: (ls.exp() * (ls - lt)).sum(-1).mean(),
        "ntp": lambda: -ls.gather(1, p.ids[at + 1][:, None]).mean(),
        "mse": lambda: ((student - teacher) ** 2).mean(),
    }
    return {name: of[name]() for name in names}


def held(log_beta, p, reaches):
    """[heads, T]: R of capacity.h; reaches: the window of each head"""
    seen, distance = zip(*(visible(p, reach) for reach in reaches))
    return torch.stack([(torch.exp(d * lb) * s).sum(-1) for lb, s, d in zip(log_beta, seen, distance)])


def capacity(s, log_beta, p, reaches):
    """(loss, terms > 0, terms); log_beta [heads, T]"""
    R, heads, T = held(log_beta, p, reaches), len(log_beta), len(p.ids)
    many = heads if s.everywhere else 1  # what M, p and n are counted in
    R = R.sum(0, keepdim=True) if s.everywhere else R
    over = (R - s.M * many).clamp(min=0)
    if s.norm == "code":
        over = over / (p.position * many - s.M * many).clamp(min=1)
    elif s.norm == "t":
        over = over / ((p.position + 1) * many)
    elif s.norm == "flat":
        over = over / max(1, T * many - s.M * many)
    active = int((over > 0).sum())
    if s.norm == "code":
        loss = over.sum() / max(1, active)
    else:
        loss = (over.sum(1) if s.norm == "sum" else over.mean(1)).mean()
    return loss, active, over.numel()


def sparsity(s, g, p, reaches):
    left = torch.stack([(p.last - p.position).clamp(max=reach or len(p.ids)) for reach in reaches])
    o = (s.window / left).clamp(max=1) if s.offset else torch.zeros(len(p.ids))
    return (o + (1 - o) * (1 - (1 - g) ** 2)).mean()


def losses(model, setting, tensors, p):
    """({name: loss, "total": loss}, values [layers * H, T], facts)"""
    with torch.no_grad():
        teacher, _ = model.hidden(p)
    student, values = model.hidden(p, Gates(setting, tensors))
    values, reaches = torch.cat([v.T for v in values]), model.reaches()
    terms = quality(setting.quality, model, student, teacher, p)
    total, facts = sum(terms.values()), {}
    if setting.combine == "mean":
        total = total / len(terms)
    if setting.layout == "wgkv":
        terms["sparsity"] = cost = sparsity(setting, values, p, reaches)
    else:
        cost, facts["active"], facts["terms"] = capacity(setting, values, p, reaches)
        terms["capacity"] = cost
    terms["total"] = total + setting.weight * cost
    return terms, values, facts


# ---- the optimizer's steps

@dataclass
class Run:
    lr: float = 1e-2
    min_lr: float = 1e-3
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    decay: float = 0.01
    clip: float = 1.0
    warmup: int = 2
    steps: int = 6  # of the whole run; the cosine ends there
    done: int = 3
    record: list = field(default_factory=list)

    def rate(self, t):
        if t <= self.warmup:
            return self.lr * t / self.warmup
        share = (t - self.warmup) / (self.steps - self.warmup)
        return self.min_lr + (self.lr - self.min_lr) * (1 + math.cos(math.pi * share)) / 2


def train(model, setting, tensors, packs, run):
    """Steps 1 .. run.done in place, all packs in each; run.record: loss, norm and rate of each"""
    parameters = list(tensors.values())
    adam = torch.optim.AdamW(parameters, lr=run.lr, betas=run.betas, eps=run.eps, weight_decay=run.decay)
    for t in range(1, run.done + 1):
        adam.zero_grad()
        loss = sum(losses(model, setting, tensors, p)[0]["total"] for p in packs) / len(packs)
        loss.backward()
        norm = torch.sqrt(sum((x.grad ** 2).sum() for x in parameters))
        for x in parameters:  # not clip_grad_norm_, which divides by norm + 1e-6
            x.grad *= min(1.0, run.clip / float(norm))
        for group in adam.param_groups:
            group["lr"] = run.rate(t)
        adam.step()
        run.record.append({"loss": loss.item(), "norm": norm.item(), "rate": run.rate(t)})
