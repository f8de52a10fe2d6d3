#!/usr/bin/env python3
"""Measure complete runs of the program on a device, with random weights in the shapes of real models, and compare them
with bounds, targets and papers.

usage: runs.py --kvfate PATH --models FOLDER [--only NAME,...] [--limit SECONDS] [--device cuda|cpu] [--rounds N]
  [--shape NAME] [--chunk N] [--tiny] [--list]

It prints a table per theme and at the end the memory of every run.  Models and gates are made in FOLDER
(bench/gpu/make_model.py) if they are missing.  --only selects themes (decode) or rows (decode/Qwen3-4B); --list
prints all names with their approximate seconds on an H200. A row that fails prints the reason, and the exit status
is then 1; rows without time left are omitted.  Times are the program's own, of prompt and answer, without loading:
the median of several answers after a warm-up.  Ratios alternate between the two.  --shape uses one shape for all
rows (if a larger one takes too long). --tiny tests everything with one small shape and short texts: its times are
meaningless.  It needs NumPy; the measured peak of matrix multiplications needs PyTorch.
"""
import argparse
import functools
import json
import statistics
import subprocess
import sys

import roofline
from program import Failed, NoTime, Program
from shapes import SHAPES, entry_bytes, weights

# TB/s of memory and dense bf16 TFLOP/s of cards, by a part of their names
CARDS = {"H200": (4.8, 989), "H100 PCIe": (2.0, 756), "H100": (3.35, 989), "A100": (2.0, 312), "": (4.8, 989)}
MILLION, BILLION = 1e6, 1e9
WARM = (2048, 8)  # warm-up tokens of the prompt and of the answer

THEMES = {}  # name: Theme


class Theme:
    def __init__(self, name, title, columns, notes=""):
        self.name, self.title, self.columns, self.notes, self.rows = name, title, columns, notes, {}
        THEMES[name] = self

    def row(self, name, seconds, *args):
        """Add a row: the decorated function returns its cells, or several rows of cells."""
        def add(f):
            self.rows[name] = (seconds, functools.partial(f, *args))
            return f
        return add


def median(values):
    return statistics.median(list(values))


def decoded(x):
    """Return the decode steps per second of an answer."""
    return (x["generated_tokens"] - 1) / x["decode_seconds"]


def gigabytes(n):
    return "-" if n is None else f"{n / BILLION:.2f}"


def percent(x):
    return f"{100 * x:.1f} %"


def why(p, e):
    p.failed += not isinstance(e, NoTime)
    return f"left out: {e}" if isinstance(e, NoTime) else f"failed: {e}"


def quotient(a, b, form=percent):
    """Return a / b if both were measured."""
    return form(a / b) if a and b else "-"


# ---- decode of one sequence, recorded or not

DECODE = Theme("decode", "Decode of one sequence: a prompt of 512 tokens, 256 steps, full cache; what recording costs (at most 5 %)",
               ["model", "steps/s", "at most", "share", "lean: steps/s", "costs", "paper: steps/s", "costs", "target"])


def decode(p, shape):
    prompt, steps = p.tokens(512), p.steps(256)
    lines = [(prompt, p.steps(WARM[1]))] + [(prompt, steps + 1)] * 3
    rates, failed = {kind: [] for kind in ("nothing", "lean", "paper")}, {}
    for _ in range(p.rounds):
        for kind in [k for k in rates if k not in failed]:
            try:
                said = p.answers(f"decode, {shape.name}, recording {kind}", shape, lines, probes=None if kind == "nothing" else kind)
                rates[kind].extend(decoded(x) for x in said[1:])
            except Failed as e:
                failed[kind] = why(p, e)
    base, lean, paper = (median(x) if x else None for x in rates.values())
    most = p.bandwidth / roofline.step_bytes(shape, prompt + steps / 2)
    cells = [shape.name, f"{base:.1f}" if base else failed["nothing"], f"{most:.0f}", quotient(base, most)]
    for kind, rate in (("lean", lean), ("paper", paper)):
        cells += [f"{rate:.1f}" if rate else failed[kind], quotient(base, rate, lambda x: percent(x - 1))]
    return cells + ["5 %"]


for _name, _seconds in (("Qwen3-4B", 90), ("SmolLM2-135M", 30), ("Qwen3-0.6B", 45), ("Llama-3.1-8B", 180)):
    DECODE.row(_name, _seconds, _name)(lambda name, p: decode(p, p.shape(name)))


# ---- prompts

PREFILL = Theme("prefill", "A prompt of 32,768 tokens (products: 2 x weights of layers x tokens; target: half of the peak)",
                ["model", "tokens", "seconds", "tokens/s", "products, TFLOP/s", "of the card's peak", "of the measured peak", "seconds without most of attention",
                 "products there, TFLOP/s", "of the card's peak", "attention, s", "attention, TFLOP/s"],
                "Without most of attention: `local` with 128 sinks and 128 newest entries. Attention's seconds are the difference.")


def measured_peak():
    """Return the dense bf16 FLOP/s of a matrix multiplication of 8,192^3 by PyTorch, or None without it."""
    text = ("import torch, time\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\nb = torch.randn_like(a)\nfor n in (3, 20):\n"
            "    torch.cuda.synchronize(); t = time.perf_counter()\n    for _ in range(n): a @ b\n    torch.cuda.synchronize(); t = time.perf_counter() - t\n"
            "print(20 * 2 * 8192**3 / t)\n")
    try:
        r = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=True)
        return float(r.stdout)
    except (subprocess.SubprocessError, ValueError):
        return None


def prompt_seconds(p, what, shape, tokens, n=1, **more):
    """Return the second of two runs with the median of their seconds; a large prompt runs once."""
    repeats = 1 if sum(roofline.prompt_operations(shape, tokens)) * tokens > 1e14 else 2
    said = p.answers(what, shape, [(min(p.tokens(WARM[0]), tokens), 1)] + [(tokens, n)] * repeats, **more)[1:]
    said[-1]["prefill_seconds"] = median(x["prefill_seconds"] for x in said)
    return said[-1]


def prefill(p, shape):
    n = p.tokens(32768)
    if p.device == "cuda" and not p.tiny and p.torch_peak is None:
        p.torch_peak = measured_peak() or 0
    whole = prompt_seconds(p, f"prompt, {shape.name}", shape, n, limit=240)["prefill_seconds"]
    flops, attention = (n * x for x in roofline.prompt_operations(shape, n))
    measured = percent(flops / whole / p.torch_peak) + f" of {p.torch_peak / 1e12:.0f}" if p.torch_peak else "-"
    cells = [shape.name, f"{n:,}", f"{whole:.3f}", f"{n / whole:,.0f}", f"{flops / whole / 1e12:.1f}", percent(flops / whole / p.peak), measured]
    try:
        bare = prompt_seconds(p, f"prompt, {shape.name}, local", shape, n, method="local", budget=256)["prefill_seconds"]
    except Failed as e:
        return cells + [why(p, e)]
    return cells + [f"{bare:.3f}", f"{flops / bare / 1e12:.1f}", percent(flops / bare / p.peak), f"{whole - bare:.3f}",
                    f"{attention / max(whole - bare, 1e-9) / 1e12:.1f}"]


for _name, _seconds in (("SmolLM2-135M", 25), ("Qwen3-4B", 110)):
    PREFILL.row(_name, _seconds, _name)(lambda name, p: prefill(p, p.shape(name)))

SURVIVAL = Theme("survival", "A prompt of 16,384 tokens with --probes survival (at most 30 %)", ["model", "tokens", "nothing recorded, s", "survival, s", "costs", "target"])


def survival(p, shape):
    n, kinds, seconds = p.tokens(16384), {"nothing": None, "survival": "survival"}, {}
    for _ in range(p.rounds):
        for kind, probes in kinds.items():
            x = prompt_seconds(p, f"prompt of 16,384, {shape.name}, recording {kind}", shape, n, probes=probes)
            seconds.setdefault(kind, []).append(x["prefill_seconds"])
    base, watched = (median(seconds[kind]) for kind in kinds)
    return [shape.name, f"{n:,}", f"{base:.3f}", f"{watched:.3f}", percent(watched / base - 1), "30 %"]


for _name, _seconds in (("SmolLM2-135M", 30), ("Qwen3-4B", 120)):
    SURVIVAL.row(_name, _seconds, _name)(lambda name, p: survival(p, p.shape(name)))


# ---- many sequences

BATCH = ["method", "context", "budget", "answer", "sequences", "tokens/s", "decode, s", "of full", "at most, tokens/s", "share", "prompts, s",
         "device memory, GB", "caches, GB"]


def together(p, theme, shape, batch, context, answer, cells, limit=300):
    """Yield a row per (method, budget, options): sequences of one length decoded together, after their prompts were
    prefilled one by one.
    """
    context, answer, rows, full = p.tokens(context), p.steps(answer), [], None
    batch = min(batch, 3) if p.tiny else batch
    for method, budget, options in cells:
        budget = p.budget(budget) if budget else None
        what = f"{theme}, {shape.name}, {batch} x {context:,}, {method}{' ' + str(budget) if budget else ''}"
        head = [method + (":" + options if options else ""), f"{context:,}", budget or "-", answer, batch]
        try:
            said = p.answers(what, shape, [(context, answer)] * batch, method, budget, together=batch, limit=limit, options=options)
        except Failed as e:
            rows.append((head + [why(p, e)], None))
            continue
        seconds, made = said[-1]["decode_seconds"], sum(x["generated_tokens"] - 1 for x in said)
        full = seconds if method == "full" else full
        held = batch * (budget if budget and method != "seer" else context + answer / 2) * entry_bytes(shape)
        most = batch * p.bandwidth / (2 * weights(shape) + held)
        rows.append((head + [f"{made / seconds:.1f}", f"{seconds:.2f}", f"{seconds / full:.2f}" if full else "-", f"{most:.0f}", percent(made / seconds / most),
                             f"{sum(x['prefill_seconds'] for x in said):.2f}", gigabytes(said[-1]["device"]), gigabytes(sum(x["kv_bytes_peak"] for x in said))], said))
    return rows


# TRIM-KV, version 2, Table 6 (version 1, Table 5): one H200, answers of 1,024 tokens, M = 1,024; tokens/s and decode seconds
TRIM_KV = {(32786, 4): {"full": (68.44, 59.84), "seer": (68.93, 59.41), "snapkv": (124.67, 33.00), "trimkv": (130.48, 31.39)},
           (16378, 4): {"full": (114.39, 35.8), "seer": (100.45, 40.77), "snapkv": (153.21, 26.73), "trimkv": (151.04, 27.11)},
           (16378, 8): {"full": (138.97, 58.94), "seer": (139.34, 58.78), "snapkv": (244.60, 33.49), "trimkv": (279.90, 29.26)}}
TRIM = Theme("trimkv", "Many sequences as in Table 6 of TRIM-KV: Qwen3-4B, M = 1,024, answers of 1,024 tokens", BATCH + ["paper: tokens/s", "paper: decode, s"],
             "The paper's table names no model; its experiments are mostly with Qwen3. Its contexts are those printed there.")


def trim_kv(key, p):
    context, batch = key
    cells = [("full", None, ""), ("trimkv", 1024, ""), ("snapkv", 1024, ""), ("seer", 1024, "")]
    rows = together(p, "Table 6", p.shape("Qwen3-4B"), batch, context, 1024, cells)
    return [row + [str(x) for x in TRIM_KV[key][row[0]]] if said else row for row, said in rows]


for _key, _seconds in (((32786, 4), 260), ((16378, 4), 160), ((16378, 8), 260)):
    TRIM.row(f"{_key[0]}x{_key[1]}", _seconds, _key)(trim_kv)

DBTRIM = Theme("dbtrimkv", "As in Figures 7 and 10 to 12 of DBTrimKV, with Qwen3-0.6B and answers of 512 tokens (its own: batch 16, 8,192 tokens, context 16,384, budget 256)",
               BATCH, "The figures' numbers are in no text: full falls behind with length, the other two stay level with context and budget.")
DB_ROWS = {"context-4096": (4096, 512, (256,), 30), "context-16384": (16384, 512, (256,), 75), "context-32768": (32768, 512, (256,), 150),
           "answer-2048": (16384, 2048, (256,), 100), "budgets": (4096, 512, (512, 1024, 2048), 70)}


def db_trim(key, p):
    context, answer, budgets, _ = DB_ROWS[key]
    cells = [("full", None, "")] + [(m, b, "") for b in budgets for m in ("trimkv", "dbtrimkv")]
    return [row for row, _ in together(p, "DBTrimKV", p.shape("Qwen3-0.6B"), 16, context, answer, cells)]


for _key, _row in DB_ROWS.items():
    DBTRIM.row(_key, _row[3], _key)(db_trim)

# G-KV, Table 2, DeepSeek-Llama-Distill-8B on an A100, answers of up to 16k tokens: tokens/s by sequences
G_KV = {("full", None): {16: 31.08, 32: "OOM", 64: "OOM"}, ("rkv", 2048): {16: 82.33, 32: 98.01, 64: 111.89}, ("gkv", 512): {16: 158.43, 32: 517.30, 64: 612.60},
        ("gkv", 1024): {16: 118.10, 32: 193.56, 64: 258.18}, ("gkv", 2048): {16: 93.91, 32: 118.82, 64: 154.52}}
GKV = Theme("gkv", "As in Table 2 and Figure 8 of G-KV, with the shape of Llama-3.1-8B and answers of 512 tokens after a prompt of 2,304 (full: 8,192, half of 16k)",
            BATCH + ["paper: tokens/s (A100)"], "Full caches of 32 and 64 such sequences, out of memory in the paper, are not tried: they are on the host, too.")


def g_kv(batch, p):
    shape, rows = p.shape("Llama-3.1-8B"), []
    for context, cells in ((8192, [("full", None, "")] if batch == 16 else []), (2304, [("rkv", 2048, ""), ("gkv", 512, ""), ("gkv", 1024, ""), ("gkv", 2048, "")])):
        for cell in cells:
            row, said = together(p, "G-KV", shape, batch, context, 512, [cell])[0]
            rows.append(row + [str(G_KV[cell[:2]][batch])] if said else row)
    return rows


for _batch, _seconds in ((16, 200), (32, 300), (64, 500)):
    GKV.row(f"batch-{_batch}", _seconds, _batch)(g_kv)

# G-KV, Tables 3 and 4: ms of a compression, and its share of decoding; DeepSeek-Distill-Qwen-7B, 32 sequences, A100
G_CUT = {("rkv", 512): (46.1, "0.77 %"), ("gkv", 512): (50.5, "0.83 %"), ("rkv", 1024): (74.5, "1.10 %"), ("gkv", 1024): (79.4, "1.20 %"),
         ("rkv", 2048): (117.6, "1.59 %"), ("gkv", 2048): (121.4, "1.57 %")}
CUTS = Theme("cuts", "What a cut costs, as in Tables 3 and 4 of G-KV: Qwen3-0.6B, 16 sequences, a cut each 128 tokens (rkv: local score, gkv: global)",
             ["method", "budget", "sequences", "cuts", "decode, s", "window's decode, s", "ms per cut", "of decoding", "paper: ms", "paper: share"],
             "A cut's time is what the decode takes beyond one whose cuts score positions alone (window:every=128), for all sequences together.")


def cuts(budget, p):
    shape, batch = p.shape("Qwen3-0.6B"), 3 if p.tiny else 16
    held, rows, base = p.budget(budget), [], None
    for method, options in (("window", "every=128"), ("rkv", ""), ("gkv", "")):
        options = "every=2" if p.tiny else options
        said = p.answers(f"cuts, {method} {held}", shape, [(held + 256, p.steps(1024))] * batch, method, held, together=batch, options=options)
        seconds, n = said[-1]["decode_seconds"], said[-1]["triggers"] - 1  # the first follows the prompt
        base = base or seconds
        if method != "window":
            ms, share = G_CUT[method, budget]
            rows.append([method, held, batch, f"{n:.0f}", f"{seconds:.2f}", f"{base:.2f}", f"{1e3 * (seconds - base) / max(n, 1):.2f}", percent((seconds - base) / seconds), ms, share])
    return rows


for _budget in (512, 1024, 2048):
    CUTS.row(str(_budget), 45, _budget)(cuts)


# ---- vertical-slash

SPARSE = Theme("sparse", "Vertical-slash: wgkv with a quarter admitted beside the full cache (at 131,072 tokens at most 0.35 of attention's time)",
               ["model", "tokens", "method", "admitted", "prompt, s", "of full", "attention, s", "of full", "target", "decode, ms", "of full", "device memory, GB", "cache, GB"],
               "Attention is what a prompt takes beyond `local` with 256 entries. WG-KV (one H200, 75 % sparsity), Figure 8: prompts 3.03 to 3.45 times as fast "
               "(0.29 to 0.33), decode 1.89 to 2.56 (0.39 to 0.53), memory 46 to 57 % less with Llama-3.1-8B at 200K to 400K; Figure 15, Qwen3-4B: 3.33 to 3.70 "
               "(0.27 to 0.30), 1.85 to 2.56 (0.39 to 0.54), 59 to 68 % less at 200K to 500K. The full cache beside local is its Figure 1.")
LOCAL = 256  # the window of wgkv


def admitted(x):
    """Return the fraction of entries outside the window that a head caches at the end."""
    fed = x["prompt_tokens"] + x["generated_tokens"] - 1
    return max(x["kv_entries_end"] / x["kv_heads"] - LOCAL, 0) / max(fed - LOCAL, 1)


def sparse_cells(method, x, said, tokens):
    """Return the cells after the method; said: the result of each method, or its error."""
    if isinstance(x, str):
        return [x]
    base, whole, step = None, None, None
    if isinstance(said["local"], dict):
        base = said["local"]["prefill_seconds"]
    if isinstance(said["full"], dict):
        whole, step = said["full"]["prefill_seconds"], 1 / decoded(said["full"])
    seconds, own, ratio = x["prefill_seconds"], 1 / decoded(x), "{:.2f}".format
    attention, dense = (seconds - base if base else None), (whole - base if base and whole else None)
    share = ratio(attention / dense) if dense and dense > 0 and method != "local" else "-"
    return [percent(admitted(x)) if method == "wgkv" else "-", f"{seconds:.3f}", quotient(seconds, whole, ratio), "-" if attention is None else f"{attention:.3f}", share,
            "0.35" if method == "wgkv" and tokens > 100000 else "-", f"{1e3 * own:.2f}", quotient(own, step, ratio), gigabytes(x["device"]), gigabytes(x["kv_bytes_peak"])]


def sparse(shape_name, tokens, p):
    shape, n, said = p.shape(shape_name), p.tokens(tokens), {}
    for method, budget in (("local", LOCAL), ("full", None), ("wgkv", None)):
        try:
            said[method] = prompt_seconds(p, f"{method}, {shape.name}, {n:,}", shape, n, p.steps(100) + 1, method=method, budget=budget, limit=240)
        except Failed as e:
            said[method] = why(p, e)
    return [[shape.name, f"{n:,}", method, *sparse_cells(method, x, said, tokens)] for method, x in said.items()]


for _name, _times in (("SmolLM2-135M", (20, 30, 120)), ("Qwen3-0.6B", (30, 50, 240))):
    for _tokens, _seconds in zip((8192, 32768, 131072), _times):
        SPARSE.row(f"{_name}-{_tokens}", _seconds, _name, _tokens)(sparse)


# ---- training

TRAIN = Theme("train", "Training of gates (trimkv:hidden=512,M=512): tokens/s of the steps after the first",
              ["model", "tokens of a pack", "steps", "tokens/s", "at most", "share", "first step, s", "device memory, GB", "by the formula, GB"],
              "At most and formula: bench/gpu/roofline.py.")


def train(shape_name, length, steps, p):
    shape, n = p.shape(shape_name), p.tokens(length)
    steps = 3 if p.tiny else steps
    x = p.training(f"train, {shape.name}, {n:,}", shape, "trimkv:hidden=512,M=512", n, steps, 200)
    rate = x["tokens"] * (steps - 1) / steps / max(x["seconds"] - x["first_step_seconds"], 1e-9)
    products, attention = roofline.train_operations(shape, n, False)
    most = p.peak / (products + attention)
    return [shape.name, f"{n:,}", steps, f"{rate:,.0f}", f"{most:,.0f}", percent(rate / most), f"{x['first_step_seconds']:.2f}", gigabytes(x["device"]),
            gigabytes(sum(roofline.train_bytes(shape, n, False)))]


for _name, _length, _steps, _seconds in (("SmolLM2-135M", 2048, 20, 25), ("Qwen3-4B", 2048, 8, 90), ("SmolLM2-135M", 16384, 5, 45)):
    TRAIN.row(f"{_name}-{_length}", _seconds, _name, _length, _steps)(train)


# ---- main

def line(cells):
    print("| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |", flush=True)


def table(theme, chosen, p):
    print(f"\n## {theme.title}\n\n{theme.notes}\n" if theme.notes else f"\n## {theme.title}\n")
    line(theme.columns)
    line(["---"] * len(theme.columns))
    for name, (_, measure) in theme.rows.items():
        if name not in chosen:
            continue
        try:
            made = measure(p)
        except Failed as e:
            made = [name, why(p, e)]
        for cells in made if isinstance(made[0], list) else [made]:
            line(list(cells) + [""] * (len(theme.columns) - len(cells)))


def memory(p):
    print("\n## Memory of the device, and time beside the runs' own\n\nFormula: weights and the caches at their peak, 16 bits each.\n")
    line(["run", "whole, s", "of it loading and the rest, s", "device memory at the peak, GB", "formula, GB"])
    line(["---"] * 5)
    for what, seconds, busy, used, formula in p.memory:
        line([what, f"{seconds:.1f}", f"{seconds - busy:.1f}", gigabytes(used), gigabytes(formula)])


def choose(words):
    """Return {theme: names of rows}."""
    chosen = {name: list(t.rows) for name, t in THEMES.items()} if not words else {}
    for word in words:
        theme, _, row = word.partition("/")
        if theme not in THEMES or (row and row not in THEMES[theme].rows):
            raise SystemExit(f"runs.py: there is no {word}; --list names all")
        chosen.setdefault(theme, []).extend([row] if row else THEMES[theme].rows)
    return chosen


def card_of(p):
    name = p.watch.name() or ""
    if not name:
        r = subprocess.run([p.kvfate, "list", "devices", "--json"], capture_output=True, check=False)
        found = json.loads(r.stdout or "{}").get("devices", [])
        name = found[0]["name"] if found else ""
    part = next(key for key in CARDS if key in name)
    return name or "no device", CARDS[part]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--kvfate", metavar="PATH")
    ap.add_argument("--models", metavar="FOLDER")
    ap.add_argument("--only", default="", metavar="NAME,...")
    ap.add_argument("--limit", type=float, default=540, metavar="SECONDS")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--shape", choices=SHAPES)
    ap.add_argument("--chunk", type=int)
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--list", action="store_true")
    a = ap.parse_args()
    chosen = choose([x for x in a.only.split(",") if x])
    if a.list:
        for theme, rows in chosen.items():
            for row in rows:
                print(f"{theme}/{row} {THEMES[theme].rows[row][0]}")
        return 0
    if not a.kvfate or not a.models:
        ap.error("--kvfate and --models are needed")
    p = Program(a.kvfate, a.models, a.device, a.limit, a.tiny, a.shape, a.chunk)
    name, (bandwidth, peak) = card_of(p)
    p.rounds, p.bandwidth, p.peak, p.torch_peak, p.failed = a.rounds, bandwidth * 1e12, peak * 1e12, None, 0
    print(f"{name}; --device {a.device}; bounds of {bandwidth} TB/s and {peak} TFLOP/s in bf16")
    for theme, rows in chosen.items():
        table(THEMES[theme], rows, p)
    memory(p)
    print(f"\nThe whole took {a.limit - p.left():.0f} s; {p.failed} runs failed.")
    return 1 if p.failed else 0


if __name__ == "__main__":
    sys.exit(main())
